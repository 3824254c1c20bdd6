"""What a tool's return value becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from treadle.message import AudioBlock, FileBlock, ImageBlock, OutputBlock, Status, TextBlock, VideoBlock

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LARGE = 1 << 64
_BLOCKS = (TextBlock, ImageBlock, AudioBlock, VideoBlock, FileBlock)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The outcome of one call. A tool returns one itself to set a status, metadata or `ends_run`."""

    output: str | tuple[OutputBlock, ...]
    status: Status = "ok"
    metadata: Mapping[str, Any] | None = None
    ends_run: bool = False


def as_result(value: Any, name: str = "tool") -> ToolResult:
    """Return what the model is shown for `value`, which the tool `name` returned."""
    if isinstance(value, str):
        return ToolResult(output=str.__str__(value) if value.isascii() else _encodable(value))
    if isinstance(value, ToolResult):
        return _normal(value, name)
    if type(value) is int and abs(value) < _LARGE:
        return ToolResult(output=str(value))
    if value is None:
        return ToolResult(output="")
    if type(value) in (float, bool):
        return _from_json(value, name)
    if isinstance(value, _BLOCKS):
        return ToolResult(output=(value,))
    if isinstance(value, list | tuple) and any(isinstance(item, _BLOCKS) for item in cast(Sequence[Any], value)):
        return _from_items(cast(Sequence[Any], value), name)
    return _from_json(value, name)


def blotted(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret blotted out."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def scrubbed(result: ToolResult, secrets: Sequence[str]) -> ToolResult:
    """The result with every secret blotted out of its text."""
    if isinstance(result.output, str):
        return replace(result, output=blotted(result.output, secrets))
    blocks = tuple(
        replace(block, text=blotted(block.text, secrets)) if isinstance(block, TextBlock) else block
        for block in result.output
    )
    return replace(result, output=blocks)


def as_chunks(value: Any, name: str) -> tuple[str | OutputBlock, ...]:
    """Return what is emitted as progress for an item that the tool `name` yielded."""
    output = as_result(value, name).output
    return (output,) if isinstance(output, str) else output


def error_result(text: str) -> ToolResult:
    """A failure in the one format that all failures have."""
    return ToolResult(output=f"[ERROR] {text}", status="error")


def _normal(result: ToolResult, name: str) -> ToolResult:
    output: Any = result.output
    if type(output) is tuple or (type(output) is str and output.isascii()):
        return result
    normal = as_result(output, name)
    return replace(result, output=normal.output, status="error" if normal.status == "error" else result.status)


def _encodable(text: str) -> str:
    """Replace lone surrogates (a file name, a badly decoded page): no store and no provider takes them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _from_items(items: Sequence[Any], name: str) -> ToolResult:
    blocks: list[OutputBlock] = []
    for item in items:
        if isinstance(item, str):
            blocks.append(TextBlock(text=_encodable(item)))
        elif isinstance(item, _BLOCKS):
            blocks.append(item)
        else:
            return _unshowable(item, name)
    return ToolResult(output=tuple(blocks))


def _from_json(value: Any, name: str) -> ToolResult:
    if isinstance(value, bytes | bytearray | memoryview):
        return _unshowable(value, name)
    try:
        text = _to_json(value)
        return ToolResult(output=text if text.isascii() else _encodable(text))
    except (ValueError, TypeError, RecursionError, AttributeError):
        return _unshowable(value, name)


def _to_json(value: Any) -> str:
    try:
        return _encode(value)
    except TypeError:
        from pydantic_core import to_json

        return to_json(value, inf_nan_mode="constants").decode()


def _unshowable(value: Any, name: str) -> ToolResult:
    return error_result(
        f"`{name}` returned a value of type `{type(value).__name__}` that cannot be shown to the model. "
        "It may have done its work. Let it return text, blocks, or something that can be written as JSON."
    )
