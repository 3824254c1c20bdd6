"""The events of a run. Hooks and streams get the same objects.

| event | when | a hook may change | a hook may also |
| --- | --- | --- | --- |
| `PreCallEvent` | before the agent starts | `messages` | |
| `PreReasoningEvent` | before a model call | `messages`, `tools`, `tool_choice`, `options`: for this call only | `add_messages`, `stop`, `update_state` |
| `ReasoningChunkEvent` | a piece of the answer came | | |
| `PostReasoningEvent` | the answer is there, not yet stored | `message` | `stop`, `goto_reasoning`, `update_state` |
| `PreActingEvent` | before a tool call | `input` | `answer`, `ask`, `stop`, `update_state` |
| `ActingChunkEvent` | a tool reports progress | | |
| `PostActingEvent` | a result is there, not yet in the history | `result` | `stop`, `update_state` |
| `PreSummaryEvent`, `PostSummaryEvent` | around the summary at the iteration limit | `messages`, `options`; `message` | |
| `PostCallEvent` | before the reply is returned | `reply` | |
| `PrePrintEvent` | before something is shown | `message` | |
| all others | | | |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from treadle.errors import EventError
from treadle.event._base import ModifiableEvent, NotificationEvent
from treadle.event._pause import Pause
from treadle.message import Msg, OutputBlock, Status, ToolResultBlock, ToolUseBlock
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
        """Store values (JSON) with the thread; later events see them in `state`."""
        self._note("updates", {**self.updates, **values})
        object.__setattr__(self, "state", {**self.state, **values})


@dataclass(slots=True, kw_only=True, eq=False)
class PreCallEvent(ModifiableEvent):
    """The agent was given `messages` and is about to start."""

    changeable: ClassVar[frozenset[str]] = frozenset({"messages"})
    messages: Sequence[Msg]


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
        self._note("added", (*self.added, *messages))
        object.__setattr__(self, "messages", [*self.messages, *messages])


@dataclass(frozen=True, slots=True, kw_only=True)
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
        if any(msg.role == "system" for msg in messages):
            raise EventError(
                "`goto_reasoning` takes no system messages; use the system prompt or a `PreReasoningEvent`."
            )
        self._note("goto", tuple(messages))


@dataclass(slots=True, kw_only=True, eq=False)
class PreActingEvent(_StatefulEvent):
    """A tool is about to be called. `call` is what the model said, `input` what will be used."""

    changeable: ClassVar[frozenset[str]] = frozenset({"input"})
    call: ToolUseBlock
    input: Mapping[str, Any]
    answered: ToolResultBlock | None = field(default=None, init=False)
    asked: str | None = field(default=None, init=False)

    def answer(self, output: str, *, status: Status = "ok") -> None:
        """Give the call this result without running the tool."""
        self._note("answered", ToolResultBlock(id=self.call.id, name=self.call.name, output=output, status=status))

    def ask(self, reason: str = "") -> None:
        """Pause for a person's approval before the tool runs."""
        self._note("asked", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True, eq=False)
class PreSummaryEvent(ModifiableEvent):
    """The iteration limit was reached; the model is about to be asked for a summary, without tools."""

    changeable: ClassVar[frozenset[str]] = frozenset({"messages", "options"})
    messages: Sequence[Msg]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True, eq=False)
class PostCallEvent(ModifiableEvent):
    """The reply is about to be returned; changing it does not change the history."""

    changeable: ClassVar[frozenset[str]] = frozenset({"reply"})
    reply: Any


@dataclass(slots=True, kw_only=True, eq=False)
class PrePrintEvent(ModifiableEvent):
    """A message is about to be shown; changing it does not change what is stored."""

    changeable: ClassVar[frozenset[str]] = frozenset({"message"})
    message: Msg


@dataclass(frozen=True, slots=True, kw_only=True)
class PostPrintEvent(NotificationEvent):
    """A message was shown."""

    message: Msg


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEvent(NotificationEvent):
    """Something failed that the run cannot go on from."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStartedEvent(NotificationEvent):
    """A node of the graph begins."""

    node: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUpdatedEvent(NotificationEvent):
    """A node finished; `values` is its update."""

    node: str
    task: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomEvent(NotificationEvent):
    """Whatever a node or a tool wants to tell whoever watches."""

    name: str
    data: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStartedEvent(NotificationEvent):
    """A run has the thread and begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEndedEvent(NotificationEvent):
    """The last event of a run that came to an end; `result` is what the caller gets."""

    reason: str
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPausedEvent(NotificationEvent):
    """The last event of a run that waits for the outside; `result` is what the caller gets meanwhile."""

    pause: Pause
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailedEvent(NotificationEvent):
    """The last event of a run that could not go on."""

    error: BaseException


Event: TypeAlias = ModifiableEvent | NotificationEvent
