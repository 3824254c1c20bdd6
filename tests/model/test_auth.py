"""Keys: where they come from, what is said when there is none, and that they show nowhere."""

from __future__ import annotations

import traceback

import pytest

from model.wire import ASKING, KEY, SOON, chat
from treadle.errors import AuthenticationError, ModelConnectionError, ModelError, ServerError
from treadle.model._auth import Credential, EnvVar
from treadle.model._openai import OpenAIChatModel, openai_compatible
from treadle.testing import FakeProvider, Fault, ProviderRequest


def everything(error: BaseException, *, variables: bool = True) -> str:
    """All that a log might print of an error: the variables of every frame too, but for this file's own."""
    told = traceback.TracebackException.from_exception(error, capture_locals=variables)
    link: traceback.TracebackException | None = told
    while link is not None:
        link.stack[:] = [frame for frame in link.stack if frame.filename != __file__]
        link = link.__cause__ or link.__context__
    return f"{error} {error!r} {vars(error)} {''.join(told.format())}"


async def test_the_key_is_sent_and_the_record_does_not_show_it() -> None:
    async with FakeProvider(["Hi."], key=KEY) as provider:
        await chat(provider, headers={"X-Api-Key": KEY}).generate(ASKING)
    request = provider.requests[0]
    assert request.key == KEY
    assert (request.headers["authorization"], request.headers["x-api-key"]) == ("Bearer ***", "***")
    assert KEY not in repr(request)


async def test_a_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-usual-0123456789")
    monkeypatch.setenv("MY_KEY", "sk-mine-0123456789\n")
    async with FakeProvider(["Hi.", "Hi."]) as provider:
        await chat(provider, auth=None).generate(ASKING)
        await chat(provider, auth=EnvVar("MY_KEY")).generate(ASKING)
    assert [request.key for request in provider.requests] == ["sk-usual-0123456789", "sk-mine-0123456789"]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_function_is_asked_for_each_request_and_each_attempt(kind: str) -> None:
    count = 0

    def plain() -> str:
        nonlocal count
        count += 1
        return f"token-number-{count}"

    async def coroutine() -> str:
        return plain()

    script = [Fault(kind="status", status=503), "Hi.", "Hi."]
    async with FakeProvider(script) as provider:
        model = chat(provider, auth=plain if kind == "plain" else coroutine, retries=SOON)
        await model.generate(ASKING)
        await model.generate(ASKING)
    assert [request.key for request in provider.requests] == ["token-number-1", "token-number-2", "token-number-3"]


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        (None, "`OPENAI_API_KEY`"),
        (EnvVar("MY_KEY"), "`MY_KEY`"),
        (lambda: "", "returned an empty one"),
        ("  ", "`OPENAI_API_KEY`"),
        ("sk-größe-0123456789", "no header can carry"),
        ("sk-two\nlines-0123456789", "no header can carry"),
    ],
)
async def test_without_a_usable_key_the_error_says_what_to_do(
    auth: object, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with FakeProvider() as provider:
        with pytest.raises(AuthenticationError, match=says) as caught:
            await chat(provider, auth=auth).generate(ASKING)
    assert provider.requests == []
    assert not isinstance(auth, str) or len(auth) < 6 or auth not in everything(caught.value)


@pytest.mark.parametrize(
    ("service", "variable"),
    [("deepseek", "DEEPSEEK_API_KEY"), ("moonshot", "MOONSHOT_API_KEY` or `KIMI_API_KEY")],
)
async def test_a_missing_key_names_the_variable_of_the_service(
    service: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEEPSEEK_API_KEY", "MOONSHOT_API_KEY", "KIMI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AuthenticationError, match=f"environment variable `{variable}`"):
        await openai_compatible(service, "x").generate(ASKING)


def echo(request: ProviderRequest) -> Fault:
    """What careless gateways do: they repeat what they were sent."""
    said = f"Wrong key {request.key}, header 'Bearer {request.key}', and sk-someone-elses-0123456789."
    return Fault(kind="status", status=500, message=said)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_key_that_comes_back_does_not_show(stream: bool) -> None:
    token = "opaque/token+without+prefix=="
    async with FakeProvider(echo) as provider:
        for secret in (KEY, token):
            with pytest.raises(ServerError, match=r"Wrong key \*\*\*") as caught:
                await chat(provider, auth=secret, stream=stream).generate(ASKING)
            said = everything(caught.value)
            assert secret not in said
            assert "sk-someone" not in said


FAULTS = [
    Fault(kind="status", status=401, message=f"Incorrect API key provided: {KEY}."),
    Fault(kind="page", status=502, message=f"<p>{KEY}</p>"),
    Fault(kind="page", status=200, message=f"<p>{KEY}</p>"),
    Fault(kind="error", after=2, message=f"Key {KEY} ran out."),
    Fault(kind="truncate", after=2),
    Fault(kind="malformed", after=2),
    Fault(kind="reset", after=None),
    Fault(kind="reset", after=2),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.status}")
async def test_no_error_shows_a_key_however_much_of_it_is_printed(fault: Fault) -> None:
    headers = {"x-gateway-token": "another-secret-0123456789"}
    async with FakeProvider([fault]) as provider:
        with pytest.raises(ModelError) as caught:
            await chat(provider, headers=headers).generate(ASKING)
    # What a provider sends back is in the variables of whoever reads it; what we send must not be.
    said = everything(caught.value, variables=KEY not in fault.message)
    assert KEY not in said
    assert "another-secret" not in said


async def test_no_error_of_a_connection_shows_a_key() -> None:
    async with FakeProvider() as provider:
        url = provider.url
    with pytest.raises(ModelConnectionError) as caught:
        await chat(url).generate(ASKING)
    assert KEY not in everything(caught.value)


def test_nothing_about_a_model_shows_its_key() -> None:
    model = OpenAIChatModel("fake", auth=KEY, headers={"x-key": KEY})
    assert KEY not in f"{model!r} {vars(model)} {vars(model.__dict__['_credential'])}"


async def test_words_that_only_begin_like_keys_stay() -> None:
    credential = Credential("none", variables=(), provider="X")
    await credential.key()
    text = "The skyscraper skips none; pkgconfig, task-oriented, sk-, risk-averse-people."
    assert credential.redact(text) == text
    assert credential.redact("AIzaSyA0123456789 and gsk_0123456789 and Bearer abc") == "*** and *** and ***"


async def test_extra_body_and_headers_are_sent() -> None:
    async with FakeProvider(["Hi."]) as provider:
        model = chat(provider, extra_body={"enable_thinking": True, "model": "other"}, headers={"X-Title": "Test"})
        await model.generate(ASKING)
    request = provider.requests[0]
    assert (request.body["enable_thinking"], request.body["model"]) == (True, "other")
    assert request.headers["x-title"] == "Test"
    assert request.headers["content-type"] == "application/json"
