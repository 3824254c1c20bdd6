"""The package's face: what `treadle.journal` exports, what it imports, and what `open_store` takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import treadle.journal
from treadle.errors import InputError
from treadle.journal import MemoryStore, SQLiteStore, open_store
from treadle.journal._owner import is_dead, this_process

SOURCE = Path(treadle.journal.__file__).parent.parent.parent


def test_exports_are_sorted_and_there() -> None:
    assert treadle.journal.__all__ == sorted(treadle.journal.__all__)
    for name in treadle.journal.__all__:
        assert getattr(treadle.journal, name).__module__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        treadle.journal.Nothing  # noqa: B018


def test_the_import_loads_no_database_and_no_pydantic() -> None:
    code = "import sys, treadle.journal; print([m for m in ('sqlite3', '_sqlite3', 'pydantic') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout == "[]\n"


def test_urls_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = MemoryStore()
    assert open_store(store) is store
    assert isinstance(open_store("memory:"), MemoryStore)
    assert repr(open_store("sqlite:///runs.db")) == repr(SQLiteStore(tmp_path / "runs.db"))
    assert repr(open_store("sqlite:////var/runs.db")) == "SQLiteStore('/var/runs.db')"
    assert repr(open_store(Path("/var/runs.db"))) == "SQLiteStore('/var/runs.db')"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", ["", "runs.db", "sqlite://", "sqlite:///", "sqlite://runs.db", "postgres://x", 7, None]
)
def test_anything_else_is_refused_with_what_is_accepted(wrong: object) -> None:
    with pytest.raises(InputError, match=r"sqlite:///relative\.db"):
        open_store(wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wrong", ["sqlite:///runs.db?durability=power", "sqlite:///:memory:"])
def test_near_misses_are_refused_with_the_way_to_write_them(wrong: str) -> None:
    with pytest.raises(InputError, match=r"SQLiteStore\(path, durability|MemoryStore"):
        open_store(wrong)


def test_processes_are_known_dead_only_if_they_surely_are() -> None:
    here = this_process()
    place, pid, started = here.split("#")
    assert not is_dead(here)
    assert not is_dead("nonsense")
    assert not is_dead(f"other{place}#{pid}#{started}")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_dead(f"{place}#{child.pid}#{started}")
    if sys.platform == "linux":
        assert is_dead(f"{place}#{pid}#1")
