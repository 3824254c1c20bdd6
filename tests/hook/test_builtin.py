"""The built-in hooks: `InterruptionHook` and `HumanInTheLoopHook`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hook.support import ADD, ADD_TWICE, THREAD, agent_of, lines, model_of, on_disk, results, valid_history
from treadle import Approve, Edit, Msg, ReActAgent, Reject, Result
from treadle.errors import DecisionError, ModelError
from treadle.event import PreActingEvent, PreReasoningEvent
from treadle.hook import HumanInTheLoopHook, InterruptionHook, post_acting, pre_acting, pre_reasoning
from treadle.journal import Journal, SQLiteStore
from treadle.testing import tool_call

# InterruptionHook


def asking(hook: InterruptionHook, *messages: Msg) -> Any:
    """A tool during which somebody asks the hook for something."""

    def work() -> str:
        """Do something."""
        hook.request(THREAD, messages)
        return "done"

    return work


WORK = [tool_call("work", id="c1")]


async def test_a_request_stops_the_agent_before_its_next_model_call() -> None:
    hook = InterruptionHook()
    agent = agent_of([WORK, "Never asked."], hook, toolkit=[asking(hook)])
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert results(await valid_history(agent)) == {"c1": "done"}
    assert len(model_of(agent).requests) == 1


async def test_a_stopped_agent_goes_on_when_it_is_called_again() -> None:
    hook = InterruptionHook()
    agent = agent_of([WORK, "Done."], hook, toolkit=[asking(hook)])
    await agent.call("Hello", thread=THREAD)
    assert (await agent.call(thread=THREAD)).text == "Done."


async def test_a_request_with_messages_adds_them_and_the_agent_goes_on(store: Journal) -> None:
    hook = InterruptionHook()
    agent = agent_of([WORK, "Done."], hook, toolkit=[asking(hook, Msg.user("Hurry up."))], store=store)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.text == "Done."
    assert [msg.text for msg in await valid_history(agent)][-2:] == ["Hurry up.", "Done."]
    assert model_of(agent).requests[1].messages[-1].text == "Hurry up."


async def test_a_request_is_answered_once_and_only_in_its_thread() -> None:
    hook = InterruptionHook()
    agent = agent_of(["One.", "Two."], hook)
    hook.request("other")
    assert (await agent.call("Hello", thread=THREAD)).reason == "answered"
    assert (await agent.call("Hello", thread="other")).reason == "stopped"
    assert (await agent.call("Hello", thread="other")).reason == "answered"


async def test_a_stop_is_not_forgotten_over_messages() -> None:
    hook = InterruptionHook()
    hook.request(THREAD, [Msg.user("One.")])
    hook.request(THREAD)
    hook.request(THREAD, [Msg.user("Two.")])
    agent = agent_of(["Never asked."], hook)
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.reason == "stopped"
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "One.", "Two."]


async def test_injected_messages_are_not_lost_when_the_model_fails() -> None:
    hook = InterruptionHook()
    hook.request(THREAD, [Msg.user("Hurry up.")])
    agent = agent_of([ModelError("overloaded"), "Done."], hook)
    with pytest.raises(ModelError):
        await agent.call("Hello", thread=THREAD)
    await agent.call(thread=THREAD)
    assert [msg.text for msg in await valid_history(agent)] == ["Hello", "Hurry up.", "Done."]


async def test_it_comes_before_hooks_that_would_do_work_for_nothing() -> None:
    hook = InterruptionHook()
    hook.request(THREAD)
    seen: list[bool] = []

    @pre_reasoning
    async def looks(event: PreReasoningEvent) -> None:
        seen.append(event.stopped)

    await agent_of(["Never asked."], looks, hook).call("Hello", thread=THREAD)
    assert seen == [True]


# HumanInTheLoopHook


async def paused(agent: ReActAgent) -> Any:
    reply = await agent.call("Hello", thread=THREAD)
    assert reply.reason == "paused"
    assert reply.pause is not None
    return reply.pause.calls


@pytest.mark.parametrize(
    ("decision", "text", "ran"),
    [
        (Approve(), "42", True),
        (Edit({"a": 1, "b": 1}), "2", True),
        (Reject("No."), "[ERROR] The call of `add` was rejected. No.", False),
        (Result("forty-two"), "forty-two", False),
    ],
    ids=["approve", "edit", "reject", "result"],
)
async def test_a_person_approves_edits_or_rejects_after_a_restart(
    decision: Any, text: str, ran: bool, tmp_path: Path
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    agent = agent_of([ADD, "Done."], HumanInTheLoopHook(["add"]), store=store)
    (wish,) = await paused(agent)
    assert (wish.kind, wish.name, wish.input) == ("approval", "add", {"a": 17, "b": 25})
    assert wish.reason == "`add` needs approval."
    assert "started c1" not in await lines(agent)
    await store.close()

    store = SQLiteStore(tmp_path / "runs.db")
    agent = agent_of([ADD, "Done."], HumanInTheLoopHook(["add"]), store=store)
    reply = await agent.resume(THREAD, {"c1": decision})
    assert reply.text == "Done."
    assert results(await valid_history(agent)) == {"c1": text}
    assert ("started c1" in await lines(agent)) is ran
    await store.close()


async def test_only_the_named_tools_wait_and_the_others_run_meanwhile() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    calls = [tool_call("look", id="c1"), tool_call("delete", id="c2")]

    def delete() -> str:
        """Delete everything."""
        return "deleted"

    agent = agent_of([calls, "Done."], HumanInTheLoopHook(["delete"]), toolkit=[look, delete])
    wishes = await paused(agent)
    assert [wish.id for wish in wishes] == ["c2"]
    assert "finished c1" in await lines(agent)
    await agent.resume(THREAD, {"c2": Approve()})
    assert results(await valid_history(agent)) == {"c1": "seen", "c2": "deleted"}


def is_large(input: Mapping[str, Any]) -> bool:
    return input["a"] > 1


def why(input: Mapping[str, Any]) -> bool | str:
    return f"{input['a']} is a lot." if input["a"] > 1 else False


@pytest.mark.parametrize(
    ("tools", "asked"),
    [
        ("add", {"c1": "`add` needs approval.", "c2": "`add` needs approval."}),
        ({"add": True}, {"c1": "`add` needs approval.", "c2": "`add` needs approval."}),
        ({"add": "It costs money."}, {"c1": "It costs money.", "c2": "It costs money."}),
        ({"add": is_large}, {"c2": "`add` needs approval."}),
        ({"add": why}, {"c2": "2 is a lot."}),
        ({"add": False}, {}),
        (["other"], {}),
        ([], {}),
    ],
)
async def test_who_is_asked_and_what_for(tools: Any, asked: dict[str, str]) -> None:
    agent = agent_of([ADD_TWICE, "Done."], HumanInTheLoopHook(tools))
    reply = await agent.call("Hello", thread=THREAD)
    wishes = reply.pause.wishes if reply.pause is not None else ()
    assert {wish.id: wish.reason for wish in wishes} == asked


async def test_a_person_sees_the_input_as_other_hooks_left_it() -> None:
    @pre_acting
    async def doubles(event: PreActingEvent) -> None:
        event.input = {**event.input, "a": event.input["a"] * 2}

    agent = agent_of([ADD, "Done."], HumanInTheLoopHook({"add": lambda input: input["a"] == 34}), doubles)
    (wish,) = await paused(agent)
    assert wish.input == {"a": 34, "b": 25}


async def test_calls_are_decided_one_by_one() -> None:
    agent = agent_of([ADD_TWICE, "Done."], HumanInTheLoopHook(["add"]))
    await paused(agent)
    reply = await agent.resume(THREAD, {"c1": Reject()})
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.calls] == ["c2"]
    await agent.resume(THREAD, {"c2": Approve()})
    assert results(await valid_history(agent)) == {"c1": "[ERROR] The call of `add` was rejected.", "c2": "4"}


async def test_what_is_no_decision_is_refused_and_the_thread_still_waits() -> None:
    agent = agent_of([ADD, "Done."], HumanInTheLoopHook(["add"]))
    await paused(agent)
    decisions: Any = {"c1": "yes"}
    with pytest.raises(DecisionError, match="no decision about call 'c1'"):
        await agent.resume(THREAD, decisions)
    assert (await agent.resume(THREAD, {"c1": Approve()})).reason == "answered"


async def test_an_approval_does_not_count_for_the_next_call() -> None:
    agent = agent_of([ADD, [tool_call("add", id="c2", a=17, b=25)], "Done."], HumanInTheLoopHook(["add"]))
    await paused(agent)
    reply = await agent.resume(THREAD, {"c1": Approve()})
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.calls] == ["c2"]


async def test_the_edited_input_is_what_results_tell_and_the_message_stays(store: Journal) -> None:
    seen: list[Any] = []

    @post_acting
    async def looks(event: Any) -> None:
        seen.append(event.result.metadata)

    agent = agent_of([ADD, "Done."], HumanInTheLoopHook(["add"]), looks, store=store)
    await paused(agent)
    await agent.resume(THREAD, {"c1": Edit({"a": 1, "b": 1})})
    assert seen == [{"input": {"a": 1, "b": 1}}]
    assert (await valid_history(agent))[1].tool_calls[0].input == {"a": 17, "b": 25}
    assert '"a":1,"b":1' in await on_disk(agent)
