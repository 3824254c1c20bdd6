"""The blocks that a message is made of. All are frozen values.

`extra` holds what a provider wants back unchanged (signatures, encrypted reasoning, its own ids): Treadle stores it and
returns it, and never looks inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Extra: TypeAlias = Mapping[str, Any]
Status: TypeAlias = Literal["ok", "error", "rejected", "interrupted", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class URLSource:
    """Media that the provider, or a reader, fetches itself."""

    url: str
    media_type: str | None = None
    type: Literal["url"] = "url"


@dataclass(frozen=True, slots=True, kw_only=True)
class Base64Source:
    """Media inside the message."""

    data: str
    media_type: str
    type: Literal["base64"] = "base64"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSource:
    """Media in a local file, read when the message is sent."""

    path: str
    media_type: str | None = None
    type: Literal["path"] = "path"


Source: TypeAlias = URLSource | Base64Source | PathSource


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Plain text."""

    text: str
    extra: Extra | None = None
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlock:
    """What the model thought. `extra` carries a signature or an encrypted form where the provider gives one."""

    thinking: str
    extra: Extra | None = None
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBlock:
    """A picture."""

    source: Source
    extra: Extra | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioBlock:
    """Sound."""

    source: Source
    extra: Extra | None = None
    type: Literal["audio"] = "audio"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoBlock:
    """A film."""

    source: Source
    extra: Extra | None = None
    type: Literal["video"] = "video"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """Any other file, such as a PDF."""

    source: Source
    name: str | None = None
    extra: Extra | None = None
    type: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseBlock:
    """A call that the model asks for, as the model said it.

    `id` is Treadle's; the provider's own id, where there is one, is in `extra`. `raw` is set only if the arguments were
    not a JSON object: it holds the text as it came, and `input` is empty.
    """

    id: str
    name: str
    input: Mapping[str, Any]
    raw: str | None = None
    extra: Extra | None = None
    type: Literal["tool_use"] = "tool_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBlock:
    """The one result of a call. `id` is the call's id, `status` says how it went without reading the text."""

    id: str
    name: str
    output: str | tuple[TextBlock | ImageBlock | AudioBlock | VideoBlock | FileBlock, ...]
    status: Status = "ok"
    metadata: Mapping[str, Any] | None = None
    type: Literal["tool_result"] = "tool_result"

    @property
    def text(self) -> str:
        """The text of the output, media left out."""
        if isinstance(self.output, str):
            return self.output
        return "\n".join(block.text for block in self.output if isinstance(block, TextBlock))


OutputBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | VideoBlock | FileBlock
Block: TypeAlias = (
    TextBlock | ThinkingBlock | ImageBlock | AudioBlock | VideoBlock | FileBlock | ToolUseBlock | ToolResultBlock
)
