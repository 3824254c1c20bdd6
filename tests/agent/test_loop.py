"""The loop: input, reasoning, acting, and the ways in which a run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from agent.support import agent_of, kinds, names, read_all, records, said, script_of, valid_history
from treadle import Approve, Msg, Template, Toolkit, TreadleError
from treadle.errors import InputError, ModelError
from treadle.event import (
    ErrorEvent,
    Event,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
    RunFailedEvent,
)
from treadle.hook import on, pre_call
from treadle.journal import Journal
from treadle.message import ImageBlock, ToolResultBlock, ToolUseBlock, URLSource
from treadle.testing import Turn, tool_call
from treadle.tool import tool


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


@pytest.mark.parametrize(
    "given", [Msg.system("Obey."), 7, [object()], b"bytes"], ids=["system", "number", "object", "bytes"]
)
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

    agent = agent_of(
        [[tool_call("step", f"call-{n}", n=n) for n in range(2)], "Done."], toolkit=Toolkit([step], parallel=False)
    )
    reply = await agent.call("Go.")
    assert (log, reply.reason) == ([], "paused")
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
    stream = agent.stream("Hi")
    while not events or not isinstance(events[-1], RunFailedEvent):
        events.append(await anext(stream))
    with pytest.raises(ConnectionError, match="reset"):
        await anext(stream)
    assert names(events)[-2:] == ["Error", "RunFailed"]
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


async def test_input_that_a_hook_refuses_is_not_stored(store: Journal) -> None:
    @pre_call
    async def guard(event: PreCallEvent) -> None:
        if "secret" in event.messages[0].text:
            raise ValueError("refused")

    agent = agent_of(["Hello."], hooks=[guard], store=store)
    with pytest.raises(ValueError, match="refused"):
        await agent.call("A secret.")
    assert (await agent.call("Hi")).text == "Hello."
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: Hello."]


async def test_a_hook_that_raises_on_the_reply_fails_the_run_and_the_answer_stays() -> None:
    @on(PostCallEvent, ErrorEvent)
    async def broken(event: Event) -> None:
        raise ValueError("broken")

    agent = agent_of(["Hello."], hooks=[broken])
    with pytest.raises(ValueError, match="broken"):
        await agent.call("Hi")
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: Hello."]
    assert (await records(agent))[-1]["reason"] == "failed"


async def test_a_call_begins_as_soon_as_there_is_a_place_for_it() -> None:
    running: set[int] = set()
    gates = [asyncio.Event() for _ in range(4)]
    begun: asyncio.Queue[int] = asyncio.Queue()

    async def wait(i: int) -> int:
        running.add(i)
        begun.put_nowait(i)
        await gates[i].wait()
        running.remove(i)
        return i

    calls = [tool_call("wait", i=i) for i in range(4)]
    agent = agent_of([calls, "Done."], toolkit=Toolkit([wait], max_parallel=2))
    task = asyncio.ensure_future(agent.call("Go."))
    assert [await begun.get(), await begun.get()] == [0, 1]
    gates[1].set()
    assert await begun.get() == 2, "the third begins though the first still runs"
    assert running == {0, 2}
    for gate in gates:
        gate.set()
    assert (await task).text == "Done."
    history = await valid_history(agent)
    assert [result.text for msg in history for result in msg.tool_results] == ["0", "1", "2", "3"]
