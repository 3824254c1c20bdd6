"""A journal as a SQLite file: its tables, and how it is opened, made and recognised."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from treadle.errors import JournalCorruptError, JournalError
from treadle.journal._sqlite_errors import is_busy, translate

APPLICATION_ID = 0x5452444C  # "TRDL"
FORMAT = 1
SEQ_BITS = 32
"""A record's key is its thread's key and its number in one integer: an ordinary rowid, which SQLite stores best."""
_SCHEMA = f"""
CREATE TABLE threads (
    id INTEGER PRIMARY KEY,
    name TEXT UNIQUE,  -- NULL: deleted, but forks still share its records
    parent INTEGER,
    forked_at INTEGER,
    created REAL NOT NULL
);
CREATE INDEX forks ON threads (parent) WHERE parent IS NOT NULL;
CREATE TABLE records (
    id INTEGER PRIMARY KEY,  -- thread << {SEQ_BITS} | number
    body TEXT NOT NULL
);
CREATE TABLE leases (
    thread INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    holder TEXT NOT NULL,  -- process and store
    expires REAL NOT NULL
);
CREATE TABLE epochs (last INTEGER NOT NULL);
INSERT INTO epochs VALUES (0);
CREATE TABLE snapshots (
    thread INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    since INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (thread, seq)
);
CREATE TABLE mail (
    thread INTEGER NOT NULL,
    number INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (thread, number)
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where a journal's file is and how it is used."""

    path: str
    durability: Literal["process", "power"]
    lease_ttl: float
    busy_timeout: float
    poll: float


def connect(settings: Settings) -> sqlite3.Connection:
    """Open the file, or make it; raises the typed error if it is not a journal that we can use."""
    folder = os.path.dirname(settings.path)
    if not os.path.isdir(folder):
        raise JournalError(f"{settings.path!r} cannot be opened: there is no folder {folder!r}; create it first.")
    try:
        connection = sqlite3.connect(
            settings.path, timeout=settings.busy_timeout, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise translate(error, settings.path) from error
    try:
        _prepare(connection, settings)
    except sqlite3.Error as error:
        disconnect(connection)
        raise translate(error, settings.path) from error
    except BaseException:
        disconnect(connection)
        raise
    return connection


def disconnect(connection: sqlite3.Connection) -> None:
    """Close; the last connection of all moves the write-ahead log into the file and removes it."""
    with suppress(sqlite3.Error):
        connection.close()


def _prepare(connection: sqlite3.Connection, settings: Settings) -> None:
    connection.execute("BEGIN")  # one view of the file, which another process may be making
    is_new = _is_new(connection, settings.path)
    connection.execute("COMMIT")
    _use_wal(connection, settings)
    connection.execute(f"PRAGMA synchronous = {'FULL' if settings.durability == 'power' else 'NORMAL'}")
    if is_new:
        _create(connection, settings.path)


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    """Say whether the file is still empty; refuse one that is another program's or a newer Treadle's."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION_ID:
        if version > FORMAT:
            raise JournalError(
                f"{path!r} has format {version}, this Treadle knows up to {FORMAT}: please upgrade Treadle."
            )
        return False
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application or version or tables:
        raise JournalCorruptError(f"{path!r} is a database of another program, not a journal; use another path.")
    return True


def _use_wal(connection: sqlite3.Connection, settings: Settings) -> None:
    """Switch the write-ahead log on. SQLite does not wait its turn for this, so we do."""
    deadline = time.monotonic() + settings.busy_timeout
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise JournalError(f"{settings.path!r} is where SQLite cannot keep a write-ahead log; use a local disk.")


def _create(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables, unless another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_new(connection, path):
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
