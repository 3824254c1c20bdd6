"""Answers in OpenAI's chat format, streamed or whole, from OpenAI and from those that are nearly like it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import MalformedResponseError, ModelError, OverloadedError, ServerError
from treadle.formatter._base import ResponseReader
from treadle.formatter._json import event_data, items, number, obj, text
from treadle.message import Block, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.model import Delta, ModelResponse, StopReason, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from treadle.model._accumulate import Accumulator, tool_use
from treadle.model._failures import failure
from treadle.model._sse import ServerEvent

_STOP: dict[str, StopReason] = {
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral: the context window is full
    "content_filter": "refused",
    "sensitive": "refused",  # Zhipu
}
_BROKEN: dict[str, type[ModelError]] = {
    "error": ServerError,  # OpenRouter
    "network_error": ServerError,  # Zhipu
    "insufficient_system_resource": OverloadedError,  # DeepSeek
}
DETAILS = "reasoning_details"


def read_response(data: Mapping[str, Any]) -> ModelResponse:
    """The answer in a response that was not streamed."""
    _check(data)
    choice = next((choice for choice in items(data.get("choices")) if not choice.get("index")), None)
    if choice is None or not isinstance(choice.get("message"), dict):
        raise MalformedResponseError(f"There is no choice in the answer: {json.dumps(data, ensure_ascii=False)[:300]}")
    _check(choice)
    message = obj(choice["message"])
    blocks = _blocks(message)
    return ModelResponse(
        content=tuple(blocks),
        stop_reason=_stop(choice.get("finish_reason"), blocks, refused=bool(message.get("refusal"))),
        usage=usage_of(data.get("usage")),
        id=text(data.get("id")) or None,
    )


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    details = message.get(DETAILS)
    if (thought := _thought(message)) or details:
        blocks.append(ThinkingBlock(thinking=thought, extra={DETAILS: details} if details else None))
    if said := _said(message):
        blocks.append(TextBlock(text=said))
    for call in items(message.get("tool_calls")):
        function = obj(call.get("function"))
        blocks.append(tool_use(text(function.get("name")), _arguments(function), text(call.get("id"))))
    return blocks


class OpenAIReader(ResponseReader):
    """Reads chunks: text and thinking by kind, calls by index, then by id. Choices after the first are ignored."""

    def __init__(self) -> None:
        self._parts = Accumulator()
        self._finish = ""
        self._usage: Mapping[str, Any] = {}
        self._id = ""
        self._calls: dict[Any, Any] = {}
        self._last_call: Any = None
        self._refused = False
        self._chosen = False
        self._done = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        """The deltas in a chunk."""
        if event.data == "[DONE]":
            self._done = True
            return ()
        data = event_data(event.data)
        _check(data)
        if not self._id:
            self._id = text(data.get("id"))
        usage = data.get("usage") or obj(data.get("x_groq")).get("usage")
        if usage:
            self._usage = obj(usage)
        choices = data.get("choices")
        if not choices:
            return ()
        out: list[Delta] = []
        for choice in items(choices):
            if not choice.get("index"):
                self._choice(choice, out)
        return out

    def _choice(self, choice: Mapping[str, Any], out: list[Delta]) -> None:
        self._chosen = True
        if choice.get("error"):
            _check(choice)
        if choice.get("usage"):  # Moonshot puts it here
            self._usage = obj(choice["usage"])
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict) and delta:
            self._delta(obj(delta), out)
        finish = choice.get("finish_reason")
        if finish:
            self._finish = text(finish)
            if self._finish in _BROKEN:
                raise _broken(self._finish)

    def _delta(self, delta: Mapping[str, Any], out: list[Delta]) -> None:
        if thought := _thought(delta):
            part = self._parts.part("thinking", "thinking")
            part.texts.append(thought)
            out.append(ThinkingDelta(thought, part.place))
        if details := delta.get(DETAILS):
            self._parts.part("thinking", "thinking").extra.setdefault(DETAILS, []).extend(items(details))
        if said := _said(delta):
            part = self._parts.part("text", "text")
            part.texts.append(said)
            out.append(TextDelta(said, part.place))
            self._refused = self._refused or bool(delta.get("refusal"))
        if calls := delta.get("tool_calls"):
            out += [self._call(call) for call in items(calls)]

    def _call(self, call: Mapping[str, Any]) -> ToolCallDelta:
        function = obj(call.get("function"))
        name, id = text(function.get("name")), text(call.get("id"))
        part = self._parts.part(self._key(call.get("index"), id, name), "tool_use")
        first = not part.name and bool(name)
        part.name = part.name or name
        part.id = part.id or id
        arguments = _arguments(function)
        part.texts.append(arguments)
        return ToolCallDelta(arguments, part.place, part.id or None, name if first else None)

    def _key(self, index: Any, id: str, name: str) -> Any:
        """Which call a piece belongs to: its index; where servers give none, its id; else the call before.

        A server that gives every call the index 0 begins a new one with another id and a name.
        """
        if index is None and not id and self._last_call is not None:
            return self._last_call
        slot: Any = ("call", id if index is None else index)
        known = self._calls.get(slot)
        if known is None or (id and name and known[1] and id != known[1]):
            known = self._calls[slot] = [(*slot, len(self._calls), len(self._parts)), id]
        known[1] = known[1] or id
        self._last_call = known[0]
        return known[0]

    def finish(self) -> ModelResponse:
        """The whole answer."""
        if not self._finish and not self._done:
            raise MalformedResponseError("The stream ended without its end marker.", partial=self.partial())
        if not self._chosen:
            raise MalformedResponseError("There is no choice in the stream.")
        blocks = self._parts.blocks()
        return ModelResponse(
            content=blocks,
            stop_reason=_stop(self._finish, blocks, refused=self._refused),
            usage=usage_of(self._usage),
            id=self._id or None,
        )

    def partial(self) -> str:
        """The text so far."""
        return self._parts.text()


def _check(data: Mapping[str, Any]) -> None:
    """Raise what an answer says went wrong."""
    if data.get("error"):
        raise failure("The provider", 200, data)
    reason = data.get("finish_reason")
    if reason in _BROKEN:
        raise _broken(text(reason))


def _broken(reason: str) -> ModelError:
    return _BROKEN[reason](f"The provider broke the answer off: {reason}.", status=200)


def _thought(message: Mapping[str, Any]) -> str:
    given = message.get("reasoning_content") or message.get("reasoning")
    if given:
        return text(given)
    content = message.get("content")
    if not isinstance(content, list):
        return ""
    # Mistral: thinking is a kind of part, with parts of its own.
    return "".join(_joined(part.get("thinking")) for part in items(content) if part.get("type") == "thinking")


def _said(message: Mapping[str, Any]) -> str:
    """The text of a message: a string, or, with some servers, parts."""
    given = message.get("content") or message.get("refusal")
    return given if isinstance(given, str) else _joined(given)


def _joined(given: Any) -> str:
    return text(given) or "".join(text(part.get("text")) for part in items(given))


def _arguments(function: Mapping[str, Any]) -> str:
    given = function.get("arguments")
    return given if isinstance(given, str) else "" if given is None else dumps(given)


def _stop(reason: Any, blocks: Sequence[Block], *, refused: bool) -> StopReason:
    if refused:
        return "refused"
    found = _STOP.get(text(reason), "stop")
    calls = any(isinstance(block, ToolUseBlock) for block in blocks)
    if found in ("stop", "tool_use"):  # what is there counts more than what it is called
        return "tool_use" if calls else "stop"
    return found


def usage_of(data: Any) -> Usage:
    """What an answer cost, in the words of this format."""
    given = obj(data)
    inputs, outputs = obj(given.get("prompt_tokens_details")), obj(given.get("completion_tokens_details"))
    cached = inputs.get("cached_tokens") or given.get("prompt_cache_hit_tokens") or given.get("cached_tokens")
    return Usage(
        input_tokens=number(given.get("prompt_tokens")),
        output_tokens=number(given.get("completion_tokens")),
        cached_tokens=number(cached),
        reasoning_tokens=number(outputs.get("reasoning_tokens")),
        requests=1,
    )
