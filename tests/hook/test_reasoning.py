"""Hooks around the model: the overlay that is never stored, changed answers, another try, stops, and `around_model`."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from hook.support import ADD, ADD_TWICE, THREAD, Log, agent_of, lines, model_of, on_disk, results, valid_history
from treadle import Msg, ReActAgent
from treadle.errors import EventError, ModelError
from treadle.event import (
    PostCallEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreCallEvent,
    PreReasoningEvent,
    PreSummaryEvent,
    ReasoningChunkEvent,
    SummaryChunkEvent,
)
from treadle.graph import Run
from treadle.hook import (
    CallModel,
    around_model,
    post_call,
    post_reasoning,
    post_summary,
    pre_call,
    pre_reasoning,
    pre_summary,
)
from treadle.journal import Journal
from treadle.message import TextBlock, ToolResultBlock
from treadle.model import ModelRequest, ModelResponse, ToolChoice, ToolSpec
from treadle.testing import ScriptedModel, Turn, tool_call

# PreCall and PostCall


async def test_pre_call_changes_the_input_before_it_is_stored(store: Journal) -> None:
    @pre_call
    async def translates(event: PreCallEvent) -> None:
        event.messages = [Msg.user(event.messages[0].text.upper()), Msg.user("And politely.")]

    agent = agent_of(["Hi."], translates, store=store)
    await agent.call("hello", thread=THREAD)
    assert [msg.text for msg in await valid_history(agent)] == ["HELLO", "And politely.", "Hi."]


async def test_pre_call_cannot_change_the_stored_input_in_place() -> None:
    @pre_call
    async def appends(event: PreCallEvent) -> None:
        event.messages.append(Msg.user("x"))  # type: ignore[attr-defined]

    agent = agent_of(["Hi."], appends)
    with pytest.raises(AttributeError):
        await agent.call("Hello")


async def test_pre_call_is_not_asked_again_when_a_run_goes_on() -> None:
    log = Log(PreCallEvent)

    @post_reasoning
    async def stops(event: PostReasoningEvent) -> None:
        if event.message.tool_calls:
            event.stop()

    agent = agent_of([ADD, "42"], log, stops)
    await agent.call("Hello", thread=THREAD)
    await agent.resume(THREAD)
    assert len(log.seen) == 1


async def test_post_call_changes_the_reply_and_not_the_history() -> None:
    @post_call
    async def signs(event: PostCallEvent) -> None:
        event.reply = dataclasses.replace(event.reply, content=(TextBlock(text="Hi. (signed)"),))

    agent = agent_of(["Hi."], signs)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.text, reply.reason) == ("Hi. (signed)", "answered")
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "Hi."]


async def test_post_call_comes_with_an_interrupted_run_and_not_with_a_paused_one() -> None:
    log = Log(PostCallEvent)

    def needs_approval() -> str:
        """Ask first."""
        return "done"

    @pre_reasoning
    async def interrupts(event: PreReasoningEvent) -> None:
        await agent.interrupt("Enough.", thread=THREAD)

    from treadle import Toolkit

    toolkit = Toolkit()
    toolkit.add(needs_approval, approval=True)
    agent = agent_of([[tool_call("needs_approval")]], log, toolkit=toolkit)
    reply = await agent.call("Hello")
    assert (reply.reason, log.seen) == ("paused", [])

    agent = agent_of([ADD, "Never asked."], log, interrupts)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.text, len(log.seen)) == ("interrupted", "Enough.", 1)


# PreReasoning


async def test_the_overlay_is_sent_and_never_stored(store: Journal) -> None:
    spec = ToolSpec(name="extra", description="", parameters={"type": "object"})

    @pre_reasoning
    async def overlays(event: PreReasoningEvent) -> None:
        event.messages = [Msg.system("SECRET PROMPT"), *event.messages, Msg.user("SECRET HINT")]
        event.tools = [*event.tools, spec]
        event.tool_choice = ToolChoice(mode="none")
        event.options = {**event.options, "seed": 7}

    agent = agent_of(["Hi.", "Hi again."], overlays, store=store, options={"temperature": 1})
    await agent.call("Hello", thread=THREAD)
    request = model_of(agent).requests[0]
    assert [msg.text for msg in request.messages] == ["SECRET PROMPT", "Hello", "SECRET HINT"]
    assert [tool.name for tool in request.tools] == ["add", "extra"]
    assert (request.tool_choice, request.options) == (ToolChoice(mode="none"), {"temperature": 1, "seed": 7})
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "Hi."]
    assert "SECRET" not in await on_disk(agent)
    assert "extra" not in await on_disk(agent)


async def test_the_overlay_is_for_one_request() -> None:
    @pre_reasoning
    async def once(event: PreReasoningEvent) -> None:
        if event.iteration == 0:
            event.messages = [*event.messages, Msg.user("Only now.")]

    agent = agent_of([ADD, "42"], once)
    await agent.call("Hello")
    assert [msg.text for msg in model_of(agent).requests[0].messages] == ["Hello", "Only now."]
    assert "Only now." not in [msg.text for msg in model_of(agent).requests[1].messages]


async def test_added_messages_are_sent_and_stored_before_the_answer(store: Journal) -> None:
    @pre_reasoning
    async def adds(event: PreReasoningEvent) -> None:
        event.add_messages([Msg.user("Use metric units.")])

    agent = agent_of(["Hi."], adds, store=store)
    await agent.call("Hello", thread=THREAD)
    assert [msg.text for msg in model_of(agent).requests[0].messages] == ["Hello", "Use metric units."]
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "Use metric units.", "Hi."]


async def test_added_messages_are_not_lost_when_the_model_fails(store: Journal) -> None:
    said = [Msg.user("Once only.")]

    @pre_reasoning
    async def adds(event: PreReasoningEvent) -> None:
        if said:
            event.add_messages([said.pop()])

    agent = agent_of([ModelError("overloaded"), "Hi."], adds, store=store)
    with pytest.raises(ModelError):
        await agent.call("Hello", thread=THREAD)
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "Once only."]
    await agent.call(thread=THREAD)
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "Once only.", "Hi."]


async def test_a_stop_before_the_model_ends_the_run_without_asking_it() -> None:
    @pre_reasoning
    async def stops(event: PreReasoningEvent) -> None:
        if event.iteration == 1:
            event.stop()

    agent = agent_of([ADD, "42"], stops)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert len(model_of(agent).requests) == 1
    assert results(await valid_history(agent)) == {"c1": "42"}
    assert (await lines(agent))[-1] == "ended stopped"


async def test_iteration_counts_the_answers_of_a_turn() -> None:
    log = Log(PreReasoningEvent)
    agent = agent_of([ADD, "42", "Hi."], log)
    await agent.call("Hello")
    await agent.call("Hello")
    assert [getattr(event, "iteration", None) for event in log.seen] == [0, 1, 0]


# PostReasoning


async def test_the_answer_is_changed_before_it_is_stored_and_shown(store: Journal) -> None:
    @post_reasoning
    async def redacts(event: PostReasoningEvent) -> None:
        text = event.message.text.replace("4711", "****")
        event.message = dataclasses.replace(event.message, content=(TextBlock(text=text),))

    agent = agent_of(["The number is 4711."], redacts, store=store)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.text == "The number is ****."
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "The number is ****."]
    assert "4711" not in await on_disk(agent)


async def test_calls_that_a_hook_takes_out_are_not_run() -> None:
    @post_reasoning
    async def drops(event: PostReasoningEvent) -> None:
        calls = event.message.tool_calls
        event.message = dataclasses.replace(event.message, content=tuple(calls[:1]) or event.message.content)

    agent = agent_of([ADD_TWICE, "Done."], drops)
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "2"}


async def test_calls_that_a_hook_puts_in_get_ids_of_their_own() -> None:
    @post_reasoning
    async def doubles(event: PostReasoningEvent) -> None:
        event.message = dataclasses.replace(event.message, content=event.message.content * 2)

    agent = agent_of([ADD, "Done."], doubles)
    await agent.call("Hello", thread=THREAD)
    assert list(results(await valid_history(agent)).values()) == ["42", "42"]


async def test_a_stop_after_the_model_keeps_the_calls_for_a_later_resume(store: Journal) -> None:
    @post_reasoning
    async def stops(event: PostReasoningEvent) -> None:
        if event.message.tool_calls:
            event.stop()

    agent = agent_of([ADD, "42"], stops, store=store)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.reason == "stopped"
    assert reply.pause is not None
    assert [wish.kind for wish in reply.pause.wishes] == ["breakpoint"]
    assert results(await valid_history(agent, open_calls=True)) == {}
    reply = await agent.resume(THREAD)
    assert (reply.reason, reply.text) == ("answered", "42")
    assert results(await valid_history(agent)) == {"c1": "42"}


async def test_a_stop_after_an_answer_without_calls_ends_the_run() -> None:
    @post_reasoning
    async def stops(event: PostReasoningEvent) -> None:
        event.stop()

    agent = agent_of(["Hi."], stops)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.text, reply.pause) == ("stopped", "Hi.", None)


@pytest.mark.parametrize("reason", ["length", "refused"])
async def test_a_stop_does_not_let_calls_of_an_answer_that_was_cut_off_run_later(reason: Any) -> None:
    @post_reasoning
    async def stops(event: PostReasoningEvent) -> None:
        event.stop()

    agent = agent_of([Turn(content=ADD, stop_reason=reason), "Later."], stops)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert results(await valid_history(agent)) == {"c1": "[ERROR] Not run: the answer was cut off."}
    assert "started c1" not in await lines(agent)


async def test_a_pause_for_approval_after_a_stop_is_a_pause() -> None:
    from treadle.hook import HumanInTheLoopHook

    @post_reasoning
    async def stops(event: PostReasoningEvent) -> None:
        if event.message.tool_calls:
            event.stop()

    agent = agent_of([ADD, "42"], stops, HumanInTheLoopHook(["add"]))
    assert (await agent.call("Hello", thread=THREAD)).reason == "stopped"
    reply = await agent.resume(THREAD)
    assert reply.reason == "paused"


async def test_another_try_stores_the_answer_the_messages_and_a_result_for_every_call(store: Journal) -> None:
    @post_reasoning
    async def insists(event: PostReasoningEvent) -> None:
        if event.message.tool_calls:
            answered = ToolResultBlock(id="c2", name="add", output="four")
            event.goto_reasoning([Msg.user("Without tools, please."), Msg.tool(answered)])

    agent = agent_of([ADD_TWICE, "Fine."], insists, store=store)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.text == "Fine."
    history = await valid_history(agent)
    assert results(history) == {"c1": "[ERROR] Not run: the model is asked again.", "c2": "four"}
    assert [msg.role for msg in history] == ["user", "assistant", "tool", "tool", "user", "assistant"]


async def test_another_try_counts_as_an_iteration_so_that_nothing_escapes_the_limit() -> None:
    log = Log(PreReasoningEvent)

    @post_reasoning
    async def never_content(event: PostReasoningEvent) -> None:
        event.goto_reasoning([Msg.user("Better.")])

    agent = agent_of(["One.", "Two.", "Three.", "Summary."], never_content, log, max_iters=3)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.text) == ("max_iters", "Summary.")
    assert [getattr(event, "iteration", None) for event in log.seen] == [0, 1, 2]
    model_of(agent).assert_consumed()
    await valid_history(agent)


# The summary


async def test_summary_events_change_the_request_and_the_summary() -> None:
    log = Log(SummaryChunkEvent)

    @pre_summary
    async def hints(event: PreSummaryEvent) -> None:
        event.messages = [*event.messages, Msg.user("In one word.")]
        event.options = {"temperature": 0}

    @post_summary
    async def shouts(event: PostSummaryEvent) -> None:
        event.message = dataclasses.replace(event.message, content=(TextBlock(text=event.message.text.upper()),))

    agent = agent_of([ADD, "enough"], hints, shouts, log, max_iters=1)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.text, reply.reason) == ("ENOUGH", "max_iters")
    request = model_of(agent).requests[1]
    assert (request.messages[-1].text, request.options, request.tools) == ("In one word.", {"temperature": 0}, ())
    assert "".join(getattr(event, "text", "") for event in log.seen) == "enough"
    assert "In one word." not in await on_disk(agent)


# around_model


async def test_around_model_changes_request_and_response_and_asks_again() -> None:
    @around_model
    async def retries(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        try:
            return await call_next(request)
        except ModelError:
            return await call_next(dataclasses.replace(request, options={"retry": True}))

    agent = agent_of([ModelError("overloaded"), "Hi."], retries)
    assert (await agent.call("Hello")).text == "Hi."
    assert [request.options for request in model_of(agent).requests] == [{}, {"retry": True}]


async def test_around_model_stands_around_the_summary_too() -> None:
    asked: list[int] = []

    @around_model
    async def counts(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        asked.append(len(request.tools))
        return await call_next(request)

    await agent_of([ADD, "Summary."], counts, max_iters=1).call("Hello")
    assert asked == [1, 0]


async def test_an_answer_that_around_model_gives_itself_is_streamed_in_one_piece() -> None:
    @around_model
    async def from_cache(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        return ModelResponse(content=(TextBlock(text="From the cache."),))

    agent = agent_of([], from_cache)
    events = [event async for event in agent.stream("Hello", thread=THREAD)]
    assert [event.text for event in events if isinstance(event, ReasoningChunkEvent)] == ["From the cache."]
    assert (await valid_history(agent))[-1].text == "From the cache."
    assert model_of(agent).requests == []


@pytest.mark.parametrize("answer", [None, "text"])
async def test_around_model_that_gives_no_response_is_a_clear_error(answer: Any) -> None:
    @around_model
    async def forgetful(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        await call_next(request)
        return answer

    agent = agent_of(["Hi."], forgetful)
    with pytest.raises(EventError, match="Hook `forgetful` must give a `ModelResponse`") as caught:
        await agent.call("Hello", thread=THREAD)
    assert ("Was `return` forgotten?" in str(caught.value)) is (answer is None)
    assert [msg.role for msg in await valid_history(agent)] == ["user"]


async def test_an_interrupt_inside_around_model_does_not_repeat_the_answer_before() -> None:
    waiting = asyncio.Event()

    @around_model
    async def waits(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        if request.step:
            waiting.set()
            await asyncio.Event().wait()
        return await call_next(request)

    agent = agent_of([["Let me see.", *ADD], "42"], waits)
    running = asyncio.ensure_future(agent.call("Hello", thread=THREAD))
    await waiting.wait()
    agent.interrupt(thread=THREAD, when="now")
    assert (await running).reason == "interrupted"
    assert [msg.text for msg in await valid_history(agent) if msg.role == "assistant"] == ["Let me see."]


# Subclasses


class Overriding(ReActAgent):
    """Does both steps itself, without asking the class above."""

    async def _reasoning(self, request: ModelRequest, run: Run) -> ModelResponse:
        return await self.model.generate(request)


async def test_a_subclass_that_overrides_reasoning_keeps_its_hooks() -> None:
    asked: list[str] = []

    @around_model
    async def counts(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        asked.append(request.messages[-1].text)
        return await call_next(request)

    @pre_reasoning
    async def hints(event: PreReasoningEvent) -> None:
        event.messages = [*event.messages, Msg.user("Hint.")]

    log = Log(PostReasoningEvent, ReasoningChunkEvent)
    agent = Overriding(name="A", model=ScriptedModel(["Hi there, you."]), hooks=[counts, hints, log])
    reply = await agent.call("Hello")
    assert (reply.text, asked) == ("Hi there, you.", ["Hint."])
    assert log.names == ["ReasoningChunk", "PostReasoning"]
