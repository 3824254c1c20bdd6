"""How a run ends: with an answer, a stop, a limit, an empty answer, or one that was cut off."""

from __future__ import annotations

from typing import Any

import pytest

from agent.support import agent_of, names, read_all, said, script_of, valid_history
from treadle import Approve, Msg
from treadle.errors import EmptyResponseError, InputError
from treadle.event import (
    Event,
    PostActingEvent,
    PostReasoningEvent,
    PreActingEvent,
    PreReasoningEvent,
    SummaryChunkEvent,
)
from treadle.hook import on, post_acting, post_reasoning, pre_acting, pre_reasoning
from treadle.journal import Journal
from treadle.model import ModelRequest
from treadle.testing import ScriptedModel, Turn, thinking, tool_call
from treadle.tool import ToolResult, tool


def add(a: int, b: int) -> int:
    return a + b


def fail(n: int = 0) -> str:
    raise ValueError(f"no {n}")


# Answers and stops


async def test_a_tool_that_ends_the_run_gives_the_answer() -> None:
    @tool(ends_run=True)
    def answer(text: str) -> str:
        return text.upper()

    agent = agent_of([[tool_call("answer", text="yes")]], answer)
    reply = await agent.call("Well?")
    assert (reply.text, reply.reason, reply.output) == ("YES", "finished", None)
    assert said(await valid_history(agent))[-1] == "assistant: YES"


async def test_a_tool_that_ends_the_run_does_not_when_it_failed() -> None:
    agent = agent_of([[tool_call("fail", n=1)], "Sorry."], tool(fail, ends_run=True))
    reply = await agent.call("Well?")
    assert (reply.text, reply.reason) == ("Sorry.", "answered")
    await valid_history(agent)


async def test_metadata_of_a_tools_result_means_nothing_to_the_loop() -> None:
    def report() -> ToolResult:
        return ToolResult(output="data", metadata={"finish": True})

    agent = agent_of([[tool_call("report")], "Done."], report)
    reply = await agent.call("Go.")
    assert (reply.text, reply.reason, reply.output) == ("Done.", "answered", None)
    await valid_history(agent)


async def test_pre_reasoning_stop_ends_before_the_model_is_asked() -> None:
    stops = [True]

    @pre_reasoning
    async def stop(event: PreReasoningEvent) -> None:
        if stops and stops.pop():
            event.stop()

    agent = agent_of(["Hello."], hooks=[stop])
    reply = await agent.call("Hi")
    assert (reply.text, reply.reason, reply.pause) == ("", "stopped", None)
    assert script_of(agent).requests == []
    assert (await agent.call()).text == "Hello."
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: Hello."]


async def test_what_others_said_is_not_the_reply_of_an_agent_that_was_stopped() -> None:
    @pre_reasoning
    async def stop(event: PreReasoningEvent) -> None:
        event.stop()

    agent = agent_of(["Never."], hooks=[stop])
    await agent.observe([Msg.user("Hi all."), Msg.assistant("Hello, I am Bob.", name="Bob")])
    reply = await agent.call()
    assert (reply.text, reply.name, reply.reason) == ("", "Agent", "stopped")
    reply = await agent.call([Msg.user("Hi"), Msg.assistant("Bob again.", name="Bob")])
    assert reply.text == ""
    await valid_history(agent)


@post_reasoning
async def stop_at_calls(event: PostReasoningEvent) -> None:
    if event.message.tool_calls:
        event.stop()


async def test_post_reasoning_stop_before_tools_waits_and_call_with_nothing_runs_them(store: Journal) -> None:
    agent = agent_of([[tool_call("add", a=1, b=2)], "3."], add, hooks=[stop_at_calls], store=store)
    reply = await agent.call("1 + 2?")
    assert reply.reason == "stopped"
    assert reply.pause is not None
    assert reply.pause.kind == "breakpoint"
    assert [call.name for call in reply.tool_calls] == ["add"]
    await valid_history(agent, open_calls=True)
    reply = await agent.call()
    assert (reply.text, reply.reason) == ("3.", "answered")
    await valid_history(agent)


async def test_a_pause_after_a_stop_is_a_pause() -> None:
    agent = agent_of([[tool_call("add", a=1, b=2)], "3."], tool(add, approval=True), hooks=[stop_at_calls])
    assert (await agent.call("1 + 2?")).reason == "stopped"
    reply = await agent.call()
    assert reply.reason == "paused"
    assert reply.pause is not None
    assert reply.pause.kind == "approval"


async def test_pre_acting_stop_holds_the_call_until_somebody_goes_on() -> None:
    ran: list[int] = []

    def note(n: int) -> int:
        ran.append(n)
        return n

    @pre_acting
    async def stop(event: PreActingEvent) -> None:
        event.stop()

    agent = agent_of([[tool_call("note", n=1), tool_call("note", n=2)], "Done."], note, hooks=[stop])
    reply = await agent.call("Go.")
    assert (reply.reason, ran) == ("stopped", [])
    await valid_history(agent, open_calls=True)
    reply = await agent.call()
    assert (reply.text, sorted(ran)) == ("Done.", [1, 2])
    await valid_history(agent)


async def test_one_post_acting_stop_of_several_ends_the_run_with_all_results() -> None:
    @post_acting
    async def stop(event: PostActingEvent) -> None:
        if event.result.text == "2":
            event.stop()

    agent = agent_of([[tool_call("add", a=1, b=1), tool_call("add", a=2, b=2)], "Go on."], add, hooks=[stop])
    reply = await agent.call("Add.")
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert said(await valid_history(agent))[2:] == ["tool: 2", "tool: 4"]
    assert (await agent.call()).text == "Go on."


@pytest.mark.parametrize("event", [PreActingEvent, PostActingEvent])
async def test_what_hooks_keep_and_decide_about_a_finished_call_survives_a_pause(
    event: type[Event], store: Journal
) -> None:
    seen: list[Any] = []

    @on(PreReasoningEvent)
    async def look(event: PreReasoningEvent) -> None:
        seen.append(event.state.get("acted"))

    @post_acting
    async def stop(event: PostActingEvent) -> None:
        if event.result.text == "2":
            event.stop()

    @on(event)
    async def keep(event: Any) -> None:
        if event.call.id == "free":
            event.update_state(acted="free")

    calls = [tool_call("add", "free", a=1, b=1), tool_call("ask", "asked")]
    agent = agent_of(
        [calls, "Done."], add, tool(lambda: "ok", name="ask", approval=True), hooks=[look, stop, keep], store=store
    )
    assert (await agent.call("Go.")).reason == "paused"
    reply = await agent.resume(agent.thread, {"asked": Approve()})
    assert reply.reason == "stopped"
    await agent.call()
    assert seen == [None, "free"]
    await valid_history(agent)


async def test_goto_reasoning_asks_again_and_counts_as_an_iteration() -> None:
    @post_reasoning
    async def insist(event: PostReasoningEvent) -> None:
        event.goto_reasoning([Msg.user("Are you sure?")])

    agent = agent_of([[tool_call("add", a=1, b=2)], "Two.", "Summary."], add, hooks=[insist], max_iters=2)
    reply = await agent.call("Go.")
    assert (reply.text, reply.reason) == ("Summary.", "max_iters")
    assert said(await valid_history(agent)) == [
        "user: Go.",
        "assistant: add()",
        "tool: [ERROR] Not run: the model is asked again.",
        "user: Are you sure?",
        "assistant: Two.",
        "user: Are you sure?",
        "assistant: Summary.",
    ]


# The iteration limit


async def test_max_iters_asks_for_a_summary_without_tools() -> None:
    agent = agent_of(
        [[tool_call("add", a=1, b=1)], [tool_call("add", a=2, b=2)], "So far: 4.", "Next."], add, max_iters=2
    )
    events = await read_all(agent.stream("Go."))
    assert [name for name in names(events) if "Summary" in name] == [
        "PreSummary",
        "SummaryChunk",
        "SummaryChunk",
        "PostSummary",
    ]
    assert "".join(event.text for event in events if isinstance(event, SummaryChunkEvent)) == "So far: 4."
    last = script_of(agent).requests[-1]
    assert (len(script_of(agent).requests), list(last.tools)) == (3, [])
    assert "limit of reasoning steps" in last.messages[-1].text
    history = await valid_history(agent)
    assert said(history)[-1] == "assistant: So far: 4."
    assert not any("limit of reasoning steps" in msg.text for msg in history)
    reply = await agent.call("And now?")
    assert (reply.text, reply.reason) == ("Next.", "answered")


async def test_the_reply_at_the_limit_says_so_and_its_usage_includes_the_summary() -> None:
    agent = agent_of([[tool_call("add", a=1, b=1)], "Summary."], add, max_iters=1)
    reply = await agent.call("Go.")
    assert (reply.text, reply.reason, reply.usage.requests) == ("Summary.", "max_iters", 2)


async def test_a_summary_that_calls_tools_has_its_calls_left_out() -> None:
    ran: list[int] = []

    def note() -> str:
        ran.append(1)
        return "ok"

    agent = agent_of([[tool_call("note")], ["In short.", tool_call("note")]], note, max_iters=1)
    reply = await agent.call("Go.")
    assert (reply.text, reply.tool_calls, ran) == ("In short.", [], [1])
    assert said(await valid_history(agent))[-1] == "assistant: In short."


async def test_a_summary_that_is_nothing_but_calls_is_asked_for_again() -> None:
    agent = agent_of(
        [[tool_call("add", a=1, b=1)], [tool_call("add", a=2, b=2)], "In short.", "Next."], add, max_iters=1
    )
    reply = await agent.call("Go.")
    assert (reply.text, reply.reason, reply.usage.requests) == ("In short.", "max_iters", 3)
    assert (await agent.call("And?")).text == "Next."
    await valid_history(agent)


async def test_summaries_are_asked_for_a_bounded_number_of_times() -> None:
    empty = [tool_call("add", a=2, b=2)]
    agent = agent_of([[tool_call("add", a=1, b=1)], *[empty] * 4], add, max_iters=1)
    with pytest.raises(EmptyResponseError):
        await agent.call("Go.")
    assert script_of(agent).left == 0
    await valid_history(agent)


async def test_iterations_are_counted_over_pauses() -> None:
    script = [[tool_call("add", "one", a=1, b=1)], [tool_call("add", "two", a=2, b=2)], "Summary."]
    agent = agent_of(script, tool(add, approval=True), max_iters=2)
    await agent.call("Go.")
    assert (await agent.resume(agent.thread, {"one": Approve()})).reason == "paused"
    reply = await agent.resume(agent.thread, {"two": Approve()})
    assert (reply.text, reply.reason) == ("Summary.", "max_iters")
    await valid_history(agent)


def test_an_agent_needs_at_least_one_iteration() -> None:
    with pytest.raises(InputError, match="max_iters"):
        agent_of(["Hi"], max_iters=0)


# Empty answers, answers that were cut off


@pytest.mark.parametrize("empty", ["", "  \n", [thinking("Hm.")], []], ids=repr)
async def test_an_empty_answer_is_asked_for_again_and_not_stored(empty: Any) -> None:
    agent = agent_of([Turn(content=empty), "Hello.", Turn(content=empty), "Again."])
    assert (await agent.call("Hi")).text == "Hello."
    first, second = script_of(agent).requests
    assert "Your last answer was empty" in second.messages[-1].text
    assert len(first.messages) == 1
    await agent.call("Hi again")
    assert "empty" not in script_of(agent).requests[2].messages[-1].text
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: Hello.", "user: Hi again", "assistant: Again."]


async def test_empty_answers_are_bounded() -> None:
    agent = agent_of([""] * 4)
    with pytest.raises(EmptyResponseError, match="4 empty answers"):
        await agent.call("Hi")
    assert said(await valid_history(agent)) == ["user: Hi"]
    assert script_of(agent).left == 0


async def test_empty_answers_count_as_iterations() -> None:
    agent = agent_of(["", "", "Summary."], max_iters=2)
    assert (await agent.call("Hi")).reason == "max_iters"


@pytest.mark.parametrize(("stop", "why"), [("length", "cut off"), ("refused", "refused")])
async def test_calls_of_an_answer_that_was_cut_off_are_not_run(stop: Any, why: str) -> None:
    ran: list[str] = []

    def write(text: str) -> str:
        ran.append(text)
        return "ok"

    agent = agent_of(
        [Turn(content=["Writing.", tool_call("write", text="line1\nline2 is cu")], stop_reason=stop), "Sorry."], write
    )
    reply = await agent.call("Write.")
    assert (reply.text, ran) == ("Sorry.", [])
    assert said(await valid_history(agent))[2] == f"tool: [ERROR] Not run: the answer was {why} before it was complete."


@pytest.mark.parametrize("stop", ["length", "refused"])
async def test_text_that_was_cut_off_is_the_answer_and_the_reason_says_so(stop: Any) -> None:
    agent = agent_of([Turn(content="Half an ans", stop_reason=stop)])
    reply = await agent.call("Hi")
    assert (reply.text, reply.reason) == ("Half an ans", stop)
    assert said(await valid_history(agent))[-1] == "assistant: Half an ans"


# Observing


async def test_what_is_observed_beside_open_calls_comes_after_their_results(store: Journal) -> None:
    agent = agent_of([[tool_call("add", "one", a=1, b=2)], "3."], tool(add, approval=True), store=store)
    await agent.call("1 + 2?")
    await agent.observe(Msg.user("It rains.", name="bob"))
    await valid_history(agent, open_calls=True)
    await agent.resume(agent.thread, {"one": Approve()})
    assert said(await valid_history(agent))[2:4] == ["tool: 3", "user: It rains."]


async def test_the_step_of_a_request_counts_the_answers_before_it() -> None:
    steps: list[int | None] = []

    def note(request: ModelRequest) -> str:
        steps.append(request.step)
        return "Hello."

    agent = agent_of(ScriptedModel([note, note]))
    await agent.call("One")
    await agent.call("Two")
    assert steps == [0, 1]
