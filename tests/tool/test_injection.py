"""Who provides an argument: the model, then the preset, then the context, then the default."""

from __future__ import annotations

import logging
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tool.support import Progress, context_of, invoke, output
from treadle.errors import ToolDefinitionError, ToolError, ToolInputError
from treadle.message import TextBlock, ToolUseBlock
from treadle.tool import Context, FunctionTool, Tool, ToolContext, Toolkit, tool

KEY = "sk-1234567890"


class Database:
    name = "main"


class Replica(Database):
    name = "replica"


@dataclass
class User:
    name: str


@typing.runtime_checkable
class Named(typing.Protocol):
    name: str


def city_of(city: str = "default") -> str:
    return city


def call_id_of(ctx: ToolContext) -> str:
    return ctx.call_id


@dataclass(frozen=True, kw_only=True)
class Case:
    expected: str
    input: dict[str, Any] = field(default_factory=dict[str, Any])
    presets: dict[str, Any] = field(default_factory=dict[str, Any])
    context: Context | None = None


PRIORITY = [
    Case(expected="model", input={"city": "model"}, presets={"city": "preset"}, context=Context(city="context")),
    Case(expected="preset", presets={"city": "preset"}, context=Context(city="context")),
    Case(expected="preset", presets={"city": lambda: "preset"}, context=Context(city="context")),
    Case(expected="call-1", presets={"city": call_id_of}),
    Case(expected="context", context=Context(city="context")),
    Case(expected="default", context=Context("not by type")),
    Case(expected="default"),
]


@pytest.mark.parametrize("case", PRIORITY, ids=lambda case: case.expected)
async def test_priority(case: Case) -> None:
    assert await output(FunctionTool(city_of, presets=case.presets), case.input, case.context) == case.expected


async def test_a_preset_is_made_for_every_call() -> None:
    count = iter(range(10))
    counted = FunctionTool(city_of, presets={"city": lambda: str(next(count))})
    assert [await output(counted), await output(counted)] == ["0", "1"]


def test_presets_are_left_out_of_the_schema() -> None:
    def find(query: str, city: str, api_key: str) -> None: ...

    tool = FunctionTool(find, presets={"city": "Hangzhou", "api_key": KEY}, locked=["api_key"])
    assert tool.parameters["properties"].keys() == {"query"}
    assert tool.parameters["required"] == ["query"]


def test_presets_of_one_toolkit_are_not_those_of_another() -> None:
    first, second = Toolkit(), Toolkit()
    first.add(city_of, presets={"city": "Hangzhou"})
    second.add(city_of)
    assert [list(kit.specs()[0].parameters["properties"]) for kit in (first, second)] == [[], ["city"]]


def test_definitions_that_only_a_preset_uses_are_left_out_too() -> None:
    def rename(user: User, to: str) -> None: ...

    assert "$defs" in FunctionTool(rename).parameters
    assert "$defs" not in FunctionTool(rename, presets={"user": User("Ada")}).parameters


async def test_a_preset_may_fill_extra_keyword_arguments() -> None:
    def show(**rest: str) -> dict[str, str]:
        return rest

    assert await output(FunctionTool(show, presets={"key": "1"}), {"a": "b"}) == '{"a":"b","key":"1"}'


async def test_objects_are_injected_by_type() -> None:
    @tool
    async def query(sql: str, db: Database, named: Named, ctx: ToolContext, context: Context) -> list[Any]:
        return [sql, db.name, named.name, ctx.context is context, context["region"]]

    context = Context(7, Replica(), Database(), region="eu")
    assert await output(query, {"sql": "select"}, context) == '["select","replica","replica",true,"eu"]'


async def test_an_object_given_by_name_is_taken_before_one_given_by_type() -> None:
    @tool
    async def query(db: Database) -> str:
        return db.name

    assert await output(query, {}, Context(Database(), db=Replica())) == "replica"
    assert await output(query, {}, Context(Database(), db="not a database")) == "main"


async def test_what_is_not_in_the_context_is_missed_by_its_type() -> None:
    @tool
    async def query(db: Database, other: Database | None = None) -> str:
        return f"{db.name} {other and other.name}"

    for context in (None, Context(), Context(3)):
        with pytest.raises(ToolError, match=r"`query` needs an object of type `Database` for `db`"):
            await output(query, {}, context)
    assert await output(query, {}, Context(db=Database())) == "main None"


async def test_parameters_named_as_injected_come_from_the_context_only() -> None:
    def show(user: User, region: str, query: str) -> str:
        return f"{user.name} {region} {query}"

    injecting = FunctionTool(show, injected=("user", "region"))
    assert injecting.parameters["properties"].keys() == {"query"}
    assert await output(injecting, {"query": "q"}, Context(User("Ada"), region="eu")) == "Ada eu q"
    with pytest.raises(ToolInputError, match="- `region`: is provided by the application"):
        injecting.validate({"query": "q", "region": "us"})
    with pytest.raises(ToolError, match="`show` needs `region`"):
        await output(injecting, {"query": "q"}, Context(User("Ada")))


async def test_an_optional_parameter_may_come_from_the_context() -> None:
    def show(user: User | None = None) -> str:
        return user.name if user else "nobody"

    made = FunctionTool(show)
    assert await output(made, {}, Context(User("Ada"))) == "Ada"
    assert await output(made, {"user": {"name": "Bob"}}, Context(User("Ada"))) == "Bob"
    assert await output(made) == "nobody"


# Locked presets


def fail(error: str, key: str) -> str:
    raise ValueError(error.format(key=key))


async def fail_async(error: str, key: str) -> str:
    raise ValueError(error.format(key=key))


def locked(function: Callable[..., Any], value: Any = KEY) -> Tool:
    return FunctionTool(function, presets={"key": value}, locked="key")


def test_a_locked_preset_cannot_be_given_by_the_model() -> None:
    with pytest.raises(ToolInputError) as caught:
        locked(fail).validate({"error": "", "key": "EVIL"})
    assert "- `key`: is provided by the application" in str(caught.value)


def test_a_locked_preset_is_in_no_schema_and_no_repr() -> None:
    tool = locked(fail)
    shown = [repr(tool), repr(tool.spec), str(tool.parameters), repr(Toolkit([tool])), repr(context_of())]
    assert [text for text in shown if KEY in text] == []


@pytest.mark.parametrize("function", [fail, fail_async])
@pytest.mark.parametrize("value", [KEY, lambda: KEY])
async def test_a_locked_preset_is_in_no_error(function: Callable[..., Any], value: Any) -> None:
    with pytest.raises(ToolError) as caught:
        await invoke(locked(function, value), {"error": "GET /?key={key} failed"})
    assert str(caught.value) == "ValueError: GET /?key=*** failed"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("function", [fail, fail_async])
async def test_errors_that_show_nothing_locked_stay_as_they_are(function: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^failed$"):
        await invoke(locked(function), {"error": "failed"})


async def test_a_preset_that_cannot_be_made_says_only_which() -> None:
    def broken() -> str:
        raise RuntimeError(KEY)

    with pytest.raises(ToolError) as caught:
        await invoke(locked(fail, broken), {"error": ""})
    assert str(caught.value) == "`fail`: the preset `key` could not be made (RuntimeError)."
    assert caught.value.__context__ is None


def test_presets_are_sync() -> None:
    async def later() -> str:
        return KEY

    with pytest.raises(ToolDefinitionError, match="`key` is async"):
        locked(fail, later)


# The context of a call


async def test_what_a_tool_learns_about_its_call(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def look(it: ToolContext) -> list[Any]:
        it.logger.warning("looking")
        await it.emit("half way")
        return [it.call_id, it.call.name, it.thread, it.agent, it.run, it.cancelled]

    progress = Progress()
    with caplog.at_level(logging.WARNING):
        result = await invoke(look, thread="t", agent="a", run="r", emitter=progress)
    assert result.output == '["call-1","look","t","a","r",false]'
    assert progress.chunks == ["half way"]
    assert caplog.record_tuples == [("treadle.tool.look", logging.WARNING, "looking")]


async def test_a_locked_preset_is_in_no_result_and_no_progress() -> None:
    shown: list[Any] = []

    async def fetch(key: str, ctx: ToolContext) -> AsyncIterator[str]:
        await ctx.emit(f"asking with {key}")
        yield f"half of {key}"
        yield f"https://example.org/?key={key}"

    def echo(key: str) -> list[TextBlock]:
        return [TextBlock(text=f"key={key}")]

    async def emit(chunk: Any) -> None:
        shown.append(chunk)

    presets = {"key": "s3cret-value"}
    call = ToolUseBlock(id="1", name="fetch", input={})
    slow = FunctionTool(fetch, presets=presets, locked="key")
    quick = FunctionTool(echo, presets=presets, locked="key")
    first = await slow.run({}, ToolContext(call, emitter=emit))
    second = await quick.run({}, ToolContext(call))
    assert first.output == "https://example.org/?key=***"
    assert second.output == (TextBlock(text="key=***"),)
    assert shown[0] == "asking with ***"
    assert "s3cret" not in repr([shown, first, second])
