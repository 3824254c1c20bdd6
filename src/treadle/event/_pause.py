"""What a paused thread waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

WishKind: TypeAlias = Literal["approval", "external", "unknown", "input", "breakpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that the outside must answer, under `id`.

    `approval`: may this call run? `external`: run this call for me. `unknown`: this call was started and nobody knows
    how it ended. `input`: an answer to `pause(value)` in a node. `breakpoint`: the graph stops here, go on when ready.
    """

    id: str
    kind: WishKind
    reason: str = ""
    name: str = ""
    input: Mapping[str, Any] | None = None
    value: Any = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Everything that a thread waits for. Answer with `resume(thread, {wish.id: decision})`."""

    thread: str
    wishes: tuple[Wish, ...]

    @property
    def calls(self) -> tuple[Wish, ...]:
        """The wishes that are about tool calls."""
        return tuple(wish for wish in self.wishes if wish.kind in ("approval", "external", "unknown"))

    @property
    def kind(self) -> WishKind:
        """The kind of the first wish, which in most pauses is the kind of all."""
        return self.wishes[0].kind
