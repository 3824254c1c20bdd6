"""DashScope's native format: answers, streams however cut, errors, and the official client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from formatter.native_server import Answer, events_of, normal, serving
from treadle import Msg, ReActAgent
from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextWindowError,
    MalformedResponseError,
    ModelError,
    ModelNotFoundError,
    ModelPermissionError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
    ServerError,
)
from treadle.formatter._dashscope import DashScopeFormatter
from treadle.message import (
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from treadle.model import (
    Delta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from treadle.model._dashscope import DashScopeModel
from treadle.model._http import close_clients
from treadle.model._retry import Retries
from treadle.model._sse import ServerEvent, SSEParser

ECHO = ModelProfile(echoes_thinking=True)
ADD = ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object", "properties": {}})
ONCE = Retries(attempts=1)


@pytest.fixture(autouse=True)
async def no_connections_left() -> AsyncIterator[None]:
    yield
    await close_clients()


# Answers


def chunk(said: dict[str, Any], finish: str | None = "null", **fields: Any) -> dict[str, Any]:
    choice = {"finish_reason": finish, "message": {"role": "assistant", "content": "", **said}}
    usage = {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}
    return {"output": {"choices": [choice]}, "usage": usage, "request_id": "r-1", **fields}


def piece(index: int | None, arguments: str, id: str = "", name: str = "") -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {**place, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def sse(*chunks: dict[str, Any], event: str = "result") -> bytes:
    return "".join(
        f"id:{number}\nevent:{event}\n:HTTP_STATUS/200\ndata:{json.dumps(data, ensure_ascii=False)}\n\n"
        for number, data in enumerate(chunks, 1)
    ).encode()


LAST_USAGE = {
    "input_tokens": 20,
    "output_tokens": 30,
    "total_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 7},
    "output_tokens_details": {"reasoning_tokens": 5},
}
CHUNKS = [
    chunk({"reasoning_content": "Erst "}),
    chunk({"reasoning_content": "denken 🤔"}),
    chunk({"content": "Ich "}),
    chunk({"content": 'rechne "你好".\n', "reasoning_content": ""}),
    chunk({"tool_calls": [piece(0, "", "call_1", "add")]}),
    chunk({"tool_calls": [piece(0, '{"a": 1, "b": "\\u00')]}),
    chunk({"tool_calls": [piece(1, '{"c"', "call_2", "sub"), piece(0, 'e9"}')]}),
    chunk({"tool_calls": [piece(1, ": []}")]}),
    chunk({"content": ""}, "tool_calls", usage=LAST_USAGE),
]
STREAM = b":keep-alive\n\n" + sse(*CHUNKS)
WHOLE = chunk(
    {
        "reasoning_content": "Erst denken 🤔",
        "content": 'Ich rechne "你好".\n',
        "tool_calls": [
            {**piece(None, '{"a": 1, "b": "é"}', "call_1", "add")},
            {**piece(None, '{"c": []}', "call_2", "sub")},
        ],
    },
    "tool_calls",
    usage=LAST_USAGE,
    code="",
    message="",
)
RESPONSE = ModelResponse(
    content=(
        ThinkingBlock(thinking="Erst denken 🤔"),
        TextBlock(text='Ich rechne "你好".\n'),
        ToolUseBlock(id="", name="add", input={"a": 1, "b": "é"}, extra={"id": "call_1"}),
        ToolUseBlock(id="", name="sub", input={"c": []}, extra={"id": "call_2"}),
    ),
    stop_reason="tool_use",
    usage=Usage(input_tokens=20, output_tokens=30, cached_tokens=7, reasoning_tokens=5, requests=1),
    id="r-1",
)


def read(*chunks: bytes) -> ModelResponse:
    reader = DashScopeFormatter().reader()
    for event in events_of(SSEParser(), chunks):
        list(reader.feed(event))
    return reader.finish()


def deltas(*chunks: dict[str, Any]) -> list[Delta]:
    reader = DashScopeFormatter().reader()
    return [delta for data in chunks for delta in reader.feed(ServerEvent(json.dumps(data), "result"))]


def test_streamed_or_whole_it_is_the_same_response() -> None:
    assert read(STREAM) == RESPONSE
    assert DashScopeFormatter().response(WHOLE) == RESPONSE


def test_the_stream_can_be_cut_at_every_byte() -> None:
    for place in range(1, len(STREAM)):
        assert read(STREAM[:place], STREAM[place:]) == RESPONSE
    assert read(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == RESPONSE


def test_deltas() -> None:
    assert deltas(*CHUNKS) == [
        ThinkingDelta("Erst "),
        ThinkingDelta("denken 🤔"),
        TextDelta("Ich ", 1),
        TextDelta('rechne "你好".\n', 1),
        ToolCallDelta("", 2, "call_1", "add"),
        ToolCallDelta('{"a": 1, "b": "\\u00', 2, "call_1"),
        ToolCallDelta('{"c"', 3, "call_2", "sub"),
        ToolCallDelta('e9"}', 2, "call_1"),
        ToolCallDelta(": []}", 3, "call_2"),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [("", []), ([], []), (None, []), ("a", [TextDelta("a")]), ([{"text": "a"}, {"text": "b"}], [TextDelta("ab")])],
)
def test_content_has_several_forms(content: Any, expected: list[Delta]) -> None:
    assert deltas(chunk({"content": content})) == expected


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # by id where there is no index, whatever comes between
        ([piece(None, "{", "x", "f"), piece(None, "{", "y", "g"), piece(None, "}", "x"), piece(None, "}", "y")], "f g"),
        # neither: a name begins a call, the rest belongs to the one before
        ([piece(None, "{", "", "f"), piece(None, "}"), piece(None, "{}", "", "f")], "f f"),
        # an id that changes on the way does not make a second call
        ([piece(0, "{", "x", "f"), piece(0, "}", "other")], "f"),
        # the name alone, and no arguments at all
        ([piece(0, "", "x", "f")], "f"),
    ],
)
def test_pieces_of_calls_find_together(pieces: list[dict[str, Any]], calls: str) -> None:
    stream = [chunk({"tool_calls": [one]}) for one in pieces]
    response = read(sse(*stream, chunk({}, "tool_calls")))
    assert [block.name for block in response.content if isinstance(block, ToolUseBlock)] == calls.split()
    assert all(isinstance(block, ToolUseBlock) and block.raw is None for block in response.content)


def test_whole_calls_without_ids_or_with_the_same_one_stay_apart() -> None:
    for id in ("", "same"):
        calls = [piece(None, "{}", id, "f"), piece(None, "{}", id, "f")]
        assert len(DashScopeFormatter().response(chunk({"tool_calls": calls}, "tool_calls")).content) == 2


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "nonsense"])
def test_arguments_that_are_no_object_are_kept(arguments: str) -> None:
    expected = (ToolUseBlock(id="", name="f", input={}, raw=arguments, extra={"id": "x"}),)
    assert read(sse(chunk({"tool_calls": [piece(0, arguments, "x", "f")]}, "tool_calls"))).content == expected
    data = chunk({"tool_calls": [piece(None, arguments, "x", "f")]}, "tool_calls")
    assert DashScopeFormatter().response(data).content == expected


@pytest.mark.parametrize(("reason", "expected"), [("stop", "stop"), ("length", "length"), ("other", "stop")])
def test_reasons_to_stop(reason: str, expected: str) -> None:
    data = chunk({"content": "Hi"}, reason)
    assert read(sse(data)).stop_reason == DashScopeFormatter().response(data).stop_reason == expected


@pytest.mark.parametrize("finish", ["null", "", None])
def test_a_stream_without_its_end_is_an_error(finish: str | None) -> None:
    with pytest.raises(MalformedResponseError) as caught:
        read(sse(chunk({"content": "Hal"}, finish)))
    assert caught.value.partial == "Hal"


@pytest.mark.parametrize("data", [{}, {"output": None}, {"output": {"choices": []}}, {"output": {"text": "x"}}])
def test_an_answer_without_a_choice_is_an_error(data: dict[str, Any]) -> None:
    with pytest.raises(MalformedResponseError, match="no choice"):
        DashScopeFormatter().response(data)


@pytest.mark.parametrize("data", ["{", "[]", "nothing"])
def test_an_event_that_is_no_object_is_an_error(data: str) -> None:
    with pytest.raises(MalformedResponseError):
        read(f"event:result\ndata:{data}\n\n".encode())


# Errors


@dataclass(frozen=True)
class Failure:
    status: int
    code: str
    kind: type[ModelError]
    message: str = "It failed."


FAILURES = [
    Failure(400, "InvalidParameter", BadRequestError),
    Failure(400, "InvalidParameter", BadRequestError, "url error, please check url!"),
    Failure(400, "InvalidParameter", ContextWindowError, "Range of input length should be [1, 30720]"),
    Failure(400, "InvalidParameter.DataInspection", BadRequestError),
    Failure(400, "BadRequest.EmptyInput", BadRequestError),
    Failure(400, "InvalidURL", BadRequestError),
    Failure(400, "UnsupportedOperation", BadRequestError),
    Failure(400, "DataInspectionFailed", ContentRefusedError),
    Failure(400, "data_inspection_failed", ContentRefusedError),
    Failure(400, "InternalError.Algo.DataInspectionFailed", ContentRefusedError),
    Failure(400, "Arrearage", ModelPermissionError),
    Failure(401, "InvalidApiKey", AuthenticationError),
    Failure(403, "AccessDenied", ModelPermissionError),
    Failure(403, "AccessDenied.Unpurchased", ModelPermissionError),
    Failure(404, "ModelNotFound", ModelNotFoundError),
    Failure(408, "RequestTimeOut", ModelTimeoutError),
    Failure(429, "Throttling", RateLimitError),
    Failure(429, "Throttling.RateQuota", RateLimitError),
    Failure(429, "Throttling.AllocationQuota", RateLimitError),
    Failure(500, "InternalError", ServerError),
    Failure(500, "InternalError.Algo", ServerError),
    Failure(500, "InternalError.Timeout", ModelTimeoutError),
    Failure(503, "ModelUnavailable", OverloadedError),
]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: f"{case.code}-{case.message[:9]}")
async def test_errors_by_their_meaning(case: Failure) -> None:
    data = {"code": case.code, "message": case.message, "request_id": "r-9"}
    whole = Answer(body=json.dumps(data).encode(), status=case.status)
    inside = Answer(body=sse(chunk({"content": "Hal"})) + sse(data, event="error"), type="text/event-stream")
    for answer, partial in ((whole, ""), (replace(whole, status=200), ""), (inside, "Hal")):
        with serving(answer) as server, pytest.raises(case.kind) as caught:
            await ask(server.url, retries=ONCE)
        assert type(caught.value) is case.kind
        assert case.message in str(caught.value)
        assert "sk-secret" not in str(caught.value)
        assert caught.value.partial == partial


def test_an_error_event_needs_no_code() -> None:
    with pytest.raises(ServerError, match="Broken"):
        read(sse({"message": "Broken."}, event="error"))


async def test_throttling_is_tried_again() -> None:
    data = {"code": "Throttling", "message": "Slow down.", "request_id": "r-9"}
    busy = Answer(body=json.dumps(data).encode(), status=429, headers={"retry-after": "0"})
    early = Answer(body=sse(data, event="error"), type="text/event-stream")
    good = Answer(body=STREAM, type="text/event-stream;charset=UTF-8")
    with serving(busy, early, good) as server:
        assert await ask(server.url, retries=Retries(first=0.0)) == RESPONSE
    assert len(server.asked) == 3


async def test_a_stream_that_breaks_off_is_an_error() -> None:
    broken = Answer(body=STREAM[: STREAM.index(b'"tool_calls"')], type="text/event-stream")
    with serving(broken) as server, pytest.raises(MalformedResponseError) as caught:
        await ask(server.url, retries=ONCE)
    assert caught.value.partial.startswith("Ich rechne")


async def test_a_missing_key_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DASHSCOPE_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="DASHSCOPE_API_KEY"):
        await DashScopeModel("qwen-plus").generate(ModelRequest(messages=[Msg.user("Hi")]))


# Over HTTP


def call(id: str = "c1", name: str = "add", **input: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input=input)


def wire(id: str = "c1", name: str = "add", arguments: str = '{"a":1}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(output: Any = "3", id: str = "c1", name: str = "add") -> ToolResultBlock:
    return ToolResultBlock(id=id, name=name, output=output)


HISTORY = [
    Msg.system("You calculate."),
    Msg.user("What is 17 + 25?"),
    Msg.assistant([ThinkingBlock(thinking="Add."), call("c1", a=17, b=25)]),
    Msg.tool(result("42")),
    Msg.assistant([ThinkingBlock(thinking="Once more."), TextBlock(text="And:"), call("c2", a=42, b=8)]),
    Msg.tool(result("50", "c2")),
]
SENT = [
    {"role": "system", "content": "You calculate."},
    {"role": "user", "content": "What is 17 + 25?"},
    {"role": "assistant", "content": "", "tool_calls": [wire(arguments='{"a":17,"b":25}')]},
    {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "42"},
    {"role": "assistant", "content": "And:", "tool_calls": [wire("c2", arguments='{"a":42,"b":8}')]},
    {"role": "tool", "tool_call_id": "c2", "name": "add", "content": "50"},
]


async def ask(url: str, name: str = "qwen-plus", **options: Any) -> ModelResponse:
    model = DashScopeModel(name, auth="sk-secret", base_url=url, **options)
    return await model.generate(ModelRequest(messages=HISTORY, tools=[ADD], options={"enable_thinking": True}))


@pytest.mark.parametrize("stream", [True, False])
async def test_an_exchange(stream: bool) -> None:
    body = STREAM if stream else json.dumps(WHOLE).encode()
    answer = Answer(body=body, type="text/event-stream" if stream else "application/json", pieces=7)
    with serving(answer) as server:
        assert await ask(server.url, stream=stream) == RESPONSE
    asked = server.asked[0]
    assert asked.path == "/services/aigc/text-generation/generation"
    assert asked.headers["authorization"] == "Bearer sk-secret"
    assert asked.headers.get("x-dashscope-sse") == ("enable" if stream else None)
    assert asked.body["input"]["messages"] == SENT


def test_a_conversation_with_thinking_goes_back_as_it_came() -> None:
    request = ModelRequest(messages=HISTORY)
    body = DashScopeFormatter().body(request, model="m", profile=ECHO, stream=True)
    thoughts = [message.get("reasoning_content") for message in body["input"]["messages"]]
    assert thoughts == [None, None, "Add.", None, "Once more.", None]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["qwen-plus", "qwen3.5-plus"])
async def test_an_agent_with_a_tool(name: str, stream: bool) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def said(text: str) -> Any:
        return [{"text": text}] if name == "qwen3.5-plus" else text

    calls = chunk({"tool_calls": [piece(0, '{"a": 17, "b": 25}', "x", "add")]}, "tool_calls")
    answers = [calls, chunk({"content": said("It is 42.")}, "stop")]
    kind = "text/event-stream" if stream else "application/json"
    bodies = [sse(data) if stream else json.dumps(data).encode() for data in answers]
    with serving(*(Answer(body=body, type=kind) for body in bodies)) as server:
        model = DashScopeModel(name, auth="k", base_url=server.url, stream=stream)
        reply = await ReActAgent(name="A", model=model, toolkit=[add]).call("What is 17 + 25?")
    assert (reply.text, reply.usage.input_tokens) == ("It is 42.", 22)
    *_, asked, answered = server.asked[1].body["input"]["messages"]
    assert asked["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":17,"b":25}'}
    assert answered == {
        "role": "tool",
        "tool_call_id": asked["tool_calls"][0]["id"],
        "name": "add",
        "content": "42",
    }


# The official client


def official(url: str) -> Any:
    client: Any = pytest.importorskip("dashscope").Client
    return client(api_key="sk-secret", base_url=url, protocol="native", max_retries=0)


def told(completion: Any) -> Any:
    message = completion.choices[0].message
    calls = [(one.function.name, json.loads(one.function.arguments)) for one in message.tool_calls or ()]
    return {
        "thinking": message.reasoning_content or "",
        "text": message.content or "",
        "calls": calls,
        "input": completion.usage.input_tokens,
        "output": completion.usage.output_tokens,
    }


@pytest.mark.parametrize("stream", [True, False])
async def test_the_official_client_sends_and_reads_the_same(stream: bool) -> None:
    kind = "text/event-stream" if stream else "application/json"
    answer = Answer(body=STREAM if stream else json.dumps(WHOLE).encode(), type=kind)
    with serving(answer, answer) as server:
        tools = [{"type": "function", "function": asdict(ADD)}]
        with official(server.url) as client:
            got = client.chat.completions.create(
                model="qwen-plus", messages=SENT, tools=tools, enable_thinking=True, stream=stream
            )
            theirs = told(got.get_final_message() if stream else got)
        ours = normal(await ask(server.url, stream=stream))
    assert ours == theirs
    first, second = server.asked
    assert first.path == second.path
    assert first.body == second.body
    shared = ("authorization", "x-dashscope-sse", "content-type")
    assert [first.headers.get(name) for name in shared] == [second.headers.get(name) for name in shared]
