"""`Journal`: what a store of threads must be able to do. `docs/journal.md` has the contract as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from treadle.journal._record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write to one thread. `epoch` grows with each owner and fences the ones before."""

    thread: str
    owner: str
    epoch: int
    seq: int
    """The number of records the thread held when the lease was taken."""
    created: float
    """When the thread was made: tells it from one of the same name that was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A folded state, so that opening a long thread need not fold every record.

    `since` is the first record that must still be read; growing values are rebuilt from there instead of repeated here.
    """

    seq: int
    since: int
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """One line of a list of threads."""

    thread: str
    seq: int
    created: float
    updated: float
    parent: str | None = None
    forked_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note that waits for whoever drives a thread. Numbers are positive, and grow as long as there are notes."""

    number: int
    body: Mapping[str, Any]


class Journal(Protocol):
    """A store of threads: each an append-only list of records, numbered from 1.

    A thread exists once it has a record or was made by `fork`. Implementations are safe to use from several event loops
    of one process, and stores on the same file or database from several processes.
    """

    async def acquire(self, thread: str, *, owner: str, wait: bool = False) -> Lease:
        """Take the right to write; `AgentBusyError` if somebody alive has it (with `wait`, wait for them).

        The store keeps the lease alive until it is released; a lease whose owner is dead is taken over.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the right back. Releasing a lost lease does nothing."""
        ...

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        """Add records after number `expected`, all or none; `ConflictError` or `LeaseLostError` if that is not ours.

        A caller that is cancelled here is told only after the records are written: a write is never in doubt.
        """
        ...

    async def read(self, thread: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        """Return the records `after` < number <= `until`; an unknown thread has none."""
        ...

    async def save_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        """Keep a snapshot. It is only ever a shortcut: losing it loses nothing."""
        ...

    async def load_snapshot(self, thread: str, *, until: int | None = None) -> Snapshot | None:
        """Return the newest snapshot that is not after record `until`."""
        ...

    async def fork(self, thread: str, at: int, new: str) -> None:
        """Make a thread that shares the first `at` records; `ThreadNotFoundError`, `ThreadExistsError`."""
        ...

    async def threads(self, *, prefix: str = "") -> list[ThreadInfo]:
        """List threads whose name starts with `prefix`, by name."""
        ...

    async def delete(self, thread: str) -> None:
        """Remove a thread and the ones below it (`thread/...`); forks keep what they share. Not while it is driven."""
        ...

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        """Leave a note for whoever drives the thread, now or next; needs no lease."""
        ...

    async def mail(self, lease: Lease) -> list[Note]:
        """Return the notes that wait, oldest first. They are kept until `discard`; `LeaseLostError` if not ours."""
        ...

    async def discard(self, lease: Lease, upto: int) -> None:
        """Remove the notes up to number `upto`; `LeaseLostError` if that is not ours."""
        ...

    def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (from any thread) soon after a note arrives or the lease is lost; returns how to stop that."""
        ...

    async def close(self) -> None:
        """Write what is queued and let go of files and connections."""
        ...
