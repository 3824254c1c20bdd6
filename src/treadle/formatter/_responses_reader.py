"""Answers of OpenAI's Responses: output items, whole or in events, to blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import ContentRefusedError, MalformedResponseError, ModelError
from treadle.formatter._base import ResponseReader
from treadle.formatter._json import event_data, items, number, obj, text
from treadle.message import Block, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.model import Delta, ModelResponse, StopReason, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from treadle.model._accumulate import tool_use
from treadle.model._failures import failure
from treadle.model._sse import ServerEvent

_CUT: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refused"}
_STATUS = {"server_error": 500, "rate_limit_exceeded": 429, "vector_store_timeout": 504}
_THOUGHTS = "\n\n"
"""What stands between the parts of a summary."""


def read_response(data: Mapping[str, Any], output: Sequence[Mapping[str, Any]] | None = None) -> ModelResponse:
    """The answer in a whole response; `output` is what was collected where the response itself has none."""
    if data.get("error") or data.get("status") == "failed":
        raise _failed(data)
    found = items(data.get("output")) or output
    if found is None and not isinstance(data.get("output"), list):
        raise MalformedResponseError(f"There is no output in the answer: {json.dumps(data)[:300]}")
    if data.get("status") not in (None, "completed", "incomplete"):
        raise MalformedResponseError(f"The answer is not finished, but {data['status']!r}.")
    blocks = tuple(block for item in found or () for block in _blocks(item))
    return ModelResponse(
        content=blocks,
        stop_reason=_stop(data, blocks),
        usage=_usage(data.get("usage")),
        id=text(data.get("id")) or None,
    )


class ResponsesReader(ResponseReader):
    """Reads events. The items that are done make the answer; their pieces are only shown as they come."""

    def __init__(self) -> None:
        self._items: dict[int, _Item] = {}
        self._places: dict[Any, int] = {}
        self._said: list[str] = []
        self._final: Mapping[str, Any] | None = None

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        if event.data == "[DONE]":
            return ()
        data = event_data(event.data)
        kind = text(data.get("type")) or event.name
        if kind == "error" or data.get("error"):
            raise _error(data)
        match kind.removeprefix("response."):
            case "completed" | "incomplete" | "failed":
                self._final = obj(data.get("response"))
                if kind == "response.failed" or self._final.get("error"):
                    raise _failed(self._final)
            case "output_item.added":
                return self._added(data)
            case "output_item.done":
                return self._done(data)
            case "output_text.delta" | "refusal.delta":
                return self._text(data, refusal=kind == "response.refusal.delta")
            case "function_call_arguments.delta" | "function_call_arguments.done":
                return self._arguments(data)
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                return self._thought(data, summary="summary" in kind)
            case _:
                pass  # What these say, items and their deltas say as well: `content_part.*`, `*.done`, hosted tools.
        return ()

    def _item(self, data: Mapping[str, Any], kind: str) -> _Item:
        """The item that an event belongs to, begun if its beginning was not sent."""
        index = number(data.get("output_index"))
        if index not in self._items:
            self._items[index] = _Item({"type": kind, "id": data.get("item_id")})
        return self._items[index]

    def _place(self, data: Mapping[str, Any], part: Any = 0) -> int:
        """The block's place in the answer: each item is one, but a message has one for each part."""
        key = (number(data.get("output_index")), part)
        return self._places.setdefault(key, len(self._places))

    def _added(self, data: Mapping[str, Any]) -> list[Delta]:
        item = obj(data.get("item"))
        self._items[number(data.get("output_index"))] = _Item(item)
        if item.get("type") == "message":
            return []
        place = self._place(data)
        if item.get("type") != "function_call":
            return []
        return [ToolCallDelta("", place, text(item.get("call_id")) or None, text(item.get("name")))]

    def _done(self, data: Mapping[str, Any]) -> list[Delta]:
        """The whole item; what it has and no delta had is shown now."""
        found, item = self._item(data, ""), obj(data.get("item"))
        found.whole = item
        out: list[Delta] = []
        for part, block in enumerate(_blocks(item)):
            place = self._place(data, part if isinstance(block, TextBlock) else 0)
            if found.pieces:
                continue
            if isinstance(block, TextBlock):
                self._said.append(block.text)
                out.append(TextDelta(block.text, place))
            elif isinstance(block, ThinkingBlock) and block.thinking:
                out.append(ThinkingDelta(block.thinking, place))
            elif isinstance(block, ToolUseBlock):
                out.append(ToolCallDelta(text(item.get("arguments")), place, text(item.get("call_id")), block.name))
        return out

    def _text(self, data: Mapping[str, Any], *, refusal: bool) -> list[Delta]:
        piece, part = text(data.get("delta")), number(data.get("content_index"))
        self._item(data, "message").add(("refusal" if refusal else "output_text", part), piece)
        self._said.append(piece)
        return [TextDelta(piece, self._place(data, part))] if piece else []

    def _arguments(self, data: Mapping[str, Any]) -> list[Delta]:
        """A piece of a call's arguments; at their end the whole, which counts where no piece came."""
        item = self._item(data, "function_call")
        piece = text(data.get("delta")) if "delta" in data else "" if item.pieces else text(data.get("arguments"))
        if not piece:
            return []
        item.add(("arguments", 0), piece)
        return [ToolCallDelta(piece, self._place(data), text(item.given.get("call_id")) or None)]

    def _thought(self, data: Mapping[str, Any], *, summary: bool) -> list[Delta]:
        item, piece = self._item(data, "reasoning"), text(data.get("delta"))
        part = (
            ("summary", number(data.get("summary_index")))
            if summary
            else ("content", number(data.get("content_index")))
        )
        between = _THOUGHTS if item.pieces and part not in item.pieces else ""
        item.add(part, piece)
        return [ThinkingDelta(between + piece, self._place(data))] if piece else []

    def finish(self) -> ModelResponse:
        if self._final is None:
            raise MalformedResponseError("The stream ended without its end marker.", partial=self.partial())
        return read_response(self._final, [item.rebuilt() for _, item in sorted(self._items.items())])

    def partial(self) -> str:
        return "".join(self._said)


class _Item:
    """An output item that is still coming."""

    __slots__ = ("given", "pieces", "whole")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.pieces: dict[tuple[str, int], list[str]] = {}
        self.whole: Mapping[str, Any] | None = None

    def add(self, part: tuple[str, int], piece: str) -> None:
        self.pieces.setdefault(part, []).append(piece)

    def rebuilt(self) -> Mapping[str, Any]:
        """The item as it was at its end, or, where that never came, as its pieces have it."""
        if self.whole is not None:
            return self.whole
        parts = [(kind, "".join(pieces)) for (kind, _), pieces in self.pieces.items()]
        if self.given.get("type") == "function_call":
            return {**self.given, "arguments": "".join(piece for _, piece in parts)}
        if self.given.get("type") == "reasoning":
            return {
                **self.given,
                "summary": [{"type": "summary_text", "text": said} for kind, said in parts if kind == "summary"],
                "content": [{"type": "reasoning_text", "text": said} for kind, said in parts if kind == "content"],
            }
        content = [{"type": kind, "refusal" if kind == "refusal" else "text": said} for kind, said in parts]
        return {**self.given, "content": content} if content else self.given


def _blocks(item: Mapping[str, Any]) -> list[Block]:
    """The blocks in an item; `extra` has what goes back with them."""
    match item.get("type"):
        case "message":
            return [_said(part, item) for part in items(item.get("content"))]
        case "function_call":
            known = {"item_id": item["id"]} if item.get("id") else {}
            return [tool_use(text(item.get("name")), text(item.get("arguments")), text(item.get("call_id")), known)]
        case "reasoning":
            thoughts = [text(part.get("text")) for key in ("content", "summary") for part in items(item.get(key))]
            return [ThinkingBlock(thinking=_THOUGHTS.join(thoughts), extra={"item": _kept(item)})]
        case _:
            return [ThinkingBlock(thinking="", extra={"item": _kept(item)})]


def _said(part: Mapping[str, Any], message: Mapping[str, Any]) -> TextBlock:
    extra = {"item_id": message.get("id"), "phase": message.get("phase"), "refusal": part.get("type") == "refusal"}
    kept = {key: value for key, value in extra.items() if value}
    return TextBlock(text=text(part.get("text")) or text(part.get("refusal")), extra=kept or None)


def _kept(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it goes back: as it came, without what is empty, and reasoning without its status."""
    left_out = "status" if item.get("type") == "reasoning" else ""
    return {key: value for key, value in item.items() if value is not None and key != left_out}


def _stop(data: Mapping[str, Any], blocks: Sequence[Block]) -> StopReason:
    if data.get("status") == "incomplete":
        return _CUT.get(text(obj(data.get("incomplete_details")).get("reason")), "length")
    if any(isinstance(block, TextBlock) and (block.extra or {}).get("refusal") for block in blocks):
        return "refused"
    return "tool_use" if any(isinstance(block, ToolUseBlock) for block in blocks) else "stop"


def _usage(data: Any) -> Usage:
    given = obj(data)
    return Usage(
        input_tokens=number(given.get("input_tokens")),
        output_tokens=number(given.get("output_tokens")),
        cached_tokens=number(obj(given.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=number(obj(given.get("output_tokens_details")).get("reasoning_tokens")),
        requests=1,
    )


def _failed(response: Mapping[str, Any]) -> ModelError:
    return _error({"error": obj(response.get("error")) or {"message": "the response failed"}})


def _error(data: Mapping[str, Any]) -> ModelError:
    """An error inside a 200: its code says what it is; one that is neither known nor passing is the request's fault."""
    error = obj(data.get("error")) or data
    code = text(error.get("code"))
    if "policy" in code or code == "invalid_prompt":
        return ContentRefusedError(f"OpenAI refused the request ({code}): {text(error.get('message'))}", status=200)
    return failure("OpenAI", _STATUS.get(code, 400 if code else 200), {"error": dict(error)})
