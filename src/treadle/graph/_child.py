"""What goes into a graph that is a node of another, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from treadle.errors import StateError
from treadle.graph._schema import Schema
from treadle.graph._state import ThreadState
from treadle.graph._strategy import MISSING, Custom, Strategy, append, merge, own, plain


def as_mapping(state: Any) -> Mapping[str, Any]:
    """A state of any shape as a mapping of its keys."""
    if isinstance(state, Mapping):
        return cast("Mapping[str, Any]", state)
    kind = cast("Any", type(state))
    fields: Any = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", None)
    if fields is None:
        raise StateError(f"{state!r:.200} cannot be the state of a graph; give a dict.")
    return {name: getattr(state, name) for name in cast("Mapping[str, Any]", fields)}


def shared(schema: Schema, state: Any) -> dict[str, Any]:
    """The keys of a state that a child has too; what a custom strategy folds starts from nothing in a child."""
    return {
        name: plain(value)
        for name, value in as_mapping(state).items()
        if schema.open or (name in schema.keys and not isinstance(schema.keys[name].strategy, Custom))
    }


def changes(parent: Schema, before: ThreadState, child: ThreadState) -> dict[str, Any]:
    """What a child did to the keys it shares with its parent, as an update of the parent."""
    out: dict[str, Any] = {}
    for name, value in child.values.items():
        target = parent.keys.get(name)
        if value is MISSING or (target is None and not parent.open):
            continue
        ours = child.schema.keys[name].strategy
        change = _change(ours, None if target is None else target.strategy, before.values.get(name, MISSING), value)
        if change is not MISSING:
            out[name] = own(change)
    return out


def _change(ours: Strategy, theirs: Strategy | None, before: Any, now: Any) -> Any:
    if ours is append and theirs is append:
        return now[len(before) :] or MISSING
    if ours is merge and theirs is merge:
        new = {name: value for name, value in now.items() if name not in before or before[name] != value}
        return new | {name: None for name in before if name not in now} or MISSING
    return MISSING if before is not MISSING and before == now else now
