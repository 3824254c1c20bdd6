"""Limits of a turn, and templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from agent.support import agent_of, died_now, said, script_of, valid_history
from treadle import Approve, Limits, Template
from treadle.errors import InputError, TemplateError
from treadle.journal import Journal
from treadle.model import Usage
from treadle.testing import Turn, tool_call
from treadle.tool import tool


def look() -> str:
    return "ok"


def costly(*content: Any) -> Turn:
    return Turn(content=list(content), usage=Usage(requests=1, input_tokens=80, output_tokens=20, cost=0.05))


@dataclass(frozen=True)
class Limit:
    name: str
    limits: Limits
    asked: int
    reason: str = "budget"


LIMITS = [
    Limit("iterations", Limits(iterations=2), 3, "max_iters"),
    Limit("tokens", Limits(tokens=150), 2),
    Limit("tokens, exactly", Limits(tokens=200), 2),
    Limit("usd", Limits(usd=0.05), 1),
    Limit("seconds", Limits(seconds=0), 0),
    Limit("nothing left", Limits(tokens=0), 0),
    Limit("none reached", Limits(iterations=9, tokens=10_000, usd=9, seconds=900), 4, "answered"),
]


@pytest.mark.parametrize("case", LIMITS, ids=lambda case: case.name)
@pytest.mark.parametrize("level", ["agent", "call"])
async def test_a_limit_is_checked_before_each_model_call(case: Limit, level: str, store: Journal) -> None:
    script = [*[costly("Looking.", tool_call("look"))] * 3, costly("Done."), costly("Next.")]
    agent = agent_of(script, look, store=store, limits=case.limits if level == "agent" else None)
    reply = await agent.call("Go.", limits=case.limits if level == "call" else None)
    assert (reply.reason, len(script_of(agent).requests)) == (case.reason, case.asked)
    assert reply.usage.total_tokens == 100 * case.asked
    history = await valid_history(agent)
    assert sum(len(msg.tool_calls) for msg in history) == sum(len(msg.tool_results) for msg in history)


async def test_a_limit_is_per_turn_and_the_next_turn_is_free(store: Journal) -> None:
    agent = agent_of([costly(tool_call("look")), costly("Second."), costly("Third.")], look, store=store)
    assert (await agent.call("Go.", limits=Limits(tokens=50))).reason == "budget"
    reply = await agent.call("Go on.")
    assert (reply.text, reply.reason, reply.usage.total_tokens) == ("Second.", "answered", 100)
    await valid_history(agent)


async def test_call_with_nothing_after_a_limit_is_a_new_turn() -> None:
    agent = agent_of([costly(tool_call("look")), costly("Summary."), costly(tool_call("look")), costly("Done.")], look)
    assert (await agent.call("Go.", limits=Limits(iterations=1))).text == "Summary."
    reply = await agent.call()
    assert (reply.text, reply.reason) == ("Done.", "answered")
    await valid_history(agent)


@pytest.mark.parametrize("again", [False, True], ids=["remembered", "given again"])
async def test_what_a_turn_used_and_its_limits_survive_pauses_and_processes(again: bool, store: Journal) -> None:
    script = [costly(tool_call("pay", "one")), costly(tool_call("pay", "two")), costly("Never.")]
    pay = tool(lambda: "paid", name="pay", approval=True)
    first = agent_of(script, pay, store=store)
    limits = Limits(tokens=200)
    await first.call("Go.", limits=limits, thread="first")
    second = agent_of(script, pay, store=store)
    second.load_state(died_now(first, "first"))
    options: dict[str, Any] = {"limits": limits} if again else {}
    assert (await second.resume(second.thread, {"one": Approve()}, **options)).reason == "paused"
    reply = await second.resume(second.thread, {"two": Approve()}, **options)
    assert (reply.reason, reply.usage.total_tokens, reply.usage.cost) == ("budget", 200, 0.1)
    await valid_history(second)


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"tokens": -1}, {"usd": -0.1}, {"seconds": -1}], ids=str)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Limits(**wrong)


# Templates


async def test_the_system_prompt_is_filled_from_the_run_and_the_agent() -> None:
    agent = agent_of(
        ["Hi."] * 3, system_prompt=Template("{role} in {city}, {{as is}}."), variables={"role": "Guide", "city": "Rome"}
    )
    await agent.call("Hi")
    await agent.call("Hi", variables={"city": "Oslo"})
    prompts = [request.messages[0].text for request in script_of(agent).requests]
    assert prompts == ["Guide in Rome, {as is}.", "Guide in Oslo, {as is}."]
    assert not any("Guide" in text for text in said(await valid_history(agent)))


MISSING: list[Callable[[], Any]] = [
    lambda: agent_of(["Hi."], system_prompt=Template("In {city}.")).call("Hi"),
    lambda: agent_of(["Hi."]).call(Template("In {city}.")),
]


@pytest.mark.parametrize("call", MISSING, ids=["system prompt", "input"])
async def test_a_missing_variable_is_an_error_that_names_it(call: Callable[[], Any]) -> None:
    with pytest.raises(TemplateError, match="needs the variable `city`; given: none"):
        await call()


async def test_input_that_is_plain_text_is_never_a_template() -> None:
    agent = agent_of(["Hi."])
    await agent.call("Print {city}, {x}.", variables={"city": "Rome"})
    assert said(await valid_history(agent))[0] == "user: Print {city}, {x}."


async def test_a_limit_in_dollars_needs_a_price() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    agent = agent_of([[tool_call("add", a=1, b=2)], "3"], add)
    with pytest.raises(InputError, match="price of `scripted` is not known"):
        await agent.call("Add.", limits=Limits(usd=1))
    await valid_history(agent)
