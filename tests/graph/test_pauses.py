"""Pauses: before and after nodes, before edges, inside nodes; answered by a fresh object as another process would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from graph.support import Counting, Place, wish_ids
from treadle import ReActAgent
from treadle.errors import InputError, StateError
from treadle.event import Wish
from treadle.graph import END, START, Command, CompiledGraph, NodeContext, StateGraph, append, pause
from treadle.testing import ScriptedModel, tool_call


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]
    n: int


def line(counting: Counting, *names: str) -> StateGraph:
    graph = StateGraph(Log)
    for source, target in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(source, target)
        if target != END:
            graph.add_node(target, counting.node(target))
    return graph


STOPS: list[tuple[dict[str, Any], list[tuple[str, list[str]]]]] = [
    ({"pause_before": ["a"]}, [("before:a", [])]),
    ({"pause_before": ["b"]}, [("before:b", ["a"])]),
    ({"pause_after": ["a"]}, [("after:a", ["a"])]),
    ({"pause_after": ["c"]}, [("after:c", ["a", "b", "c"])]),
    ({"pause_before_edge": [("a", "b")]}, [("edge:a:b", ["a"])]),
    ({"pause_before_edge": [(START, "a")]}, [("edge:__start__:a", [])]),
    ({"pause_before_edge": [("c", END)]}, [("edge:c:__end__", ["a", "b", "c"])]),
    ({"pause_before": "b", "pause_after": "b"}, [("before:b", ["a"]), ("after:b", ["a", "b"])]),
]


@pytest.mark.parametrize(("options", "stops"), STOPS)
async def test_breakpoints_stop_once_and_need_no_answer(
    place: Place, options: dict[str, Any], stops: list[tuple[str, list[str]]]
) -> None:
    counting = Counting()

    def build() -> CompiledGraph:
        return line(counting, "a", "b", "c").compile(store=place(), **options)

    result = await build().invoke({}, thread="t")
    for wish, log in stops:
        assert (result.reason, wish_ids(result), result["log"]) == ("paused", [wish], log)
        assert result.pause is not None
        assert (result.pause.kind, result.pause.wishes[0].name) == ("breakpoint", wish.split(":")[-1])
        result = await build().resume("t")
    assert (result.reason, result.pause, result["log"]) == ("ended", None, ["a", "b", "c"])
    assert counting.runs == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(InputError, match="nothing to go on with"):
        await build().resume("t")


async def test_a_breakpoint_stops_at_every_visit() -> None:
    graph = StateGraph(Log).add_node("a", Counting().node("a")).add_edge(START, "a")
    graph.add_conditional_edges("a", lambda state: END if len(state["log"]) == 3 else "a", ["a", END])
    compiled = graph.compile(pause_before=["a"])
    result, stops = await compiled.invoke({}, thread="t"), 0
    while result.pause:
        stops += 1
        result = await compiled.invoke(thread="t")
    assert (stops, result["log"]) == (3, ["a", "a", "a"])


@pytest.mark.parametrize("kind", ["sync", "async", "context"])
async def test_a_node_asks_and_gets_the_answer_in_another_process(place: Place, kind: str) -> None:
    tries: list[str] = []

    def sync_node(state: Log) -> Log:
        tries.append("try")
        first = pause({"question": "How many?"})
        second = pause("Sure?")
        return {"log": [f"{first}/{second}"]}

    async def async_node(state: Log) -> Log:
        return sync_node(state)

    def context_node(state: Log, context: NodeContext) -> Log:
        tries.append("try")
        return {"log": [f"{context.pause({'question': 'How many?'})}/{context.pause('Sure?')}"]}

    def build() -> CompiledGraph:
        node = {"sync": sync_node, "async": async_node, "context": context_node}[kind]
        return StateGraph(Log).add_node("ask", node).add_edge(START, "ask").add_edge("ask", END).compile(store=place())

    result = await build().invoke({}, thread="t")
    assert result.pause is not None
    assert result.pause.wishes == (Wish(id="ask@1.0.0#0", kind="input", name="ask", value={"question": "How many?"}),)
    result = await build().resume("t", 3)
    assert wish_ids(result) == ["ask@1.0.0#1"]
    result = await build().resume("t", {"ask@1.0.0#1": {"yes": True}})
    assert (result["log"], len(tries)) == (["3/{'yes': True}"], 3)


async def test_going_on_without_an_answer_asks_again() -> None:
    graph = (
        StateGraph(Log).add_node("ask", lambda state: {"log": [pause()]}).add_edge(START, "ask").add_edge("ask", END)
    )
    compiled = graph.compile()
    first = await compiled.invoke({}, thread="t")
    assert wish_ids(await compiled.invoke(thread="t")) == wish_ids(await compiled.resume("t")) == wish_ids(first)
    assert (await compiled.resume("t", "x"))["log"] == ["x"]


async def test_a_swallowing_except_does_not_swallow_a_pause() -> None:
    def node(state: Log) -> Log:
        try:
            return {"log": [pause("?")]}
        except Exception:
            return {"log": ["swallowed"]}

    graph = StateGraph(Log).add_node("ask", node).add_edge(START, "ask").add_edge("ask", END).compile()
    assert (await graph.invoke({}, thread="t")).pause is not None


async def test_a_finished_sibling_of_a_paused_node_is_not_run_again(place: Place) -> None:
    counting = Counting()

    def ask(state: Log) -> Log:
        counting.runs["ask"] += 1
        return {"log": [pause("?")]}

    def build() -> CompiledGraph:
        graph = StateGraph(Log)
        for name in ("a", "ask", "b", "last"):
            graph.add_node(name, ask if name == "ask" else counting.node(name))
        for name in ("a", "ask", "b"):
            graph.add_edge(START, name)
        return graph.add_edge(["a", "ask", "b"], "last").add_edge("last", END).compile(store=place())

    result = await build().invoke({}, thread="t")
    assert result["log"] == []  # the step counts as a whole
    assert (await build().state("t")).next == ("ask",)
    assert (await build().resume("t", "answer"))["log"] == ["a", "answer", "b", "last"]
    assert counting.runs == {"a": 1, "ask": 2, "b": 1, "last": 1}


async def test_several_questions_can_be_answered_one_at_a_time(place: Place) -> None:
    def ask(name: str) -> Callable[[Any], Any]:
        return lambda state: {"log": [f"{name}={pause(name)}"]}

    def build() -> CompiledGraph:
        graph = StateGraph(Log)
        for name in ("x", "y"):
            graph.add_node(name, ask(name)).add_edge(START, name).add_edge(name, END)
        return graph.compile(store=place())

    result = await build().invoke({}, thread="t")
    assert wish_ids(result) == ["x@1.0.0#0", "y@1.0.1#0"]
    for wrong in ("bare answer", {"nobody": 1}, {"x@1.0.0#0": 1, "nobody": 2}, {}):
        with pytest.raises(InputError, match=r"waits for \['x@1.0.0#0', 'y@1.0.1#0'\]; answer with a dict"):
            await build().resume("t", wrong)
    result = await build().resume("t", {"y@1.0.1#0": 2})
    assert wish_ids(result) == ["x@1.0.0#0"]
    assert (await build().resume("t", 1))["log"] == ["x=1", "y=2"]


async def test_questions_and_answers_must_be_storable(place: Place) -> None:
    graph = StateGraph(Log).add_node("ask", lambda state: {"log": [pause(state["log"] and object())]})
    compiled = graph.add_edge(START, "ask").add_edge("ask", END).compile(store=place())
    with pytest.raises(StateError, match="`pause` shows JSON"):
        await compiled.invoke({"log": ["x"]}, thread="s")
    await compiled.invoke({}, thread="t")
    with pytest.raises(InputError, match="it must be JSON"):
        await compiled.resume("t", object())
    assert (await compiled.resume("t", "fine"))["log"] == ["fine"]


async def test_an_answer_that_nobody_waits_for_is_an_error() -> None:
    graph = line(Counting(), "a").compile(pause_before=["a"])
    await graph.invoke({}, thread="t")
    with pytest.raises(InputError, match="answer with a dict by these ids"):
        await graph.resume("t", {"before:b": True})
    assert (await graph.resume("t", {"before:a": True})).reason == "ended"


async def test_new_input_lets_go_of_what_was_asked() -> None:
    graph = line(Counting(), "a").compile(pause_before=["a"])
    await graph.invoke({}, thread="t")
    again = await graph.invoke({"n": 1}, thread="t")
    assert wish_ids(again) == ["before:a"]
    assert (await graph.resume("t")).state == {"log": ["a"], "n": 1}


async def test_a_command_may_pause_after_its_node(place: Place) -> None:
    counting = Counting()

    def node(state: Log) -> Command:
        counting.runs["a"] += 1
        return Command(update={"log": ["a"]}, pause=[Wish(id="look", kind="breakpoint")], goto=END)

    def build() -> CompiledGraph:
        return StateGraph(Log).add_node("a", node).add_edge(START, "a").add_edge("a", END).compile(store=place())

    result = await build().invoke({}, thread="t")
    assert (wish_ids(result), result["log"]) == (["look"], ["a"])
    assert (await build().resume("t")).reason == "ended"
    assert counting.runs["a"] == 1


async def test_pause_in_a_tool_of_an_agent_that_is_a_node_is_an_error_of_the_tool() -> None:
    def ask(question: str) -> str:
        return str(pause(question))

    agent = ReActAgent(name="agent", model=ScriptedModel([[tool_call("ask", question="?")], "Sorry."]), toolkit=[ask])
    graph = StateGraph({"messages": append}).add_node(agent).add_edge(START, "agent").add_edge("agent", END).compile()
    result = await graph.invoke({"messages": ["Ask."]})
    assert (result.reason, result.pause) == ("ended", None)
    assert isinstance(agent.model, ScriptedModel)
    assert "`Suspend` instead" in agent.model.requests[1].messages[-1].tool_results[0].text


def test_pause_outside_a_node_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="inside a node of a running graph only"):
        pause()
