"""Hooks that raise: the run fails with their error, the history is valid, and the thread goes on afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from hook.support import ADD, ADD_TWICE, THREAD, Log, add, agent_of, lines, results, valid_history
from treadle import Hook, ReActAgent, Toolkit
from treadle.errors import EventError, InputError, ModelError
from treadle.event import (
    ActingChunkEvent,
    ErrorEvent,
    Event,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
    PreSummaryEvent,
    ReasoningChunkEvent,
    RunEndedEvent,
    RunFailedEvent,
    RunStartedEvent,
    SummaryChunkEvent,
)
from treadle.hook import CallModel, around_model, on, on_error, post_acting, post_call, pre_reasoning
from treadle.journal import Journal
from treadle.message import ToolResultBlock
from treadle.model import ModelRequest, ModelResponse
from treadle.testing import tool_call
from treadle.tool import ToolContext


class Boom(Exception):
    """What the hooks in these tests raise."""


class Raising(Hook):
    """Raises on one class of events."""

    def __init__(self, kind: type[Event], error: BaseException | None = None) -> None:
        self.events = (kind,)
        self.error = error or Boom("Boom.")

    async def on_event(self, event: Event) -> None:
        raise self.error


async def work(ctx: ToolContext) -> str:
    """Report progress."""
    await ctx.emit("half")
    return "done"


POSITIONS: list[type[Event]] = [
    PreCallEvent,
    PreReasoningEvent,
    ReasoningChunkEvent,
    PostReasoningEvent,
    PreActingEvent,
    ActingChunkEvent,
    PostActingEvent,
    PreSummaryEvent,
    SummaryChunkEvent,
    PostSummaryEvent,
    PostCallEvent,
]


def failing(*hooks: Hook, **options: Any) -> ReActAgent:
    """An agent whose run passes every position."""
    script = [[tool_call("work", id="c1")], "Summary.", "Hi again."]
    return agent_of(script, *hooks, toolkit=[work], max_iters=1, **options)


@pytest.mark.parametrize("kind", POSITIONS)
async def test_a_hook_that_raises_fails_the_run_cleanly_wherever_it_is(kind: type[Event], store: Journal) -> None:
    log = Log(ErrorEvent, RunFailedEvent)
    agent = failing(Raising(kind), log, store=store)
    with pytest.raises(Boom, match="Boom") as caught:
        await agent.call("Hello", thread=THREAD)
    assert caught.value.__notes__ == [f"In hook `Raising`, on `{kind.__name__}`."]
    assert log.names == ["Error", "RunFailed"]
    assert [getattr(event, "error", None) for event in log.seen] == [caught.value, caught.value]
    assert (await lines(agent))[-1] == "ended failed"
    await valid_history(agent)


@pytest.mark.parametrize("kind", POSITIONS)
async def test_a_thread_whose_run_failed_takes_new_messages(kind: type[Event]) -> None:
    agent = failing(Raising(kind))
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    agent.remove_hook("Raising")
    agent.max_iters = 10
    reply = await agent.call("Hello again", thread=THREAD)
    assert reply.reason == "answered"
    await valid_history(agent)


async def test_a_stream_ends_with_the_error_too() -> None:
    agent = agent_of(["Hi."], Raising(PreReasoningEvent))
    stream = agent.stream("Hello")
    while not isinstance(await anext(stream), ErrorEvent):
        pass
    assert isinstance(await anext(stream), RunFailedEvent)
    with pytest.raises(Boom):
        await anext(stream)


async def test_around_model_that_raises_fails_the_run() -> None:
    @around_model
    async def breaks(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        raise Boom("Boom.")

    log = Log(ErrorEvent)
    agent = agent_of(["Hi."], breaks, log)
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    assert len(log.seen) == 1
    assert [msg.role for msg in await valid_history(agent)] == ["user"]


@pytest.mark.parametrize("kind", [PreActingEvent, PostActingEvent])
async def test_siblings_of_a_call_whose_hook_raises_settle_and_are_recorded_first(
    kind: type[Event], store: Journal
) -> None:
    raised = asyncio.Event()

    async def slow_add(a: int, b: int) -> int:
        """Add, once the other call's hook has raised."""
        await raised.wait()
        return a + b

    @on(kind)
    async def breaks(event: Any) -> None:
        if event.call.id == "c1":
            raised.set()
            raise Boom("Boom.")

    calls = [tool_call("add", id="c1", a=1, b=1), tool_call("slow_add", id="c2", a=2, b=2)]
    agent = agent_of([calls, "Never asked."], breaks, toolkit=[add, slow_add], store=store)
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    stored = await lines(agent)
    assert {"started c2", "finished c2"} <= set(stored)
    assert stored[-1] == "ended failed"
    found = results(await valid_history(agent))
    assert found["c2"] == "4"
    assert found["c1"] == ("[ERROR] Not run: the run failed before it." if kind is PreActingEvent else "2")


async def test_calls_that_would_run_one_after_another_do_not_begin_after_a_hook_raised() -> None:
    ran: list[int] = []

    def note(number: int) -> str:
        """Write a number down."""
        ran.append(number)
        return "noted"

    @post_acting
    async def breaks(event: PostActingEvent) -> None:
        raise Boom("Boom.")

    calls = [tool_call("note", id="c1", number=1), tool_call("note", id="c2", number=2)]
    agent = agent_of([calls], breaks, toolkit=Toolkit([note], parallel=False))
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    assert ran == [1]
    assert results(await valid_history(agent)) == {"c1": "noted", "c2": "[ERROR] Not run: the run failed before it."}


async def test_a_rewritten_result_is_kept_when_a_siblings_hook_raises(store: Journal) -> None:
    @post_acting
    async def redacts(event: PostActingEvent) -> None:
        if event.call.id == "c2":
            raise Boom("Boom.")
        event.result = dataclasses.replace(event.result, output="redacted")

    agent = agent_of([ADD_TWICE], redacts, store=store)
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent))["c1"] == "redacted"


async def test_a_hook_that_raises_on_progress_does_not_hurt_the_tool() -> None:
    agent = failing(Raising(ActingChunkEvent))
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "done"}


async def test_an_error_of_the_model_reaches_error_hooks() -> None:
    told: list[BaseException] = []

    @on_error
    async def tells(event: ErrorEvent) -> None:
        told.append(event.error)

    error = ModelError("overloaded")
    agent = agent_of([error], tells)
    with pytest.raises(ModelError):
        await agent.call("Hello")
    assert told == [error]


async def test_an_error_at_the_beginning_of_a_run_reaches_error_hooks_too() -> None:
    log = Log(ErrorEvent, RunFailedEvent)
    agent = agent_of(["Hi."], log)
    with pytest.raises(InputError):
        await agent.call(ToolResultBlock(id="unknown", name="add", output="42"), thread=THREAD)
    with pytest.raises(Boom):
        await agent_of(["Hi."], log, Raising(RunStartedEvent)).call("Hello", thread=THREAD)
    assert log.names == ["Error", "RunFailed", "Error", "RunFailed"]
    assert await agent.journal.read(THREAD) == []


async def test_an_error_hook_that_raises_does_not_hide_the_error() -> None:
    agent = agent_of([ModelError("overloaded")], Raising(ErrorEvent))
    with pytest.raises(ModelError, match="overloaded") as caught:
        await agent.call("Hello", thread=THREAD)
    assert any("Boom" in note for note in caught.value.__notes__)
    assert (await lines(agent))[-1] == "ended failed"


async def test_a_reply_hook_that_raises_after_an_interrupt_is_told_too() -> None:
    @pre_reasoning
    async def interrupts(event: PreReasoningEvent) -> None:
        await agent.interrupt(thread=THREAD)

    @post_call
    async def breaks(event: PostCallEvent) -> None:
        raise Boom("Boom.")

    log = Log(ErrorEvent)
    agent = agent_of([ADD, "Never asked."], interrupts, breaks, log)
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    assert len(log.seen) == 1
    assert (await lines(agent))[-1] == "ended interrupted"
    assert results(await valid_history(agent)) == {"c1": "42"}


@pytest.mark.parametrize("kind", [PreReasoningEvent, PreActingEvent, PostActingEvent, PostCallEvent])
async def test_a_hook_that_cancels_itself_has_failed(kind: type[Event]) -> None:
    agent = agent_of([ADD_TWICE, "Done."], Raising(kind, asyncio.CancelledError()))
    with pytest.raises(EventError, match=f"raised `CancelledError` on `{kind.__name__}`; nobody cancelled"):
        await agent.call("Hello", thread=THREAD)
    await valid_history(agent)


@pytest.mark.parametrize("calls", [ADD, ADD_TWICE], ids=["one call", "two calls"])
@pytest.mark.parametrize("kind", [PreReasoningEvent, PreActingEvent, PostActingEvent])
async def test_a_hook_is_cancelled_with_its_run(kind: type[Event], calls: Any) -> None:
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    @on(kind)
    async def waits(event: Event) -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    log = Log(ErrorEvent)
    agent = agent_of([calls, "Done."], waits, log)
    running = asyncio.ensure_future(agent.call("Hello", thread=THREAD))
    await waiting.wait()
    agent.interrupt(thread=THREAD, when="now")
    assert (await running).reason == "interrupted"
    assert cancelled.is_set()
    assert log.seen == []
    assert (await lines(agent))[-1] == "ended interrupted"
    await valid_history(agent)


@pytest.mark.parametrize("kind", [RunStartedEvent, PreCallEvent, PostCallEvent, ErrorEvent, RunEndedEvent])
async def test_a_timeout_reaches_a_hook_on_the_first_and_last_events_too(kind: type[Event]) -> None:
    waiting = asyncio.Event()

    @on(kind)
    async def waits(event: Event) -> None:
        waiting.set()
        await asyncio.Event().wait()

    agent = agent_of([ValueError("No.") if kind is ErrorEvent else "Hi.", "Well."], waits)
    running = asyncio.ensure_future(agent.call("Hello", thread=THREAD))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    await valid_history(agent)
    agent.remove_hook("waits")
    assert (await agent.call("Hello?", thread=THREAD)).text in ("Hi.", "Well.")


async def test_a_hook_that_raises_on_the_last_event_changes_nothing() -> None:
    agent = agent_of(["Hi."], Raising(RunEndedEvent))
    assert (await agent.call("Hello", thread=THREAD)).text == "Hi."
    assert (await lines(agent))[-1] == "ended answered"
