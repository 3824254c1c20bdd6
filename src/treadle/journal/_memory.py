"""`MemoryStore`: threads that live as long as the process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.errors import JournalError
from treadle.journal import _rules as rules
from treadle.journal._bells import ring
from treadle.journal._journal import Lease, Note, Snapshot, ThreadInfo
from treadle.journal._record import Record


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who waits for a lease, perhaps on another event loop."""

    owner: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Lease]


class _Thread:
    """One thread and all that belongs to it. `epoch` is 0 while nobody holds the lease."""

    __slots__ = (
        "created",
        "epoch",
        "forked_at",
        "listeners",
        "mail",
        "owner",
        "parent",
        "records",
        "snapshots",
        "waiters",
    )

    def __init__(self) -> None:
        self.created = time.time()
        self.records: list[Record] = []
        self.epoch = 0
        self.owner = ""
        self.parent: str | None = None
        self.forked_at: int | None = None
        self.mail: list[Note] | None = None
        self.snapshots: list[Snapshot] | None = None
        self.listeners: list[Callable[[], None]] | None = None
        self.waiters: deque[_Waiter] | None = None

    @property
    def exists(self) -> bool:
        return bool(self.records) or self.forked_at is not None

    @property
    def updated(self) -> float:
        own = len(self.records) > (self.forked_at or 0)
        return self.records[-1].at if own else self.created


class MemoryStore:
    """Keeps threads in memory, as the objects they were given as. For tests, and for agents that need not survive.

    Example:
        >>> import asyncio
        >>> from treadle.journal import EndedRecord, MemoryStore
        >>> async def main() -> int:
        ...     store = MemoryStore()
        ...     lease = await store.acquire("chat", owner="run-1")
        ...     await store.append(lease, 0, [EndedRecord(reason="done")])
        ...     return len(await store.read("chat"))
        >>> asyncio.run(main())
        1
    """

    __slots__ = ("__weakref__", "_closed", "_epoch", "_lock", "_threads")

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._lock = threading.Lock()
        # Epochs are counted per store, so that no lease of a deleted thread fits a later one of the same name.
        self._epoch = 0
        self._closed = False

    async def acquire(self, thread: str, *, owner: str, wait: bool = False) -> Lease:
        """Take the right to write; see `Journal.acquire`."""
        with self._lock:
            entry = self._entry(thread)
            if not entry.epoch:
                return self._grant(thread, entry, owner)
            if not wait:
                raise rules.busy(thread, entry.owner)
            loop = asyncio.get_running_loop()
            waiter = _Waiter(owner, loop, loop.create_future())
            entry.waiters = entry.waiters or deque()
            entry.waiters.append(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._give_up(entry, waiter)
            raise

    async def release(self, lease: Lease) -> None:
        """Give the right back; the one who waited longest gets it."""
        self._release(lease)

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        """Add records after number `expected`; see `Journal.append`."""
        with self._lock:
            entry = self._threads.get(lease.thread)
            if entry is None or entry.epoch != lease.epoch:
                raise self._not_held(lease)
            if len(entry.records) != expected:
                raise rules.conflict(lease.thread, expected, len(entry.records))
            entry.records.extend(records)

    async def read(self, thread: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        """Return the records `after` < number <= `until`."""
        with self._lock:
            entry = self._find(thread)
            return entry.records[max(after, 0) : None if until is None else max(until, 0)] if entry else []

    async def save_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        """Keep a snapshot, and the one before it."""
        with self._lock:
            entry = self._held(lease)
            rules.check_snapshot(lease, snapshot, len(entry.records))
            entry.snapshots = rules.newest([*(entry.snapshots or ()), rules.frozen_copy(snapshot)])

    async def load_snapshot(self, thread: str, *, until: int | None = None) -> Snapshot | None:
        """Return the newest snapshot that is not after record `until`."""
        with self._lock:
            entry = self._find(thread)
            fitting = [s for s in (entry.snapshots or ()) if rules.covers(s, until)] if entry else []
            return fitting[-1] if fitting else None

    async def fork(self, thread: str, at: int, new: str) -> None:
        """Make a thread that shares the first `at` records."""
        with self._lock:
            source = self._find(thread)
            if source is None or not source.exists:
                raise rules.not_found(thread)
            rules.check_fork(thread, at, len(source.records))
            self._fork(thread, source, at, new)

    async def threads(self, *, prefix: str = "") -> list[ThreadInfo]:
        """List threads whose name starts with `prefix`, by name."""
        with self._lock:
            self._check_open()
            found = sorted((name, t) for name, t in self._threads.items() if t.exists and name.startswith(prefix))
            return [
                ThreadInfo(
                    thread=name,
                    seq=len(entry.records),
                    created=entry.created,
                    updated=entry.updated,
                    parent=entry.parent,
                    forked_at=entry.forked_at,
                )
                for name, entry in found
            ]

    async def delete(self, thread: str) -> None:
        """Remove a thread and the ones below it."""
        with self._lock:
            self._find(thread)
            below = thread + "/"
            gone = {name: t for name, t in self._threads.items() if name == thread or name.startswith(below)}
            for name, entry in gone.items():
                if entry.epoch:
                    raise rules.busy(name, entry.owner)
            for name in gone:
                del self._threads[name]
            for entry in self._threads.values():
                if entry.parent in gone:
                    entry.parent = None

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        """Leave a note for whoever drives the thread."""
        rules.check_mail(mail)
        with self._lock:
            entry = self._entry(thread)
            entry.mail = entry.mail or []
            number = entry.mail[-1].number + 1 if entry.mail else 1
            entry.mail.append(Note(number=number, body=dict(mail)))
            listeners = tuple(entry.listeners or ())
        ring(listeners)

    async def mail(self, lease: Lease) -> list[Note]:
        """Return the notes that wait, oldest first."""
        with self._lock:
            return list(self._held(lease).mail or ())

    async def discard(self, lease: Lease, upto: int) -> None:
        """Remove the notes up to number `upto`."""
        with self._lock:
            entry = self._held(lease)
            entry.mail = [note for note in entry.mail or () if note.number > upto] or None

    def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when a note arrives, or at once if one is there; returns how to stop that."""
        with self._lock:
            entry = self._threads.get(lease.thread)
            held = entry is not None and entry.epoch == lease.epoch
            if entry is not None and held:
                entry.listeners = [*(entry.listeners or ()), wake]
            waiting = not held or entry is None or bool(entry.mail)
        if waiting:
            ring((wake,))

        def stop() -> None:
            with self._lock:
                if entry is not None and entry.listeners and wake in entry.listeners:
                    entry.listeners.remove(wake)

        return stop

    async def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self._threads = {}

    def _check_open(self) -> None:
        if self._closed:
            raise rules.closed()

    def _find(self, thread: str) -> _Thread | None:
        rules.check_thread(thread)
        self._check_open()
        return self._threads.get(thread)

    def _entry(self, thread: str) -> _Thread:
        entry = self._find(thread)
        if entry is None:
            entry = self._threads[thread] = _Thread()
        return entry

    def _held(self, lease: Lease) -> _Thread:
        entry = self._threads.get(lease.thread)
        if entry is None or entry.epoch != lease.epoch:
            raise self._not_held(lease)
        return entry

    def _not_held(self, lease: Lease) -> JournalError:
        return rules.closed() if self._closed else rules.lost(lease)

    def _grant(self, thread: str, entry: _Thread, owner: str) -> Lease:
        self._epoch += 1
        entry.epoch, entry.owner = self._epoch, owner
        return Lease(thread=thread, owner=owner, epoch=self._epoch, seq=len(entry.records), created=entry.created)

    def _release(self, lease: Lease) -> None:
        with self._lock:
            entry = self._threads.get(lease.thread)
            if entry is None or entry.epoch != lease.epoch:
                return
            entry.epoch, entry.listeners = 0, None
            self._pass_on(lease.thread, entry)
            if not (entry.epoch or entry.exists or entry.mail):
                del self._threads[lease.thread]

    def _pass_on(self, thread: str, entry: _Thread) -> None:
        """Give the lease to the first who waits and whose event loop still runs."""
        while entry.waiters and not entry.epoch:
            waiter = entry.waiters.popleft()
            lease = self._grant(thread, entry, waiter.owner)
            try:
                waiter.loop.call_soon_threadsafe(self._hand_over, waiter.future, lease)
            except RuntimeError:
                entry.epoch = 0

    def _hand_over(self, future: asyncio.Future[Lease], lease: Lease) -> None:
        if future.done():
            self._release(lease)
        else:
            future.set_result(lease)

    def _give_up(self, entry: _Thread, waiter: _Waiter) -> None:
        with self._lock:
            if entry.waiters and waiter in entry.waiters:
                entry.waiters.remove(waiter)
        if waiter.future.done() and not waiter.future.cancelled():
            self._release(waiter.future.result())

    def _fork(self, thread: str, source: _Thread, at: int, new: str) -> None:
        entry = self._entry(new)
        if entry.exists:
            raise rules.exists(new)
        if entry.epoch:
            raise rules.busy(new, entry.owner)
        entry.records = source.records[:at]
        entry.snapshots = [s for s in source.snapshots or () if s.seq <= at]
        entry.parent, entry.forked_at, entry.created = thread, at, time.time()
