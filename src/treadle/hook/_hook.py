"""`Hook`: watch or change what an agent does, and `HookSet`: all hooks of an agent, in order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from treadle.errors import EventError, InputError
from treadle.event import Event, ModifiableEvent
from treadle.message import ToolUseBlock
from treadle.model import ModelRequest, ModelResponse
from treadle.tool import Tool, ToolContext, ToolResult

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that is about to run: what `around_tool` gets. `input` holds the checked arguments."""

    call: ToolUseBlock
    tool: Tool
    input: Mapping[str, Any]
    context: ToolContext


CallModel: TypeAlias = Callable[[ModelRequest], Awaitable[ModelResponse]]
CallTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]


class Hook:
    """Override what you need; a method that is not overridden costs nothing.

    Attributes:
        name: By which the hook can be removed; the class's name if not set.
        priority: Lower comes first.
        events: The event classes that `on_event` wants; None for all of them.
    """

    name: str = ""
    priority: int = 100
    events: tuple[type[Event], ...] | None = None

    async def on_event(self, event: Event) -> Event | None:
        """See an event, change its changeable fields, or return another one of its class."""

    async def around_model(self, request: ModelRequest, call_next: CallModel) -> ModelResponse:
        """Stand between the agent and the model."""
        return await call_next(request)

    async def around_tool(self, call: ToolCall, call_next: CallTool) -> ToolResult:
        """Stand between the agent and a tool. What must not be stored is removed here."""
        return await call_next(call)

    def tools(self) -> Iterable[Any]:
        """Tools (or functions) that the agent has as long as it has this hook."""
        return ()


def _overrides(hook: Hook, method: str) -> bool:
    return getattr(type(hook), method) is not getattr(Hook, method) or method in getattr(hook, "__dict__", {})


class HookSet:
    """An agent's hooks: class level before instance level, then by priority, then as registered."""

    def __init__(self, class_hooks: Iterable[Hook] = (), instance_hooks: Iterable[Hook] = ()) -> None:
        ordered = [
            *sorted(check_hooks(class_hooks), key=lambda hook: hook.priority),
            *sorted(check_hooks(instance_hooks), key=lambda hook: hook.priority),
        ]
        self.hooks = tuple(ordered)
        self.model_hooks = tuple(hook for hook in ordered if _overrides(hook, "around_model"))
        self.tool_hooks = tuple(hook for hook in ordered if _overrides(hook, "around_tool"))
        self._watching = tuple(hook for hook in ordered if _overrides(hook, "on_event"))
        self._by_event: dict[type, tuple[Hook, ...]] = {}

    def wanting(self, kind: type[Event]) -> tuple[Hook, ...]:
        """The hooks that want events of a class."""
        if not self._watching:
            return ()
        if kind not in self._by_event:
            self._by_event[kind] = tuple(
                hook for hook in self._watching if hook.events is None or issubclass(kind, hook.events)
            )
        return self._by_event[kind]

    async def fire(self, event: E) -> E:
        """Show an event to every hook that wants it, each seeing what the ones before made of it."""
        for hook in self.wanting(type(event)):
            await _tell(hook, event)
        if isinstance(event, ModifiableEvent):
            event.seal()
        return event

    def wrap_model(self, call: CallModel) -> CallModel:
        """Put every `around_model` around a model call, the first hook outermost."""
        for hook in reversed(self.model_hooks):
            call = _around(hook, hook.around_model, call, ModelResponse)
        return call

    def wrap_tool(self, call: CallTool) -> CallTool:
        """Put every `around_tool` around a tool call, the first hook outermost."""
        for hook in reversed(self.tool_hooks):
            call = _around(hook, hook.around_tool, call, ToolResult)
        return call


def _around(
    hook: Hook, method: Callable[[Any, Any], Awaitable[Any]], inner: Callable[[Any], Awaitable[Any]], wanted: type
) -> Any:
    async def call(argument: Any) -> Any:
        try:
            answer = method(argument, inner)
            if inspect.isawaitable(answer):  # a function that forgot `async` returned its answer as it is
                answer = await answer
        except Exception as error:
            note_once(
                error, f"In hook `{hook_name(hook)}`, around a {'model' if wanted is ModelResponse else 'tool'} call."
            )
            raise
        if not isinstance(answer, wanted):
            forgot = " Was `return` forgotten?" if answer is None else ""
            raise EventError(
                f"Hook `{hook_name(hook)}` must give a `{wanted.__name__}` here and gave {answer!r:.100}.{forgot}"
            )
        return answer

    return call


async def _tell(hook: Hook, event: Event) -> None:
    kind = type(event).__name__
    try:
        answer: Any = hook.on_event(event)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None and answer is not event:
            _replace(event, answer)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise EventError(f"Hook `{hook_name(hook)}` raised `CancelledError` on `{kind}`; nobody cancelled.") from error
    except Exception as error:
        error.add_note(f"In hook `{hook_name(hook)}`, on `{kind}`.")
        raise


def _replace(event: Event, answer: Any) -> None:
    """A hook returned something: only what it could have changed in place counts."""
    kind = type(event).__name__
    if not isinstance(event, ModifiableEvent):
        raise EventError(f"`{kind}` is a notification: it tells what happened, and cannot be replaced.")
    if type(answer) is not type(event):
        raise EventError(f"A hook returned {answer!r:.100} for a `{kind}`; return the event, one like it, or None.")
    event.take_over(answer)


def check_hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Hooks as a tuple, if that is what they are."""
    found: tuple[Any, ...] = tuple(hooks)
    for hook in found:
        if not isinstance(hook, Hook):
            what = "it is a class; make an object of it" if isinstance(hook, type) else "derive from `Hook`"
            advice = "decorate it, for example with `@pre_reasoning`" if inspect.isroutine(hook) else what
            raise InputError(f"{hook!r} is not a hook: {advice}.")
    return found


def remove_hooks(hooks: Iterable[Hook], name: str) -> tuple[Hook, ...]:
    """All hooks but the ones of a name."""
    found = tuple(hooks)
    left = tuple(hook for hook in found if hook_name(hook) != name)
    if len(left) == len(found):
        known = ", ".join(f"`{hook_name(hook)}`" for hook in found) or "none"
        raise InputError(f"There is no hook `{name}` here to remove; there are: {known}.")
    return left


def note_once(error: Exception, note: str) -> None:
    """Say where an error came through; an error that comes through several hooks names the innermost."""
    if not getattr(error, "__notes__", None):
        error.add_note(note)


def hook_name(hook: Hook) -> str:
    """The name a hook goes by."""
    return hook.name or type(hook).__name__
