"""What the checks of a journal are written with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from treadle._ids import new_id
from treadle.journal._journal import Journal, Lease
from treadle.journal._record import (
    EndedRecord,
    FinishedRecord,
    InputRecord,
    LateRecord,
    PausedRecord,
    Record,
    ResumedRecord,
    RoutedRecord,
    SettledRecord,
    StartedRecord,
    UpdateRecord,
    encode,
)
from treadle.message import Msg, TextBlock, ToolResultBlock, ToolUseBlock

MakeStore: TypeAlias = Callable[[], Journal]
"""Makes a handle on one set of threads: two calls give two handles on the same data.

A store whose data cannot be shared returns the same object each time.
"""
PATIENCE = 10.0
"""How many seconds something may take that should take none."""


def fresh(name: str = "thread") -> str:
    """Return a thread name that no other check uses."""
    return new_id(name)


def notes(*texts: str) -> list[Record]:
    """Return small records that can be told apart."""
    return [EndedRecord(reason=text, at=0.0) for text in texts]


async def texts(store: Journal, thread: str, *, after: int = 0, until: int | None = None) -> list[str]:
    """Read a thread that `notes` were written to."""
    found = await store.read(thread, after=after, until=until)
    return [record.reason for record in found if isinstance(record, EndedRecord)]


async def write(store: Journal, thread: str, *words: str) -> None:
    """Add notes to a thread, as a whole run would."""
    lease = await store.acquire(thread, owner="writer")
    await store.append(lease, lease.seq, notes(*words))
    await store.release(lease)


async def is_free(store: Journal, thread: str) -> bool:
    """Take a lease and give it back; raises if somebody has it."""
    await store.release(await store.acquire(thread, owner="visitor"))
    return True


async def take_when_free(store: Journal, thread: str, owner: str) -> Lease:
    """Wait for a lease, but not for ever."""
    async with asyncio.timeout(PATIENCE):
        return await store.acquire(thread, owner=owner, wait=True)


@contextmanager
def refused(*errors: type[Exception]) -> Generator[None]:
    """Expect one of these errors."""
    try:
        yield
    except errors:
        return
    raise AssertionError(f"expected {' or '.join(error.__name__ for error in errors)}, but nothing was raised")


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # whatever happens may happen in another process
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {PATIENCE:.0f} s") from None


def same(found: list[Record], written: list[Record]) -> bool:
    """Compare records in their JSON form, which is what a store must keep."""
    return [encode(record) for record in found] == [encode(record) for record in written]


def every_kind() -> list[Record]:
    """Return one record of every kind, with everything set that can be."""
    call = ToolUseBlock(id="c1", name="add", input={"a": 17, "b": 25}, extra={"id": "toolu_1"})
    result = ToolResultBlock(id="c1", name="add", output=(TextBlock(text="42"),), metadata={"ms": 3})
    said = Msg.assistant([TextBlock(text="Ich rechne 计算中 🧮"), call], id="m2", metadata={"k": None}, timestamp=1.5)
    asked = Msg.user("What is 17 + 25?", id="m1", timestamp=1.0)
    return [
        InputRecord(run="r1", values={"messages": [asked]}, next=["model", {"node": "tools", "arg": 1}], at=1.0),
        UpdateRecord(
            node="model", values={"messages": [said]}, task=2, next=["tools"], goto=["end"], reason="x", at=2.0
        ),
        RoutedRecord(next=["tools"], at=3.0),
        StartedRecord(call="c1", input={"a": 17, "b": 26}, at=4.0),
        FinishedRecord(call="c1", result=result, at=5.0),
        SettledRecord(call="c1", result=result, at=6.0),
        UpdateRecord(node="tools", calls=["c1"], at=7.0),
        PausedRecord(wishes=[{"id": "w1", "kind": "approve"}], at=8.0),
        ResumedRecord(run="r2", answers={"w1": {"approve": True}}, at=9.0),
        LateRecord(call="c0", result=None, at=10.0),
        EndedRecord(reason="failed", values={"n": 1.5}, error="boom", open=True, at=11.0),
    ]
