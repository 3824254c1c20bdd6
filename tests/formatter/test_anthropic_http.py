"""Anthropic's Messages over HTTP: the model, an agent, and the official SDK against one small server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import TypeAdapter

from treadle import Msg, ReActAgent, Toolkit
from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContextWindowError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelPermissionError,
    OverloadedError,
    RateLimitError,
    ServerError,
)
from treadle.message import (
    Base64Source,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from treadle.model import ModelRequest, ModelResponse, TextDelta, ToolChoice, ToolSpec
from treadle.model._anthropic import AnthropicModel
from treadle.model._http import close_clients
from treadle.model._retry import Retries

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass
class Server:
    """Gives its answers in turn, and keeps what it was asked."""

    answers: list[tuple[int, str, bytes]]
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(answers=[])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            state.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            state.headers.append({name.lower(): value for name, value in self.headers.items()} | {":path": self.path})
            status, kind, body = state.answers.pop(0)
            self.send_response(status)
            for name, value in (("content-type", kind), ("content-length", str(len(body))), ("connection", "close")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture(autouse=True)
async def closed_clients() -> AsyncIterator[None]:
    yield
    await close_clients()


def model_at(server: Server, name: str = "claude-haiku-4-5", **settings: Any) -> AnthropicModel:
    given: dict[str, Any] = {
        "auth": "sk-ant-secret-0123456789",
        "base_url": server.url,
        "retries": Retries(attempts=1),
        **settings,
    }
    return AnthropicModel(name, **given)


def message(*content: Mapping[str, Any], stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    counts = {"input_tokens": 3, "output_tokens": 2, **usage}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5"}
    return {**head, "content": list(content), "stop_reason": stop, "stop_sequence": None, "usage": counts}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def whole(data: Mapping[str, Any]) -> tuple[int, str, bytes]:
    return 200, JSON, json.dumps(data).encode()


def streamed(data: Mapping[str, Any], *, end: bool = True) -> tuple[int, str, bytes]:
    """The same message as a stream, its texts in pieces."""
    empty: dict[str, Any] = {**data, "content": [], "stop_reason": None, "usage": {**data["usage"], "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}, {"type": "ping"}]
    for index, block in enumerate(data["content"]):
        events += _block(index, block)
    usage = {"output_tokens": data["usage"]["output_tokens"]}
    delta = {"stop_reason": data["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": usage})
    if end:
        events.append({"type": "message_stop"})
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return 200, EVENTS, "".join(lines).encode()


def _block(index: int, block: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = {"text": ("text", "text_delta", "text"), "thinking": ("thinking", "thinking_delta", "thinking")}
    fields["tool_use"] = ("input", "input_json_delta", "partial_json")
    if block["type"] not in fields:
        return [{"type": "content_block_start", "index": index, "content_block": block}]
    key, kind, name = fields[block["type"]]
    value = block[key] if isinstance(block[key], str) else json.dumps(block[key]) if block[key] else ""
    pieces = [{"type": kind, name: value[place : place + 3]} for place in range(0, len(value), 3)]
    blank: dict[str, Any] = {**block, key: {} if key == "input" else ""}
    if "signature" in block:
        blank["signature"] = ""
        pieces.append({"type": "signature_delta", "signature": block["signature"]})
    deltas = [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
    begin = {"type": "content_block_start", "index": index, "content_block": blank}
    return [begin, *deltas, {"type": "content_block_stop", "index": index}]


THOUGHT = {"type": "thinking", "thinking": "Add them.", "signature": "sig=="}
HIDDEN = {"type": "redacted_thinking", "data": "enc=="}
HELLO = ModelRequest(messages=[Msg.user("Hi")])
ADD = ToolSpec(
    name="add",
    description="Add.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)


# The model


@pytest.mark.parametrize("stream", [True, False])
async def test_one_request(server: Server, stream: bool) -> None:
    data = message(words("Hello!"))
    server.answers = [streamed(data) if stream else whole(data)]
    items = [item async for item in model_at(server, stream=stream, base_url=f"{server.url}/v1/").stream(HELLO)]
    assert [item for item in items if not isinstance(item, ModelResponse)] == (
        [TextDelta("Hel"), TextDelta("lo!")] if stream else []
    )
    response = items[-1]
    assert isinstance(response, ModelResponse)
    assert response.content == (TextBlock(text="Hello!"),)
    sent = server.headers[0]
    assert sent[":path"] == "/v1/messages"
    assert sent["x-api-key"] == "sk-ant-secret-0123456789"
    assert sent["anthropic-version"] == "2023-06-01"
    assert "authorization" not in sent
    assert server.asked[0] == {
        "model": "claude-haiku-4-5",
        "max_tokens": 16_384,
        "messages": [{"role": "user", "content": [{**words("Hi"), "cache_control": {"type": "ephemeral"}}]}],
        **({"stream": True} if stream else {}),
    }


async def test_settings_of_the_model(server: Server) -> None:
    async def fresh() -> str:
        return "token-1"

    model = model_at(server, auth=fresh, bearer=True, version="2026-10-21", max_tokens=9, cache=False, stream=False)
    server.answers = [whole(message(words("Hello!")))]
    await model.generate(HELLO)
    sent = server.headers[0]
    assert (sent["authorization"], sent["anthropic-version"]) == ("Bearer token-1", "2026-10-21")
    assert "x-api-key" not in sent
    assert server.asked[0]["max_tokens"] == 9
    assert server.asked[0]["messages"] == [{"role": "user", "content": [words("Hi")]}]


async def test_the_key_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="ANTHROPIC_API_KEY"):
        await model_at(server, auth=None).generate(HELLO)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-env")
    server.answers = [streamed(message(words("Hello!")))]
    await model_at(server, auth=None).generate(HELLO)
    assert server.headers[0]["x-api-key"] == "sk-ant-env"


def refused(status: int, kind: str, text: str = "No.") -> tuple[int, str, bytes]:
    return status, JSON, json.dumps({"type": "error", "error": {"type": kind, "message": text}}).encode()


ERRORS: list[tuple[tuple[int, str, bytes], type[ModelError]]] = [
    (refused(400, "invalid_request_error"), BadRequestError),
    (refused(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ContextWindowError),
    (refused(401, "authentication_error"), AuthenticationError),
    (refused(403, "permission_error"), ModelPermissionError),
    (refused(404, "not_found_error"), ModelNotFoundError),
    (refused(413, "request_too_large"), ContextWindowError),
    (refused(429, "rate_limit_error"), RateLimitError),
    (refused(500, "api_error"), ServerError),
    (refused(529, "overloaded_error"), OverloadedError),
]


@pytest.mark.parametrize(("answer", "error"), ERRORS)
async def test_errors(server: Server, answer: tuple[int, str, bytes], error: type[ModelError]) -> None:
    server.answers = [answer]
    with pytest.raises(error) as caught:
        await model_at(server).generate(HELLO)
    assert type(caught.value) is error
    assert caught.value.status == answer[0]


async def test_an_error_in_the_middle_keeps_what_was_said(server: Server) -> None:
    status, kind, body = streamed(message(words("Hello!")), end=False)
    broken = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Busy"}}\n\n'
    server.answers = [(status, kind, body + broken), (status, kind, body)]
    with pytest.raises(OverloadedError, match="Busy") as caught:
        await model_at(server).generate(HELLO)
    assert caught.value.partial == "Hello!"
    with pytest.raises(MalformedResponseError) as ended:
        await model_at(server).generate(HELLO)
    assert ended.value.partial == "Hello!"


async def test_an_overloaded_start_is_tried_again(server: Server) -> None:
    server.answers = [refused(529, "overloaded_error"), streamed(message(words("Hello!")))]
    response = await model_at(server, retries=Retries(attempts=2, first=0)).generate(HELLO)
    assert response.content == (TextBlock(text="Hello!"),)


async def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    model = AnthropicModel("claude-x", auth="k", base_url=f"http://127.0.0.1:{port}", retries=Retries(attempts=1))
    with pytest.raises(ModelConnectionError):
        await model.generate(HELLO)


# An agent


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_thinks_and_acts(server: Server, stream: bool) -> None:
    toolkit = Toolkit()

    @toolkit.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    first = message(
        THOUGHT, HIDDEN, words("I add."), call("t1", "add", a=1, b=2), call("t2", "add", a=3, b=4), stop="tool_use"
    )
    second = message(THOUGHT, call("t1", "add", a=3, b=7), stop="tool_use")
    last = message(words("It is 10."), cache_read_input_tokens=50)
    server.answers = [(streamed if stream else whole)(data) for data in (first, second, last)]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    agent = ReActAgent(
        name="Friday",
        system_prompt="You add.",
        model=model_at(server, stream=stream),
        toolkit=toolkit,
        options=thinking,
    )
    reply = await agent.call("What is 1 + 2 + 3 + 4?")
    assert reply.text == "It is 10."
    assert reply.usage.cached_tokens == 50
    turns = server.asked[2]["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert turns[1]["content"][:3] == [THOUGHT, HIDDEN, words("I add.")]
    assert turns[3]["content"][0] == THOUGHT
    for said, told in ((turns[1], turns[2]), (turns[3], turns[4])):
        ids = [part["id"] for part in said["content"] if part["type"] == "tool_use"]
        assert [part["tool_use_id"] for part in told["content"]] == ids
        assert not any(id.startswith("t") for id in ids)
    assert [part["content"] for part in turns[2]["content"]] == ["3", "7"]
    assert server.asked[1]["messages"][1] == turns[1]
    assert server.asked[2]["max_tokens"] == 16_384 + 1024


# The official SDK as the judge


def picture() -> ImageBlock:
    return ImageBlock(source=Base64Source(data="iVBORw0=", media_type="image/png"))


def long_request() -> ModelRequest:
    pdf = FileBlock(source=URLSource(url="https://example.com/a.pdf"), name="a.pdf")
    text = FileBlock(source=Base64Source(data="aGk=", media_type="text/plain"))
    said = (
        ThinkingBlock(thinking="hm", extra={"signature": "sig=="}),
        ThinkingBlock(thinking="", extra={"redacted_thinking": "enc=="}),
        TextBlock(text="I add."),
        ToolUseBlock(id="call_1", name="add", input={"a": 1}),
        ToolUseBlock(id="call 2", name="add", input={}),
    )
    results = (
        ToolResultBlock(id="call_1", name="add", output=(TextBlock(text="see"), picture())),
        ToolResultBlock(id="call 2", name="add", output="", status="error"),
    )
    history = [Msg.system("Be kind."), Msg.user([TextBlock(text="Hi"), picture(), pdf, text])]
    history += [Msg.assistant(said), *(Msg.tool(result) for result in results), Msg.user("Go on.")]
    return ModelRequest(messages=history, tools=[ADD], tool_choice=ToolChoice())


ANSWERS = [
    message(words("Hello, 你好 🎉!"), cache_creation_input_tokens=5, cache_read_input_tokens=7),
    message(THOUGHT, HIDDEN, words('A "q" \\ é'), call("t1", "add", a=1, deep={"x": [1, None]}), stop="tool_use"),
    message(call("t1", "add"), call("t2", "add", a=2), stop="tool_use"),
    message(words("cut"), stop="max_tokens"),
    message(stop="refusal"),
]


def as_theirs(response: ModelResponse) -> list[dict[str, Any]]:
    """Our blocks in the provider's words."""
    out: list[dict[str, Any]] = []
    for block in response.content:
        match block:
            case TextBlock():
                out.append(words(block.text))
            case ThinkingBlock() if block.extra and "signature" in block.extra:
                out.append({"type": "thinking", "thinking": block.thinking, "signature": block.extra["signature"]})
            case ThinkingBlock():
                out.append({"type": "redacted_thinking", "data": (block.extra or {})["redacted_thinking"]})
            case ToolUseBlock():
                out.append(call((block.extra or {})["id"], block.name, **block.input))
            case _:
                raise AssertionError(block)
    return out


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("data", ANSWERS)
async def test_the_sdk_sends_and_reads_the_same(server: Server, data: dict[str, Any], stream: bool) -> None:
    anthropic = pytest.importorskip("anthropic")
    answer = streamed(data) if stream else whole(data)
    server.answers = [answer, answer]
    request = long_request()
    ours = await model_at(server, stream=stream).generate(request)
    body = {key: value for key, value in server.asked[0].items() if key != "stream"}
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=0) as client:
        if stream:
            async with client.messages.stream(**body) as reading:
                theirs = await reading.get_final_message()
        else:
            theirs = await client.messages.create(**body)
    assert server.asked[1] == server.asked[0]
    assert as_theirs(ours) == [block.to_dict() for block in theirs.content]
    assert ours.id == theirs.id
    counted = theirs.usage
    read = counted.cache_read_input_tokens or 0
    assert ours.usage.input_tokens == counted.input_tokens + read + (counted.cache_creation_input_tokens or 0)
    assert (ours.usage.cached_tokens, ours.usage.output_tokens) == (read, counted.output_tokens)


async def test_the_sdk_takes_our_blocks_for_its_own(server: Server) -> None:
    """Every block fits the type that the SDK has for requests."""
    types = pytest.importorskip("anthropic.types")

    def fits(kind: Any, value: Any) -> None:
        assert TypeAdapter[Any](kind).validate_python(value, strict=False)

    server.answers = [whole(ANSWERS[0])]
    await model_at(server, stream=False).generate(long_request())
    body = server.asked[0]
    for block in (part for turn in body["messages"] for part in turn["content"]):
        fits(types.ContentBlockParam, block)
    for block in body["system"]:
        fits(types.TextBlockParam, block)
    for tool in body["tools"]:
        fits(types.ToolParam, tool)


@pytest.mark.parametrize(("answer", "error"), ERRORS)
async def test_the_sdk_fails_where_we_fail(
    server: Server, answer: tuple[int, str, bytes], error: type[ModelError]
) -> None:
    anthropic = pytest.importorskip("anthropic")
    server.answers = [answer, answer]
    with pytest.raises(error) as ours:
        await model_at(server).generate(HELLO)
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=0) as client:
        with pytest.raises(anthropic.APIStatusError) as theirs:
            await client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    assert ours.value.status == theirs.value.status_code
