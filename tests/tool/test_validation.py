"""What validates is passed exactly; what does not is refused with its path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from treadle.errors import ToolInputError
from treadle.tool import Context, FunctionTool, ToolContext, tool


class Secret:
    pass


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def many(
    number: int,
    text: str,
    flag: bool,
    ratio: float,
    items: list[int],
    table: dict[str, list[str]],
    maybe: int | None = None,
) -> None: ...


@tool
def open_ended(a: int, ctx: ToolContext, secret: Secret, **rest: int) -> None: ...


numbers = st.integers(min_value=-(2**70), max_value=2**70)
valid = st.fixed_dictionaries(
    {
        "number": numbers,
        "text": st.text(),
        "flag": st.booleans(),
        "ratio": st.floats(allow_nan=False),
        "items": st.lists(numbers),
        "table": st.dictionaries(st.text(), st.lists(st.text())),
    },
    optional={"maybe": st.none() | numbers},
)


def exactly(value: Any) -> Any:
    """A value with the types of everything in it."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [exactly(item) for item in cast(list[Any], value)]
    return type(value), value


@given(valid)
def test_valid_arguments_are_passed_exactly(arguments: dict[str, Any]) -> None:
    assert exactly(many.validate(arguments)) == exactly(arguments)


@given(valid, st.sampled_from(["number", "flag", "ratio", "items"]), st.sampled_from([{}, "x", [None], {"a": 1}]))
def test_invalid_arguments_are_refused_with_their_path(arguments: dict[str, Any], name: str, wrong: Any) -> None:
    with pytest.raises(ToolInputError) as caught:
        many.validate({**arguments, name: wrong})
    assert f"- `{name}" in str(caught.value)


@given(valid, st.integers(0, 3))
def test_paths_lead_into_containers(arguments: dict[str, Any], place: int) -> None:
    with pytest.raises(ToolInputError) as caught:
        many.validate({**arguments, "table": {"key": ["x"] * place + [1]}})
    assert f"- `table.key[{place}]`: " in str(caught.value)


def slow(
    a: Annotated[int, Field()], b: Annotated[str, Field()], c: Annotated[float, Field()] = 1, d: bool | None = None
) -> None: ...
def fast(a: int, b: str, c: float = 1, d: bool | None = None) -> None: ...


checked, unchecked = FunctionTool(slow, name="same"), FunctionTool(fast, name="same")
values = st.one_of(numbers, st.text(), st.floats(allow_nan=False), st.booleans(), st.none())


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), values))
def test_the_fast_path_and_the_validator_agree(arguments: dict[str, Any]) -> None:
    def outcome(function: FunctionTool[..., Any]) -> Any:
        try:
            return exactly(function.validate(arguments))
        except ToolInputError as error:
            return str(error)

    assert outcome(unchecked) == outcome(checked)


@dataclass(frozen=True, kw_only=True)
class Case:
    given: dict[str, Any]
    taken: dict[str, Any] | None = None
    problems: tuple[str, ...] = ()


CASES = [
    Case(given={"a": 1, "b": 2}, taken={"a": 1, "b": 2}),
    Case(given={"a": "5", "b": 5.0}, taken={"a": 5, "b": 5}),
    Case(given={"a": 5.5, "b": 1}, problems=("- `a`: Input should be a valid integer",)),
    Case(given={"a": "x", "b": None}, problems=("- `a`: ", "- `b`: ", "got 'x'", "got None")),
    Case(given={}, problems=("- `a`: is missing", "- `b`: is missing")),
    Case(given={"a": 1, "b": 2, "c": 3}, problems=("- `c`: there is no such argument",)),
    Case(given={"a": 1, "c": 3}, problems=("- `b`: is missing", "- `c`: there is no such argument")),
    Case(given={"a": "x" * 500, "b": 1}, problems=("...",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.given)[:40])
def test_arguments_of_add(case: Case) -> None:
    if case.taken is not None:
        assert exactly(add.validate(case.given)) == exactly(case.taken)
        return
    with pytest.raises(ToolInputError) as caught:
        add.validate(case.given)
    text = str(caught.value)
    assert text.startswith("The arguments of `add` are not valid:\n- ")
    assert [problem for problem in case.problems if problem not in text] == []
    assert len(text) < 400


def test_a_flood_of_problems_is_cut() -> None:
    with pytest.raises(ToolInputError, match="and 80 more"):
        many.validate({"number": 1, "text": "", "flag": True, "ratio": 1.0, "items": ["x"] * 100, "table": {}})


def test_extra_arguments_are_checked_against_the_annotation() -> None:
    assert open_ended.validate({"a": 1, "x": "2"}) == {"a": 1, "x": 2}
    with pytest.raises(ToolInputError, match="- `x`: "):
        open_ended.validate({"a": 1, "x": "two"})


@pytest.mark.parametrize("name", ["ctx", "secret"])
def test_the_model_cannot_give_what_is_injected(name: str) -> None:
    with pytest.raises(ToolInputError, match=f"- `{name}`: is provided by the application"):
        open_ended.validate({"a": 1, name: 1})


def test_arguments_are_a_copy() -> None:
    given = {"a": 1, "b": 2}
    assert add.validate(given) is not given


def test_a_context_shows_no_values() -> None:
    assert repr(Context(Secret(), key="hush")) == "Context(Secret, key=...)"
