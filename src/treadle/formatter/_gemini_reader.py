"""Gemini's answers: the parts of a candidate, whole or in chunks, to blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.errors import BadRequestError, ContentRefusedError, MalformedResponseError
from treadle.formatter._base import ResponseReader
from treadle.formatter._json import event_data, items, number, obj, text
from treadle.message import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    VideoBlock,
)
from treadle.message._codec import dumps
from treadle.model import Delta, ModelResponse, StopReason, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from treadle.model._accumulate import tool_use
from treadle.model._failures import failure
from treadle.model._sse import ServerEvent

_REFUSED = ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR")
_REFUSED_IMAGES = ("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION")
_STOP: dict[str, StopReason] = {"MAX_TOKENS": "length", **dict.fromkeys(_REFUSED + _REFUSED_IMAGES, "refused")}
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
_UNSIGNED = "MISSING_THOUGHT_SIGNATURE"


class GeminiReader(ResponseReader):
    """Reads chunks; an answer that was not streamed is one chunk, so both give the same."""

    def __init__(self) -> None:
        self._parts: list[_Said | Block] = []
        self._finish = ""
        self._message = ""
        self._usage: Mapping[str, Any] = {}
        self._id: str | None = None
        self._candidates = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        return self.take(event_data(event.data))

    def take(self, data: Mapping[str, Any]) -> list[Delta]:
        """Take a chunk, and return the deltas in it."""
        if data.get("error"):
            raise failure("Gemini", number(obj(data["error"]).get("code")) or 200, data)
        self._id = self._id or text(data.get("responseId")) or None
        self._usage = obj(data.get("usageMetadata")) or self._usage
        found = [one for one in items(data.get("candidates")) if not one.get("index")]
        self._candidates = self._candidates or bool(found)
        if (reason := obj(data.get("promptFeedback")).get("blockReason")) and not self._candidates:
            raise ContentRefusedError(f"Gemini refused the prompt: {reason}.", provider="Gemini")
        return [delta for candidate in found for delta in self._candidate(candidate)]

    def _candidate(self, candidate: Mapping[str, Any]) -> Iterable[Delta]:
        self._finish = text(candidate.get("finishReason")) or self._finish
        self._message = text(candidate.get("finishMessage")) or self._message
        for part in items(obj(candidate.get("content")).get("parts")):
            delta = self._part(part)
            if delta is not None:
                yield delta

    def _part(self, part: Mapping[str, Any]) -> Delta | None:
        if "text" in part:
            return self._text(part)
        if "functionCall" in part:
            return self._call(part)
        self._parts.append(_media(part) or ThinkingBlock(thinking="", extra={"part": dict(part)}))
        return None

    def _text(self, part: Mapping[str, Any]) -> Delta | None:
        """Text goes on in the part before, if that is of its kind and was not closed by a signature."""
        piece, signature, thought = text(part["text"]), part.get("thoughtSignature"), bool(part.get("thought"))
        if not piece and not signature:
            return None
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Said) or last.thought is not thought or last.signature:
            last = _Said(thought)
            self._parts.append(last)
        last.texts.append(piece)
        last.signature = signature
        if not piece:
            return None
        index = len(self._parts) - 1
        return ThinkingDelta(piece, index) if thought else TextDelta(piece, index)

    def _call(self, part: Mapping[str, Any]) -> Delta:
        """A call; it comes whole, also in a stream."""
        call = obj(part["functionCall"])
        args = call.get("args")
        given = obj(args) if isinstance(args, dict) else "" if args is None else dumps(args)
        block = tool_use(text(call.get("name")), given, text(call.get("id")), _signature(part))
        self._parts.append(block)
        arguments = dumps(block.input) if block.raw is None else block.raw
        return ToolCallDelta(arguments, len(self._parts) - 1, text(call.get("id")) or None, block.name)

    def finish(self) -> ModelResponse:
        self._check()
        blocks = tuple(part.block() if isinstance(part, _Said) else part for part in self._parts)
        calls = any(isinstance(block, ToolUseBlock) for block in blocks)
        stop = _STOP.get(self._finish, "tool_use" if calls else "stop")
        return ModelResponse(content=blocks, stop_reason=stop, usage=_usage(self._usage), id=self._id)

    def _check(self) -> None:
        why = f"{self._finish}{f': {self._message}' if self._message else ''}"
        if not self._finish:
            what = "ended without a finish reason" if self._candidates else "has no candidate"
            raise MalformedResponseError(f"Gemini's answer {what}.", provider="Gemini", partial=self.partial())
        if self._finish in _MALFORMED:
            raise MalformedResponseError(
                f"Gemini could not finish its answer ({why}).", provider="Gemini", partial=self.partial()
            )
        if self._finish == _UNSIGNED:
            raise BadRequestError(f"Gemini misses a signature in the conversation ({why}).", provider="Gemini")

    def partial(self) -> str:
        return "".join("".join(part.texts) for part in self._parts if isinstance(part, _Said) and not part.thought)


class _Said:
    """Text or thinking that is still coming."""

    __slots__ = ("signature", "texts", "thought")

    def __init__(self, thought: bool) -> None:
        self.thought = thought
        self.texts: list[str] = []
        self.signature: Any = None

    def block(self) -> Block:
        """A signature alone is kept as thinking, so that it adds no empty line to the message's text."""
        said = "".join(self.texts)
        extra: dict[str, Any] = {"thought": True} if self.thought else {}
        extra |= {"thoughtSignature": self.signature} if self.signature else {}
        if self.thought or not said:
            return ThinkingBlock(thinking=said, extra=extra)
        return TextBlock(text=said, extra=extra or None)


def _signature(part: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"thoughtSignature": part["thoughtSignature"]} if part.get("thoughtSignature") else None


def _media(part: Mapping[str, Any]) -> Block | None:
    """A picture, sound or file that the model made; thoughts in pictures are kept as they are."""
    data = obj(part.get("inlineData"))
    if not data or part.get("thought"):
        return None
    kind = text(data.get("mimeType"))
    source = Base64Source(data=text(data.get("data")), media_type=kind)
    extra = _signature(part)
    if kind.startswith("image/"):
        return ImageBlock(source=source, extra=extra)
    if kind.startswith("audio/"):
        return AudioBlock(source=source, extra=extra)
    return (
        VideoBlock(source=source, extra=extra) if kind.startswith("video/") else FileBlock(source=source, extra=extra)
    )


def _usage(given: Mapping[str, Any]) -> Usage:
    """What an answer cost. Thinking is counted apart from the answer here, and is output all the same."""
    thoughts = number(given.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=number(given.get("promptTokenCount")) + number(given.get("toolUsePromptTokenCount")),
        output_tokens=number(given.get("candidatesTokenCount")) + thoughts,
        cached_tokens=number(given.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
        requests=1,
    )
