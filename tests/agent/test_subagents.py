"""An agent as a tool of another: a thread of its own, pauses that come up, answers that go down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.support import agent_of, died_now, names, read_all, said, valid_history
from treadle import Approve, Context, Edit, ReActAgent, Reject, Retry
from treadle.errors import DecisionError
from treadle.event import ReasoningChunkEvent
from treadle.journal import Journal
from treadle.testing import ScriptedModel, tool_call
from treadle.tool import Toolkit, tool


class Office:
    """A boss who asks a clerk, who pays; `paid` says how often."""

    def __init__(self, store: Journal | None = None, *, approval: bool = True) -> None:
        self.paid: list[int] = []
        self.clerk_model = ScriptedModel([[tool_call("pay", "pay", amount=5)], "Paid 5."])
        self.boss_model = ScriptedModel([[tool_call("ask", "ask", message="Pay 5.")], "All done."])
        inner: Any = tool(self.pay, approval=approval)
        self.clerk = agent_of(self.clerk_model, inner, name="Clerk")
        self.boss = agent_of(self.boss_model, self.clerk.as_tool(name="ask"), name="Boss", store=store)

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        return f"paid {amount}"


async def test_a_sub_agent_works_on_a_thread_below_the_callers(store: Journal) -> None:
    office = Office(store, approval=False)
    reply = await office.boss.call("Go.", thread="t")
    assert (reply.text, office.paid) == ("All done.", [5])
    history = await valid_history(office.boss, "t")
    assert said(history) == ["user: Go.", "assistant: ask()", "tool: Paid 5.", "assistant: All done."]
    assert history[2].tool_results[0].metadata == {
        "reason": "answered",
        "thread": "t/ask",
        "usage": {"requests": 2},
    }
    assert reply.usage.requests == 4, "what a sub-agent uses is its caller's too"
    below = await valid_history(office.boss, "t/ask")
    assert said(below) == ["user: Pay 5.", "assistant: pay()", "tool: paid 5", "assistant: Paid 5."]
    assert below[0].name == "Boss"


async def test_a_nested_pause_comes_up_and_the_answer_goes_down(store: Journal) -> None:
    office = Office(store)
    reply = await office.boss.call("Go.")
    assert reply.pause is not None
    (wish,) = reply.pause.calls
    assert (wish.id, wish.kind, wish.name, wish.input, wish.path) == (
        "ask/pay",
        "approval",
        "pay",
        {"amount": 5},
        ("ask",),
    )
    with pytest.raises(DecisionError):
        await office.boss.resume(office.boss.thread, {"pay": Approve()})
    with pytest.raises(DecisionError):
        await office.boss.resume(office.boss.thread, {"ask/pay": Retry()})
    reply = await office.boss.resume(office.boss.thread, {"ask/pay": Edit({"amount": 4})})
    assert (reply.text, office.paid) == ("All done.", [4])
    await valid_history(office.boss)
    await valid_history(office.boss, f"{office.boss.thread}/ask")
    assert (len(office.clerk_model.requests), len(office.boss_model.requests)) == (2, 2)


async def test_call_with_nothing_leaves_a_nested_pause_as_it_is() -> None:
    office = Office()
    await office.boss.call("Go.")
    reply = await office.boss.call()
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.calls] == ["ask/pay"]
    assert len(office.clerk_model.requests) == 1


async def test_a_new_message_while_a_sub_agent_waits_settles_its_call() -> None:
    office = Office()
    await office.boss.call("Go.")
    reply = await office.boss.call("Never mind.")
    assert (reply.text, office.paid) == ("All done.", [])
    result = (await valid_history(office.boss))[2].tool_results[0]
    assert result.status in ("interrupted", "unknown")


async def test_pauses_come_up_through_two_levels_and_from_two_children(store: Journal) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    kit = Toolkit([tool(pay, approval=True)])
    clerk = agent_of([[tool_call("pay", "pay", amount=1)], "Paid."], toolkit=kit, name="Clerk")
    lead = agent_of(
        [[tool_call("clerk", "one", message="Pay."), tool_call("clerk", "two", message="Pay.")], "Led."],
        clerk.as_tool(name="clerk"),
        name="Lead",
    )
    boss = agent_of([[tool_call("lead", "lead", message="Go.")], "Done."], lead.as_tool(name="lead"), store=store)
    reply = await boss.call("Go.")
    assert reply.pause is not None
    assert [(wish.id, wish.path) for wish in reply.pause.calls] == [
        ("lead/one/pay", ("lead", "clerk")),
        ("lead/two/pay", ("lead", "clerk")),
    ]
    reply = await boss.resume(boss.thread, {"lead/two/pay": Approve()})
    assert reply.pause is not None
    assert ([wish.id for wish in reply.pause.calls], paid) == (["lead/one/pay"], [1])
    reply = await boss.resume(boss.thread, {"lead/one/pay": Reject("No.")})
    assert (reply.text, paid) == ("Done.", [1])
    for thread in ("", "/lead", "/lead/one", "/lead/two"):
        await valid_history(boss, f"{boss.thread}{thread}")


async def test_after_a_crash_the_child_is_resumed_and_not_repeated(store: Journal) -> None:
    entered, hang = asyncio.Event(), asyncio.Event()
    steps: list[str] = []

    def team(*, dies: bool) -> tuple[ReActAgent, ScriptedModel]:
        async def first() -> str:
            steps.append("first")
            return "1"

        async def second() -> str:
            steps.append("second")
            if dies:
                entered.set()
                await hang.wait()
            return "2"

        model = ScriptedModel([[tool_call("first")], [tool_call("second")], "Both."])
        child = agent_of(model, first, tool(second, idempotent=True), name="Clerk")
        boss = agent_of([[tool_call("ask", "ask", message="Go.")], "Done."], child.as_tool(name="ask"), store=store)
        return boss, model

    boss, _ = team(dies=True)
    task = asyncio.ensure_future(boss.call("Go.", thread="one"))
    await entered.wait()
    image = died_now(boss, "one")
    task.cancel()
    await asyncio.wait([task])
    await valid_history(boss, "one")
    await valid_history(boss, "one/ask")
    assert steps == ["first", "second"]
    boss, model = team(dies=False)
    boss.load_state(image, thread="two")
    assert (await boss.call(thread="two")).text == "Done."
    assert steps == ["first", "second", "second"]
    assert len(model.requests) == 1
    await valid_history(boss, "two")
    await valid_history(boss, "two/ask")


async def test_an_interrupt_now_reaches_the_child(store: Journal) -> None:
    entered, hang = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        entered.set()
        await hang.wait()
        return "never"

    child = agent_of([[tool_call("wait")], "Never."], wait, name="Clerk")
    boss = agent_of([[tool_call("ask", "ask", message="Go.")], "On."], child.as_tool(name="ask"), store=store)
    task = asyncio.ensure_future(boss.call("Go.", thread="t"))
    await entered.wait()
    await boss.interrupt("Stop.", thread="t", when="now")
    assert (await task).text == "Stop."
    await valid_history(boss, "t")
    below = await valid_history(boss, "t/ask")
    assert [result.status for msg in below for result in msg.tool_results] == ["interrupted"]


async def test_a_child_that_fails_is_an_error_result_of_its_call(store: Journal) -> None:
    child = agent_of([ConnectionError("reset")], name="Clerk")
    boss = agent_of([[tool_call("ask", "ask", message="Go.")], "It failed."], child.as_tool(name="ask"), store=store)
    assert (await boss.call("Go.", thread="t")).text == "It failed."
    result = (await valid_history(boss, "t"))[2].tool_results[0]
    assert (result.status, result.text) == ("error", "[ERROR] `ask` failed: ConnectionError: reset")
    await valid_history(boss, "t/ask")


async def test_a_child_that_somebody_interrupts_is_told_to_the_caller() -> None:
    entered, hang = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        entered.set()
        await hang.wait()
        return "never"

    child = agent_of([[tool_call("wait")], "Never."], wait, name="Clerk")
    boss = agent_of([[tool_call("ask", "ask", message="Go.")], "I see."], child.as_tool(name="ask"))
    task = asyncio.ensure_future(boss.call("Go.", thread="t"))
    await entered.wait()
    await boss.interrupt(thread="t/ask", when="now")
    assert (await task).text == "I see."
    result = (await valid_history(boss, "t"))[2].tool_results[0]
    assert result.status == "interrupted"
    assert "[ERROR] `ask` was interrupted" in result.text


async def test_events_of_a_child_come_with_their_path() -> None:
    office = Office(approval=False)
    events = await read_all(office.boss.stream("Go."))
    below = [event for event in events if event.source.path == ("ask",)]
    assert names(below)[0] == "RunStarted"
    assert names(below)[-1] == "RunEnded"
    assert {event.source.agent for event in below} == {"Clerk"}
    own = [event for event in events if not event.source.path]
    assert {event.source.agent for event in own} == {"Boss"}
    assert all(event.source.parent == own[0].source.run for event in below)
    text = "".join(event.text for event in below if isinstance(event, ReasoningChunkEvent))
    assert text == "Paid 5."


async def test_the_context_goes_down_and_the_child_keeps_no_state_of_its_own() -> None:
    class User:
        pass

    seen: list[User] = []

    def who(user: User) -> str:
        seen.append(user)
        return "ok"

    child = agent_of([[tool_call("who")], "Known."], who, name="Clerk")
    boss = agent_of([[tool_call("ask", message="Who?")], "Done."], child.as_tool(name="ask"))
    user = User()
    await boss.call("Go.", context=Context(user))
    assert seen == [user]
    assert await child.history() == []


async def test_one_child_serves_two_calls_at_once() -> None:
    together = asyncio.Barrier(2)

    async def meet() -> str:
        await together.wait()
        return "met"

    child = agent_of([[tool_call("meet")], "Met."], meet, name="Clerk")
    calls = [tool_call("ask", "one", message="Go."), tool_call("ask", "two", message="Go.")]
    boss = agent_of([calls, "Done."], child.as_tool(name="ask"))
    assert (await boss.call("Go.")).text == "Done."
    assert [msg.tool_results[0].text for msg in (await valid_history(boss))[2:4]] == ["Met.", "Met."]


def test_an_agents_tool_has_a_name_and_a_description_that_providers_take() -> None:
    agent = agent_of(["Hi."], name="Büro 7", description="Pays invoices.")
    made = agent.as_tool()
    assert (made.name, made.description) == ("ask_b_ro_7", "Pays invoices.")
