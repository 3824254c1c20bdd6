"""Sets of tools, tools from schemas, and tools as classes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tool.support import context_of, invoke, output
from treadle.errors import InputError, ToolDefinitionError, ToolInputError
from treadle.tool import FunctionTool, Suspend, Tool, ToolContext, Toolkit, ToolResult, tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
    "additionalProperties": False,
}


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def negate(a: int) -> int:
    return -a


def test_a_toolkit_is_a_set_with_an_order() -> None:
    toolkit = Toolkit([add, negate])
    assert [item.name for item in toolkit] == ["add", "negate"]
    assert (len(toolkit), "add" in toolkit, "other" in toolkit) == (2, True, False)
    assert toolkit.get("add") is next(iter(toolkit))
    assert toolkit.get("other") is None
    assert repr(toolkit) == "Toolkit(add, negate)"


def test_specs_are_made_once_until_the_toolkit_changes() -> None:
    toolkit = Toolkit([add])
    before = toolkit.specs()
    assert toolkit.specs() is before
    toolkit.add(negate)
    assert [spec.name for spec in toolkit.specs()] == ["add", "negate"]
    toolkit.remove("add")
    assert [spec.name for spec in toolkit.specs()] == ["negate"]


def test_the_decorator_returns_the_function() -> None:
    toolkit = Toolkit()
    assert toolkit.tool(add) is add
    assert toolkit.tool(name="minus", read_only=True)(negate) is negate
    minus = toolkit.get("minus")
    assert minus is not None
    assert minus.repeatable


def test_two_tools_of_one_name() -> None:
    toolkit = Toolkit([add])
    with pytest.raises(ToolDefinitionError, match=r"`add` already.*name=.*replace=True"):
        toolkit.add(add)
    assert toolkit.add(add, replace=True) is toolkit.get("add")
    assert toolkit.add(add, name="plus").name == "plus"


def test_toolkits_are_combined_by_iteration() -> None:
    parent = Toolkit([add], parallel=False)
    child = Toolkit([*parent, negate])
    assert [item.name for item in Toolkit(child)] == ["add", "negate"]
    assert (len(parent), child.get("add")) == (1, parent.get("add"))
    assert (parent.parallel, child.parallel, child.max_parallel) == (False, True, 64)


def test_misuse_is_told() -> None:
    toolkit = Toolkit([add])
    with pytest.raises(InputError, match="no tool `other`; there are add"):
        toolkit.remove("other")
    with pytest.raises(ToolDefinitionError, match="a tool already"):
        toolkit.add(tool(negate), timeout=3)
    with pytest.raises(ToolDefinitionError, match="max_parallel"):
        Toolkit(max_parallel=0)


def test_options_become_attributes() -> None:
    made = FunctionTool(
        add,
        idempotent=True,
        sequential=True,
        ends_run=True,
        timeout=2.5,
        retries=3,
        approval=lambda input: input["a"] > 5,
    )
    assert (made.idempotent, made.read_only, made.sequential, made.ends_run) == (True, False, True, True)
    assert (made.timeout, made.retries, made.external) == (2.5, 3, False)
    assert (made.needs_approval({"a": 6}), made.needs_approval({"a": 5})) == (True, False)
    assert (FunctionTool(add).needs_approval({}), FunctionTool(add, approval=True).needs_approval({})) == (False, True)


def test_an_approval_function_that_raises_says_whose_it_is() -> None:
    made = FunctionTool(add, approval=lambda input: input["amount"] > 5)
    with pytest.raises(KeyError) as caught:
        made.needs_approval({"a": 6})
    assert caught.value.__notes__ == ["In the `approval` function of tool `add`."]


# From a schema


async def test_a_tool_from_a_schema() -> None:
    def weather(city: str, days: list[int] | None = None, *, ctx: ToolContext, unit: str) -> str:
        return f"{city} {days} {ctx.call_id} {unit}"

    made = FunctionTool.from_schema("weather", "The weather.", SCHEMA, weather, presets={"unit": "C"}, read_only=True)
    assert (made.spec.name, made.spec.description, made.spec.parameters) == ("weather", "The weather.", {**SCHEMA})
    assert await output(made, {"city": "Hangzhou", "days": [1]}) == "Hangzhou [1] call-1 C"
    assert made.read_only


async def test_arguments_that_the_schema_forbids_are_refused_with_their_paths() -> None:
    made = FunctionTool.from_schema("weather", "", SCHEMA)
    with pytest.raises(ToolInputError) as caught:
        made.validate({"days": [1, "2"], "x": 1})
    text = str(caught.value)
    assert [part for part in ("city", "- `days[1]`: ", "'x'") if part not in text] == []


async def test_a_preset_is_left_out_of_a_given_schema() -> None:
    def weather(city: str) -> str:
        return city.lower()

    made = FunctionTool.from_schema("weather", "", SCHEMA, weather, presets={"city": "Hangzhou"}, locked="city")
    assert made.parameters["required"] == []
    assert list(made.parameters["properties"]) == ["days"]
    assert await output(made) == "hangzhou"
    with pytest.raises(ToolInputError, match="- `city`: is provided"):
        made.validate({"city": "EVIL"})
    free = FunctionTool.from_schema("weather", "", SCHEMA, weather, presets={"city": "Hangzhou"})
    assert await output(free, {"city": "Paris"}) == "paris"


async def test_a_hidden_parameter_cannot_be_given_through_an_open_schema() -> None:
    def weather(ctx: ToolContext, **rest: Any) -> str:
        return ctx.call_id

    made = FunctionTool.from_schema("weather", "", {"type": "object"}, weather)
    assert await output(made, {"any": 1}) == "call-1"
    with pytest.raises(ToolInputError, match="- `ctx`: is provided"):
        made.validate({"ctx": 1})


async def test_a_schema_without_a_function_is_external() -> None:
    made = FunctionTool.from_schema("weather", "", SCHEMA)
    assert made.external
    assert made.validate({"city": "Hangzhou"}) == {"city": "Hangzhou"}
    with pytest.raises(Suspend, match="`weather` is run elsewhere"):
        await invoke(made, {"city": "Hangzhou"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "integr"}}},
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_at_registration(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError, match="`weather`: its parameters"):
        FunctionTool.from_schema("weather", "", schema)


# As a class


class Echo(Tool):
    name = "echo"
    description = "Say it again."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    idempotent = True

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        return ToolResult(output=f"{arguments['text']} {ctx.call_id}")


async def test_a_tool_as_a_class() -> None:
    echo = Echo()
    assert Toolkit([echo]).specs() == (echo.spec,)
    assert echo.spec is echo.spec
    assert (echo.repeatable, repr(echo)) == (True, "Echo('echo')")
    assert await output(echo, {"text": "hi"}) == "hi call-1"
    with pytest.raises(ToolInputError, match="`text`: 1 is not of type"):
        echo.validate({"text": 1})


async def test_a_class_without_run_says_so() -> None:
    class Empty(Tool):
        name = "empty"

    with pytest.raises(NotImplementedError, match="Empty must override `run`"):
        await Empty().run({}, context_of())


def test_plain_functions_need_no_pydantic() -> None:
    code = (
        "import sys\n"
        "from treadle.tool import Toolkit\n"
        "def add(a: int, b: list[str] | None = None, c: dict[str, int] = {}) -> int: ...\n"
        "tool = Toolkit().add(add)\n"
        "tool.spec, Toolkit().add(lambda a: a, name='x').validate\n"
        "print([name for name in ('pydantic', 'pydantic_core', 'jsonschema_rs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_decorated_functions_keep_their_types() -> None:
    made = tool(add)
    total: int = made(1, 2)
    assert total == 3
    assert cast(Any, made).function is add
