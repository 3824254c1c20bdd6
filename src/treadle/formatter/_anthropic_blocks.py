"""Anthropic's Messages: one block of a message at a time."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, TypeAlias, assert_never

from treadle.errors import InputError
from treadle.formatter._anthropic_reader import REDACTED, SIGNATURE
from treadle.formatter._media import as_base64, media_type_of
from treadle.message import (
    AudioBlock,
    Base64Source,
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
from treadle.model import ModelProfile

Wire: TypeAlias = dict[str, Any]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"
_TEXTS = ("application/json", "application/xml", "application/yaml")
_THOUGHTS = ("thinking", "redacted_thinking")


def wire_id(id: str) -> str:
    """A call's id as the provider takes it: as it is where it fits, else one made from it, always the same."""
    if _ID.fullmatch(id):
        return id
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', id)[:40]}_{hashlib.sha256(id.encode()).hexdigest()[:16]}"


def said(msg: Msg, profile: ModelProfile) -> list[Wire]:
    """What the model said, in its order. Thinking at the very end is left out: the provider refuses it there."""
    parts = [part for block in msg.content if (part := _own(block, profile)) is not None]
    while parts and parts[-1]["type"] in _THOUGHTS:
        parts.pop()
    return parts


def _own(block: Block, profile: ModelProfile) -> Wire | None:
    match block:
        case TextBlock():
            return _text(block)
        case ThinkingBlock():
            return _thought(block, profile)
        case ToolUseBlock():
            return {"type": "tool_use", "id": wire_id(block.id), "name": block.name, "input": dict(block.input)}
        case ImageBlock() | AudioBlock() | VideoBlock() | FileBlock() | ToolResultBlock():
            raise InputError(f"A `{block.type}` block cannot be part of what the model said.")
        case _:
            assert_never(block)


def given(msg: Msg, role: str, profile: ModelProfile) -> list[Wire]:
    """What the model is told: by a user, by tools, or as the system's text."""
    return [part for block in msg.content if (part := _given(block, role, profile)) is not None]


def _given(block: Block, role: str, profile: ModelProfile) -> Wire | None:
    if isinstance(block, ThinkingBlock):
        return None
    if isinstance(block, ToolUseBlock) or (role == "system" and not isinstance(block, TextBlock)):
        raise InputError(f"A `{block.type}` block cannot be part of a {role} message.")
    return _result(block, profile) if isinstance(block, ToolResultBlock) else _part(block, profile)


def _text(block: TextBlock) -> Wire | None:
    """The text, unless it is blank: the provider refuses such blocks."""
    return {"type": "text", "text": block.text} if block.text.strip() else None


def _thought(block: ThinkingBlock, profile: ModelProfile) -> Wire | None:
    """Thinking exactly as it came. Without a signature it is not this provider's, or was cut off, and is left out."""
    extra = block.extra or {}
    if REDACTED in extra:
        return {"type": "redacted_thinking", "data": extra[REDACTED]}
    if SIGNATURE not in extra and not profile.echoes_thinking:
        return None
    return {"type": "thinking", "thinking": block.thinking, "signature": extra.get(SIGNATURE, "")}


def _result(result: ToolResultBlock, profile: ModelProfile) -> Wire:
    out: Wire = {"type": "tool_result", "tool_use_id": wire_id(result.id)}
    if isinstance(result.output, str):
        content: Any = result.output
    else:
        content = [part for block in result.output if (part := _part(block, profile)) is not None]
    if result.status != "ok":
        out["is_error"] = True
        content = content or result.status  # An error has to say something.
    return {**out, "content": content} if content else out


def _part(block: OutputBlock, profile: ModelProfile) -> Wire | None:
    match block:
        case TextBlock():
            return _text(block)
        case ImageBlock():
            _require(profile.images, "images")
            return {"type": "image", "source": _image(_unpacked(block.source))}
        case FileBlock():
            _require(profile.files, "files")
            title = {"title": block.name} if block.name else {}
            return {"type": "document", "source": _document(_unpacked(block.source)), **title}
        case AudioBlock() | VideoBlock():
            raise InputError(f"This provider does not take {block.type}.")
        case _:
            assert_never(block)


def _image(source: Source) -> Wire:
    if isinstance(source, URLSource):
        return {"type": "url", "url": source.url}
    kind = media_type_of(source, "image/png")
    if kind not in _IMAGES:
        raise InputError(f"This provider does not take {kind!r} images; it takes {', '.join(_IMAGES)}.")
    return {"type": "base64", "media_type": kind, "data": as_base64(source)}


def _document(source: Source) -> Wire:
    kind = media_type_of(source, _PDF if isinstance(source, URLSource) else "application/octet-stream")
    if isinstance(source, URLSource) and kind == _PDF:
        return {"type": "url", "url": source.url}
    if isinstance(source, URLSource) or not (kind == _PDF or kind.startswith("text/") or kind in _TEXTS):
        how = "by URL" if isinstance(source, URLSource) else "as files"
        raise InputError(f"This provider does not take {kind!r} {how}; it takes PDF, and text that is given as bytes.")
    data = as_base64(source)
    if kind == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": data}
    return {"type": "text", "media_type": "text/plain", "data": base64.b64decode(data).decode("utf-8", "replace")}


def _unpacked(source: Source) -> Source:
    """The bytes of a `data:` URL, which the provider does not fetch."""
    if not isinstance(source, URLSource) or not source.url.startswith("data:"):
        return source
    head, _, data = source.url.removeprefix("data:").partition(";base64,")
    return Base64Source(data=data, media_type=head.split(";")[0] or source.media_type or "text/plain")


def _require(can: bool, what: str) -> None:
    if not can:
        raise InputError(f"This model does not take {what}; choose another, or pass a `profile` that says it does.")
