"""OpenAI's Responses over HTTP, and the official client against the same server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from formatter.loopback import serving, sse
from formatter.responses_samples import (
    ADD,
    CALLS,
    EVENTS,
    MESSAGE,
    OUTPUT,
    REASONING,
    body,
    ended,
    event,
    numbered,
    response,
)
from treadle import Msg, ReActAgent, Toolkit
from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContextWindowError,
    ModelError,
    RateLimitError,
    ServerError,
)
from treadle.formatter._responses import OpenAIResponsesFormatter
from treadle.message import ToolUseBlock
from treadle.model import ModelRequest, ToolChoice
from treadle.model._http import close_clients
from treadle.model._responses import OpenAIResponsesModel
from treadle.model._retry import Retries
from treadle.testing import assert_valid_history


@pytest.fixture(autouse=True)
async def no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def openai_model(url: str, **options: Any) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("gpt-5-mini", auth="sk-secret-key", base_url=f"{url}/v1", **options)


def streamed(whole: dict[str, Any]) -> bytes:
    """A response as a stream that shows each item whole."""
    items = [ended(place, item) for place, item in enumerate(whole["output"])]
    return sse(numbered(*items, event("response.completed", response=whole)), named=True)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_over_http(stream: bool) -> None:
    toolkit = Toolkit()

    @toolkit.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    first = response(REASONING, {**CALLS[0], "arguments": '{"a":17,"b":25}'})
    second = response({**MESSAGE, "content": [{"type": "output_text", "text": "It is 42.", "annotations": []}]})
    answers = (streamed(first), streamed(second)) if stream else (first, second)
    async with serving(*answers) as server:
        model = openai_model(server.url, stream=stream)
        agent = ReActAgent(name="A", system_prompt="Add.", model=model, toolkit=toolkit)
        reply = await agent.call("17 + 25?")
        assert_valid_history(await agent.history())
    assert reply.text == "It is 42."
    assert reply.usage.output_tokens == 24
    assert [asked.path for asked in server.asked] == ["/v1/responses"] * 2
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret-key"
    assert server.asked[0].body.get("stream", False) is stream
    assert server.asked[1].body["input"][1:] == [
        REASONING,
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a":17,"b":25}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
    ]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (401, {"code": "invalid_api_key", "message": "Incorrect API key: sk-secret-key"}, AuthenticationError),
        (400, {"code": "context_length_exceeded", "message": "m"}, ContextWindowError),
        (400, {"type": "invalid_request_error", "message": "m"}, BadRequestError),
        (429, {"type": "requests", "message": "m"}, RateLimitError),
    ],
)
async def test_refusals_by_their_meaning(status: int, error: dict[str, Any], kind: type[ModelError]) -> None:
    async with serving({"error": error}, status=status) as server:
        with pytest.raises(kind) as caught:
            await openai_model(server.url, retries=Retries(attempts=1)).generate(ModelRequest(messages=[Msg.user("q")]))
    assert "secret" not in str(caught.value)


async def test_an_error_in_the_middle_keeps_what_had_come() -> None:
    stream = sse([*EVENTS[:13], event("error", code="server_error", message="m")], named=True)
    async with serving(stream) as server:
        with pytest.raises(ServerError) as caught:
            await openai_model(server.url).generate(ModelRequest(messages=[Msg.user("q")]))
    assert caught.value.partial == "Hé"


@pytest.mark.parametrize("name", ["gpt-5", "gpt-5.5", "o3-mini", "gpt-5.2-codex"])
def test_models_that_reason(name: str) -> None:
    assert OpenAIResponsesModel(name, auth="k").profile.thinking
    assert not OpenAIResponsesModel("gpt-5-chat-latest", auth="k").profile.thinking


# The official client, against the same server


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client, about what it uses itself
@pytest.mark.parametrize("stream", [True, False])
async def test_the_official_client_reads_the_same(stream: bool) -> None:
    openai: Any = pytest.importorskip("openai", exc_type=ImportError)
    whole = response(*OUTPUT)
    answers = (sse(EVENTS, named=True),) * 2 if stream else (whole, whole)
    request = ModelRequest(messages=[Msg.system("Be brief."), Msg.user("q")], tools=[ADD], tool_choice=ToolChoice())
    async with serving(*answers) as server, openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1") as client:
        ours = await openai_model(server.url, stream=stream).generate(request)
        found = await client.responses.create(**server.asked[0].body)
        events = [one async for one in found] if stream else []
    theirs = events[-1].response if stream else found
    assert theirs.id == ours.id
    assert theirs.output_text == Msg.assistant(ours.content).text
    calls = [(item.call_id, item.name, json.loads(item.arguments)) for item in theirs.output if "call" in item.type]
    assert calls == [
        ((block.extra or {})["id"], block.name, block.input)
        for block in ours.content
        if isinstance(block, ToolUseBlock)
    ]
    usage = theirs.usage
    assert (usage.input_tokens, usage.output_tokens) == (ours.usage.input_tokens, ours.usage.output_tokens)
    assert usage.input_tokens_details.cached_tokens == ours.usage.cached_tokens
    assert usage.output_tokens_details.reasoning_tokens == ours.usage.reasoning_tokens
    assert server.asked[0].body == server.asked[1].body
    if stream:
        assert "".join(one.delta for one in events if one.type == "response.output_text.delta") == theirs.output_text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client, about what it uses itself
async def test_the_official_clients_items_go_back_the_same() -> None:
    """The documented way to go on, `input += response.output`, and Treadle's next request say the same."""
    openai: Any = pytest.importorskip("openai", exc_type=ImportError)
    whole = response(REASONING, MESSAGE, *CALLS)
    async with serving(whole, whole) as server, openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1") as client:
        found = await client.responses.create(model="gpt-5-mini", input="q")
        await client.responses.create(model="gpt-5-mini", input=found.output)
    said = OpenAIResponsesFormatter().response(whole).content
    named = [replace(item, id=f"c{n}") if isinstance(item, ToolUseBlock) else item for n, item in enumerate(said)]
    ours = body(Msg.assistant(named))["input"]
    theirs = server.asked[1].body["input"]
    assert theirs[0] == ours[0] == REASONING
    for item, other in zip(ours, theirs, strict=True):
        if "arguments" in item:
            item["arguments"] = json.dumps(json.loads(item["arguments"]))
            other["arguments"] = json.dumps(json.loads(other["arguments"]))
        if item["type"] == "message":
            other["content"][0].pop("logprobs")
        assert item == {key: value for key, value in other.items() if key in item}
        assert other.keys() - item.keys() <= {"status"}
