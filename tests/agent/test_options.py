"""A slip in an option is heard of at once, and by name."""

from __future__ import annotations

from typing import Any

import pytest

from agent.support import agent_of, valid_history
from treadle import Limits, Msg, ReActAgent
from treadle.errors import InputError
from treadle.hook import around_model
from treadle.journal import Journal
from treadle.model import ModelRequest, ModelResponse
from treadle.testing import ScriptedModel, tool_call


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 3},
        {"system_prompt": 3},
        {"max_iters": "5"},
        {"on_pending": "x"},
        {"output_reminder": "shout"},
        {"limits": {"tokens": 5}},
        {"variables": ["a"]},
        {"options": 1},
        {"finish_name": None},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_agent_is_not_made_of_nonsense(wrong: dict[str, Any]) -> None:
    options: dict[str, Any] = {"name": "A", "model": ScriptedModel([]), **wrong}
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
        ReActAgent(**options)


@pytest.mark.parametrize(
    "wrong",
    [{"on_busy": "queue"}, {"limits": {"tokens": 5}}, {"context": object()}, {"variables": ["a"]}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_call_with_nonsense_stores_nothing(wrong: dict[str, Any]) -> None:
    agent = agent_of(["Never."])
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
        await agent.call("Hi", **wrong)
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
        await agent.stream("Hi", **wrong).result()
    assert await agent.journal.threads() == []


def test_an_interrupt_says_when() -> None:
    wrong: Any = "later"
    with pytest.raises(InputError, match="`when` is 'checkpoint' or 'now'"):
        agent_of([]).interrupt(when=wrong)


async def test_an_empty_name_is_not_the_private_thread() -> None:
    agent = agent_of(["Hello."])
    with pytest.raises(InputError, match="empty"):
        await agent.call("Hi", thread="")


async def test_an_agent_is_closed_by_its_block(store: Journal) -> None:
    async with agent_of(["Hello."], store=store) as agent:
        assert (await agent.call("Hi")).text == "Hello."


async def test_resuming_after_something_was_observed_still_gives_the_answer(store: Journal) -> None:
    agent = agent_of(["Hello."], store=store)
    await agent.call("Hi", thread="t")
    await agent.observe(Msg.user("By the way."), thread="t")
    assert (await agent.resume("t")).text == "Hello."


async def test_a_bigger_budget_lets_a_turn_go_on(store: Journal) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    agent = agent_of([[tool_call("add", a=1, b=2)], "3"], add, store=store)
    assert (await agent.call("Add.", thread="t", limits=Limits(tokens=0))).reason == "budget"
    assert (await agent.resume("t", limits=Limits(tokens=1_000))).text == "3"
    await valid_history(agent, "t")


async def test_what_goes_wrong_around_a_model_names_the_hook() -> None:
    @around_model
    async def broken(request: ModelRequest, call_next: Any) -> ModelResponse:
        raise ValueError("oops")

    with pytest.raises(ValueError, match="oops") as caught:
        await agent_of(["Never."], hooks=[broken]).call("Hi")
    assert "In hook `broken`, around a model call." in caught.value.__notes__


def test_a_message_prints_as_a_line() -> None:
    assert str(Msg.user("Hi.", name="Ada")) == "Ada: Hi."
    assert str(Msg.assistant([tool_call("add", a=1)], name="Bo")) == "Bo: [calls add]"
