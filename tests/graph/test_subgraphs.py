"""Graphs and agents as nodes of a graph."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, TypedDict, cast

import pytest

from graph.support import INPUT_AND_NONE, Breaking, Counting, Crash, Given, Place, kinds, read_all, wish_ids
from treadle import Approve, ReActAgent, Reject, Toolkit
from treadle.agent import Template
from treadle.errors import GraphError, InputError, StateError, TemplateError
from treadle.event import NodeUpdatedEvent, ReasoningChunkEvent, RunEndedEvent
from treadle.graph import END, START, CompiledGraph, Send, StateGraph, append, merge, pause
from treadle.journal import Journal, MemoryStore, UpdateRecord
from treadle.message import Msg
from treadle.testing import ScriptedModel, tool_call


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    facts: Annotated[dict[str, int], merge]
    total: Annotated[int, operator.add]
    n: int
    mine: str


class Inner(TypedDict, total=False):
    log: Annotated[list[str], append]
    facts: Annotated[dict[str, int], merge]
    total: Annotated[int, operator.add]
    n: int
    hidden: str


@dataclass(slots=True)
class Slotted:
    input: str
    summary: str = ""


def single(state: Any, name: str, node: Given, store: Journal | None = None, **options: Any) -> CompiledGraph:
    graph = StateGraph(state).add_node(name, node).add_edge(START, name).add_edge(name, END)
    return graph.compile(name=name, store=store, **options)


async def test_shared_keys_go_in_and_what_changed_comes_out() -> None:
    def inner(state: Inner) -> Inner:
        assert dict(state) == {"log": ["in"], "facts": {"a": 1, "b": 1}, "n": 1}
        return {"log": ["inner"], "facts": {"a": None, "c": 3}, "total": 5, "n": 2, "hidden": "x"}  # type: ignore[typeddict-item]

    outer = single(State, "sub", single(Inner, "node", inner))
    result = await outer.invoke({"log": ["in"], "facts": {"a": 1, "b": 1}, "total": 10, "n": 1, "mine": "m"})
    assert result.state == {"log": ["in", "inner"], "facts": {"b": 1, "c": 3}, "total": 15, "n": 2, "mine": "m"}


async def test_parallel_subgraphs_do_not_undo_each_others_changes() -> None:
    graph = StateGraph(State)
    for name in "ab":
        update = {"facts": {name: 2}, "log": [name], "total": 1}
        graph.add_node(name, single(Inner, "node", lambda state, update=update: update))
        graph.add_edge(START, name).add_edge(name, END)
    result = await graph.compile().invoke({"facts": {"a": 1, "b": 1}, "log": ["x"], "n": 7})
    assert result.state == {"facts": {"a": 2, "b": 2}, "log": ["x", "a", "b"], "total": 2, "n": 7}


async def test_a_subgraph_that_changes_nothing_writes_nothing() -> None:
    events = await read_all(
        single(State, "sub", single(Inner, "node", lambda state: None)).stream(
            {"log": ["x"], "facts": {"a": 1}, "n": 1}
        )
    )
    updates = [event for event in events if isinstance(event, NodeUpdatedEvent) and event.node == "sub"]
    assert [dict(event.values) for event in updates] == [{}]


@dataclass
class Defaults:
    log: Annotated[list[str], append]
    n: int = 7


async def test_defaults_of_a_subgraph_do_not_overwrite_the_state() -> None:
    inner = single(Defaults, "node", lambda state: {"log": [str(state.n)]})
    result = await single(State, "sub", inner.as_node(input=lambda state: {"log": ["given"]})).invoke(
        {"log": "x", "n": 1}
    )
    assert result.state == {"log": ["x", "7"], "facts": {}, "n": 1}


async def test_keys_can_be_mapped() -> None:
    class Other(TypedDict, total=False):
        question: str
        answer: str

    inner = single(Other, "node", lambda state: {"answer": state["question"].upper()})
    node = inner.as_node(input=lambda state: {"question": state["mine"]}, output=lambda state: {"log": state["answer"]})
    assert (await single(State, "sub", node).invoke({"mine": "why"}))["log"] == ["WHY"]


async def test_a_subgraph_can_be_mapped_over_values() -> None:
    inner = single(Inner, "node", lambda state: {"log": [f"n={state['n']}"], "total": state["n"]})
    graph = StateGraph(State).add_node("sub", inner).add_edge("sub", END)
    graph.add_conditional_edges(START, lambda state: [Send("sub", {"n": n}) for n in (1, 2, 3)], ["sub"])
    result = await graph.compile().invoke({"log": ["a", "b", "c", "d"], "n": 9})
    assert result["log"] == ["a", "b", "c", "d", "n=1", "n=2", "n=3"]
    assert result["total"] == 6


async def test_states_without_a_type_share_everything() -> None:
    inner = single(None, "node", lambda state: {"n": state["n"] + 1, "new": [1]})
    assert (await single(None, "sub", inner).invoke({"n": 1, "x": "y"})).state == {"n": 2, "x": "y", "new": [1]}


@pytest.mark.parametrize("own_store", [False, True])
async def test_a_pause_two_levels_deep_is_answered_from_the_top(place: Place, own_store: bool) -> None:
    counting = Counting()
    inner_place = place if own_store else None

    def ask(state: Inner) -> Inner:
        counting.runs["ask"] += 1
        return {"log": [f"{pause('first')} {pause('second')}"]}

    def build() -> CompiledGraph:
        deep = StateGraph(Inner).add_node("before", counting.node("before")).add_node("ask", ask)
        deep.add_edge(START, "before").add_edge("before", "ask").add_edge("ask", END)
        middle = single(Inner, "deep", deep.compile(store=inner_place() if inner_place else None))
        top = StateGraph(State).add_node("middle", middle).add_node("beside", counting.node("beside"))
        top.add_edge(START, "middle").add_edge(START, "beside").add_edge(["middle", "beside"], END)
        return top.compile(store=place())

    result = await build().invoke({"log": "x"}, thread="t")
    assert wish_ids(result) == ["middle@1.0.0/deep@1.0.0/ask@1.1.0#0"]
    assert result.pause is not None
    assert (result.pause.wishes[0].path, result.pause.wishes[0].value) == (("middle", "deep"), "first")
    result = await build().resume("t", "one")
    assert wish_ids(result) == ["middle@1.0.0/deep@1.0.0/ask@1.1.0#1"]
    result = await build().resume("t", {"middle@1.0.0/deep@1.0.0/ask@1.1.0#1": "two"})
    assert result["log"] == ["x", "before", "one two", "beside"]
    assert counting.runs == {"before": 1, "ask": 3, "beside": 1}


async def test_two_questions_inside_a_subgraph_are_answered_one_at_a_time(place: Place) -> None:
    def build() -> CompiledGraph:
        inner = StateGraph(Inner)
        for name in ("x", "y"):
            inner.add_node(name, lambda state, name=name: {"log": [f"{name}={pause(name)}"]})
            inner.add_edge(START, name).add_edge(name, END)
        return single(State, "sub", inner.compile(), place())

    x, y = wish_ids(await build().invoke({}, thread="t"))
    assert wish_ids(await build().resume("t", {x: 1})) == [y]
    assert (await build().resume("t", {y: 2}))["log"] == ["x=1", "y=2"]


async def test_breakpoints_of_a_subgraph_stop_the_whole() -> None:
    inner = single(Inner, "node", Counting().node("node"), pause_before=["node"], pause_after=["node"])
    graph = single(State, "sub", inner)
    assert wish_ids(await graph.invoke({}, thread="t")) == ["sub@1.0.0/before:node"]
    assert wish_ids(await graph.resume("t")) == ["sub@1.0.0/after:node"]
    assert (await graph.resume("t"))["log"] == ["node"]


async def test_the_state_may_be_edited_while_a_subgraph_waits() -> None:
    inner = single(Inner, "ask", lambda state: {"log": [pause()]})
    graph = single(State, "sub", inner)
    await graph.invoke({"log": ["a"]}, thread="t")
    await graph.update_state("t", {"log": ["edited", "twice"]})
    assert (await graph.resume("t", "answer"))["log"] == ["a", "edited", "twice", "answer"]


@pytest.mark.parametrize("appends", range(6))
async def test_a_subgraph_goes_on_after_a_crash_anywhere(place: Place, appends: int) -> None:
    counting = Counting()

    def build(store: Journal) -> CompiledGraph:
        inner = StateGraph(Inner).add_node("a", counting.node("a")).add_node("b", counting.node("b"))
        inner.add_edge(START, "a").add_edge("a", "b").add_edge("b", END)
        return single(State, "sub", inner.compile(), store)

    journal = Breaking(place(), appends)
    try:
        await build(journal).invoke({"log": "x"}, thread="t")
    except Crash:
        stored = {record.node for record in journal.appended if isinstance(record, UpdateRecord)}
        before = counting.runs.copy()
        result = await build(place()).invoke(None if journal.appended else {"log": "x"}, thread="t")
        assert result["log"] == ["x", "a", "b"]
        again = {node for node in "ab" if counting.runs[node] > before[node]}
        assert again == {"a", "b"} - stored
    else:
        assert appends == 5


async def test_a_failure_inside_is_a_failure_outside_until_it_is_repaired(place: Place) -> None:
    counting = Counting()
    broken = True

    def fails(state: Inner) -> Inner:
        if broken:
            raise ValueError("broken")
        return {"log": ["b"]}

    def build() -> CompiledGraph:
        inner = StateGraph(Inner).add_node("a", counting.node("a")).add_node("b", fails)
        inner.add_edge(START, "a").add_edge("a", "b").add_edge("b", END)
        return single(State, "sub", inner.compile(), place())

    for input in INPUT_AND_NONE:
        with pytest.raises(ValueError, match="broken"):
            await build().invoke(input, thread="t")
    broken = False
    assert (await build().invoke(thread="t"))["log"] == ["a", "b"]
    assert counting.runs["a"] == 1


async def test_a_subgraph_whose_join_cannot_fire_never_counts_as_done() -> None:
    inner = StateGraph(Inner)
    for name in "abc":
        inner.add_node(name, Counting().node(name))
    inner.add_edge(START, "a").add_conditional_edges("a", lambda state: END, ["b", END])
    inner.add_edge(["a", "b"], "c").add_edge("c", END)
    graph = single(State, "sub", inner.compile())
    for input in INPUT_AND_NONE:
        with pytest.raises(GraphError, match="can no longer come"):
            await graph.invoke(input, thread="t")


async def test_nested_events_say_where_they_come_from() -> None:
    graph = single(State, "sub", single(Inner, "node", Counting().node("node")))
    events = await read_all(graph.stream({}, thread="t"))
    assert kinds(events) == [
        "RunStarted", "NodeStarted", "RunStarted", "NodeStarted", "NodeUpdated", "RunEnded", "NodeUpdated", "RunEnded",
    ]  # fmt: skip
    outer, inner = events[0].source, events[2].source
    assert (outer.parent, outer.path, outer.thread) == (None, (), "t")
    assert (inner.parent, inner.path, inner.thread, inner.agent) == (outer.run, ("sub",), "t/sub@1.0.0", "node")
    assert [event.source.run == outer.run for event in events] == [True, True, False, False, False, False, True, True]


class Chat(TypedDict, total=False):
    input: str
    messages: Annotated[list[Msg], append]
    summary: str
    verdict: Any


async def test_an_agent_reads_input_and_writes_its_reply_under_its_key() -> None:
    model = ScriptedModel(["It is 42."])
    agent = ReActAgent(name="solver", model=model, output_key="summary")
    result = await single(Chat, "solve", agent).invoke({"input": "What is 6 x 7?"})
    assert (result["summary"], result["messages"]) == ("It is 42.", [])
    assert [msg.text for msg in model.requests[0].messages if msg.role == "user"] == ["What is 6 x 7?"]


async def test_an_agent_reads_a_state_of_any_shape() -> None:
    for state in (Slotted, Chat):
        agent = ReActAgent(name="solver", model=ScriptedModel(["It is 42."]), output_key="summary")
        assert (await single(state, "solve", agent).invoke({"input": "6 x 7?"}))["summary"] == "It is 42."


async def test_an_agent_reads_and_writes_messages_and_agents_follow_each_other() -> None:
    writer = ReActAgent(name="writer", model=ScriptedModel(["A draft."]))
    critic = ReActAgent(name="critic", model=ScriptedModel(["Too short."]))
    graph = StateGraph(Chat).add_node(writer).add_node(critic)
    graph.add_edge(START, "writer").add_edge("writer", "critic").add_edge("critic", END)
    result = await graph.compile().invoke({"messages": [Msg.user("Write!")]})
    assert [(msg.name, msg.text) for msg in result["messages"]] == [
        ("user", "Write!"), ("writer", "A draft."), ("critic", "Too short."),
    ]  # fmt: skip
    assert all(type(msg) is Msg for msg in result["messages"])


async def test_an_agent_without_anything_to_read_is_an_error() -> None:
    agent = ReActAgent(name="solver", model=ScriptedModel(["x"]))
    with pytest.raises(StateError, match="Agent 'solver' reads the state's `input` or `messages`"):
        await single(Chat, "solve", agent).invoke({})


class Talk(TypedDict, total=False):
    input: str
    messages: list[Msg]
    maybe: list[Msg] | None
    either: list[Msg] | Msg
    added: Annotated[list[Msg], operator.add]
    one: Msg
    optional: Msg | None
    worded: Msg | str
    words: str | None
    verdict: Literal["It is 42.", "It is not."]
    count: int
    texts: list[str]
    facts: Annotated[dict[str, Any], merge]
    when: date
    strange: object
    odd: Counting  # which nothing can store


@dataclass
class Greeted:
    input: str
    messages: list[Msg] = field(default_factory=lambda: [Msg.assistant("Welcome.", name="host")])


def shape(value: Any) -> Any:
    return [*map(shape, cast("list[Any]", value))] if isinstance(value, list) else getattr(value, "text", value)


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("messages", {}, ["It is 42."]),
        ("messages", {"messages": [Msg.user("Hi")]}, ["Hi", "It is 42."]),
        ("maybe", {}, ["It is 42."]),
        ("maybe", {"maybe": None}, ["It is 42."]),
        ("maybe", {"maybe": [Msg.user("Hi")]}, ["Hi", "It is 42."]),
        ("either", {}, "It is 42."),
        ("either", {"either": [Msg.user("Hi")]}, ["Hi", "It is 42."]),
        ("added", {"added": [Msg.user("Hi")]}, ["Hi", "It is 42."]),
        ("one", {"one": Msg.user("Hi")}, "It is 42."),
        ("optional", {}, "It is 42."),
        ("worded", {"worded": "Hi"}, "It is 42."),
    ],
)
async def test_an_agents_reply_is_a_message_in_the_form_of_its_key(
    place: Place, key: str, before: Any, after: Any
) -> None:
    agent = ReActAgent(name="solver", model=ScriptedModel(["It is 42."]), output_key=key)
    result = await single(Talk, "solve", agent, place()).invoke({"input": "?", **before}, thread="t")
    assert shape(result[key]) == after
    again = await single(Talk, "solve", agent, place()).state("t")  # as another process reads it
    assert shape(again.state[key]) == after
    last = again.state[key][-1] if isinstance(after, list) else again.state[key]
    assert (type(last), last.name) == (Msg, "solver")


async def test_an_agent_goes_on_with_the_list_that_the_state_began_with() -> None:
    agent = ReActAgent(name="solver", model=ScriptedModel(["It is 42."]))
    result = await single(Greeted, "solve", agent).invoke({"input": "?"})
    assert shape(result["messages"]) == ["Welcome.", "It is 42."]


async def test_agents_talk_in_a_state_without_types() -> None:
    for state in (None, {"messages": append}):
        models = ScriptedModel(["A draft."]), ScriptedModel(["Too short."])
        graph = StateGraph(state)
        for name, model in zip(("writer", "critic"), models, strict=True):
            graph.add_node(ReActAgent(name=name, model=model))
        graph.add_edge(START, "writer").add_edge("writer", "critic").add_edge("critic", END)
        result = await graph.compile().invoke({"messages": [Msg.user("Write!")]})
        assert [msg["name"] for msg in result["messages"]] == ["user", "writer", "critic"]
        assert [(msg.role, msg.text) for msg in models[1].requests[0].messages if msg.role != "system"] == [
            ("user", "Write!"), ("assistant", "A draft."),
        ]  # fmt: skip


@pytest.mark.parametrize("key", ["words", "verdict", "strange"])
async def test_an_agents_reply_is_text_where_text_fits(key: str) -> None:
    agent = ReActAgent(name="solver", model=ScriptedModel(["It is 42."]), output_key=key)
    assert (await single(Talk, "solve", agent).invoke({"input": "?"}))[key] == "It is 42."


@pytest.mark.parametrize("key", ["count", "texts", "facts", "when", "odd", "nowhere", None])
async def test_a_key_that_cannot_take_the_reply_is_an_error_before_the_model_is_asked(key: str | None) -> None:
    model = ScriptedModel(["It is 42."])
    agent = ReActAgent(name="solver", model=model, output_key=key)
    with pytest.raises(StateError, match=f"Agent 'solver' cannot write its reply.*{key or 'solver'}.*`output_key`"):
        await single(Slotted if key is None else Talk, "solve", agent).invoke({"input": "?"})
    assert model.requests == []


async def test_messages_that_do_not_fit_their_key_are_an_error() -> None:
    for update in ({"messages": Msg.user("Hi")}, {"one": [Msg.user("Hi")]}, {"maybe": Msg.user("Hi")}):
        [name] = update
        with pytest.raises(StateError, match=f"`{name}` cannot be stored: it holds"):
            await single(Talk, "node", lambda state, update=update: update).invoke({})


async def test_an_agents_stream_is_part_of_the_graphs() -> None:
    agent = ReActAgent(name="solver", model=ScriptedModel(["It is 42."]))
    events = await read_all(single(Chat, "solve", agent).stream({"input": "?"}))
    chunks = [event for event in events if isinstance(event, ReasoningChunkEvent)]
    assert "".join(chunk.text for chunk in chunks) == "It is 42."
    assert {(chunk.source.agent, chunk.source.path, chunk.source.parent) for chunk in chunks} == {
        ("solver", ("solve",), events[0].source.run)
    }
    assert [isinstance(event, RunEndedEvent) for event in events][-1]


async def test_templates_are_rendered_from_the_graphs_variables() -> None:
    model = ScriptedModel(["Sunny."])
    agent = ReActAgent(name="guide", system_prompt=Template("You are in {city}."), model=model)
    graph = single(Chat, "guide", agent)
    with pytest.raises(TemplateError, match="`city`"):
        await graph.invoke({"input": "?"})
    await graph.invoke({"input": "?"}, variables={"city": "Hangzhou"})
    assert model.requests[-1].messages[0].text == "You are in Hangzhou."


@pytest.mark.parametrize("decision", [Approve(), Reject("no")], ids=["approve", "reject"])
async def test_an_agents_approval_is_given_through_the_graph(place: Place, decision: Any) -> None:
    ran: list[str] = []

    def build() -> CompiledGraph:
        toolkit = Toolkit()

        @toolkit.tool(approval=True)
        def delete(path: str) -> str:
            """Delete a file."""
            ran.append(path)
            return "deleted"

        model = ScriptedModel([[tool_call("delete", path="/x")], "Done."])
        agent = ReActAgent(name="cleaner", model=model, toolkit=toolkit, output_key="summary")
        return single(Chat, "clean", agent, place())

    result = await build().invoke({"input": "Clean up!"}, thread="t")
    assert result.pause is not None
    [wish] = result.pause.wishes
    assert (wish.kind, wish.name, wish.input, wish.path) == ("approval", "delete", {"path": "/x"}, ("clean",))
    with pytest.raises(InputError, match="no decision about call"):
        await build().resume("t", {wish.id: True})
    broken = Breaking(place(), 1)  # the answer is stored, and then the process dies
    graph = build()
    graph._journal = broken  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(Crash):
        await graph.resume("t", {wish.id: decision})
    result = await build().invoke(thread="t")
    assert result["summary"] == "Done."
    assert ran == (["/x"] if isinstance(decision, Approve) else [])


async def test_a_subgraph_with_its_own_store_keeps_its_thread_there() -> None:
    store = MemoryStore()
    graph = single(State, "sub", single(Inner, "node", Counting().node("node"), store))
    await graph.invoke({}, thread="t")
    assert [info.thread for info in await store.threads()] == ["t/sub@1.0.0"]
    assert [info.thread for info in await graph.journal.threads()] == ["t"]
