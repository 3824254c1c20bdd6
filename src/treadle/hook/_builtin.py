"""The two hooks of the original graph agent: stop or steer a running agent, and ask a person before a tool runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast, overload

from treadle.event import Event, PreActingEvent, PreReasoningEvent
from treadle.hook._hook import Hook
from treadle.message import Msg

Ask: TypeAlias = bool | str | Callable[[Mapping[str, Any]], bool | str]


class InterruptionHook(Hook):
    """Stops an agent before its next model call, or gives it more to think about, from elsewhere in this process.

    A request is answered once, by the next model call of its thread; it lives in this object and not in the journal.
    From another process, or to cancel what is under way, use `agent.interrupt`.

    Example:
        >>> hook = InterruptionHook()
        >>> hook.request("user-42", [Msg.user("Use metric units.")])
    """

    events: tuple[type[Event], ...] | None = (PreReasoningEvent,)
    priority = 0

    def __init__(self) -> None:
        self._stops: set[str] = set()
        self._messages: dict[str, list[Msg]] = {}

    def request(self, thread: str, messages: Sequence[Msg] = ()) -> None:
        """Stop the thread's agent before its next model call, or with messages, add these to its history instead."""
        if messages:
            self._messages.setdefault(thread, []).extend(messages)
        else:
            self._stops.add(thread)

    async def on_event(self, event: Event) -> None:
        """Answer the requests for this thread."""
        event = cast("PreReasoningEvent", event)
        thread = event.source.thread
        if thread in self._messages:
            event.add_messages(self._messages.pop(thread))
        if thread in self._stops:
            self._stops.discard(thread)
            event.stop()


class HumanInTheLoopHook(Hook):
    """Pauses for approval before the tools that it names run.

    Args:
        tools: Names of tools, or a dict from names to True, a reason to show, or a function of the call's input that
            says one of these.
        priority: Lower comes first; late by default, so that a person sees the final input.

    Example:
        >>> hook = HumanInTheLoopHook({"pay": lambda input: input["amount"] > 100, "delete": "This cannot be undone."})
    """

    events: tuple[type[Event], ...] | None = (PreActingEvent,)

    @overload
    def __init__(self, tools: Mapping[str, Ask], *, priority: int = 1000) -> None: ...
    @overload
    def __init__(self, tools: Iterable[str], *, priority: int = 1000) -> None: ...
    def __init__(self, tools: Mapping[str, Ask] | Iterable[str], *, priority: int = 1000) -> None:
        self.priority = priority
        names = (tools,) if isinstance(tools, str) else tools
        self._tools: dict[str, Ask] = (
            dict(cast("Mapping[str, Ask]", names)) if isinstance(names, Mapping) else dict.fromkeys(names, True)
        )

    async def on_event(self, event: Event) -> None:
        """Ask where the tool is one of ours."""
        event = cast("PreActingEvent", event)
        ask = self._tools.get(event.call.name, False)
        if callable(ask):
            ask = ask(event.input)
        if ask:
            event.ask(ask if isinstance(ask, str) else f"`{event.call.name}` needs approval.")
