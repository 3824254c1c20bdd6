"""Messages to OpenAI's Responses and answers of it, for its tests."""

from __future__ import annotations

import json
from typing import Any

from treadle import Msg
from treadle.formatter._responses import OpenAIResponsesFormatter
from treadle.message import Base64Source, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.model import ModelProfile, ModelRequest, ModelResponse, ToolSpec, Usage
from treadle.model._profiles import profile_of

PROFILE = profile_of("openai-responses", "gpt-5-mini")
PLAIN = profile_of("openai-responses", "gpt-4.1")
PNG = Base64Source(data="AAAA", media_type="image/png")
PDF = Base64Source(data="AAAA", media_type="application/pdf")
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


def body(*messages: Msg, profile: ModelProfile = PROFILE, stream: bool = False, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages, **fields)
    out = OpenAIResponsesFormatter().body(request, model="gpt-5-mini", profile=profile, stream=stream)
    return json.loads(json.dumps(out))


def call(id: str, extra: Any = None, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name="add", input=arguments, extra=extra)


def thought(id: str, **fields: Any) -> ThinkingBlock:
    item: dict[str, Any] = {"type": "reasoning", "id": id, "summary": [], **fields}
    return ThinkingBlock(thinking="", extra={"item": item})


REASONING: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Let me"}, {"type": "summary_text", "text": "see."}],
    "encrypted_content": "gAAAA-é",
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Héllo 🎉", "annotations": [], "logprobs": []}],
}
CALLS = tuple(
    {
        "id": f"fc_{n}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{n}",
        "name": "add",
        "arguments": arguments,
    }
    for n, arguments in ((1, '{"a": 1, "t": "\\u00e9\\n"}'), (2, "{}"))
)
OUTPUT: list[dict[str, Any]] = [REASONING, MESSAGE, *CALLS]
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 7},
    "total_tokens": 22,
}


def response(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **fields,
    }


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def pieces(kind: str, texts: list[str], **fields: Any) -> list[dict[str, Any]]:
    return [event(f"response.{kind}.delta", delta=text, **fields) for text in texts]


def numbered(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "sequence_number": number} for number, one in enumerate(events)]


def begun(index: int, item: dict[str, Any], **empty: Any) -> dict[str, Any]:
    return event("response.output_item.added", output_index=index, item={**item, "status": "in_progress", **empty})


def ended(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return event("response.output_item.done", output_index=index, item=item)


SUMMARY = {"item_id": "rs_1", "output_index": 0}
PART = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
TEXT = MESSAGE["content"][0]
BEFORE_THE_END = [
    event("response.created", response=response(status="in_progress", usage=None)),
    event("response.in_progress", response=response(status="in_progress", usage=None)),
    begun(0, REASONING, summary=[], encrypted_content="unfinished"),
    event("response.reasoning_summary_part.added", **SUMMARY, summary_index=0, part=REASONING["summary"][0]),
    *pieces("reasoning_summary_text", ["Let ", "me"], **SUMMARY, summary_index=0),
    event("response.reasoning_summary_text.done", **SUMMARY, summary_index=0, text="Let me"),
    event("response.reasoning_summary_part.done", **SUMMARY, summary_index=0, part=REASONING["summary"][0]),
    *pieces("reasoning_summary_text", ["see."], **SUMMARY, summary_index=1),
    ended(0, REASONING),
    begun(1, MESSAGE, content=[]),
    event("response.content_part.added", **PART, part={"type": "output_text", "text": "", "annotations": []}),
    *pieces("output_text", ["Hé", "llo 🎉"], **PART, logprobs=[]),
    event("response.output_text.done", **PART, text="Héllo 🎉", logprobs=[]),
    event("response.content_part.done", **PART, part=TEXT),
    ended(1, MESSAGE),
    begun(2, CALLS[0], arguments=""),
    begun(3, CALLS[1], arguments=""),
    *pieces("function_call_arguments", ['{"a": 1, "t', '": "\\u00'], item_id="fc_1", output_index=2),
    *pieces("function_call_arguments", ["{}"], item_id="fc_2", output_index=3),
    *pieces("function_call_arguments", ['e9\\n"}'], item_id="fc_1", output_index=2),
    event(
        "response.function_call_arguments.done",
        item_id="fc_1",
        output_index=2,
        name="add",
        arguments=CALLS[0]["arguments"],
    ),
    ended(2, CALLS[0]),
    ended(3, CALLS[1]),
]
EVENTS = numbered(*BEFORE_THE_END, event("response.completed", response=response(*OUTPUT)))
ANSWER = ModelResponse(
    content=(
        ThinkingBlock(thinking="Let me\n\nsee.", extra={"item": REASONING}),
        TextBlock(text="Héllo 🎉", extra={"item_id": "msg_1", "phase": "commentary"}),
        ToolUseBlock(id="", name="add", input={"a": 1, "t": "é\n"}, extra={"id": "call_1", "item_id": "fc_1"}),
        ToolUseBlock(id="", name="add", input={}, extra={"id": "call_2", "item_id": "fc_2"}),
    ),
    stop_reason="tool_use",
    usage=Usage(input_tokens=10, output_tokens=12, cached_tokens=4, reasoning_tokens=7, requests=1),
    id="resp_1",
)
