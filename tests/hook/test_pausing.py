"""Hooks that make a run wait or end: approvals bound to the final input, and stops before and after calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hook.support import ADD, ADD_TWICE, THREAD, Log, add, agent_of, lines, results, valid_history
from treadle import Approve, Edit, ReActAgent, Reject, Result, Toolkit
from treadle.event import PostActingEvent, PreActingEvent
from treadle.hook import post_acting, pre_acting
from treadle.journal import Journal, SQLiteStore
from treadle.testing import tool_call

# Approvals


async def ask_to_approve(agent: ReActAgent) -> Any:
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.pause is not None
    return reply.pause.calls


async def test_an_approval_is_bound_to_the_final_input(store: Journal) -> None:
    factors = iter([2, 3, 3])

    @pre_acting
    async def changes(event: PreActingEvent) -> None:
        event.input = {**event.input, "a": event.input["a"] * next(factors)}
        event.ask("Look twice.")

    agent = agent_of([ADD, "76"], changes, store=store)
    (wish,) = await ask_to_approve(agent)
    assert (wish.reason, wish.input) == ("Look twice.", {"a": 34, "b": 25})
    reply = await agent.resume(THREAD, {wish.id: Approve()})
    assert reply.pause is not None, "the input is another one now, so it asks again"
    assert [wish.input for wish in reply.pause.calls] == [{"a": 51, "b": 25}]
    assert "started c1" not in await lines(agent)
    reply = await agent.resume(THREAD, {wish.id: Approve()})
    assert results(await valid_history(agent)) == {"c1": "76"}
    assert reply.text == "76"


async def test_input_that_json_writes_differently_is_still_the_approved_one_after_a_restart(tmp_path: Path) -> None:
    def total(numbers: list[int]) -> int:
        """Add numbers."""
        return sum(numbers)

    @pre_acting
    async def changes(event: PreActingEvent) -> None:
        event.input = {"numbers": (1, 2)}
        event.ask()

    for decisions in (None, {"c1": Approve()}):
        store = SQLiteStore(tmp_path / "runs.db")
        agent = agent_of([[tool_call("total", id="c1", numbers=[])], "3"], changes, store=store, toolkit=[total])
        reply = await (agent.resume(THREAD, decisions) if decisions else agent.call("Hello", thread=THREAD))
        assert reply.reason == ("answered" if decisions else "paused")
        stored = results(await valid_history(agent, open_calls=not decisions))
        await store.close()
    assert stored == {"c1": "3"}


async def test_an_edit_is_the_last_word_about_the_input(store: Journal) -> None:
    @pre_acting
    async def doubles(event: PreActingEvent) -> None:
        event.input = {**event.input, "a": event.input["a"] * 2}
        event.ask()

    agent = agent_of([ADD, "3"], doubles, store=store)
    (wish,) = await ask_to_approve(agent)
    await agent.resume(THREAD, {wish.id: Edit({"a": 1, "b": 2})})
    history = await valid_history(agent)
    assert results(history) == {"c1": "3"}
    assert history[1].tool_calls[0].input == {"a": 17, "b": 25}
    assert (history[2].tool_results[0].metadata or {})["input"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("decision", "text", "status"),
    [
        (Reject("Too expensive."), "[ERROR] The call of `add` was rejected. Too expensive.", "rejected"),
        (Result("forty-two"), "forty-two", "ok"),
    ],
)
async def test_a_decision_may_take_the_place_of_the_tool(decision: Any, text: str, status: str) -> None:
    @pre_acting
    async def asks(event: PreActingEvent) -> None:
        event.ask()

    log = Log(PostActingEvent)
    agent = agent_of([ADD, "Hm."], asks, log)
    (wish,) = await ask_to_approve(agent)
    await agent.resume(THREAD, {wish.id: decision})
    result = (await valid_history(agent))[2].tool_results[0]
    assert (result.text, result.status) == (text, status)
    assert "started c1" not in await lines(agent)
    assert len(log.seen) == 1


# Stops


async def test_a_stop_before_a_call_lasts_until_the_run_is_resumed(store: Journal) -> None:
    @pre_acting
    async def stops(event: PreActingEvent) -> None:
        if event.call.id == "c2":
            event.stop()

    agent = agent_of([ADD_TWICE, "Done."], stops, store=store)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.reason == "stopped"
    assert reply.pause is not None
    assert [(wish.id, wish.kind, wish.name) for wish in reply.pause.wishes] == [("stop:c2", "breakpoint", "add")]
    assert {"started c1", "finished c1"} <= set(await lines(agent))
    assert "started c2" not in await lines(agent)
    reply = await agent.resume(THREAD)
    assert reply.reason == "answered"
    assert results(await valid_history(agent)) == {"c1": "2", "c2": "4"}


async def test_stops_before_several_calls_are_several_wishes() -> None:
    @pre_acting
    async def stops(event: PreActingEvent) -> None:
        event.stop()

    agent = agent_of([ADD_TWICE, "Done."], stops)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.wishes] == ["stop:c1", "stop:c2"]
    assert (await agent.resume(THREAD)).reason == "answered"


@pytest.mark.parametrize("which", ["c1", "c2"])
@pytest.mark.parametrize("parallel", [True, False])
async def test_a_stop_of_any_one_result_ends_the_run_with_all_results_stored(which: str, parallel: bool) -> None:
    @post_acting
    async def stops(event: PostActingEvent) -> None:
        if event.call.id == which:
            event.stop()

    agent = agent_of([ADD_TWICE, "Never asked."], stops, toolkit=Toolkit([add], parallel=parallel))
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert results(await valid_history(agent)) == {"c1": "2", "c2": "4"}


async def test_a_stop_survives_a_pause_of_a_sibling_and_a_restart(store: Journal) -> None:
    @post_acting
    async def stops(event: PostActingEvent) -> None:
        if event.call.id == "c1":
            event.stop()

    @pre_acting
    async def asks(event: PreActingEvent) -> None:
        if event.call.id == "c2":
            event.ask()

    def fresh() -> ReActAgent:
        return agent_of([ADD_TWICE, "Never asked."], stops, asks, store=store)

    (wish,) = await ask_to_approve(fresh())
    agent = fresh()
    reply = await agent.resume(THREAD, {wish.id: Approve()})
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert results(await valid_history(agent)) == {"c1": "2", "c2": "4"}
