"""Messages to Gemini and answers of it, for its tests."""

from __future__ import annotations

import json
from typing import Any

from treadle import Msg
from treadle.formatter._gemini import GeminiFormatter
from treadle.message import Base64Source, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.model import ModelProfile, ModelRequest, ModelResponse, ToolSpec, Usage
from treadle.model._profiles import profile_of

PROFILE = profile_of("gemini", "gemini-2.5-flash")
SIGNS = profile_of("gemini", "gemini-3-flash-preview")
PNG = Base64Source(data="AAAA", media_type="image/png")
ADD = ToolSpec(
    name="add",
    description="Add.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)


def body(*messages: Msg, profile: ModelProfile = PROFILE, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages, **fields)
    out = GeminiFormatter().body(request, model="gemini-2.5-flash", profile=profile, stream=True)
    return json.loads(json.dumps(out))


def call(id: str, name: str = "add", extra: Any = None, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input=arguments, extra=extra)


def chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "responseId": "r1", **fields}


USAGE = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 7,
    "cachedContentTokenCount": 4,
    "totalTokenCount": 22,
}
CALLS = (
    {"functionCall": {"id": "g1", "name": "add", "args": {"a": 1, "t": "é\n"}}, "thoughtSignature": "c2lnMg=="},
    {"functionCall": {"name": "add"}},
)
CHUNKS = (
    chunk({"text": "Let me ", "thought": True}),
    chunk({"text": "see.", "thought": True}),
    chunk({"text": ""}),
    chunk({"text": "Héllo "}, usageMetadata={"promptTokenCount": 10}),
    chunk({"text": "wörld 🎉"}, {"text": "", "thoughtSignature": "c2lnMQ=="}),
    chunk(*CALLS),
    chunk({"text": ""}, finish="STOP", usageMetadata=USAGE),
)
WHOLE = chunk(
    {"text": "Let me see.", "thought": True},
    {"text": "Héllo wörld 🎉", "thoughtSignature": "c2lnMQ=="},
    *CALLS,
    finish="STOP",
    usageMetadata=USAGE,
)
ANSWER = ModelResponse(
    content=(
        ThinkingBlock(thinking="Let me see.", extra={"thought": True}),
        TextBlock(text="Héllo wörld 🎉", extra={"thoughtSignature": "c2lnMQ=="}),
        ToolUseBlock(id="", name="add", input={"a": 1, "t": "é\n"}, extra={"id": "g1", "thoughtSignature": "c2lnMg=="}),
        ToolUseBlock(id="", name="add", input={}),
    ),
    stop_reason="tool_use",
    usage=Usage(input_tokens=10, output_tokens=12, cached_tokens=4, reasoning_tokens=7, requests=1),
    id="r1",
)
