"""Reading JSON that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from treadle.errors import MalformedResponseError

_EMPTY: Mapping[str, Any] = {}


def obj(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one: a provider may leave out or null whatever is optional."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else _EMPTY


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list, if it is one."""
    return [obj(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """The value if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> int:
    """The value if it is a number, else zero."""
    return int(value) if isinstance(value, int | float) else 0


def event_data(data: str) -> Mapping[str, Any]:
    """The object in an event of a stream."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MalformedResponseError(f"An event of the stream is not JSON: {data[:200]!r}") from error
    if not isinstance(value, dict):
        raise MalformedResponseError(f"An event of the stream is not an object: {data[:200]!r}")
    return cast("Mapping[str, Any]", value)
