"""What is asked of a journal's file: functions of a connection, each run inside one read transaction."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from treadle.errors import FormatError, JournalCorruptError
from treadle.journal import _rules as rules
from treadle.journal._journal import Snapshot, ThreadInfo
from treadle.journal._record import Record, decode
from treadle.journal._sqlite_file import SEQ_BITS

_LAST_SEQ = (1 << SEQ_BITS) - 1
_THREADS = f"""
    SELECT t.name, t.created, t.forked_at, p.name,
        (SELECT id & {_LAST_SEQ} FROM records WHERE id BETWEEN t.id << {SEQ_BITS} AND t.id << {SEQ_BITS} | {_LAST_SEQ}
         ORDER BY id DESC LIMIT 1),
        (SELECT CASE WHEN json_valid(body) THEN json_extract(body, '$.at') ELSE body END FROM records
         WHERE id BETWEEN t.id << {SEQ_BITS} AND t.id << {SEQ_BITS} | {_LAST_SEQ} ORDER BY id DESC LIMIT 1)
    FROM threads AS t LEFT JOIN threads AS p ON p.id = t.parent
    WHERE t.name >= ? AND (? IS NULL OR t.name < ?) ORDER BY t.name
"""


class Found(NamedTuple):
    """A thread's row."""

    id: int
    parent: int | None
    forked_at: int | None


class Share(NamedTuple):
    """A thread of which the first `until` records belong to the one that is read; if `whole`, all must be there."""

    id: int
    until: int
    whole: bool = True


def find(connection: sqlite3.Connection, name: str) -> Found | None:
    """Look a thread up by name."""
    row = connection.execute("SELECT id, parent, forked_at FROM threads WHERE name = ?", (name,)).fetchone()
    return Found(*row) if row else None


def last_seq(connection: sqlite3.Connection, thread: Found) -> int:
    """Return how many records a thread has, shared ones included."""
    first, last = thread.id << SEQ_BITS, thread.id << SEQ_BITS | _LAST_SEQ
    row = connection.execute("SELECT max(id) FROM records WHERE id BETWEEN ? AND ?", (first, last)).fetchone()
    return thread.forked_at or 0 if row[0] is None else row[0] - first


def exists(connection: sqlite3.Connection, thread: Found | None) -> bool:
    """Say whether a row is a thread, and not just where a lease or mail is kept."""
    return thread is not None and (thread.forked_at is not None or last_seq(connection, thread) > 0)


def read(connection: sqlite3.Connection, name: str, after: int, until: int | None) -> list[Record]:
    """Return the records `after` < number <= `until`, through all forks."""
    bodies: list[str] = []
    after = min(max(after, 0), _LAST_SEQ)
    for share in reversed(_chain(connection, name, until)):
        bodies += _bodies(connection, name, share, after + len(bodies))
    records: list[Record] = []
    for body in bodies:
        try:
            records.append(decode(body))
        except FormatError as error:
            error.add_note(f"It is record {after + len(records) + 1} of thread {name!r}.")
            raise
    return records


def _bodies(connection: sqlite3.Connection, name: str, share: Share, after: int) -> list[str]:
    base = share.id << SEQ_BITS
    rows = connection.execute(
        "SELECT body, id FROM records WHERE id > ? AND id <= ? ORDER BY id", (base + after, base + share.until)
    ).fetchall()
    last = base + after + len(rows)
    if (rows and rows[-1][1] != last) or (share.whole and last < base + share.until):
        raise JournalCorruptError(f"Thread {name!r} lacks records after number {after}; restore a copy of the file.")
    return [row[0] for row in rows]


def _chain(connection: sqlite3.Connection, name: str, until: int | None) -> list[Share]:
    """Return the thread and those it was forked from, nearest first, with how far each is shared."""
    found = find(connection, name)
    limit = _LAST_SEQ if until is None else min(max(until, 0), _LAST_SEQ)
    shares: list[Share] = []
    while found is not None:
        shares.append(Share(found.id, limit, whole=bool(shares)))
        if found.parent is None:
            break
        limit = min(limit, found.forked_at or 0)
        row = connection.execute("SELECT id, parent, forked_at FROM threads WHERE id = ?", (found.parent,)).fetchone()
        found = Found(*row) if row else None
    return shares


def load_snapshot(connection: sqlite3.Connection, name: str, until: int | None) -> Snapshot | None:
    """Return the newest snapshot that the thread, or one it was forked from, has of a shared record."""
    rows = [
        connection.execute(
            "SELECT seq, since, data FROM snapshots WHERE thread = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", share[:2]
        ).fetchone()
        for share in _chain(connection, name, until)
    ]
    found = max((row for row in rows if row), key=lambda row: row[0], default=None)
    if found is None:
        return None
    data = parse(found[2], f"The snapshot of record {found[0]} of thread {name!r}")
    return Snapshot(seq=found[0], since=found[1], data=data)


def _time(at: float | str, name: str) -> float:
    """When a record was made; where it holds NaN or Infinity, which not every SQLite takes for JSON, it came whole."""
    return at if isinstance(at, float | int) else parse(at, f"The last record of thread {name!r}")["at"]


def parse(text: str, what: str) -> dict[str, Any]:
    """Read a JSON object that we wrote."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise JournalCorruptError(f"{what} is damaged: {error}.") from error


def threads(connection: sqlite3.Connection, prefix: str) -> list[ThreadInfo]:
    """List threads whose name starts with `prefix`."""
    if not rules.is_unicode(prefix):
        return []
    end = rules.after_prefix(prefix)
    return [
        ThreadInfo(
            thread=name,
            seq=seq or forked_at or 0,
            created=created,
            updated=created if at is None else _time(at, name),
            parent=parent,
            forked_at=forked_at,
        )
        for name, created, forked_at, parent, seq, at in connection.execute(_THREADS, (prefix, end, end))
        if seq or forked_at is not None
    ]
