"""`open_store`: from what a user writes to a store."""

from __future__ import annotations

import os
from typing import cast

from treadle.errors import InputError
from treadle.journal._journal import Journal
from treadle.journal._memory import MemoryStore

_ACCEPTED = (
    'A store is "memory:", "sqlite:///relative.db", "sqlite:////absolute/path.db", a `pathlib.Path`, '
    "or an object with the methods of `treadle.journal.Journal`"
)
_SQLITE = "sqlite:///"


def open_store(source: str | os.PathLike[str] | Journal) -> Journal:
    """Make a store from a URL or a path; a store is returned as it is.

    Example:
        >>> open_store("sqlite:///runs.db").__class__.__name__
        'SQLiteStore'
    """
    if isinstance(source, str):
        return _from_url(source)
    if isinstance(source, os.PathLike):
        return _sqlite(os.fspath(source))
    if callable(getattr(source, "acquire", None)) and callable(getattr(source, "append", None)):
        return source
    raise InputError(f"{_ACCEPTED}, not {cast(object, source)!r:.200}.")


def _from_url(url: str) -> Journal:
    if url == "memory:":
        return MemoryStore()
    if not url.startswith(_SQLITE) or url == _SQLITE:
        raise InputError(f"{_ACCEPTED}, not {url!r:.200}.")
    if "?" in url:
        raise InputError(f"{url!r} has options; pass them as `SQLiteStore(path, durability=..., ...)`.")
    return _sqlite(url.removeprefix(_SQLITE))


def _sqlite(path: str) -> Journal:
    from treadle.journal._sqlite import SQLiteStore

    return SQLiteStore(path)
