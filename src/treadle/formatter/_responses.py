"""OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from treadle.errors import InputError
from treadle.formatter._base import Formatter, ResponseReader
from treadle.formatter._json import obj
from treadle.formatter._media import as_url
from treadle.formatter._responses_reader import ResponsesReader, read_response
from treadle.message import (
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
)
from treadle.message._codec import dumps
from treadle.model import ModelProfile, ModelRequest, ModelResponse, ToolChoice, ToolSpec

Item: TypeAlias = dict[str, Any]


class OpenAIResponsesFormatter(Formatter):
    """The format of items: messages, calls, results and reasoning in one list.

    Nothing is stored at the provider: its reasoning comes encrypted, and goes back with the items that it led to.
    """

    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> dict[str, Any]:
        """The JSON of a request."""
        messages, instructions = _instructions(request.messages)
        ids = _wire_ids(messages)
        found = [_addressed(item, ids) for piece in self.formatted(messages, profile) for item in piece]
        out: dict[str, Any] = {"model": model, "input": found, "store": False}
        if instructions:
            out["instructions"] = instructions
        if profile.thinking:
            out["include"] = ["reasoning.encrypted_content"]
        if request.tools:
            out["tools"] = [_tool(spec) for spec in request.tools]
            if request.tool_choice is not None:
                out["tool_choice"] = _choice(request.tool_choice)
        if stream:
            out["stream"] = True
        return _with_options(out, request.options)

    def format_message(self, msg: Msg, profile: ModelProfile) -> list[Item]:
        """The items of a message. Calls and results carry Treadle's ids here; `body` knows those of the wire."""
        if msg.role == "tool":
            return [_result(result, profile) for result in msg.tool_results]
        if msg.role == "assistant":
            return _answer(msg)
        content = [_part(block, profile) for block in msg.content]
        alone = len(content) == 1 and content[0]["type"] == "input_text"
        return [{"type": "message", "role": msg.role, "content": content[0]["text"] if alone else content}]

    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""
        return read_response(data)

    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""
        return ResponsesReader()


def _instructions(messages: Sequence[Msg]) -> tuple[Sequence[Msg], str]:
    """The system messages at the beginning apart from the rest; later ones stay where they are."""
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    return messages[count:], "\n\n".join(msg.text for msg in messages[:count])


def _wire_ids(messages: Sequence[Msg]) -> dict[str, str]:
    """For each call the id to send: the one that its reasoning knows, unless it came twice; else Treadle's."""
    out: dict[str, str] = {}
    used: set[str] = set()
    for msg in messages:
        for call in msg.tool_calls if msg.role == "assistant" else ():
            extra = obj(call.extra)
            given = extra.get("id") if "item_id" in extra else None
            out[call.id] = given if isinstance(given, str) and given not in used else call.id
            used.add(out[call.id])
    return out


def _addressed(item: Item, ids: Mapping[str, str]) -> Item:
    known = ids.get(item["call_id"]) if item["type"] in ("function_call", "function_call_output") else None
    return item if known is None else {**item, "call_id": known}


def _with_options(body: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options at the top; tools of the provider's own go beside the toolkit's, and so does what to include."""
    out = {**body, **options}
    for key in ("tools", "include"):
        if key in body and key in options:
            out[key] = [*body[key], *(item for item in options[key] if item not in body[key])]
    return out


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """A tool. Left out, `strict` would mean that every parameter is required."""
    parameters = dict(spec.parameters)
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": parameters,
        "strict": False,
    }


def _choice(choice: ToolChoice) -> Any:
    return choice.mode if choice.name is None else {"type": "function", "name": choice.name}


def _answer(msg: Msg) -> list[Item]:
    """The items of an answer.

    Reasoning is refused without an item after it, and an item that was reasoned about is refused, by its id, without
    that reasoning: so ids are sent only along with the reasoning.
    """
    known = _replayable(msg)
    reasoned = any(item.get("type") == "reasoning" for item in known.values())
    out: list[Item] = []
    for place, block in enumerate(msg.content):
        match block:
            case ThinkingBlock():
                out += [known[place]] if place in known else []
            case ToolUseBlock():
                out.append(_call(block, reasoned))
            case TextBlock():
                _say(block, out, reasoned)
            case _:
                raise InputError(f"A `{block.type}` block cannot be part of an answer that is sent to OpenAI.")
    return out


def _replayable(msg: Msg) -> dict[int, Item]:
    """The items that go back as they came, by their place: those that can be read, and that something follows."""
    out: dict[int, Item] = {}
    followed = False
    for place in reversed(range(len(msg.content))):
        block = msg.content[place]
        item: Mapping[str, Any] = obj(obj(block.extra).get("item")) if isinstance(block, ThinkingBlock) else {}
        thinks = item.get("type") == "reasoning"
        if item and (not thinks or (followed and (item.get("encrypted_content") or item.get("content")))):
            out[place] = dict(item)
        followed = followed or not isinstance(block, ThinkingBlock) or bool(item and not thinks)
    return out


def _call(block: ToolUseBlock, reasoned: bool) -> Item:
    extra = obj(block.extra)
    known = {"id": extra["item_id"]} if reasoned and "item_id" in extra else {}
    return {
        "type": "function_call",
        **known,
        "call_id": block.id,
        "name": block.name,
        "arguments": dumps(block.input),
    }


def _say(block: TextBlock, out: list[Item], reasoned: bool) -> None:
    """Text, in a message of its own or in the one that it came in."""
    extra = obj(block.extra)
    part: Item = (
        {"type": "refusal", "refusal": block.text}
        if extra.get("refusal")
        else {"type": "output_text", "text": block.text, "annotations": []}
    )
    known: Item = {"id": extra["item_id"], "status": "completed"} if reasoned and "item_id" in extra else {}
    last = out[-1] if out else {}
    if known and last.get("id") == known["id"]:
        last["content"].append(part)
        return
    phase = {"phase": extra["phase"]} if "phase" in extra else {}
    out.append({"type": "message", **known, "role": "assistant", **phase, "content": [part]})


def _result(result: ToolResultBlock, profile: ModelProfile) -> Item:
    output = result.output if isinstance(result.output, str) else [_part(block, profile) for block in result.output]
    return {"type": "function_call_output", "call_id": result.id, "output": output}


def _part(block: Block | OutputBlock, profile: ModelProfile) -> Item:
    match block:
        case TextBlock():
            return {"type": "input_text", "text": block.text}
        case ImageBlock():
            _require(profile.images, "images")
            return {"type": "input_image", "image_url": as_url(block.source, "image/png"), "detail": "auto"}
        case FileBlock():
            _require(profile.files, "files")
            if isinstance(block.source, URLSource) and not block.source.url.startswith("data:"):
                return {"type": "input_file", "file_url": block.source.url}
            data = as_url(block.source, "application/pdf")
            return {"type": "input_file", "filename": block.name or "file", "file_data": data}
        case _:
            raise InputError(f"OpenAI's Responses do not take `{block.type}` blocks here.")


def _require(can: bool, what: str) -> None:
    if not can:
        raise InputError(f"This model does not take {what}; choose another, or pass a `profile` that says it does.")
