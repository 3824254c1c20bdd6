"""The schema of a graph's state: which keys there are, how they fold, and how they are stored."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from treadle.errors import StateError
from treadle.graph._strategy import MISSING, Custom, Strategy, append, merge, replace
from treadle.message import Msg
from treadle.message._codec import as_msgs

_PLAIN = (str, int, float, bool, type(None))


class Key:
    """One key of the state."""

    def __init__(self, name: str, annotation: Any = Any, strategy: Strategy = replace) -> None:
        self.name = name
        self.annotation = annotation
        self.strategy = strategy

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import ConfigDict, PydanticUserError, TypeAdapter

        config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", arbitrary_types_allowed=True)
        try:
            return TypeAdapter(self.annotation, config=config)
        except PydanticUserError:
            return TypeAdapter(self.annotation)

    @cached_property
    def of_msgs(self) -> bool:
        """Whether the key holds messages."""
        return self.annotation is Msg or Msg in get_args(self.annotation)

    def dump(self, value: Any) -> Any:
        """Turn an update into what a record may hold; what cannot be stored is an error now, not at the next crash."""
        if type(value) in _PLAIN or self.of_msgs:
            return value
        try:
            return json.loads(self._whole(value).dump_json(value, warnings="error"))
        except Exception as error:
            raise StateError(f"`{self.name}` cannot be stored: {error}") from error

    def load(self, value: Any) -> Any:
        """Turn a record's value back into what nodes see."""
        if type(value) in _PLAIN:
            return value
        if self.of_msgs:
            return as_msgs(value) if isinstance(value, Sequence) else as_msgs([value])[0]
        try:
            return self._whole(value).validate_json(json.dumps(value))
        except Exception as error:
            raise StateError(f"The stored value of `{self.name}` does not fit its type: {error}") from error

    def _whole(self, value: Any) -> Any:
        """The adapter for an update: of the key's type, or of one item where a list takes single items."""
        if self.strategy is not append or isinstance(value, list | tuple):
            return self._adapter
        return self._item_adapter

    @cached_property
    def _item_adapter(self) -> Any:
        from pydantic import TypeAdapter

        args = get_args(self.annotation)
        return TypeAdapter(args[0] if args else Any)


class Schema:
    """All keys of a state, by name. An untyped schema takes any key and replaces."""

    def __init__(
        self,
        keys: Mapping[str, Key],
        *,
        make: Callable[[dict[str, Any]], Any] = dict,
        open: bool = False,
        from_calls: Callable[[Sequence[tuple[Any, float]]], Mapping[str, Any]] | None = None,
    ) -> None:
        self.keys = dict(keys)
        self.make = make
        self.open = open
        self.from_calls = from_calls
        """Turns the results of call records into an update, for nodes that record only which calls they made."""

    def key(self, name: str) -> Key:
        """Return a key, or say which there are."""
        if name in self.keys:
            return self.keys[name]
        if self.open:
            return self.keys.setdefault(name, Key(name))
        known = ", ".join(f"`{key}`" for key in sorted(self.keys))
        raise StateError(f"The state has no key {name!r}; it has {known}.")

    def dump(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Turn an update into record values."""
        return {name: self.key(name).dump(value) for name, value in values.items()}

    def start(self) -> dict[str, Any]:
        """The state before anything happened."""
        return {name: key.strategy.start() for name, key in self.keys.items()}

    def fold(self, state: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Fold record values into the state."""
        for name, value in values.items():
            key = self.keys.get(name) or self.key(name)
            old = state[name] if name in state else key.strategy.start()
            state[name] = key.strategy.fold(old, key.load(value))

    def view(self, state: Mapping[str, Any]) -> Any:
        """The state as nodes see it: read-only values, in the shape of the user's type."""
        shown = {
            name: self.keys[name].strategy.view(value)
            for name, value in state.items()
            if value is not MISSING and name in self.keys
        }
        try:
            return self.make(shown)
        except Exception as error:
            raise StateError(f"The state does not fit its type: {error}") from error


def _strategy_of(annotation: Any) -> tuple[Any, Strategy]:
    """Split `Annotated[list[int], append]` into the type and its strategy."""
    inner, extras = annotation, ()
    if hasattr(annotation, "__metadata__"):
        inner, extras = annotation.__origin__, annotation.__metadata__
    for extra in extras:
        if extra in (append, merge, replace) or hasattr(extra, "fold"):
            return inner, extra
        if callable(extra):
            return inner, Custom(extra, _zero(inner))
    return inner, replace


def _zero(annotation: Any) -> Callable[[], Any]:
    made = get_origin(annotation) or annotation
    return made if made in (int, float, str, bool, list, dict, set, tuple) else lambda: None


def _plain_lists(value: dict[str, Any]) -> dict[str, Any]:
    from treadle.graph._strategy import Items

    return {k: v[:] if isinstance(v, Items) else dict(v) if isinstance(v, Mapping) else v for k, v in value.items()}


def schema_of(state: Any) -> Schema:
    """Make a schema from a TypedDict, a dataclass, a pydantic model, or a dict of strategies; None takes any key."""
    if state is None or state is dict or get_origin(state) is dict:
        return Schema({}, open=True)
    if isinstance(state, Schema):
        return state
    if isinstance(state, Mapping):
        return Schema({name: Key(name, *_strategy_of_value(given)) for name, given in state.items()})
    hints = get_type_hints(state, include_extras=True)
    keys = {name: Key(name, *_strategy_of(hint)) for name, hint in hints.items() if not name.startswith("_")}
    if is_typeddict(state):
        return Schema(keys)
    if dataclasses.is_dataclass(state) or hasattr(state, "model_validate"):
        make = getattr(state, "model_validate", None) or (lambda values: state(**values))
        return Schema(keys, make=lambda values: make(_plain_lists(values)))
    raise StateError(f"{state!r} cannot be the type of a state; use a TypedDict, a dataclass or a pydantic model.")


def _strategy_of_value(given: Any) -> tuple[Any, Strategy]:
    return Any, given if hasattr(given, "fold") else Custom(given)
