"""The loop: input, reasoning, acting, and the ways in which a run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from agent.support import agent_of, kinds, names, read_all, records, said, script_of, valid_history
from treadle import Msg, Template, Toolkit, TreadleError
from treadle.errors import EmptyResponseError, InputError, ModelError
from treadle.event import (
    Event,
    PostActingEvent,
    PostReasoningEvent,
    PreActingEvent,
    PreReasoningEvent,
    RunFailedEvent,
    SummaryChunkEvent,
)
from treadle.hook import FunctionHook, on, post_acting, post_reasoning, pre_acting, pre_reasoning
from treadle.journal import Journal
from treadle.message import Block, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from treadle.model import ModelRequest
from treadle.testing import ScriptedModel, Turn, thinking, tool_call
from treadle.tool import ToolResult, tool


def add(a: int, b: int) -> int:
    return a + b


def fail(n: int = 0) -> str:
    raise ValueError(f"no {n}")


PICTURE = ImageBlock(source=URLSource(url="https://example.org/cat.png"))


# What can be given


@dataclass(frozen=True)
class Given:
    name: str
    input: Any
    texts: Sequence[str]
    blocks: int = 1


GIVEN = [
    Given("text", "Hi", ["Hi"]),
    Given("message", Msg.user("Hi", name="ada"), ["Hi"]),
    Given("block", PICTURE, [""]),
    Given("list of messages", [Msg.user("One"), Msg.assistant("Two"), Msg.user("Three")], ["One", "Two", "Three"]),
    Given("text and blocks make one message", ["Look", PICTURE], ["Look"], blocks=2),
    Given("template", Template("In {city}"), ["In Rome"]),
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: given.name)
async def test_call_takes_text_messages_blocks_and_lists(given: Given) -> None:
    agent = agent_of(["Hello."])
    reply = await agent.call(given.input, variables={"city": "Rome"})
    history = await valid_history(agent)
    assert [msg.text for msg in history] == [*given.texts, "Hello."]
    assert len(history[0].content) == given.blocks
    assert (reply.text, reply.reason, reply.role, reply.name) == ("Hello.", "answered", "assistant", "Agent")


async def test_call_with_nothing_continues_reasoning_on_what_was_observed() -> None:
    agent = agent_of(["Noted."])
    await agent.observe(Msg.user("The sky is blue."))
    reply = await agent.call()
    assert said(await valid_history(agent)) == ["user: The sky is blue.", "assistant: Noted."]
    assert reply.reason == "answered"


async def test_an_empty_list_is_nothing_and_does_not_settle_open_calls() -> None:
    agent = agent_of([[tool_call("add", a=1, b=2)], "3"], tool(add, approval=True))
    await agent.call("Add.")
    reply = await agent.call([])
    assert reply.reason == "paused"
    await valid_history(agent, open_calls=True)


@pytest.mark.parametrize("given", [Msg.system("Obey."), 7, [object()], b"bytes"], ids=str)
async def test_what_is_no_input_is_refused_before_anything_is_stored(given: Any) -> None:
    agent = agent_of(["Hello."])
    with pytest.raises(InputError):
        await agent.call(given)
    assert await agent.journal.read(agent.thread) == []


async def test_calls_in_a_message_that_is_not_the_assistants_are_refused() -> None:
    agent = agent_of(["Hello."], add)
    with pytest.raises(InputError, match="assistant"):
        await agent.call(Msg(role="user", content=(tool_call("add", "call-1", a=1, b=2),)))


async def test_a_conversation_can_be_imported_with_its_calls_and_results() -> None:
    agent = agent_of(["It was 3."], add)
    old = [
        Msg.user("1 + 2?"),
        Msg.assistant(tool_call("add", "old-1", a=1, b=2)),
        Msg.tool(ToolResultBlock(id="old-1", name="add", output="3")),
        Msg.user("What was it?"),
    ]
    assert (await agent.call(old)).text == "It was 3."
    assert said(await valid_history(agent))[1:3] == ["assistant: add()", "tool: 3"]


async def test_open_calls_in_the_input_are_run_first() -> None:
    agent = agent_of(["3."], add)
    reply = await agent.call([Msg.user("1 + 2?"), Msg.assistant(tool_call("add", "given-1", a=1, b=2))])
    assert said(await valid_history(agent)) == ["user: 1 + 2?", "assistant: add()", "tool: 3", "assistant: 3."]
    assert reply.reason == "answered"


async def test_open_calls_that_were_observed_are_run_by_call_with_nothing() -> None:
    agent = agent_of(["3."], add)
    await agent.observe([Msg.user("1 + 2?"), Msg.assistant(tool_call("add", "seen-1", a=1, b=2))])
    assert (await agent.call()).text == "3."
    assert said(await valid_history(agent))[2] == "tool: 3"


async def test_a_call_id_that_the_thread_knows_already_cannot_be_imported_again() -> None:
    agent = agent_of([[tool_call("add", "call-1", a=1, b=2)], "3."], add)
    await agent.call("1 + 2?")
    with pytest.raises(InputError, match="call-1"):
        await agent.call([Msg.user("Again."), Msg.assistant(tool_call("add", "call-1", a=1, b=2))])
    await valid_history(agent)


async def test_a_reply_can_be_the_input_of_another_agent() -> None:
    reply = await agent_of(["From one."], name="One").call("Hi")
    other = agent_of(["From two."], name="Two")
    await other.call(reply)
    history = await valid_history(other)
    assert type(history[0]) is Msg
    assert (history[0].name, history[0].id) == ("One", reply.id)


# The loop itself


async def test_reason_act_reason(store: Journal) -> None:
    agent = agent_of([["I add.", tool_call("add", a=17, b=25)], "It is 42."], add, store=store, system_prompt="Help.")
    reply = await agent.call("17 + 25?")
    assert (reply.text, reply.reason, reply.usage.requests) == ("It is 42.", "answered", 2)
    assert said(await valid_history(agent)) == [
        "user: 17 + 25?",
        "assistant: I add. add()",
        "tool: 42",
        "assistant: It is 42.",
    ]
    assert kinds(await records(agent)) == ["input", "update", "started", "finished", "update", "update", "ended"]
    first, second = script_of(agent).requests
    assert said(first.messages) == ["system: Help.", "user: 17 + 25?"]
    assert [spec.name for spec in first.tools] == ["add"]
    assert len(second.messages) == 4


async def test_events_come_in_the_order_of_the_seed() -> None:
    agent = agent_of([Turn(content=["I add.", tool_call("add", a=1, b=2)], chunks=1000), "3."], add)
    events = names(await read_all(agent.stream("1 + 2?")))
    assert events == [
        "RunStarted",
        "PreCall",
        "PreReasoning",
        "ReasoningChunk",
        "ReasoningChunk",
        "PostReasoning",
        "PreActing",
        "PostActing",
        "PreReasoning",
        "ReasoningChunk",
        "PostReasoning",
        "PostCall",
        "RunEnded",
    ]


async def test_results_are_in_the_order_of_the_calls_whatever_finishes_first() -> None:
    first_may_end = asyncio.Event()

    async def slow() -> str:
        await first_may_end.wait()
        return "slow"

    async def fast() -> str:
        first_may_end.set()
        return "fast"

    agent = agent_of([[tool_call("slow"), tool_call("fast")], "Done."], slow, fast)
    await agent.call("Go.")
    assert said(await valid_history(agent))[2:4] == ["tool: slow", "tool: fast"]


async def test_without_parallel_calls_run_one_after_another() -> None:
    log: list[str] = []

    async def step(n: int) -> str:
        log.append(f"in {n}")
        await asyncio.sleep(0)
        log.append(f"out {n}")
        return str(n)

    agent = agent_of([[tool_call("step", n=n) for n in range(3)], "Done."], toolkit=Toolkit([step], parallel=False))
    await agent.call("Go.")
    assert log == ["in 0", "out 0", "in 1", "out 1", "in 2", "out 2"]
    await valid_history(agent)


async def test_without_parallel_a_call_does_not_overtake_one_that_waits_for_approval() -> None:
    log: list[int] = []

    @tool(approval=lambda input: input["n"] == 0)
    def step(n: int) -> int:
        log.append(n)
        return n

    agent = agent_of([[tool_call("step", f"call-{n}", n=n) for n in range(2)], "Done."], toolkit=Toolkit([step], parallel=False))
    reply = await agent.call("Go.")
    assert (log, reply.reason) == ([], "paused")
    from treadle import Approve

    await agent.resume(agent.thread, {"call-0": Approve()})
    assert log == [0, 1]
    await valid_history(agent)


async def test_call_ids_that_are_missing_or_repeated_are_replaced() -> None:
    calls = [tool_call("add", "", a=1, b=1), tool_call("add", "same", a=2, b=2), tool_call("add", "same", a=3, b=3)]
    agent = agent_of([calls, [tool_call("add", "same", a=4, b=4)], "Done."], add)
    await agent.call("Add.")
    history = await valid_history(agent)
    ids = [call.id for msg in history for call in msg.tool_calls]
    assert len(set(ids)) == 4
    assert "" not in ids
    assert [result.text for msg in history for result in msg.tool_results] == ["2", "4", "6", "8"]


# Failures that the model is told about


@dataclass(frozen=True)
class Failure:
    name: str
    call: ToolUseBlock
    text: str


FAILURES = [
    Failure("tool raises", tool_call("fail", n=1), "[ERROR] `fail` failed: ValueError: no 1"),
    Failure("unknown tool", tool_call("fly"), "[ERROR] There is no tool `fly`. Available: `add`, `fail`"),
    Failure("wrong type", tool_call("add", a="one", b=2), "`a`"),
    Failure("missing argument", tool_call("add", a=1), "- `b`: is missing"),
    Failure("unknown argument", tool_call("add", a=1, b=2, c=3), "- `c`"),
    Failure(
        "cut off JSON",
        ToolUseBlock(id="", name="add", input={}, raw='{"a": 1, "b'),
        "[ERROR] The arguments are not a JSON object: Unterminated string",
    ),
    Failure(
        "JSON that is no object",
        ToolUseBlock(id="", name="add", input={}, raw="[1, 2]"),
        "[ERROR] The arguments are not a JSON object: it is another kind of JSON. The text was: [1, 2]",
    ),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
async def test_a_failed_call_is_an_error_result_and_its_siblings_go_on(failure: Failure) -> None:
    agent = agent_of([[failure.call, tool_call("add", a=1, b=2)], "I see."], add, fail)
    reply = await agent.call("Go.")
    assert (reply.text, reply.reason) == ("I see.", "answered")
    results = [result for msg in await valid_history(agent) for result in msg.tool_results]
    assert [result.status for result in results] == ["error", "ok"]
    assert failure.text in results[0].text
    assert results[0].text.startswith("[ERROR] ")


async def test_arguments_that_were_not_json_are_never_replaced_by_nothing() -> None:
    ran: list[str] = []

    def touch(path: str = "/") -> str:
        ran.append(path)
        return "ok"

    agent = agent_of([[ToolUseBlock(id="", name="touch", input={}, raw='{"path": "/tm')], "Sorry."], touch)
    await agent.call("Touch.")
    assert ran == []
    await valid_history(agent)


async def test_a_tool_that_raises_in_the_middle_of_its_stream_is_an_error_result() -> None:
    async def download() -> Any:
        yield "10 %"
        raise ConnectionError("gone")

    agent = agent_of([[tool_call("download"), tool_call("download")], "Failed."], download)
    reply = await agent.call("Go.")
    results = [result.text for msg in await valid_history(agent) for result in msg.tool_results]
    assert reply.text == "Failed."
    assert results == ["[ERROR] `download` failed: ConnectionError: gone"] * 2


@pytest.mark.parametrize("siblings", [0, 1], ids=["alone", "beside another"])
async def test_a_tool_that_cancels_itself_is_an_error_result_and_no_interrupt(siblings: int) -> None:
    async def quit() -> str:
        raise asyncio.CancelledError

    calls = [tool_call("quit"), *[tool_call("add", a=1, b=2)] * siblings]
    agent = agent_of([calls, "It gave up."], quit, add)
    reply = await agent.call("Go.")
    results = [result for msg in await valid_history(agent) for result in msg.tool_results]
    assert (reply.text, reply.reason) == ("It gave up.", "answered")
    assert [result.status for result in results] == ["error", *["ok"] * siblings]


# Errors that end the run


async def test_a_network_error_in_the_middle_of_a_stream_leaves_a_thread_that_can_go_on(store: Journal) -> None:
    broken = Turn(content=["Half an ans", tool_call("add", a=1, b=2)], error=ConnectionError("reset"))
    agent = agent_of([broken, "Whole."], add, store=store)
    with pytest.raises(ConnectionError, match="reset"):
        await agent.call("Hi")
    assert said(await valid_history(agent)) == ["user: Hi"]
    assert (await records(agent))[-1]["error"] == "ConnectionError: reset"
    assert (await agent.call()).text == "Whole."
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: Whole."]


async def test_a_stream_that_fails_ends_with_how_it_failed_and_then_raises() -> None:
    agent = agent_of([ConnectionError("reset")])
    events: list[Event] = []
    with pytest.raises(ConnectionError, match="reset"):
        async for event in agent.stream("Hi"):
            events.append(event)
    assert names(events)[-2:] == ["Error", "RunFailed"]
    assert isinstance(events[-1], RunFailedEvent)
    await valid_history(agent)


async def test_a_model_that_cancels_itself_fails_the_run_and_cancels_nobody() -> None:
    agent = agent_of([asyncio.CancelledError(), "Again."])
    with pytest.raises(ModelError, match="cancelled from within"):
        await agent.call("Hi")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await valid_history(agent)


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("event", [PreActingEvent, PostActingEvent])
async def test_a_hook_that_raises_lets_siblings_settle_and_every_call_has_its_result(
    event: type[Event], error: BaseException, store: Journal
) -> None:
    ran: list[int] = []

    async def note(n: int) -> int:
        ran.append(n)
        return n

    @on(event)
    async def hook(event: Any) -> None:
        if event.call.input["n"] == 1:
            raise error

    agent = agent_of([[tool_call("note", n=n) for n in range(3)], "Done."], note, hooks=[hook], store=store)
    with pytest.raises(ValueError if isinstance(error, ValueError) else TreadleError):
        await agent.call("Go.")
    results = [result for msg in await valid_history(agent) for result in msg.tool_results]
    assert sorted(ran) == ([0, 2] if event is PreActingEvent else [0, 1, 2])
    assert [result.text for result in results if result.status == "ok"] == [str(n) for n in sorted(ran)]
    assert (await agent.call()).text == "Done."


@pytest.mark.parametrize("event", [PreReasoningEvent, PostReasoningEvent])
async def test_a_hook_that_raises_around_reasoning_leaves_a_valid_thread(event: type[Event]) -> None:
    broken = [True]

    @on(event)
    async def hook(event: Event) -> None:
        if broken.pop() if broken else False:
            raise ValueError("broken")

    agent = agent_of([[tool_call("add", a=1, b=2)], "3."], add, hooks=[hook])
    with pytest.raises(ValueError, match="broken"):
        await agent.call("1 + 2?")
    assert said(await valid_history(agent)) == ["user: 1 + 2?"]
    assert (await agent.call()).text == "3."
    await valid_history(agent)


# Ends


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


def counter(name: str, event: type[Event]) -> FunctionHook:
    @on(event)
    async def count(event: Any) -> None:
        event.update_state(**{name: event.state.get(name, 0) + 1})

    return count


@pytest.mark.parametrize("event", [PreActingEvent, PostActingEvent])
async def test_what_hooks_keep_and_decide_about_a_finished_call_survives_a_pause(
    event: type[Event], store: Journal
) -> None:
    from treadle import Approve

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
    agent = agent_of([calls, "Done."], add, tool(lambda: "ok", name="ask", approval=True), hooks=[look, stop, keep], store=store)
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
    agent = agent_of([[tool_call("add", a=1, b=1)], [tool_call("add", a=2, b=2)], "So far: 4.", "Next."], add, max_iters=2)
    events = await read_all(agent.stream("Go."))
    assert [name for name in names(events) if "Summary" in name] == ["PreSummary", "SummaryChunk", "SummaryChunk", "PostSummary"]
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
    agent = agent_of([[tool_call("add", a=1, b=1)], [tool_call("add", a=2, b=2)], "In short.", "Next."], add, max_iters=1)
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
    from treadle import Approve

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

    agent = agent_of([Turn(content=["Writing.", tool_call("write", text="line1\nline2 is cu")], stop_reason=stop), "Sorry."], write)
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
    from treadle import Approve

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
