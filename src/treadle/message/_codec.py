"""Messages to JSON and back, without loss.

Writing is by hand, because it is on the path of every stored step and leaves out what is at its default. Reading goes
through one pydantic adapter, so that a broken file or a foreign message gives an error that names the field.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from treadle.errors import FormatError
from treadle.message._msg import Msg

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_MISSING = dataclasses.MISSING


@cache
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    """Name and default of every field; `type` has no default here, because a reader needs it to be written."""
    return tuple(
        (f.name, _MISSING if f.name == "type" else f.default)
        for f in dataclasses.fields(cls)
        if f.name != "__weakref__"
    )


def to_jsonable(value: Any) -> Any:
    """Turn one dataclass of Treadle's vocabulary into a dict; the `default=` of `json.dumps`."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} cannot be stored as JSON: {value!r:.200}")
    out: dict[str, Any] = {}
    for name, default in _fields(type(value)):
        item = getattr(value, name)
        if default is _MISSING or item != default:
            out[name] = item
    return out


_encoder = json.JSONEncoder(default=to_jsonable, separators=(",", ":"), ensure_ascii=False)


def dumps(value: Any) -> str:
    """Write JSON, messages and blocks inside included."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"This cannot be stored as JSON: {error}") from error


@cache
def _adapter() -> TypeAdapter[list[Msg]]:
    from pydantic import TypeAdapter

    return TypeAdapter(list[Msg])


def msg_to_json(msg: Msg) -> str:
    """Write one message as JSON."""
    return dumps(msg)


def msg_from_json(text: str | bytes) -> Msg:
    """Read one message that `msg_to_json` wrote."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FormatError(f"This is not JSON: {error}") from error
    return as_msgs([data])[0]


def as_msgs(values: Iterable[Any]) -> list[Msg]:
    """Take messages as they are and build them from dicts otherwise."""
    items = list(values)
    for item in items:
        if type(item) is not Msg:
            break
    else:
        return items
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(items)
    except ValidationError as error:
        raise FormatError(f"This is not a Treadle message: {error}") from error
