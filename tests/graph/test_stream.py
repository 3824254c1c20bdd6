"""Streams: the same run event by event, one last event, the reader's pace, and clean endings."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from graph.support import Counting, Given, Place, kinds, read_all
from treadle import ReActAgent
from treadle.errors import InputError
from treadle.event import CustomEvent, Event, NodeUpdatedEvent, ReasoningChunkEvent, RunEndedEvent, RunFailedEvent
from treadle.graph import END, START, CompiledGraph, NodeContext, StateGraph, append, pause
from treadle.testing import ScriptedModel

TERMINAL = {"RunEnded", "RunPaused", "RunFailed"}


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    input: str


def line(*nodes: Given, **options: Any) -> CompiledGraph:
    names = [chr(ord("a") + i) for i in range(len(nodes))]
    graph = StateGraph(State)
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for source, target in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(source, target)
    return graph.compile(**options)


def says(name: str) -> Callable[[Any], Any]:
    return lambda state: {"log": [name]}


async def emits(state: State, context: NodeContext) -> State:
    await context.emit("progress", 50)
    return {"log": ["e"]}


class Gate:
    """A node that waits until it is let through, and says what became of it."""

    def __init__(self) -> None:
        self.inside, self.go, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, state: State) -> State:
        self.inside.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return {"log": ["gate"]}


async def test_a_stream_shows_every_node_and_ends_with_the_result() -> None:
    graph = line(says("a"), emits)
    stream = graph.stream({}, thread="t")
    events = await read_all(stream)
    assert kinds(events) == [
        "RunStarted",
        "NodeStarted",
        "NodeUpdated",
        "NodeStarted",
        "Custom",
        "NodeUpdated",
        "RunEnded",
    ]
    update, custom, last = events[2], events[4], events[-1]
    assert isinstance(update, NodeUpdatedEvent)
    assert (update.node, update.task, update.values) == ("a", "a@1.0.0", {"log": ["a"]})
    assert isinstance(custom, CustomEvent)
    assert (custom.name, custom.data) == ("progress", 50)
    assert isinstance(last, RunEndedEvent)
    assert last.result == await stream.result()
    assert last.result["log"] == ["a", "e"]
    assert await read_all(stream) == []


async def test_streaming_and_not_streaming_store_the_same(place: Place) -> None:
    def shape(records: list[Any]) -> list[Any]:
        return [(record.kind, getattr(record, "values", None), getattr(record, "next", None)) for record in records]

    graph = line(says("a"), says("b"), store=place())
    await graph.invoke({}, thread="t")
    await read_all(graph.stream({}, thread="u"))
    assert shape(await graph.journal.read("t")) == shape(await graph.journal.read("u"))


@pytest.mark.parametrize("how", ["ended", "paused", "failed"])
async def test_a_run_has_exactly_one_last_event(how: str) -> None:
    def node(state: State) -> State:
        if how == "failed":
            raise ValueError("broken")
        return {"log": [pause("?") if how == "paused" else "x"]}

    stream = line(says("a"), node).stream({}, thread="t")
    seen: list[Event] = []
    try:
        async for event in stream:
            seen.append(event)  # noqa: PERF401
    except ValueError:
        assert how == "failed"
    assert [kind for kind in kinds(seen) if kind in TERMINAL] == [f"Run{how.capitalize()}"]
    assert kinds(seen)[-1] == f"Run{how.capitalize()}"
    if how == "failed":
        assert isinstance(seen[-1], RunFailedEvent)
        assert kinds(seen)[-2] == "Error"
        with pytest.raises(ValueError, match="broken"):
            await stream.result()


async def test_answers_can_be_streamed() -> None:
    graph = line(lambda state: {"log": [pause("?")]})
    events = await read_all(graph.stream({}, thread="t"))
    assert kinds(events)[-1] == "RunPaused"
    assert (await graph.stream(thread="t", answers="x").result())["log"] == ["x"]


@pytest.mark.parametrize("how", ["aclose", "with", "drop", "cancel"])
async def test_a_reader_that_leaves_interrupts_the_run_cleanly(place: Place, how: str) -> None:
    gate = Gate()
    graph = line(says("a"), gate, says("c"), store=place())
    stream = graph.stream({}, thread="t")
    watched: list[Event] = []

    async def watch() -> None:
        watched.extend([event async for event in graph.watch("t")])

    async for event in stream:
        if isinstance(event, NodeUpdatedEvent):
            break
    watcher = asyncio.create_task(watch())
    await gate.inside.wait()
    if how == "aclose":
        await stream.aclose()
    elif how == "with":
        async with stream:
            pass
    elif how == "drop":
        del stream
        gc.collect()
    else:
        reader = asyncio.create_task(read_all(stream))
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await stream.aclose()
    await watcher
    assert gate.stopped.is_set()
    assert [kind for kind in kinds(watched) if kind in TERMINAL] == ["RunEnded"]
    assert isinstance(watched[-1], RunEndedEvent)
    assert watched[-1].reason == "interrupted"
    at = await graph.state("t")
    assert (at.next, at.reason) == (("b",), "interrupted")
    gate.go.set()
    assert (await line(says("a"), gate, says("c"), store=place()).invoke(thread="t"))["log"] == ["a", "gate", "c"]


async def test_a_detached_run_finishes_without_its_reader() -> None:
    gate = Gate()
    graph = line(gate, says("b"))
    stream = graph.stream({}, thread="t", detach=True)
    async for _ in stream:
        break
    await gate.inside.wait()
    watcher = graph.watch("t")
    await stream.aclose()
    gate.go.set()
    assert kinds([event async for event in watcher])[-1] == "RunEnded"
    assert (await graph.state("t")).state == {"log": ["gate", "b"]}


async def test_a_stream_that_was_closed_before_it_began_runs_nothing() -> None:
    counting = Counting()
    stream = line(counting.node("a")).stream({}, thread="t")
    await stream.aclose()
    assert await read_all(stream) == []
    assert not counting.runs


async def test_the_result_can_be_had_without_reading() -> None:
    assert (await line(says("a")).stream({}).result())["log"] == ["a"]


async def test_the_reader_sets_the_pace_also_of_parallel_nodes() -> None:
    emitted = 0

    async def talks(state: State, context: NodeContext) -> State:
        nonlocal emitted
        for number in range(1_000):
            await context.emit("n", number)
            emitted += 1
        return {"log": ["t"]}

    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, talks).add_edge(START, name).add_edge(name, END)
    stream = graph.compile().stream({})
    first = await anext(stream)
    for _ in range(50):
        await asyncio.sleep(0)
    assert emitted < 300
    events = [first, *await asyncio.wait_for(read_all(stream), 20)]
    assert len([event for event in events if isinstance(event, CustomEvent)]) == 3_000
    for source in ("a", "b", "c"):
        assert [e.task for e in events if isinstance(e, NodeUpdatedEvent) and e.node == source] != []
    assert kinds(events)[-1] == "RunEnded"


async def test_a_run_that_waits_for_its_reader_can_be_cancelled_and_closed() -> None:
    async def talks(state: State, context: NodeContext) -> None:
        while True:
            await context.emit("n")

    graph = StateGraph(State)
    for name in "ab":
        graph.add_node(name, talks).add_edge(START, name).add_edge(name, END)
    compiled = graph.compile()
    stream = compiled.stream({}, thread="t")
    await anext(stream)
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.wait_for(stream.aclose(), 5)
    assert (await compiled.state("t")).next == ("a", "b")


async def test_an_observer_never_slows_a_run_and_gets_joined_text() -> None:
    text = "word " * 400
    agent = ReActAgent(name="writer", model=ScriptedModel([text], chunk_size=5), output_key="log")
    gate = Gate()
    gate.go.set()
    graph = line(gate, agent)
    task = asyncio.create_task(graph.invoke({"input": "?"}, thread="t"))
    await gate.inside.wait()
    watcher = graph.watch("t")
    await task  # the watcher has read nothing yet
    events = [event async for event in watcher]
    chunks = [event for event in events if isinstance(event, ReasoningChunkEvent)]
    assert "".join(chunk.text for chunk in chunks) == text
    assert len(chunks) < 100
    assert kinds(events)[-1] == "RunEnded"


@pytest.mark.parametrize("watched_on", [True, False])
async def test_nothing_piles_up_for_an_observer_that_was_let_go(watched_on: bool) -> None:
    class Thing:
        pass

    entered, watching = asyncio.Event(), asyncio.Event()
    kept: list[bool] = []

    async def work(state: Any, context: NodeContext) -> None:
        entered.set()
        await watching.wait()
        thing = Thing()
        reference = weakref.ref(thing)
        await context.emit("thing", thing)
        del thing
        kept.append(reference() is not None)

    compiled = StateGraph().add_node(work).add_edge(START, "work").add_edge("work", END).compile()
    task = asyncio.ensure_future(compiled.invoke({}, thread="t"))
    await entered.wait()
    watchers = [compiled.watch("t")]
    if not watched_on:
        watchers.clear()
    watching.set()
    await task
    assert kept == [watched_on]


async def test_only_a_running_thread_can_be_watched() -> None:
    with pytest.raises(InputError, match="No run drives thread 't'"):
        line(says("a")).watch("t")


async def test_a_finished_run_has_nothing_more_to_show() -> None:
    stream = line(says("a")).stream({})
    await stream.result()
    assert await asyncio.wait_for(stream.run.observe().get(), 5) is None
