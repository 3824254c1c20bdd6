"""Streaming and not streaming are the same run; and the reader sets the pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from pydantic import BaseModel

from agent.support import agent_of, names, read_all, records, valid_history
from treadle import Approve, Msg, ReActAgent, Reply
from treadle.errors import InputError
from treadle.event import ActingChunkEvent, Event, ReasoningChunkEvent, RunEndedEvent
from treadle.hook import Hook
from treadle.journal import Journal
from treadle.message import TextBlock, ToolResultBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta, ThinkingDelta, ToolCallDelta
from treadle.testing import ScriptedModel, Turn, thinking, tool_call
from treadle.tool import tool


class Answer(BaseModel):
    n: int


def add(a: int, b: int) -> int:
    return a + b


def fail() -> str:
    raise ValueError("no")


async def download() -> AsyncIterator[str]:
    yield "10 %"
    yield "the page"


@dataclass(frozen=True)
class Scenario:
    name: str
    script: list[Any]
    options: dict[str, Any]


SCENARIOS = [
    Scenario("answer", ["Hello there, how are you?"], {}),
    Scenario("thinking", [[thinking("Let me see what I can say."), "Hello."]], {}),
    Scenario(
        "tools", [["I add.", tool_call("add", a=1, b=2), tool_call("fail")], [tool_call("download")], "Done."], {}
    ),
    Scenario("empty, then cut off", ["", Turn(content="Half", stop_reason="length")], {}),
    Scenario("limit", [[tool_call("add", a=1, b=2)]] * 10 + ["A summary of it all."], {}),
    Scenario(
        "output",
        ["It is 3.", [tool_call("generate_response", n="x")], [tool_call("generate_response", n=3)]],
        {"output": Answer},
    ),
    Scenario("pause", [[tool_call("pay", "pay"), tool_call("add", "add", a=1, b=2)], "Done."], {}),
]


class Keeper(Hook):
    """Watches everything."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    async def on_event(self, event: Event) -> None:
        self.seen.append(event)


async def by_call(agent: ReActAgent, options: dict[str, Any]) -> Reply[Any]:
    return await agent.call("Go.", **options)


async def by_stream(agent: ReActAgent, options: dict[str, Any]) -> Reply[Any]:
    last: Event | None = None
    async for event in agent.stream("Go.", **options):
        last = event
    assert last is not None
    return last.result  # type: ignore[attr-defined]


async def by_result(agent: ReActAgent, options: dict[str, Any]) -> Reply[Any]:
    return await agent.stream("Go.", **options).result()


WAYS: list[Callable[[ReActAgent, dict[str, Any]], Any]] = [by_call, by_stream, by_result]


def in_call_order(stored: list[Any]) -> list[Any]:
    """The records, those of calls beside each other by call: which of them is faster is up to chance."""
    groups = groupby(stored, key=lambda record: record["kind"] in ("started", "finished", "settled"))
    return [record for of_calls, group in groups for record in (sorted(group, key=place_of) if of_calls else group)]


def place_of(record: Any) -> tuple[str, str]:
    return record["call"], {"started": "1", "finished": "2", "settled": "3"}[record["kind"]]


@pytest.mark.parametrize("hooked", [False, True], ids=["no hooks", "hooks"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_streamed_and_unstreamed_runs_store_and_return_the_same(
    scenario: Scenario, hooked: bool, store: Journal
) -> None:
    outcomes: list[Any] = []
    for number, way in enumerate(WAYS):
        for streams in (True, False):
            keeper = Keeper()
            model = ScriptedModel(scenario.script, stream=streams)
            pay = tool(lambda: "paid", name="pay", approval=True)
            agent = agent_of(model, add, fail, download, pay, store=store, hooks=[keeper] if hooked else [])
            thread = f"{number}-{streams}"
            reply = await way(agent, {**scenario.options, "thread": thread})
            await valid_history(agent, thread, open_calls=reply.reason == "paused")
            whole = [name for name in names(keeper.seen) if name not in ("ReasoningChunk", "SummaryChunk")]
            stored = in_call_order(await records(agent, thread))
            outcomes.append((reply.text, reply.reason, reply.output, reply.usage, stored, whole))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])


async def test_hooks_and_readers_get_the_same_objects() -> None:
    keeper = Keeper()
    agent = agent_of([["I add.", tool_call("add", a=1, b=2)], "Done."], add, hooks=[keeper])
    events = await read_all(agent.stream("Go."))
    assert len(events) > 10
    assert [id(event) for event in events] == [id(event) for event in keeper.seen]


async def test_chunks_are_deltas_that_make_up_the_answer() -> None:
    text = "A text that is cut into many pieces."
    agent = agent_of([[thinking("Hm, hm, hm."), text, tool_call("add", a=1, b=22)], "Done."], add)
    events = await read_all(agent.stream("Go."))
    first = names(events).index("PostReasoning")
    deltas = [event.delta for event in events[:first] if isinstance(event, ReasoningChunkEvent)]
    assert "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta)) == "Hm, hm, hm."
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text
    assert "".join(delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta)) == '{"a":1,"b":22}'
    assert len(deltas) > 6
    assert "".join(event.text for event in events[:first] if isinstance(event, ReasoningChunkEvent)) == text


async def test_a_model_that_does_not_stream_gives_one_chunk_per_block() -> None:
    model = ScriptedModel([["I add them up.", tool_call("add", a=1, b=2)], "Done, I think."], stream=False)
    agent = agent_of(model, add)
    events = await read_all(agent.stream("Go."))
    assert names(events).count("ReasoningChunk") == 3


async def test_progress_of_tools_is_shown_and_not_stored() -> None:
    agent = agent_of([[tool_call("download")], "Done."], download)
    events = await read_all(agent.stream("Go."))
    assert [event.chunk for event in events if isinstance(event, ActingChunkEvent)] == ["10 %", "the page"]
    assert [msg.text for msg in await valid_history(agent)] == ["Go.", "", "", "Done."]


async def test_the_last_event_has_the_reply() -> None:
    events = await read_all(agent_of(["Hello."]).stream("Hi"))
    last = events[-1]
    assert isinstance(last, RunEndedEvent)
    assert (last.reason, last.result.text) == ("answered", "Hello.")


class Endless(ChatModel):
    """Says as much as anybody reads."""

    def __init__(self) -> None:
        self.pieces = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        while True:
            self.pieces += 1
            yield TextDelta("x")


async def test_a_reader_that_pauses_holds_the_model_back() -> None:
    model = Endless()
    stream = agent_of(model).stream("Go.")
    while names([await anext(stream)]) != ["ReasoningChunk"]:
        pass
    for _ in range(2_000):
        await asyncio.sleep(0)
    ahead = model.pieces
    assert ahead < 1_000
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert model.pieces == ahead
    for _ in range(1_000):
        await anext(stream)
    assert model.pieces >= 1_000
    await stream.aclose()


async def test_a_watcher_does_not_hold_the_run_back_and_misses_no_text() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        entered.set()
        await gate.wait()
        return "ok"

    text = "word " * 2_000
    agent = agent_of([[tool_call("wait")], text], wait)
    task = asyncio.ensure_future(agent.call("Go."))
    await entered.wait()
    watcher = agent.watch()
    gate.set()
    assert (await task).text == text
    events = [event async for event in watcher]
    assert names(events)[-1] == "RunEnded"
    assert "".join(event.text for event in events if isinstance(event, ReasoningChunkEvent)) == text
    assert len(events) < 1_000


async def test_a_run_that_goes_on_does_not_tell_of_its_input_again() -> None:
    @tool(approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    clerk = agent_of([[tool_call("pay", amount=1)], "Paid."], pay, name="Clerk")
    agent = agent_of(
        [[tool_call("ask_clerk", message="Pay."), tool_call("pay", amount=2)], "Done."], clerk.as_tool(), pay
    )
    reply = await agent.call("Pay both.", thread="t")
    assert reply.pause is not None
    nested, own = sorted(reply.pause.calls, key=lambda wish: len(wish.path), reverse=True)
    first = await read_all(agent.stream(decisions={nested.id: Approve()}, thread="t"))
    given = Msg.tool(ToolResultBlock(id=own.id, name="pay", output="paid elsewhere"))
    second = await read_all(agent.stream(given, thread="t"))
    assert "PreCall" not in [*names(first), *names(second)]
    assert names(second)[-1] == "RunEnded"


async def test_there_is_nothing_to_watch_on_a_thread_that_does_not_run() -> None:
    with pytest.raises(InputError, match="No run drives thread 'idle'"):
        agent_of(["Hi"]).watch("idle")


async def test_the_agent_prints_what_is_said_as_it_comes() -> None:
    import io

    console = io.StringIO()
    agent = agent_of([["I add.", tool_call("add", a=1, b=2)], "It is 3."], add, console=console)
    await agent.call("1 + 2?")
    await agent.print(Msg.user(TextBlock(text="By hand."), name="ada"))
    assert console.getvalue().splitlines() == [
        "Agent: I add.",
        "Agent: -> add(a=1, b=2)",
        "tool: <- add: 3",
        "Agent: It is 3.",
        "ada: By hand.",
    ]
