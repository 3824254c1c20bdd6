"""What a run of a graph may be asked to do, in the words that agents use too."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from treadle._ids import new_id
from treadle.errors import InputError

OnBusy: TypeAlias = Literal["error", "wait"]
"""What to do if another run drives the thread: raise `AgentBusyError`, or wait for it."""
When: TypeAlias = Literal["checkpoint", "now"]
"""When an interrupt takes effect: before the next step, or at once."""


def must_wait(on_busy: OnBusy) -> bool:
    """Whether to wait for a thread that somebody else drives."""
    return _chosen("on_busy", on_busy, get_args(OnBusy)) == "wait"


def at_once(when: When) -> bool:
    """Whether to interrupt without waiting for the next step."""
    return _chosen("when", when, get_args(When)) == "now"


def named(thread: Any) -> str:
    """The name of a thread; an empty one is a slip, and no wish for a new thread."""
    if not isinstance(thread, str) or not thread:
        raise InputError(f"`thread` is the name of a thread, a text that is not empty, not {thread!r:.200}.")
    return thread


def named_or_new(thread: str | None) -> str:
    """The name of a thread, made up where none is given."""
    return new_id("thread") if thread is None else named(thread)


def _chosen(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise InputError(f"`{name}` is {' or '.join(map(repr, allowed))}, not {value!r:.200}.")
    return value
