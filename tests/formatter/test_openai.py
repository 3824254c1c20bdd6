"""OpenAI's chat format: the exact JSON of requests, and answers read alike, however they come."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InputError, MalformedResponseError, ModelError, OverloadedError, RateLimitError, ServerError
from treadle.formatter import OpenAIFormatter
from treadle.message import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    Msg,
    PathSource,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from treadle.model import (
    Delta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolChoice,
    ToolSpec,
    Usage,
)
from treadle.model._services import SERVICES, Dialect
from treadle.model._sse import SSEParser

ABLE = ModelProfile(images=True, audio=True, video=True, files=True)
PNG = ImageBlock(source=Base64Source(data="iVBO", media_type="image/png"))
LINK = ImageBlock(source=URLSource(url="https://x.org/a.jpg"))
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object"})


def call(id: str, name: str = "add", **input: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input=input)


def body(*messages: Msg, dialect: Dialect | None = None, profile: ModelProfile = ABLE, **request: Any) -> Any:
    asked = ModelRequest(messages=messages, **request)
    return OpenAIFormatter(dialect).body(asked, model="m", profile=profile, stream=False)


def sent(*messages: Msg, dialect: Dialect | None = None, profile: ModelProfile = ABLE) -> Any:
    return body(*messages, dialect=dialect, profile=profile)["messages"]


# Requests


def sound(kind: str) -> AudioBlock:
    return AudioBlock(source=Base64Source(data="AAAA", media_type=f"audio/{kind}"))


def heard(format: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": "AAAA", "format": format}}


PDF = FileBlock(source=Base64Source(data="JVBE", media_type="application/pdf"), name="a.pdf")
PARTS: list[tuple[Block, dict[str, Any]]] = [
    (TextBlock(text="Hé"), {"type": "text", "text": "Hé"}),
    (PNG, IMAGE),
    (LINK, {"type": "image_url", "image_url": {"url": "https://x.org/a.jpg"}}),
    (sound("wav"), heard("wav")),
    (sound("x-wav"), heard("wav")),
    (sound("mpeg"), heard("mp3")),
    (
        VideoBlock(source=URLSource(url="https://x.org/a.mp4")),
        {"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}},
    ),
    (PDF, {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}}),
]


@pytest.mark.parametrize(("block", "expected"), PARTS, ids=lambda value: getattr(value, "type", ""))
def test_a_block_becomes_a_part(block: Block, expected: dict[str, Any]) -> None:
    text = {"type": "text", "text": "Look:"}
    image = [] if block == PNG else [PNG]
    given = Msg.user([TextBlock(text="Look:"), block, *image])
    assert sent(given) == [{"role": "user", "content": [text, expected, *([IMAGE] if image else [])]}]


def test_a_file_is_read_when_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG")
    [message] = sent(Msg.user(ImageBlock(source=PathSource(path=str(path)))))
    assert message["content"][0]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


ROLES: list[tuple[Msg, list[dict[str, Any]]]] = [
    (Msg.system("Be brief."), [{"role": "system", "content": "Be brief."}]),
    (Msg.user("Hi"), [{"role": "user", "content": "Hi"}]),
    (Msg.user([]), [{"role": "user", "content": ""}]),
    (Msg.user([TextBlock(text="a"), TextBlock(text="b")]), [{"role": "user", "content": "a\nb"}]),
    (Msg.assistant("Hello"), [{"role": "assistant", "content": "Hello"}]),
    (Msg.assistant([]), [{"role": "assistant", "content": ""}]),
    (Msg.assistant([ThinkingBlock(thinking="Hm"), TextBlock(text="Yes")]), [{"role": "assistant", "content": "Yes"}]),
    (
        Msg.assistant([TextBlock(text="So:"), call("c1", a=1, s="é"), call("c2", "now")]),
        [
            {
                "role": "assistant",
                "content": "So:",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"s":"é"}'}},
                    {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
            }
        ],
    ),
    (
        Msg.assistant(ToolUseBlock(id="c", name="add", input={}, raw='{"a": ')),
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
            }
        ],
    ),
    (
        Msg.tool([ToolResultBlock(id="c1", name="add", output="3"), ToolResultBlock(id="c2", name="now", output="")]),
        [
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "tool", "tool_call_id": "c2", "content": ""},
        ],
    ),
]


@pytest.mark.parametrize(("msg", "expected"), ROLES)
def test_a_message_has_exactly_this_form(msg: Msg, expected: list[dict[str, Any]]) -> None:
    assert sent(msg) == expected


def test_media_in_results_follow_after_the_last_result() -> None:
    results = [
        Msg.tool(ToolResultBlock(id="c1", name="draw", output=(TextBlock(text="Done"), PNG))),
        Msg.tool(ToolResultBlock(id="c2", name="draw", output=(PNG,))),
        Msg.tool(ToolResultBlock(id="c3", name="add", output="3")),
    ]
    note = {"type": "text", "text": "These belong to the tool results above:"}
    media = {"role": "user", "content": [note, IMAGE]}
    assert sent(*results, Msg.user("Well?")) == [
        {"role": "tool", "tool_call_id": "c1", "content": "Done"},
        {"role": "tool", "tool_call_id": "c2", "content": "(see the message after the results)"},
        {"role": "tool", "tool_call_id": "c3", "content": "3"},
        media,
        media,
        {"role": "user", "content": "Well?"},
    ]
    assert [message["role"] for message in sent(*results)] == ["tool", "tool", "tool", "user", "user"]


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (PNG, "images"),
        (sound("wav"), "audio"),
        (VideoBlock(source=URLSource(url="https://x.org/a.mp4")), "video"),
        (PDF, "files"),
        (ThinkingBlock(thinking="x"), "thinking"),
    ],
)
def test_what_a_model_cannot_take_is_said_before_sending(block: Block, says: str) -> None:
    with pytest.raises(InputError, match=says):
        sent(Msg.user([block]), profile=ModelProfile())


@pytest.mark.parametrize("kind", [AudioBlock, FileBlock])
def test_what_must_be_bytes_cannot_be_an_address(kind: Any) -> None:
    with pytest.raises(InputError, match="as bytes"):
        sent(Msg.user(kind(source=URLSource(url="https://x.org/a"))))


def test_a_missing_file_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"nowhere\.png"):
        sent(Msg.user(ImageBlock(source=PathSource(path="nowhere.png"))))


TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, {}),
        (ToolChoice(), {"tool_choice": "auto"}),
        (ToolChoice(mode="none"), {"tool_choice": "none"}),
        (ToolChoice(mode="required"), {"tool_choice": "required"}),
        (
            ToolChoice(mode="required", name="add"),
            {"tool_choice": {"type": "function", "function": {"name": "add"}}},
        ),
    ],
)
def test_tools_and_the_choice_among_them(choice: ToolChoice | None, expected: dict[str, Any]) -> None:
    got = body(Msg.user("Hi"), tools=[ADD], tool_choice=choice)
    assert got == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL], **expected}
    assert body(Msg.user("Hi"), tool_choice=choice).keys() == {"model", "messages"}


def test_a_stream_is_asked_for_with_its_usage() -> None:
    asked = ModelRequest(messages=[Msg.user("Hi")], options={"temperature": 0, "max_tokens": 5})
    got = OpenAIFormatter().body(asked, model="m", profile=ABLE, stream=True)
    assert got.pop("messages")
    assert got == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 5,
    }


def test_a_message_is_formatted_once() -> None:
    formatter, msg = OpenAIFormatter(), Msg.user("Hi")
    assert formatter.formatted([msg], ABLE)[0] is formatter.formatted([msg], ABLE)[0]


# Dialects

THOUGHT = Msg.assistant([ThinkingBlock(thinking="Hm"), call("call_5f3a-1")])
UNTHOUGHT = Msg.assistant(call("call_5f3a-2"))
RESULT = Msg.tool(ToolResultBlock(id="call_5f3a-1", name="add", output="3"))


@pytest.mark.parametrize(("service", "model"), [("deepseek", "deepseek-v4-pro"), ("moonshot", "kimi-k2.6")])
def test_thinking_goes_back_beside_calls_where_the_service_wants_it(service: str, model: str) -> None:
    found = SERVICES[service]
    profile = found.profile(model)
    plain = Msg.assistant([ThinkingBlock(thinking="Hm"), TextBlock(text="Yes")])
    messages = sent(THOUGHT, UNTHOUGHT, plain, dialect=found.dialect, profile=profile)
    assert [message.get("reasoning_content") for message in messages] == ["Hm", "", None]
    assert "reasoning_content" not in sent(THOUGHT)[0]


def test_call_ids_have_the_length_that_the_service_wants() -> None:
    asking, answer = sent(THOUGHT, RESULT, dialect=SERVICES["mistral"].dialect)
    id = asking["tool_calls"][0]["id"]
    assert id == answer["tool_call_id"]
    assert len(id) == 9
    assert id.isalnum()
    assert id != sent(UNTHOUGHT, dialect=SERVICES["mistral"].dialect)[0]["tool_calls"][0]["id"]


@pytest.mark.parametrize("given", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("service", "name"), [("mistral", "max_tokens"), ("groq", "max_completion_tokens"), ("vllm", None)]
)
def test_the_token_limit_has_the_name_that_the_service_knows(service: str, name: str | None, given: str) -> None:
    got = body(Msg.user("Hi"), dialect=SERVICES[service].dialect, options={given: 9, "n": 1})
    assert {key: value for key, value in got.items() if key not in ("model", "messages")} == {name or given: 9, "n": 1}


@pytest.mark.parametrize(
    ("choice", "tools"), [(ToolChoice(mode="required", name="add"), True), (ToolChoice(mode="none"), False)]
)
def test_a_service_without_tool_choice_gets_none(choice: ToolChoice, tools: bool) -> None:
    got = body(Msg.user("Hi"), dialect=SERVICES["zhipu"].dialect, tools=[ADD], tool_choice=choice)
    assert "tool_choice" not in got
    assert ("tools" in got) is tools


def test_a_service_without_stream_options_gets_none() -> None:
    asked = ModelRequest(messages=[Msg.user("Hi")])
    formatter = OpenAIFormatter(SERVICES["mistral"].dialect)
    got = formatter.body(asked, model="m", profile=ABLE, stream=True)
    assert (got["stream"], "stream_options" in got) == (True, False)


# Answers


def read(chunks: list[Any], *, done: bool = True, cut: list[bytes] | None = None) -> list[Delta | ModelResponse]:
    """All that a stream of these chunks gives."""
    reader, parser = OpenAIFormatter().reader(), SSEParser()
    raw = stream_of(chunks, done=done) if cut is None else b""
    out: list[Delta | ModelResponse] = []
    for piece in cut or [raw]:
        for event in parser.feed(piece):
            out += reader.feed(event)
    return [*out, reader.finish()]


def stream_of(chunks: list[Any], *, done: bool = True) -> bytes:
    events = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks] + (["[DONE]"] if done else [])
    return "".join(f"data: {event}\n\n" for event in events).encode()


def delta(finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": "r1", "choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def part(index: int | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A delta with a piece of one call."""
    name = fields.pop("name", None)
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    place = {} if index is None else {"index": index}
    return delta(tool_calls=[{**place, **fields, "function": function}])


def response(chunks: list[Any], *, done: bool = True) -> ModelResponse:
    last = read(chunks, done=done)[-1]
    assert isinstance(last, ModelResponse)
    return last


def used(name: str, input: dict[str, Any], id: str | None = None, raw: str | None = None) -> ToolUseBlock:
    return ToolUseBlock(id="", name=name, input=input, raw=raw, extra={"id": id} if id else None)


USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 11,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
COUNTED = Usage(input_tokens=7, output_tokens=11, cached_tokens=3, reasoning_tokens=2, requests=1)
LONG: list[Any] = [
    delta(role="assistant", content=""),
    delta(reasoning_content="Hm, 你"),
    delta(reasoning_content="好"),
    delta(content='Grüße "'),
    delta(content="\\n🙂"),
    part(0, "", id="a", name="add"),
    part(1, '{"s": "\\u00', id="b", name="say"),
    part(0, '{"a": 1'),
    part(1, 'e9 é"}'),
    part(0, "}"),
    delta("tool_calls"),
    {"id": "r1", "choices": [], "usage": USAGE},
]
LONG_RESPONSE = ModelResponse(
    content=(
        ThinkingBlock(thinking="Hm, 你好"),
        TextBlock(text='Grüße "\\n🙂'),
        used("add", {"a": 1}, "a"),
        used("say", {"s": "é é"}, "b"),
    ),
    stop_reason="tool_use",
    usage=COUNTED,
    id="r1",
)


def test_a_stream_gives_deltas_and_then_the_whole() -> None:
    assert read(LONG) == [
        ThinkingDelta("Hm, 你", 0),
        ThinkingDelta("好", 0),
        TextDelta('Grüße "', 1),
        TextDelta("\\n🙂", 1),
        ToolCallDelta("", 2, "a", "add"),
        ToolCallDelta('{"s": "\\u00', 3, "b", "say"),
        ToolCallDelta('{"a": 1', 2, "a"),
        ToolCallDelta('e9 é"}', 3, "b"),
        ToolCallDelta("}", 2, "a"),
        LONG_RESPONSE,
    ]


def test_a_whole_answer_is_the_same() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "say", "arguments": '{"s": "é é"}'}},
    ]
    message = {"role": "assistant", "content": 'Grüße "\\n🙂', "reasoning_content": "Hm, 你好", "tool_calls": calls}
    data = {"id": "r1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": USAGE}
    assert OpenAIFormatter().response(data) == LONG_RESPONSE


def test_each_byte_alone_changes_nothing() -> None:
    raw = stream_of(LONG)
    assert read([], cut=[raw[i : i + 1] for i in range(len(raw))]) == read(LONG)


@given(st.sets(st.integers(1, len(stream_of(LONG)) - 1)))
def test_cutting_anywhere_changes_nothing(cuts: set[int]) -> None:
    raw = stream_of(LONG)
    places = [0, *sorted(cuts), len(raw)]
    assert read([], cut=[raw[a:b] for a, b in pairwise(places)])[-1] == LONG_RESPONSE


END = delta("tool_calls")
CALLS: dict[str, tuple[list[Any], tuple[Block, ...]]] = {
    "by id alone": (
        [part(id="a", name="f", arguments="{"), part(id="b", name="g", arguments="{}"), part(id="a", arguments="}")],
        (used("f", {}, "a"), used("g", {}, "b")),
    ),
    "neither index nor id": (
        [part(name="f", arguments='{"x"'), part(arguments=": 1}")],
        (used("f", {"x": 1}),),
    ),
    "all with index 0": (
        [part(0, '{"x": 1}', id="a", name="f"), part(0, '{"x": 2}', id="b", name="f")],
        (used("f", {"x": 1}, "a"), used("f", {"x": 2}, "b")),
    ),
    "another id in every piece": (
        [part(0, '{"x"', id="a", name="f"), part(0, ": 1}", id="b")],
        (used("f", {"x": 1}, "a"),),
    ),
    "name in every piece": (
        [part(0, '{"x"', id="a", name="f"), part(0, ": 1}", id="a", name="f")],
        (used("f", {"x": 1}, "a"),),
    ),
    "the id comes late": ([part(0, "{", name="f"), part(0, "}", id="a")], (used("f", {}, "a"),)),
    "indexes with gaps, backwards": (
        [part(5, "{}", id="a", name="f"), part(2, "{}", id="b", name="g")],
        (used("f", {}, "a"), used("g", {}, "b")),
    ),
    "empty arguments": ([part(0, "", id="a", name="f")], (used("f", {}, "a"),)),
    "no arguments": ([part(0, id="a", name="f")], (used("f", {}, "a"),)),
    "null for arguments": ([part(0, "null", id="a", name="f")], (used("f", {}, "a"),)),
    "an object for arguments": ([part(0, {"x": 1}, id="a", name="f")], (used("f", {"x": 1}, "a"),)),
    "half of the arguments": ([part(0, '{"x": ', id="a", name="f")], (used("f", {}, "a", '{"x": '),)),
    "a list for arguments": ([part(0, "[1]", id="a", name="f")], (used("f", {}, "a", "[1]"),)),
    "too deep": ([part(0, "[" * 100_000, id="a", name="f")], (used("f", {}, "a", "[" * 100_000),)),
    "no name": ([part(0, "{}", id="a")], (used("", {}, "a"),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_put_together(name: str) -> None:
    chunks, expected = CALLS[name]
    got = response([*chunks, END])
    assert (got.content, got.stop_reason) == (expected, "tool_use")


def text(value: str) -> tuple[Block, ...]:
    return (TextBlock(text=value),)


ODD: dict[str, tuple[list[Any], ModelResponse]] = {
    "usage in the last chunk of the choice": (
        [{**delta("stop", content="x"), "usage": USAGE}],
        ModelResponse(content=text("x"), usage=COUNTED, id="r1"),
    ),
    "usage inside the choice": (
        [{"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "usage": USAGE}]}],
        ModelResponse(content=text("x"), usage=COUNTED),
    ),
    "usage of Groq": (
        [delta("stop", content="x"), {"choices": [], "x_groq": {"usage": {"prompt_tokens": 5}}}],
        ModelResponse(content=text("x"), usage=Usage(input_tokens=5, requests=1), id="r1"),
    ),
    "usage of DeepSeek": (
        [delta("stop", content="x"), {"usage": {"prompt_tokens": 5, "prompt_cache_hit_tokens": 4}}],
        ModelResponse(content=text("x"), usage=Usage(input_tokens=5, cached_tokens=4, requests=1), id="r1"),
    ),
    "usage null": ([{**delta("stop", content="x"), "usage": None}], ModelResponse(content=text("x"), id="r1")),
    "no reason, but the end": ([delta(content="x")], ModelResponse(content=text("x"), id="r1")),
    "an unknown reason": ([delta("eos", content="x")], ModelResponse(content=text("x"), id="r1")),
    "length": ([delta("length", content="x")], ModelResponse(content=text("x"), stop_reason="length", id="r1")),
    "filter": ([delta("content_filter")], ModelResponse(content=(), stop_reason="refused", id="r1")),
    "a reason that is not so": ([delta("tool_calls", content="x")], ModelResponse(content=text("x"), id="r1")),
    "refusal": (
        [delta(refusal="I can"), delta("stop", refusal="not.")],
        ModelResponse(content=text("I cannot."), stop_reason="refused", id="r1"),
    ),
    "content in parts": (
        [delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), delta("stop")],
        ModelResponse(content=text("ab"), id="r1"),
    ),
    "thinking in parts": (
        [
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
            delta("stop", content=[{"type": "text", "text": "a"}]),
        ],
        ModelResponse(content=(ThinkingBlock(thinking="Hm"), TextBlock(text="a")), id="r1"),
    ),
    "thinking under another name": (
        [delta(reasoning="Hm"), delta("stop", content="a")],
        ModelResponse(content=(ThinkingBlock(thinking="Hm"), TextBlock(text="a")), id="r1"),
    ),
    "other choices": (
        [delta(content="x"), delta(index=1, content="y"), delta("stop"), delta("length", index=1)],
        ModelResponse(content=text("x"), id="r1"),
    ),
    "nulls": (
        [
            {"id": None, "choices": [{"index": 0, "delta": None, "finish_reason": None}]},
            {"choices": None},
            delta(content=None, tool_calls=None, reasoning_content=None),
            delta("stop", content="x"),
        ],
        ModelResponse(content=text("x"), id="r1"),
    ),
    "a message instead of a delta": (
        [{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}],
        ModelResponse(content=text("x")),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_streams_are_understood(name: str) -> None:
    chunks, expected = ODD[name]
    assert response(chunks) == expected


def test_a_reason_without_the_end_is_enough() -> None:
    assert response([delta("stop", content="x")], done=False).content == text("x")


def test_details_of_reasoning_are_kept_and_sent_back() -> None:
    one, two = {"type": "reasoning.text", "text": "Hm", "index": 0}, {"type": "reasoning.encrypted", "data": "x"}
    got = response(
        [delta(reasoning="Hm", reasoning_details=[one]), delta(reasoning_details=[two]), delta("stop", content="a")]
    )
    assert got.content[0] == ThinkingBlock(thinking="Hm", extra={"reasoning_details": [one, two]})
    again = sent(Msg.assistant(got.content), dialect=SERVICES["openrouter"].dialect)
    assert again == [{"role": "assistant", "content": "a", "reasoning_details": [one, two]}]


ERRORS: list[tuple[list[Any], type[ModelError]]] = [
    ([delta(content="Hal")], MalformedResponseError),
    ([delta(content="Hal"), {"error": {"code": 429, "message": "Slow down"}}], RateLimitError),
    ([delta(content="Hal"), {"error": {"type": "server_error", "message": "x"}}], ServerError),
    ([delta(content="Hal"), {"choices": [{"error": {"code": 502, "message": "x"}, "delta": {}}]}], ServerError),
    ([delta(content="Hal"), delta("error")], ServerError),
    ([delta(content="Hal"), delta("insufficient_system_resource")], OverloadedError),
]


@pytest.mark.parametrize(("chunks", "error"), ERRORS)
def test_a_broken_stream_is_an_error(chunks: list[Any], error: type[ModelError]) -> None:
    with pytest.raises(error):
        read(chunks, done=False)


def test_a_stream_without_any_choice_is_an_error() -> None:
    with pytest.raises(MalformedResponseError, match="no choice"):
        read([{"id": "r1", "choices": [], "usage": USAGE}])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({}, MalformedResponseError),
        ({"choices": []}, MalformedResponseError),
        ({"choices": [{"message": None}]}, MalformedResponseError),
        ({"choices": "x"}, MalformedResponseError),
        ({"error": {"code": 429, "message": "Slow down"}}, RateLimitError),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "error"}]}, ServerError),
        ({"choices": [{"message": {"content": ""}, "error": {"code": 503, "message": "x"}}]}, OverloadedError),
    ],
)
def test_a_broken_answer_is_an_error(data: dict[str, Any], error: type[ModelError]) -> None:
    with pytest.raises(error):
        OpenAIFormatter().response(data)


def test_the_first_choice_is_found_wherever_it_is() -> None:
    choices = [
        {"index": 1, "message": {"content": "b"}, "finish_reason": "stop"},
        {"index": 0, "message": {"content": "a", "refusal": None}, "finish_reason": "stop"},
    ]
    assert OpenAIFormatter().response({"choices": choices}).content == text("a")
