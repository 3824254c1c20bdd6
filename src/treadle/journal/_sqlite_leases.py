"""The leases that one store holds in a journal's file, and what may be done with them.

Everything that takes a connection runs in the writer's thread, inside a write transaction. What is remembered about a
lease (its thread's key and length) is used only after the file confirmed, in the same transaction, that the lease is
still ours: then nobody else can have written.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treadle.journal import _rules as rules
from treadle.journal import _sqlite_writes as writes
from treadle.journal._bells import Freed, Listeners, ring
from treadle.journal._journal import Lease, Note, Snapshot
from treadle.journal._owner import this_process
from treadle.journal._sqlite_reads import Found, last_seq


@dataclass(slots=True)
class Held:
    """A lease of this store. `seq` is None when it must be looked up."""

    lease: Lease
    thread: Found
    seq: int | None


class Leases:
    """The leases of one store object, by epoch."""

    def __init__(self, ttl: float) -> None:
        self.freed = Freed()
        self.listeners = Listeners()
        self._ttl = ttl
        self._holder: str | None = None
        self._held: dict[int, Held] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def holder(self) -> str:
        """The name of this store object, known to be in this process."""
        if self._holder is None:
            self._holder = writes.holder_of(this_process(), secrets.token_hex(4))
        return self._holder

    def acquire(self, thread: str, owner: str, connection: sqlite3.Connection) -> writes.Granted:
        """Take a lease in the file; `acquired` follows once that is durable."""
        return writes.acquire(connection, thread, owner, self.holder, self._ttl)

    def acquired(self, granted: writes.Granted) -> None:
        """Keep a lease alive from now on."""
        if granted.replaced is not None:
            self.lose([granted.replaced])
        self._held[granted.lease.epoch] = Held(granted.lease, granted.thread, granted.lease.seq)

    def release(self, lease: Lease, connection: sqlite3.Connection) -> None:
        """Give a lease back in the file; `released` follows once that is durable."""
        held = self._held.get(lease.epoch)
        if held is not None:
            writes.release(connection, held.thread.id, lease.epoch)

    def released(self, lease: Lease) -> None:
        """Forget a lease and tell who waits for it."""
        if self._held.pop(lease.epoch, None) is not None:
            self.freed.tell(lease.thread)

    def release_all(self, connection: sqlite3.Connection) -> None:
        """Give all leases back in the file."""
        for held in self._held.values():
            writes.release(connection, held.thread.id, held.lease.epoch)

    def beat(self, connection: sqlite3.Connection) -> set[int]:
        """Prolong all leases; returns the epochs of those that turn out to be lost."""
        if writes.beat(connection, self.holder, self._ttl) == len(self._held):
            return set()
        return self.missing(connection)

    def missing(self, connection: sqlite3.Connection) -> set[int]:
        """Return the epochs of leases that are not ours any more."""
        return self._held.keys() - writes.held_by(connection, self.holder) if self._held else set()

    def lose(self, epochs: Iterable[int]) -> None:
        """Forget leases that others took, and wake their listeners."""
        for epoch in epochs:
            held = self._held.pop(epoch, None)
            if held is not None:
                ring(self.listeners.of_lease(held.lease))

    def forget_lengths(self) -> None:
        """Look the threads' lengths up again: a transaction that changed them was undone."""
        for held in self._held.values():
            held.seq = None

    def append(self, lease: Lease, expected: int, bodies: Sequence[str], connection: sqlite3.Connection) -> None:
        """Add records, if the lease is ours and the thread as long as expected."""
        held = self._check(lease, connection)
        seq = self._length(held, connection)
        if seq != expected:
            raise rules.conflict(lease.thread, expected, seq)
        writes.insert(connection, held.thread.id, expected, bodies)
        held.seq = expected + len(bodies)

    def save_snapshot(self, lease: Lease, snapshot: Snapshot, data: str, connection: sqlite3.Connection) -> None:
        """Keep a snapshot."""
        held = self._check(lease, connection)
        rules.check_snapshot(lease, snapshot, self._length(held, connection))
        writes.save_snapshot(connection, held.thread.id, snapshot, data)

    def mail(self, lease: Lease, connection: sqlite3.Connection) -> list[Note]:
        """Return the thread's mail."""
        return writes.mail(connection, self._check(lease, connection).thread.id)

    def discard(self, lease: Lease, upto: int, connection: sqlite3.Connection) -> None:
        """Remove the thread's mail up to a number."""
        writes.discard(connection, self._check(lease, connection).thread.id, upto)

    def has_news(self, lease: Lease, connection: sqlite3.Connection) -> bool:
        """Say whether there is mail, or the lease is lost."""
        held = self._held.get(lease.epoch)
        if held is None or not writes.is_held(connection, held.thread.id, lease.epoch):
            return True
        return writes.has_mail(connection, held.thread.id)

    def _check(self, lease: Lease, connection: sqlite3.Connection) -> Held:
        held = self._held.get(lease.epoch)
        if held is None or not writes.is_held(connection, held.thread.id, lease.epoch):
            raise rules.lost(lease)
        return held

    def _length(self, held: Held, connection: sqlite3.Connection) -> int:
        if held.seq is None:
            held.seq = last_seq(connection, held.thread)
        return held.seq
