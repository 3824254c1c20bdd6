"""What all events share, and the guards that keep them from being changed where that would not count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, NoReturn, TypeVar, cast, dataclass_transform

from treadle.errors import EventError

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an event comes from; `parent` and `path` are set for what happens inside a tool or node of another run."""

    run: str
    thread: str
    agent: str
    parent: str | None = None
    path: tuple[str, ...] = ()


def _refuse(event: Any, name: str, value: Any = None) -> NoReturn:
    kind = type(event).__name__
    raise EventError(f"`{kind}` is a notification: it tells what happened, and `{kind}.{name}` cannot be changed.")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def notification(cls: type[C]) -> type[C]:
    """Make an event class whose objects cannot be changed; trying to is an `EventError`."""
    made: Any = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made.__setattr__ = _refuse
    made.__delattr__ = _refuse
    return made


@notification
class NotificationEvent:
    """Something that happened; it can be watched and not changed."""

    source: Source


@dataclass(slots=True, kw_only=True, eq=False)
class ModifiableEvent:
    """Something that is about to count; hooks may change the fields that `changeable` names, until all have seen it."""

    changeable: ClassVar[frozenset[str]] = frozenset()
    source: Source
    sealed: bool = field(default=False, init=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            self._check(name)
            self._accept(name, value)
        object.__setattr__(self, name, value)

    def _check(self, name: str) -> None:
        kind = type(self).__name__
        if name not in self.changeable:
            what = ", ".join(f"`{field}`" for field in sorted(self.changeable)) or "nothing"
            raise EventError(f"`{kind}.{name}` cannot be changed; a hook may change {what} here.")
        if self.sealed:
            raise EventError(f"This `{kind}` is over; change it in `on_event`, before the next hook sees it.")

    def _accept(self, name: str, value: Any) -> None:
        """Raise if a hook's value for a field makes no sense there."""

    def seal(self) -> None:
        """Freeze the event once every hook has seen it."""
        object.__setattr__(self, "sealed", True)

    def take_over(self, other: ModifiableEvent) -> None:
        """Apply what a hook put into another event of this class: its changeable fields, and what it decided.

        Everything else stays as it is here, so that no hook can undo what one before it decided.
        """
        for name in self.changeable:
            value = getattr(other, name)
            if value is not getattr(self, name):
                setattr(self, name, value)
        for one in fields(self):
            decided = getattr(other, one.name)
            if not one.init and one.name != "sealed" and decided != _start(one):
                self._note(one.name, _both(getattr(self, one.name), decided))

    def _note(self, name: str, value: Any) -> None:
        """Set a field that belongs to a method of the event, such as `stop()`."""
        if self.sealed:
            raise EventError(f"This `{type(self).__name__}` is over; decide in `on_event`.")
        object.__setattr__(self, name, value)


def _start(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _both(mine: Any, other: Any) -> Any:
    """What two events of a class decided, where one was made from the other."""
    if isinstance(mine, Mapping):
        return {**cast("Mapping[str, Any]", mine), **other}
    if isinstance(mine, tuple) and isinstance(other, tuple):
        first, second = cast("tuple[Any, ...]", mine), cast("tuple[Any, ...]", other)
        return second if second[: len(first)] == first else (*first, *second)
    return other
