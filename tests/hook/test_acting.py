"""Hooks around tool calls: the order of acting, what is on the disk when, approvals, stops, and `around_tool`."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hook.support import (
    ADD,
    THREAD,
    Log,
    add,
    agent_of,
    died_now,
    lines,
    on_disk,
    results,
    short,
    valid_history,
)
from treadle import Hook, ReActAgent
from treadle.event import ActingChunkEvent, Event, PostActingEvent, PreActingEvent
from treadle.graph import Run
from treadle.hook import CallTool, ToolCall, around_tool, post_acting, pre_acting
from treadle.journal import FinishedRecord, Journal, SettledRecord, StartedRecord
from treadle.message import ToolResultBlock, ToolUseBlock
from treadle.testing import FaultyJournal, ScriptedModel, tool_call
from treadle.tool import Tool, ToolContext, ToolResult, tool

# The order


class Steps(Hook):
    """Writes down, for each step of a call, what the journal holds at that moment."""

    events = (PreActingEvent, PostActingEvent)

    def __init__(self) -> None:
        self.agent: ReActAgent | None = None
        self.steps: list[tuple[str, list[str]]] = []

    async def note(self, step: str) -> None:
        assert self.agent is not None
        stored = [short(record) for record in await self.agent.journal.read(THREAD)]
        self.steps.append((step, [line for line in stored if line.endswith(" c1")]))

    async def on_event(self, event: Event) -> None:
        await self.note(type(event).__name__)

    async def around_tool(self, call: ToolCall, call_next: CallTool) -> ToolResult:
        await self.note("around_tool, before")
        result = await call_next(call)
        await self.note("around_tool, after")
        return result


async def test_every_step_of_a_call_is_recorded_before_the_next_one_begins(store: Journal) -> None:
    hook = Steps()

    class Checked(Tool):
        name = "add"

        def validate(self, input: Any) -> dict[str, Any]:
            hook.steps.append(("validate", []))
            return dict(input)

        def needs_approval(self, input: Any) -> bool:
            hook.steps.append(("permission", []))
            return False

        async def run(self, arguments: Any, ctx: ToolContext) -> ToolResult:
            await hook.note("the tool")
            return ToolResult(output="42")

    hook.agent = agent = agent_of([ADD, "42"], hook, store=store, toolkit=[Checked()])
    await agent.call("Hello", thread=THREAD)
    assert hook.steps == [
        ("PreActingEvent", []),
        ("validate", []),
        ("permission", []),
        ("around_tool, before", ["started c1"]),
        ("the tool", ["started c1"]),
        ("around_tool, after", ["started c1"]),
        ("PostActingEvent", ["started c1", "finished c1"]),
    ]
    assert await lines(agent) == [
        "input",
        "update model",
        "started c1",
        "finished c1",
        "settled c1",
        "update tools",
        "update model",
        "ended answered",
    ]


async def test_the_finished_record_holds_the_raw_result_and_the_settled_one_what_a_hook_made_of_it(
    store: Journal,
) -> None:
    @post_acting
    async def shortens(event: PostActingEvent) -> None:
        event.result = dataclasses.replace(event.result, output="forty-two")

    agent = agent_of([ADD, "42"], shortens, store=store)
    await agent.call("Hello", thread=THREAD)
    stored = await agent.journal.read(THREAD)
    finished = next(record for record in stored if isinstance(record, FinishedRecord))
    settled = next(record for record in stored if isinstance(record, SettledRecord))
    assert (output_of(finished.result), output_of(settled.result)) == ("42", "forty-two")
    assert results(await valid_history(agent)) == {"c1": "forty-two"}


def output_of(result: Any) -> Any:
    """The output in a record, whether it comes from memory or from the disk."""
    return result.output if isinstance(result, ToolResultBlock) else result["output"]


async def test_a_result_that_no_hook_changed_is_stored_once(store: Journal) -> None:
    agent = agent_of([ADD, "42"], Log(PostActingEvent), store=store)
    await agent.call("Hello", thread=THREAD)
    settled = [record for record in await agent.journal.read(THREAD) if isinstance(record, SettledRecord)]
    assert [record.result for record in settled] == [None]


async def test_without_a_hook_for_results_there_is_no_settled_record() -> None:
    agent = agent_of([ADD, "42"], Log(PreActingEvent))
    await agent.call("Hello", thread=THREAD)
    assert "settled c1" not in await lines(agent)


# The input


async def test_changed_input_is_in_the_started_record_and_the_results_metadata_and_the_message_stays(
    store: Journal,
) -> None:
    @pre_acting
    async def doubles(event: PreActingEvent) -> None:
        event.input = {**event.input, "a": event.input["a"] * 2}

    agent = agent_of([ADD, "59"], doubles, store=store)
    await agent.call("Hello", thread=THREAD)
    history = await valid_history(agent)
    assert history[1].tool_calls[0].input == {"a": 17, "b": 25}
    assert results(history) == {"c1": "59"}
    assert (history[2].tool_results[0].metadata or {})["input"] == {"a": 34, "b": 25}
    started = [record for record in await agent.journal.read(THREAD) if isinstance(record, StartedRecord)]
    assert [record.input for record in started] == [{"a": 34, "b": 25}]


async def test_input_that_is_changed_in_place_changes_the_call_and_not_the_message() -> None:
    def total(numbers: list[int]) -> int:
        """Add numbers."""
        return sum(numbers)

    @pre_acting
    async def adds(event: PreActingEvent) -> None:
        event.input["numbers"].append(10)

    agent = agent_of([[tool_call("total", id="c1", numbers=[1, 2])], "13"], adds, toolkit=[total])
    await agent.call("Hello", thread=THREAD)
    history = await valid_history(agent)
    assert history[1].tool_calls[0].input == {"numbers": [1, 2]}
    assert results(history) == {"c1": "13"}


async def test_unchanged_input_is_stored_with_the_message_alone() -> None:
    agent = agent_of([ADD, "42"], Log(PreActingEvent))
    await agent.call("Hello", thread=THREAD)
    started = [record for record in await agent.journal.read(THREAD) if isinstance(record, StartedRecord)]
    assert [record.input for record in started] == [None]
    assert (await agent.history(THREAD))[2].tool_results[0].metadata is None


async def test_changed_input_is_validated() -> None:
    @pre_acting
    async def breaks(event: PreActingEvent) -> None:
        event.input = {"a": "many"}

    agent = agent_of([ADD, "Hm."], breaks)
    await agent.call("Hello", thread=THREAD)
    assert "The arguments of `add` are not valid" in results(await valid_history(agent))["c1"]
    assert "started c1" not in await lines(agent)


async def test_arguments_that_were_no_json_stay_an_error_although_a_hook_looks_at_them() -> None:
    broken = ToolUseBlock(id="c1", name="add", input={}, raw="{a: 17")
    agent = agent_of([[broken], "Hm."], Log(PreActingEvent))
    await agent.call("Hello", thread=THREAD)
    assert "The arguments are not a JSON object" in results(await valid_history(agent))["c1"]


async def test_a_hook_can_repair_arguments_that_were_no_json() -> None:
    @pre_acting
    async def repairs(event: PreActingEvent) -> None:
        if event.call.raw:
            event.input = {"a": 17, "b": 25}

    broken = ToolUseBlock(id="c1", name="add", input={}, raw="{a: 17")
    agent = agent_of([[broken], "42"], repairs)
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "42"}


# Answers without running


async def test_a_hook_can_answer_a_call_without_running_it(store: Journal) -> None:
    @pre_acting
    async def answers(event: PreActingEvent) -> None:
        event.answer("from the cache")

    log = Log(PostActingEvent)
    agent = agent_of([ADD, "42"], answers, log, store=store)
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "from the cache"}
    assert [line for line in await lines(agent) if line.endswith(" c1")] == ["finished c1", "settled c1"]
    assert len(log.seen) == 1


async def test_an_answer_may_say_that_it_is_an_error() -> None:
    @pre_acting
    async def refuses(event: PreActingEvent) -> None:
        event.answer("[ERROR] Not on weekends.", status="rejected")

    agent = agent_of([ADD, "Hm."], refuses)
    await agent.call("Hello", thread=THREAD)
    assert (await valid_history(agent))[2].tool_results[0].status == "rejected"


async def test_an_answer_and_a_stop_are_both_heard() -> None:
    @pre_acting
    async def answers(event: PreActingEvent) -> None:
        event.answer("Enough.")
        event.stop()

    agent = agent_of([ADD, "Never asked."], answers)
    reply = await agent.call("Hello", thread=THREAD)
    assert (reply.reason, reply.pause) == ("stopped", None)
    assert results(await valid_history(agent)) == {"c1": "Enough."}


# around_tool


async def test_what_around_tool_removes_is_never_on_the_disk(store: Journal) -> None:
    def login() -> str:
        """Log in."""
        return "token=4711"

    @around_tool
    async def redacts(call: ToolCall, call_next: CallTool) -> ToolResult:
        result = await call_next(call)
        return dataclasses.replace(result, output=str(result.output).replace("4711", "****"))

    log = Log()
    agent = agent_of([[tool_call("login", id="c1")], "Done."], redacts, log, store=store, toolkit=[login])
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "token=****"}
    assert "4711" not in await on_disk(agent)
    posted = next(event for event in log.seen if isinstance(event, PostActingEvent))
    assert posted.result.text == "token=****"


class Posted(FaultyJournal):
    """A journal that says when a note was left."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.posted = threading.Event()

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        await super().post(thread, mail)
        self.posted.set()


async def test_what_around_tool_removes_from_a_late_result_is_never_on_the_disk_either(store: Journal) -> None:
    entered, leave = threading.Event(), threading.Event()

    def login() -> str:
        """Log in, and do not listen to anybody meanwhile."""
        entered.set()
        leave.wait()
        return "token=4711"

    @around_tool
    async def redacts(call: ToolCall, call_next: CallTool) -> ToolResult:
        result = await call_next(call)
        return dataclasses.replace(result, output=str(result.output).replace("4711", "****"))

    journal = Posted(store)
    agent = agent_of([[tool_call("login", id="c1")], "So it is."], redacts, store=journal, toolkit=[login])
    running = asyncio.ensure_future(agent.call("Hello", thread=THREAD))
    await asyncio.to_thread(entered.wait)
    agent.interrupt(thread=THREAD, when="now")
    assert (await running).reason == "interrupted"
    leave.set()
    await asyncio.to_thread(journal.posted.wait)
    await agent.call("And now?", thread=THREAD)
    stored = await on_disk(agent)
    assert "late" in await lines(agent)
    assert "token=****" in stored
    assert "4711" not in stored


async def test_around_tool_sees_checked_arguments_and_may_change_them() -> None:
    seen: list[Any] = []

    @around_tool
    async def changes(call: ToolCall, call_next: CallTool) -> ToolResult:
        seen.append((call.tool.name, dict(call.input), call.context.call_id))
        return await call_next(dataclasses.replace(call, input={"a": 1, "b": 1}))

    agent = agent_of([[tool_call("add", id="c1", a="17", b=25)], "2"], changes)
    await agent.call("Hello", thread=THREAD)
    assert seen == [("add", {"a": 17, "b": 25}, "c1")]
    assert results(await valid_history(agent)) == {"c1": "2"}


async def test_what_around_tool_raises_is_the_calls_error_result() -> None:
    @around_tool
    async def refuses(call: ToolCall, call_next: CallTool) -> ToolResult:
        raise PermissionError("no budget left")

    agent = agent_of([ADD, "Hm."], refuses)
    assert (await agent.call("Hello", thread=THREAD)).text == "Hm."
    result = (await valid_history(agent))[2].tool_results[0]
    assert (result.status, result.text) == ("error", "[ERROR] `add` failed: PermissionError: no budget left")


async def test_around_tool_that_gives_no_result_is_told_with_the_hooks_name() -> None:
    @around_tool
    async def forgetful(call: ToolCall, call_next: CallTool) -> Any:
        await call_next(call)

    agent = agent_of([ADD, "Hm."], forgetful)
    await agent.call("Hello", thread=THREAD)
    text = results(await valid_history(agent))["c1"]
    assert "Hook `forgetful` must give a `ToolResult` here and gave None. Was `return` forgotten?" in text


async def test_around_tool_does_not_stand_around_calls_that_do_not_run() -> None:
    asked: list[str] = []

    @around_tool
    async def counts(call: ToolCall, call_next: CallTool) -> ToolResult:
        asked.append(call.call.id)
        return await call_next(call)

    calls = [tool_call("nothing", id="c1"), tool_call("add", id="c2", a="x"), tool_call("add", id="c3", a=1, b=2)]
    agent = agent_of([calls, "Done."], counts)
    await agent.call("Hello", thread=THREAD)
    assert asked == ["c3"]


# After a crash


async def test_after_a_crash_before_the_settled_record_hooks_run_again_and_the_tool_does_not(store: Journal) -> None:
    ran: list[str] = []
    posted: list[str] = []
    left: list[Any] = []

    def work() -> str:
        """Do something that must not be done twice."""
        ran.append("work")
        return "raw"

    @post_acting
    async def rewrites(event: PostActingEvent) -> None:
        posted.append(event.result.text)
        if not left:
            left.append(await died_now(agent))
        event.result = dataclasses.replace(event.result, output="rewritten")
        event.update_state(rewritten=len(posted))

    script: Sequence[Any] = [[tool_call("work", id="c1")], "Done."]
    agent = agent_of(script, rewrites, store=store, toolkit=[work])
    await agent.call("Hello", thread=THREAD)
    assert [record["kind"] for record in left[0]["records"]][-2:] == ["started", "finished"]

    fresh = agent_of(script, rewrites, toolkit=[work])
    fresh.load_state(left[0], thread=THREAD)
    reply = await fresh.resume(THREAD)
    assert reply.text == "Done."
    assert (ran, posted) == (["work"], ["raw", "raw"])
    assert results(await valid_history(fresh)) == {"c1": "rewritten"}


async def test_after_a_crash_during_the_call_the_edited_input_is_used_again(store: Journal) -> None:
    left: list[Any] = []
    got: list[int] = []

    @tool(idempotent=True)
    async def work(number: int) -> str:
        """Do something that may be done twice."""
        got.append(number)
        if not left:
            left.append(await died_now(agent))
        return "done"

    @pre_acting
    async def edits(event: PreActingEvent) -> None:
        event.input = {"number": len(got) + 100}

    script: Sequence[Any] = [[tool_call("work", id="c1", number=1)], "Done."]
    agent = agent_of(script, edits, store=store, toolkit=[work])
    await agent.call("Hello", thread=THREAD)
    fresh = agent_of(script, edits, toolkit=[work])
    fresh.load_state(left[0], thread=THREAD)
    await fresh.resume(THREAD)
    assert got == [100, 100]


# More


async def test_progress_of_a_tool_reaches_hooks_and_not_the_model() -> None:
    async def work(ctx: ToolContext) -> str:
        """Report progress."""
        await ctx.emit("half")
        return "done"

    log = Log(ActingChunkEvent)
    agent = agent_of([[tool_call("work", id="c1")], "Done."], log, toolkit=[work])
    await agent.call("Hello", thread=THREAD)
    assert [(getattr(event, "chunk", None)) for event in log.seen] == ["half"]
    assert "half" not in await on_disk(agent)


class Overriding(ReActAgent):
    """Acts itself, without asking the class above."""

    async def _acting(self, call: ToolCall, run: Run) -> ToolResult:
        return ToolResult(output=f"secret {call.call.name}")


async def test_a_subclass_that_overrides_acting_keeps_its_hooks() -> None:
    @around_tool
    async def redacts(call: ToolCall, call_next: CallTool) -> ToolResult:
        result = await call_next(call)
        return dataclasses.replace(result, output=str(result.output).replace("secret", "***"))

    log = Log(PreActingEvent, PostActingEvent)
    model = ScriptedModel([ADD, "Done."])
    agent = Overriding(name="A", model=model, toolkit=[add], hooks=[redacts, log])
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "*** add"}
    assert log.names == ["PreActing", "PostActing"]


class Supplies(Hook):
    """Brings tools with it."""

    def __init__(self, *tools: Any) -> None:
        self._tools = tools

    def tools(self) -> Sequence[Any]:
        return self._tools


async def test_a_hook_brings_its_tools_and_takes_them_along_when_it_leaves() -> None:
    def extra() -> str:
        """Say hello."""
        return "hello"

    agent = agent_of([[tool_call("extra", id="c1")], "Done.", "Bye."], Supplies(extra))
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "hello"}
    agent.remove_hook("Supplies")
    await agent.call("Hello", thread=THREAD)
    requests = agent.model.requests if isinstance(agent.model, ScriptedModel) else []
    assert [[spec.name for spec in request.tools] for request in requests] == [["add", "extra"]] * 2 + [["add"]]
    assert [spec.name for spec in agent.toolkit.specs()] == ["add"]


async def test_a_hooks_tool_takes_the_place_of_the_agents_own() -> None:
    def another_add(a: int, b: int) -> int:
        """Add otherwise."""
        return a + b + 1000

    agent = agent_of([ADD, "1042"], Supplies(tool(another_add, name="add")))
    await agent.call("Hello", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "1042"}


async def test_two_hooks_with_a_tool_of_one_name_are_an_error() -> None:
    from treadle.errors import ToolDefinitionError

    agent = agent_of([ADD, "42"], Supplies(add), Supplies(add))
    with pytest.raises(ToolDefinitionError, match="There is a tool `add` already"):
        await agent.call("Hello")
