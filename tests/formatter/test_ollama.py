"""Ollama's native format: messages to JSON, answers back, streams however cut, errors, and the official client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from formatter.native_server import Answer, events_of, normal, serving
from treadle import Msg, ReActAgent
from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContextWindowError,
    InputError,
    MalformedResponseError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    ServerError,
)
from treadle.formatter._ollama import OllamaFormatter
from treadle.message import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
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
from treadle.model._http import close_clients
from treadle.model._ollama import OllamaModel, host_url
from treadle.model._profiles import profile_of
from treadle.model._retry import Retries
from treadle.model._sse import JSONLinesParser, ServerEvent

TEXT = ModelProfile()
ECHO = ModelProfile(echoes_thinking=True)
SEES = ModelProfile(images=True)
PNG = Base64Source(data="aGk=", media_type="image/png")
IMAGE = ImageBlock(source=PNG)
ADD = ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object", "properties": {}})
SUB = replace(ADD, name="sub")
ONCE = Retries(attempts=1)
LINES = "application/x-ndjson"


@pytest.fixture(autouse=True)
async def no_connections_left() -> AsyncIterator[None]:
    yield
    await close_clients()


# Messages


def call(id: str = "c1", name: str = "add", **input: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input=input)


def wire(name: str = "add", **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def result(output: Any = "3", id: str = "c1", name: str = "add") -> ToolResultBlock:
    return ToolResultBlock(id=id, name=name, output=output)


@dataclass(frozen=True)
class Case:
    name: str
    msg: Msg
    wire: list[dict[str, Any]]
    profile: ModelProfile = TEXT


THOUGHT = ThinkingBlock(thinking="Hm.")
CASES = [
    Case("system", Msg.system("Be kind."), [{"role": "system", "content": "Be kind."}]),
    Case("user", Msg.user("Grüß dich 你好"), [{"role": "user", "content": "Grüß dich 你好"}]),
    Case("several texts", Msg.user([TextBlock(text="a"), TextBlock(text="b")]), [{"role": "user", "content": "a\nb"}]),
    Case("assistant", Msg.assistant("Yes."), [{"role": "assistant", "content": "Yes."}]),
    Case(
        "thinking stays here",
        Msg.assistant([THOUGHT, TextBlock(text="Yes.")]),
        [{"role": "assistant", "content": "Yes."}],
    ),
    Case(
        "thinking goes back where the profile says so",
        Msg.assistant([THOUGHT, call(a=1)]),
        [{"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [wire(a=1)]}],
        ECHO,
    ),
    Case(
        "calls have objects and no ids",
        Msg.assistant([TextBlock(text="Let me see."), call(a=1), call("c2", "sub", b=["é"])]),
        [{"role": "assistant", "content": "Let me see.", "tool_calls": [wire(a=1), wire("sub", b=["é"])]}],
    ),
    Case(
        "a call whose arguments were no JSON",
        Msg.assistant([ToolUseBlock(id="c1", name="add", input={}, raw="{a")]),
        [{"role": "assistant", "content": "", "tool_calls": [wire()]}],
    ),
    Case(
        "results",
        Msg.tool([result(), result((TextBlock(text="x"), TextBlock(text="y")), "c2", "sub")]),
        [
            {"role": "tool", "tool_name": "add", "content": "3"},
            {"role": "tool", "tool_name": "sub", "content": "x\ny"},
        ],
    ),
    Case(
        "pictures are beside the text",
        Msg.user([TextBlock(text="Compare:"), IMAGE, ImageBlock(source=replace(PNG, data="aG8="))]),
        [{"role": "user", "content": "Compare:", "images": ["aGk=", "aG8="]}],
        SEES,
    ),
    Case("a picture alone", Msg.user([IMAGE]), [{"role": "user", "content": "", "images": ["aGk="]}], SEES),
    Case(
        "a picture in a result",
        Msg.tool([result((IMAGE,)), result("4", "c2")]),
        [
            {"role": "tool", "tool_name": "add", "content": "(see the next message)"},
            {"role": "tool", "tool_name": "add", "content": "4"},
            {"role": "user", "content": "These belong to the tool results above:", "images": ["aGk="]},
        ],
        SEES,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages(case: Case) -> None:
    assert OllamaFormatter().format_message(case.msg, case.profile) == case.wire


def test_a_picture_by_path(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"hi")
    msg = Msg.user([ImageBlock(source=PathSource(path=str(path)))])
    assert OllamaFormatter().format_message(msg, SEES) == [{"role": "user", "content": "", "images": ["aGk="]}]


@pytest.mark.parametrize(
    ("block", "profile", "text"),
    [
        (IMAGE, TEXT, "does not take images"),
        (ImageBlock(source=URLSource(url="https://example.org/a.png")), SEES, "not by URL"),
        (ImageBlock(source=PathSource(path="/no/such.png")), SEES, "cannot be read"),
        (AudioBlock(source=PNG), SEES, "`audio`"),
        (VideoBlock(source=PNG), SEES, "`video`"),
        (FileBlock(source=PNG), SEES, "`file`"),
    ],
)
def test_what_the_model_cannot_take_is_said_before_sending(block: Any, profile: ModelProfile, text: str) -> None:
    for msg in (Msg.user([block]), Msg.tool(result((block,)))):
        with pytest.raises(InputError, match=text):
            OllamaFormatter().format_message(msg, profile)


# Requests


def body(*, stream: bool = False, **request: Any) -> Any:
    asked = ModelRequest(messages=[Msg.user("Hi")], **request)
    return OllamaFormatter().body(asked, model="qwen3:8b", profile=TEXT, stream=stream)


def test_a_request() -> None:
    schema = {"type": "object"}
    options = {"temperature": 0, "num_ctx": 8192, "think": "low", "format": schema, "keep_alive": "5m"}
    assert body(stream=True, tools=[ADD], options=options) == {
        "model": "qwen3:8b",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "add",
                    "description": "Add two numbers.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "think": "low",
        "format": schema,
        "keep_alive": "5m",
        "options": {"temperature": 0, "num_ctx": 8192},
    }


def test_a_plain_request_says_that_it_does_not_stream() -> None:
    assert body() == {"model": "qwen3:8b", "messages": [{"role": "user", "content": "Hi"}], "stream": False}


def test_options_may_be_given_in_their_place() -> None:
    assert body(options={"options": {"seed": 1, "top_k": 2}, "seed": 3})["options"] == {"seed": 3, "top_k": 2}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, "add sub"),
        (ToolChoice(), "add sub"),
        (ToolChoice(mode="required"), "add sub"),
        (ToolChoice(mode="required", name="sub"), "sub"),
        (ToolChoice(mode="none"), ""),
    ],
)
def test_the_choice_of_tools_is_which_ones_are_sent(choice: ToolChoice | None, names: str) -> None:
    sent = body(tools=[ADD, SUB], tool_choice=choice)
    assert [tool["function"]["name"] for tool in sent.get("tools", ())] == names.split()
    assert "tool_choice" not in sent


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("qwen3:8b", "tools thinking echoes_thinking"),
        ("gpt-oss:20b", "tools thinking echoes_thinking"),
        ("qwen3-vl:8b", "tools images thinking echoes_thinking"),
        ("gemma3:4b", "images"),
        ("llava", "images"),
        ("llama3.2-vision", "images"),
        ("llama4", "tools images"),
        ("llama2", ""),
        ("llama3.3", "tools"),
        ("my-own", "tools"),
    ],
)
def test_profiles(name: str, traits: str) -> None:
    profile = profile_of("ollama", name)
    asked = ("tools", "images", "thinking", "echoes_thinking")
    assert [trait for trait in asked if getattr(profile, trait)] == traits.split()
    assert (profile.native_json_schema, profile.forced_tool_choice) == (True, False)


# Where the server is


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", ""),
        ("  ", ""),
        ("1.2.3.4", "http://1.2.3.4:11434"),
        (":56789", "http://127.0.0.1:56789"),
        ("1.2.3.4:56789", "http://1.2.3.4:56789"),
        ("http://1.2.3.4", "http://1.2.3.4"),
        ("https://example.com", "https://example.com"),
        ("https://example.com:8443/ollama/", "https://example.com:8443/ollama"),
        ("example.com/path", "http://example.com:11434/path"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("[2001:db8::1]", "http://[2001:db8::1]:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:11434", "http://127.0.0.1:11434"),
        ("[::]:11434", "http://[::1]:11434"),
        ('"example.com"', "http://example.com:11434"),
    ],
)
def test_the_host_in_the_environment(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_url(host) == url
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert OllamaModel("qwen3").url(stream=True) == f"{url or 'http://127.0.0.1:11434'}/api/chat"
    assert OllamaModel("qwen3", base_url="http://x/").url(stream=True) == "http://x/api/chat"


def test_a_host_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "example.com:port")
    with pytest.raises(InputError, match="OLLAMA_HOST"):
        OllamaModel("qwen3")


# Answers


def line(done: str | None = None, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "", **message}
    out = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": said}
    if done is None:
        return {**out, "done": False}
    counts = {"total_duration": 5, "load_duration": 1, "prompt_eval_count": 20, "eval_count": 30}
    return {**out, "done": True, "done_reason": done, **counts}


def ndjson(*lines: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(data, ensure_ascii=False)}\n" for data in lines).encode()


CHUNKS = [
    line(thinking="Erst "),
    line(thinking="denken 🤔"),
    line(content="Ich "),
    line(content='rechne "你好".\n'),
    line(tool_calls=[{"function": {"index": 0, "name": "add", "arguments": {"a": 1, "b": "é"}}}]),
    line(tool_calls=[{"id": "x", "function": {"index": 0, "name": "sub", "arguments": {}}}]),
    line("stop"),
]
STREAM = ndjson(*CHUNKS)
WHOLE = line(
    "stop",
    thinking="Erst denken 🤔",
    content='Ich rechne "你好".\n',
    tool_calls=[
        {"function": {"name": "add", "arguments": {"a": 1, "b": "é"}}},
        {"id": "x", "function": {"name": "sub", "arguments": {}}},
    ],
)
RESPONSE = ModelResponse(
    content=(
        ThinkingBlock(thinking="Erst denken 🤔"),
        TextBlock(text='Ich rechne "你好".\n'),
        ToolUseBlock(id="", name="add", input={"a": 1, "b": "é"}),
        ToolUseBlock(id="", name="sub", input={}, extra={"id": "x"}),
    ),
    stop_reason="tool_use",
    usage=Usage(input_tokens=20, output_tokens=30, requests=1),
)


def read(*chunks: bytes) -> ModelResponse:
    reader = OllamaFormatter().reader()
    for event in events_of(JSONLinesParser(), chunks):
        list(reader.feed(event))
    return reader.finish()


def deltas(*chunks: dict[str, Any]) -> list[Delta]:
    reader = OllamaFormatter().reader()
    return [delta for data in chunks for delta in reader.feed(ServerEvent(json.dumps(data)))]


def test_streamed_or_whole_it_is_the_same_response() -> None:
    assert read(STREAM) == RESPONSE
    assert OllamaFormatter().response(WHOLE) == RESPONSE


def test_the_stream_can_be_cut_at_every_byte() -> None:
    for place in range(1, len(STREAM)):
        assert read(STREAM[:place], STREAM[place:]) == RESPONSE
    assert read(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == RESPONSE


def test_the_last_line_may_lack_its_end() -> None:
    assert read(STREAM.rstrip()) == RESPONSE


def test_deltas() -> None:
    assert deltas(*CHUNKS) == [
        ThinkingDelta("Erst "),
        ThinkingDelta("denken 🤔"),
        TextDelta("Ich ", 1),
        TextDelta('rechne "你好".\n', 1),
        ToolCallDelta('{"a":1,"b":"é"}', 2, None, "add"),
        ToolCallDelta("{}", 3, "x", "sub"),
    ]


@pytest.mark.parametrize(
    ("arguments", "block"),
    [
        ({"a": 1.5}, ToolUseBlock(id="", name="f", input={"a": 1.5})),
        (None, ToolUseBlock(id="", name="f", input={})),
        ('{"a": 1}', ToolUseBlock(id="", name="f", input={"a": 1})),
        ("{a", ToolUseBlock(id="", name="f", input={}, raw="{a")),
        ([1], ToolUseBlock(id="", name="f", input={}, raw="[1]")),
    ],
)
def test_arguments(arguments: Any, block: Block) -> None:
    data = line("stop", tool_calls=[{"function": {"name": "f", "arguments": arguments}}])
    assert read(ndjson(data)).content == OllamaFormatter().response(data).content == (block,)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("load", "stop"), ("unload", "stop"), ("other", "stop")],
)
def test_reasons_to_stop(reason: str, expected: str) -> None:
    data = line(reason, content="Hi")
    assert read(ndjson(data)).stop_reason == OllamaFormatter().response(data).stop_reason == expected


def test_a_model_that_was_only_loaded_says_nothing() -> None:
    assert read(ndjson({"model": "m", "done": True, "done_reason": "load"})).content == ()


def test_counts_may_be_missing() -> None:
    assert read(ndjson({"message": {"content": "Hi"}, "done": True})).usage == Usage(requests=1)


def test_a_stream_without_its_end_is_an_error() -> None:
    for stream in (ndjson(line(content="Hal")), b""):
        with pytest.raises(MalformedResponseError, match="end marker") as caught:
            read(stream)
        assert caught.value.partial == ("Hal" if stream else "")


@pytest.mark.parametrize("data", [{}, {"done": True}, {"message": None}, {"message": "Hi"}])
def test_an_answer_without_a_message_is_an_error(data: dict[str, Any]) -> None:
    with pytest.raises(MalformedResponseError, match="no message"):
        OllamaFormatter().response(data)


@pytest.mark.parametrize("data", [b"{\n", b"[]\n", b"nothing"])
def test_a_line_that_is_no_object_is_an_error(data: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        read(data)


# Errors


@dataclass(frozen=True)
class Failure:
    status: int
    text: str
    kind: type[ModelError]
    in_stream: type[ModelError] = ServerError


FAILURES = [
    Failure(400, "registry.ollama.ai/library/gemma3 does not support tools", BadRequestError),
    Failure(400, "the input length exceeds the context length", ContextWindowError, ContextWindowError),
    Failure(401, "unauthorized", AuthenticationError),
    Failure(404, "model 'qwen9' not found", ModelNotFoundError),
    Failure(500, "llama runner process has terminated", ServerError),
    Failure(503, "server busy, please try again", OverloadedError),
]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.text)
async def test_errors_by_their_meaning(case: Failure) -> None:
    data = {"error": case.text}
    whole = Answer(body=json.dumps(data).encode(), status=case.status)
    inside = Answer(body=ndjson(line(content="Hal"), data), type=LINES)
    for answer, kind, partial in ((whole, case.kind, ""), (inside, case.in_stream, "Hal")):
        with serving(answer) as server, pytest.raises(ModelError) as caught:
            await ask(server.url, retries=ONCE)
        assert type(caught.value) is kind
        assert case.text in str(caught.value)
        assert (caught.value.partial, caught.value.provider) == (partial, "Ollama")


async def test_a_stream_that_breaks_off_is_an_error() -> None:
    broken = Answer(body=STREAM[: STREAM.index(b"tool_calls")], type=LINES)
    with serving(broken) as server, pytest.raises(MalformedResponseError) as caught:
        await ask(server.url, retries=ONCE)
    assert caught.value.partial.startswith("Ich rechne")


async def test_an_error_before_the_first_word_is_tried_again() -> None:
    busy = Answer(body=b'{"error":"busy"}', status=503, headers={"retry-after": "0"})
    early = Answer(body=ndjson({"error": "the runner was restarted"}), type=LINES)
    with serving(busy, early, Answer(body=STREAM, type=LINES)) as server:
        assert await ask(server.url, retries=Retries(first=0.0)) == RESPONSE
    assert len(server.asked) == 3


# Over HTTP

HISTORY = [
    Msg.system("You calculate."),
    Msg.user("What is 17 + 25?"),
    Msg.assistant([ThinkingBlock(thinking="Add."), call("c1", a=17, b=25)]),
    Msg.tool(result("42")),
    Msg.assistant([ThinkingBlock(thinking="Once more."), TextBlock(text="And:"), call("c2", a=42, b=8)]),
    Msg.tool(result("50", "c2")),
]
SENT: list[dict[str, Any]] = [
    {"role": "system", "content": "You calculate."},
    {"role": "user", "content": "What is 17 + 25?"},
    {"role": "assistant", "content": "", "thinking": "Add.", "tool_calls": [wire(a=17, b=25)]},
    {"role": "tool", "tool_name": "add", "content": "42"},
    {"role": "assistant", "content": "And:", "thinking": "Once more.", "tool_calls": [wire(a=42, b=8)]},
    {"role": "tool", "tool_name": "add", "content": "50"},
]


async def ask(url: str, **options: Any) -> ModelResponse:
    model = OllamaModel("qwen3:8b", base_url=url, **options)
    request = ModelRequest(messages=HISTORY, tools=[ADD], options={"think": True, "temperature": 0.5})
    return await model.generate(request)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_exchange(stream: bool) -> None:
    answer = Answer(body=STREAM, type=LINES, pieces=7) if stream else Answer(body=json.dumps(WHOLE).encode())
    with serving(answer) as server:
        assert await ask(server.url, stream=stream) == RESPONSE
    asked = server.asked[0]
    assert (asked.path, asked.body["messages"], asked.body["stream"]) == ("/api/chat", SENT, stream)
    assert "authorization" not in asked.headers


async def test_the_last_line_may_lack_its_end_on_the_wire_too() -> None:
    with serving(Answer(body=STREAM.rstrip(), type=LINES)) as server:
        assert await ask(server.url) == RESPONSE


async def test_a_key_is_sent_where_one_is_given() -> None:
    with serving(Answer(body=STREAM, type=LINES)) as server:
        await ask(server.url, auth="sk-secret")
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_with_a_tool(stream: bool) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    calls = line("stop", thinking="Add.", tool_calls=[wire(a=17, b=25), wire(a=1, b=2)])
    bodies = [ndjson(calls), ndjson(line(content="It is "), line("stop", content="42."))]
    if not stream:
        bodies[1] = ndjson(line("stop", content="It is 42."))
    kind = LINES if stream else "application/json"
    with serving(*(Answer(body=body, type=kind) for body in bodies)) as server:
        model = OllamaModel("qwen3:8b", base_url=server.url, stream=stream)
        reply = await ReActAgent(name="A", model=model, toolkit=[add]).call("What is 17 + 25?")
    assert (reply.text, reply.usage.input_tokens) == ("It is 42.", 40)
    assert server.asked[1].body["messages"][-3:] == [
        {"role": "assistant", "content": "", "thinking": "Add.", "tool_calls": [wire(a=17, b=25), wire(a=1, b=2)]},
        {"role": "tool", "tool_name": "add", "content": "42"},
        {"role": "tool", "tool_name": "add", "content": "3"},
    ]


# The official client


def told(parts: list[Any]) -> Any:
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    return {
        "thinking": "".join(part.message.thinking or "" for part in parts),
        "text": "".join(part.message.content or "" for part in parts),
        "calls": [(function.name, dict(function.arguments)) for function in calls],
        "input": parts[-1].prompt_eval_count,
        "output": parts[-1].eval_count,
    }


def filled(value: Any) -> Any:
    """JSON without what is empty, which the official client leaves out and the server takes for the same."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: filled(item) for key, item in pairs if item not in ("", [], {})}
    return [filled(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


@pytest.mark.parametrize("stream", [True, False])
async def test_the_official_client_sends_and_reads_the_same(stream: bool) -> None:
    ollama: Any = pytest.importorskip("ollama")
    answer = Answer(body=STREAM, type=LINES) if stream else Answer(body=json.dumps(WHOLE).encode())
    tools = [{"type": "function", "function": asdict(ADD)}]
    with serving(answer, answer) as server:
        with ollama.Client(server.url) as client:
            got = client.chat(
                "qwen3:8b", messages=SENT, tools=tools, think=True, options={"temperature": 0.5}, stream=stream
            )
            theirs = told(list(got) if stream else [got])
        ours = normal(await ask(server.url, stream=stream))
    assert ours == theirs
    first, second = server.asked
    assert (first.path, filled(first.body)) == (second.path, filled(second.body))


def test_the_official_client_finds_the_same_server() -> None:
    parse: Any = pytest.importorskip("ollama._client")._parse_host
    for host in ("1.2.3.4", ":56789", "1.2.3.4:56789", "https://e.org:8/p/", "e.org/p", "[::1]", "[::1]:9/p"):
        assert host_url(host) == parse(host)
