"""Gemini over HTTP, and its official client against the same server."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from formatter.gemini_samples import ADD, CHUNKS, PNG, USAGE, WHOLE, call, chunk
from formatter.loopback import serving, sse
from treadle import Msg, ReActAgent, Toolkit
from treadle.errors import AuthenticationError, BadRequestError, ContextWindowError, ModelError, RateLimitError
from treadle.message import ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from treadle.model import ModelRequest, ToolChoice
from treadle.model._gemini import GeminiModel
from treadle.model._http import close_clients
from treadle.model._retry import Retries
from treadle.testing import assert_valid_history


@pytest.fixture(autouse=True)
async def no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def gemini(url: str, **options: Any) -> GeminiModel:
    return GeminiModel("gemini-2.5-flash", auth="AIza-secret-key", base_url=f"{url}/v1beta", **options)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_over_http(stream: bool) -> None:
    toolkit = Toolkit()

    @toolkit.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    first = chunk(
        {"functionCall": {"id": "g1", "name": "add", "args": {"a": 17, "b": 25}}, "thoughtSignature": "c2lnMQ=="},
        finish="STOP",
        usageMetadata=USAGE,
    )
    second = chunk({"text": "It is 42."}, finish="STOP", usageMetadata=USAGE)
    answers = (sse([first]), sse([second])) if stream else (first, second)
    async with serving(*answers) as server:
        agent = ReActAgent(name="A", system_prompt="Add.", model=gemini(server.url, stream=stream), toolkit=toolkit)
        reply = await agent.call("17 + 25?")
        assert_valid_history(await agent.history())
    assert reply.text == "It is 42."
    assert reply.usage.output_tokens == 24
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    assert [asked.path for asked in server.asked] == [f"/v1beta/models/gemini-2.5-flash:{method}"] * 2
    assert server.asked[0].headers["x-goog-api-key"] == "AIza-secret-key"
    assert server.asked[1].body["contents"][1:] == [
        {"role": "model", "parts": first["candidates"][0]["content"]["parts"]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "g1", "name": "add", "response": {"output": "42"}}}],
        },
    ]


@dataclass(frozen=True)
class Refused:
    status: int
    error: dict[str, Any]
    kind: type[ModelError]


REFUSED = (
    Refused(
        400,
        {
            "status": "INVALID_ARGUMENT",
            "message": "API key not valid: AIza-secret-key",
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
        },
        AuthenticationError,
    ),
    Refused(
        400,
        {"status": "INVALID_ARGUMENT", "message": "The input token count (2) exceeds the maximum number (1)."},
        ContextWindowError,
    ),
    Refused(400, {"status": "INVALID_ARGUMENT", "message": "Invalid JSON payload."}, BadRequestError),
    Refused(
        429,
        {
            "status": "RESOURCE_EXHAUSTED",
            "message": "Quota.",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}],
        },
        RateLimitError,
    ),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.kind.__name__)
async def test_refusals_by_their_meaning(case: Refused) -> None:
    async with serving({"error": {"code": case.status, **case.error}}, status=case.status) as server:
        with pytest.raises(case.kind) as caught:
            await gemini(server.url, retries=Retries(attempts=1)).generate(ModelRequest(messages=[Msg.user("q")]))
    assert "secret" not in str(caught.value)
    assert caught.value.retry_after == (34.5 if case.status == 429 else None)


def test_addresses_and_profiles() -> None:
    tuned = GeminiModel("tunedModels/mine", auth="k")
    assert tuned.url(stream=False).endswith("/v1beta/tunedModels/mine:generateContent")
    assert GeminiModel("models/gemini-3-pro", auth="k").profile.signs_calls
    assert not GeminiModel("gemma-3-27b-it", auth="k").profile.tools


async def test_without_a_key_the_error_names_both_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="`GEMINI_API_KEY` or `GOOGLE_API_KEY`"):
        await GeminiModel("gemini-3-pro").generate(ModelRequest(messages=[Msg.user("q")]))


# The official client, against the same server


def official() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has escapes that Python warns about
        return pytest.importorskip("google.genai", exc_type=ImportError)


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def in_one_spelling(value: Any) -> Any:
    """A body with the two names that the client writes in the API's other spelling in the first one."""
    return json.loads(json.dumps(value).replace("mime_type", "mimeType").replace("_json_schema", "JsonSchema"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client, about what it uses itself
@pytest.mark.parametrize("stream", [True, False])
async def test_the_official_client_reads_the_same(stream: bool) -> None:
    genai = official()
    answers = (sse(CHUNKS), sse(CHUNKS)) if stream else (WHOLE, WHOLE)
    async with serving(*answers) as server:
        client = genai.Client(api_key="k", http_options={"base_url": server.url, "api_version": "v1beta"}).aio
        asked = {"model": "gemini-2.5-flash", "contents": "q"}
        if stream:
            theirs = [found async for found in await client.models.generate_content_stream(**asked)]
        else:
            theirs = [await client.models.generate_content(**asked)]
        await client.aclose()
        ours = await gemini(server.url, stream=stream).generate(ModelRequest(messages=[Msg.user("q")]))
    parts = [part for found in theirs for part in found.candidates[0].content.parts or ()]
    assert "".join(part.text or "" for part in parts if not part.thought) == Msg.assistant(ours.content).text
    assert "".join(part.text or "" for part in parts if part.thought) == "Let me see."
    calls: list[Any] = [
        (part.function_call.name, part.function_call.args or {}) for part in parts if part.function_call
    ]
    assert calls == [(block.name, block.input) for block in ours.content if isinstance(block, ToolUseBlock)]
    usage = theirs[-1].usage_metadata
    assert ours.usage.input_tokens == usage.prompt_token_count
    assert ours.usage.total_tokens == usage.total_token_count
    assert ours.id == theirs[-1].response_id
    assert server.asked[0].path == server.asked[1].path
    assert server.asked[0].body["contents"] == server.asked[1].body["contents"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client, about what it uses itself
async def test_the_official_client_sends_the_same() -> None:
    """The same conversation, once from Treadle's messages and once from the client's own types."""
    genai = official()
    types = genai.types
    signature = base64.b64encode(b"signed").decode()
    said = Msg.assistant([call("c1", extra={"id": "g1", "thoughtSignature": signature}, a=1)])
    messages = [Msg.system("Be brief."), Msg.user([TextBlock(text="q"), ImageBlock(source=PNG)]), said]
    messages.append(Msg.tool(ToolResultBlock(id="c1", name="add", output="2")))
    request = ModelRequest(
        messages=messages, tools=[ADD], tool_choice=ToolChoice(name="add"), options={"temperature": 0.5}
    )
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        temperature=0.5,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        tools=[
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(
                        name="add", description="Add.", parameters_json_schema=plain(ADD.parameters)
                    )
                ]
            )
        ],
        tool_config=types.ToolConfig(
            function_calling_config=types.FunctionCallingConfig(mode="ANY", allowed_function_names=["add"])
        ),
    )
    function_call = types.FunctionCall(id="g1", name="add", args={"a": 1})
    result = types.FunctionResponse(id="g1", name="add", response={"output": "2"})
    picture = types.Blob(mime_type="image/png", data=base64.b64decode("AAAA"))
    contents = [
        types.Content(role="user", parts=[types.Part(text="q"), types.Part(inline_data=picture)]),
        types.Content(role="model", parts=[types.Part(function_call=function_call, thought_signature=b"signed")]),
        types.Content(role="user", parts=[types.Part(function_response=result)]),
    ]
    async with serving(WHOLE, WHOLE) as server:
        client = genai.Client(api_key="k", http_options={"base_url": server.url, "api_version": "v1beta"}).aio
        await client.models.generate_content(model="gemini-2.5-flash", contents=contents, config=config)
        await client.aclose()
        await gemini(server.url, stream=False).generate(request)
    theirs, ours = (asked.body for asked in server.asked)
    theirs["systemInstruction"].pop("role", None)  # a role that the API ignores
    assert ours == in_one_spelling(theirs)
