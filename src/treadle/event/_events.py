"""The events of a run. Hooks and streams get the same objects.

| event | when | a hook may change | a hook may also |
| --- | --- | --- | --- |
| `PreCallEvent` | before the agent starts | `messages` | |
| `PreReasoningEvent` | before a model call | `messages`, `tools`, `tool_choice`, `options` (1) | (2) |
| `ReasoningChunkEvent` | a piece of the answer came | | |
| `PostReasoningEvent` | the answer is there, not yet stored | `message` | `stop`, `goto_reasoning`, `update_state` |
| `PreActingEvent` | before a tool call | `input` | `answer`, `ask`, `stop`, `update_state` |
| `ActingChunkEvent` | a tool reports progress | | |
| `PostActingEvent` | a result is there, not yet in the history | `result` | `stop`, `update_state` |
| `PreSummaryEvent` | before the summary at the iteration limit | `messages`, `options` (1) | |
| `SummaryChunkEvent` | a piece of the summary came | | |
| `PostSummaryEvent` | the summary is there, not yet stored | `message` | |
| `PostCallEvent` | before the reply is returned | `reply` | |
| `PrePrintEvent` | before something is shown | `message` | |
| all others | | | |

(1) for this one request; never stored. (2) `add_messages`, `stop`, `update_state`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from treadle.errors import EventError
from treadle.event._base import ModifiableEvent, NotificationEvent, notification
from treadle.event._check import check_answer, check_given, check_input, check_messages, check_result, check_storable
from treadle.event._pause import Pause
from treadle.message import Msg, OutputBlock, Status, ToolResultBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.model import Delta, TextDelta, ToolChoice, ToolSpec


@dataclass(slots=True, kw_only=True, eq=False)
class _StatefulEvent(ModifiableEvent):
    """An event whose hooks may keep something: `state` is what is stored, `update_state` adds to it."""

    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stopped: bool = field(default=False, init=False)
    updates: dict[str, Any] = field(default_factory=dict[str, Any], init=False)

    def stop(self) -> None:
        """End the run here, with reason `stopped`."""
        self._note("stopped", True)

    def update_state(self, **values: Any) -> None:
        """Store values (JSON) with the thread; later events see them in `state`. None removes a value."""
        stored = json.loads(dumps(values))
        self._note("updates", {**self.updates, **stored})
        self._show(stored)

    def take_over(self, other: ModifiableEvent) -> None:
        """Apply what a hook put into another event of this class."""
        ModifiableEvent.take_over(self, other)  # `super()` does not work in a class with slots
        self._show(self.updates)

    def _show(self, updates: Mapping[str, Any]) -> None:
        state = {key: value for key, value in {**self.state, **updates}.items() if value is not None}
        object.__setattr__(self, "state", state)


@dataclass(slots=True, kw_only=True, eq=False)
class PreCallEvent(ModifiableEvent):
    """The agent was given `messages` and is about to start."""

    changeable: ClassVar[frozenset[str]] = frozenset({"messages"})
    messages: Sequence[Msg]

    def _accept(self, name: str, value: Any) -> None:
        check_given(self, value)


@dataclass(slots=True, kw_only=True, eq=False)
class PreReasoningEvent(_StatefulEvent):
    """The model is about to be asked. Changes are an overlay on this one request and are never stored."""

    changeable: ClassVar[frozenset[str]] = frozenset({"messages", "tools", "tool_choice", "options"})
    messages: Sequence[Msg]
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    iteration: int = 0
    added: tuple[Msg, ...] = field(default=(), init=False)

    def add_messages(self, messages: Sequence[Msg]) -> None:
        """Add messages to this request and, with the model's answer, to the history."""
        check_given(self, messages)
        if any(msg.role == "tool" or msg.tool_calls for msg in messages):
            raise EventError(
                "`add_messages` takes no tool calls and no results; no call is open before the model is asked."
            )
        self._note("added", (*self.added, *messages))
        object.__setattr__(self, "messages", [*self.messages, *messages])

    def _accept(self, name: str, value: Any) -> None:
        if name == "messages":
            check_messages(self, value)


@notification
class ReasoningChunkEvent(NotificationEvent):
    """A piece of the model's answer: text, thinking, or part of a tool call."""

    delta: Delta

    @property
    def text(self) -> str:
        """The piece of answer text, empty for thinking and tool calls."""
        return self.delta.text if isinstance(self.delta, TextDelta) else ""


@dataclass(slots=True, kw_only=True, eq=False)
class PostReasoningEvent(_StatefulEvent):
    """The model answered; `message` is what will be stored."""

    changeable: ClassVar[frozenset[str]] = frozenset({"message"})
    message: Msg
    goto: tuple[Msg, ...] | None = field(default=None, init=False)

    def goto_reasoning(self, messages: Sequence[Msg] = ()) -> None:
        """Ask the model again, after storing the answer and `messages`; counts as an iteration.

        Calls in the answer that `messages` does not answer get an error result, so that the history stays valid.
        """
        check_given(self, messages)
        if any(msg.tool_calls for msg in messages):
            raise EventError("`goto_reasoning` takes no tool calls: nobody would run them before the model is asked.")
        self._note("goto", tuple(messages))

    def _accept(self, name: str, value: Any) -> None:
        check_answer(self, value)


@dataclass(slots=True, kw_only=True, eq=False)
class PreActingEvent(_StatefulEvent):
    """A tool is about to be called. `call` is what the model said, `input` what will be used."""

    changeable: ClassVar[frozenset[str]] = frozenset({"input"})
    call: ToolUseBlock
    input: Mapping[str, Any]
    answered: ToolResultBlock | None = field(default=None, init=False)
    asked: str | None = field(default=None, init=False)

    def answer(self, output: str | Sequence[OutputBlock], *, status: Status = "ok") -> None:
        """Give the call this result without running the tool."""
        given: Any = tuple(output) if isinstance(output, list) else output
        answer = ToolResultBlock(id=self.call.id, name=self.call.name, output=given, status=status)
        check_storable(self, answer)
        self._note("answered", answer)

    def ask(self, reason: str = "") -> None:
        """Pause for a person's approval before the tool runs."""
        if not isinstance(reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EventError(f"`ask` takes the reason as text, not {reason!r:.200}.")
        self._note("asked", reason)

    def _accept(self, name: str, value: Any) -> None:
        check_input(self, value)


@notification
class ActingChunkEvent(NotificationEvent):
    """A tool reports progress; the model never sees it."""

    call: ToolUseBlock
    chunk: str | OutputBlock


@dataclass(slots=True, kw_only=True, eq=False)
class PostActingEvent(_StatefulEvent):
    """A tool gave a result; `result` is what will enter the history."""

    changeable: ClassVar[frozenset[str]] = frozenset({"result"})
    call: ToolUseBlock
    result: ToolResultBlock

    def _accept(self, name: str, value: Any) -> None:
        check_result(self, value, self.call)


@dataclass(slots=True, kw_only=True, eq=False)
class PreSummaryEvent(ModifiableEvent):
    """The iteration limit was reached; the model is about to be asked for a summary, without tools."""

    changeable: ClassVar[frozenset[str]] = frozenset({"messages", "options"})
    messages: Sequence[Msg]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def _accept(self, name: str, value: Any) -> None:
        if name == "messages":
            check_messages(self, value)


@notification
class SummaryChunkEvent(NotificationEvent):
    """A piece of the summary."""

    delta: Delta

    @property
    def text(self) -> str:
        """The piece of summary text, empty for thinking."""
        return self.delta.text if isinstance(self.delta, TextDelta) else ""


@dataclass(slots=True, kw_only=True, eq=False)
class PostSummaryEvent(ModifiableEvent):
    """The summary is there, not yet stored."""

    changeable: ClassVar[frozenset[str]] = frozenset({"message"})
    message: Msg

    def _accept(self, name: str, value: Any) -> None:
        check_answer(self, value)
        if value.tool_calls:
            raise EventError("A summary makes no tool calls: nobody would run them.")


@dataclass(slots=True, kw_only=True, eq=False)
class PostCallEvent(ModifiableEvent):
    """The reply is about to be returned; changing it does not change the history."""

    changeable: ClassVar[frozenset[str]] = frozenset({"reply"})
    reply: Any

    def _accept(self, name: str, value: Any) -> None:
        if type(value) is not type(self.reply):
            raise EventError(
                f"`PostCallEvent.reply` takes a `Reply`, not {value!r:.200}; `dataclasses.replace` makes one."
            )


@dataclass(slots=True, kw_only=True, eq=False)
class PrePrintEvent(ModifiableEvent):
    """A message is about to be shown; changing it does not change what is stored."""

    changeable: ClassVar[frozenset[str]] = frozenset({"message"})
    message: Msg

    def _accept(self, name: str, value: Any) -> None:
        check_messages(self, (value,))


@notification
class PostPrintEvent(NotificationEvent):
    """A message was shown."""

    message: Msg


@notification
class ErrorEvent(NotificationEvent):
    """Something failed that the run cannot go on from."""

    error: BaseException


@notification
class NodeStartedEvent(NotificationEvent):
    """A node of the graph begins."""

    node: str
    task: str


@notification
class NodeUpdatedEvent(NotificationEvent):
    """A node finished; `values` is its update."""

    node: str
    task: str
    values: Mapping[str, Any]


@notification
class CustomEvent(NotificationEvent):
    """Whatever a node or a tool wants to tell whoever watches."""

    name: str
    data: Any = None


@notification
class RunStartedEvent(NotificationEvent):
    """A run has the thread and begins."""


@notification
class RunEndedEvent(NotificationEvent):
    """The last event of a run that came to an end; `result` is what the caller gets."""

    reason: str
    result: Any = None


@notification
class RunPausedEvent(NotificationEvent):
    """The last event of a run that waits for the outside; `result` is what the caller gets meanwhile."""

    pause: Pause
    result: Any = None


@notification
class RunFailedEvent(NotificationEvent):
    """The last event of a run that could not go on."""

    error: BaseException


Event: TypeAlias = ModifiableEvent | NotificationEvent
