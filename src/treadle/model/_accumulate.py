"""Deltas on their way to a response: collected in lists, joined and parsed once at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from treadle.message import Block, TextBlock, ThinkingBlock, ToolUseBlock


class _Part:
    """One block of an answer that is still coming."""

    __slots__ = ("extra", "id", "kind", "name", "place", "texts")

    def __init__(self, kind: str, place: int) -> None:
        self.kind = kind
        self.place = place
        self.texts: list[str] = []
        self.name = ""
        self.id = ""
        self.extra: dict[str, Any] = {}

    def block(self) -> Block | None:
        text = "".join(self.texts)
        extra = self.extra or None
        if self.kind == "text":
            return TextBlock(text=text, extra=extra) if text or extra else None
        if self.kind == "thinking":
            return ThinkingBlock(thinking=text, extra=extra) if text or extra else None
        return tool_use(self.name, text, self.id, extra)


class Accumulator:
    """Collects the pieces of an answer by block. Every piece costs the same, however long the answer gets."""

    def __init__(self) -> None:
        self._parts: dict[Any, _Part] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def part(self, key: Any, kind: str) -> _Part:
        """The block under a key, begun if it is new."""
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = _Part(kind, len(self._parts))
        return found

    def index(self, key: Any) -> int:
        """The place of a block in the answer."""
        return self._parts[key].place

    def text(self) -> str:
        """The text so far, for an error that says what had come."""
        return "".join(text for part in self._parts.values() if part.kind == "text" for text in part.texts)

    def blocks(self) -> tuple[Block, ...]:
        """The whole answer, in the order in which its blocks began."""
        return tuple(block for part in self._parts.values() if (block := part.block()) is not None)


def tool_use(
    name: str, arguments: str | Mapping[str, Any], id: str = "", extra: Mapping[str, Any] | None = None
) -> ToolUseBlock:
    """A call as the provider gave it; arguments that are no JSON object are kept as the text they are.

    Nothing, and `null`, are how some providers say that a call has no arguments.
    The provider's id goes into `extra`: Treadle gives calls ids of its own.
    """
    given: dict[str, Any] = {"id": id} if id else {}
    kept = {**given, **(extra or {})} or None
    if isinstance(arguments, Mapping):
        return ToolUseBlock(id="", name=name, input=arguments, extra=kept)
    try:
        value: Any = json.loads(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        value = arguments
    if value is None:
        value = {}
    if isinstance(value, dict):
        return ToolUseBlock(id="", name=name, input=cast("dict[str, Any]", value), extra=kept)
    return ToolUseBlock(id="", name=name, input={}, raw=arguments, extra=kept)
