"""OpenAI's Chat Completions, from the server's side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from treadle.message import ToolUseBlock
from treadle.model import Usage
from treadle.testing._provider_formats import Said, WireFormat, json_event, pieces, server_event

_FINISH = {"stop": "stop", "tool_use": "tool_calls", "length": "length", "refused": "content_filter"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_TYPES = {408: "timeout", 429: "requests"}


def _function(call: ToolUseBlock) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _message(said: Said) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.thinking:
        out["reasoning_content"] = said.thinking
    if said.calls:
        out["tool_calls"] = [_function(call) for call in said.calls]
    return out


def _whole(said: Said) -> dict[str, Any]:
    finish = _FINISH[said.response.stop_reason]
    return {
        "id": said.id,
        "object": "chat.completion",
        "created": 1,
        "model": said.model,
        "choices": [{"index": 0, "message": _message(said), "logprobs": None, "finish_reason": finish}],
        "usage": _usage(said.response.usage),
    }


def _deltas(said: Said) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    out += [{"reasoning_content": piece} for piece in pieces(said.thinking)]
    out += [{"content": piece} for piece in pieces(said.text)]
    for index, call in enumerate(said.calls):
        first = _function(call)
        first["function"] = {"name": call.name, "arguments": ""}
        out.append({"tool_calls": [{"index": index, **first}]})
        out += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces(call.raw or "")
        ]
    return out


def _events(said: Said) -> list[bytes]:
    base = {"id": said.id, "object": "chat.completion.chunk", "created": 1, "model": said.model}
    finish = _FINISH[said.response.stop_reason]
    steps = [(delta, None) for delta in _deltas(said)] + [({}, finish)]
    out = [
        json_event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        for delta, reason in steps
    ]
    options: Mapping[str, Any] = said.body.get("stream_options") or {}
    if options.get("include_usage"):
        out.append(json_event({**base, "choices": [], "usage": _usage(said.response.usage)}))
    return [*out, server_event("[DONE]")]


def _error(status: int, code: str, text: str) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": text, "type": kind, "param": None, "code": code or _CODES.get(status)}}


OPENAI_CHAT: Final = WireFormat(
    name="openai",
    path=re.compile(r"/chat/completions$"),
    streams=lambda path, body: bool(body.get("stream")),
    whole=_whole,
    events=_events,
    error=_error,
    event=server_event,
)
