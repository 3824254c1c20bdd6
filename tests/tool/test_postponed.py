"""Annotations that are text when the tool is made."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tool.support import output
from treadle.errors import ToolDefinitionError
from treadle.tool import FunctionTool, tool

if TYPE_CHECKING:
    from decimal import Decimal

    from treadle.tool import ToolContext


@dataclass
class Point:
    x: int


@tool
def move(point: Point, by: int | None = None) -> int:
    return point.x + (by or 0)


def test_names_of_the_module_are_found() -> None:
    assert move.parameters["required"] == ["point"]
    assert move.validate({"point": {"x": "4"}}) == {"point": Point(4)}


def test_names_of_the_defining_function_are_found() -> None:
    @dataclass
    class Local:
        y: int

    @tool
    def use(item: Local, items: list[Local]) -> int:
        return item.y

    assert use.validate({"item": {"y": 1}, "items": []}) == {"item": Local(1), "items": []}


def test_names_of_an_enclosing_function_that_has_returned_are_found_if_they_are_used() -> None:
    def make() -> Any:
        class Local:
            pass

        def use(item: Local) -> str:
            return Local.__name__

        return use

    assert FunctionTool(make()).parameters["properties"] == {}


async def test_our_own_names_may_be_imported_for_type_checking_only() -> None:
    @tool
    async def who(ctx: ToolContext) -> str:
        return ctx.call_id

    assert await output(who) == "call-1"


def test_a_name_that_is_nowhere_is_an_error_that_names_the_parameter() -> None:
    def pay(amount: Decimal) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"`pay`.*'Decimal'.*`amount`.*TYPE_CHECKING"):
        FunctionTool(pay)


def test_a_return_annotation_is_nobodys_business() -> None:
    def pay(amount: int) -> Decimal: ...

    assert FunctionTool(pay).parameters["required"] == ["amount"]


def test_functions_are_forgotten_with_their_last_user() -> None:
    def make() -> Any:
        def temporary(a: int) -> int:
            return a

        return temporary

    function = make()
    known = weakref.ref(function)
    FunctionTool(function).validate({"a": "1"})
    del function
    gc.collect()
    assert known() is None
