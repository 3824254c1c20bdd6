"""Two processes, one thread: one drives, the other waits, interrupts, takes over, or goes on where the first paused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

import treadle
from contract._peer import THREAD, Scene, driver
from treadle import AgentBusyError, Approve, Edit, ReActAgent, Reject, Result, Retry
from treadle.journal import Journal, MemoryStore, SQLiteStore, encode
from treadle.testing import assert_valid_history

PEER = Path(__file__).with_name("_peer.py")
SOURCE = Path(treadle.__file__).parent.parent
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


class Peer:
    """The other process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    async def line(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            text = await asyncio.to_thread(self.process.stdout.readline)
        return json.loads(text or "{}")

    async def end(self) -> None:
        assert await asyncio.to_thread(self.process.wait, 30) == 0

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait, 30)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


Start = Callable[..., Awaitable[Peer]]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def start(scene: Scene) -> Iterator[Start]:
    """Starts the other process on a script, and ends it with the test."""
    with ExitStack() as stack:

        async def start_peer(script: str, **options: Any) -> Peer:
            arguments = json.dumps({"folder": str(scene.folder), "script": script, **options})
            process = subprocess.Popen(  # noqa: ASYNC220 - to start a process takes no time
                [sys.executable, "-W", "error", str(PEER), arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Peer(process)

        yield start_peer


@pytest.fixture
async def store(scene: Scene) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(scene.journal, lease_ttl=600.0, poll=0.02)
    yield store
    await store.close()


async def records(store: Journal) -> dict[str, list[str]]:
    """Everything that is stored, as it is stored."""
    threads = [info.thread for info in await store.threads()]
    return {thread: [encode(record) for record in await store.read(thread)] for thread in threads}


async def at_rest(agent: ReActAgent) -> None:
    """Every thread of the store has a result for every call."""
    for info in await agent.journal.threads():
        assert_valid_history(await agent.history(info.thread))


# Who may drive.


async def test_a_second_driver_is_turned_away_at_once(scene: Scene, store: SQLiteStore, start: Start) -> None:
    peer = await start("hold")
    assert await peer.line() == {"in": "hold"}
    agent, model = driver(scene, store, "hold")
    began = time.monotonic()
    for input in ("Me too.", None):
        with pytest.raises(AgentBusyError):
            await agent.call(input, thread=THREAD)
    assert time.monotonic() - began < 2
    assert not model.requests
    scene.open_gate()
    assert await peer.line() == {"reason": "answered", "text": "Held.", "wishes": {}}
    assert len(await agent.history(THREAD)) == 4


async def test_a_second_driver_may_wait(scene: Scene, store: SQLiteStore, start: Start) -> None:
    peer = await start("hold")
    assert await peer.line() == {"in": "hold"}
    agent, model = driver(scene, store, "hold")
    waiting = asyncio.ensure_future(agent.call("Me too.", thread=THREAD, on_busy="wait"))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    assert not model.requests
    scene.open_gate()
    async with asyncio.timeout(20):
        assert (await waiting).text == "And on."
    assert await peer.line() == {"reason": "answered", "text": "Held.", "wishes": {}}
    texts = [msg.text for msg in await agent.history(THREAD) if msg.role != "tool" and msg.text]
    assert texts == ["Go.", "Held.", "Me too.", "And on."]


@pytest.mark.parametrize("script", ["hold", "grip", "helper"])
async def test_a_dead_driver_is_followed_at_once(scene: Scene, store: SQLiteStore, start: Start, script: str) -> None:
    peer = await start(script, ttl=600)
    assert "in" in await peer.line()
    await peer.kill()
    scene.open_gate()
    agent, _ = driver(scene, store, script)
    async with asyncio.timeout(10):
        reply = await agent.call(None, thread=THREAD)
    assert (reply.reason, reply.text) == ("answered", "Held.")
    assert len(scene.ledger()) == 1
    await at_rest(agent)


async def test_what_a_dead_driver_was_doing_is_unknown(scene: Scene, store: SQLiteStore, start: Start) -> None:
    peer = await start("risk")
    assert await peer.line() == {"in": "risk"}
    await peer.kill()
    scene.open_gate()
    agent, _ = driver(scene, store, "risk")
    reply = await agent.call(None, thread=THREAD)
    assert reply.pause is not None
    assert [(wish.kind, wish.name) for wish in reply.pause.calls] == [("unknown", "risk")]
    assert scene.ledger() == []
    reply = await agent.resume(THREAD, {reply.pause.calls[0].id: Result("it was done")})
    assert reply.text == "Held."
    assert scene.ledger() == []


@pytest.mark.parametrize("script", ["hold", "grip", "helper"])
async def test_a_driver_that_slept_too_long_writes_nothing(
    scene: Scene, store: SQLiteStore, start: Start, script: str
) -> None:
    peer = await start(script, ttl=0.5)
    assert "in" in await peer.line()
    peer.signal(signal.SIGSTOP)
    scene.open_gate()
    agent, _ = driver(scene, store, script)
    async with asyncio.timeout(20):
        reply = await agent.call(None, thread=THREAD, on_busy="wait")
    assert reply.text == "Held."
    stored = await records(store)
    peer.signal(signal.SIGCONT)
    said = [await peer.line(), await peer.line()]  # the sync tool's thread may leave a note about what it came to
    assert {"error": "LeaseLostError"} in said
    await peer.end()
    assert await records(store) == stored
    assert (await agent.call("Next.", thread=THREAD)).text == "And on."
    await at_rest(agent)


@pytest.mark.parametrize("script", ["hold", "helper"])
async def test_a_driver_that_wakes_beside_the_new_one_stops(
    scene: Scene, store: SQLiteStore, start: Start, script: str
) -> None:
    """The sleeper wakes while the other one is still at work in the same tool."""
    peer = await start(script, ttl=0.5)
    assert await peer.line() == {"in": "hold"}
    peer.signal(signal.SIGSTOP)
    entered = asyncio.Event()

    def enter(**words: Any) -> None:
        entered.set()

    agent, _ = driver(scene, store, script, enter)
    work = asyncio.ensure_future(agent.call(None, thread=THREAD, on_busy="wait"))
    async with asyncio.timeout(20):
        await entered.wait()
    peer.signal(signal.SIGCONT)
    assert await peer.line() == {"error": "LeaseLostError"}
    await peer.end()
    scene.open_gate()
    assert (await work).text == "Held."
    assert scene.ledger() == ["hold"]
    await at_rest(agent)


# Interrupting from another process.


@pytest.mark.parametrize("script", ["hold", "grip", "helper"])
@pytest.mark.parametrize("message", [None, "Enough for today."])
async def test_an_interrupt_waits_for_the_checkpoint(
    scene: Scene, store: SQLiteStore, start: Start, script: str, message: str | None
) -> None:
    peer = await start(script)
    assert "in" in await peer.line()
    agent, _ = driver(scene, store, script)
    await agent.interrupt(message, thread=THREAD)
    assert await peer.line() == {"arrived": "interrupt"}
    scene.open_gate()
    reply = await peer.line()
    assert reply["reason"] == "interrupted"
    assert reply["text"] == (message or "")
    await peer.end()
    history = await agent.history(THREAD)
    results = [result for msg in history for result in msg.tool_results]
    assert [result.status for result in results] == ["ok"]
    assert history[-1].text == (message or history[-1].text)
    assert len(scene.ledger()) == 1
    await at_rest(agent)
    assert (await agent.call("Go on.", thread=THREAD)).text == "Held."


@pytest.mark.parametrize("script", ["hold", "helper"])
@pytest.mark.parametrize("message", [None, "Stop it."])
async def test_an_interrupt_now_stops_what_runs(
    scene: Scene, store: SQLiteStore, start: Start, script: str, message: str | None
) -> None:
    peer = await start(script)
    assert "in" in await peer.line()
    agent, _ = driver(scene, store, script)
    agent.interrupt(message, thread=THREAD, when="now")
    assert await peer.line() == {"arrived": "interrupt"}
    assert await peer.line() == {"reason": "interrupted", "text": message or "", "wishes": {}}
    await peer.end()
    results = [result for msg in await agent.history(THREAD) for result in msg.tool_results]
    assert [result.status for result in results] == ["interrupted"]
    assert scene.ledger() == []
    await at_rest(agent)
    assert (await agent.call("Go on.", thread=THREAD)).text == "Held."


@pytest.mark.parametrize("input", ["Well?", None])
@pytest.mark.parametrize("where", ["here", "there"])
async def test_a_late_result_is_told_on_the_next_turn(
    scene: Scene, store: SQLiteStore, start: Start, input: str | None, where: Literal["here", "there"]
) -> None:
    """A sync tool cannot be stopped: the run ends without it, and the model hears later what it came to."""
    peer = await start("grip", stay=True)
    assert await peer.line() == {"in": "grip"}
    agent, model = driver(scene, store, "grip")
    await agent.interrupt(thread=THREAD, when="now")
    assert await peer.line() == {"arrived": "interrupt"}
    assert await peer.line() == {"reason": "interrupted", "text": "", "wishes": {}}
    results = [result for msg in await agent.history(THREAD) for result in msg.tool_results]
    assert [result.status for result in results] == ["unknown"]
    scene.open_gate()
    assert await peer.line() == {"posted": "late"}
    if where == "there":  # the note outlives the process that left it
        peer.go_on()
        await peer.end()
    assert (await agent.call(input, thread=THREAD)).text == "Held."
    notes = [msg.text for msg in model.requests[0].messages if "has finished after all" in msg.text]
    assert len(notes) == 1
    assert "held" in notes[0]
    await at_rest(agent)
    await agent.call("And then?", thread=THREAD)
    assert sum("has finished after all" in msg.text for msg in model.requests[1].messages) == 1


# Pausing in one process, going on in another.


@pytest.mark.parametrize(
    ("decision", "ledger"),
    [(Approve(), ["first", "pay 5"]), (Edit({"amount": 6}), ["first", "pay 6"]), (Reject("no"), ["first"])],
)
async def test_an_approval_is_given_in_another_process(
    scene: Scene, store: SQLiteStore, start: Start, decision: Any, ledger: list[str]
) -> None:
    peer = await start("pay")
    paused = await peer.line()
    await peer.end()
    assert list(paused["wishes"].values()) == ["approval"]
    assert scene.ledger() == ["first"]
    agent, _ = driver(scene, store, "pay")
    reply = await agent.resume(THREAD, dict.fromkeys(paused["wishes"], decision))
    assert reply.text == "Paid."
    assert scene.ledger() == ledger
    await at_rest(agent)


async def test_an_approval_inside_a_sub_agent_is_given_in_another_process(
    scene: Scene, store: SQLiteStore, start: Start
) -> None:
    peer = await start("helper pays")
    paused = await peer.line()
    await peer.end()
    (wish,) = paused["wishes"]
    assert "/" in wish
    agent, _ = driver(scene, store, "helper pays")
    again = await agent.call(None, thread=THREAD)
    assert again.pause is not None
    assert [(call.id, call.path) for call in again.pause.calls] == [(wish, ("ask_helper",))]
    assert (await agent.resume(THREAD, {wish: Approve()})).text == "Paid."
    assert sorted(scene.ledger()) == ["below", "first", "pay 7"]
    await at_rest(agent)


@pytest.mark.parametrize("script", ["pay", "helper pays"])
@pytest.mark.parametrize("into", ["memory", "file"])
async def test_a_saved_state_goes_on_in_another_process(
    scene: Scene, start: Start, script: str, into: Literal["memory", "file"]
) -> None:
    peer = await start(script, save=True)
    paused = await peer.line()
    assert await peer.line() == {"saved": True}
    await peer.end()
    store = MemoryStore() if into == "memory" else SQLiteStore(scene.folder / "other.db")
    agent, _ = driver(scene, store, script)
    agent.load_state(json.loads(scene.state.read_text()), thread="moved")
    (wish,) = paused["wishes"]
    reply = await agent.resume("moved", {wish: Approve()})
    assert reply.text == "Paid."
    assert len(scene.ledger()) == len(set(scene.ledger())) == (2 if script == "pay" else 3)
    await at_rest(agent)
    await store.close()


async def test_a_saved_state_of_an_unknown_outcome_goes_on(scene: Scene, store: SQLiteStore, start: Start) -> None:
    peer = await start("risk")
    assert await peer.line() == {"in": "risk"}
    await peer.kill()
    scene.open_gate()
    agent, _ = driver(scene, store, "risk")
    paused = await agent.call(None, thread=THREAD)
    assert paused.pause is not None
    fresh, _ = driver(scene, None, "risk")
    fresh.load_state(json.loads(json.dumps(agent.save_state(thread=THREAD))))
    reply = await fresh.resume(fresh.thread, {paused.pause.calls[0].id: Retry()})
    assert reply.text == "Held."
    assert scene.ledger() == ["risk"]
