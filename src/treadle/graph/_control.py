"""The small values with which nodes and edges steer a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from treadle.event import Wish

START: Final = "__start__"
"""Where a graph begins."""
END: Final = "__end__"
"""Where a graph ends."""


@dataclass(frozen=True, slots=True)
class Send:
    """Run a node with a value of its own instead of the state; several of them map the node over values.

    `arg` is stored, so it must be JSON; in a dict, entries named like a key of the state may be of that key's type.
    """

    node: str
    arg: Any


Goto: TypeAlias = str | Send | Sequence[str | Send]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A node's update together with where to go next; the edges of the node are not followed.

    `goto`, `reason` and `pause` steer once: they are recorded with the step and never become part of the state.
    """

    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    goto: Goto | None = None
    reason: str | None = None
    calls: Sequence[str] | None = None
    pause: Sequence[Wish] = ()
