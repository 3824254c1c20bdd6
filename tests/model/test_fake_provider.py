"""The fake provider: what it records, and that it says what the script says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from model.wire import ASKING, KEY, chat, collect
from treadle import ReActAgent
from treadle.errors import AuthenticationError, BadRequestError
from treadle.message import TextBlock, ThinkingBlock, ToolUseBlock
from treadle.model import ModelResponse
from treadle.testing import FakeProvider, ProviderRequest, thinking, tool_call


async def raw(provider: FakeProvider, request: bytes) -> bytes:
    """Send bytes, and return all that comes back."""
    host, _, port = provider.host.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def post(body: dict[str, Any], path: str = "/v1/chat/completions") -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def test_a_whole_answer_on_the_wire() -> None:
    async with FakeProvider(["Hi."]) as provider:
        head, _, body = (await raw(provider, post({"model": "m"}))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
    answer = json.loads(body)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hi."}
    assert (answer["model"], answer["usage"]["total_tokens"]) == ("m", 18)


async def test_a_streamed_answer_on_the_wire() -> None:
    async with FakeProvider(["Hi."]) as provider:
        answer = await raw(provider, post({"model": "m", "stream": True}))
    assert b"transfer-encoding: chunked" in answer
    assert b'"usage"' not in answer, "only where it was asked for"
    assert answer.endswith(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def test_it_records_requests_without_keys() -> None:
    async with FakeProvider(["Hi."]) as provider:
        await raw(provider, post({"model": "m"}, "/v1/chat/completions?key=sk-in-the-address&a=b"))
    [request] = provider.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/chat/completions", {"model": "m"})
    assert request.query == {"key": "***", "a": "b"}
    assert request.headers["authorization"] == "Bearer ***"
    assert "sk-" not in repr(request)


BLOCKS = [thinking("Hm."), TextBlock(text="So:"), tool_call("add", "c1", a=1)]


@pytest.mark.parametrize("stream", [True, False])
async def test_what_the_script_says_comes_out_of_the_model(stream: bool) -> None:
    def later(request: ProviderRequest) -> list[Any]:
        return [TextBlock(text=request.body["messages"][0]["content"])]

    async with FakeProvider([BLOCKS, later]) as provider:
        model = chat(provider, stream=stream)
        first, second = await model.generate(ASKING), await model.generate(ASKING)
    call = ToolUseBlock(id="", name="add", input={"a": 1}, extra={"id": "c1"})
    assert first.content == (ThinkingBlock(thinking="Hm."), TextBlock(text="So:"), call)
    assert (first.stop_reason, first.usage.total_tokens) == ("tool_use", 18)
    assert second.content == (TextBlock(text="Hello?"),)


async def test_a_wrong_key_and_the_end_of_the_script_are_told() -> None:
    async with FakeProvider(["Hi."], key="another") as provider:
        with pytest.raises(AuthenticationError):
            await chat(provider).generate(ASKING)
    async with FakeProvider([]) as provider:
        with pytest.raises(BadRequestError, match="only 0 answers"):
            await chat(provider).generate(ASKING)


async def test_streamed_or_not_the_response_is_the_same() -> None:
    async with FakeProvider(lambda _: BLOCKS) as provider:
        streamed, whole = await collect(chat(provider)), await collect(chat(provider, stream=False))
    assert whole == [streamed[-1]]
    assert isinstance(whole[0], ModelResponse)
    assert len(streamed) > 3


async def test_an_agent_runs_on_it() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with FakeProvider([[tool_call("add", a=17, b=25)], "It is 42."]) as provider:
        agent = ReActAgent(name="a", model=chat(provider), toolkit=[add])
        assert (await agent.call("What is 17 + 25?")).text == "It is 42."
        await agent.close()
    asked, answered = provider.requests[1].body["messages"][-2:]
    assert asked["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":17,"b":25}'}
    assert answered == {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "42"}
