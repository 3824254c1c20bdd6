"""Errors, timeouts, crashes, cancellations and interrupts: what was finished is never done again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest

from graph.support import Breaking, Counting, Crash, FilePlace, Given, Place
from treadle.errors import AgentBusyError, GraphError, InputError, JournalError, NodeTimeoutError
from treadle.graph import END, START, Command, CompiledGraph, NodeContext, Retry, StateGraph, append, pause
from treadle.journal import Journal, Lease, MemoryStore, Record, UpdateRecord


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]


def one_node(node: Given, **options: Any) -> CompiledGraph:
    return StateGraph(Log).add_node("a", node, **options).add_edge(START, "a").add_edge("a", END).compile()


def diamond(counting: Counting, store: Journal) -> CompiledGraph:
    """A step alone, three beside each other, one more alone."""
    graph = StateGraph(Log)
    for name in ("first", "a", "b", "c", "last"):
        graph.add_node(name, counting.node(name))
    graph.add_edge(START, "first").add_edge("last", END)
    for name in "abc":
        graph.add_edge("first", name)
    return graph.add_edge(["a", "b", "c"], "last").compile(store=store)


@pytest.mark.parametrize("appends", range(9))
async def test_after_a_crash_anywhere_the_thread_goes_on_and_stored_nodes_do_not_run_again(
    place: Place, appends: int
) -> None:
    counting = Counting()
    journal = Breaking(place(), appends)
    crashed = False
    try:
        await diamond(counting, journal).invoke({}, thread="t")
    except Crash:
        crashed = True
    stored = {record.node for record in journal.appended if isinstance(record, UpdateRecord)}
    before = counting.runs.copy()
    fresh = diamond(counting, place())
    if crashed and journal.appended:
        result = await fresh.invoke(thread="t")
    elif crashed:
        with pytest.raises(InputError, match="nothing to go on with"):
            await fresh.invoke(thread="t")
        result = await fresh.invoke({}, thread="t")
    else:
        result = await fresh.state("t")
    assert result.state == {"log": ["first", "a", "b", "c", "last"]}
    for node in ("first", "a", "b", "c", "last"):
        assert counting.runs[node] - before[node] == (0 if node in stored else 1), node


def test_the_crash_test_covers_the_whole_run() -> None:
    async def count() -> int:
        writes = 0

        class Counted(Breaking):
            async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
                nonlocal writes
                writes += 1
                await super().append(lease, expected, records)

        await diamond(Counting(), Counted(MemoryStore())).invoke({}, thread="t")
        return writes

    assert 3 < asyncio.run(count()) <= 8


CHILD = """
import asyncio, os, sys
from treadle.graph import END, START, StateGraph, append

def node(name):
    def run(state):
        print(name, flush=True)
        if name == "b" and sys.argv[2] == "die":
            os._exit(9)
        return {"log": [name]}
    return run

graph = StateGraph({"log": append})
for name in "ab":
    graph.add_node(name, node(name))
graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", END)

async def main():
    compiled = graph.compile(store="sqlite:///" + sys.argv[1])
    result = await compiled.invoke({} if sys.argv[2] == "die" else None, thread="t")
    print(result["log"])
    await compiled.close()

asyncio.run(main())
"""


def test_a_killed_process_is_continued_by_another(tmp_path: Path) -> None:
    def process(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CHILD, str(tmp_path / "t.db"), what]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    died = process("die")
    assert (died.returncode, died.stdout.split()) == (9, ["a", "b"])
    went_on = process("go on")
    assert (went_on.stdout, went_on.stderr) == ("b\n['a', 'b']\n", "")


async def test_a_failed_node_leaves_its_finished_siblings_done(place: Place) -> None:
    counting = Counting()
    broken = True

    def fails(state: Log) -> Log:
        counting.runs["fails"] += 1
        if broken:
            raise ValueError("broken")
        return {"log": ["fails"]}

    def build() -> CompiledGraph:
        graph = StateGraph(Log).add_node("a", counting.node("a")).add_node("fails", fails)
        graph.add_node("b", counting.node("b"))
        for name in ("a", "fails", "b"):
            graph.add_edge(START, name).add_edge(name, END)
        return graph.compile(store=place())

    with pytest.raises(ValueError, match="broken") as caught:
        await build().invoke({}, thread="t")
    assert caught.value.__notes__ == ["In node 'fails' of thread 't'."]
    at = await build().state("t")
    assert (at.next, at.reason) == (("fails",), "failed")
    broken = False
    result = await build().invoke(thread="t")
    assert (result["log"], result.reason) == (["a", "fails", "b"], "ended")
    assert counting.runs == {"a": 1, "fails": 2, "b": 1}


async def test_retry_tries_again_and_then_gives_up() -> None:
    tries: list[int] = []

    def flaky(state: Log) -> Log:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("try again")
        return {"log": ["done"]}

    assert (await one_node(flaky, retry=Retry(attempts=3, delay=0)).invoke({}))["log"] == ["done"]
    tries.clear()
    with pytest.raises(ConnectionError):
        await one_node(flaky, retry=Retry(attempts=2, delay=0)).invoke({})
    assert len(tries) == 2
    tries.clear()
    with pytest.raises(ConnectionError):
        await one_node(flaky, retry=Retry(attempts=3, delay=0, on=(ValueError,))).invoke({})
    assert len(tries) == 1


async def test_a_retried_node_sees_the_state_as_it_was() -> None:
    seen: list[Any] = []

    def vandal(state: Any) -> Any:
        seen.append(list(state["x"]))
        state["x"].append("changed")
        if len(seen) < 2:
            raise ValueError
        return {"y": 1}

    graph = StateGraph().add_node("a", vandal, retry=Retry(delay=0)).add_edge(START, "a").add_edge("a", END)
    await graph.compile().invoke({"x": [1]})
    assert seen == [[1], [1]]


async def test_a_node_that_takes_too_long_fails_with_its_own_error() -> None:
    async def hangs(state: Log) -> None:
        await asyncio.Event().wait()

    graph = one_node(hangs, timeout=0.01)
    with pytest.raises(NodeTimeoutError, match=r"Node 'a' did not finish within 0.01 s"):
        await graph.invoke({}, thread="t")
    assert (await graph.state("t")).next == ("a",)
    calls: list[int] = []

    async def hangs_once(state: Log) -> Log:
        calls.append(1)
        if len(calls) == 1:
            await hangs(state)
        return {"log": ["a"]}

    assert (await one_node(hangs_once, timeout=0.01, retry=Retry(delay=0)).invoke({}))["log"] == ["a"]


async def test_a_nodes_own_timeout_error_is_not_taken_for_the_nodes_timeout() -> None:
    def raises(state: Log) -> None:
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database") as caught:
        await one_node(raises, timeout=60).invoke({})
    assert not isinstance(caught.value, NodeTimeoutError)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_handler_has_the_last_word(is_async: bool) -> None:
    def fails(state: Log) -> None:
        raise ValueError("broken")

    def handle(state: Log, error: Exception) -> Command:
        return Command(update={"log": [f"{state.get('log')}: {error}"]}, goto="b")

    async def handle_async(state: Log, error: Exception) -> Command:
        return handle(state, error)

    graph = StateGraph(Log)
    graph.add_node(
        "a", fails, retry=Retry(attempts=2, delay=0), on_error=handle_async if is_async else handle, goto=["b"]
    )
    graph.add_node("b", lambda state: {"log": ["b"]}).add_node("c", lambda state: {"log": ["c"]})
    graph.add_edge(START, "a").add_edge("a", "c").add_edge("b", END).add_edge("c", END)
    assert (await graph.compile().invoke({"log": ["x"]}))["log"] == ["x", "['x']: broken", "b"]


async def test_an_error_handler_may_raise_and_may_pause(place: Place) -> None:
    def fails(state: Log) -> None:
        raise ValueError("broken")

    def worse(state: Log, error: Exception) -> None:
        raise KeyError("worse") from error

    def asks(state: Log, error: Exception) -> Log:
        return {"log": [pause(str(error))]}

    with pytest.raises(KeyError, match="worse"):
        await one_node(fails, on_error=worse).invoke({})
    graph = one_node(fails, on_error=asks)
    result = await graph.invoke({}, thread="t")
    assert result.pause is not None
    assert result.pause.wishes[0].value == "broken"
    assert (await graph.resume("t", "fixed"))["log"] == ["fixed"]


async def test_stop_iteration_in_a_node_is_an_error_like_others() -> None:
    def empty(state: Log) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="Node 'a' raised `StopIteration`"):
        await asyncio.wait_for(one_node(empty).invoke({}), 5)


@pytest.mark.parametrize("beside", [False, True])
async def test_a_node_that_raises_cancelled_error_itself_cancels_nobody(beside: bool) -> None:
    async def quits(state: Log) -> None:
        raise asyncio.CancelledError

    graph = StateGraph(Log).add_node("a", quits).add_edge(START, "a").add_edge("a", END)
    if beside:
        graph.add_node("b", lambda state: {"log": ["b"]}).add_edge(START, "b").add_edge("b", END)
    compiled = graph.compile()
    with pytest.raises(GraphError, match="Node 'a' raised `CancelledError`, though nobody cancelled it"):
        await asyncio.wait_for(compiled.invoke({}, thread="t"), 5)
    assert (await compiled.state("t")).next == ("a",)


async def test_a_timeout_around_invoke_really_times_out_and_the_thread_goes_on(place: Place) -> None:
    counting = Counting()
    hang = True
    cleaned: list[str] = []

    async def slow(state: Log) -> Log:
        if hang:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append("slow")
        return {"log": ["slow"]}

    def build() -> CompiledGraph:
        graph = StateGraph(Log).add_node("a", counting.node("a")).add_node("slow", slow).add_edge(START, "a")
        return graph.add_edge("a", "slow").add_edge("slow", END).compile(store=place())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await build().invoke({}, thread="t")
    assert cleaned == ["slow"]
    at = await build().state("t")
    assert (at.next, at.reason, at.state) == (("slow",), "interrupted", {"log": ["a"]})
    hang = False
    result = await build().invoke(thread="t")
    assert (result["log"], result.reason, counting.runs["a"]) == (["a", "slow"], "ended", 1)


async def test_cancelled_siblings_that_had_finished_stay_done(place: Place) -> None:
    counting = Counting()
    hang = asyncio.Event()
    started = asyncio.Event()

    async def slow(state: Log) -> Log:
        started.set()
        await hang.wait()
        return {"log": ["slow"]}

    async def quick(state: Log) -> Log:
        return counting.node("quick")(state)  # type: ignore[return-value]

    def build(store: Journal) -> CompiledGraph:
        graph = StateGraph(Log).add_node("quick", quick).add_node("slow", slow)
        for name in ("quick", "slow"):
            graph.add_edge(START, name).add_edge(name, END)
        return graph.compile(store=store)

    journal = Breaking(place())
    task = asyncio.create_task(build(journal).invoke({}, thread="t"))
    await started.wait()
    await journal.updated.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hang.set()
    assert (await build(place()).invoke(thread="t"))["log"] == ["quick", "slow"]
    assert counting.runs["quick"] == 1


async def test_a_second_run_on_a_thread_is_refused_or_waits() -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def node(state: Log) -> Log:
        inside.set()
        await go.wait()
        return {"log": ["a"]}

    graph = one_node(node)
    first = asyncio.create_task(graph.invoke({}, thread="t"))
    await inside.wait()
    with pytest.raises(AgentBusyError, match="Thread 't' is driven by"):
        await graph.invoke({}, thread="t")
    with pytest.raises(AgentBusyError):
        await graph.update_state("t", {"log": ["x"]})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await graph.invoke({}, thread="t", on_busy="wait")
    with pytest.raises(AgentBusyError):
        await graph.stream({}, thread="t").result()
    second = asyncio.create_task(graph.invoke({}, thread="t", on_busy="wait"))
    third = asyncio.create_task(graph.stream({}, thread="t", on_busy="wait").result())
    other = asyncio.create_task(graph.invoke({}, thread="other"))
    go.set()
    assert ((await first)["log"], (await other)["log"]) == (["a"], ["a"])
    assert {len((await second)["log"]), len((await third)["log"])} == {2, 3}


async def test_resuming_a_busy_thread_is_refused_or_waits() -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def node(state: Log) -> Log:
        answer = pause()
        inside.set()
        await go.wait()
        return {"log": [answer]}

    graph = one_node(node)
    await graph.invoke({}, thread="t")
    first = asyncio.create_task(graph.resume("t", "A"))
    await inside.wait()
    with pytest.raises(AgentBusyError):
        await graph.resume("t", "B")
    second = asyncio.create_task(graph.resume("t", "B", on_busy="wait"))
    go.set()
    assert (await first)["log"] == ["A"]
    with pytest.raises(InputError, match="has nothing to go on with"):
        await second


@pytest.mark.parametrize("when", ["checkpoint", "now"])
async def test_an_interrupt_stops_before_the_next_step_or_now(place: Place, when: Literal["checkpoint", "now"]) -> None:
    now = when == "now"
    inside, go = asyncio.Event(), asyncio.Event()
    counting = Counting()

    async def node(state: Log) -> Log:
        counting.runs["a"] += 1
        inside.set()
        await go.wait()
        return {"log": ["a"]}

    def build(store: Journal) -> CompiledGraph:
        graph = StateGraph(Log).add_node("a", node).add_node("b", counting.node("b")).add_edge(START, "a")
        return graph.add_edge("a", "b").add_edge("b", END).compile(store=store)

    journal = Breaking(place())
    task = asyncio.create_task(build(journal).invoke({}, thread="t"))
    await inside.wait()
    await build(place()).interrupt("t", when=when)
    if not now:
        await journal.mailed.wait()
        go.set()
    result = await task
    go.set()
    assert (result.reason, result["log"]) == ("interrupted", [] if now else ["a"])
    again = await build(place()).invoke(thread="t")
    assert (again.reason, again["log"]) == ("ended", ["a", "b"])
    assert counting.runs == {"a": 2 if now else 1, "b": 1}


@pytest.mark.parametrize("how", ["await", "call", "thread"])
async def test_an_interrupt_in_the_same_process_needs_no_waiting(how: str) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def node(state: Log) -> Log:
        inside.set()
        await go.wait()
        return {"log": ["a"]}

    graph = one_node(node)
    task = asyncio.create_task(graph.invoke({}, thread="t"))
    await inside.wait()
    if how == "await":
        await graph.interrupt("t", when="now")
    elif how == "call":
        graph.interrupt("t", when="now")
    else:
        await asyncio.to_thread(lambda: graph.interrupt("t", when="now"))
    assert (await asyncio.wait_for(task, 5)).reason == "interrupted"


async def test_an_interrupt_without_a_run_is_forgotten() -> None:
    graph = one_node(Counting().node("a"))
    await graph.interrupt("t")
    assert (await graph.invoke({}, thread="t")).reason == "ended"


async def test_what_makes_no_sense_is_refused_by_name() -> None:
    graph: Any = one_node(Counting().node("a"))
    for ask in (graph.invoke, graph.stream):
        for thread in ("", 7):
            with pytest.raises(InputError, match=r"`thread` is .* not empty, not (''|7)"):
                await ask({}, thread=thread)
        with pytest.raises(InputError, match="`on_busy` is 'error' or 'wait', not True"):
            await ask({}, on_busy=True)
    with pytest.raises(InputError, match="`on_busy` is 'error' or 'wait', not 'no'"):
        await graph.resume("t", on_busy="no")
    with pytest.raises(InputError, match="`when` is 'checkpoint' or 'now', not 'soon'"):
        graph.interrupt("t", when="soon")
    for work in (lambda: graph.resume(""), lambda: graph.resume(None), lambda: graph.update_state("", {})):
        with pytest.raises(InputError, match="`thread` is"):
            await work()
    with pytest.raises(InputError, match="`thread` is"):
        graph.interrupt("")
    assert await graph.journal.threads() == []


def test_code_without_async_runs_and_resumes_a_graph() -> None:
    graph = one_node(lambda state: {"log": [pause("?")]})
    paused = graph.invoke_sync({}, thread="t")
    assert paused.pause is not None
    assert graph.resume_sync("t", "yes")["log"] == ["yes"]
    with pytest.raises(InputError, match="nothing to go on with"):
        graph.invoke_sync(thread="t")


async def test_sync_calls_work_inside_a_running_loop_and_inside_a_node() -> None:
    inner = one_node(Counting().node("inner"))
    outer = one_node(lambda state: {"log": inner.invoke_sync({})["log"]})
    assert outer.invoke_sync({})["log"] == ["inner"]
    assert (await outer.invoke({}))["log"] == ["inner"]


async def test_a_graph_closes_its_store(tmp_path: Path) -> None:
    graph = StateGraph(Log).add_node("a", Counting().node("a")).add_edge(START, "a").add_edge("a", END)
    async with graph.compile(store=tmp_path / "t.db") as compiled:
        await compiled.invoke({}, thread="t")
    with pytest.raises(JournalError):
        await compiled.invoke({}, thread="t")
    await compiled.close()
    await graph.compile().close()  # which has opened none


async def test_a_node_that_a_newer_graph_does_not_have_is_a_clear_error(place: Place) -> None:
    old = StateGraph(Log).add_node("old", lambda state: {"log": [pause()]}).add_edge(START, "old").add_edge("old", END)
    await old.compile(store=place()).invoke({}, thread="t")
    new = StateGraph(Log).add_node("new", Counting().node("new")).add_edge(START, "new").add_edge("new", END)
    with pytest.raises(GraphError, match="goes to node 'old', which this graph does not have"):
        await new.compile(store=place()).resume("t", 1)
    assert (await new.compile(store=place()).invoke({}, thread="t"))["log"] == ["new"]


async def test_a_node_may_know_its_visit(tmp_path: Path) -> None:
    seen: list[str] = []

    async def node(state: Log, context: NodeContext) -> Log:
        seen.append(context.task_id)
        if len(seen) == 1:
            raise ValueError("once")
        return {"log": ["a"]}

    place = FilePlace(tmp_path / "t.db")

    def build() -> CompiledGraph:
        graph = StateGraph(Log).add_node("a", node).add_edge(START, "a")
        graph.add_conditional_edges("a", lambda state: END if len(state["log"]) == 2 else "a", ["a", END])
        return graph.compile(store=place())

    with pytest.raises(ValueError, match="once"):
        await build().invoke({}, thread="t")
    await build().invoke(thread="t")
    assert seen == ["a@1.0.0", "a@1.0.0", "a@1.1.0"]
    for store in place.opened:
        await store.close()
