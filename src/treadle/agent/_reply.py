"""What a call returns, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from treadle.errors import InputError
from treadle.event import Pause
from treadle.message import Msg
from treadle.model import Usage

OutputT = TypeVar("OutputT")
Reason: TypeAlias = Literal[
    "answered", "finished", "stopped", "max_iters", "interrupted", "paused", "length", "refused", "budget"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Msg, Generic[OutputT]):
    """The agent's answer: a message that also says why the run stopped, what it cost and what it waits for.

    `reason`: `answered` (the model called no tool), `finished` (structured output, or a tool that ends the run),
    `stopped` (a hook), `max_iters` (a summary), `interrupted`, `paused` (see `pause`), `length` or `refused` (the
    provider cut the answer off), `budget` (a limit was reached).
    """

    reason: Reason
    usage: Usage = field(default_factory=Usage)
    output: OutputT = None  # type: ignore[assignment]
    pause: Pause | None = None
    thread: str = ""
    run: str = ""

    __hash__ = Msg.__hash__

    def as_msg(self) -> Msg:
        """The message alone, as it is stored."""
        return Msg(
            role=self.role,
            content=self.content,
            name=self.name,
            id=self.id,
            metadata=self.metadata,
            timestamp=self.timestamp,
        )


def make_reply(msg: Msg, **fields: Any) -> Reply[Any]:
    """A reply with the content of a message."""
    return Reply(
        role=msg.role,
        content=msg.content,
        name=msg.name,
        id=msg.id,
        metadata=msg.metadata,
        timestamp=msg.timestamp,
        **fields,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one turn may cost, over all its pauses; checked before each model call. None means: no limit."""

    iterations: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.iterations is not None and self.iterations < 1:
            raise InputError(f"`Limits.iterations` must be at least 1, not {self.iterations!r}.")
        for name in ("tokens", "usd", "seconds"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise InputError(f"`Limits.{name}` must not be negative, and is {value!r}.")
