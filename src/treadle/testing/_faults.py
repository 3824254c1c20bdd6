"""Faults on demand: a journal whose n-th append fails, or takes the process with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias

from treadle.errors import JournalError
from treadle.journal import Journal, Lease, Note, Record, Snapshot, ThreadInfo

Write: TypeAlias = Callable[[], Awaitable[None]]


class InjectedFault(JournalError):
    """The failure that a `FaultyJournal` was asked for."""


def kill() -> NoReturn:
    """End this process as a crash would: no clean-up, nothing flushed."""
    os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    raise AssertionError("A killed process does not go on.")


class FaultyJournal:
    """A journal around another one. Its n-th `append` goes wrong, all else is as it was.

    Args:
        journal: The journal that does the work.
        fail_at: Which append goes wrong, counted from 1 over all threads; None for none. May be set anew at any time.
        how: `"before"` raises `InjectedFault` and writes nothing; `"after"` writes, then raises: a lost acknowledgment.
            A function is given the write and does with it what it likes, such as `kill()` before or after it.

    Example:
        >>> from treadle.journal import MemoryStore
        >>> journal = FaultyJournal(MemoryStore(), fail_at=3, how="after")
        >>> journal.appends
        0
    """

    def __init__(
        self,
        journal: Journal,
        *,
        fail_at: int | None = None,
        how: Literal["before", "after"] | Callable[[Write], Awaitable[None]] = "before",
    ) -> None:
        self.journal = journal
        self.fail_at = fail_at
        self.how = how
        self.appends = 0
        """How many appends were asked for so far."""

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        """Add records, unless this is the append that goes wrong."""
        self.appends += 1
        number = self.appends

        async def write() -> None:
            await self.journal.append(lease, expected, records)

        if number != self.fail_at:
            return await write()
        if callable(self.how):
            return await self.how(write)
        if self.how == "after":
            await write()
        raise InjectedFault(f"Append {number} failed on demand, {self.how} its {len(records)} records were written.")

    # Everything else is the other journal's.

    async def acquire(self, thread: str, *, owner: str, wait: bool = False) -> Lease:
        """Take the right to write."""
        return await self.journal.acquire(thread, owner=owner, wait=wait)

    async def release(self, lease: Lease) -> None:
        """Give the right back."""
        await self.journal.release(lease)

    async def read(self, thread: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        """Return records."""
        return await self.journal.read(thread, after=after, until=until)

    async def save_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        await self.journal.save_snapshot(lease, snapshot)

    async def load_snapshot(self, thread: str, *, until: int | None = None) -> Snapshot | None:
        """Return the newest snapshot."""
        return await self.journal.load_snapshot(thread, until=until)

    async def fork(self, thread: str, at: int, new: str) -> None:
        """Make a thread that shares the first records."""
        await self.journal.fork(thread, at, new)

    async def threads(self, *, prefix: str = "") -> list[ThreadInfo]:
        """List threads."""
        return await self.journal.threads(prefix=prefix)

    async def delete(self, thread: str) -> None:
        """Remove a thread."""
        await self.journal.delete(thread)

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        """Leave a note."""
        await self.journal.post(thread, mail)

    async def mail(self, lease: Lease) -> list[Note]:
        """Return the notes that wait."""
        return await self.journal.mail(lease)

    async def discard(self, lease: Lease, upto: int) -> None:
        """Remove notes."""
        await self.journal.discard(lease, upto)

    def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when a note arrives or the lease is lost."""
        return self.journal.listen(lease, wake)

    async def close(self) -> None:
        """Close the other journal."""
        await self.journal.close()
