"""`SQLiteStore` against a model of a few dictionaries: any sequence of operations has the same outcome in both."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from treadle.errors import (
    AgentBusyError,
    ConflictError,
    InputError,
    LeaseLostError,
    ThreadExistsError,
    ThreadNotFoundError,
    TreadleError,
)
from treadle.journal import EndedRecord, Lease, Snapshot, SQLiteStore

T = TypeVar("T")
NAMES = st.sampled_from(["a", "b", "a/1", "a/1/2", "a-x"])
HANDLES = st.sampled_from([0, 1])
COUNTS = st.integers(0, 4)


@dataclass
class Thread:
    """A thread as the model knows it."""

    texts: list[str] = field(default_factory=list[str])
    parent: str | None = None
    forked_at: int | None = None

    def folded(self, seq: int) -> dict[str, Any]:
        """What a snapshot of the first `seq` records holds."""
        return {"texts": self.texts[:seq]}


class JournalMachine(RuleBasedStateMachine):
    """Does everything twice: in a file through two handles, and in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.stores = [self.open(), self.open()]
        self.threads: dict[str, Thread] = {}
        self.leases: dict[str, tuple[int, Lease]] = {}
        self.old: list[tuple[int, Lease]] = []
        self.mail: dict[str, list[dict[str, Any]]] = {}
        self.count = 0

    def open(self) -> SQLiteStore:
        return SQLiteStore(f"{self.folder.name}/journal.db", poll=0.01)

    def teardown(self) -> None:
        for store in self.stores:
            self.run(store.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def outcome(self, coroutine: Coroutine[Any, Any, Any]) -> type[TreadleError] | None:
        try:
            self.run(coroutine)
        except TreadleError as error:
            return type(error)
        return None

    def texts(self, count: int) -> list[str]:
        self.count += 1
        return [f"{self.count}.{number}" for number in range(count)]

    @rule(handle=HANDLES, name=NAMES)
    def acquire(self, handle: int, name: str) -> None:
        if name in self.leases:
            assert self.outcome(self.stores[handle].acquire(name, owner="run")) is AgentBusyError
            return
        lease = self.run(self.stores[handle].acquire(name, owner="run"))
        assert lease.seq == len(self.threads.get(name, Thread()).texts)
        self.leases[name] = (handle, lease)

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        if name in self.leases:
            handle, lease = self.leases.pop(name)
            self.run(self.stores[handle].release(lease))
            self.old.append((handle, lease))

    @rule(name=NAMES, count=COUNTS, off=st.sampled_from([0, 0, 0, 1, -1]))
    def append(self, name: str, count: int, off: int) -> None:
        if name not in self.leases:
            return
        handle, lease = self.leases[name]
        texts = self.texts(count)
        seq = len(self.threads.get(name, Thread()).texts)
        records = [EndedRecord(reason=text) for text in texts]
        outcome = self.outcome(self.stores[handle].append(lease, seq + off, records))
        assert outcome is (ConflictError if off else None)
        if texts and not off:
            self.threads.setdefault(name, Thread()).texts += texts

    @rule(data=st.data())
    def use_a_lost_lease(self, data: st.DataObject) -> None:
        if self.old:
            handle, lease = data.draw(st.sampled_from(self.old))
            assert self.outcome(self.stores[handle].append(lease, 0, [EndedRecord(reason="late")])) is LeaseLostError
            assert self.outcome(self.stores[handle].mail(lease)) is LeaseLostError
            assert self.outcome(self.stores[handle].discard(lease, 9)) is LeaseLostError
            assert self.outcome(self.stores[handle].release(lease)) is None

    @rule(handle=HANDLES, name=NAMES, new=NAMES, at=st.integers(-1, 6))
    def fork(self, handle: int, name: str, new: str, at: int) -> None:
        outcome = self.outcome(self.stores[handle].fork(name, at, new))
        source = self.threads.get(name)
        if source is None:
            assert outcome is ThreadNotFoundError
        elif not 0 <= at <= len(source.texts):
            assert outcome is InputError
        elif new in self.threads:
            assert outcome is ThreadExistsError
        elif new in self.leases:
            assert outcome is AgentBusyError
        else:
            assert outcome is None
            self.threads[new] = Thread(source.texts[:at], name, at)

    @rule(handle=HANDLES, name=NAMES)
    def delete(self, handle: int, name: str) -> None:
        below = [other for other in {*self.threads, *self.leases, *self.mail} if f"{other}/".startswith(f"{name}/")]
        outcome = self.outcome(self.stores[handle].delete(name))
        if any(other in self.leases for other in below):
            assert outcome is AgentBusyError
            return
        assert outcome is None
        for other in below:
            self.threads.pop(other, None)
            self.mail.pop(other, None)
        for thread in self.threads.values():
            thread.parent = None if thread.parent in below else thread.parent

    @rule(name=NAMES, back=st.integers(-1, 3))
    def snapshot(self, name: str, back: int) -> None:
        if name not in self.leases:
            return
        handle, lease = self.leases[name]
        thread = self.threads.get(name, Thread())
        seq = len(thread.texts) - back
        snapshot = Snapshot(seq=seq, since=0, data=thread.folded(seq))
        outcome = self.outcome(self.stores[handle].save_snapshot(lease, snapshot))
        assert outcome is (None if 0 <= seq <= len(thread.texts) else InputError)

    @rule(handle=HANDLES, name=NAMES)
    def post(self, handle: int, name: str) -> None:
        note = {"text": self.texts(1)[0]}
        self.run(self.stores[handle].post(name, note))
        self.mail.setdefault(name, []).append(note)

    @rule(name=NAMES, count=COUNTS)
    def discard(self, name: str, count: int) -> None:
        """Read the mail, and discard its first `count` notes."""
        if name in self.leases:
            handle, lease = self.leases[name]
            found = self.run(self.stores[handle].mail(lease))
            assert [note.body for note in found] == self.mail.get(name, [])
            gone = found[:count]
            self.run(self.stores[handle].discard(lease, gone[-1].number if gone else 0))
            self.mail[name] = self.mail.get(name, [])[count:]

    @rule(handle=HANDLES)
    def reopen(self, handle: int) -> None:
        self.run(self.stores[handle].close())
        self.stores[handle] = self.open()
        self.leases = {name: held for name, held in self.leases.items() if held[0] != handle}
        self.old = [held for held in self.old if held[0] != handle]

    @rule(name=NAMES, after=st.integers(-1, 6), until=st.none() | st.integers(-1, 6))
    def read(self, name: str, after: int, until: int | None) -> None:
        texts = self.threads.get(name, Thread()).texts
        end = len(texts) if until is None else max(until, 0)
        found = self.run(self.stores[0].read(name, after=after, until=until))
        assert [record.reason for record in found if isinstance(record, EndedRecord)] == texts[max(after, 0) : end]

    @rule(name=NAMES, until=st.none() | st.integers(0, 6))
    def load_snapshot(self, name: str, until: int | None) -> None:
        """A store may have dropped a snapshot, but what it returns is one of this very history."""
        thread = self.threads.get(name, Thread())
        found = self.run(self.stores[1].load_snapshot(name, until=until))
        if found is not None:
            assert found.seq <= len(thread.texts) if until is None else found.seq <= until
            assert found.data == thread.folded(found.seq)

    @invariant()
    def both_list_the_same(self) -> None:
        found = self.run(self.stores[0].threads())
        assert [(info.thread, info.seq, info.parent, info.forked_at) for info in found] == [
            (name, len(thread.texts), thread.parent, thread.forked_at) for name, thread in sorted(self.threads.items())
        ]


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=100, stateful_step_count=40)
