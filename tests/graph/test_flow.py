"""Which node runs when, with what, and in which order their updates count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from graph.support import INPUT_AND_NONE, Counting, Place
from treadle.errors import GraphError, StateError, StepLimitError
from treadle.graph import END, START, Command, NodeContext, Send, StateGraph, append, merge


class Log(TypedDict):
    log: Annotated[list[str], append]


class Work(TypedDict, total=False):
    items: list[int]
    done: Annotated[list[int], append]
    log: Annotated[list[str], append]
    n: int


def says(*names: str) -> Callable[[Any], Any]:
    return lambda state: {"log": list(names)}


async def test_nodes_may_be_sync_async_objects_and_lambdas_that_return_coroutines() -> None:
    async def one(state: Work) -> Work:
        return {"n": state.get("n", 0) + 1}

    class Object:
        async def __call__(self, state: Work, context: NodeContext) -> Work:
            assert context.task.node == "object"
            return {"n": state.get("n", 0) * 10}

    graph = (
        StateGraph(Work).add_node(one).add_node("object", Object()).add_node("late", lambda state: one(Work(**state)))
    )
    graph.add_edge(START, "one").add_edge("one", "object").add_edge("object", "late").add_edge("late", END)
    assert (await graph.compile().invoke({"n": 4}))["n"] == 51


async def test_parallel_updates_count_in_the_order_of_the_edges_not_of_the_finish() -> None:
    finished: list[str] = []
    turns = {name: asyncio.Event() for name in "abc"}
    turns["c"].set()

    def node(name: str, after: str | None) -> Any:
        async def run(state: Log) -> Any:
            await turns[name].wait()
            finished.append(name)
            if after:
                turns[after].set()
            return {"log": [name], "last": name, "seen": {"who": name, name: 1}}

        return run

    class State(Log):
        last: str
        seen: Annotated[dict[str, Any], merge]

    graph = StateGraph(State)
    for name, after in (("a", None), ("b", "a"), ("c", "b")):
        graph.add_node(name, node(name, after)).add_edge(START, name).add_edge(name, END)
    result = await graph.compile().invoke({})
    assert finished == ["c", "b", "a"]
    assert result.state == {"log": ["a", "b", "c"], "last": "c", "seen": {"who": "c", "a": 1, "b": 1, "c": 1}}


async def test_branches_see_the_state_before_the_step_and_not_each_other() -> None:
    graph = StateGraph(Log)
    seen: dict[str, list[str]] = {}

    def node(name: str) -> Any:
        def run(state: Log) -> Any:
            seen[name] = list(state["log"])
            return {"log": [name]}

        return run

    for name in "ab":
        graph.add_node(name, node(name)).add_edge(START, name).add_edge(name, "c")
    graph.add_node("c", node("c")).add_edge("c", END)
    assert (await graph.compile().invoke({"log": "in"}))["log"] == ["in", "a", "b", "c"]
    assert seen == {"a": ["in"], "b": ["in"], "c": ["in", "a", "b"]}


async def test_a_plain_edge_does_not_wait_for_longer_branches() -> None:
    graph = StateGraph(Log)
    for name in ("a", "b1", "b2", "c"):
        graph.add_node(name, says(name))
    graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2")
    graph.add_edge("a", "c").add_edge("b2", "c").add_edge("c", END)
    assert (await graph.compile().invoke({}))["log"] == ["a", "b1", "c", "b2", "c"]


async def test_a_join_waits_for_branches_of_different_length() -> None:
    graph = StateGraph(Log)
    for name in ("a", "b1", "b2", "b3", "c"):
        graph.add_node(name, says(name))
    graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2").add_edge("b2", "b3")
    graph.add_edge(["a", "b3"], "c").add_edge("c", END)
    assert (await graph.compile().invoke({}))["log"] == ["a", "b1", "b2", "b3", "c"]


async def test_a_join_may_end_the_graph_and_fires_again_in_a_loop() -> None:
    graph = StateGraph(Log)
    for name in ("fork", "a", "b", "join"):
        graph.add_node(name, says(name))
    graph.add_edge(START, "fork").add_edge("fork", "a").add_edge("fork", "b").add_edge(["a", "b"], "join")
    graph.add_conditional_edges("join", lambda state: "fork" if len(state["log"]) < 8 else END, ["fork", END])
    assert (await graph.compile().invoke({}))["log"] == ["fork", "a", "b", "join"] * 2
    ends = StateGraph(Log).add_node("a", says("a")).add_node("b", says("b")).add_edge(START, "a").add_edge(START, "b")
    assert (await ends.add_edge(["a", "b"], END).compile().invoke({}))["log"] == ["a", "b"]


async def test_a_join_that_can_never_fire_is_an_error_and_stays_one() -> None:
    graph = StateGraph(Log)
    for name in ("a", "b", "c"):
        graph.add_node(name, says(name))
    graph.add_edge(START, "a").add_conditional_edges("a", lambda state: END, ["b", END])
    graph.add_edge(["a", "b"], "c").add_edge("c", END)
    compiled = graph.compile()
    for input in INPUT_AND_NONE:
        with pytest.raises(GraphError, match=r"Node 'c' waits for \['b'\], which can no longer come"):
            await compiled.invoke(input, thread="t")
    assert (await compiled.state("t")).state == {"log": ["a"]}
    with pytest.raises(GraphError, match="can no longer come"):
        await compiled.invoke({}, thread="t")
    assert (await compiled.state("t")).state == {"log": ["a", "a"]}


async def test_names_that_look_alike_make_different_joins() -> None:
    graph = StateGraph(Log)
    for name in ("x", "x+y", "y+z", "z", "out"):
        graph.add_node(name, says(name)).add_edge(START, name) if name != "out" else graph.add_node(name, says(name))
    graph.add_edge(["x+y", "z"], "out").add_edge(["x", "y+z"], "out").add_edge("out", END)
    result = await graph.compile().invoke({})
    assert result["log"] == ["x", "x+y", "y+z", "z", "out"]


async def test_send_maps_a_node_over_values_in_their_order() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    gates[2].set()

    async def square(item: int) -> Work:
        await gates[item].wait()
        if item:
            gates[item - 1].set()
        return {"done": [item * item]}

    graph = StateGraph(Work).add_node("square", square).add_node("sum", lambda state: {"n": sum(state["done"])})
    graph.add_conditional_edges(START, lambda state: [Send("square", item) for item in state["items"]], ["square"])
    graph.add_edge("square", "sum").add_edge("sum", END)
    result = await graph.compile().invoke({"items": [0, 1, 2]})
    assert (result["done"], result["n"]) == ([0, 1, 4], 5)


async def test_send_of_nothing_ends_the_branch() -> None:
    graph = StateGraph(Work).add_node("square", lambda item: {"done": item})
    graph.add_conditional_edges(START, lambda state: [Send("square", item) for item in state["items"]], ["square"])
    graph.add_edge("square", END)
    assert (await graph.compile().invoke({"items": []}))["done"] == []


async def test_what_is_sent_is_the_same_after_a_crash(place: Place) -> None:
    class Box(TypedDict, total=False):
        when: Annotated[list[bytes], append]
        out: Annotated[list[str], append]

    seen: list[Any] = []

    def use(arg: Any) -> Box:
        seen.append(arg)
        if len(seen) == 1:
            arg["more"].append("changed")
            raise RuntimeError("once")
        return {"out": [repr(arg)]}

    def build() -> Any:
        graph = StateGraph(Box).add_node("use", use)
        graph.add_conditional_edges(START, lambda state: Send("use", {"when": [b"\xff"], "more": (1, 2)}), ["use"])
        return graph.add_edge("use", END).compile(store=place())

    with pytest.raises(RuntimeError, match="once"):
        await build().invoke({}, thread="t")
    await build().invoke(thread="t")
    assert seen[1] == {"when": [b"\xff"], "more": [1, 2]}


@pytest.mark.parametrize("goto", [object(), {"x": object()}])
async def test_what_cannot_be_stored_cannot_be_sent(place: Place, goto: Any) -> None:
    graph = StateGraph(Work).add_node("a", lambda state: Command(goto=Send("b", goto)), goto=["b"])
    graph.add_node("b", says("b")).add_edge(START, "a").add_edge("b", END)
    with pytest.raises(StateError, match="sent to node 'b' cannot be stored"):
        await graph.compile(store=place()).invoke({})


async def test_a_command_updates_and_chooses_the_way_instead_of_the_edges() -> None:
    graph = StateGraph(Work)
    graph.add_node("a", lambda state: Command(update={"log": ["a"]}, goto=["c", Send("d", 7)]), goto=["c", "d"])
    graph.add_node("b", says("b")).add_node("c", says("c")).add_node("d", lambda item: {"done": item})
    graph.add_edge(START, "a").add_edge("a", "b")
    for name in "bcd":
        graph.add_edge(name, END)
    result = await graph.compile().invoke({})
    assert result.state == {"log": ["a", "c"], "done": [7]}


async def test_control_values_never_stay() -> None:
    runs = Counting()

    def jump(state: Work) -> Command:
        runs.runs["jump"] += 1
        return Command(update={"n": 1}, goto=END, reason="stopped")

    graph = StateGraph(Work).add_node("jump", jump).add_edge(START, "jump").add_edge("jump", END)
    compiled = graph.compile()
    first = await compiled.invoke({}, thread="t")
    assert (first.reason, dict(first)) == ("stopped", {"n": 1, "done": [], "log": []})
    quiet = StateGraph(Work).add_node("jump", says("x")).add_edge(START, "jump").add_edge("jump", END)
    second = await quiet.compile(store=compiled.journal).invoke({}, thread="t")
    assert (second.reason, runs.runs["jump"]) == ("ended", 1)


async def test_a_node_that_is_named_twice_runs_once() -> None:
    counting = Counting()
    graph = StateGraph(Log)
    for name in ("a", "b", "c"):
        graph.add_node(name, counting.node(name))
    graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", END)
    graph.add_conditional_edges("a", lambda state: ["b", "b", "c"], ["b", "c"])
    assert (await graph.compile().invoke({}))["log"] == ["a", "b", "c", "c"]
    assert counting.runs == {"a": 1, "b": 1, "c": 2}


async def test_conditional_edges_may_be_async_and_start_the_graph() -> None:
    async def route(state: Log) -> str:
        await asyncio.sleep(0)
        return "b" if len(state["log"]) < 2 else END

    class Object:
        async def __call__(self, state: Log) -> str:
            return await route(state)

    def late(state: Log) -> Any:
        return route(state)

    routes: Callable[[Any], Any]
    for routes in (route, Object(), late):
        graph = StateGraph(Log).add_node("b", says("b"))
        graph.add_conditional_edges(START, routes, ["b", END])
        graph.add_conditional_edges("b", routes)
        assert (await graph.compile().invoke({"log": []}))["log"] == ["b", "b"]


async def test_an_async_edge_is_not_asked_where_a_command_says_where_to_go() -> None:
    async def route(state: Log) -> str:
        raise AssertionError("not asked")

    async def other(state: Log) -> str:
        return END

    graph = StateGraph(Log).add_node("a", lambda state: Command(goto="b"), goto=["b"]).add_node("b", says("b"))
    graph.add_node("c", says("c")).add_edge(START, "a").add_edge(START, "c")
    graph.add_conditional_edges("a", route, [END]).add_conditional_edges("c", other, [END]).add_edge("b", END)
    assert (await graph.compile().invoke({}))["log"] == ["c", "b"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_edge_that_raises_keeps_the_update_and_is_asked_again(place: Place, is_async: bool) -> None:
    counting = Counting()
    broken = True

    def choose(state: Log) -> str:
        if broken:
            raise ValueError("no idea")
        return END

    async def choose_async(state: Log) -> str:
        return choose(state)

    def build() -> Any:
        graph = StateGraph(Log).add_node("a", counting.node("a")).add_edge(START, "a")
        graph.add_conditional_edges("a", choose_async if is_async else choose, [END])
        return graph.compile(store=place())

    with pytest.raises(ValueError, match="no idea"):
        await build().invoke({}, thread="t")
    assert (await build().state("t")).state == {"log": ["a"]}
    broken = False
    result = await build().invoke(thread="t")
    assert (result["log"], result.reason, counting.runs["a"]) == (["a"], "ended", 1)


@pytest.mark.parametrize("answer", [None, 7, ["b", None], {"b": 1}])
async def test_an_edge_that_answers_nonsense_is_an_error(answer: Any) -> None:
    graph = (
        StateGraph(Log).add_node("a", says("a")).add_edge(START, "a").add_conditional_edges("a", lambda state: answer)
    )
    with pytest.raises(GraphError, match="Node 'a' leads to"):
        await graph.compile().invoke({})


async def test_an_answer_that_is_not_among_the_paths_is_an_error() -> None:
    answers: list[Any] = ["c", ["b", "c"], [{}]]
    for answer in answers:
        graph = StateGraph(Log).add_node("a", says("a")).add_node("b", says("b"))
        graph.add_edge(START, "a").add_conditional_edges("a", lambda state: answer, ["b"]).add_edge("b", END)  # noqa: B023
        with pytest.raises(GraphError, match=r"The edge from 'a' answered .* it may answer \['b'\]"):
            await graph.compile().invoke({})


@pytest.mark.parametrize("joined", [False, True])
async def test_a_command_to_nowhere_fails_the_node_which_runs_again(place: Place, joined: bool) -> None:
    target = "nowhere"

    def build() -> Any:
        graph = StateGraph(Log).add_node("a", lambda state: Command(update={"log": ["a"]}, goto=target), goto=["b"])
        graph.add_node("b", says("b")).add_edge(START, "a").add_edge("b", END)
        if joined:
            graph.add_edge(["a", "b"], END)
        return graph.compile(store=place())

    with pytest.raises(GraphError, match="Node 'a' leads to 'nowhere', which does not exist; there are a, b"):
        await build().invoke({}, thread="t")
    target = "b"
    assert (await build().invoke(thread="t"))["log"] == ["a", "b"]


async def test_an_unknown_target_of_an_edge_is_an_error_at_run_time() -> None:
    graph = StateGraph(Log).add_node("a", says("a")).add_edge(START, "a").add_conditional_edges("a", lambda state: "x")
    with pytest.raises(GraphError, match="Node 'a' leads to 'x', which does not exist"):
        await graph.compile().invoke({})


async def test_the_step_limit_raises_and_a_higher_one_goes_on(place: Place) -> None:
    def build(limit: int) -> Any:
        graph = StateGraph(Log).add_node("a", says("a")).add_edge(START, "a")
        graph.add_conditional_edges("a", lambda state: END if len(state["log"]) == 5 else "a", ["a", END])
        return graph.compile(step_limit=limit, store=place())

    with pytest.raises(StepLimitError, match="'t' did not end within 3 steps"):
        await build(3).invoke({}, thread="t")
    with pytest.raises(StepLimitError):
        await build(3).invoke(thread="t")
    assert (await build(3).state("t")).state == {"log": ["a"] * 3}
    assert (await build(5).invoke(thread="t"))["log"] == ["a"] * 5


@pytest.mark.parametrize("returned", ["text", 7, [("log", 1)]])
async def test_a_node_that_returns_nonsense_is_an_error(returned: Any) -> None:
    graph = StateGraph(Log).add_node("a", lambda state: returned).add_edge(START, "a").add_edge("a", END)
    with pytest.raises(StateError, match="Node 'a' returned"):
        await graph.compile().invoke({})


async def test_a_node_gets_the_context_and_the_variables_of_its_run() -> None:
    async def node(state: Any, context: NodeContext) -> dict[str, Any]:
        return {"log": [context.thread, context.context["db"], context.variables["city"]]}

    graph = StateGraph(Log).add_node("a", node).add_edge(START, "a").add_edge("a", END)
    result = await graph.compile().invoke({}, thread="t", context={"db": "sql"}, variables={"city": "Hangzhou"})
    assert result["log"] == ["t", "sql", "Hangzhou"]
