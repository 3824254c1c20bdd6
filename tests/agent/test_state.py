"""`save_state` and `load_state`: a thread as JSON, wherever it stands, into a fresh agent in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.support import agent_of, died_now, records, said, valid_history
from treadle import Approve
from treadle.errors import FormatError
from treadle.event import PostActingEvent, PreReasoningEvent
from treadle.hook import post_acting, pre_reasoning
from treadle.journal import Journal
from treadle.testing import tool_call
from treadle.tool import tool


def pay(amount: int) -> str:
    return f"paid {amount}"


SCRIPT: list[Any] = [[tool_call("pay", "pay", amount=5)], "Done."]


async def test_a_thread_moves_into_a_fresh_agent_in_the_middle_of_an_approval(store: Journal) -> None:
    first = agent_of(SCRIPT, tool(pay, approval=True), store=store)
    await first.call("Pay.", thread="first")
    second = agent_of(SCRIPT, tool(pay, approval=True))
    second.load_state(died_now(first, "first"))
    assert await records(second) == await records(first, "first")
    reply = await second.call()
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.calls] == ["pay"]
    reply = await second.resume(second.thread, {"pay": Approve()})
    assert reply.text == "Done."
    assert said(await valid_history(second))[2] == "tool: paid 5"


PROGRAM = """
import asyncio, json, sys
from treadle import Approve, ReActAgent
from treadle.testing import ScriptedModel, assert_valid_history, tool_call
from treadle.tool import tool

@tool(approval=True)
def pay(amount: int) -> str:
    return f"paid {amount}"

async def main():
    model = ScriptedModel([[tool_call("pay", "pay", amount=5)], "Done."])
    agent = ReActAgent(name="Agent", model=model, toolkit=[pay])
    agent.load_state(json.load(sys.stdin))
    reply = await agent.resume(agent.thread, {"pay": Approve()})
    history = await agent.history()
    assert_valid_history(history)
    print(json.dumps([reply.text, reply.reason, history[2].tool_results[0].text]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_thread_moves_into_another_process_in_the_middle_of_an_approval() -> None:
    agent = agent_of(SCRIPT, tool(pay, approval=True))
    agent.call_sync("Pay.")
    image, command = json.dumps(agent.save_state()), [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=image, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout) == ["Done.", "answered", "paid 5"]


async def test_loading_replaces_what_was_there_even_if_it_is_as_long(store: Journal) -> None:
    first, second = agent_of(["One."], store=store), agent_of(["Two.", "Three."], store=store)
    await first.call("First?")
    await second.call("Second?")
    second.load_state(first.save_state())
    assert (await second.call("And?")).text == "Three."
    assert said(await valid_history(second)) == ["user: First?", "assistant: One.", "user: And?", "assistant: Three."]


async def test_loading_takes_the_threads_below_along(store: Journal) -> None:
    def team() -> Any:
        child = agent_of([[tool_call("pay", "inner", amount=5)], "Paid."], tool(pay, approval=True), name="Clerk")
        return agent_of([[tool_call("ask_clerk", "outer", message="Pay.")], "All done."], child.as_tool(), store=store)

    first, second = team(), team()
    reply = await first.call("Go.", thread="first")
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.calls] == ["outer/inner"]
    second.load_state(died_now(first, "first"), thread="second")
    reply = await second.resume("second", {"outer/inner": Approve()})
    assert reply.text == "All done."
    assert said(await valid_history(second, "second"))[2] == "tool: Paid."
    assert said(await valid_history(second, "second/outer"))[2] == "tool: paid 5"


async def test_an_ended_thread_goes_on_where_it_was(store: Journal) -> None:
    first = agent_of(["One.", "Two."], store=store)
    await first.call("Hi")
    second = agent_of(["One.", "Two."])
    second.load_state(first.save_state())
    assert (await second.call("Hi again")).text == "Two."
    assert len(await valid_history(second)) == 4


async def test_what_hooks_have_stored_moves_along(store: Journal) -> None:
    seen: list[Any] = []

    @post_acting
    async def note(event: PostActingEvent) -> None:
        event.update_state(paid=event.state.get("paid", 0) + 1)

    @pre_reasoning
    async def look(event: PreReasoningEvent) -> None:
        seen.append(event.state.get("paid"))

    first = agent_of(SCRIPT, pay, hooks=[note], store=store)
    await first.call("Pay.")
    second = agent_of([*SCRIPT, "Again."], pay, hooks=[look])
    second.load_state(first.save_state())
    await second.call("Well?")
    assert seen == [1]


STATES: list[dict[str, Any]] = [{}, {"treadle": 2, "records": []}, {"treadle": 1}, {"treadle": 1, "records": [{}]}]


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_what_is_no_state_is_refused_and_nothing_is_lost(state: dict[str, Any]) -> None:
    agent = agent_of(["One."])
    await agent.call("Hi")
    with pytest.raises(FormatError):
        agent.load_state(state)
    assert len(await valid_history(agent)) == 2


async def test_a_new_thread_can_be_saved_and_loaded() -> None:
    agent = agent_of(["One."])
    agent.load_state(agent.save_state())
    assert (await agent.call("Hi")).text == "One."


def test_state_works_without_a_loop_and_on_a_file(tmp_path: Path) -> None:
    agent = agent_of(["One."], store=f"sqlite:///{tmp_path / 'runs.db'}")
    agent.call_sync("Hi", thread="t")
    state = agent.save_state(thread="t")
    agent.load_state(state, thread="copy")
    assert agent.save_state(thread="copy")["records"] == state["records"]
