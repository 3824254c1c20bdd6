"""The schema of a graph's state: which keys there are, how they fold, and how they are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NotRequired, Required, cast, get_args, get_origin, get_type_hints, is_typeddict

from treadle.errors import StateError
from treadle.graph._key import Key
from treadle.graph._strategy import MISSING, Custom, Strategy, as_json, plain, replace

__all__ = ["Key", "Schema", "schema_of"]


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

    def check(self, values: Mapping[str, Any]) -> None:
        """Find out now whether record values can be read back, before others are stored that depend on it."""
        for name, value in values.items():
            self.key(name).load(value)

    def dump_arg(self, node: str, arg: Any) -> Any:
        """Turn what a `Send` carries into what a record may hold."""
        given = plain(arg)
        if not isinstance(given, Mapping):
            return _json(node, given)
        entries = cast("Mapping[str, Any]", given).items()
        return {name: self.keys[name].dump(v) if name in self.keys else _json(node, v) for name, v in entries}

    def load_arg(self, arg: Any) -> Any:
        """Turn it back."""
        if not isinstance(arg, Mapping):
            return arg
        entries = cast("Mapping[str, Any]", arg).items()
        return {name: self.keys[name].load(value) if name in self.keys else value for name, value in entries}

    def start(self) -> dict[str, Any]:
        """The state before anything happened."""
        return {name: key.start() for name, key in self.keys.items()}

    def fold(self, state: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Fold record values into the state."""
        for name, value in values.items():
            key = self.keys.get(name) or self.key(name)
            old = state[name] if name in state else key.start()
            new = key.load(value)
            try:
                state[name] = key.strategy.fold(old, new)
            except Exception as error:
                raise StateError(f"`{name}` could not be updated: {type(error).__name__}: {error}") from error

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


def _json(node: str, value: Any) -> Any:
    try:
        return as_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            f"What is sent to node {node!r} cannot be stored: {error}. Send JSON, or a dict of the state's keys."
        ) from error


def _strategy_of(annotation: Any) -> tuple[Any, Strategy]:
    """Split `Annotated[list[int], append]` into the type and its strategy."""
    if get_origin(annotation) in (NotRequired, Required):
        annotation = get_args(annotation)[0]
    inner: Any = getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
    for extra in getattr(annotation, "__metadata__", ()):
        if hasattr(extra, "fold"):
            return inner, extra
        if callable(extra):
            return inner, _custom(extra, _zero(inner))
    return inner, replace


def _custom(function: Callable[[Any, Any], Any], zero: Callable[[], Any] = lambda: None) -> Custom:
    """A strategy of the user's. What it makes need not be storable, so it is folded again, not kept in snapshots."""
    return Custom(function, zero, grows=True)


def _zero(annotation: Any) -> Callable[[], Any]:
    made = get_origin(annotation) or annotation
    return made if made in (int, float, str, bool, list, dict, set, tuple) else lambda: None


def schema_of(state: Any) -> Schema:
    """Make a schema from a TypedDict, a dataclass, a pydantic model, or a dict of strategies; None takes any key."""
    if state is None or state is dict or get_origin(state) is dict:
        return Schema({}, open=True)
    if isinstance(state, Schema):
        return state
    if isinstance(state, Mapping):
        given = cast("Mapping[str, Any]", state)
        return Schema({name: Key(name, Any, _given_strategy(name, how)) for name, how in given.items()})
    if is_typeddict(state):
        return Schema(_keys(state))
    if dataclasses.is_dataclass(state) or hasattr(state, "model_validate"):
        return Schema(_keys(state), make=_maker(state))
    raise StateError(f"{state!r} cannot be the type of a state; use a TypedDict, a dataclass or a pydantic model.")


def _maker(state: Any) -> Callable[[dict[str, Any]], Any]:
    validate: Callable[[dict[str, Any]], Any] | None = getattr(state, "model_validate", None)

    def make(shown: dict[str, Any]) -> Any:
        values = {name: plain(value) for name, value in shown.items()}
        return validate(values) if validate else state(**values)

    return make


def _keys(state: Any) -> dict[str, Key]:
    try:
        hints = get_type_hints(state, include_extras=True)
    except NameError as error:
        raise StateError(f"The annotations of {state!r} cannot be read: {error}. Define it in a module.") from error
    keys: dict[str, Key] = {}
    for name, hint in hints.items():
        if not name.startswith("_") and get_origin(hint) is not ClassVar and name != "model_config":
            inner, strategy = _strategy_of(hint)
            keys[name] = Key(name, inner, strategy, None if strategy is replace else _default_of(state, name))
    return keys


def _default_of(state: Any, name: str) -> Callable[[], Any] | None:
    """Where updates add to something, they add to the default that the type gives the key."""
    if hasattr(state, "model_fields"):
        field = state.model_fields[name]
        return None if field.is_required() else lambda: field.get_default(call_default_factory=True)
    field = getattr(state, "__dataclass_fields__", {}).get(name)
    if field is None or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
        return None
    return field.default_factory if field.default is dataclasses.MISSING else lambda: field.default


def _given_strategy(name: str, given: Any) -> Strategy:
    if hasattr(given, "fold"):
        return given
    if not callable(given) or isinstance(given, type):
        raise StateError(f"The strategy of `{name}` must be `replace`, `append`, `merge` or a function, not {given!r}.")
    return _custom(given)
