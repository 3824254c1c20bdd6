"""Whatever a provider does wrong is one typed error, which says whether asking again helps and what had been said."""

from __future__ import annotations

import email.utils
import gzip
import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from model.wire import ASKING, IMPATIENT, SOON, chat, collect, served
from treadle.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextWindowError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelPermissionError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
    ServerError,
)
from treadle.model import ModelResponse, TextDelta
from treadle.model._failures import failure
from treadle.model._openai import OpenAIChatModel
from treadle.testing import FakeProvider, Fault


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    fault: Fault
    error: type[ModelError]
    match: str | None = None
    partial: str = ""
    retryable: bool = False
    streamed_only: bool = False
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def status(number: int, error: type[ModelError], code: str = "", *, retryable: bool = False) -> Case:
    fault = Fault(kind="status", status=number, code=code)
    return Case(id=f"{number} {code}", fault=fault, error=error, retryable=retryable, match=str(number))


# `after=3` lets the role and two pieces of "Hello, world!" pass.
BROKEN = [
    status(400, BadRequestError),
    status(400, ContextWindowError, "context_length_exceeded"),
    status(400, ContentRefusedError, "content_filter"),
    status(401, AuthenticationError),
    status(403, ModelPermissionError),
    status(404, ModelNotFoundError),
    status(408, ModelTimeoutError, retryable=True),
    status(413, ContextWindowError),
    status(422, BadRequestError),
    status(429, RateLimitError, retryable=True),
    status(429, ModelPermissionError, "insufficient_quota"),
    status(500, ServerError, retryable=True),
    status(502, ServerError, retryable=True),
    status(503, OverloadedError, retryable=True),
    status(504, ModelTimeoutError, retryable=True),
    status(529, OverloadedError, retryable=True),
    Case(
        id="a page instead of an error",
        fault=Fault(kind="page", status=502, message="Bad gateway"),
        error=ServerError,
        match=r"502\): 502 Bad gateway$",
        retryable=True,
    ),
    Case(
        id="a page instead of an answer",
        fault=Fault(kind="page", status=200, message="Please log in"),
        error=MalformedResponseError,
        match="not JSON: 200 Please log in",
        retryable=True,
    ),
    Case(id="a redirect", fault=Fault(kind="status", status=307), error=BadRequestError, match="307"),
    Case(
        id="slow first byte",
        fault=Fault(kind="slow"),
        error=ModelTimeoutError,
        match="silent for too long",
        retryable=True,
        options={"timeouts": IMPATIENT},
    ),
    Case(
        id="reset before the answer",
        fault=Fault(kind="reset", after=None),
        error=ModelConnectionError,
        match="connection to OpenAI failed",
        retryable=True,
    ),
    Case(
        id="silence in the stream",
        fault=Fault(kind="silence", after=3),
        error=ModelTimeoutError,
        match="silent",
        partial="Hello, wor",
        retryable=True,
        streamed_only=True,
        options={"timeouts": IMPATIENT},
    ),
    Case(
        id="no terminal marker",
        fault=Fault(kind="truncate", after=3),
        error=MalformedResponseError,
        match="end marker",
        partial="Hello, wor",
        retryable=True,
        streamed_only=True,
    ),
    Case(
        id="nothing at all",
        fault=Fault(kind="truncate", after=0),
        error=MalformedResponseError,
        match="end marker",
        retryable=True,
        streamed_only=True,
    ),
    Case(
        id="reset in the stream",
        fault=Fault(kind="reset", after=3),
        error=ModelConnectionError,
        partial="Hello, wor",
        retryable=True,
        streamed_only=True,
    ),
    Case(
        id="broken JSON",
        fault=Fault(kind="malformed", after=3),
        error=MalformedResponseError,
        match="not JSON",
        partial="Hello, wor",
        retryable=True,
        streamed_only=True,
    ),
    Case(
        id="an error in the stream",
        fault=Fault(kind="error", after=3, code="rate_limit_exceeded", message="Slow down."),
        error=RateLimitError,
        match="Slow down",
        partial="Hello, wor",
        retryable=True,
        streamed_only=True,
    ),
]


WAYS = [(case, True) for case in BROKEN] + [(case, False) for case in BROKEN if not case.streamed_only]


@pytest.mark.parametrize(("case", "stream"), WAYS, ids=[f"{c.id}-{'stream' if s else 'whole'}" for c, s in WAYS])
async def test_a_fault_is_a_typed_error(case: Case, stream: bool) -> None:
    async with FakeProvider([case.fault]) as provider:
        model = chat(provider, stream=stream, **case.options)
        with pytest.raises(case.error, match=case.match) as caught:
            await collect(model)
        await model.close()
    error = caught.value
    assert type(error) is case.error
    assert (error.retryable, error.partial, error.provider) == (case.retryable, case.partial, "OpenAI")
    if case.fault.kind == "status":
        assert error.status == case.fault.status


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.id)
async def test_what_may_pass_is_tried_again_before_the_first_token_and_never_after_it(case: Case) -> None:
    async with FakeProvider([case.fault, "Fine."]) as provider:
        model = chat(provider, **{**case.options, "retries": SOON})
        if case.retryable and not case.partial:
            assert (await model.generate(ASKING)).content
        else:
            with pytest.raises(case.error):
                await collect(model)
        await model.close()
        assert len(provider.requests) == (2 if case.retryable and not case.partial else 1)


async def test_tokens_that_came_before_an_error_are_seen_before_it() -> None:
    seen: list[Any] = []

    async def read(model: OpenAIChatModel) -> None:
        async for item in model.stream(ASKING):
            seen.append(item)  # noqa: PERF401 - what came before the error counts

    async with FakeProvider([Fault(kind="error", after=3)]) as provider:
        with pytest.raises(ServerError):
            await read(chat(provider, retries=SOON))
    assert seen == [TextDelta("Hello"), TextDelta(", wor")]


async def test_they_are_seen_also_where_all_comes_in_one_piece() -> None:
    """However the network cuts the bytes: what was said goes first, and nothing is asked again after it."""
    body = b'data: {"choices": [{"delta": {"content": "Hal"}}]}\n\ndata: {"error": {"message": "x"}}\n\n'
    asked: list[bytes] = []
    async with served(body, "content-type: text/event-stream", asked) as url:
        stream = chat(url, retries=SOON).stream(ASKING)
        first = await anext(stream)
        with pytest.raises(ServerError) as caught:
            await anext(stream)
    assert (first, caught.value.partial, len(asked)) == (TextDelta("Hal"), "Hal", 1)


@pytest.mark.parametrize("body", [b"[1]", b"not json", b""])
async def test_an_answer_that_is_no_object_makes_no_sense(body: bytes) -> None:
    async with served(body, "content-type: application/json") as url:
        with pytest.raises(MalformedResponseError, match="OpenAI answered"):
            await chat(url, stream=False).generate(ASKING)


async def test_a_body_that_is_packed_is_unpacked() -> None:
    """Asked for or not, some proxies do it."""
    body = gzip.compress(b'data: {"choices": [{"delta": {"content": "Hal"}}]}\n\ndata: [DONE]\n\n')
    async with served(body, "content-encoding: gzip") as url:
        assert (await collect(chat(url)))[0] == TextDelta("Hal")


async def test_it_is_tried_no_more_often_than_allowed() -> None:
    async with FakeProvider(lambda _: Fault(kind="status", status=503)) as provider:
        model = chat(provider, retries=SOON)
        with pytest.raises(OverloadedError):
            await model.generate(ASKING)
        assert len(provider.requests) == SOON.attempts
        with pytest.raises(OverloadedError):
            await chat(provider).generate(ASKING)
        assert len(provider.requests) == SOON.attempts + 1


def limited(seconds: str, header: str = "retry-after") -> Fault:
    return Fault(kind="status", status=429, headers={header: seconds})


async def test_retry_after_is_heeded() -> None:
    async with FakeProvider([limited("0.02"), limited("20", "retry-after-ms"), "Fine."]) as provider:
        started = time.monotonic()
        assert (await chat(provider, retries=SOON).generate(ASKING)).content
        assert time.monotonic() - started >= 0.04
        assert len(provider.requests) == 3


async def test_a_wait_that_is_too_long_is_left_to_whoever_asked() -> None:
    async with FakeProvider([limited("3600")]) as provider:
        with pytest.raises(RateLimitError) as caught:
            await chat(provider, retries=SOON).generate(ASKING)
        assert (caught.value.retry_after, len(provider.requests)) == (3600.0, 1)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": "7", "retry-after-ms": "1250"}, 1.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "-5"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after_has_many_forms(headers: dict[str, str], expected: float | None) -> None:
    assert failure("X", 429, b"", headers).retry_after == expected


def test_retry_after_may_be_a_date() -> None:
    given = failure("X", 429, b"", {"retry-after": email.utils.formatdate(time.time() + 60, usegmt=True)}).retry_after
    assert given is not None
    assert 55 < given <= 61


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, {"error": {"code": 429, "message": "Slow down"}}, RateLimitError),  # OpenRouter: the status is inside
        (200, {"error": {"code": 502, "message": "Upstream", "metadata": {}}}, ServerError),
        (200, {"error": {"code": "overloaded_error", "message": "Busy"}}, OverloadedError),
        (200, {"error": "it broke"}, ServerError),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "x"}}, ContextWindowError),
        (400, {"error": {"message": "This model's maximum context length is 8192 tokens."}}, ContextWindowError),
        (400, {"error": {"code": "1301", "message": "x", "type": "sensitive"}}, BadRequestError),
        (422, {"object": "error", "message": {"detail": [{"type": "extra_forbidden"}]}}, BadRequestError),
        (400, [{"error": {"status": "INVALID_ARGUMENT", "message": "x"}}], BadRequestError),
        (500, {"detail": "boom"}, ServerError),
        (400, {"code": "Arrearage", "message": "x"}, ModelPermissionError),
        (404, {"error": {"code": "model_not_found", "message": "x"}}, ModelNotFoundError),
    ],
)
def test_errors_are_understood_in_whatever_shape(status: int, body: Any, error: type[ModelError]) -> None:
    found = failure("X", status, json.dumps(body))
    assert type(found) is error
    assert str(found).startswith("X ")


async def test_a_long_answer_may_take_longer_than_the_silence_allowed() -> None:
    answer = Fault(kind="keep_alive", answer="word " * 40)
    async with FakeProvider([answer], piece=16) as provider:  # every piece of the body is sent on its own
        items = await collect(chat(provider, timeouts=IMPATIENT))
    last = items[-1]
    assert isinstance(last, ModelResponse)
    assert len(items) > 20


async def test_a_server_that_cannot_stream_answers_whole() -> None:
    async with FakeProvider([Fault(kind="whole", answer="Hello!"), "Hello!"]) as provider:
        model = chat(provider)
        whole, streamed = await collect(model), await collect(model)
    assert whole == [streamed[-1]]
    assert provider.requests[0].body["stream"] is True


async def test_an_unreachable_host_is_a_connection_error() -> None:
    async with FakeProvider() as provider:
        url = provider.url
    with pytest.raises(ModelConnectionError, match="connection to OpenAI failed") as caught:
        await chat(url).generate(ASKING)
    assert caught.value.retryable


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://example.org", "http://", "http://[::1", "/v1"])
async def test_an_address_that_is_none_is_said_to_be_so(url: str) -> None:
    with pytest.raises(ModelConnectionError, match="not valid"):
        await chat(url).generate(ASKING)


async def test_an_unknown_address_is_not_found() -> None:
    async with FakeProvider(["x"]) as provider:
        model = chat(provider)
        model.base_url += "/models?x="
        with pytest.raises(ModelNotFoundError, match="base_url"):
            await model.generate(ASKING)
