"""Media on their way to a provider: from a URL, a file or bytes, to what a wire format takes."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path

from treadle.errors import InputError
from treadle.message import Base64Source, PathSource, Source, URLSource


def media_type_of(source: Source, fallback: str) -> str:
    """What kind of file a source is: as it says itself, else by its name."""
    if source.media_type:
        return source.media_type
    name = source.url if isinstance(source, URLSource) else source.path if isinstance(source, PathSource) else ""
    return mimetypes.guess_type(name.split("?")[0])[0] or fallback


def as_base64(source: Base64Source | PathSource) -> str:
    """The bytes of a source that is here, as text."""
    if isinstance(source, Base64Source):
        return source.data
    try:
        return base64.b64encode(Path(source.path).read_bytes()).decode()
    except OSError as error:
        raise InputError(f"The file {source.path!r} cannot be read: {error.strerror or error}") from error


def as_url(source: Source, fallback: str) -> str:
    """A source as a URL: its own, or a `data:` URL with its bytes."""
    if isinstance(source, URLSource):
        return source.url
    return f"data:{media_type_of(source, fallback)};base64,{as_base64(source)}"
