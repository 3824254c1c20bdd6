"""A thread opened for writing: its lease, its folded state, and the records on their way to the journal."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from treadle.errors import ConflictError, LeaseLostError
from treadle.graph._schema import Schema
from treadle.graph._state import ThreadState
from treadle.journal._journal import Journal, Lease
from treadle.journal._record import Record

SNAPSHOT_EVERY = 500
_CACHED_THREADS = 64


class Desk:
    """What this process knows about the threads of one journal: who drives them, and states kept from earlier runs."""

    __slots__ = ("runs", "states")

    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}
        self.states: OrderedDict[tuple[str, float], ThreadState] = OrderedDict()


_desks: WeakKeyDictionary[Any, Desk] = WeakKeyDictionary()


def desk_of(journal: Journal) -> Desk:
    """The desk of a journal, kept as long as the journal is."""
    desk = _desks.get(journal)
    if desk is None:
        desk = _desks[journal] = Desk()
    return desk


async def load_state(journal: Journal, thread: str, schema: Schema, *, until: int | None = None) -> ThreadState:
    """Fold a stored thread, from its newest snapshot where there is one."""
    state = ThreadState(schema)
    snapshot = await journal.load_snapshot(thread, until=until)
    if snapshot is not None:
        state.seq = snapshot.since - 1
        if any(key.strategy.grows for key in schema.keys.values()):
            for record in await journal.read(thread, after=state.seq, until=snapshot.seq):
                state.apply(record)
        state.restore(snapshot)
    for record in await journal.read(thread, after=state.seq, until=until):
        state.apply(record)
    return state


class OpenThread:
    """The only way a run writes: `record` folds and queues, `commit` makes everything queued durable."""

    __slots__ = (
        "_buffer",
        "_snapshot_seq",
        "_stop_listening",
        "_waiters",
        "_writing",
        "closed",
        "desk",
        "journal",
        "lease",
        "lost",
        "stale",
        "state",
    )

    def __init__(self, journal: Journal, lease: Lease, state: ThreadState, desk: Desk) -> None:
        self.journal = journal
        self.lease = lease
        self.desk = desk
        self.state = state
        self.lost: BaseException | None = None
        self._buffer: list[Record] = []
        self.closed = False
        self.stale = False
        self._writing = False
        self._waiters: list[asyncio.Future[None]] = []
        self._snapshot_seq = state.seq
        self._stop_listening: Callable[[], None] | None = None

    @classmethod
    async def open(cls, journal: Journal, thread: str, schema: Schema, *, owner: str, wait: bool) -> OpenThread:
        """Take the lease and fold what is stored; a state kept from an earlier run of this process is reused."""
        desk = desk_of(journal)
        lease = await journal.acquire(thread, owner=owner, wait=wait)
        try:
            state = desk.states.pop((thread, lease.created), None) if desk.states else None
            if not lease.seq:
                state = ThreadState(schema)
            elif state is None or state.schema is not schema or state.seq > lease.seq:
                state = await load_state(journal, thread, schema)
            elif state.seq < lease.seq:
                for record in await journal.read(thread, after=state.seq):
                    state.apply(record)
            if state.seq != lease.seq:
                raise ConflictError(f"Thread {thread!r} has {lease.seq} records, but {state.seq} could be read.")
        except BaseException:
            release = asyncio.ensure_future(journal.release(lease))
            release.add_done_callback(_forget)  # whoever is cancelled twice does not hear how it went
            await asyncio.shield(release)
            raise
        return cls(journal, lease, state, desk)

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a note arrives or the lease is lost."""
        self._stop_listening = self.journal.listen(self.lease, wake)

    def apply(self, record: Record) -> None:
        """Fold a record into the state; one that cannot be folded leaves the state half changed until `refresh`."""
        try:
            self.state.apply(record)
        except BaseException:
            self.stale = True
            raise

    async def refresh(self) -> ThreadState:
        """Fold again what is stored and queued, if a record could not be folded."""
        if self.stale:
            state = await load_state(self.journal, self.lease.thread, self.state.schema)
            for record in self._buffer:
                state.apply(record)
            self.state, self.stale = state, False
        return self.state

    def record(self, record: Record) -> None:
        """Fold a record into the state and queue it for the next commit."""
        if self.closed:
            raise LeaseLostError(f"Thread {self.lease.thread!r} was closed while this was at work.")
        try:
            self.state.apply(record)
        except BaseException:
            self.stale = True
            raise
        self._buffer.append(record)

    def queue(self, record: Record) -> None:
        """Queue a record whose effect is in the state already."""
        self._buffer.append(record)

    async def commit(self) -> None:
        """Return when everything recorded so far is durable; tasks that come meanwhile share the next write."""
        while self.lost is None and (self._writing or self._buffer):
            if self._writing:
                await self._written()
            else:
                await self._write()
        if self.lost is not None:
            raise self.lost

    async def _write(self) -> None:
        batch, self._buffer = self._buffer, []
        self._writing = True
        try:
            await self.journal.append(self.lease, self.state.seq - len(batch), batch)
        except Exception as error:
            self.lost = error
        finally:
            self._writing = False
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def _written(self) -> None:
        """Wait for the write that is under way."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def snapshot(self) -> None:
        """Keep a snapshot if enough happened since the last one and nothing is half done."""
        state = self.state
        if state.seq - self._snapshot_seq >= SNAPSHOT_EVERY and state.quiet:
            await self.commit()  # a step's update waits for the next write, and a snapshot must not be ahead of it
            self._snapshot_seq = state.seq
            await self.journal.save_snapshot(self.lease, state.snapshot())

    def deafen(self) -> None:
        """Stop listening for notes; what arrives from now on waits for the next run."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

    async def close(self) -> None:
        """Give the lease back. What could not be written is gone with this object, and the journal is as it was."""
        self.closed = True
        try:
            if self._writing:
                await self._written()
            if self.lost is None and not self._buffer and not self.stale:
                self._keep_state()
        finally:
            await self.journal.release(self.lease)

    def _keep_state(self) -> None:
        states = self.desk.states
        states[self.lease.thread, self.lease.created] = self.state
        if len(states) > _CACHED_THREADS:
            states.popitem(last=False)


def _forget(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.exception()
