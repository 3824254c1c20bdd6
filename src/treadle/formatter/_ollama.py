"""Ollama's own chat format: JSON lines, pictures beside the text, calls with objects for arguments and without ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.errors import InputError, MalformedResponseError
from treadle.formatter._base import Formatter, ResponseReader
from treadle.formatter._chat import (
    Pieces,
    arguments_text,
    function_tool,
    media_message,
    require,
    result_text,
    stop_reason,
)
from treadle.formatter._json import event_data, items, number, obj, text
from treadle.formatter._media import as_base64
from treadle.message import Block, ImageBlock, Msg, TextBlock, ThinkingBlock, URLSource
from treadle.message._codec import dumps
from treadle.model import Delta, ModelProfile, ModelRequest, ModelResponse, StopReason, ToolSpec, Usage
from treadle.model._failures import failure
from treadle.model._sse import ServerEvent

# `load` and `unload` come with answers that say nothing; the loop asks again after those.
_STOP: dict[str, StopReason] = {"stop": "stop", "length": "length"}
_TOP = frozenset({"format", "keep_alive", "logprobs", "shift", "think", "top_logprobs", "truncate"})
"""What has a place of its own in a request; every other option is one of the model's and goes into `options`."""


class OllamaFormatter(Formatter):
    """The native format. It has no choice of tools: a forced tool is the only one sent, `none` sends none."""

    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> dict[str, Any]:
        """The JSON of a request."""
        messages = [item for piece in self.formatted(request.messages, profile) for item in piece]
        out: dict[str, Any] = {"model": model, "messages": messages, "stream": stream}
        if tools := _tools(request):
            out["tools"] = [function_tool(spec) for spec in tools]
        return {**out, **_options(request.options)}

    def format_message(self, msg: Msg, profile: ModelProfile) -> list[dict[str, Any]]:
        """One message as the one or more that the format has for it."""
        if msg.role == "tool":
            return _results(msg, profile)
        if msg.role == "assistant":
            return [_assistant(msg, profile)]
        return [{"role": msg.role, **_content(msg, profile)}]

    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""
        if not data.get("error") and not isinstance(data.get("message"), dict):
            raise MalformedResponseError(f"There is no message in the answer: {dumps(data)[:300]}")
        reader = _Reader()
        reader.take(data)
        return reader.response()

    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""
        return _Reader()


class _Reader(ResponseReader):
    """Reads answers, whole or line by line: both have the same shape. Calls come complete, each is one of its own."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._calls = 0
        self._last: Mapping[str, Any] | None = None

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        return self.take(event_data(event.data))

    def take(self, data: Mapping[str, Any]) -> list[Delta]:
        """Take one object: a line of a stream, or a whole answer."""
        if data.get("error"):
            raise failure("Ollama", 200, data)
        if data.get("done"):
            self._last = data
        return list(self._message(obj(data.get("message"))))

    def _message(self, message: Mapping[str, Any]) -> Iterable[Delta]:
        yield from self._pieces.thinking(text(message.get("thinking")))
        yield from self._pieces.text(text(message.get("content")))
        for call in items(message.get("tool_calls")):
            function = obj(call.get("function"))
            name, id = text(function.get("name")), text(call.get("id"))
            # Some versions number every call 0, so that the order is all there is to tell calls apart.
            yield self._pieces.call(self._calls, name=name, id=id, arguments=arguments_text(function))
            self._calls += 1

    def finish(self) -> ModelResponse:
        if self._last is None:
            raise MalformedResponseError("The stream ended without its end marker.", partial=self.partial())
        return self.response()

    def response(self) -> ModelResponse:
        """The answer as it is now."""
        blocks, last = self._pieces.blocks(), self._last or {}
        usage = Usage(
            input_tokens=number(last.get("prompt_eval_count")),
            output_tokens=number(last.get("eval_count")),
            requests=1,
        )
        return ModelResponse(
            content=blocks, stop_reason=stop_reason(_STOP, last.get("done_reason"), blocks), usage=usage
        )

    def partial(self) -> str:
        return self._pieces.said()


def _tools(request: ModelRequest) -> list[ToolSpec]:
    choice = request.tool_choice
    if choice is None:
        return list(request.tools)
    if choice.name is not None:
        return [spec for spec in request.tools if spec.name == choice.name]
    return [] if choice.mode == "none" else list(request.tools)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options in their places; `options` itself may be given as Ollama writes it."""
    top = {name: value for name, value in given.items() if name in _TOP}
    inner = {name: value for name, value in given.items() if name not in _TOP and name != "options"}
    inner = {**obj(given.get("options")), **inner}
    return {**top, "options": inner} if inner else top


def _assistant(msg: Msg, profile: ModelProfile) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": msg.text}
    if profile.echoes_thinking and (thoughts := msg.blocks(ThinkingBlock)):
        out["thinking"] = "".join(thought.thinking for thought in thoughts)
    calls = [{"function": {"name": call.name, "arguments": dict(call.input)}} for call in msg.tool_calls]
    return {**out, "tool_calls": calls} if calls else out


def _results(msg: Msg, profile: ModelProfile) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"role": "tool", "tool_name": result.name, "content": result_text(result)} for result in msg.tool_results
    ]
    media = media_message(msg)
    return [*out, {"role": "user", **_content(media, profile)}] if media else out


def _content(msg: Msg, profile: ModelProfile) -> dict[str, Any]:
    """Text, and pictures beside it."""
    images = [_image(block, profile) for block in msg.content if not isinstance(block, TextBlock)]
    return {"content": msg.text, "images": images} if images else {"content": msg.text}


def _image(block: Block, profile: ModelProfile) -> str:
    if not isinstance(block, ImageBlock):
        raise InputError(f"Ollama takes text and images, no `{block.type}` block.")
    require(profile.images, "images")
    if isinstance(block.source, URLSource):
        raise InputError(f"Ollama takes images as bytes or by path, not by URL: {block.source.url!r}")
    return as_base64(block.source)
