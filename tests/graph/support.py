"""What the tests of graphs share: stores that can be opened again, stores that break, and nodes that count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from treadle import ReActAgent
from treadle.event import Event
from treadle.graph import CompiledGraph, EventStream, GraphResult, NodeContext
from treadle.journal import Journal, Lease, MemoryStore, Note, Record, Snapshot, SQLiteStore, ThreadInfo, UpdateRecord

Given: TypeAlias = "Callable[[Any], Any] | Callable[[Any, NodeContext], Any] | CompiledGraph | ReActAgent"
INPUT_AND_NONE: Final[Sequence[dict[str, Any] | None]] = ({}, None)
"""Begin, and then go on."""


class Place(Protocol):
    """Somewhere to keep threads: each call opens it as another process would."""

    def __call__(self) -> Journal: ...


class MemoryPlace:
    """Memory cannot be opened again, so a wrapper stands for another process: caches do not know it."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def __call__(self) -> Journal:
        return Breaking(self._store)


class FilePlace:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.opened: list[SQLiteStore] = []

    def __call__(self) -> Journal:
        self.opened.append(SQLiteStore(self._path, poll=0.02))
        return self.opened[-1]


class Crash(Exception):
    """The process died, as far as the journal is concerned."""


class Breaking:
    """A journal that stops writing after `appends` appends, for good: what comes later is lost as in a crash."""

    def __init__(self, journal: Journal, appends: int | None = None) -> None:
        self._journal = journal
        self._left = appends
        self.appended: list[Record] = []
        self.updated = asyncio.Event()
        """A node's update was stored."""
        self.mailed = asyncio.Event()
        """A note reached the run."""

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        if self._left is not None:
            if not self._left:
                raise Crash("no more appends")
            self._left -= 1
        await self._journal.append(lease, expected, records)
        self.appended += records
        if any(isinstance(record, UpdateRecord) for record in records):
            self.updated.set()

    async def acquire(self, thread: str, *, owner: str, wait: bool = False) -> Lease:
        return await self._journal.acquire(thread, owner=owner, wait=wait)

    async def release(self, lease: Lease) -> None:
        await self._journal.release(lease)

    async def read(self, thread: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        return await self._journal.read(thread, after=after, until=until)

    async def save_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        await self._journal.save_snapshot(lease, snapshot)

    async def load_snapshot(self, thread: str, *, until: int | None = None) -> Snapshot | None:
        return await self._journal.load_snapshot(thread, until=until)

    async def fork(self, thread: str, at: int, new: str) -> None:
        await self._journal.fork(thread, at, new)

    async def threads(self, *, prefix: str = "") -> list[ThreadInfo]:
        return await self._journal.threads(prefix=prefix)

    async def delete(self, thread: str) -> None:
        await self._journal.delete(thread)

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        await self._journal.post(thread, mail)

    async def mail(self, lease: Lease) -> list[Note]:
        notes = await self._journal.mail(lease)
        if notes:
            self.mailed.set()
        return notes

    async def discard(self, lease: Lease, upto: int) -> None:
        await self._journal.discard(lease, upto)

    def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
        return self._journal.listen(lease, wake)

    async def close(self) -> None:
        await self._journal.close()


class Counting:
    """Makes nodes that append their name to `log` and counts how often each ran."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    def node(self, name: str) -> Callable[[Any], dict[str, Any]]:
        def run(state: Any) -> dict[str, Any]:
            self.runs[name] += 1
            return {"log": [name]}

        return run


async def read_all(stream: EventStream[GraphResult]) -> list[Event]:
    return [event async for event in stream]


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__.removesuffix("Event") for event in events]


def wish_ids(result: GraphResult) -> list[str]:
    assert result.pause is not None
    return [wish.id for wish in result.pause.wishes]
