"""What the machine and the reading around it found, one plain test each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from treadle import Hook, Msg, ReActAgent, Reject, Retry
from treadle.errors import EventError, JournalError
from treadle.event import Event, PostActingEvent, PreReasoningEvent, RunEndedEvent
from treadle.hook import CallModel, on, post_acting
from treadle.journal import Lease, MemoryStore
from treadle.message import ToolResultBlock
from treadle.model import ModelRequest, ModelResponse
from treadle.testing import ScriptedModel, assert_valid_history, tool_call
from treadle.testing._faults import FaultyJournal, InjectedFault
from treadle.tool import tool


def ok(n: int = 0) -> str:
    return "fine"


async def states(agent: ReActAgent, thread: str) -> list[str]:
    return [record.kind for record in await agent.journal.read(thread)]


async def test_a_stream_ends_with_its_last_event_though_a_hook_raises_on_it() -> None:
    @on(RunEndedEvent)
    async def bad(event: Event) -> None:
        raise ValueError("no")

    agent = ReActAgent(name="A", model=ScriptedModel(["done"]), hooks=[bad])
    events = [event async for event in agent.stream("hi")]
    assert isinstance(events[-1], RunEndedEvent)


async def test_a_decision_to_retry_is_good_for_one_attempt() -> None:
    runs: list[int] = []
    store = MemoryStore()

    async def once(n: int) -> str:
        runs.append(n)
        return "ran"

    def make(fail_at: int | None) -> tuple[ReActAgent, FaultyJournal]:
        journal = FaultyJournal(store, fail_at=fail_at)
        model = ScriptedModel([[tool_call("once", id="c", n=1)], "done"])
        return ReActAgent(name="A", model=model, toolkit=[once], store=journal), journal

    # The tool ran and its result was not written: input, started | finished.
    agent, _ = make(3)
    with pytest.raises(InjectedFault):
        await agent.call("go", thread="t")
    assert runs == [1]
    agent, _ = make(None)
    reply = await agent.call(thread="t")
    assert reply.pause is not None
    assert reply.pause.kind == "unknown"
    agent, journal = make(None)
    journal.fail_at = 3  # resumed, started | finished
    with pytest.raises(InjectedFault):
        await agent.resume("t", {"c": Retry()})
    assert runs == [1, 1]
    agent, _ = make(None)
    reply = await agent.call(thread="t")
    assert reply.pause is not None, "it ran a third time, and nobody had said so"
    assert runs == [1, 1]


async def test_what_the_model_said_before_is_not_salvaged_again() -> None:
    waits = asyncio.Event()

    class Gate(Hook):
        asked = 0

        async def around_model(self, request: ModelRequest, call_next: CallModel) -> ModelResponse:
            self.asked += 1
            if self.asked == 2:
                waits.set()
                await asyncio.Event().wait()
            return await call_next(request)

    model = ScriptedModel([["on it", tool_call("ok", n=1)], "never"])
    agent = ReActAgent(name="A", model=model, toolkit=[ok], hooks=[Gate()])
    task = asyncio.ensure_future(agent.call("go", thread="t"))
    await waits.wait()
    agent.interrupt(thread="t", when="now")
    assert (await task).reason == "interrupted"
    said = [msg.text for msg in await agent.history("t") if msg.role == "assistant"]
    assert said == ["on it"]


async def test_a_hook_cannot_give_a_call_the_result_of_another() -> None:
    @post_acting
    async def misname(event: PostActingEvent) -> None:
        event.result = ToolResultBlock(id="else", name="other", output="changed")

    model = ScriptedModel([[tool_call("ok", n=1)], "done"])
    agent = ReActAgent(name="A", model=model, toolkit=[ok], hooks=[misname])
    with pytest.raises(EventError, match="not of 'else'"):
        await agent.call("go", thread="t")
    history = await agent.history("t")
    assert_valid_history(history)
    assert history[2].tool_results[0].text == "fine"


async def test_results_by_hand_keep_the_name_of_their_call() -> None:
    @tool(external=True)
    async def outside(n: int) -> str:
        raise AssertionError

    model = ScriptedModel([[tool_call("outside", id="c", n=1)], "done"])
    agent = ReActAgent(name="A", model=model, toolkit=[outside])
    await agent.call("go", thread="t")
    await agent.call([ToolResultBlock(id="c", name="wrong", output="x"), "and so on"], thread="t")
    assert_valid_history(await agent.history("t"))


async def test_a_hook_that_raises_a_journal_error_leaves_no_open_thread() -> None:
    @on(PreReasoningEvent)
    async def bad(event: Event) -> None:
        raise JournalError("of the hook's own journal")

    agent = ReActAgent(name="A", model=ScriptedModel(["done"]), hooks=[bad])
    with pytest.raises(JournalError):
        await agent.call("go", thread="t")
    assert (await states(agent, "t"))[-1] == "ended"


async def test_a_lease_is_given_back_though_the_last_write_fails() -> None:
    class Late(MemoryStore):
        """Has a note for the run when it is about to close, and cannot write it."""

        async def append(self, lease: Lease, expected: int, records: Any) -> None:
            if any(record.kind == "late" for record in records):
                raise InjectedFault("no")
            await super().append(lease, expected, records)
            if any(record.kind == "ended" for record in records):
                await self.post("t", {"kind": "late", "call": "c", "result": _block("c")})

    agent = ReActAgent(name="A", model=ScriptedModel(["done", "again"]), store=Late())
    for _ in range(2):
        with suppress(InjectedFault):
            await agent.call("go", thread="t")
    assert (await agent.journal.acquire("t", owner="next")).owner == "next"


def _block(call: str) -> dict[str, Any]:
    return {"type": "tool_result", "id": call, "name": "ok", "output": "late"}


async def test_an_interrupt_counts_although_a_call_waits_for_somebody() -> None:
    @tool(external=True)
    async def outside(n: int) -> str:
        raise AssertionError

    async def stopper(n: int) -> str:
        agent.interrupt("Stopped.", thread="t")
        return "ok"

    model = ScriptedModel([[tool_call("outside", n=1), tool_call("stopper", n=1)], "done"])
    agent = ReActAgent(name="A", model=model, toolkit=[outside, stopper])
    reply = await agent.call("go", thread="t")
    assert (reply.reason, reply.text) == ("interrupted", "Stopped.")
    assert_valid_history(await agent.history("t"))


async def test_decisions_about_calls_that_were_observed_settle_them() -> None:
    agent = ReActAgent(name="A", model=ScriptedModel(["done", "and done"]), toolkit=[ok])
    await agent.call("hi", thread="t")
    await agent.observe(Msg.assistant([tool_call("ok", id="seen", n=1)]), thread="t")
    await agent.resume("t", {"seen": Reject("no")})
    assert_valid_history(await agent.history("t"))


async def test_a_message_that_waited_for_hooks_survives_a_crash_and_a_new_message() -> None:
    from treadle.event import PreCallEvent

    @on(PreCallEvent)
    async def see(event: Event) -> None:
        pass

    store = MemoryStore()

    def make(fail_at: int | None) -> ReActAgent:
        journal = FaultyJournal(store, fail_at=fail_at)
        return ReActAgent(name="A", model=ScriptedModel(["done", "fine"]), hooks=[see], store=journal)

    with pytest.raises(InjectedFault):
        await make(2).call("first", thread="t")
    await make(None).call("second", thread="t")
    said = [msg.text for msg in await make(None).history("t") if msg.role == "user"]
    assert said == ["first", "second"]


async def test_cancelling_a_call_that_waits_for_its_turn_does_not_wait() -> None:
    held = asyncio.Event()
    model = ScriptedModel([lambda request: _after(held), "done"])
    agent = ReActAgent(name="A", model=model)
    first = asyncio.ensure_future(agent.call("go", thread="t"))
    second = asyncio.ensure_future(agent.call("me too", thread="t", on_busy="wait"))
    await asyncio.sleep(0.01)
    second.cancel()
    done, _ = await asyncio.wait([second], timeout=2)
    assert done, "the cancelled call waits for the other one"
    held.set()
    await first


async def _after(event: asyncio.Event) -> str:
    await event.wait()
    return "done"


async def test_a_call_that_is_cancelled_while_its_input_is_written_leaves_a_thread_at_rest() -> None:
    class Slow(MemoryStore):
        async def append(self, lease: Lease, expected: int, records: Any) -> None:
            await super().append(lease, expected, records)
            written.set()
            await asyncio.sleep(0)

    written = asyncio.Event()
    agent = ReActAgent(name="A", model=ScriptedModel(["done"]), store=Slow())
    task = asyncio.ensure_future(agent.call("go", thread="t"))
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await states(agent, "t"))[-1] == "ended"
