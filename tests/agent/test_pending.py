"""Open calls: who may decide about them, what may be given for them, and what happens if a new message comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from agent.support import agent_of, died_now, kinds, records, said, script_of, valid_history
from treadle import Approve, Edit, Msg, ReActAgent, Reject, Result, Retry, Toolkit
from treadle.errors import DecisionError, InputError, PendingCallsError
from treadle.event import PostActingEvent, PreActingEvent
from treadle.hook import HumanInTheLoopHook, post_acting, pre_acting
from treadle.journal import Journal
from treadle.message import TextBlock, ToolResultBlock
from treadle.testing import tool_call
from treadle.tool import FunctionTool, Suspend, ToolContext, tool


class Desk:
    """Tools of an office, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def pay(self, amount: int) -> str:
        self.done.append(f"pay {amount}")
        return f"paid {amount}"

    def look(self, n: int) -> str:
        self.done.append(f"look {n}")
        return f"saw {n}"

    @property
    def toolkit(self) -> Toolkit:
        return Toolkit([tool(self.pay, approval=True), self.look])


PAY = tool_call("pay", "pay", amount=100)
LOOK = tool_call("look", "look", n=1)


async def waiting(desk: Desk, *more: Any, **options: Any) -> ReActAgent:
    """An agent that waits for approval of a payment, and has looked meanwhile."""
    agent = agent_of([[PAY, LOOK], *(more or ("Done.",))], toolkit=desk.toolkit, **options)
    reply = await agent.call("Pay.")
    assert (reply.reason, desk.done) == ("paused", ["look 1"])
    assert reply.pause is not None
    (wish,) = reply.pause.calls
    assert (wish.id, wish.kind, wish.name, wish.input) == ("pay", "approval", "pay", {"amount": 100})
    await valid_history(agent, open_calls=True)
    return agent


# Decisions


@dataclass(frozen=True)
class Decided:
    name: str
    decision: Any
    done: list[str]
    result: str
    status: str = "ok"
    metadata: Mapping[str, Any] | None = None


DECIDED = [
    Decided("approve", Approve(), ["look 1", "pay 100"], "paid 100"),
    Decided("edit", Edit({"amount": 5}), ["look 1", "pay 5"], "paid 5", metadata={"input": {"amount": 5}}),
    Decided("reject", Reject("Too much."), ["look 1"], "[ERROR] The call of `pay` was rejected. Too much.", "rejected"),
    Decided("reject, no reason", Reject(), ["look 1"], "[ERROR] The call of `pay` was rejected.", "rejected"),
    Decided("result", Result("paid by hand"), ["look 1"], "paid by hand"),
    Decided("blocks", Result([TextBlock(text="paid")], status="error"), ["look 1"], "paid", "error"),
]


@pytest.mark.parametrize("case", DECIDED, ids=lambda case: case.name)
async def test_a_decision_gives_the_call_its_one_result(case: Decided, store: Journal) -> None:
    desk = Desk()
    agent = await waiting(desk, store=store)
    reply = await agent.resume(agent.thread, {"pay": case.decision})
    assert (reply.text, reply.reason, desk.done) == ("Done.", "answered", case.done)
    history = await valid_history(agent)
    assert history[1].tool_calls == [PAY, LOOK]
    result, other = (msg.tool_results[0] for msg in history[2:4])
    assert (result.text.partition("\n")[0], result.status, result.metadata) == (case.result, case.status, case.metadata)
    assert other.text == "saw 1"


@dataclass(frozen=True)
class Refused:
    name: str
    decisions: Any
    error: type[Exception]
    text: str


REFUSED = [
    Refused("unknown call", {"nope": Approve()}, DecisionError, "No call 'nope' waits for a decision; waiting: 'pay'"),
    Refused("finished call", {"look": Approve()}, DecisionError, "look"),
    Refused("no decision", {"pay": "yes"}, DecisionError, "'yes' is no decision about call 'pay'"),
    Refused("retry", {"pay": Retry()}, DecisionError, "`Retry` does not fit call 'pay' (approval)"),
    Refused("edit", {"pay": Edit({"sum": 5})}, DecisionError, "The arguments of `pay` are not valid:\n- `amount`"),
    Refused("nothing", {}, InputError, "empty"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_a_decision_that_does_not_fit_is_refused_and_changes_nothing(case: Refused) -> None:
    desk = Desk()
    agent = await waiting(desk)
    before = await records(agent)
    with pytest.raises(case.error) as refused:
        await agent.resume(agent.thread, case.decisions)
    assert case.text in str(refused.value)
    assert await records(agent) == before
    assert (await agent.resume(agent.thread, {"pay": Approve()})).reason == "answered"


async def test_input_and_decisions_at_once_are_refused() -> None:
    agent = await waiting(Desk())
    with pytest.raises(InputError, match="not both"):
        await agent.call("And?", decisions={"pay": Approve()})


async def test_decisions_on_a_thread_that_waits_for_nothing_are_refused() -> None:
    agent = agent_of(["Hello."])
    await agent.call("Hi")
    with pytest.raises(DecisionError, match="waiting: nothing"):
        await agent.resume(agent.thread, {"pay": Approve()})


async def test_call_with_nothing_asks_again_and_runs_nothing_twice() -> None:
    desk = Desk()
    agent = await waiting(desk)
    reply = await agent.call()
    assert (reply.reason, desk.done) == ("paused", ["look 1"])
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.wishes] == ["pay"]


async def test_calls_may_be_decided_one_by_one(store: Journal) -> None:
    desk = Desk()
    calls = [tool_call("pay", f"pay-{n}", amount=n) for n in range(3)]
    agent = agent_of([calls, "Done."], toolkit=desk.toolkit, store=store)
    await agent.call("Pay.")
    reply = await agent.resume(agent.thread, {"pay-1": Approve()})
    assert reply.pause is not None
    assert ([wish.id for wish in reply.pause.calls], desk.done) == (["pay-0", "pay-2"], ["pay 1"])
    await agent.resume(agent.thread, {"pay-2": Approve()})
    reply = await agent.resume(agent.thread, {"pay-0": Reject()})
    assert (reply.text, desk.done) == ("Done.", ["pay 1", "pay 2"])
    statuses = [result.status for msg in await valid_history(agent) for result in msg.tool_results]
    assert statuses == ["rejected", "ok", "ok"]


async def test_an_approval_is_bound_to_the_final_input() -> None:
    amounts = [10, 10, 20, 20]

    @pre_acting(priority=1)
    async def change(event: PreActingEvent) -> None:
        if event.call.name == "pay":
            event.input = {"amount": amounts.pop(0)}

    desk = Desk()
    agent = agent_of([[PAY], "Done."], toolkit=desk.toolkit, hooks=[change])
    reply = await agent.call("Pay.")
    assert reply.pause is not None
    assert reply.pause.calls[0].input == {"amount": 10}
    amounts.pop(0)
    reply = await agent.resume(agent.thread, {"pay": Approve()})
    assert (reply.reason, desk.done) == ("paused", [])
    assert reply.pause is not None
    assert reply.pause.calls[0].input == {"amount": 20}
    reply = await agent.resume(agent.thread, {"pay": Approve()})
    assert (reply.text, desk.done) == ("Done.", ["pay 20"])
    history = await valid_history(agent)
    assert history[1].tool_calls[0].input == {"amount": 100}
    assert history[2].tool_results[0].metadata == {"input": {"amount": 20}}


async def test_an_approval_of_an_input_that_json_writes_differently_holds(store: Journal) -> None:
    @pre_acting(priority=1)
    async def pair(event: PreActingEvent) -> None:
        event.input = {"amounts": (1, 2)}

    @tool(approval=True)
    def pay(amounts: list[int]) -> str:
        return f"paid {sum(amounts)}"

    agent = agent_of([[tool_call("pay", "pay", amounts=[])], "Done."], pay, hooks=[pair], store=store)
    await agent.call("Pay.")
    fresh = agent_of([[], "Done."], pay, hooks=[pair], store=store)
    fresh.load_state(died_now(agent))
    assert (await fresh.resume(fresh.thread, {"pay": Approve()})).text == "Done."
    assert said(await valid_history(fresh))[2] == "tool: paid 3"


async def test_a_hook_may_ask_and_may_answer(store: Journal) -> None:
    @pre_acting
    async def answer(event: PreActingEvent) -> None:
        if event.call.name == "pay":
            event.answer("paid already")

    desk = Desk()
    hooks = [answer, HumanInTheLoopHook({"look": "Looking is private."})]
    agent = agent_of([[PAY, LOOK], "Done."], toolkit=desk.toolkit, hooks=hooks, store=store)
    reply = await agent.call("Go.")
    assert reply.pause is not None
    assert [(wish.id, wish.reason) for wish in reply.pause.calls] == [("look", "Looking is private.")]
    await agent.resume(agent.thread, {"look": Approve()})
    assert desk.done == ["look 1"]
    assert said(await valid_history(agent))[2:4] == ["tool: paid already", "tool: saw 1"]


# Tools that run elsewhere


BUTTON = FunctionTool.from_schema("button", "Press it.", {"type": "object", "properties": {}})


def suspends() -> str:
    raise Suspend("Ask at the counter.")


@pytest.mark.parametrize("given", [BUTTON, tool(suspends, name="button")], ids=["external", "suspend"])
async def test_a_tool_that_runs_elsewhere_waits_for_its_result(given: Any, store: Journal) -> None:
    agent = agent_of([[tool_call("button", "press")], "Pressed."], given, store=store)
    reply = await agent.call("Press.")
    assert reply.pause is not None
    assert (reply.reason, reply.pause.kind) == ("paused", "external")
    with pytest.raises(DecisionError, match="Result"):
        await agent.resume(agent.thread, {"press": Approve()})
    assert (await agent.call()).reason == "paused"
    reply = await agent.resume(agent.thread, {"press": Result("click")})
    assert reply.text == "Pressed."
    assert said(await valid_history(agent))[2] == "tool: click"


async def test_a_tool_that_suspended_can_be_asked_again(store: Journal) -> None:
    tries = [1]

    def pay() -> str:
        if tries:
            tries.pop()
            raise Suspend("Closed today.")
        return "paid"

    agent = agent_of([[tool_call("pay", "pay")], "Done."], pay, store=store)
    reply = await agent.call("Pay.")
    assert reply.pause is not None
    assert reply.pause.calls[0].reason == "Closed today."
    assert (await agent.resume(agent.thread, {"pay": Retry()})).text == "Done."
    assert said(await valid_history(agent))[2] == "tool: paid"


# Results from outside


def result(call: str, name: str = "button", output: str = "click") -> ToolResultBlock:
    return ToolResultBlock(id=call, name=name, output=output)


async def pressed(store: Journal | None = None) -> ReActAgent:
    """An agent that waits for the results of two buttons."""
    agent = agent_of(
        [[tool_call("button", "one"), tool_call("button", "two"), LOOK], "Done."], BUTTON, Desk().look, store=store
    )
    assert (await agent.call("Press.")).reason == "paused"
    return agent


async def test_results_for_all_open_calls_go_on(store: Journal) -> None:
    agent = await pressed(store)
    reply = await agent.call([result("two", output="2"), result("one", output="1")])
    assert reply.text == "Done."
    assert said(await valid_history(agent))[2:5] == ["tool: 1", "tool: 2", "tool: saw 1"]


async def test_results_for_some_calls_leave_the_rest_open(store: Journal) -> None:
    agent = await pressed(store)
    reply = await agent.call(Msg.tool(result("one")))
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.calls] == ["two"]
    assert (await agent.call(result("two"))).text == "Done."
    await valid_history(agent)


async def test_all_results_and_a_message_are_a_new_turn_with_the_right_names(store: Journal) -> None:
    agent = await pressed(store)
    reply = await agent.call([result("one", name=""), result("two"), Msg.user("Quick!")])
    assert reply.text == "Done."
    history = await valid_history(agent)
    assert said(history)[2:6] == ["tool: click", "tool: click", "tool: saw 1", "user: Quick!"]


RESULTS = [
    Refused("unknown", [result("three")], InputError, "No open call has the id 'three'; open: ['one', 'two']"),
    Refused("finished", [result("look", "look")], InputError, "'look'"),
    Refused("twice", [result("one"), result("one")], InputError, "Two results were given for call 'one'"),
    Refused("missing, and text", [result("one"), "Quick!"], InputError, "Calls ['two'] are still open"),
]


@pytest.mark.parametrize("case", RESULTS, ids=lambda case: case.name)
async def test_results_that_do_not_fit_are_refused_and_change_nothing(case: Refused) -> None:
    agent = await pressed()
    before = await records(agent)
    with pytest.raises(case.error) as refused:
        await agent.call(case.decisions)
    assert case.text in str(refused.value)
    assert await records(agent) == before
    await valid_history(agent, open_calls=True)


# A new message comes first


async def test_a_new_message_settles_open_calls_with_what_is_known(store: Journal) -> None:
    desk = Desk()
    agent = await waiting(desk, "Never mind.", store=store)
    reply = await agent.call("Forget it.")
    assert (reply.text, desk.done) == ("Never mind.", ["look 1"])
    assert said(await valid_history(agent))[2:5] == [
        "tool: [ERROR] Not run: a new message came first.",
        "tool: saw 1",
        "user: Forget it.",
    ]


async def test_a_new_message_can_be_refused_while_calls_are_open() -> None:
    desk = Desk()
    agent = await waiting(desk, on_pending="error")
    before = await records(agent)
    with pytest.raises(PendingCallsError, match="pay"):
        await agent.call("Forget it.")
    assert await records(agent) == before
    assert (await agent.resume(agent.thread, {"pay": Approve()})).text == "Done."


async def test_open_calls_are_found_in_the_whole_history() -> None:
    agent = agent_of(["Done."], Desk().look)
    await agent.observe([Msg.user("Look."), Msg.assistant(LOOK), Msg.user("Well?"), Msg.user("Hello?")])
    await agent.call()
    assert said(await valid_history(agent))[1:5] == ["assistant: look()", "tool: saw 1", "user: Well?", "user: Hello?"]


# Outcomes that nobody knows


class Crash:
    """An agent whose process dies while the second of its two calls runs."""

    def __init__(self, store: Journal, **options: Any) -> None:
        self.store = store
        self.runs = 0
        self.image: dict[str, Any] = {}
        self.options = options
        self.entered = asyncio.Event()
        self.hang = asyncio.Event()

    def agent(self, *, dies: bool) -> ReActAgent:
        async def send(text: str) -> str:
            self.runs += 1
            if dies:
                self.entered.set()
                await self.hang.wait()
            return f"sent {text}"

        calls = [tool_call("look", "look", n=1), tool_call("send", "send", text="hi")]
        kit = Toolkit([Desk().look, tool(send, **self.options)], parallel=False)
        return agent_of([calls, "Done."], toolkit=kit, store=self.store)

    async def die(self) -> ReActAgent:
        """Let one process die in the tool, and return the agent of the next one."""
        first = self.agent(dies=True)
        task = asyncio.ensure_future(first.call("Send.", thread="first"))
        await self.entered.wait()
        image = died_now(first, "first")
        task.cancel()
        await asyncio.wait([task])
        await valid_history(first, "first")
        second = self.agent(dies=False)
        second.load_state(image)
        self.runs = 0
        return second


async def test_a_call_of_unknown_outcome_is_not_run_again_but_asked_about(store: Journal) -> None:
    crash = Crash(store)
    agent = await crash.die()
    reply = await agent.call()
    assert reply.pause is not None
    assert [(wish.id, wish.kind) for wish in reply.pause.calls] == [("send", "unknown")]
    assert crash.runs == 0
    with pytest.raises(DecisionError, match="it may have run already"):
        await agent.resume(agent.thread, {"send": Approve()})
    with pytest.raises(DecisionError, match="Edit"):
        await agent.resume(agent.thread, {"send": Edit({"text": "ho"})})
    reply = await agent.resume(agent.thread, {"send": Retry()})
    assert (reply.text, crash.runs) == ("Done.", 1)
    assert said(await valid_history(agent))[2:4] == ["tool: saw 1", "tool: sent hi"]


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Result("sent, I saw it"), "sent, I saw it"),
        (Reject("Leave it."), "[ERROR] The call of `send` was rejected. Leave it."),
    ],
    ids=["result", "reject"],
)
async def test_an_unknown_outcome_can_be_decided_without_running(decision: Any, text: str, store: Journal) -> None:
    crash = Crash(store)
    agent = await crash.die()
    await agent.call()
    await agent.resume(agent.thread, {"send": decision})
    assert crash.runs == 0
    assert said(await valid_history(agent))[3] == f"tool: {text}"


async def test_an_unknown_outcome_can_be_decided_before_anybody_asked(store: Journal) -> None:
    crash = Crash(store)
    agent = await crash.die()
    with pytest.raises(DecisionError, match="unknown"):
        await agent.resume(agent.thread, {"send": Approve()})
    assert (await agent.resume(agent.thread, {"send": Retry()})).text == "Done."
    assert crash.runs == 1


async def test_a_call_that_is_safe_to_repeat_is_repeated(store: Journal) -> None:
    crash = Crash(store, idempotent=True)
    agent = await crash.die()
    assert (await agent.call()).text == "Done."
    assert crash.runs == 1
    await valid_history(agent)


async def test_a_new_message_after_a_crash_tells_no_lies(store: Journal) -> None:
    crash = Crash(store)
    agent = await crash.die()
    reply = await agent.call("Are you there?")
    assert (reply.text, crash.runs) == ("Done.", 0)
    history = await valid_history(agent)
    assert said(history)[2] == "tool: saw 1"
    result = history[3].tool_results[0]
    assert result.status == "unknown"
    assert "it may have taken effect, so check first" in result.text


async def test_a_result_from_outside_does_not_replace_that_of_a_call_that_finished(store: Journal) -> None:
    crash = Crash(store)
    agent = await crash.die()
    with pytest.raises(InputError, match="'look'"):
        await agent.call([result("look", "look", "a lie"), result("send", "send", "sent")])
    await agent.call([result("send", "send", "sent"), Msg.user("Go on.")])
    assert said(await valid_history(agent))[2:4] == ["tool: saw 1", "tool: sent"]


async def test_hooks_run_again_for_a_finished_call_whose_hooks_did_not_finish(store: Journal) -> None:
    ran: list[int] = []
    entered, hang = asyncio.Event(), asyncio.Event()

    def note() -> str:
        ran.append(1)
        return "raw"

    @post_acting
    async def slow(event: PostActingEvent) -> None:
        entered.set()
        await hang.wait()

    @post_acting
    async def fast(event: PostActingEvent) -> None:
        import dataclasses

        event.result = dataclasses.replace(event.result, output="refined")

    script = [[tool_call("note", "note")], "Done."]
    first = agent_of(script, note, hooks=[slow], store=store)
    task = asyncio.ensure_future(first.call("Go.", thread="first"))
    await entered.wait()
    image = died_now(first, "first")
    task.cancel()
    await asyncio.wait([task])
    await valid_history(first, "first")
    second = agent_of(script, note, hooks=[fast], store=store)
    second.load_state(image)
    assert (await second.call()).text == "Done."
    assert (ran, said(await valid_history(second))[2]) == ([1], "tool: refined")


async def test_input_that_no_hook_has_seen_when_the_process_died_is_not_lost(store: Journal) -> None:
    from treadle.event import PreCallEvent
    from treadle.hook import pre_call

    entered, hang = asyncio.Event(), asyncio.Event()

    @pre_call
    async def slow(event: PreCallEvent) -> None:
        entered.set()
        await hang.wait()

    seen: list[str] = []

    @pre_call
    async def look(event: PreCallEvent) -> None:
        seen.extend(msg.text for msg in event.messages)

    first = agent_of(["Never."], hooks=[slow], store=store)
    task = asyncio.ensure_future(first.call("One", thread="first"))
    await entered.wait()
    image = died_now(first, "first")
    task.cancel()
    await asyncio.wait([task])
    second = agent_of(["Both."], hooks=[look], store=store)
    second.load_state(image)
    await second.call("Two")
    assert seen == ["One", "Two"]
    assert said(await valid_history(second)) == ["user: One", "user: Two", "assistant: Both."]
    third = agent_of(["One only."], hooks=[look], store=store)
    third.load_state(image)
    await third.call()
    assert said(await valid_history(third)) == ["user: One", "assistant: One only."]


async def test_records_of_an_approval_say_who_decided_what(store: Journal) -> None:
    agent = await waiting(Desk(), store=store)
    await agent.resume(agent.thread, {"pay": Edit({"amount": 5})})
    found = await records(agent)
    assert kinds(found) == [
        "input",
        "update",
        "started",
        "finished",
        "paused",
        "resumed",
        "started",
        "finished",
        "update",
        "update",
        "ended",
    ]
    assert found[5]["answers"] == {"pay": {"decision": "edit", "input": {"amount": 5}}}
    assert found[6] == {"v": 1, "kind": "started", "call": "pay", "input": {"amount": 5}}
    assert script_of(agent).left == 0


async def test_the_tool_sees_the_same_call_id_when_it_is_retried(store: Journal) -> None:
    ids: list[str] = []

    class Keyed(Crash):
        def agent(self, *, dies: bool) -> ReActAgent:
            async def send(text: str, ctx: ToolContext) -> str:
                ids.append(ctx.call_id)
                if dies:
                    self.entered.set()
                    await self.hang.wait()
                return text

            return agent_of([[tool_call("send", text="hi")], "Done."], send, store=self.store)

    agent = await Keyed(store).die()
    reply = await agent.call()
    assert reply.pause is not None
    await agent.resume(agent.thread, {reply.pause.calls[0].id: Retry()})
    assert len(ids) == 2
    assert ids[0] == ids[1]


async def test_resuming_a_turn_that_has_ended_returns_its_reply_and_changes_nothing(store: Journal) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    agent = agent_of([[tool_call("add", a=1, b=2)], "It is 3."], add, store=store)
    first = await agent.call("Add.", thread="t")
    stored = await agent.journal.read("t")
    again = await agent.resume("t")
    assert (again.text, again.reason, again.usage) == (first.text, "answered", first.usage)
    assert await agent.journal.read("t") == stored


async def test_resuming_an_interrupted_turn_goes_on_with_it(store: Journal) -> None:
    agent = agent_of([[tool_call("halt")], "Done."], store=store)

    @agent.toolkit.tool
    async def halt() -> str:
        agent.interrupt(thread="t")
        return "halting"

    assert (await agent.call("Go.", thread="t")).reason == "interrupted"
    assert (await agent.resume("t")).text == "Done."
    await valid_history(agent, "t")
