"""Interrupts, cancellation and timeouts: the run stops, the history stays valid, nothing is lost silently."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.support import GatedModel, agent_of, names, read_all, records, results, running, said, valid_history
from treadle import AgentBusyError, Approve, Msg, ReActAgent, Toolkit
from treadle.errors import InputError
from treadle.event import Event, PostReasoningEvent, PreCallEvent, RunStartedEvent, SummaryChunkEvent
from treadle.hook import on, post_reasoning, pre_call
from treadle.journal import Journal, SQLiteStore
from treadle.message import TextBlock, ToolResultBlock, ToolUseBlock
from treadle.model import Delta, ModelRequest, ModelResponse
from treadle.testing import ScriptedModel, tool_call
from treadle.tool import tool


class Slow:
    """Tools that wait until they are told to go on, or are stopped."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        self.cleaned: list[str] = []

    async def wait(self, n: int = 0) -> str:
        self.entered.set()
        try:
            await self.gate.wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned.append(f"wait {n}")
        return f"waited {n}"

    async def quick(self, n: int = 0) -> str:
        return f"quick {n}"


# At checkpoints


async def test_an_interrupt_during_tools_lets_them_finish_and_stops_before_the_model(store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait"), tool_call("quick")], "Never."], slow.wait, slow.quick, store=store)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt()
    slow.gate.set()
    reply = await task
    assert reply.reason == "interrupted"
    assert results(await valid_history(agent)) == [("ok", "waited 0"), ("ok", "quick 0")]


async def test_an_interrupt_during_the_answer_comes_too_late_to_stop_it() -> None:
    model = GatedModel("Hello |there.")
    agent = agent_of(model)
    task = running(agent)
    await model.reached.wait()
    await agent.interrupt()
    model.gate.set()
    reply = await task
    assert (reply.text, reply.reason) == ("Hello there.", "answered")


async def test_an_interrupt_during_an_answer_with_calls_lets_them_run_first() -> None:
    agents: list[ReActAgent] = []

    async def interrupt(request: ModelRequest) -> Any:
        await agents[0].interrupt()
        return [tool_call("quick")]

    agents.append(agent_of([interrupt, "Never."], Slow().quick))
    assert (await agents[0].call("Go.")).reason == "interrupted"
    assert results(await valid_history(agents[0])) == [("ok", "quick 0")]


@pytest.mark.parametrize("message", ["Cancelled.", Msg.assistant("Cancelled.", name="Agent")], ids=["text", "message"])
@pytest.mark.parametrize("when", ["checkpoint", "now"])
async def test_the_message_of_an_interrupt_is_stored_and_returned(message: Any, when: Any, store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait, store=store)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt(message, when=when)
    slow.gate.set()
    reply = await task
    assert (reply.text, reply.reason, reply.name) == ("Cancelled.", "interrupted", "Agent")
    assert said(await valid_history(agent))[-1] == "assistant: Cancelled."


@pytest.mark.parametrize("role", ["user", "system"])
async def test_the_message_of_an_interrupt_is_the_agents_answer_whoever_says_it(role: Any, store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait, store=store)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt(Msg(role=role, name="boss", content=(TextBlock(text="Cancelled."),)))
    slow.gate.set()
    reply = await task
    assert (reply.text, reply.role, reply.name) == ("Cancelled.", "assistant", "boss")
    assert said(await valid_history(agent))[-1] == "assistant: Cancelled."


async def test_a_reply_of_another_agent_can_be_the_message_of_an_interrupt(store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait, store=store)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt(await agent_of(["Cancelled."]).call("Stop it?"))
    slow.gate.set()
    assert (await task).text == "Cancelled."
    assert type((await valid_history(agent))[-1]) is Msg


@pytest.mark.parametrize(
    "message",
    [
        Msg.assistant(ToolUseBlock(id="c", name="wait", input={})),
        Msg.tool(ToolResultBlock(id="c", name="wait", output="ok")),
    ],
)
def test_calls_and_results_cannot_be_the_message_of_an_interrupt(message: Msg) -> None:
    with pytest.raises(InputError, match="makes no calls and has no results"):
        agent_of(["Hi."]).interrupt(message)


async def test_a_second_interrupt_keeps_the_message_of_the_first() -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt("Cancelled.")
    await agent.interrupt(when="now")
    assert (await task).text == "Cancelled."
    await valid_history(agent)


async def test_an_interrupt_before_hooks_have_seen_the_input_does_not_lose_it() -> None:
    agents: list[ReActAgent] = []
    seen: list[str] = []

    @on(RunStartedEvent)
    async def interrupt(event: Event) -> None:
        await agents[0].interrupt()

    @pre_call
    async def look(event: PreCallEvent) -> None:
        seen.extend(msg.text for msg in event.messages)

    agent = agent_of(["Never."], hooks=[interrupt, look])
    agents.append(agent)
    assert (await agent.call("Hi")).reason == "interrupted"
    assert (said(await valid_history(agent)), seen) == (["user: Hi"], ["Hi"])


async def test_an_interrupt_beside_a_call_that_waits_for_approval_ends_the_run() -> None:
    agents: list[ReActAgent] = []

    async def interrupt() -> str:
        await agents[0].interrupt("Cancelled.")
        return "ok"

    pay = tool(lambda: "paid", name="pay", approval=True)
    agents.append(agent_of([[tool_call("interrupt"), tool_call("pay")], "Never."], interrupt, pay))
    reply = await agents[0].call("Go.")
    assert (reply.text, reply.reason, reply.pause) == ("Cancelled.", "interrupted", None)
    assert results(await valid_history(agents[0])) == [
        ("ok", "ok"),
        ("interrupted", "[ERROR] Not run: the run was interrupted."),
    ]


async def test_an_interrupt_of_a_thread_that_does_not_run_changes_nothing(store: Journal) -> None:
    agent = agent_of(["Hello."], store=store)
    await agent.interrupt("Cancelled.")
    assert (await agent.call("Hi")).text == "Hello."
    await valid_history(agent)


async def test_after_an_interrupt_the_thread_goes_on() -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "I go on."], slow.wait)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt(when="now")
    await task
    assert (await agent.call()).text == "I go on."
    await valid_history(agent)


# Now


@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])
async def test_now_gives_every_call_its_result_and_lets_tools_clean_up(parallel: bool, store: Journal) -> None:
    slow = Slow()
    calls = [tool_call("quick", n=0), *[tool_call("wait", n=n) for n in range(1, 4)]]
    agent = agent_of([calls, "Never."], toolkit=Toolkit([slow.wait, slow.quick], parallel=parallel), store=store)
    task = running(agent)
    await slow.entered.wait()
    await agent.interrupt(when="now")
    reply = await task
    assert reply.reason == "interrupted"
    first, *others = results(await valid_history(agent))
    assert first == ("ok", "quick 0")
    assert [status for status, _ in others] == ["interrupted"] * 3
    stopped = "[ERROR] `wait` was stopped while it ran; it may have taken effect in part. The run was interrupted."
    not_run = "[ERROR] Not run: the run was interrupted."
    assert [text for _, text in others] == ([stopped] * 3 if parallel else [stopped, not_run, not_run])
    assert slow.cleaned == ([f"wait {n}" for n in range(1, 4)] if parallel else ["wait 1"])


async def test_now_keeps_the_text_that_was_said_so_far(store: Journal) -> None:
    model = GatedModel("Once upon |a time", "The end.")
    agent = agent_of(model, store=store)
    task = running(agent)
    await model.reached.wait()
    await agent.interrupt(when="now")
    reply = await task
    assert (reply.text, reply.reason, model.closed) == ("Once upon ", "interrupted", 1)
    history = await valid_history(agent)
    assert history[-1].metadata == {"interrupted": True}
    assert (await agent.call("Go on.")).text == "The end."
    assert said(await valid_history(agent))[1:] == ["assistant: Once upon ", "user: Go on.", "assistant: The end."]


async def test_now_while_hooks_look_at_the_answer_keeps_its_text_and_runs_no_call(store: Journal) -> None:
    entered = asyncio.Event()

    @post_reasoning
    async def look(event: PostReasoningEvent) -> None:
        entered.set()
        await asyncio.Event().wait()

    agent = agent_of([["I look.", tool_call("quick")], "Never."], Slow().quick, hooks=[look], store=store)
    task = running(agent)
    await entered.wait()
    await agent.interrupt(when="now")
    assert (await task).text == "I look."
    assert said(await valid_history(agent)) == ["user: Go.", "assistant: I look."]


async def test_now_during_a_summary_keeps_its_text_too() -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    class Summarizer(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
            async for item in ScriptedModel.stream(self, request):
                yield item
                if self.left == 0:
                    reached.set()
                    await gate.wait()

    agent = agent_of(Summarizer([[tool_call("quick")], "In short."]), Slow().quick, max_iters=1)
    task = running(agent)
    await reached.wait()
    await agent.interrupt(when="now")
    reply = await task
    assert (reply.text, reply.reason) == ("In short", "interrupted")
    await valid_history(agent)


async def test_a_tool_that_finishes_its_work_when_stopped_keeps_its_result() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def save() -> str:
        entered.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            return "saved after all"
        return "saved"

    agent = agent_of([[tool_call("save")], "Never."], save)
    task = running(agent)
    await entered.wait()
    await agent.interrupt(when="now")
    assert (await task).reason == "interrupted"
    assert results(await valid_history(agent)) == [("ok", "saved after all")]


async def test_now_starts_no_further_call_even_if_one_does_not_let_itself_be_stopped() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    async def save(n: int) -> str:
        ran.append(n)
        entered.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            return "saved after all"
        return "saved"

    agent = agent_of(
        [[tool_call("save", n=1), tool_call("save", n=2)], "Never."], toolkit=Toolkit([save], parallel=False)
    )
    task = running(agent)
    await entered.wait()
    await agent.interrupt(when="now")
    assert (await task).reason == "interrupted"
    assert ran == [1]
    assert [status for status, _ in results(await valid_history(agent))] == ["ok", "interrupted"]


async def test_an_interrupt_comes_from_another_thread_and_loop(store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait, store=store)
    task = running(agent)
    await slow.entered.wait()
    worker = threading.Thread(target=lambda: agent.interrupt("From afar.", when="now"))
    worker.start()
    reply = await task
    worker.join()
    assert (reply.text, reply.reason) == ("From afar.", "interrupted")
    await valid_history(agent)


async def test_an_interrupt_comes_through_another_store_on_the_same_file(tmp_path: Path) -> None:
    slow = Slow()
    mine, other = SQLiteStore(tmp_path / "runs.db"), SQLiteStore(tmp_path / "runs.db")
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait, store=mine)
    remote = agent_of(["Never."], store=other)
    task = running(agent, thread="shared")
    await slow.entered.wait()
    with pytest.raises(AgentBusyError):
        await remote.call("Me too.", thread="shared")
    await remote.interrupt("From another process.", thread="shared", when="now")
    reply = await task
    assert (reply.text, reply.reason) == ("From another process.", "interrupted")
    await valid_history(agent, "shared")
    await mine.close()
    await other.close()


# Cancelled tasks and timeouts


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("where", ["tool", "model"])
async def test_cancelling_a_call_raises_and_leaves_a_valid_thread(where: str, store: Journal) -> None:
    slow, model = Slow(), GatedModel("Half |of it", "On.")
    inner: Any = model if where == "model" else ScriptedModel([[tool_call("wait"), tool_call("quick")], "On."])
    agent = agent_of(inner, slow.wait, slow.quick, store=store)
    task = running(agent)
    await (model.reached if where == "model" else slow.entered).wait()
    await cancel(task)
    history = await valid_history(agent)
    assert (await records(agent))[-1]["reason"] == "interrupted"
    assert ("assistant: Half " in said(history)) == (where == "model")
    assert (await agent.call("On?")).text == "On."
    await valid_history(agent)


async def test_cancelling_twice_does_not_spoil_the_thread(store: Journal) -> None:
    entered, gate, cleaning = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await gate.wait()
        return "never"

    agent = agent_of([[tool_call("wait")], "On."], wait, store=store)
    task = running(agent)
    await entered.wait()
    task.cancel()
    await cleaning.wait()
    await cancel(task)
    gate.set()
    assert (await agent.call("On?", on_busy="wait")).text == "On."
    assert [status for status, _ in results(await valid_history(agent))] == ["interrupted"]


def test_a_loop_that_ends_closes_the_threads_of_its_runs(tmp_path: Path) -> None:
    agents: list[ReActAgent] = []

    async def main() -> None:
        slow = Slow()
        agent = agent_of([[tool_call("wait")], "On."], slow.wait, store=f"sqlite:///{tmp_path / 'runs.db'}")
        agents.append(agent)
        task = running(agent, thread="t")
        await slow.entered.wait()
        assert not task.done()

    asyncio.run(main())
    history = asyncio.run(valid_history(agents[0], "t"))
    assert [status for status, _ in results(history)] == ["interrupted"]
    assert agents[0].call_sync("On?", thread="t").text == "On."


async def test_a_timeout_around_a_call_is_a_timeout() -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "On."], slow.wait)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await agent.call("Go.")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert [status for status, _ in results(await valid_history(agent))] == ["interrupted"]
    assert (await agent.call()).text == "On."


async def test_a_timeout_while_waiting_for_a_busy_thread_is_a_timeout(store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Done."], slow.wait, store=store)
    task = running(agent)
    await slow.entered.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.call("Me too.", on_busy="wait"), 0.01)
    stream = agent.stream("Me three.", on_busy="wait")
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    await stream.aclose()
    slow.gate.set()
    assert (await task).text == "Done."
    assert said(await valid_history(agent))[0] == "user: Go."
    assert len(await valid_history(agent)) == 4


async def test_now_before_a_resumed_run_starts_its_tools_starts_none() -> None:
    agents: list[ReActAgent] = []
    starts = [False, True]

    @on(RunStartedEvent)
    async def interrupt(event: Event) -> None:
        if starts.pop(0):
            await agents[0].interrupt(when="now")

    slow = Slow()
    slow.gate.set()
    agents.append(agent_of([[tool_call("wait", "wait")], "On."], tool(slow.wait, approval=True), hooks=[interrupt]))
    await agents[0].call("Go.")
    reply = await agents[0].resume(agents[0].thread, {"wait": Approve()})
    assert (reply.reason, slow.cleaned) == ("interrupted", [])
    assert [status for status, _ in results(await valid_history(agents[0]))] == ["interrupted"]


# Readers that stop reading


async def test_closing_a_stream_during_tools_stops_them_and_settles_their_calls(store: Journal) -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait", n=1), tool_call("wait", n=2)], "On."], slow.wait, store=store)
    async with agent.stream("Go.") as stream:
        async for event in stream:
            if names([event]) == ["PreActing"]:
                break
        await slow.entered.wait()
    assert [status for status, _ in results(await valid_history(agent))] == ["interrupted"] * 2
    assert len(slow.cleaned) == 2
    assert (await agent.call("On?")).text == "On."
    assert len(await valid_history(agent)) == 6


async def test_closing_a_stream_in_the_middle_of_an_answer_keeps_what_was_said() -> None:
    model = GatedModel("Once upon |a time")
    agent = agent_of(model)
    stream = agent.stream("Go.")
    async for event in stream:
        if names([event]) == ["ReasoningChunk"]:
            break
    await stream.aclose()
    assert said(await valid_history(agent))[-1] == "assistant: Once upon "


async def test_a_detached_stream_lets_the_run_finish() -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Done."], slow.wait)
    async with agent.stream("Go.", detach=True) as stream:
        async for event in stream:
            if names([event]) == ["PreActing"]:
                break
    slow.gate.set()
    assert (await stream.run.wait()).result.text == "Done."  # type: ignore[union-attr]
    await valid_history(agent)


async def test_letting_go_of_a_stream_stops_the_run() -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait)
    stream = agent.stream("Go.")
    async for event in stream:
        if names([event]) == ["PreActing"]:
            break
    await slow.entered.wait()
    run = stream.run
    del stream
    await run.wait()
    assert [status for status, _ in results(await valid_history(agent))] == ["interrupted"]


async def test_events_of_an_interrupted_stream_end_with_how_it_ended() -> None:
    slow = Slow()
    agent = agent_of([[tool_call("wait")], "Never."], slow.wait)
    events: list[Event] = []
    async for event in agent.stream("Go."):
        events.append(event)
        if names([event]) == ["PreActing"]:
            await agent.interrupt("Stop.", when="now")
    assert names(events)[-2:] == ["PostCall", "RunEnded"]
    assert not any(isinstance(event, SummaryChunkEvent) for event in events)
    await valid_history(agent)
    assert names(await read_all(agent_of(["Hi."]).stream("Hi")))[-1] == "RunEnded"
