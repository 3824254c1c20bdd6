"""How an update changes a key of the state.

A strategy works on a value of its own making, in place where that keeps a step's cost flat; nodes get `view(value)`,
and nothing they do to it changes the state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload

from treadle.message import Msg

T = TypeVar("T")
_UNCHANGEABLE = frozenset({str, int, float, bool, bytes, type(None), Msg})


class _Missing:
    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""The value of a key that nothing was written to."""


class Strategy(Protocol):
    """How one key of the state is kept. `grows` means: rebuilt from records, not repeated in snapshots."""

    @property
    def grows(self) -> bool:
        """Whether snapshots leave the value out."""
        ...

    def start(self) -> Any:
        """The value before the first update."""
        ...

    def fold(self, old: Any, new: Any) -> Any:
        """The value after an update; `old` may be changed and returned."""
        ...

    def view(self, value: Any) -> Any:
        """What nodes see."""
        ...


def own(value: T) -> T:
    """A value that its holder may change without changing the original."""
    return value if type(value) in _UNCHANGEABLE else deepcopy(value)


class Items(Sequence[T], Generic[T]):
    """A read-only look at a growing list; items are copied as they are taken out."""

    __slots__ = ("_items",)

    def __init__(self, items: list[T]) -> None:
        self._items = items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return [own(item) for item in self._items[index]] if isinstance(index, slice) else own(self._items[index])

    def __iter__(self) -> Iterator[T]:
        return map(own, self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Items):
            return self._items == cast("Items[Any]", other)._items
        return self._items == (list(cast("tuple[Any, ...]", other)) if isinstance(other, tuple) else other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[T]) -> list[T]:
        return [*self, *other]

    def __repr__(self) -> str:
        return repr(self._items)


class Entries(Mapping[str, T], Generic[T]):
    """A read-only look at a growing dict; values are copied as they are taken out."""

    __slots__ = ("_entries",)

    def __init__(self, entries: dict[str, T]) -> None:
        self._entries = entries

    def __getitem__(self, key: str) -> T:
        return own(self._entries[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __or__(self, other: Mapping[str, T]) -> dict[str, T]:
        return {**self, **other}

    def __repr__(self) -> str:
        return repr(self._entries)


def plain(value: Any) -> Any:
    """A list or a dict instead of a look at one, as it is now."""
    if isinstance(value, Items):
        return cast("Items[Any]", value)[:]
    return dict(cast("Entries[Any]", value)) if isinstance(value, Entries) else value


def as_json(value: Any) -> Any:
    """A value as JSON gives it back, looks at lists and dicts included; `TypeError` or `ValueError` if it cannot."""
    return json.loads(json.dumps(value, default=_looked_at))


def _looked_at(value: Any) -> Any:
    if isinstance(value, Items | Entries):
        return plain(value)
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r:.200}")


@dataclass(frozen=True, slots=True)
class _Replace:
    grows: bool = False

    def start(self) -> Any:
        return MISSING

    def fold(self, old: Any, new: Any) -> Any:
        return new

    def view(self, value: Any) -> Any:
        return own(value)


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
        return Entries(value)


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
        return own(value)


replace: Final = _Replace()
"""The newest value counts."""
append: Final = _Append()
"""Values are added to a list; a list of values is added one by one."""
merge: Final = _Merge()
"""Entries are merged into a dict; an entry of None is removed."""
