"""`AgentBase`: what every agent can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TextIO

from treadle._ids import new_id
from treadle.errors import FormatError
from treadle.event import PostPrintEvent, PrePrintEvent, Source
from treadle.graph._interrupt import Interruption
from treadle.hook import Hook, HookSet
from treadle.hook._hook import check_hooks, remove_hooks
from treadle.message import Msg, TextBlock, ToolResultBlock, ToolUseBlock

_NO_HOOKS = HookSet()


class AgentBase(ABC):
    """An agent has a name, hooks, and something to say.

    Args:
        name: What the agent is called, in messages and events.
        hooks: Hooks of this agent; class-level ones come from `add_class_hook`.
        console: Where `print` writes; None prints nowhere.
    """

    _class_hooks: ClassVar[tuple[Hook, ...]] = ()
    _class_level: ClassVar[int] = 0
    """Counts changes of class-level hooks, so that agents notice them."""

    def __init__(self, *, name: str, hooks: Iterable[Hook] = (), console: TextIO | None = None) -> None:
        self.name = name
        self.console = console
        self._hooks: tuple[Hook, ...] = check_hooks(hooks)
        self._hook_set: tuple[int, tuple[Hook, ...], HookSet] | None = None

    @abstractmethod
    async def reply(self, msg: Any = None) -> Msg:
        """Answer a message."""

    @abstractmethod
    async def observe(self, msg: Msg | list[Msg]) -> None:
        """Take note of messages without answering."""

    def interrupt(self, message: str | Msg | None = None) -> Interruption:
        """Stop what the agent is doing; does nothing where there is nothing to stop. May be awaited."""
        return Interruption()

    def save_state(self) -> dict[str, Any]:
        """What the agent remembers, as JSON; nothing, for an agent that remembers nothing."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Remember what `save_state` returned; an agent that remembers nothing was saved as nothing."""
        if state:
            raise FormatError(f"{self!r} remembers nothing, so this is not what its `save_state` returned.")

    # Hooks.

    @classmethod
    def add_class_hook(cls, hook: Hook) -> None:
        """Add a hook to every agent of this class and its subclasses, from their next run on."""
        cls._class_hooks = (*cls.__dict__.get("_class_hooks", ()), *check_hooks([hook]))
        AgentBase._class_level += 1

    @classmethod
    def remove_class_hook(cls, name: str) -> None:
        """Remove the class-level hooks of a name."""
        cls._class_hooks = remove_hooks(cls.__dict__.get("_class_hooks", ()), name)
        AgentBase._class_level += 1

    def add_hook(self, hook: Hook) -> None:
        """Add a hook to this agent, from its next run on."""
        self._hooks = (*self._hooks, *check_hooks([hook]))

    def remove_hook(self, name: str) -> None:
        """Remove the hooks of a name from this agent, from its next run on."""
        self._hooks = remove_hooks(self._hooks, name)

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """All hooks in the order in which they run."""
        return self.hook_set().hooks

    def hook_set(self) -> HookSet:
        """All hooks, class level before instance level, ready to fire."""
        made, level, own = self._hook_set, AgentBase._class_level, self._hooks
        if made is None or made[0] != level or made[1] is not own:  # hooks that are equal are not the same
            classes = [cls for cls in reversed(type(self).__mro__) if "_class_hooks" in cls.__dict__]
            shared = [hook for cls in classes for hook in cls.__dict__["_class_hooks"]]
            made = self._hook_set = (level, own, HookSet(shared, own) if shared or own else _NO_HOOKS)
        return made[2]

    # Showing.

    async def print(self, msg: Msg) -> None:
        """Show a message on the console; hooks may change what is shown, never what is stored."""
        hooks = self.hook_set()
        source = Source(run="", thread="", agent=self.name)
        event = await hooks.fire(PrePrintEvent(source=source, message=msg))
        if self.console is not None:
            self.console.write(f"{as_text(event.message)}\n")
        await hooks.fire(PostPrintEvent(source=source, message=event.message))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


def as_text(msg: Msg) -> str:
    """A message as a person reads it on a terminal."""
    lines: list[str] = []
    for block in msg.content:
        if isinstance(block, TextBlock):
            lines.append(block.text)
        elif isinstance(block, ToolUseBlock):
            lines.append(f"-> {block.name}({', '.join(f'{key}={value!r}' for key, value in block.input.items())})")
        elif isinstance(block, ToolResultBlock):
            lines.append(f"<- {block.name}: {block.text}")
    return "\n".join(f"{msg.name}: {line}" for line in lines if line)


def private_thread(name: str) -> str:
    """The id of a thread that belongs to one agent object."""
    return new_id(name or "agent")
