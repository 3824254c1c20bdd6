"""What all events share, and the guard that keeps notifications unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from treadle.errors import EventError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an event comes from. `parent` and `path` are set for what happens inside a tool or a node of another run."""

    run: str
    thread: str
    agent: str
    parent: str | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationEvent:
    """Something that happened; it can be watched and not changed."""

    source: Source


@dataclass(slots=True, kw_only=True, eq=False)
class ModifiableEvent:
    """Something that is about to count; hooks may change the fields that `changeable` names, until all have seen it."""

    changeable: ClassVar[frozenset[str]] = frozenset()
    source: Source
    sealed: bool = False

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            self._check(name)
        object.__setattr__(self, name, value)

    def _check(self, name: str) -> None:
        kind = type(self).__name__
        if name not in self.changeable:
            what = ", ".join(f"`{field}`" for field in sorted(self.changeable)) or "nothing"
            raise EventError(f"`{kind}.{name}` cannot be changed; a hook may change {what} here.")
        if self.sealed:
            raise EventError(f"This `{kind}` is over; change it in `on_event`, before the next hook sees it.")

    def seal(self) -> None:
        """Freeze the event once every hook has seen it."""
        object.__setattr__(self, "sealed", True)

    def _note(self, name: str, value: Any) -> None:
        """Set a field that belongs to a method of the event, such as `stop()`."""
        if self.sealed:
            raise EventError(f"This `{type(self).__name__}` is over; decide in `on_event`.")
        object.__setattr__(self, name, value)
