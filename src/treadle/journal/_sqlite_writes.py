"""What is done to a journal's file: functions of a connection, each run inside a write transaction.

Each looks before it writes, so that one which refuses has changed nothing and the transaction can go on with others.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from treadle.journal import _rules as rules
from treadle.journal._journal import Lease, Note, Snapshot
from treadle.journal._owner import is_dead
from treadle.journal._sqlite_file import SEQ_BITS
from treadle.journal._sqlite_reads import Found, exists, find, last_seq, parse

_HIDDEN_WITHOUT_FORKS = """
    SELECT id FROM threads AS t WHERE name IS NULL AND NOT EXISTS (SELECT 1 FROM threads WHERE parent = t.id)
"""
_TRIM_HIDDEN = f"""
    DELETE FROM records WHERE id > ?1 << {SEQ_BITS} | (SELECT max(forked_at) FROM threads WHERE parent = ?1)
    AND id < (?1 + 1) << {SEQ_BITS}
"""


class Granted(NamedTuple):
    """A lease, its thread's row, and the epoch of the dead lease that it replaces."""

    lease: Lease
    thread: Found
    replaced: int | None


def holder_of(process: str, store: str) -> str:
    """Name one store object of one process."""
    return f"{process} {store}"


def acquire(connection: sqlite3.Connection, name: str, owner: str, holder: str, ttl: float) -> Granted:
    """Take the lease if it is free, has run out, or belongs to a dead process."""
    found = find(connection, name)
    current = _lease(connection, found.id) if found else None
    if current and _is_alive(current):
        raise rules.busy(name, current[1])
    thread = found or _create(connection, name)
    connection.execute("UPDATE epochs SET last = last + 1")
    epoch: int = connection.execute("SELECT last FROM epochs").fetchone()[0]
    row = (thread.id, epoch, owner, holder, time.time() + ttl)
    connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)", row)
    lease = Lease(
        thread=name, owner=owner, epoch=epoch, seq=last_seq(connection, thread), created=_created(connection, thread.id)
    )
    return Granted(lease, thread, current[0] if current else None)


def _lease(connection: sqlite3.Connection, thread: int) -> tuple[int, str, str, float] | None:
    query = "SELECT epoch, owner, holder, expires FROM leases WHERE thread = ?"
    return connection.execute(query, (thread,)).fetchone()


def _is_alive(lease: tuple[int, str, str, float]) -> bool:
    _, _, holder, expires = lease
    return expires > time.time() and not is_dead(holder.partition(" ")[0])


def _created(connection: sqlite3.Connection, thread: int) -> float:
    return connection.execute("SELECT created FROM threads WHERE id = ?", (thread,)).fetchone()[0]


def _create(connection: sqlite3.Connection, name: str) -> Found:
    cursor = connection.execute("INSERT INTO threads (name, created) VALUES (?, ?)", (name, time.time()))
    assert cursor.lastrowid is not None
    return Found(cursor.lastrowid, None, None)


def is_held(connection: sqlite3.Connection, thread: int, epoch: int) -> bool:
    """Say whether the lease is still the thread's current one."""
    query = "SELECT 1 FROM leases WHERE thread = ? AND epoch = ?"
    return connection.execute(query, (thread, epoch)).fetchone() is not None


def held_by(connection: sqlite3.Connection, holder: str) -> set[int]:
    """Return the epochs of all leases that a store holds."""
    return {row[0] for row in connection.execute("SELECT epoch FROM leases WHERE holder = ?", (holder,))}


def beat(connection: sqlite3.Connection, holder: str, ttl: float) -> int:
    """Prolong all leases of a store; returns how many it still has."""
    return connection.execute("UPDATE leases SET expires = ? WHERE holder = ?", (time.time() + ttl, holder)).rowcount


def release(connection: sqlite3.Connection, thread: int, epoch: int) -> None:
    """Free the lease, and forget the row of a thread that was never written to."""
    connection.execute("DELETE FROM leases WHERE thread = ? AND epoch = ?", (thread, epoch))
    connection.execute(
        f"""DELETE FROM threads WHERE id = ?1 AND forked_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM records WHERE id > ?1 << {SEQ_BITS} AND id < (?1 + 1) << {SEQ_BITS})
        AND NOT EXISTS (SELECT 1 FROM mail WHERE thread = ?1)
        AND NOT EXISTS (SELECT 1 FROM leases WHERE thread = ?1)""",
        (thread,),
    )


def insert(connection: sqlite3.Connection, thread: int, expected: int, bodies: Sequence[str]) -> None:
    """Add records; the primary key refuses what the checks before it might have missed."""
    first = (thread << SEQ_BITS) + expected + 1
    connection.executemany("INSERT INTO records VALUES (?, ?)", enumerate(bodies, first))


def save_snapshot(connection: sqlite3.Connection, thread: int, snapshot: Snapshot, data: str) -> None:
    """Keep a snapshot and the one before it."""
    row = (thread, snapshot.seq, snapshot.since, data)
    connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", row)
    connection.execute(
        """DELETE FROM snapshots WHERE thread = ?1 AND seq <=
        (SELECT seq FROM snapshots WHERE thread = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)""",
        (thread, rules.KEPT_SNAPSHOTS),
    )


def fork(connection: sqlite3.Connection, name: str, at: int, new: str) -> None:
    """Make a thread that points to another one."""
    source, target = find(connection, name), find(connection, new)
    if source is None or not exists(connection, source):
        raise rules.not_found(name)
    rules.check_fork(name, at, last_seq(connection, source))
    if exists(connection, target):
        raise rules.exists(new)
    current = _lease(connection, target.id) if target else None
    if current and _is_alive(current):
        raise rules.busy(new, current[1])
    key = (target or _create(connection, new)).id
    row = (source.id, at, time.time(), key)
    connection.execute("UPDATE threads SET parent = ?, forked_at = ?, created = ? WHERE id = ?", row)
    connection.execute("DELETE FROM leases WHERE thread = ?", (key,))


def delete(connection: sqlite3.Connection, name: str) -> None:
    """Remove a thread and the ones below it; what forks share stays, without a name."""
    gone = list(_with_below(connection, name))
    for thread, called in gone:
        current = _lease(connection, thread)
        if current and _is_alive(current):
            raise rules.busy(called, current[1])
    for thread, _ in gone:
        connection.execute("UPDATE threads SET name = NULL WHERE id = ?", (thread,))
        connection.execute("DELETE FROM leases WHERE thread = ?", (thread,))
        connection.execute("DELETE FROM mail WHERE thread = ?", (thread,))
    _purge(connection)
    for thread, _ in gone:
        connection.execute(_TRIM_HIDDEN, (thread,))


def _with_below(connection: sqlite3.Connection, name: str) -> Iterator[tuple[int, str]]:
    query = "SELECT id, name FROM threads WHERE name = ? OR (name >= ? AND name < ?)"
    return connection.execute(query, (name, name + "/", rules.after_prefix(name + "/")))


def _purge(connection: sqlite3.Connection) -> None:
    """Remove hidden threads that no fork needs; that may free the ones they were forked from."""
    while rows := connection.execute(_HIDDEN_WITHOUT_FORKS).fetchall():
        for (thread,) in rows:
            first, last = thread << SEQ_BITS, (thread + 1) << SEQ_BITS
            connection.execute("DELETE FROM records WHERE id > ? AND id < ?", (first, last))
            connection.execute("DELETE FROM snapshots WHERE thread = ?", (thread,))
            connection.execute("DELETE FROM threads WHERE id = ?", (thread,))


def post(connection: sqlite3.Connection, name: str, body: str) -> None:
    """Leave a note."""
    thread = find(connection, name) or _create(connection, name)
    connection.execute(
        "INSERT INTO mail VALUES (?1, (SELECT coalesce(max(number), 0) + 1 FROM mail WHERE thread = ?1), ?2)",
        (thread.id, body),
    )


def mail(connection: sqlite3.Connection, thread: int) -> list[Note]:
    """Return the notes that wait, oldest first."""
    rows = connection.execute("SELECT number, body FROM mail WHERE thread = ? ORDER BY number", (thread,)).fetchall()
    return [Note(number=number, body=parse(body, f"Mail of thread number {thread}")) for number, body in rows]


def discard(connection: sqlite3.Connection, thread: int, upto: int) -> None:
    """Remove the notes up to a number."""
    connection.execute("DELETE FROM mail WHERE thread = ? AND number <= ?", (thread, upto))


def has_mail(connection: sqlite3.Connection, thread: int) -> bool:
    """Say whether a thread has mail."""
    return connection.execute("SELECT 1 FROM mail WHERE thread = ? LIMIT 1", (thread,)).fetchone() is not None


def with_mail(connection: sqlite3.Connection) -> set[str]:
    """Return the names of all threads that have mail."""
    query = "SELECT name FROM threads WHERE id IN (SELECT thread FROM mail)"
    return {row[0] for row in connection.execute(query)}
