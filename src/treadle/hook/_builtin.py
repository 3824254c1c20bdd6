"""The two hooks of the original graph agent: stop or steer a running agent, and ask a person before a tool runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

from treadle.event import Event, PreActingEvent, PreReasoningEvent
from treadle.hook._hook import Hook
from treadle.message import Msg

Ask: TypeAlias = bool | str | Callable[[Mapping[str, Any]], bool]


class InterruptionHook(Hook):
    """Stops an agent before its next model call, or gives it more to think about, from elsewhere in this process.

    Example:
        >>> hook = InterruptionHook()
        >>> hook.request("user-42", [Msg.user("Use metric units.")])
    """

    events: ClassVar[tuple[type[Event], ...] | None] = (PreReasoningEvent,)
    priority = 0

    def __init__(self) -> None:
        self._requests: dict[str, list[Msg]] = {}

    def request(self, thread: str, messages: Sequence[Msg] = ()) -> None:
        """Stop the thread's agent before its next model call, or with messages, add these to its history instead."""
        self._requests.setdefault(thread, []).extend(messages)

    async def on_event(self, event: Event) -> None:
        """Answer a request once."""
        event = cast("PreReasoningEvent", event)
        messages = self._requests.pop(event.source.thread, None)
        if messages is None:
            return
        if messages:
            event.add_messages(messages)
        else:
            event.stop()


class HumanInTheLoopHook(Hook):
    """Pauses for approval before the tools that it names run.

    Args:
        tools: Names of tools, or a dict from names to True, a reason to show, or a function of the call's input.
        priority: Lower comes first; late by default, so that a person sees the final input.
    """

    events: ClassVar[tuple[type[Event], ...] | None] = (PreActingEvent,)

    def __init__(self, tools: Iterable[str] | Mapping[str, Ask], *, priority: int = 1000) -> None:
        self.priority = priority
        self._tools: dict[str, Ask] = (
            dict(cast("Mapping[str, Ask]", tools)) if isinstance(tools, Mapping) else dict.fromkeys(tools, True)
        )

    async def on_event(self, event: Event) -> None:
        """Ask where the tool is one of ours."""
        event = cast("PreActingEvent", event)
        ask = self._tools.get(event.call.name, False)
        if callable(ask):
            ask = ask(event.input)
        if ask:
            event.ask(ask if isinstance(ask, str) else f"`{event.call.name}` needs approval.")
