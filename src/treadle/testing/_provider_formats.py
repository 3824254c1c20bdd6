"""How a fake provider says things: one table entry for each wire format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.message import TextBlock, ThinkingBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.model import ModelResponse

PIECE = 5  # characters in a delta


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is to be said, and the request that it answers."""

    response: ModelResponse
    path: str
    body: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model", "fake"))

    @property
    def id(self) -> str:
        """The answer's id."""
        return self.response.id or "answer-1"

    @property
    def text(self) -> str:
        """All text."""
        return "".join(block.text for block in self.response.content if isinstance(block, TextBlock))

    @property
    def thinking(self) -> str:
        """All thinking."""
        return "".join(block.thinking for block in self.response.content if isinstance(block, ThinkingBlock))

    @property
    def calls(self) -> list[ToolUseBlock]:
        """The tool calls, each with an id and its arguments as text in `raw`."""
        found = [block for block in self.response.content if isinstance(block, ToolUseBlock)]
        return [_call(block, number) for number, block in enumerate(found, 1)]


def _call(block: ToolUseBlock, number: int) -> ToolUseBlock:
    id = block.id or (block.extra or {}).get("id") or f"call_{number}"
    raw = dumps(block.input) if block.raw is None else block.raw
    return ToolUseBlock(id=id, name=block.name, input=block.input, raw=raw, extra=block.extra)


def pieces(text: str) -> list[str]:
    """A text as a stream brings it."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """One provider's way to say an answer.

    `events` gives the encoded events of a stream in order, the last of them the terminal marker where there is one;
    `error` gives the JSON of an error for a status, a code and a text.
    """

    name: str
    path: re.Pattern[str]
    streams: Callable[[str, Mapping[str, Any]], bool]
    whole: Callable[[Said], Mapping[str, Any]]
    events: Callable[[Said], Sequence[bytes]]
    error: Callable[[int, str, str], Mapping[str, Any]]
    event: Callable[[str], bytes]
    content_type: str = "text/event-stream"
    comment: bytes = b": keep-alive\n\n"


def server_event(data: str, name: str = "") -> bytes:
    """A server-sent event."""
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def json_event(data: Any, name: str = "") -> bytes:
    """A server-sent event with JSON in it."""
    return server_event(json.dumps(data, ensure_ascii=False), name)


def find_format(path: str) -> WireFormat | None:
    """The format that an address belongs to."""
    from treadle.testing._provider_openai import OPENAI_CHAT

    formats = (OPENAI_CHAT,)
    return next((known for known in formats if known.path.search(path)), None)
