"""Looking back, forking, editing the state; and that snapshots change nothing."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.support import Counting, Place, wish_ids
from treadle.errors import InputError, StateError, ThreadExistsError, ThreadNotFoundError
from treadle.graph import END, START, Command, CompiledGraph, Send, StateGraph, append, merge, pause
from treadle.graph import _thread as threads
from treadle.journal import MemoryStore


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    n: int


def line(*names: str, counting: Counting | None = None, **options: Any) -> CompiledGraph:
    graph = StateGraph(State)
    for source, target in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(source, target)
        if target != END:
            graph.add_node(target, (counting or Counting()).node(target))
    return graph.compile(**options)


async def test_the_state_after_every_step(place: Place) -> None:
    graph = line("a", "b", store=place())
    await graph.invoke({"n": 1}, thread="t")
    history = await graph.history("t")
    assert [(at.state["log"], at.next, at.reason) for at in history] == [
        ([], ("a",), None), (["a"], ("b",), None), (["a", "b"], (), None), (["a", "b"], (), "ended"),
    ]  # fmt: skip
    for at in history:
        assert await line("a", "b", store=place()).state("t", at=at.seq) == at
    assert await graph.state("t") == history[-1]
    assert (await graph.state("unknown")).seq == 0


async def test_the_history_has_steps_with_async_edges_and_steps_that_failed() -> None:
    async def route(state: State) -> str:
        if state.get("n") == 1:
            raise ValueError("no way")
        return END

    graph = StateGraph(State).add_node("a", Counting().node("a")).add_edge(START, "a").add_conditional_edges("a", route)
    compiled = graph.compile()
    await compiled.invoke({}, thread="t")
    assert [at.state["log"] for at in await compiled.history("t")] == [[], ["a"], ["a"]]
    with pytest.raises(ValueError, match="no way"):
        await compiled.invoke({"n": 1}, thread="u")
    assert [(at.state["log"], at.reason) for at in await compiled.history("u")] == [([], None), (["a"], "failed")]


async def test_a_fork_goes_its_own_way_and_the_original_stays(place: Place) -> None:
    counting = Counting()
    graph = line("a", "b", "c", counting=counting, store=place())
    await graph.invoke({}, thread="t")
    before = await graph.history("t")
    fork = await graph.fork("t", before[1].seq)
    await graph.update_state(fork, {"log": ["edited"], "n": 7})
    result = await line("a", "b", "c", counting=counting, store=place()).invoke(thread=fork)
    assert (result.state, counting.runs) == ({"log": ["a", "edited", "b", "c"], "n": 7}, {"a": 1, "b": 2, "c": 2})
    assert await graph.history("t") == before
    assert await graph.fork("t", 1, "named") == "named"
    with pytest.raises(ThreadExistsError):
        await graph.fork("t", 1, "named")
    with pytest.raises(ThreadNotFoundError):
        await graph.fork("unknown", 0)
    with pytest.raises(InputError, match="cannot be forked at 99"):
        await graph.fork("t", 99)
    whole = await graph.fork("t", before[-1].seq)
    with pytest.raises(InputError, match="nothing to go on with"):
        await graph.invoke(thread=whole)


@pytest.mark.parametrize("where", ["node", "subgraph"])
async def test_a_paused_thread_can_be_forked_and_each_answered(place: Place, where: str) -> None:
    counting = Counting()

    def build() -> CompiledGraph:
        graph = StateGraph(State).add_node("a", counting.node("a")).add_node("ask", lambda state: {"log": [pause()]})
        graph.add_edge(START, "a").add_edge("a", "ask").add_edge("ask", END)
        if where == "node":
            return graph.compile(store=place())
        outer = StateGraph(State).add_node("sub", graph.compile()).add_edge(START, "sub").add_edge("sub", END)
        return outer.compile(store=place())

    first = await build().invoke({}, thread="t")
    fork = await build().fork("t", (await build().state("t")).seq)
    for thread, answer in ((fork, "one"), ("t", "two")):
        result = await build().resume(thread, {wish_ids(first)[0]: answer})
        assert (result["log"], result.pause) == (["a", answer], None)
    assert counting.runs["a"] == 1


async def test_a_fork_before_a_subgraph_runs_it_again() -> None:
    counting = Counting()
    inner = line("x", counting=counting)
    graph = StateGraph(State).add_node("sub", inner).add_edge(START, "sub").add_edge("sub", END).compile()
    await graph.invoke({}, thread="t")
    fork = await graph.fork("t", 1)
    await graph.update_state(fork, {"log": ["edited"]})
    assert (await graph.invoke(thread=fork))["log"] == ["edited", "x"]
    assert counting.runs["x"] == 2


async def test_the_state_can_be_edited_without_changing_the_way(place: Place) -> None:
    graph = line("a", "b", store=place(), pause_before=["b"])
    await graph.invoke({}, thread="t")
    await graph.update_state("t", {"log": ["edited"]})
    assert wish_ids(await line("a", "b", store=place(), pause_before=["b"]).invoke({}, thread="u")) == ["before:b"]
    at = await graph.state("t")
    assert (at.next, at.state) == (("b",), {"log": ["a", "edited"]})
    assert (await graph.resume("t"))["log"] == ["a", "edited", "b"]
    await graph.update_state("new", {"n": 3})
    assert (await graph.state("new")).state == {"log": [], "n": 3}
    with pytest.raises(InputError, match="nothing to go on with"):
        await graph.invoke(thread="new")


@pytest.mark.parametrize("is_async", [False, True])
async def test_as_node_goes_on_as_if_the_node_had_returned_the_values(place: Place, is_async: bool) -> None:
    def route(state: State) -> str:
        return "high" if state.get("n", 0) > 5 else "low"

    async def slow_route(state: State) -> str:
        await asyncio.sleep(0)
        return route(state)

    def build() -> CompiledGraph:
        graph = StateGraph(State)
        for name in ("a", "high", "low"):
            graph.add_node(name, Counting().node(name))
        graph.add_edge(START, "a").add_edge("high", END).add_edge("low", END)
        graph.add_conditional_edges("a", slow_route if is_async else route, ["high", "low"])
        return graph.compile(store=place())

    assert (await build().invoke({"n": 1}, thread="t"))["log"] == ["a", "low"]
    await build().update_state("t", {"n": 9}, as_node="a")
    at = await build().state("t")
    assert (at.next, at.state["n"]) == (("high",), 9)
    result = await build().invoke(thread="t")
    assert (result["log"], result.reason) == (["a", "low", "high"], "ended")
    with pytest.raises(StateError, match="There is no node 'x' to continue after"):
        await build().update_state("t", {}, as_node="x")


async def test_as_node_counts_for_joins() -> None:
    graph = StateGraph(State)
    for name in ("a", "b", "c"):
        graph.add_node(name, Counting().node(name))
    graph.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "c").add_edge("c", END)
    compiled = graph.compile()
    await compiled.update_state("t", {"log": ["A"]}, as_node="a")
    assert (await compiled.state("t")).next == ()
    await compiled.update_state("t", {"log": ["B"]}, as_node="b")
    assert (await compiled.state("t")).next == ("c",)
    assert (await compiled.invoke(thread="t"))["log"] == ["A", "B", "c"]


async def test_as_node_makes_a_new_visit_of_a_waiting_subgraph() -> None:
    inner = StateGraph(State).add_node("ask", lambda state: {"log": [f"{state['n']}: {pause()}"]})
    graph = StateGraph(State).add_node("a", Counting().node("a"))
    graph.add_node("sub", inner.add_edge(START, "ask").add_edge("ask", END).compile())
    compiled = graph.add_edge(START, "a").add_edge("a", "sub").add_edge("sub", END).compile()
    old = wish_ids(await compiled.invoke({"n": 1}, thread="t"))
    await compiled.update_state("t", {"n": 2}, as_node="a")
    new = wish_ids(await compiled.invoke(thread="t"))
    assert old != new
    assert (await compiled.resume("t", {new[0]: "x"}))["log"] == ["a", "2: x"]


async def test_an_edge_that_raises_in_as_node_changes_nothing() -> None:
    def route(state: State) -> str:
        if state.get("n") == 13:
            raise ValueError("unlucky")
        return END

    graph = StateGraph(State).add_node("a", Counting().node("a")).add_edge(START, "a").add_conditional_edges("a", route)
    compiled = graph.compile()
    await compiled.invoke({"n": 1}, thread="t")
    before = await compiled.state("t")
    with pytest.raises(ValueError, match="unlucky"):
        await compiled.update_state("t", {"n": 13}, as_node="a")
    with pytest.raises(StateError, match="no key 'x'"):
        await compiled.update_state("t", {"x": 1})
    assert await compiled.state("t") == before
    assert (await compiled.invoke({"n": 2}, thread="t")).state == {"log": ["a", "a"], "n": 2}


# Snapshots: a random program of steps, run with and without them, gives the same states everywhere.


def union(old: set[int], new: set[int]) -> set[int]:
    return old | new


class Wide(TypedDict, total=False):
    log: Annotated[list[int], append]
    facts: Annotated[dict[str, int], merge]
    total: Annotated[int, operator.add]
    seen: Annotated[set[int], union]
    last: int | None
    steps: int


@dataclass(frozen=True)
class Step:
    """What one step does: its update, how many tasks a `Send` maps, whether it pauses first, fails first."""

    update: dict[str, Any]
    sends: int
    pauses: bool
    fails: bool


updates = st.fixed_dictionaries(
    {},
    optional={
        "log": st.lists(st.integers(0, 9), max_size=3),
        "facts": st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9), max_size=2),
        "total": st.integers(0, 9),
        "seen": st.sets(st.integers(0, 9), max_size=2),
        "last": st.none() | st.integers(0, 9),
    },
)
steps = st.builds(Step, update=updates, sends=st.integers(0, 3), pauses=st.booleans(), fails=st.booleans())


def program(script: list[Step], store: MemoryStore, failed: set[int]) -> CompiledGraph:
    async def work(state: Any) -> Command:
        number: int = state.get("steps", 0)
        step = script[number]
        if step.fails and number not in failed:
            failed.add(number)
            raise ValueError("once")
        if step.pauses:
            pause(number)
        goto: Any = [Send("mapped", {"x": i}) for i in range(step.sends)] or ["alone"]
        return Command(update={**step.update, "steps": number + 1}, goto=[*goto, "beside"])

    # Async, so that nodes beside each other finish in the same order every time.
    async def mapped(arg: Any) -> dict[str, Any]:
        return {"log": [arg["x"]], "total": 1}

    async def alone(state: Any) -> dict[str, Any]:
        return {"facts": {"alone": len(state["log"])}}

    async def beside(state: Any) -> dict[str, Any]:
        return {"seen": {len(state["log"])}}

    async def again(state: Any) -> None:
        return None

    graph = StateGraph(Wide).add_node("work", work, goto=["mapped", "alone", "beside"])
    graph.add_node(mapped).add_node(alone).add_node(beside).add_node(again)
    graph.add_edge(START, "work").add_edge("mapped", "again").add_edge("alone", "again").add_edge(["beside"], "again")
    graph.add_conditional_edges("again", lambda state: END if state["steps"] == len(script) else "work", ["work", END])
    return graph.compile(store=store)


async def play(script: list[Step], every: int) -> tuple[list[Any], int]:
    """Run to the end with snapshots every so often, each part in a fresh graph; all states on the way, and how many."""
    threads.SNAPSHOT_EVERY = every
    store, failed = MemoryStore(), set[int]()
    asked: dict[str, Any] = {"input": {"total": 0}}
    for _ in range(3 * len(script) + 1):
        try:
            result = await program(script, store, failed).stream(thread="t", **asked).result()
            asked = {"answers": True}
            if not result.pause:
                break
        except ValueError:
            asked = {}
    end = await program(script, store, failed).state("t")
    assert end.reason == "ended"
    found = [await program(script, store, failed).state("t", at=seq) for seq in range(end.seq + 1)]
    snapshot = await store.load_snapshot("t")
    return found, 0 if snapshot is None else snapshot.seq


@pytest.fixture(scope="module", autouse=True)
def _usual_snapshots() -> Iterator[None]:
    usual = threads.SNAPSHOT_EVERY
    yield
    threads.SNAPSHOT_EVERY = usual


@settings(max_examples=40)
@given(script=st.lists(steps, min_size=1, max_size=5), every=st.integers(1, 9))
def test_states_are_the_same_with_and_without_snapshots(script: list[Step], every: int) -> None:
    with_snapshots, taken = asyncio.run(play(script, every))
    without, none = asyncio.run(play(script, 10**9))
    assert with_snapshots == without
    assert none == 0
    assert taken or every > 2


async def test_a_snapshot_keeps_how_far_a_join_has_come(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SNAPSHOT_EVERY", 1)
    counting = Counting()

    def build() -> CompiledGraph:
        graph = StateGraph(State)
        for name in ("a", "b1", "b2", "c"):
            graph.add_node(name, counting.node(name))
        graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2").add_edge(["a", "b2"], "c").add_edge(
            "c", END
        )
        return graph.compile(store=place(), pause_before=["b2"])

    await build().invoke({}, thread="t")
    assert (await build().resume("t"))["log"] == ["a", "b1", "b2", "c"]


async def test_what_a_custom_strategy_makes_survives_snapshots(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SNAPSHOT_EVERY", 1)

    def collect(old: set[int] | None, new: int) -> set[int]:
        return (old or set()) | {new}

    def build() -> CompiledGraph:
        graph = (
            StateGraph({"seen": collect})
            .add_node("a", lambda state: {"seen": 2})
            .add_node("b", lambda state: {"seen": 3})
        )
        graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", END)
        return graph.compile(store=place(), pause_before=["b"])

    await build().invoke({"seen": 1}, thread="t")
    snapshot = await place().load_snapshot("t")
    assert snapshot is not None
    assert snapshot.seq == 2  # the input and the first node
    assert (await build().resume("t"))["seen"] == {1, 2, 3}
