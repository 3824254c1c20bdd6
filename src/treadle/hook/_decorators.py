"""Hooks made of one function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar, overload

from treadle.event import (
    ErrorEvent,
    Event,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreActingEvent,
    PreCallEvent,
    PrePrintEvent,
    PreReasoningEvent,
    PreSummaryEvent,
)
from treadle.hook._hook import CallModel, CallTool, Hook, ToolCall
from treadle.model import ModelRequest, ModelResponse
from treadle.tool import ToolResult

E = TypeVar("E", bound=Event)
Handler: TypeAlias = Callable[[E], Awaitable[E | None] | E | None]
ModelWrapper: TypeAlias = Callable[[ModelRequest, CallModel], Awaitable[ModelResponse]]
ToolWrapper: TypeAlias = Callable[[ToolCall, CallTool], Awaitable[ToolResult]]


class FunctionHook(Hook):
    """A hook whose one method is a function. It can still be called as that function."""

    def __init__(
        self,
        method: str,
        function: Callable[..., Any],
        events: tuple[type[Event], ...] | None,
        priority: int,
        name: str | None,
    ) -> None:
        self.name = name or getattr(function, "__name__", method)
        self.priority = priority
        self.events = events
        self.function = function
        self.__doc__ = function.__doc__
        setattr(self, method, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that this hook is made of."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionHook({self.name})"


@overload
def on(*, priority: int = 100, name: str | None = None) -> Callable[[Handler[Event]], FunctionHook]: ...
@overload
def on(
    event: type[E], /, *events: type[E], priority: int = 100, name: str | None = None
) -> Callable[[Handler[E]], FunctionHook]: ...
def on(*events: type[Event], priority: int = 100, name: str | None = None) -> Callable[[Handler[Any]], FunctionHook]:
    """Make a hook of a function that wants events of these classes (all, if none is named).

    Example:
        >>> from treadle.event import ErrorEvent
        >>> @on(ErrorEvent)
        ... async def tell(event: ErrorEvent) -> None:
        ...     print(event.error)
    """

    def make(function: Handler[Any]) -> FunctionHook:
        return FunctionHook("on_event", function, events or None, priority, name)

    return make


class _EventDecorator(Generic[E]):
    """`@pre_reasoning`, or `@pre_reasoning(priority=10)`."""

    def __init__(self, event: type[E]) -> None:
        self._event = event
        self.__doc__ = f"Make a hook of a function that takes a `{event.__name__}`."

    @overload
    def __call__(self, function: Handler[E], /) -> FunctionHook: ...
    @overload
    def __call__(
        self, function: None = None, /, *, priority: int = 100, name: str | None = None
    ) -> Callable[[Handler[E]], FunctionHook]: ...
    def __call__(
        self, function: Handler[E] | None = None, /, *, priority: int = 100, name: str | None = None
    ) -> FunctionHook | Callable[[Handler[E]], FunctionHook]:
        make = on(self._event, priority=priority, name=name)
        return make if function is None else make(function)


pre_call = _EventDecorator(PreCallEvent)
pre_reasoning = _EventDecorator(PreReasoningEvent)
post_reasoning = _EventDecorator(PostReasoningEvent)
pre_acting = _EventDecorator(PreActingEvent)
post_acting = _EventDecorator(PostActingEvent)
pre_summary = _EventDecorator(PreSummaryEvent)
post_summary = _EventDecorator(PostSummaryEvent)
post_call = _EventDecorator(PostCallEvent)
pre_print = _EventDecorator(PrePrintEvent)
on_error = _EventDecorator(ErrorEvent)


@overload
def around_model(function: ModelWrapper, /) -> FunctionHook: ...
@overload
def around_model(
    function: None = None, /, *, priority: int = 100, name: str | None = None
) -> Callable[[ModelWrapper], FunctionHook]: ...
def around_model(
    function: ModelWrapper | None = None, /, *, priority: int = 100, name: str | None = None
) -> FunctionHook | Callable[[ModelWrapper], FunctionHook]:
    """Make a hook of a function that stands between the agent and its model."""

    def make(function: ModelWrapper) -> FunctionHook:
        return FunctionHook("around_model", function, (), priority, name)

    return make if function is None else make(function)


@overload
def around_tool(function: ToolWrapper, /) -> FunctionHook: ...
@overload
def around_tool(
    function: None = None, /, *, priority: int = 100, name: str | None = None
) -> Callable[[ToolWrapper], FunctionHook]: ...
def around_tool(
    function: ToolWrapper | None = None, /, *, priority: int = 100, name: str | None = None
) -> FunctionHook | Callable[[ToolWrapper], FunctionHook]:
    """Make a hook of a function that stands between the agent and its tools."""

    def make(function: ToolWrapper) -> FunctionHook:
        return FunctionHook("around_tool", function, (), priority, name)

    return make if function is None else make(function)
