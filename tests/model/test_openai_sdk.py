"""The official client is the oracle: the same server, the same question, the same answer, the same kind of error."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from model.wire import KEY, chat
from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelPermissionError,
    RateLimitError,
    ServerError,
)
from treadle.message import Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from treadle.model import ModelRequest, ModelResponse, ToolChoice, ToolSpec, Usage
from treadle.testing import FakeProvider, Fault, thinking, tool_call
from treadle.testing._provider import Answering

openai: Any = pytest.importorskip("openai")

USAGE = Usage(input_tokens=120, output_tokens=34, cached_tokens=100, reasoning_tokens=20, requests=1)
ANSWERS: dict[str, Answering] = {
    "text": "Hello, world! 你好 🙂",
    "empty": "",
    "thinking": [thinking("Let me see. Äh."), TextBlock(text="Yes.")],
    "a call": [tool_call("add", a=17, b=25)],
    "a call without arguments": [tool_call("now")],
    "calls beside text": [TextBlock(text="So:"), tool_call("add", "c1", a=1), tool_call("say", "c2", s='é"\\\n')],
    "half of the arguments": [ToolUseBlock(id="c", name="add", input={}, raw='{"a": ')],
    "length": ModelResponse(content=(TextBlock(text="Once upon"),), stop_reason="length", usage=USAGE, id="r-7"),
    "filter": ModelResponse(content=(TextBlock(text="Once"),), stop_reason="refused", usage=USAGE),
    "comments": Fault(kind="keep_alive", answer="Hello, world!"),
}
QUESTION = ModelRequest(
    messages=[
        Msg.system("Be brief."),
        Msg.user("What is 17 + 25?"),
        Msg.assistant([TextBlock(text="Let me see."), tool_call("add", "c0", a=17, b=25)]),
        Msg.tool(ToolResultBlock(id="c0", name="add", output="42")),
    ],
    tools=[ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {}})],
    tool_choice=ToolChoice(mode="auto"),
    options={"temperature": 0.5},
)


@dataclass
class Plain:
    """What an answer says, whoever read it."""

    text: str
    thinking: str
    calls: list[tuple[str, str, Any]]
    tokens: tuple[int, int, int, int]
    id: str


def ours(response: ModelResponse) -> Plain:
    usage = response.usage
    calls = [block for block in response.content if isinstance(block, ToolUseBlock)]
    return Plain(
        text="".join(block.text for block in response.content if isinstance(block, TextBlock)),
        thinking="".join(block.thinking for block in response.content if isinstance(block, ThinkingBlock)),
        calls=[((call.extra or {})["id"], call.name, call.raw or call.input) for call in calls],
        tokens=(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens),
        id=response.id or "",
    )


def arguments(given: str) -> Any:
    try:
        return json.loads(given or "{}")
    except ValueError:
        return given


def theirs(completion: Any) -> Plain:
    message, usage = completion.choices[0].message, completion.usage
    return Plain(
        text=message.content or "",
        thinking=getattr(message, "reasoning_content", None) or "",
        calls=[(c.id, c.function.name, arguments(c.function.arguments)) for c in message.tool_calls or ()],
        tokens=(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        ),
        id=completion.id,
    )


async def streamed(chunks: Any) -> Plain:
    """The client's chunks, put together the way its documentation does it."""
    out = Plain("", "", [], (0, 0, 0, 0), "")
    calls: dict[int, list[str]] = {}
    async for chunk in chunks:
        out.id = out.id or chunk.id
        if chunk.usage:
            usage = chunk.usage
            details = usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details.reasoning_tokens
            out.tokens = (usage.prompt_tokens, usage.completion_tokens, *details)
        for choice in chunk.choices:
            out.text += choice.delta.content or ""
            out.thinking += getattr(choice.delta, "reasoning_content", None) or ""
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, ["", "", ""])
                call[0] = call[0] or piece.id
                call[1] = call[1] or piece.function.name
                call[2] += piece.function.arguments or ""
    out.calls = [(id, name, arguments(given)) for id, name, given in calls.values()]
    return out


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_the_client_sends_and_understands_the_same(name: str, stream: bool) -> None:
    async with FakeProvider([ANSWERS[name], ANSWERS[name]]) as provider:
        model = chat(provider, stream=stream)
        mine = ours(await model.generate(QUESTION))
        body = dict(provider.requests[0].body)
        async with openai.AsyncOpenAI(api_key=KEY, base_url=provider.url, max_retries=0) as client:
            answer = await client.chat.completions.create(**body)
            other = await streamed(answer) if stream else theirs(answer)
    assert mine == other
    first, second = provider.requests
    assert (first.body, first.path, first.key, first.method) == (second.body, second.path, second.key, second.method)
    for header in ("authorization", "content-type"):
        assert first.headers[header] == second.headers[header]


def test_the_client_accepts_what_is_sent() -> None:
    """Its own types describe every message of the question."""
    adapter: Any = pytest.importorskip("pydantic").TypeAdapter
    from openai.types.chat import ChatCompletionMessageParam

    body = chat("http://127.0.0.1:1").formatter.body(QUESTION, model="m", profile=chat("http://x").profile, stream=True)
    for message in body["messages"]:
        adapter(ChatCompletionMessageParam).validate_python(message)


KINDS: list[tuple[Fault, str, type[ModelError]]] = [
    (Fault(kind="status", status=400), "BadRequestError", BadRequestError),
    (Fault(kind="status", status=401), "AuthenticationError", AuthenticationError),
    (Fault(kind="status", status=403), "PermissionDeniedError", ModelPermissionError),
    (Fault(kind="status", status=404), "NotFoundError", ModelNotFoundError),
    (Fault(kind="status", status=422), "UnprocessableEntityError", BadRequestError),
    (Fault(kind="status", status=429), "RateLimitError", RateLimitError),
    (Fault(kind="status", status=500), "InternalServerError", ServerError),
    (Fault(kind="reset", after=None), "APIConnectionError", ModelConnectionError),
    (Fault(kind="error", after=3), "APIError", ServerError),
]


@contextmanager
def raises(name: str) -> Generator[None]:
    with pytest.raises(getattr(openai, name)):
        yield


@pytest.mark.parametrize(("fault", "name", "error"), KINDS, ids=[f"{k[0].kind} {k[0].status}" for k in KINDS])
async def test_the_client_fails_in_the_same_way(fault: Fault, name: str, error: type[ModelError]) -> None:
    async with FakeProvider([fault, fault]) as provider:
        with pytest.raises(error):
            await chat(provider).generate(QUESTION)
        async with openai.AsyncOpenAI(api_key=KEY, base_url=provider.url, max_retries=0) as client:
            with raises(name):
                async for _ in await client.chat.completions.create(**dict(provider.requests[0].body)):
                    pass
