"""Hooks made of one function, and what type checkers say about them.

Every `pyright: ignore` in here is an error that must be there: pyright complains about one that is not needed.
"""

from __future__ import annotations

import io
from typing import Any

import pytest

from hook.support import ADD, agent_of, model_of
from treadle import Msg
from treadle.event import (
    ErrorEvent,
    Event,
    PostActingEvent,
    PostPrintEvent,
    PostReasoningEvent,
    PreActingEvent,
    PrePrintEvent,
    PreReasoningEvent,
)
from treadle.hook import (
    CallModel,
    CallTool,
    ToolCall,
    around_model,
    around_tool,
    on,
    on_error,
    post_acting,
    post_call,
    post_reasoning,
    post_summary,
    pre_acting,
    pre_call,
    pre_print,
    pre_reasoning,
    pre_summary,
)
from treadle.model import ModelRequest, ModelResponse
from treadle.tool import ToolResult


async def test_a_decorated_function_is_a_hook_and_still_a_function() -> None:
    seen: list[int] = []

    @pre_reasoning
    async def counts(event: PreReasoningEvent) -> None:
        """Count."""
        seen.append(event.iteration)

    assert (counts.name, counts.priority, counts.events, counts.__doc__) == (
        "counts",
        100,
        (PreReasoningEvent,),
        "Count.",
    )
    assert repr(counts) == "FunctionHook(counts)"
    await agent_of([ADD, "42"], counts).call("Hello")
    assert seen == [0, 1]
    await counts(seen_in_a_test())
    assert seen == [0, 1, 7]


def seen_in_a_test() -> PreReasoningEvent:
    from treadle.event import Source

    return PreReasoningEvent(source=Source(run="r", thread="t", agent="A"), messages=[], iteration=7)


async def test_priority_and_name_are_given_to_the_decorator() -> None:
    @post_reasoning(priority=7, name="last")
    async def hook(event: PostReasoningEvent) -> None: ...

    @around_tool(priority=8, name="tools")
    async def tools(call: ToolCall, call_next: CallTool) -> ToolResult:
        return await call_next(call)

    @around_model(priority=9, name="models")
    async def models(request: ModelRequest, call_next: CallModel) -> ModelResponse:
        return await call_next(request)

    assert [(made.name, made.priority) for made in (hook, tools, models)] == [("last", 7), ("tools", 8), ("models", 9)]
    agent = agent_of(["Hi."], hook, models, tools)
    agent.remove_hook("last")
    assert agent.hooks == (tools, models)


async def test_functions_need_not_be_async() -> None:
    seen: list[str] = []

    @pre_reasoning
    def hints(event: PreReasoningEvent) -> None:
        event.messages = [*event.messages, Msg.user("Hint.")]

    @on(PreReasoningEvent)
    def looks(event: PreReasoningEvent) -> PreReasoningEvent:
        seen.append(event.messages[-1].text)
        return event

    agent = agent_of(["Hi."], hints, looks)
    await agent.call("Hello")
    assert seen == ["Hint."]
    assert model_of(agent).requests[0].messages[-1].text == "Hint."


async def test_on_takes_several_classes_or_all() -> None:
    some: list[str] = []
    every: list[str] = []

    @on(PreActingEvent, PostActingEvent)
    async def around(event: PreActingEvent | PostActingEvent) -> None:
        some.append(event.call.name)

    @on()
    async def everything(event: Event) -> None:
        every.append(type(event).__name__)

    await agent_of([ADD, "42"], around, everything).call("Hello")
    assert some == ["add", "add"]
    assert {"RunStartedEvent", "ReasoningChunkEvent", "RunEndedEvent"} < set(every)


DECORATORS: list[Any] = [
    pre_call,
    pre_reasoning,
    post_reasoning,
    pre_acting,
    post_acting,
    pre_summary,
    post_summary,
    post_call,
    pre_print,
    on_error,
]


def named(decorator: Any) -> str:
    def nothing(event: Any) -> None: ...

    (event,) = decorator(nothing).events
    return event.__name__.removesuffix("Event")


def test_there_is_a_decorator_for_every_position() -> None:
    assert [named(decorator) for decorator in DECORATORS] == [
        "PreCall",
        "PreReasoning",
        "PostReasoning",
        "PreActing",
        "PostActing",
        "PreSummary",
        "PostSummary",
        "PostCall",
        "PrePrint",
        "Error",
    ]


@pytest.mark.parametrize("decorator", DECORATORS, ids=named)
def test_every_decorator_says_what_it_is_for(decorator: Any) -> None:
    assert f"`{named(decorator)}Event`" in decorator.__doc__


def test_functions_that_do_not_fit_are_errors_for_the_type_checker() -> None:
    def for_another(event: PostReasoningEvent) -> None: ...
    def with_nothing() -> None: ...
    def for_all(event: Event) -> None: ...

    fitting = [pre_reasoning(for_all), on(ErrorEvent, PreReasoningEvent)(for_all)]
    assert [hook.events for hook in fitting] == [(PreReasoningEvent,), (ErrorEvent, PreReasoningEvent)]
    pre_reasoning(for_another)  # pyright: ignore[reportCallIssue, reportArgumentType]
    pre_reasoning(priority=1)(for_another)  # pyright: ignore[reportArgumentType]
    on(PreReasoningEvent)(with_nothing)  # pyright: ignore[reportArgumentType]
    around_tool(for_all)  # pyright: ignore[reportCallIssue, reportArgumentType]
    around_model(for_all)  # pyright: ignore[reportCallIssue, reportArgumentType]


# Printing


async def test_print_hooks_change_what_is_shown_and_never_what_is_stored() -> None:
    shown: list[str] = []

    @pre_print
    async def shouts(event: PrePrintEvent) -> None:
        event.message = Msg.assistant(event.message.text.upper(), name="A")

    @on(PostPrintEvent)
    async def notes(event: PostPrintEvent) -> None:
        shown.append(event.message.text)

    console = io.StringIO()
    agent = agent_of(["Hi."], shouts, notes, console=console)
    reply = await agent.call("Hello", thread="t")
    assert (console.getvalue(), shown) == ("A: HI.\n", ["HI."])
    assert (reply.text, (await agent.history("t"))[-1].text) == ("Hi.", "Hi.")


async def test_without_a_console_nothing_is_shown_and_nobody_is_asked() -> None:
    @pre_print
    async def never(event: PrePrintEvent) -> None:
        raise AssertionError("nothing is printed")

    assert (await agent_of(["Hi."], never).call("Hello")).text == "Hi."
