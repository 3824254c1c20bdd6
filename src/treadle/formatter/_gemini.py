"""Google's Gemini: generateContent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from treadle.errors import InputError
from treadle.formatter._base import Formatter, ResponseReader
from treadle.formatter._gemini_reader import GeminiReader
from treadle.formatter._gemini_schema import gemini_schema
from treadle.formatter._json import obj
from treadle.formatter._media import as_base64, media_type_of
from treadle.message import (
    AudioBlock,
    Block,
    FileBlock,
    ImageBlock,
    Msg,
    OutputBlock,
    Source,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from treadle.model import ModelProfile, ModelRequest, ModelResponse, ToolChoice, ToolSpec

Part: TypeAlias = dict[str, Any]

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
# The fields of `generationConfig`; an option with another name goes to the top of the request.
_SAMPLING = ("temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "candidateCount")
_PENALTIES = ("presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "enableEnhancedCivicAnswers")
_FORMS = ("responseMimeType", "responseSchema", "responseJsonSchema", "responseFormat", "responseModalities")
_KINDS = ("thinkingConfig", "speechConfig", "imageConfig", "mediaResolution", "audioTimestamp")
_GENERATION = frozenset((*_SAMPLING, *_PENALTIES, *_FORMS, *_KINDS))
# What Google documents for calls that Gemini did not make, such as those of a conversation with another model.
_NOT_ITS_OWN = "skip_thought_signature_validator"


class GeminiFormatter(Formatter):
    """Gemini's format: two roles that take turns, and parts of many kinds.

    Signatures come back on the very parts that they came with: on thoughts, on text and on calls.
    """

    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> dict[str, Any]:
        """The JSON of a request; which model, and whether to stream, is in its address."""
        pieces = list(zip(request.messages, self.formatted(request.messages, profile), strict=True))
        out: dict[str, Any] = {"contents": _contents(pieces, _wire_ids(request.messages))}
        if system := [part for msg, parts in pieces if msg.role == "system" for part in parts]:
            out["systemInstruction"] = {"parts": system}
        if request.tools:
            out["tools"] = [{"functionDeclarations": [_tool(spec) for spec in request.tools]}]
            if request.tool_choice is not None:
                out["toolConfig"] = {"functionCallingConfig": _choice(request.tool_choice)}
        return _with_options(out, request.options)

    def format_message(self, msg: Msg, profile: ModelProfile) -> list[Part]:
        """The parts of a message. Calls and results carry Treadle's ids here; `body` knows those of the wire."""
        if msg.role == "tool":
            return [part for result in msg.tool_results for part in _result(result, profile)]
        if msg.role == "assistant":
            parts = [part for block in msg.content if (part := _said(block, profile)) is not None]
            return _signed(parts) if profile.signs_calls else parts
        return [_part(block, profile) for block in msg.content]

    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""
        reader = GeminiReader()
        reader.take(data)
        return reader.finish()

    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""
        return GeminiReader()


def _wire_ids(messages: Sequence[Msg]) -> dict[str, str]:
    """For each call the id to send: Gemini's own, unless it gave none or gave it twice, then Treadle's."""
    out: dict[str, str] = {}
    used: set[str] = set()
    for msg in messages:
        for call in msg.tool_calls if msg.role == "assistant" else ():
            given = obj(call.extra).get("id")
            out[call.id] = given if isinstance(given, str) and given not in used else call.id
            used.add(out[call.id])
    return out


def _contents(pieces: Iterable[tuple[Msg, list[Part]]], ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Contents whose roles take turns: all results of one step have to be in one, and come first in it."""
    out: list[dict[str, Any]] = []
    for msg, parts in pieces:
        if msg.role == "system" or not parts:
            continue
        role = "model" if msg.role == "assistant" else "user"
        if not out or out[-1]["role"] != role:
            out.append({"role": role, "parts": []})
        out[-1]["parts"] += [_addressed(part, ids) for part in parts]
    for content in out:
        if content["role"] == "user":
            content["parts"].sort(key=_comes_later)
    return out


def _comes_later(part: Part) -> bool:
    return "functionResponse" not in part


def _signed(parts: list[Part]) -> list[Part]:
    """The parts of an answer, its first call signed; only that one has to be, where a model asks for it."""
    calls = [part for part in parts if "functionCall" in part]
    if calls and not any("thoughtSignature" in part for part in calls):
        calls[0]["thoughtSignature"] = _NOT_ITS_OWN
    return parts


def _addressed(part: Part, ids: Mapping[str, str]) -> Part:
    for kind in ("functionCall", "functionResponse"):
        if kind in part and (found := part[kind]["id"]) in ids:
            return {**part, kind: {**part[kind], "id": ids[found]}}
    return part


def _with_options(body: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options at their place; tools of the provider's own go beside the toolkit's."""
    config = {key: value for key, value in options.items() if key in _GENERATION}
    top = {key: value for key, value in options.items() if key not in _GENERATION}
    if config := {**top.pop("generationConfig", {}), **config}:
        body["generationConfig"] = config
    if tools := top.pop("tools", None):
        body["tools"] = [*body.get("tools", ()), *tools]
    if "toolConfig" in top:
        top["toolConfig"] = {**body.get("toolConfig", {}), **top["toolConfig"]}
    return {**body, **top}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    out: dict[str, Any] = {"name": spec.name, "description": spec.description}
    if spec.parameters.get("properties"):
        out["parametersJsonSchema"] = gemini_schema(spec.parameters)
    return out


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.name is not None:
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": _MODES[choice.mode]}


def _said(block: Block, profile: ModelProfile) -> Part | None:
    """A block of an answer. Another provider's thinking is left out, because it means nothing here."""
    extra: Mapping[str, Any] = {} if isinstance(block, ToolResultBlock) else obj(block.extra)
    signed: Part = {"thoughtSignature": extra["thoughtSignature"]} if "thoughtSignature" in extra else {}
    match block:
        case ThinkingBlock():
            thought: Part = {"thought": True} if extra.get("thought") else {}
            return extra.get("part") or ({"text": block.thinking, **thought, **signed} if thought or signed else None)
        case ToolUseBlock():
            return {"functionCall": {"id": block.id, "name": block.name, "args": block.input}, **signed}
        case TextBlock():
            return {"text": block.text, **signed} if block.text or signed else None
        case _:
            return {**_part(block, profile), **signed}


def _result(result: ToolResultBlock, profile: ModelProfile) -> list[Part]:
    """A result, and after it the media in it, which not every model takes inside."""
    key = "output" if result.status == "ok" else "error"
    response = {"id": result.id, "name": result.name, "response": {key: result.text}}
    media = () if isinstance(result.output, str) else result.output
    return [
        {"functionResponse": response},
        *(_part(item, profile) for item in media if not isinstance(item, TextBlock)),
    ]


def _part(block: Block | OutputBlock, profile: ModelProfile) -> Part:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ImageBlock():
            return _media(block.source, "image/png", profile.images, "images")
        case AudioBlock():
            return _media(block.source, "audio/wav", profile.audio, "audio")
        case VideoBlock():
            return _media(block.source, "video/mp4", profile.video, "video")
        case FileBlock():
            return _media(block.source, "application/pdf", profile.files, "files")
        case _:
            raise InputError(f"A `{block.type}` block cannot be part of a user's message.")


def _media(source: Source, fallback: str, can: bool, what: str) -> Part:
    if not can:
        raise InputError(f"This model does not take {what}; choose another, or pass a `profile` that says it does.")
    if isinstance(source, URLSource) and not source.url.startswith("data:"):
        return {"fileData": {"mimeType": media_type_of(source, fallback), "fileUri": source.url}}
    if isinstance(source, URLSource):
        kind, _, data = source.url.removeprefix("data:").partition(";base64,")
        return {"inlineData": {"mimeType": kind or fallback, "data": data}}
    return {"inlineData": {"mimeType": media_type_of(source, fallback), "data": as_base64(source)}}
