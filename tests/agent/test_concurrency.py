"""Threads side by side, one run per thread, and code without async."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.support import agent_of, said, valid_history
from treadle import AgentBusyError, Context, Msg, Toolkit
from treadle.errors import InputError
from treadle.journal import Journal
from treadle.testing import ScriptedModel, tool_call
from treadle.tool import ToolContext


async def test_a_second_call_on_a_busy_thread_is_refused_at_once(store: Journal) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        entered.set()
        await gate.wait()
        return "ok"

    agent = agent_of([[tool_call("wait")], "Done.", "Again."], wait, store=store)
    task = asyncio.ensure_future(agent.call("Go."))
    await entered.wait()
    with pytest.raises(AgentBusyError):
        await agent.call("Me too.")
    with pytest.raises(AgentBusyError):
        async for _ in agent.stream("Me too."):
            pass
    with pytest.raises(AgentBusyError):
        await asyncio.to_thread(agent.call_sync, "Me too.")
    with pytest.raises(AgentBusyError):
        agent.load_state(agent.save_state())
    waiting = asyncio.ensure_future(agent.call("Me too.", on_busy="wait"))
    gate.set()
    assert (await task).text == "Done."
    assert (await waiting).text == "Again."
    assert said(await valid_history(agent))[-2:] == ["user: Me too.", "assistant: Again."]


async def test_observing_a_busy_thread_waits_for_the_run() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        entered.set()
        await gate.wait()
        return "ok"

    agent = agent_of([[tool_call("wait")], "Done."], wait)
    task = asyncio.ensure_future(agent.call("Go."))
    await entered.wait()
    observing = asyncio.ensure_future(agent.observe(Msg.user("By the way.")))
    await asyncio.sleep(0)
    gate.set()
    await task
    await observing
    assert said(await valid_history(agent))[-1] == "user: By the way."


async def test_threads_of_one_agent_run_side_by_side(store: Journal) -> None:
    together = asyncio.Barrier(5)

    async def meet(who: str) -> str:
        await together.wait()
        return f"met {who}"

    def answer(request: Any) -> Any:
        return [tool_call("meet", who=request.messages[0].text)]

    agent = agent_of([answer, "Done."], meet, store=store)
    replies = await asyncio.gather(*(agent.call(f"user {n}", thread=f"thread-{n}") for n in range(5)))
    assert {reply.text for reply in replies} == {"Done."}
    for n in range(5):
        history = await valid_history(agent, f"thread-{n}")
        assert history[2].tool_results[0].text == f"met user {n}"


async def test_a_run_changes_neither_toolkit_nor_model_nor_agent() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    toolkit = Toolkit([add])
    agent = agent_of([[tool_call("add", a=1, b=2)], [tool_call("generate_response", response=3)]], toolkit=toolkit)
    await agent.call("Hi", thread="warm-up", output=int)
    before = (list(toolkit), toolkit.specs(), dict(vars(agent)))
    await agent.call("Hi", thread="another", output=int)
    assert (list(toolkit), toolkit.specs(), vars(agent)) == before


async def test_the_context_reaches_tools_and_is_stored_nowhere(store: Journal) -> None:
    class Database:
        def __repr__(self) -> str:
            return "TOP-SECRET"

    seen: list[Any] = []

    def look(db: Database, ctx: ToolContext) -> str:
        assert ctx.context is not None
        seen.append((db, ctx.context["tenant"], ctx.thread, ctx.agent))
        return "ok"

    agent = agent_of([[tool_call("look")], "Done."], look, store=store)
    db = Database()
    await agent.call("Go.", context=Context(db, tenant="TOP-SECRET"), variables={"key": "TOP-SECRET"}, thread="t")
    assert seen == [(db, "TOP-SECRET", "t", "Agent")]
    assert "TOP-SECRET" not in str(agent.save_state(thread="t"))


def test_call_sync_works_without_a_loop() -> None:
    agent = agent_of(["One.", "Two."])
    assert agent.call_sync("Hi").text == "One."
    assert agent.call_sync("Hi").text == "Two."


async def test_call_sync_works_inside_a_running_loop() -> None:
    agent = agent_of(["One.", "Two."])
    assert agent.call_sync("Hi").text == "One."
    assert (await agent.call("Hi")).text == "Two."
    await valid_history(agent)


def test_call_sync_works_in_a_sync_tool_of_another_call_sync() -> None:
    inner = agent_of(["From within."])

    def ask() -> str:
        return inner.call_sync("Hi").text

    agent = agent_of([[tool_call("ask")], "Done."], ask)
    assert agent.call_sync("Go.").text == "Done."
    assert said(asyncio.run(valid_history(agent)))[2] == "tool: From within."


async def test_call_sync_on_the_background_loop_itself_says_what_to_do() -> None:
    inner = agent_of(["Never."])

    async def ask() -> str:
        return inner.call_sync("Hi").text

    agent = agent_of([[tool_call("ask")], "Done."], ask)
    reply = await asyncio.to_thread(agent.call_sync, "Go.")
    assert reply.text == "Done."
    assert "await call(...)" in said(await valid_history(agent))[2]


def test_resume_sync_and_errors_of_call_sync() -> None:
    agent = agent_of(["One.", ConnectionError("reset")])
    agent.call_sync("Hi")
    assert agent.resume_sync(agent.thread).text == "One."
    with pytest.raises(ConnectionError, match="reset"):
        agent.call_sync()


async def test_agents_in_several_loops_share_a_store(store: Journal) -> None:
    model = ScriptedModel(["Hello."])
    agent = agent_of(model, store=store)
    texts: list[str] = []

    def work(n: int) -> None:
        texts.append(asyncio.run(agent.call("Hi", thread=f"loop-{n}")).text)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await asyncio.to_thread(worker.join)
    assert texts == ["Hello."] * 4


async def test_going_on_with_a_thread_that_has_nothing_is_refused() -> None:
    agent = agent_of(["Never."])
    with pytest.raises(InputError, match="no thread 'misspelt'"):
        await agent.resume("misspelt")
    with pytest.raises(InputError, match="nothing to go on with"):
        await agent.call(thread="misspelt")
    assert await agent.journal.threads() == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_call_sync_works_in_a_forked_child(tmp_path: Path) -> None:
    program = """
import os, sys, warnings
from treadle import ReActAgent
from treadle.testing import ScriptedModel

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
agent = ReActAgent(name="A", model=ScriptedModel(["One.", "Two."]), store="sqlite:///runs.db")
agent.call_sync("Go.", thread="t")
child = os.fork()
if not child:
    print(agent.call_sync("Go on.", thread="t").text, flush=True)
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("Two.\n0\n", "")


@pytest.mark.slow
def test_ctrl_c_in_call_sync_closes_the_thread(tmp_path: Path) -> None:
    program = """
import asyncio, os, signal, sys
from treadle import ReActAgent
from treadle.testing import ScriptedModel, tool_call

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it switched off

async def wait() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()
    return "never"

agent = ReActAgent(name="A", model=ScriptedModel([[tool_call("wait")], "Never."]), toolkit=[wait], store="sqlite:///runs.db")
try:
    agent.call_sync("Go.", thread="t")
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    agent = agent_of(["Never."], store=f"sqlite:///{tmp_path / 'runs.db'}")
    history = asyncio.run(valid_history(agent, "t"))
    assert [result.status for msg in history for result in msg.tool_results] == ["interrupted"]
