"""Models made of models: fall back to another, stay within limits; and models by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from treadle import ReActAgent
from treadle.errors import (
    BadRequestError,
    ContentRefusedError,
    ContextWindowError,
    InputError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from treadle.message import TextBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta, Usage
from treadle.model._fallback import FallbackModel
from treadle.model._registry import PROVIDERS, resolve_model
from treadle.model._throttle import ThrottledModel
from treadle.testing import ScriptedModel, Turn

REQUEST = ModelRequest(messages=[])


async def answer(model: ChatModel) -> str:
    return "".join(block.text for block in (await model.generate(REQUEST)).content if isinstance(block, TextBlock))


async def test_the_next_model_is_asked_when_one_fails() -> None:
    model = FallbackModel([ScriptedModel([OverloadedError("busy")]), ScriptedModel(["Here."], name="second")])
    assert await answer(model) == "Here."
    assert model.name == "scripted or second"


async def test_each_request_begins_with_the_first_model() -> None:
    first = ScriptedModel([OverloadedError("busy"), "I am back."])
    model = FallbackModel([first, ScriptedModel(["Here.", "Here."])])
    assert [await answer(model), await answer(model)] == ["Here.", "I am back."]


async def test_after_the_first_token_the_error_goes_on() -> None:
    broken = ScriptedModel([Turn(content="Half an ans", error=OverloadedError("gone"))])
    second = ScriptedModel(["never"])
    with pytest.raises(OverloadedError, match="gone"):
        await answer(FallbackModel([broken, second]))
    assert second.requests == []


@pytest.mark.parametrize("error", [BadRequestError("no"), ContentRefusedError("no")])
async def test_a_wrong_or_refused_request_is_not_taken_elsewhere(error: ModelError) -> None:
    second = ScriptedModel(["never"])
    with pytest.raises(type(error)):
        await answer(FallbackModel([ScriptedModel([error]), second]))
    assert second.requests == []


async def test_a_conversation_too_long_for_one_may_fit_the_other() -> None:
    assert (
        await answer(FallbackModel([ScriptedModel([ContextWindowError("long")]), ScriptedModel(["Fits."])])) == "Fits."
    )


async def test_when_all_fail_the_last_error_tells_of_the_others() -> None:
    model = FallbackModel([ScriptedModel([RateLimitError("slow down")]), ScriptedModel([OverloadedError("busy")])])
    with pytest.raises(OverloadedError, match="busy") as caught:
        await answer(model)
    assert caught.value.__notes__ == ["Before that, another model failed: slow down"]


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        FallbackModel([])


async def test_an_agent_runs_on_a_fallback() -> None:
    model = FallbackModel([ScriptedModel([OverloadedError("busy")]), ScriptedModel(["Here."])])
    assert (await ReActAgent(name="A", model=model).call("Where?")).text == "Here."


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr("treadle.model._throttle.asyncio.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += max(seconds, 0.001)


async def test_requests_wait_for_the_minute_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    model = ThrottledModel(ScriptedModel(["ok"], loop=True, stream=False), requests_per_minute=2)
    for _ in range(2):
        await answer(model)
        clock.now += 10
    assert clock.slept == []
    await answer(model)
    assert clock.slept == [40.0]


async def test_tokens_of_the_last_minute_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    turn = Turn(content="ok", usage=Usage(input_tokens=60, output_tokens=40, requests=1))
    model = ThrottledModel(ScriptedModel([turn], loop=True, stream=False), tokens_per_minute=150)
    for _ in range(3):
        await answer(model)
    assert clock.slept == [60.0]


class Gated(ChatModel):
    """Answers when it is let, and counts how many ask at once."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.entered: asyncio.Queue[None] = asyncio.Queue()
        self.inside = self.most = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.put_nowait(None)
        try:
            await self.gate.wait()
            yield TextDelta("ok")
            yield ModelResponse(content=(TextBlock(text="ok"),))
        finally:
            self.inside -= 1


async def test_only_so_many_are_under_way_at_once() -> None:
    inner = Gated()
    model = ThrottledModel(inner, concurrent=2)
    tasks = [asyncio.ensure_future(answer(model)) for _ in range(6)]
    for _ in range(2):
        await inner.entered.get()
    inner.gate.set()
    assert await asyncio.gather(*tasks) == ["ok"] * 6
    assert inner.most == 2


async def test_whoever_gives_up_frees_its_place() -> None:
    inner = Gated()
    model = ThrottledModel(inner, concurrent=1)
    first = asyncio.ensure_future(answer(model))
    await inner.entered.get()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    inner.gate.set()
    assert await answer(model) == "ok"


def test_limits_must_make_sense() -> None:
    with pytest.raises(InputError, match="at least 1"):
        ThrottledModel(ScriptedModel([]), concurrent=0)


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_models_are_found_by_name(provider: str) -> None:
    model = resolve_model(f"{provider}:some-model")
    assert model.name == "some-model"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("openai:", "provider:name"),
        ("opnai:gpt-5", "Did you mean 'openai'"),
        ("nowhere:x", "There are: anthropic"),
    ],
)
def test_a_wrong_name_says_what_to_do(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        resolve_model(name)
