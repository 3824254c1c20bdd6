"""A journal between the agent and its store: it takes its time, fails and dies on demand, and counts what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from treadle.journal import Journal, Lease, Note, Record, Snapshot
from treadle.journal._record import encode
from treadle.testing._faults import FaultyJournal, InjectedFault

Fault: TypeAlias = Literal["before", "after", "die_before", "die_after"]
FAULTS: tuple[Fault, ...] = ("before", "after", "die_before", "die_after")


@dataclass(slots=True)
class Cost:
    """What one thread has written so far."""

    appends: int = 0
    records: int = 0
    largest: int = 0


@dataclass(slots=True)
class Plan:
    """The faults that are still to come: which append from now on, and how it goes wrong."""

    appends: int = 0
    fault: Fault | None = None
    costs: dict[str, Cost] = field(default_factory=dict[str, Cost])


class Tap(FaultyJournal):
    """Each operation takes `delay` turns of the event loop; a dead tap is the store of a process that was killed.

    An append that is cancelled while it takes its time is written all the same, and the caller is told afterwards, as
    the contract of `Journal.append` says.
    """

    def __init__(self, journal: Journal, *, delay: int = 0) -> None:
        super().__init__(journal)
        self.delay = delay
        self.dead = False
        self.plan = Plan()
        self.lost = 0
        """How many appends were refused, so that a run that failed of it is no surprise."""

    def arm(self, appends: int, fault: Fault) -> None:
        """Let the append after `appends` more go wrong."""
        self.plan.appends, self.plan.fault = appends, fault

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        cancelled = await self._tarry()
        self._check()
        fault = self._fault()
        if fault in ("before", "die_before"):
            self._fail(fault)
        await self.journal.append(lease, expected, records)
        self._count(lease, expected, records)
        if fault is not None:
            self._fail(fault)
        cancelled = await self._tarry() or cancelled
        if cancelled is not None:
            raise cancelled
        self._check()

    async def acquire(self, thread: str, *, owner: str, wait: bool = False) -> Lease:
        self._check()
        lease = await super().acquire(thread, owner=owner, wait=wait)
        try:
            await self._pause()
        except BaseException:
            await self.journal.release(lease)
            raise
        return lease

    async def release(self, lease: Lease) -> None:
        await self._tarry()
        self._check()
        await super().release(lease)

    async def read(self, thread: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        await self._pause()
        return await super().read(thread, after=after, until=until)

    async def load_snapshot(self, thread: str, *, until: int | None = None) -> Snapshot | None:
        await self._pause()
        return await super().load_snapshot(thread, until=until)

    async def save_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        await self._pause()
        await super().save_snapshot(lease, snapshot)

    async def post(self, thread: str, mail: Any) -> None:
        self._check()
        await super().post(thread, mail)

    async def mail(self, lease: Lease) -> list[Note]:
        self._check()
        mail = await super().mail(lease)
        await self._tarry()
        return mail

    async def discard(self, lease: Lease, upto: int) -> None:
        await self._tarry()
        self._check()
        await super().discard(lease, upto)

    def _check(self) -> None:
        if self.dead:
            raise InjectedFault("This process is dead.")

    async def _pause(self) -> None:
        self._check()
        for _ in range(self.delay):
            await asyncio.sleep(0)
        self._check()

    async def _tarry(self) -> asyncio.CancelledError | None:
        """Take time that cancelling does not shorten."""
        cancelled = None
        for _ in range(self.delay):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def _fault(self) -> Fault | None:
        plan = self.plan
        if plan.fault is None:
            return None
        if plan.appends:
            plan.appends -= 1
            return None
        fault, plan.fault = plan.fault, None
        return fault

    def _fail(self, fault: Fault) -> None:
        self.lost += 1
        if fault.startswith("die"):
            self.dead = True
        raise InjectedFault(f"The append failed on demand, {fault} it was written.")

    def _count(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        cost = self.plan.costs.setdefault(lease.thread, Cost())
        cost.appends += 1
        cost.records += len(records)
        cost.largest = max(cost.largest, *(len(encode(record)) for record in records))
