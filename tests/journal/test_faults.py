"""A journal's file that is locked, full, damaged, foreign or not there: a typed error that helps, and nothing lost."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from journal import files
from treadle.errors import (
    ConflictError,
    FormatError,
    InputError,
    JournalCorruptError,
    JournalError,
    JournalFullError,
    JournalLockedError,
)
from treadle.journal import EndedRecord, SQLiteStore
from treadle.journal import _sqlite_file as sqlite_file
from treadle.journal import _sqlite_worker as sqlite_worker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, busy_timeout=0.05)
    yield store
    await store.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 300 kB; None where we may not mount one."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def note(text: str = "x") -> EndedRecord:
    return EndedRecord(reason=text)


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def write(path: Path, count: int = 3) -> None:
    store = SQLiteStore(path)
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [note("x" * 2_000)] * count)
    await store.close()


async def test_the_constructor_touches_no_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "none" / "journal.db")
    assert repr(store) == f"SQLiteStore({str(tmp_path / 'none' / 'journal.db')!r})"
    with pytest.raises(JournalError, match=r"no folder .*none.*create it"):
        await store.read("t")
    with pytest.raises(JournalError, match="no folder"):
        await store.acquire("t", owner="run")
    (tmp_path / "none").mkdir()
    assert await store.read("t") == []
    await store.close()


async def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with pytest.raises(JournalError, match="Check that the file"):
        await store.acquire("t", owner="run")
    await store.close()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_memory_is_not_a_file(path: str) -> None:
    with pytest.raises(InputError, match="MemoryStore"):
        SQLiteStore(path)


@pytest.mark.parametrize("wrong", [{"durability": "none"}, {"lease_ttl": 0}, {"poll": 0}, {"busy_timeout": -1}])
def test_settings_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        SQLiteStore("x.db", **wrong)  # pyright: ignore[reportArgumentType]


async def test_a_locked_file(store: SQLiteStore, path: Path) -> None:
    lease = await store.acquire("t", owner="run")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JournalLockedError, match=r"journal\.db.*busy_timeout"):
            await store.append(lease, 0, [note()])
        assert await store.read("t") == []
        other.execute("COMMIT")
    await store.append(lease, 0, [note()])
    assert len(await store.read("t")) == 1


async def test_a_file_that_is_locked_for_a_moment(path: Path) -> None:
    store = SQLiteStore(path)
    lease = await store.acquire("t", owner="run")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        appending = asyncio.create_task(store.append(lease, 0, [note()]))
        await asyncio.sleep(0)
        other.execute("COMMIT")
        await appending
    assert len(await store.read("t")) == 1
    await store.close()


async def test_a_full_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite_file.connect

    def small(settings: sqlite_file.Settings) -> sqlite3.Connection:
        connection = connect(settings)
        connection.execute("PRAGMA max_page_count = 30")
        return connection

    monkeypatch.setattr(sqlite_worker, "connect", small)
    store = SQLiteStore(path)
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [note()])
    with pytest.raises(JournalFullError, match=r"journal\.db.*Free space"):
        await store.append(lease, 1, [note("x" * 3_000) for _ in range(100)])
    outcomes = await asyncio.gather(
        *(store.append(lease, 1, [note("x" * 200_000)]) for _ in range(3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [JournalFullError] * 3
    await store.append(lease, 1, [note("small")])
    assert len(await store.read("t")) == 2
    await store.close()


async def test_a_full_disk(tiny_disk: Path | None, tmp_path: Path) -> None:
    path = (tiny_disk or tmp_path) / "journal.db"
    store = SQLiteStore(path)
    lease = await store.acquire("t", owner="run")
    written = 0
    if tiny_disk is None:  # the same through a limit of the process: test_a_file_that_may_not_grow_is_full
        await store.close()
        return
    with pytest.raises(JournalFullError, match="nothing stored was lost"):  # noqa: PT012
        while written < 1_000:
            await store.append(lease, written, [note("x" * 5_000)])
            written += 1
    assert len(await store.read("t")) == written > 5
    await store.close()
    store = SQLiteStore(path)
    assert len(await store.read("t")) == written
    await store.close()


def garbage(data: bytes) -> bytes:
    return b"garbage " * (len(data) // 8)


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("damage", [garbage, half])
async def test_a_damaged_file(path: Path, damage: Callable[[bytes], bytes]) -> None:
    await write(path, 50)
    files.overwrite(path, damage(files.content(path)))
    store = SQLiteStore(path)
    with pytest.raises(JournalCorruptError, match=r"journal\.db"):
        await store.read("t")
    with pytest.raises(JournalCorruptError, match="restore a copy"):  # noqa: PT012
        lease = await store.acquire("t", owner="run")
        await store.append(lease, 50, [note("x" * 500_000)])
    await store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE records RENAME COLUMN body TO other",
        "DROP TABLE records",
        "DELETE FROM records WHERE id & 0xFFFFFFFF = 2",
        "UPDATE snapshots SET data = '{'",
    ],
)
async def test_missing_parts(path: Path, damage: str) -> None:
    await write(path)
    change(path, "INSERT INTO snapshots VALUES (1, 1, 0, '{}')", damage)
    store = SQLiteStore(path)
    with pytest.raises(JournalCorruptError):  # noqa: PT012
        await store.load_snapshot("t")
        await store.read("t")
    await store.close()


async def test_a_damaged_record_is_named(path: Path) -> None:
    await write(path)
    change(path, "UPDATE records SET body = 'not json' WHERE id & 0xFFFFFFFF = 2")
    store = SQLiteStore(path)
    with pytest.raises(FormatError, match="not json") as failure:
        await store.read("t")
    assert "record 2 of thread 't'" in failure.value.__notes__[0]
    await store.close()


async def test_a_foreign_database_is_refused_and_not_changed(path: Path) -> None:
    change(path, "CREATE TABLE invoices (id INTEGER)", "INSERT INTO invoices VALUES (1)")
    before = files.content(path)
    store = SQLiteStore(path)
    with pytest.raises(JournalCorruptError, match="another program"):
        await store.acquire("t", owner="run")
    await store.close()
    assert files.content(path) == before
    assert files.names(path.parent) == [path.name]


async def test_a_newer_format_is_refused_and_not_changed(path: Path) -> None:
    await write(path)
    change(path, "PRAGMA user_version = 2")
    before = files.content(path)
    store = SQLiteStore(path)
    with pytest.raises(JournalError, match=r"format 2.*upgrade"):
        await store.read("t")
    await store.close()
    assert files.content(path) == before


async def test_one_bad_write_does_not_spoil_the_batch(path: Path) -> None:
    """The primary key refuses what the checks missed, and only that."""
    store = SQLiteStore(path, durability="power")
    good, bad = [await store.acquire(name, owner="run") for name in ("good", "bad")]
    await store.append(good, 0, [note()])
    change(path, "INSERT INTO records SELECT id << 32 | 2, '{}' FROM threads WHERE name = 'bad'")
    outcomes = await asyncio.gather(
        store.append(good, 1, [note()]),
        store.append(bad, 0, [note(), note()]),
        store.append(good, 2, [note()]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), ConflictError, type(None)]
    assert len(await store.read("good")) == 3
    await store.close()
