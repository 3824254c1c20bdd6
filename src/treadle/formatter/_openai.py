"""Requests in OpenAI's chat format, for OpenAI and for everything that is compatible with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import InputError
from treadle.formatter._base import Formatter, ResponseReader
from treadle.formatter._media import as_base64, as_url, media_type_of
from treadle.formatter._openai_reader import DETAILS, OpenAIReader, read_response, usage_of
from treadle.message import (
    AudioBlock,
    Block,
    FileBlock,
    ImageBlock,
    Msg,
    OutputBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from treadle.message._codec import dumps
from treadle.model import ModelProfile, ModelRequest, ModelResponse, ToolChoice, ToolSpec
from treadle.model._services import Dialect

__all__ = ["OpenAIFormatter", "usage_of"]

_LIMITS = ("max_completion_tokens", "max_tokens")
_AUDIO = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}


class OpenAIFormatter(Formatter):
    """The chat format: each result is a message of its own, and media in results follow in one more.

    Args:
        dialect: In what the service differs from OpenAI.
    """

    def __init__(self, dialect: Dialect | None = None) -> None:
        super().__init__()
        self.dialect = dialect or Dialect()

    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> dict[str, Any]:
        """The JSON of a request."""
        out: dict[str, Any] = {"model": model, "messages": _in_order(self.formatted(request.messages, profile))}
        out |= self._tools(request)
        if stream:
            out["stream"] = True
            if self.dialect.stream_options:
                out["stream_options"] = {"include_usage": True}
        return out | self._options(request.options) if request.options else out

    def _tools(self, request: ModelRequest) -> dict[str, Any]:
        choice = request.tool_choice
        if not request.tools:
            return {}
        if not self.dialect.tool_choice and choice is not None:
            if choice.mode == "none" and choice.name is None:
                return {}  # the one way left to forbid calls
            choice = None
        out: dict[str, Any] = {"tools": [_tool(spec) for spec in request.tools]}
        if choice is not None:
            out["tool_choice"] = _choice(choice)
        return out

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, with the token limit under the name that the service knows."""
        name = self.dialect.limit_name
        if name is None:
            return dict(options)
        return {name if key in _LIMITS else key: value for key, value in options.items()}

    def format_message(self, msg: Msg, profile: ModelProfile) -> list[dict[str, Any]]:
        """One message as the one or more that the format has for it."""
        if msg.role == "tool":
            return self._results(msg, profile)
        if msg.role == "assistant":
            return [self._assistant(msg, profile)]
        if all(isinstance(block, TextBlock) for block in msg.content):
            return [{"role": msg.role, "content": msg.text}]
        return [{"role": msg.role, "content": [_part(block, profile) for block in msg.content]}]

    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""
        return read_response(data)

    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""
        return OpenAIReader()

    def _assistant(self, msg: Msg, profile: ModelProfile) -> dict[str, Any]:
        calls = [self._call(call) for call in msg.tool_calls]
        out: dict[str, Any] = {"role": "assistant", "content": msg.text or (None if calls else "")}
        if calls:
            out["tool_calls"] = calls
            if profile.echoes_thinking:  # beside calls, and there even if it is empty: some refuse a request without it
                thoughts = msg.blocks(ThinkingBlock)
                out[self.dialect.thinking_field] = "".join(thought.thinking for thought in thoughts)
        if self.dialect.reasoning_details and (details := _details(msg)):
            out[DETAILS] = details
        return out

    def _call(self, call: ToolUseBlock) -> dict[str, Any]:
        function = {"name": call.name, "arguments": dumps(call.input)}
        return {"id": self._call_id(call.id), "type": "function", "function": function}

    def _call_id(self, id: str) -> str:
        length = self.dialect.id_length
        return id if length is None else hashlib.sha256(id.encode()).hexdigest()[:length]

    def _results(self, msg: Msg, profile: ModelProfile) -> list[dict[str, Any]]:
        """The results, each in a message of its own, and then one message with the media that are in them."""
        out: list[dict[str, Any]] = []
        media: list[dict[str, Any]] = []
        for result in msg.tool_results:
            id = self._call_id(result.id)
            out.append({"role": "tool", "tool_call_id": id, "content": result.text or _placeholder(result)})
            if not isinstance(result.output, str):
                media += [_part(block, profile) for block in result.output if not isinstance(block, TextBlock)]
        if media:
            note = {"type": "text", "text": "These belong to the tool results above:"}
            out.append({"role": "user", "content": [note, *media]})
        return out


def _in_order(pieces: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All messages; media of results wait until every result is there, because nothing may stand between them."""
    out: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for piece in pieces:
        if not piece:
            continue
        if piece[0]["role"] != "tool":
            out += waiting
            waiting = []
            out += piece
        elif piece[-1]["role"] == "tool":
            out += piece
        else:
            out += piece[:-1]
            waiting.append(piece[-1])
    return out + waiting


def _details(msg: Msg) -> list[Any]:
    return [item for thought in msg.blocks(ThinkingBlock) for item in (thought.extra or {}).get(DETAILS) or ()]


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> Any:
    if choice.name is not None:
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _placeholder(result: ToolResultBlock) -> str:
    return "(see the message after the results)" if result.output and not isinstance(result.output, str) else ""


def _part(block: Block | OutputBlock, profile: ModelProfile) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            _require(profile.images, "images")
            return {"type": "image_url", "image_url": {"url": as_url(block.source, "image/png")}}
        case AudioBlock():
            _require(profile.audio, "audio")
            return {"type": "input_audio", "input_audio": _audio(block)}
        case VideoBlock():
            _require(profile.video, "video")
            return {"type": "video_url", "video_url": {"url": as_url(block.source, "video/mp4")}}
        case FileBlock():
            _require(profile.files, "files")
            return {"type": "file", "file": _file(block)}
        case _:
            raise InputError(f"A `{block.type}` block cannot be part of a user's message.")


def _audio(block: AudioBlock) -> dict[str, Any]:
    if isinstance(block.source, URLSource):
        raise InputError("This provider takes audio as bytes, not by URL.")
    kind = media_type_of(block.source, "audio/wav").rpartition("/")[2]
    return {"data": as_base64(block.source), "format": _AUDIO.get(kind, kind.removeprefix("x-"))}


def _file(block: FileBlock) -> dict[str, Any]:
    if isinstance(block.source, URLSource):
        raise InputError("This provider takes files as bytes, not by URL.")
    return {"filename": block.name or "file", "file_data": as_url(block.source, "application/pdf")}


def _require(can: bool, what: str) -> None:
    if not can:
        raise InputError(f"This model does not take {what}; choose another, or pass a `profile` that says it does.")
