"""The state: its types, how updates fold, what is stored, and that nobody changes it behind its back."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field, field_serializer

from graph.support import Place
from treadle.errors import StateError
from treadle.graph import END, START, CompiledGraph, StateGraph, append, merge, replace
from treadle.journal import Journal
from treadle.message import Msg


def one_node(state: Any, node: Callable[[Any], Any], store: Journal | None = None) -> CompiledGraph:
    return StateGraph(state).add_node("node", node).add_edge(START, "node").add_edge("node", END).compile(store=store)


def longest(old: str, new: str) -> str:
    return max(old, new, key=len)


class Typed(TypedDict, total=False):
    name: str
    log: Annotated[list[str], append]
    facts: Annotated[dict[str, int], merge]
    total: Annotated[int, operator.add]
    word: Annotated[str, longest]


@dataclass
class Data:
    name: str = ""
    log: Annotated[list[str], append] = field(default_factory=lambda: ["born"])
    facts: Annotated[dict[str, int], merge] = field(default_factory=dict[str, int])
    total: Annotated[int, operator.add] = 100
    word: Annotated[str, longest] = ""


class Model(BaseModel):
    name: str = ""
    log: Annotated[list[str], append] = ["born"]
    facts: Annotated[dict[str, int], merge] = Field(default_factory=dict[str, int])
    total: Annotated[int, operator.add] = 100
    word: Annotated[str, longest] = ""


def add(old: int | None, new: int) -> int:
    return (old or 0) + new


def longer(old: str | None, new: str) -> str:
    return longest(old or "", new)


STRATEGIES: dict[str, Any] = {
    "name": replace,
    "log": append,
    "facts": merge,
    "total": add,
    "word": longer,
}


@pytest.mark.parametrize(
    ("state", "born", "total"),
    [(Typed, [], 0), (Data, ["born"], 100), (Model, ["born"], 100), (STRATEGIES, [], 0)],
    ids=["TypedDict", "dataclass", "pydantic", "strategies"],
)
async def test_updates_fold_as_the_key_says(place: Place, state: Any, born: list[str], total: int) -> None:
    def node(given: Any) -> dict[str, Any]:
        facts: Any = given["facts"] if state in (Typed, STRATEGIES) else given.facts
        assert dict(facts) == {"a": 1, "b": 2}
        return {"name": "new", "log": "two", "facts": {"a": None, "b": 3, "c": 4}, "total": 5, "word": "x"}

    graph = one_node(state, node, place())
    input = {"name": "old", "log": ["one"], "facts": {"a": 1, "b": 2}, "total": 2, "word": "long"}
    result = await graph.invoke(input, thread="t")
    expected = {
        "name": "new",
        "log": [*born, "one", "two"],
        "facts": {"b": 3, "c": 4},
        "total": total + 7,
        "word": "long",
    }
    assert dict(result) == expected
    again = await one_node(state, node, place()).state("t")
    assert again.state == result.state


async def test_dataclasses_and_models_reach_nodes_as_themselves() -> None:
    for kind in (Data, Model):
        seen: list[Any] = []
        result = await one_node(kind, seen.append).invoke({"name": "x"})
        assert type(seen[0]) is type(result.state) is kind
        assert (seen[0].name, seen[0].log, result["name"], len(result), set(result)) == (
            "x", ["born"], "x", 5, {"name", "log", "facts", "total", "word"},
        )  # fmt: skip


async def test_a_slotted_dataclass_is_a_state_too() -> None:
    result = await one_node(Slotted, lambda state: {"n": state.n + 1}).invoke({"n": 1})
    assert (result["n"], result.state) == (2, Slotted(n=2))


@dataclass(frozen=True, slots=True)
class Slotted:
    n: int


async def test_without_a_type_any_key_is_taken_and_replaced() -> None:
    graph = one_node(None, lambda state: {"new": state["a"] + ["x"], "a": None})
    assert (await graph.invoke({"a": [1]})).state == {"a": None, "new": [1, "x"]}


class Loose(TypedDict):
    log: NotRequired[Annotated[list[int], append]]
    n: NotRequired[int]


async def test_keys_that_are_not_required_keep_their_strategy() -> None:
    result = await one_node(Loose, lambda state: {"log": [2], "n": 1}).invoke({"log": 1})
    assert result.state == {"log": [1, 2], "n": 1}


@pytest.mark.parametrize(
    ("update", "says"),
    [
        ({"unknown": 1}, "The state has no key 'unknown'; it has `facts`, `log`, `name`, `total`, `word`."),
        ({"name": object()}, "`name` cannot be stored"),
        ({"name": 7}, "`name` cannot be stored"),
        ({"name": None}, "`name` cannot be stored"),
        ({"log": [1]}, "`log` cannot be stored"),
        ({"log": 1}, "`log` cannot be stored"),
        ({"log": {"a"}}, "`log` cannot be stored"),
        ({"facts": {"a": "x"}}, "`facts` cannot be stored"),
        ({"facts": [1]}, "`facts` cannot be stored"),
        ({"total": "x"}, "`total` cannot be stored"),
    ],
)
async def test_what_does_not_fit_or_cannot_be_stored_is_an_error_that_names_the_key(
    place: Place, update: dict[str, Any], says: str
) -> None:
    graph = one_node(Typed, lambda state: {"word": "w", **update}, place())
    with pytest.raises(StateError) as caught:
        await graph.invoke({"name": "n"}, thread="t")
    assert says in str(caught.value)
    assert caught.value.__notes__ == ["In node 'node' of thread 't'."]
    assert (await graph.state("t")).state == {"name": "n", "log": [], "facts": {}}
    with pytest.raises(StateError) as caught:
        await graph.invoke(update, thread="u")
    assert says in str(caught.value)
    assert (await graph.state("u")).seq == 0


async def test_untyped_values_must_be_storable_too(place: Place) -> None:
    for value in (object(), [object()], {"x": lambda: None}):
        with pytest.raises(StateError, match="`x` cannot be stored"):
            await one_node(None, lambda state: {"x": value}, place()).invoke({})  # noqa: B023


async def test_a_strategy_that_raises_fails_the_step_and_leaves_the_thread_as_it_was(place: Place) -> None:
    broken = True

    def picky(old: int, new: int) -> int:
        if broken and new == 13:
            raise ValueError("unlucky")
        return old + new

    class State(TypedDict, total=False):
        log: Annotated[list[str], append]
        sum: int

    State.__annotations__["sum"] = Annotated[int, picky]

    def build() -> CompiledGraph:
        return one_node(State, lambda state: {"log": ["ran"], "sum": 13}, place())

    graph = build()
    with pytest.raises(StateError, match="`sum` could not be updated: ValueError: unlucky"):
        await graph.invoke({"sum": 1}, thread="t")
    for found in (graph, build()):
        at = await found.state("t")
        assert (at.state, at.next, at.reason) == ({"log": [], "sum": 1}, ("node",), "failed")
    with pytest.raises(StateError, match="unlucky"):
        await graph.invoke(thread="t")
    with pytest.raises(StateError, match="unlucky"):
        await graph.invoke({"sum": 13}, thread="t")
    broken = False
    assert (await graph.invoke(thread="t")).state == {"log": ["ran"], "sum": 14}
    assert (await build().state("t")).state == {"log": ["ran"], "sum": 14}


class Colour(Enum):
    RED = "red"


class Inner(BaseModel):
    number: int = Field(alias="no")
    at: datetime


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()


class Rich(TypedDict, total=False):
    data: bytes
    at: datetime
    colour: Colour
    path: PurePosixPath
    kind: Literal["a", "b"]
    maybe: int | None
    real: float
    reals: list[float]
    chosen: set[int]
    model: Inner
    models: Annotated[list[Inner], append]
    points: Annotated[dict[str, Point], merge]
    times: Annotated[list[datetime], append]
    blobs: Annotated[list[bytes], append]
    messages: Annotated[list[Msg], append]
    answer: Msg | None
    anything: Any


async def test_rich_values_come_back_as_they_were(place: Place) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    inner = Inner.model_validate({"no": 7, "at": at})
    msg = Msg.user("hello")
    values: Rich = {
        "data": b"\x00\xff", "at": at, "colour": Colour.RED, "path": PurePosixPath("/tmp"), "kind": "b", "maybe": None,
        "real": 3, "reals": [1.5, math.inf], "chosen": {1, 2}, "model": inner, "models": [inner],
        "points": {"p": Point(1.5, ("a",))}, "times": [at], "blobs": [b"\xfe"], "messages": [msg], "answer": msg,
        "anything": {"deep": [1, None, "x"]},
    }  # fmt: skip

    def node(state: Rich) -> Rich:
        assert state == values
        return {"times": at, "blobs": b"\xfd", "models": inner, "messages": Msg.assistant("hi")}  # type: ignore[typeddict-item]

    graph = one_node(Rich, node, place())
    result = await graph.invoke(values, thread="t")
    fresh = await one_node(Rich, node, place()).state("t")
    assert {name: result[name] for name in ("times", "blobs", "models")} == {
        "times": [at, at], "blobs": [b"\xfe", b"\xfd"], "models": [inner, inner],
    }  # fmt: skip
    assert [m.text for m in result["messages"]] == ["hello", "hi"]
    assert fresh.state == result.state


@pytest.mark.parametrize(
    "update",
    [{"messages": "text"}, {"messages": [1]}, {"messages": None}, {"answer": "x"}, {"kind": "c"}, {"at": "now"}],
)
async def test_wrong_types_are_refused_before_they_are_stored(update: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="cannot be stored"):
        await one_node(Rich, lambda state: update).invoke({})


async def test_bytes_that_a_models_own_settings_cannot_write_are_refused() -> None:
    class Holder(BaseModel):
        data: bytes

    with pytest.raises(StateError, match="`holder` cannot be stored"):
        await one_node({"holder": replace}, lambda state: {"holder": Holder(data=b"\xff")}).invoke({})


class Mutable(TypedDict, total=False):
    plain: list[int]
    nested: dict[str, list[int]]
    grown: Annotated[list[dict[str, int]], append]
    merged: Annotated[dict[str, list[int]], merge]
    folded: Annotated[list[int], operator.add]
    model: Inner


async def test_nodes_that_change_what_they_were_given_do_not_change_the_state(place: Place) -> None:
    inner = Inner.model_validate({"no": 7, "at": datetime(2026, 1, 1, tzinfo=UTC)})

    def values() -> Mutable:
        return {
            "plain": [1], "nested": {"a": [1]}, "grown": [{"a": 1}], "merged": {"a": [1]}, "folded": [1],
            "model": inner.model_copy(),
        }  # fmt: skip

    def vandal(state: Mutable) -> None:
        assert state == values()
        state["plain"].append(2)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        state["nested"]["a"].append(2)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        for item in state["grown"]:  # pyright: ignore[reportTypedDictNotRequiredAccess]
            item["a"] = 2
        state["grown"][0]["a"] = state["grown"][:][0]["a"] = 3  # pyright: ignore[reportTypedDictNotRequiredAccess]
        state["merged"]["a"].append(2)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        next(iter(state["merged"].values())).append(2)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        state["folded"].append(2)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        state["model"].number = 8  # pyright: ignore[reportTypedDictNotRequiredAccess]
        state["new"] = 1  # type: ignore[typeddict-unknown-key]
        with pytest.raises((TypeError, AttributeError)):
            state["grown"].append({})  # pyright: ignore[reportTypedDictNotRequiredAccess]
        with pytest.raises(TypeError):
            state["merged"]["b"] = []  # pyright: ignore[reportTypedDictNotRequiredAccess]

    graph = one_node(Mutable, vandal, place())
    given = values()
    result = await graph.invoke(given, thread="t")
    assert dict(result) == values()
    vandal_of_result: Any = result.state
    vandal_of_result["plain"].append(5)
    vandal_of_result["grown"][0]["a"] = 5
    given["plain"].append(6)  # pyright: ignore[reportTypedDictNotRequiredAccess]
    await graph.invoke({}, thread="t")  # the vandal finds everything as it was
    assert (await graph.state("t")).state == values()


async def test_growing_values_can_be_read_like_lists_and_dicts() -> None:
    def node(state: Any) -> None:
        grown, merged = state["grown"], state["merged"]
        assert (len(grown), grown[-1], grown[1:], list(reversed(grown))) == (
            2,
            {"a": 2},
            [{"a": 2}],
            [{"a": 2}, {"a": 1}],
        )
        assert grown == [{"a": 1}, {"a": 2}]
        assert grown == ({"a": 1}, {"a": 2})
        assert grown.__add__([{}]) == [{"a": 1}, {"a": 2}, {}]
        assert {"a": 2} in grown
        assert repr(grown) == "[{'a': 1}, {'a': 2}]"
        assert merged == {"x": [1]}
        assert merged | {"y": [2]} == {**merged, "y": [2]} == {"x": [1], "y": [2]}
        assert ("x" in merged, merged.get("z"), repr(merged)) == (True, None, "{'x': [1]}")

    await one_node(Mutable, node).invoke({"grown": [{"a": 1}, {"a": 2}], "merged": {"x": [1]}})


async def test_a_node_may_return_what_it_was_given() -> None:
    graph = one_node(Mutable, lambda state: {"grown": state["grown"], "merged": state["merged"]})
    result = await graph.invoke({"grown": [{"a": 1}], "merged": {"x": [1]}})
    assert (result["grown"], result["merged"]) == ([{"a": 1}, {"a": 1}], {"x": [1]})


async def test_a_state_that_does_not_fit_its_type_is_a_clear_error() -> None:
    class Needs(BaseModel):
        n: int

    with pytest.raises(StateError, match="The state does not fit its type"):
        await one_node(Needs, lambda state: None).invoke({})
    with pytest.raises(StateError, match="cannot be the state of a graph"):
        await one_node(None, lambda state: None).invoke(7)  # type: ignore[arg-type]


class OneWay(BaseModel):
    x: int

    @field_serializer("x")
    def write(self, x: int) -> str:
        return "not a number"


async def test_a_branch_whose_value_cannot_be_read_back_fails_alone(place: Place) -> None:
    class State(TypedDict, total=False):
        bad: Any
        good: int

    State.__annotations__["bad"] = OneWay
    graph = StateGraph(State).add_node("bad", lambda state: {"bad": OneWay(x=1)})
    graph.add_node("good", lambda state: {"good": 1})
    for name in ("bad", "good"):
        graph.add_edge(START, name).add_edge(name, END)
    compiled = graph.compile(store=place())
    with pytest.raises(StateError, match="stored value of `bad` does not fit its type"):
        await compiled.invoke({}, thread="t")
    assert (await compiled.state("t")).next == ("bad",)
