"""What `compile` finds, and how a graph is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from treadle.errors import GraphDefinitionError, StateError
from treadle.graph import END, START, Retry, StateGraph


def nothing(state: Any) -> None:
    return None


def line(*names: str) -> StateGraph:
    graph = StateGraph()
    for name in names:
        graph.add_node(name, nothing)
    for source, target in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(source, target)
    return graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    build: Callable[[], StateGraph]
    says: str
    options: dict[str, Any]


def case(name: str, build: Callable[[], StateGraph], says: str, **options: Any) -> Case:
    return Case(name=name, build=build, says=says, options=options)


CASES = [
    case(
        "unknown target",
        lambda: line("first").add_edge("first", "secnd"),
        "An edge names 'secnd', which is not a node.",
    ),
    case("a hint", lambda: line("first", "second").add_edge("first", "secnd"), "did you mean 'second'?"),
    case("unknown source", lambda: line("a").add_edge("b", "a"), "An edge names 'b'"),
    case("unknown path", lambda: line("a").add_conditional_edges("a", nothing, {1: "x"}), "An edge names 'x'"),
    case("unknown goto", lambda: line("a").add_node("b", nothing, goto=["x"]), "An edge names 'x'"),
    case("a goto that is one name", lambda: line("a").add_node("b", nothing, goto="xyz"), "An edge names 'xyz'"),
    case("unknown join source", lambda: line("a").add_edge(["a", "x"], END), "An edge names 'x'"),
    case("unreachable", lambda: line("a").add_node("b", nothing).add_edge("b", END), "No edge leads to node 'b'."),
    case(
        "dead end",
        lambda: line("a").add_node("b", nothing).add_edge("a", "b"),
        "Node 'b' is a dead end: no way leads from it to `END`.",
    ),
    case(
        "a loop without a way out",
        lambda: (
            line("a")
            .add_node("b", nothing)
            .add_node("c", nothing)
            .add_edge("a", "b")
            .add_edge("b", "c")
            .add_edge("c", "b")
        ),
        "Node 'b' is a dead end",
    ),
    case("duplicate", lambda: line("a").add_node("a", nothing), "There are two nodes named 'a'"),
    case("reserved", lambda: line("a").add_node(END, nothing), "'__end__' is reserved"),
    case("no start", lambda: StateGraph().add_node("a", nothing).add_edge("a", END), "Nothing leaves `START`"),
    case("after the end", lambda: line("a").add_edge(END, "a"), "An edge leaves `END`"),
    case("back to the start", lambda: line("a").add_edge("a", START), "An edge leads to `START`"),
    case("waits for nothing", lambda: line("a").add_edge([], "a"), "An edge waits for nothing"),
    case(
        "waits for the start", lambda: line("a").add_edge([START, "a"], END), "An edge waits for nothing, for `START`"
    ),
    case("pause at no node", lambda: line("a"), "A pause names 'b', which is not a node.", pause_before=["b"]),
    case("pause at the end", lambda: line("a"), "A pause names '__end__'", pause_before=[END]),
    case(
        "pause after one name",
        lambda: line("first"),
        "A pause names 'frst', which is not a node; did you",
        pause_after="frst",
    ),
    case(
        "pause at no edge",
        lambda: line("a", "b"),
        "the edge from 'b' to 'a', which is not",
        pause_before_edge=[("b", "a")],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_wrong_is_said(case: Case) -> None:
    with pytest.raises(GraphDefinitionError) as caught:
        case.build().compile(**case.options)
    assert case.says in str(caught.value)


def test_all_problems_are_listed_at_once() -> None:
    graph = line("a").add_edge("a", "x").add_edge("y", "a")
    with pytest.raises(GraphDefinitionError) as caught:
        graph.compile(pause_after=["z"])
    assert str(caught.value).splitlines()[1:] == [
        "- An edge names 'y', which is not a node.",
        "- An edge names 'x', which is not a node.",
        "- A pause names 'z', which is not a node.",
    ]


def test_a_node_must_be_something_that_runs() -> None:
    with pytest.raises(GraphDefinitionError, match="Node 'a' must be a function, a compiled graph or an agent, not 7"):
        StateGraph().add_node("a", 7)  # type: ignore[arg-type]


def test_a_node_is_tried_at_least_once() -> None:
    with pytest.raises(GraphDefinitionError, match="at least once"):
        Retry(attempts=0)


@pytest.mark.parametrize("state", [int, 7, list[int]])
def test_what_is_no_state_type_is_refused(state: Any) -> None:
    graph = StateGraph(state).add_node("a", nothing).add_edge(START, "a").add_edge("a", END)
    with pytest.raises(StateError, match="cannot be the type of a state"):
        graph.compile()


def test_a_strategy_must_be_a_function() -> None:
    graph = StateGraph({"n": int}).add_node("a", nothing).add_edge(START, "a").add_edge("a", END)
    with pytest.raises(StateError, match="strategy of `n` must be"):
        graph.compile()


async def test_a_function_or_graph_alone_is_added_under_its_own_name() -> None:
    def double(state: Any) -> dict[str, int]:
        return {"n": 2 * state["n"]}

    inner = StateGraph().add_node(double).add_edge(START, "double").add_edge("double", END).compile(name="inner")
    outer = StateGraph().add_node(inner).add_edge(START, "inner").add_edge("inner", END).compile()
    assert (await outer.invoke({"n": 21}))["n"] == 42


async def test_a_graph_may_change_after_it_was_compiled() -> None:
    graph = line("a")
    compiled, drawing = graph.compile(), graph.compile().mermaid()
    graph.add_node("b", nothing, goto=["a"]).add_edge("a", "b")
    assert compiled.mermaid() == drawing
    assert (await compiled.invoke({})).reason == "ended"


def test_a_graph_is_drawn_as_mermaid() -> None:
    def choose(state: Any) -> Literal["write", "__end__"]:
        return "write"

    graph = StateGraph()
    for name in ("plan", "search", "read", 'wr"ite'):
        graph.add_node(name, nothing)
    graph.add_node("write", nothing, goto=["plan"])
    graph.add_edge(START, "plan").add_edge("plan", "search").add_edge("plan", "read")
    graph.add_edge(["search", "read"], 'wr"ite')
    graph.add_conditional_edges('wr"ite', choose).add_conditional_edges("write", nothing, {True: "plan", "no": END})
    assert (
        graph.compile().mermaid()
        == """\
flowchart TD
    start([START])
    n0["plan"]
    n1["search"]
    n2["read"]
    n3["wr#quot;ite"]
    n4["write"]
    end_([END])
    start --> n0
    n0 --> n1
    n0 --> n2
    n3 -.-> n4
    n3 -.-> end_
    n4 -.-> |"True"|n0
    n4 -.-> |"no"|end_
    n1 --> |all| n3
    n2 --> |all| n3
    n4 -.-> |"command"|n0
"""
    )
