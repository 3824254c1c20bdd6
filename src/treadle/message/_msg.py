"""`Msg`: one immutable message."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, cast

from treadle._ids import new_id
from treadle.message._blocks import Block, TextBlock, ToolResultBlock, ToolUseBlock

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
B = TypeVar("B")


def _new_msg_id() -> str:
    return new_id("msg")


now = time.time
"""The time that messages and records carry: seconds since 1970."""


def as_blocks(content: str | Block | Sequence[Block]) -> tuple[Block, ...]:
    """Return message content as blocks, whichever form it was given in."""
    if isinstance(content, str):
        return (TextBlock(text=content),)
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return tuple(content)
    return (cast("Block", content),)


def _shown(block: Block) -> str:
    """A block in a word or two, for people."""
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ToolUseBlock):
        return f"[calls {block.name}]"
    return f"[{block.name}: {block.text}]" if isinstance(block, ToolResultBlock) else f"[{block.type}]"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Msg:
    """One message of a conversation. Content that is text, one block or a list becomes a tuple of blocks.

    Example:
        >>> Msg.user("What is 17 + 25?").text
        'What is 17 + 25?'
    """

    role: Role
    content: tuple[Block, ...]
    name: str = ""
    id: str = field(default_factory=_new_msg_id)
    metadata: Mapping[str, Any] | None = None
    timestamp: float = field(default_factory=now)

    def __post_init__(self) -> None:
        if type(self.content) is not tuple:
            object.__setattr__(self, "content", as_blocks(self.content))

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def user(cls, content: str | Block | Sequence[Block], *, name: str = "user", **fields: Any) -> Msg:
        """A message from the person or program that talks to the agent."""
        return Msg(role="user", name=name, content=as_blocks(content), **fields)

    @classmethod
    def assistant(cls, content: str | Block | Sequence[Block], *, name: str = "assistant", **fields: Any) -> Msg:
        """A message from the model."""
        return Msg(role="assistant", name=name, content=as_blocks(content), **fields)

    @classmethod
    def system(cls, content: str | Block | Sequence[Block], *, name: str = "system", **fields: Any) -> Msg:
        """Instructions for the model."""
        return Msg(role="system", name=name, content=as_blocks(content), **fields)

    @classmethod
    def tool(cls, content: ToolResultBlock | Sequence[ToolResultBlock], *, name: str = "tool", **fields: Any) -> Msg:
        """Results of tool calls."""
        return Msg(role="tool", name=name, content=as_blocks(content), **fields)

    def __str__(self) -> str:
        parts = [_shown(block) for block in self.content]
        return f"{self.name or self.role}: {' '.join(part for part in parts if part)}"

    @property
    def text(self) -> str:
        """All text blocks, joined by line breaks; thinking, media and calls left out."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_calls(self) -> list[ToolUseBlock]:
        """The calls that this message asks for."""
        return self.blocks(ToolUseBlock)

    @property
    def tool_results(self) -> list[ToolResultBlock]:
        """The results that this message carries."""
        return self.blocks(ToolResultBlock)

    def blocks(self, kind: type[B]) -> list[B]:
        """All blocks of one class, in order."""
        return [block for block in self.content if isinstance(block, kind)]
