"""How an update changes a key of the state.

A strategy works on a value of its own making, in place where that keeps a step's cost flat; nodes get `view(value)`, which
they cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload

T = TypeVar("T")


class _Missing:
    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""The value of a key that nothing was written to."""


class Strategy(Protocol):
    """How one key of the state is kept. `grows` means: rebuilt from records, not repeated in snapshots."""

    grows: bool

    def start(self) -> Any:
        """The value before the first update."""
        ...

    def fold(self, old: Any, new: Any) -> Any:
        """The value after an update; `old` may be changed and returned."""
        ...

    def view(self, value: Any) -> Any:
        """What nodes see."""
        ...


class Items(Sequence[T], Generic[T]):
    """A read-only look at a growing list."""

    __slots__ = ("_items",)

    def __init__(self, items: list[T]) -> None:
        self._items = items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Items):
            return self._items == cast("Items[Any]", other)._items
        return self._items == (list(cast("tuple[Any, ...]", other)) if isinstance(other, tuple) else other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[T]) -> list[T]:
        return [*self._items, *other]

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True, slots=True)
class _Replace:
    grows: bool = False

    def start(self) -> Any:
        return MISSING

    def fold(self, old: Any, new: Any) -> Any:
        return new

    def view(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class _Append:
    grows: bool = True

    def start(self) -> Any:
        return []

    def fold(self, old: list[Any], new: Any) -> Any:
        if isinstance(new, Sequence) and not isinstance(new, str | bytes):
            old.extend(cast("Sequence[Any]", new))
        else:
            old.append(new)
        return old

    def view(self, value: list[Any]) -> Any:
        return Items(value)


@dataclass(frozen=True, slots=True)
class _Merge:
    grows: bool = False

    def start(self) -> Any:
        return {}

    def fold(self, old: dict[str, Any], new: Mapping[str, Any]) -> Any:
        for key, value in new.items():
            if value is None:
                old.pop(key, None)
            else:
                old[key] = value
        return old

    def view(self, value: dict[str, Any]) -> Any:
        return MappingProxyType(value)


@dataclass(frozen=True, slots=True)
class Custom:
    """A strategy made of a plain function of the old and the new value.

    The first `old` is what the key's type makes of nothing (0, "", [], {}), or None.
    """

    function: Callable[[Any, Any], Any]
    zero: Callable[[], Any] = lambda: None
    grows: bool = False

    def start(self) -> Any:
        return MISSING

    def fold(self, old: Any, new: Any) -> Any:
        return self.function(self.zero() if old is MISSING else old, new)

    def view(self, value: Any) -> Any:
        return value


replace: Final = _Replace()
"""The newest value counts."""
append: Final = _Append()
"""Values are added to a list; a list of values is added one by one."""
merge: Final = _Merge()
"""Entries are merged into a dict; an entry of None is removed."""
