"""DashScope's own format, the home of Qwen; text models and multimodal ones have an address and a content form each."""

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
from treadle.formatter._media import as_url
from treadle.message import AudioBlock, Block, ImageBlock, Msg, TextBlock, ThinkingBlock, VideoBlock
from treadle.message._codec import dumps
from treadle.model import Delta, ModelProfile, ModelRequest, ModelResponse, StopReason, ToolChoice, Usage
from treadle.model._failures import failure
from treadle.model._sse import ServerEvent

_STOP: dict[str, StopReason] = {"stop": "stop", "tool_calls": "tool_use", "length": "length"}


def is_multimodal(profile: ModelProfile) -> bool:
    """Whether a model is at the multimodal address, where content is a list of parts."""
    return profile.images or profile.audio or profile.video


class DashScopeFormatter(Formatter):
    """The native format: messages in `input`, everything else in `parameters`, where the request's options go too.

    A tool can be forced by its name, and not while the model thinks; a choice that cannot be had becomes `auto`.
    """

    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> dict[str, Any]:
        """The JSON of a request."""
        messages = [item for piece in self.formatted(request.messages, profile) for item in piece]
        parameters: dict[str, Any] = {}
        if request.tools:
            parameters["tools"] = [function_tool(spec) for spec in request.tools]
            if request.tool_choice is not None:
                parameters["tool_choice"] = _choice(request, profile)
        # The reader takes nothing else, so no option overrides these.
        fixed = {"result_format": "message", **({"incremental_output": True} if stream else {})}
        return {
            "model": model,
            "input": {"messages": messages},
            "parameters": {**parameters, **request.options, **fixed},
        }

    def format_message(self, msg: Msg, profile: ModelProfile) -> list[dict[str, Any]]:
        """One message as the one or more that the format has for it."""
        if msg.role == "tool":
            return _results(msg, profile)
        if msg.role == "assistant":
            return [_assistant(msg, profile)]
        return [{"role": msg.role, "content": _content(msg.content, profile)}]

    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""
        reader = _Reader()
        reader.take_whole(data)
        return reader.response()

    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""
        return _Reader()


class _Reader(ResponseReader):
    """Reads answers, whole or in pieces: both have the same shape. Calls are told apart by index, then by id."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._finish: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._id: str | None = None
        self._calls = 0
        self._last_call: Any = None

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        data = event_data(event.data)
        if event.name == "error" or data.get("code"):
            raise failure("DashScope", 200, data)
        return self._take(data, items(obj(data.get("output")).get("choices"))[:1])

    def take_whole(self, data: Mapping[str, Any]) -> None:
        """Take an answer that came in one piece; its calls may have neither index nor id."""
        if data.get("code"):  # good answers may have an empty one
            raise failure("DashScope", 200, data)
        choices = items(obj(data.get("output")).get("choices"))[:1]
        if not choices:
            raise MalformedResponseError(f"There is no choice in the answer: {dumps(data)[:300]}")
        message = obj(choices[0].get("message"))
        calls = [{**call, "index": place} for place, call in enumerate(items(message.get("tool_calls")))]
        self._take(data, [{**choices[0], "message": {**message, "tool_calls": calls}}])

    def _take(self, data: Mapping[str, Any], choices: list[Mapping[str, Any]]) -> list[Delta]:
        self._id = self._id or text(data.get("request_id")) or None
        self._usage = obj(data.get("usage")) or self._usage
        out: list[Delta] = []
        for choice in choices:
            out += self._message(obj(choice.get("message")))
            finish = text(choice.get("finish_reason"))
            # While more is to come, the reason is the text "null".
            self._finish = finish if finish not in ("", "null") else self._finish
        return out

    def _message(self, message: Mapping[str, Any]) -> Iterable[Delta]:
        yield from self._pieces.thinking(text(message.get("reasoning_content")))
        yield from self._pieces.text(_said(message))
        for call in items(message.get("tool_calls")):
            function = obj(call.get("function"))
            name, id = text(function.get("name")), text(call.get("id"))
            key = self._key(call.get("index"), id, name)
            yield self._pieces.call(key, name=name, id=id, arguments=arguments_text(function))

    def _key(self, index: Any, id: str, name: str) -> Any:
        """Which call a piece belongs to: its index, else its id; with neither, a name begins the next call."""
        if index is not None:
            key: Any = ("index", index)
        elif id:
            key = ("id", id)
        elif name or self._last_call is None:
            self._calls += 1
            key = ("place", self._calls)
        else:
            key = self._last_call
        self._last_call = key
        return key

    def finish(self) -> ModelResponse:
        if self._finish is None:
            raise MalformedResponseError("The stream ended without its end marker.", partial=self.partial())
        return self.response()

    def response(self) -> ModelResponse:
        """The answer as it is now."""
        blocks = self._pieces.blocks()
        reason = stop_reason(_STOP, self._finish, blocks)
        return ModelResponse(content=blocks, stop_reason=reason, usage=_usage(self._usage), id=self._id)

    def partial(self) -> str:
        return self._pieces.said()


def _said(message: Mapping[str, Any]) -> str:
    """The text of a message: text models send a string, multimodal ones a list of parts, both may be empty."""
    given = message.get("content")
    return text(given) or "".join(text(part.get("text")) for part in items(given))


def _usage(data: Mapping[str, Any]) -> Usage:
    inputs, outputs = obj(data.get("prompt_tokens_details")), obj(data.get("output_tokens_details"))
    return Usage(
        input_tokens=number(data.get("input_tokens")),
        output_tokens=number(data.get("output_tokens")),
        cached_tokens=number(inputs.get("cached_tokens")),
        reasoning_tokens=number(outputs.get("reasoning_tokens")),
        requests=1,
    )


def _choice(request: ModelRequest, profile: ModelProfile) -> Any:
    """The choice of tools; there is no word for "any tool", so it is the only tool or `auto`."""
    choice = request.tool_choice or ToolChoice()
    name = choice.name
    if name is None and choice.mode == "none":
        return "none"
    if name is None and choice.mode == "required" and len(request.tools) == 1:
        name = request.tools[0].name
    thinks = bool(request.options.get("enable_thinking")) and not profile.forced_choice_with_thinking
    if name is None or thinks or not profile.forced_tool_choice:
        return "auto"
    return {"type": "function", "function": {"name": name}}


def _assistant(msg: Msg, profile: ModelProfile) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": _content(msg.blocks(TextBlock), profile)}
    if profile.echoes_thinking and (thoughts := msg.blocks(ThinkingBlock)):
        out["reasoning_content"] = "".join(thought.thinking for thought in thoughts)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dumps(call.input)}}
        for call in msg.tool_calls
    ]
    return {**out, "tool_calls": calls} if calls else out


def _results(msg: Msg, profile: ModelProfile) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.id, "name": result.name, "content": result_text(result)}
        for result in msg.tool_results
    ]
    media = media_message(msg)
    return [*out, {"role": "user", "content": _content(media.content, profile)}] if media else out


def _content(blocks: Iterable[Block], profile: ModelProfile) -> Any:
    """Content as the model's address takes it: a list of parts, or a string."""
    parts = [_part(block, profile) for block in blocks]
    return parts if is_multimodal(profile) else "\n".join(part["text"] for part in parts)


def _part(block: Block, profile: ModelProfile) -> dict[str, str]:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ImageBlock():
            require(profile.images, "images")
            return {"image": as_url(block.source, "image/png")}
        case AudioBlock():
            require(profile.audio, "audio")
            return {"audio": as_url(block.source, "audio/wav")}
        case VideoBlock():
            require(profile.video, "video")
            return {"video": as_url(block.source, "video/mp4")}
        case _:
            raise InputError(f"DashScope takes no `{block.type}` block as part of a message.")
