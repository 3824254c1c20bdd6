"""Anthropic's Messages: answers, streamed or whole. Both go through the same few functions, so both give the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from treadle.errors import MalformedResponseError
from treadle.formatter._base import ResponseReader
from treadle.formatter._json import event_data, items, number, obj, text
from treadle.message import Block, ToolUseBlock
from treadle.message._codec import dumps
from treadle.model import Delta, ModelResponse, StopReason, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from treadle.model._accumulate import Accumulator
from treadle.model._failures import failure
from treadle.model._sse import ServerEvent

PROVIDER: Final = "Anthropic"
SIGNATURE: Final = "signature"
"""Where a thinking block's `extra` has its signature."""
REDACTED: Final = "redacted_thinking"
"""Where a thinking block's `extra` has the data of thinking that is not shown."""

_STOP: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_PLAIN = ("end_turn", "tool_use", "max_tokens")


class AnthropicReader(ResponseReader):
    """Reads events. Blocks that Treadle has no word for (a server's own tools) are skipped with all their deltas."""

    def __init__(self) -> None:
        self._parts = Accumulator()
        self._skipped: set[Any] = set()
        self._given: set[Any] = set()
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._done = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        if self._done or event.data == "[DONE]":
            return ()
        data = event_data(event.data)
        match data.get("type") or event.name:
            case "content_block_delta":
                return self._delta(data.get("index", 0), obj(data.get("delta")))
            case "content_block_start":
                return self.begin(data.get("index", 0), obj(data.get("content_block")))
            case "message_start":
                self.update(obj(data.get("message")), obj(data.get("message")).get("usage"))
            case "message_delta":
                self.update(obj(data.get("delta")), data.get("usage"))
            case "message_stop":
                self._done = True
            case "error":
                raise failure(PROVIDER, 200, data)
            case _:
                pass  # `ping`, `content_block_stop`, and whatever the provider adds.
        return ()

    def update(self, message: Mapping[str, Any], usage: Any) -> None:
        """Take what is said about the whole answer; its counts are totals, and those left out stay as they were."""
        self._message |= {key: value for key, value in message.items() if value is not None}
        self._usage |= {key: value for key, value in obj(usage).items() if value is not None}

    def begin(self, index: Any, block: Mapping[str, Any]) -> Iterable[Delta]:
        """Take the beginning of a block: all of it, in an answer that is not streamed."""
        match block.get("type"):
            case "text":
                return self._text(index, text(block.get("text")))
            case "thinking":
                out = self._thinking(index, text(block.get("thinking")))
                self._sign(index, text(block.get("signature")))
                return out
            case "redacted_thinking":
                self._parts.part(index, "thinking").extra[REDACTED] = text(block.get("data"))
            case "tool_use":
                return self._call(index, block)
            case _:
                self._skipped.add(index)
        return ()

    def _delta(self, index: Any, delta: Mapping[str, Any]) -> Iterable[Delta]:
        if index in self._skipped:
            return ()
        match delta.get("type"):
            case "text_delta":
                return self._text(index, text(delta.get("text")))
            case "thinking_delta":
                return self._thinking(index, text(delta.get("thinking")))
            case "signature_delta":
                self._sign(index, text(delta.get("signature")))
            case "input_json_delta":
                return self._arguments(index, text(delta.get("partial_json")))
            case _:
                pass
        return ()

    def _text(self, index: Any, piece: str) -> Iterable[Delta]:
        self._parts.part(index, "text").texts.append(piece)
        return (TextDelta(piece, index),) if piece else ()

    def _thinking(self, index: Any, piece: str) -> Iterable[Delta]:
        self._parts.part(index, "thinking").texts.append(piece)
        return (ThinkingDelta(piece, index),) if piece else ()

    def _sign(self, index: Any, signature: str) -> None:
        if signature:
            self._parts.part(index, "thinking").extra[SIGNATURE] = signature

    def _call(self, index: Any, block: Mapping[str, Any]) -> Iterable[Delta]:
        part = self._parts.part(index, "tool_use")
        part.name, part.id = text(block.get("name")), text(block.get("id"))
        arguments = _as_text(block.get("input"))
        if arguments:
            part.texts.append(arguments)
            self._given.add(index)
        return (ToolCallDelta(arguments, index, part.id or None, part.name),)

    def _arguments(self, index: Any, piece: str) -> Iterable[Delta]:
        if not piece:
            return ()
        part = self._parts.part(index, "tool_use")
        if index in self._given:  # Some servers give the whole input first, and then again in pieces.
            self._given.discard(index)
            part.texts.clear()
        part.texts.append(piece)
        return (ToolCallDelta(piece, index),)

    def finish(self) -> ModelResponse:
        if not self._done:
            raise MalformedResponseError("The stream ended without `message_stop`.", partial=self.partial())
        return self.whole()

    def whole(self) -> ModelResponse:
        """The answer as far as it came."""
        blocks = self._parts.blocks()
        return ModelResponse(
            content=blocks,
            stop_reason=_stop(text(self._message.get("stop_reason")), blocks),
            usage=usage_of(self._usage),
            id=text(self._message.get("id")) or None,
            metadata=_details(self._message),
        )

    def partial(self) -> str:
        return self._parts.text()


def read_message(data: Mapping[str, Any]) -> ModelResponse:
    """The answer in a response that was not streamed."""
    if data.get("type") == "error" or data.get("error"):
        raise failure(PROVIDER, 200, data)
    if not isinstance(data.get("content"), list):
        raise MalformedResponseError(f"There is no content in the answer: {json.dumps(data)[:300]}")
    reader = AnthropicReader()
    reader.update(data, data.get("usage"))
    for index, block in enumerate(items(data["content"])):
        reader.begin(index, block)
    return reader.whole()


def usage_of(given: Mapping[str, Any]) -> Usage:
    """What an answer cost.

    The provider counts what it read from its cache, what it wrote to it, and the rest of the input apart;
    `input_tokens` is the sum of the three, as with every other provider, and `cached_tokens` is what was read.
    """
    read = number(given.get("cache_read_input_tokens"))
    written = number(given.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=number(given.get("input_tokens")) + read + written,
        output_tokens=number(given.get("output_tokens")),
        cached_tokens=read,
        reasoning_tokens=number(obj(given.get("output_tokens_details")).get("thinking_tokens")),
        requests=1,
    )


def _stop(reason: str, blocks: Sequence[Block]) -> StopReason:
    found = _STOP.get(reason, "stop")
    calls = any(isinstance(block, ToolUseBlock) for block in blocks)
    return "tool_use" if calls and found == "stop" else found


def _details(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Why the answer ended, where `stop_reason` alone does not say it."""
    if message.get("stop_reason") in (None, *_PLAIN):
        return None
    keys = ("stop_reason", "stop_sequence", "stop_details")
    return {key: message[key] for key in keys if message.get(key) is not None}


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else dumps(arguments) if arguments else ""
