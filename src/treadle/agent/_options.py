"""Checks of what an agent is configured and called with, so that a slip is heard of at once and by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.agent._reply import Limits
from treadle.agent._template import Template
from treadle.errors import InputError
from treadle.tool import Context

_ALLOWED: dict[str, tuple[str, ...]] = {
    "on_pending": ("settle", "error"),
    "output_reminder": ("tool_choice", "prompt"),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "context": (Context, type(None)),
    "description": (str,),
    "finish_name": (str,),
    "limits": (Limits, type(None)),
    "max_iters": (int,),
    "name": (str,),
    "options": (Mapping, type(None)),
    "system_prompt": (str, Template),
    "variables": (Mapping, type(None)),
}
_HINTS = {"context": "wrap it: `Context(...)`", "limits": "use `Limits(...)`"}


def as_context(given: Any) -> Context | None:
    """What a graph was given as context, for the tools of an agent in it."""
    return given if given is None or isinstance(given, Context) else Context(given)


def check_options(**given: Any) -> None:
    """Refuse an option whose value makes no sense.

    Raises:
        InputError: It names the option, the value and what is allowed.
    """
    for name, value in given.items():
        if name in _ALLOWED and value not in _ALLOWED[name]:
            allowed = " or ".join(repr(choice) for choice in _ALLOWED[name])
            raise InputError(f"`{name}` is {allowed}, not {value!r}.")
        if name in _TYPES and not isinstance(value, _TYPES[name]):
            kinds = " or ".join(kind.__name__ for kind in _TYPES[name] if kind is not type(None))
            hint = f"; {_HINTS[name]}" if name in _HINTS else ""
            raise InputError(f"`{name}` takes a {kinds}, not {value!r:.200}{hint}.")
