"""Anthropic's Messages: what is read, however it comes, and what goes back of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContextWindowError,
    MalformedResponseError,
    ModelError,
    OverloadedError,
    RateLimitError,
    ServerError,
)
from treadle.formatter._anthropic import AnthropicFormatter
from treadle.message import (
    Block,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    msg_from_json,
    msg_to_json,
)
from treadle.model import (
    Delta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from treadle.model._sse import SSEParser


def turns_of(*messages: Msg, profile: ModelProfile | None = None) -> list[Any]:
    request = ModelRequest(messages=messages)
    return AnthropicFormatter().body(request, model="m", profile=profile or ModelProfile(), stream=False)["messages"]


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def result(id: str) -> ToolResultBlock:
    return ToolResultBlock(id=id, name="add", output="3")


HI = Msg.user("Hi")


def sse(*events: Mapping[str, Any]) -> bytes:
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n".encode() for e in events)


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def begun(**usage: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
    }
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}


def ended(reason: str, **usage: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}


EVENTS = [
    begun(input_tokens=10, cache_read_input_tokens=100, cache_creation_input_tokens=7, output_tokens=1),
    {"type": "ping"},
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Let me "),
    delta(0, "thinking_delta", thinking="think 你好."),
    delta(0, "signature_delta", signature="EqQB+/=="),
    stop(0),
    start(1, type="redacted_thinking", data="enc=="),
    stop(1),
    start(2, type="text", text=""),
    delta(2, "text_delta", text='Hé said "'),
    delta(2, "citations_delta", citation={"type": "char_location", "cited_text": "x"}),
    delta(2, "text_delta", text='\\n" 🎉'),
    stop(2),
    {"type": "brand_new_event", "index": 2},
    start(3, type="server_tool_use", id="srv_1", name="web_search", input={}),
    delta(3, "input_json_delta", partial_json='{"query": "x"}'),
    stop(3),
    start(4, type="tool_use", id="toolu_1", name="add", input={}),
    delta(4, "input_json_delta", partial_json=""),
    delta(4, "input_json_delta", partial_json='{"a": 1, "b": "\\u4f'),
    start(5, type="tool_use", id="toolu_2", name="now", input={}),
    delta(4, "input_json_delta", partial_json='60 \\"q\\""}'),
    stop(4),
    stop(5),
    *ended("tool_use", output_tokens=42, output_tokens_details={"thinking_tokens": 20}),
]
STREAM = sse(*EVENTS)
WHOLE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Let me think 你好.", "signature": "EqQB+/=="},
        {"type": "redacted_thinking", "data": "enc=="},
        {"type": "text", "text": 'Hé said "\\n" 🎉', "citations": [{"type": "char_location", "cited_text": "x"}]},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": '你 "q"'}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 7,
        "output_tokens": 42,
        "output_tokens_details": {"thinking_tokens": 20},
    },
}
EXPECTED = ModelResponse(
    content=(
        ThinkingBlock(thinking="Let me think 你好.", extra={"signature": "EqQB+/=="}),
        ThinkingBlock(thinking="", extra={"redacted_thinking": "enc=="}),
        TextBlock(text='Hé said "\\n" 🎉'),
        ToolUseBlock(id="", name="add", input={"a": 1, "b": '你 "q"'}, extra={"id": "toolu_1"}),
        ToolUseBlock(id="", name="now", input={}, extra={"id": "toolu_2"}),
    ),
    stop_reason="tool_use",
    usage=Usage(input_tokens=117, output_tokens=42, cached_tokens=100, reasoning_tokens=20, requests=1),
    id="msg_1",
)


def read(chunks: Iterable[bytes]) -> tuple[list[Delta], ModelResponse]:
    parser, reader = SSEParser(), AnthropicFormatter().reader()
    deltas = [delta for chunk in chunks for event in parser.feed(chunk) for delta in reader.feed(event)]
    return deltas, reader.finish()


def read_events(*events: Mapping[str, Any]) -> ModelResponse:
    return read([sse(*events)])[1]


def test_streamed_or_whole_the_answer_is_the_same() -> None:
    assert read([STREAM])[1] == EXPECTED
    assert AnthropicFormatter().response(WHOLE) == EXPECTED


def test_deltas_say_what_came() -> None:
    assert read([STREAM])[0] == [
        ThinkingDelta("Let me ", 0),
        ThinkingDelta("think 你好.", 0),
        TextDelta('Hé said "', 2),
        TextDelta('\\n" 🎉', 2),
        ToolCallDelta("", 4, "toolu_1", "add"),
        ToolCallDelta('{"a": 1, "b": "\\u4f', 4),
        ToolCallDelta("", 5, "toolu_2", "now"),
        ToolCallDelta('60 \\"q\\""}', 4),
    ]


def test_a_stream_cut_anywhere_gives_the_same() -> None:
    whole = read([STREAM])
    for place in range(len(STREAM) + 1):
        assert read([STREAM[:place], STREAM[place:]]) == whole
    assert read(STREAM[place : place + 1] for place in range(len(STREAM))) == whole


def test_a_stream_that_just_ends_is_an_error() -> None:
    for place in range(len(STREAM)):
        with pytest.raises(MalformedResponseError, match="message_stop") as caught:
            read([STREAM[:place]])
        assert 'Hé said "\\n" 🎉'.startswith(caught.value.partial)


@pytest.mark.parametrize(
    ("reason", "means", "metadata"),
    [
        ("end_turn", "stop", None),
        ("max_tokens", "length", None),
        ("stop_sequence", "stop", {"stop_reason": "stop_sequence"}),
        ("pause_turn", "stop", {"stop_reason": "pause_turn"}),
        ("refusal", "refused", {"stop_reason": "refusal"}),
        ("model_context_window_exceeded", "length", {"stop_reason": "model_context_window_exceeded"}),
        ("something_new", "stop", {"stop_reason": "something_new"}),
    ],
)
def test_stop_reasons(reason: str, means: str, metadata: Any) -> None:
    streamed = read_events(begun(input_tokens=1), start(0, type="text", text="Hi"), *ended(reason, output_tokens=1))
    usage = {"input_tokens": 1, "output_tokens": 1}
    data = {**WHOLE, "content": [words("Hi")], "stop_reason": reason, "usage": usage}
    assert streamed == AnthropicFormatter().response(data)
    assert (streamed.stop_reason, streamed.metadata) == (means, metadata)


def test_calls_in_an_answer_that_was_cut_do_not_count_as_whole() -> None:
    cut = start(0, type="tool_use", id="t", name="add", input={}), delta(0, "input_json_delta", partial_json='{"a": ')
    response = read_events(begun(), *cut, *ended("max_tokens"))
    assert response.stop_reason == "length"
    assert response.content == (ToolUseBlock(id="", name="add", input={}, raw='{"a": ', extra={"id": "t"}),)


def test_a_refusal_says_why() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": None}
    end = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}, "usage": {}}
    response = read_events(begun(), end, {"type": "message_stop"})
    assert (response.content, response.stop_reason) == ((), "refused")
    assert response.metadata == {"stop_reason": "refusal", "stop_details": details}


def test_an_input_given_at_once_counts_and_pieces_after_it_replace_it() -> None:
    begin = start(0, type="tool_use", id="t", name="add", input={"a": 1})
    assert read_events(begun(), begin, *ended("tool_use")).content[0] == ToolUseBlock(
        id="", name="add", input={"a": 1}, extra={"id": "t"}
    )
    again = delta(0, "input_json_delta", partial_json='{"a": 2}')
    block = read_events(begun(), begin, again, *ended("tool_use")).content[0]
    assert isinstance(block, ToolUseBlock)
    assert block.input == {"a": 2}


def test_counts_at_the_end_replace_those_at_the_start() -> None:
    usage = {"input_tokens": 20, "cache_read_input_tokens": None, "output_tokens": 9}
    response = read_events(
        begun(input_tokens=5, cache_read_input_tokens=3, output_tokens=1), *ended("end_turn", **usage)
    )
    assert response.usage == Usage(input_tokens=23, cached_tokens=3, output_tokens=9, requests=1)


def test_nothing_counts_after_the_end() -> None:
    assert read([STREAM, sse(delta(2, "text_delta", text="more"), {"type": "error"})]) == read([STREAM])


def test_servers_that_name_events_only_or_add_an_end_marker_are_read() -> None:
    lines = [
        "event: ping\ndata: {}\n\n",
        'event: content_block_delta\ndata: {"delta": {"type": "text_delta", "text": "Hi"}}\n\n',
        "event: message_stop\ndata: {}\n\ndata: [DONE]\n\n",
    ]
    assert read([line.encode() for line in lines])[1].content == (TextBlock(text="Hi"),)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", OverloadedError),
        ("api_error", ServerError),
        ("rate_limit_error", RateLimitError),
        ("authentication_error", AuthenticationError),
        ("invalid_request_error", BadRequestError),
        ("request_too_large", ContextWindowError),
    ],
)
def test_an_error_inside_a_stream_or_a_body(kind: str, error: type[ModelError]) -> None:
    data = {"type": "error", "error": {"type": kind, "message": "Sorry"}}
    with pytest.raises(error, match="Sorry"):
        read([STREAM[:1000], b"\n\n", sse(data)])
    with pytest.raises(error, match="Sorry"):
        AnthropicFormatter().response(data)


@pytest.mark.parametrize("data", [{}, {"content": None}, {"content": "Hi"}])
def test_an_answer_without_content_is_malformed(data: dict[str, Any]) -> None:
    with pytest.raises(MalformedResponseError, match="no content"):
        AnthropicFormatter().response(data)


def test_an_event_that_is_no_json_is_malformed() -> None:
    with pytest.raises(MalformedResponseError):
        read([b"data: {oops\n\n"])


# There and back


def test_thinking_and_calls_go_back_as_they_came() -> None:
    """Two steps of one tool loop, through storage: the provider gets its blocks back unchanged and in their order."""
    history = [Msg.user("Go.")]
    for step in (1, 2):
        reply = AnthropicFormatter().response(WHOLE)
        blocks: list[Block] = []
        for place, block in enumerate(reply.content):
            known = isinstance(block, ToolUseBlock)
            id = f"call_{step}-{place}"
            blocks.append(
                ToolUseBlock(id=id, name=block.name, input=block.input, extra=block.extra) if known else block
            )
        said = Msg.assistant(blocks)
        history += [said, *(Msg.tool(result(each.id)) for each in said.tool_calls)]
    stored = [msg_from_json(msg_to_json(msg)) for msg in history]
    turns = turns_of(*stored)
    given = [part for part in WHOLE["content"] if part["type"] != "server_tool_use"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    for turn in (turns[1], turns[3]):
        for sent, came in zip(turn["content"], given, strict=True):
            assert {**sent, "id": 0} == {**{k: v for k, v in came.items() if k != "citations"}, "id": 0}
    for said, answered in ((turns[1], turns[2]), (turns[3], turns[4])):
        calls = [part["id"] for part in said["content"] if part["type"] == "tool_use"]
        assert calls == [part["tool_use_id"] for part in answered["content"]]


def test_thinking_without_signatures_goes_back_where_a_server_wants_it() -> None:
    said = Msg.assistant([ThinkingBlock(thinking="hm"), TextBlock(text="So.")])
    turns = turns_of(HI, said, HI, profile=ModelProfile(echoes_thinking=True))
    assert turns[1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}
