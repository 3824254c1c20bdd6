"""Writes that fail while the process lives: the run fails with a typed error, and the next one goes on."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest

from contract._child import LABELS, ONCE, TASK, THREAD, Desk, Place, Plan, Report, clerk, decision, summary
from treadle import ReActAgent, Toolkit
from treadle.errors import JournalError, LeaseLostError
from treadle.graph import END, START, StateGraph, pause
from treadle.journal import EndedRecord, Journal, Lease, MemoryStore, Note
from treadle.testing import FaultyJournal, InjectedFault, ScriptedModel, assert_valid_history, tool_call

How = Literal["before", "after"]


async def drive(journal: FaultyJournal, place: Place) -> dict[str, Any] | None:
    """Start the thread or go on with it, to its end; None if it was over already."""
    agent = clerk(journal, Desk(place, Plan()))
    records = await journal.read(THREAD)
    if records and isinstance(records[-1], EndedRecord):
        return None
    reply = await agent.call(None if records else TASK, thread=THREAD, output=Report)
    while reply.pause:
        decisions = {wish.id: decision(place, Plan(), wish) for wish in reply.pause.wishes}
        reply = await agent.resume(THREAD, decisions, output=Report)
    return summary(reply)


async def outline(journal: FaultyJournal, place: Place) -> list[str]:
    """What was said and what the tools gave, thread by thread."""
    agent = clerk(journal, Desk(place, Plan()))
    out: list[str] = []
    for info in await journal.threads():
        history = await agent.history(info.thread)
        assert_valid_history(history)
        out.append(json.dumps([[msg.role, msg.text, *(r.text for r in msg.tool_results)] for msg in history]))
    return sorted(out)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_run_survives_each_failed_write(tmp_path: Path, how: How, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "0").mkdir()
    journal, place = FaultyJournal(MemoryStore()), Place(tmp_path / "0")
    truth, appends = await drive(journal, place), journal.appends
    picture = await outline(journal, place)
    failed = 0
    for number in range(1, appends + 1):
        (tmp_path / str(number)).mkdir()
        journal, place = FaultyJournal(MemoryStore(), fail_at=number, how=how), Place(tmp_path / str(number))
        try:
            await drive(journal, place)
        except InjectedFault:
            failed += 1
        assert await drive(journal, place) in (truth, None), number
        assert await outline(journal, place) == picture, number
        effects = Counter(label for label, _ in place.effects())
        assert effects.keys() == set(LABELS), number
        assert {label: effects[label] for label in ONCE} == dict.fromkeys(ONCE, 1), number
    assert failed > appends / 2
    gc.collect()
    assert [line.message for line in caplog.records if line.name == "asyncio"] == []  # no error went unheard


class Numbers(TypedDict, total=False):
    total: int


async def test_an_answer_reaches_a_graph_inside_a_graph_over_every_failed_write() -> None:
    """The parent hands its answer down again after a fault, and the child takes it once."""

    def ask(state: Numbers) -> Numbers:
        return {"total": state.get("total", 0) + int(pause("how much?"))}

    inner = StateGraph(Numbers)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    outer = StateGraph(Numbers)
    outer.add_node("inner", inner.compile().as_node())
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    for how in ("before", "after"):
        for number in range(1, 12):
            journal = FaultyJournal(MemoryStore())
            graph = outer.compile(store=journal)
            paused = await graph.invoke({"total": 1}, thread="t")
            assert paused.pause is not None
            (wish,) = paused.pause.wishes
            journal.fail_at, journal.how = journal.appends + number, how
            try:
                result = await graph.resume("t", {wish.id: 41})
            except InjectedFault:
                state = await graph.state("t")
                if not state.next:
                    assert state.state["total"] == 42
                    continue
                result = await graph.resume("t")
                if result.pause:
                    result = await graph.resume("t", {wish.id: 41})
            assert result["total"] == 42, (how, number)


class Taken(FaultyJournal):
    """A journal whose lease on the thread `taken` is lost."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.taken = ""
        self.wakes: dict[str, Callable[[], None]] = {}

    async def mail(self, lease: Lease) -> list[Note]:
        if lease.thread == self.taken:
            raise LeaseLostError(f"Thread {lease.thread!r} was taken over.")
        return await super().mail(lease)

    def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
        self.wakes[lease.thread] = wake
        return super().listen(lease, wake)


async def test_a_sub_agent_writes_nothing_once_its_caller_lost_the_thread() -> None:
    """Its own lease is still good, but the new owner of the caller's thread is about to go on with it."""
    entered, gate = asyncio.Event(), asyncio.Event()

    kit = Toolkit()

    @kit.tool(idempotent=True)
    async def hold() -> str:
        entered.set()
        await gate.wait()
        return "held"

    journal = Taken(MemoryStore())
    helper = ReActAgent(name="Helper", model=ScriptedModel([[tool_call("hold")], "Done below."]), toolkit=kit)
    script = ScriptedModel([[tool_call("ask_helper", message="go")], "Done."])
    agent = ReActAgent(name="Caller", model=script, toolkit=[helper.as_tool()], store=journal)
    work = asyncio.ensure_future(agent.call("Go.", thread="t"))
    await entered.wait()
    threads = [info.thread for info in await journal.threads()]
    before = [await journal.read(thread) for thread in threads]
    journal.taken = "t"
    journal.wakes["t"]()
    with pytest.raises(LeaseLostError):
        await work
    assert [await journal.read(thread) for thread in threads] == before
    journal.taken = ""
    gate.set()
    assert (await agent.call(None, thread="t")).text == "Done."
    assert [info.thread for info in await journal.threads()] == threads
    assert [msg.text for msg in await agent.history(threads[1]) if msg.text] == ["go", "Done below."]


async def test_the_fault_says_what_it_is() -> None:
    journal = FaultyJournal(MemoryStore(), fail_at=2, how="after")
    lease = await journal.acquire("t", owner="me")
    await journal.append(lease, 0, [EndedRecord(reason="one")])
    with pytest.raises(InjectedFault, match="Append 2 failed on demand, after its 1 records were written") as caught:
        await journal.append(lease, 1, [EndedRecord(reason="two")])
    assert isinstance(caught.value, JournalError)
    await journal.append(lease, 2, [EndedRecord(reason="three")])
    assert [record.kind for record in await journal.read("t")] == ["ended"] * 3
    assert journal.appends == 3
