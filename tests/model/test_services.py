"""The services that are compatible with OpenAI: a table, and one class."""

from __future__ import annotations

import pytest

from model.wire import ASKING, KEY, ONCE
from treadle.errors import InputError, ServerError
from treadle.message import ThinkingBlock
from treadle.model._openai import OpenAIChatModel, openai_compatible
from treadle.model._profiles import SERVICES
from treadle.model._services import Dialect
from treadle.testing import FakeProvider, Fault, thinking

NAMES = {"azure", "deepseek", "groq", "llama.cpp", "mistral", "moonshot", "openrouter", "qwen", "vllm", "zhipu"}


def test_the_table_has_them_all() -> None:
    assert set(SERVICES) == NAMES
    for name, service in SERVICES.items():
        assert service.title
        assert service.base_url or service.url_variables, name
        local = service.base_url.startswith("http://localhost")
        assert local != bool(service.key_variables), name
        assert not service.base_url.endswith("/")
        assert all(profile.thinking for _, profile in service.models if profile.echoes_thinking)


@pytest.mark.parametrize("service", sorted(NAMES))
@pytest.mark.parametrize("stream", [True, False])
async def test_each_service_answers(service: str, stream: bool) -> None:
    async with FakeProvider([[thinking("Hm"), *()], Fault(kind="status", status=500)]) as provider:
        options = {"base_url": provider.url, "auth": KEY, "retries": ONCE, "stream": stream}
        model = openai_compatible(service, "some-model", **options)
        assert (await model.generate(ASKING)).content == (ThinkingBlock(thinking="Hm"),)
        with pytest.raises(ServerError, match=f"^{SERVICES[service].title} refused") as caught:
            await model.generate(ASKING)
        assert caught.value.provider == SERVICES[service].title
    request = provider.requests[0]
    assert request.path == "/v1/chat/completions"
    assert ("stream_options" in request.body) is (stream and SERVICES[service].dialect.stream_options)


def test_a_service_has_an_address_of_its_own() -> None:
    model = openai_compatible("groq", "openai/gpt-oss-120b")
    assert model.url(stream=True) == "https://api.groq.com/openai/v1/chat/completions"
    assert model.profile.thinking
    assert (model.provider, OpenAIChatModel.provider) == ("Groq", "OpenAI")


def test_a_local_service_needs_no_key() -> None:
    assert openai_compatible("vllm", "x").base_url == "http://localhost:8000/v1"


async def test_no_key_means_no_header() -> None:
    async with FakeProvider(["Hi."]) as provider:
        await openai_compatible("llama.cpp", "x", base_url=provider.url).generate(ASKING)
    assert "authorization" not in provider.requests[0].headers


@pytest.mark.parametrize("given", ["https://me.openai.azure.com", "https://me.openai.azure.com/openai/v1/"])
def test_azure_is_found_through_its_variable(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", given)
    assert openai_compatible("azure", "my-deployment").base_url == "https://me.openai.azure.com/openai/v1"


def test_without_an_address_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(InputError, match="`AZURE_OPENAI_ENDPOINT`, or pass `base_url`"):
        openai_compatible("azure", "my-deployment")


def test_an_unknown_server_gets_no_peculiarities() -> None:
    own, other = OpenAIChatModel("m").formatter, OpenAIChatModel("m", base_url="http://localhost:1").formatter
    assert vars(own)["dialect"] == Dialect(limit_name="max_completion_tokens")
    assert vars(other)["dialect"] == Dialect()


@pytest.mark.parametrize(
    ("service", "name", "echoes", "forced"),
    [
        ("deepseek", "deepseek-v4-pro", True, True),
        ("moonshot", "kimi-k2.6", True, True),
        ("moonshot", "moonshot-v1-8k", False, True),
        ("zhipu", "glm-5.2", True, False),
        ("zhipu", "glm-4-flash", False, False),
        ("mistral", "mistral-large-latest", False, True),
    ],
)
def test_profiles_follow_the_model(service: str, name: str, echoes: bool, forced: bool) -> None:
    profile = SERVICES[service].profile(name)
    assert (profile.echoes_thinking, profile.forced_tool_choice) == (echoes, forced)
