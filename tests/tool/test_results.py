"""What a return value becomes."""

from __future__ import annotations

import datetime
import enum
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from tool.support import invoke
from treadle.message import Base64Source, ImageBlock, TextBlock
from treadle.tool import FunctionTool, ToolResult

IMAGE = ImageBlock(source=Base64Source(data="aGk=", media_type="image/png"))
TEXT = TextBlock(text="hi")


class Model(BaseModel):
    n: int
    at: datetime.date = datetime.date(2026, 1, 2)


@dataclass
class Point:
    x: int
    inner: Model


class Pair(NamedTuple):
    a: int
    b: str


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


class Odd:
    pass


@dataclass(frozen=True, kw_only=True)
class Case:
    value: Any
    output: Any


CASES = [
    Case(value="text", output="text"),
    Case(value="文字", output="文字"),
    Case(value="lone \ud800 surrogate", output="lone ? surrogate"),
    Case(value=Word.YES, output="yes"),
    Case(value=None, output=""),
    Case(value=7, output="7"),
    Case(value=2**70, output=str(2**70)),
    Case(value=True, output="true"),
    Case(value=1.5, output="1.5"),
    Case(value=math.inf, output="Infinity"),
    Case(value={"a": [1, None], "b": "文"}, output='{"a":[1,null],"b":"文"}'),
    Case(value={"a": "\ud800"}, output='{"a":"?"}'),
    Case(value=[], output="[]"),
    Case(value=(1, "2"), output='[1,"2"]'),
    Case(value={3}, output="[3]"),
    Case(value=Pair(1, "x"), output='[1,"x"]'),
    Case(value=Colour.RED, output='"red"'),
    Case(value=datetime.date(2026, 1, 2), output='"2026-01-02"'),
    Case(value=Model(n=1), output='{"n":1,"at":"2026-01-02"}'),
    Case(value=[Model(n=1)], output='[{"n":1,"at":"2026-01-02"}]'),
    Case(value=Point(1, Model(n=2)), output='{"x":1,"inner":{"n":2,"at":"2026-01-02"}}'),
    Case(value=TEXT, output=(TEXT,)),
    Case(value=[TEXT, IMAGE], output=(TEXT, IMAGE)),
    Case(value=("look", IMAGE), output=(TextBlock(text="look"), IMAGE)),
    Case(value=ToolResult(output="x\ud800"), output="x?"),
    Case(value=ToolResult(output=(TEXT,)), output=(TEXT,)),
    Case(value=ToolResult(output=[TEXT]), output=(TEXT,)),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.value)[:40])
async def test_output(case: Case) -> None:
    async def give() -> Any:
        return case.value

    assert await invoke(FunctionTool(give)) == ToolResult(output=case.output)


async def test_a_result_is_taken_as_it_is() -> None:
    result = ToolResult(output="no", status="error", metadata={"code": 3}, ends_run=True)

    async def give() -> ToolResult:
        return result

    assert await invoke(FunctionTool(give)) is result


cycle: list[Any] = []
cycle.append(cycle)
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"bytes", "bytes"),
        (bytearray(b"bytes"), "bytearray"),
        (Odd(), "Odd"),
        ([Odd()], "list"),
        ([TEXT, Odd()], "Odd"),
        (cycle, "list"),
        (deep, "list"),
        (10**5000, "int"),
        (Odd, "type"),
        (ToolResult(output=b""), "bytes"),  # pyright: ignore[reportArgumentType]
    ],
    ids=["bytes", "bytearray", "object", "list", "mixed", "cycle", "deep", "int", "class", "result"],
)
async def test_what_cannot_be_shown_is_an_error_result(value: Any, kind: str) -> None:
    async def give() -> Any:
        return value

    result = await invoke(FunctionTool(give))
    assert result.status == "error"
    assert isinstance(result.output, str)
    assert result.output.startswith(f"[ERROR] `give` returned a value of type `{kind}` that cannot be shown")
