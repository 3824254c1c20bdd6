"""A process of its own that drives a thread: `python _peer.py <json>`; tells what happened, one line of JSON each.

The tools `hold` (async) and `grip` (sync) say `{"in": name}` and then wait until the test opens the gate, a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle import ReActAgent, Toolkit, TreadleError
from treadle.journal import Journal, Lease, Note, SQLiteStore
from treadle.testing import FaultyJournal, ScriptedModel, tool_call
from treadle.tool import ToolContext

THREAD = "shared"
PATIENCE = 20.0
SCRIPTS: Mapping[str, Any] = {
    "hold": [[tool_call("hold")], "Held.", "And on."],
    "grip": [[tool_call("grip")], "Held.", "And on."],
    "risk": [[tool_call("risk")], "Held.", "And on."],
    "helper": [[tool_call("ask_helper", message="hold")], "Held.", "And on."],
    "pay": [[tool_call("log", label="first"), tool_call("pay", amount=5)], "Paid.", "And on."],
    "helper pays": [[tool_call("log", label="first"), tool_call("ask_helper", message="pay")], "Paid.", "And on."],
}


@dataclass(frozen=True)
class Scene:
    """The files of one test."""

    folder: Path

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def gate_is_open(self) -> bool:
        return (self.folder / "gate").exists()

    def write(self, line: str) -> None:
        with (self.folder / "ledger").open("a") as file:
            file.write(f"{line}\n")

    def ledger(self) -> list[str]:
        path = self.folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []


def say_nothing(**words: Any) -> None:
    """For a driver that nobody listens to."""


def tell(**words: Any) -> None:
    os.write(1, f"{json.dumps(words)}\n".encode())  # at once, because threads tell too


def toolkit(scene: Scene, tell: Callable[..., None]) -> Toolkit:
    kit = Toolkit()

    async def gate(name: str) -> str:
        tell(**{"in": name})
        deadline = time.monotonic() + PATIENCE
        while not scene.gate_is_open() and time.monotonic() < deadline:  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.01)
        scene.write(name)
        return "held"

    @kit.tool(idempotent=True)
    async def hold() -> str:
        return await gate("hold")

    @kit.tool
    async def risk() -> str:
        return await gate("risk")

    @kit.tool(idempotent=True)
    def grip() -> str:
        tell(**{"in": "grip"})
        deadline = time.monotonic() + PATIENCE
        while not scene.gate_is_open() and time.monotonic() < deadline:
            time.sleep(0.01)
        scene.write("grip")
        return "held"

    @kit.tool
    def log(label: str) -> str:
        scene.write(label)
        return "logged"

    @kit.tool(approval=True)
    def pay(amount: int, ctx: ToolContext) -> str:
        scene.write(f"pay {amount}")
        return f"paid {amount}"

    return kit


def driver(
    scene: Scene, store: Journal | None, script: str, tell: Callable[..., None] = say_nothing
) -> tuple[ReActAgent, ScriptedModel]:
    """The agent that both processes have, and its model."""
    tools = {"hold": [tool_call("hold")], "pay": [tool_call("log", label="below"), tool_call("pay", amount=7)]}
    task = ScriptedModel([lambda request: tools[request.messages[-1].text], "Done below."])
    kit = toolkit(scene, tell)
    kit.add(ReActAgent(name="Helper", model=task, toolkit=toolkit(scene, tell)).as_tool())
    model = ScriptedModel(SCRIPTS[script])
    return ReActAgent(name="Driver", model=model, toolkit=kit, store=store), model


async def told(work: Awaitable[Any]) -> None:
    """Say how a call ended."""
    try:
        reply = await work
    except TreadleError as error:
        tell(error=type(error).__name__)
        return
    wishes = {wish.id: wish.kind for wish in reply.pause.wishes} if reply.pause else {}
    tell(reason=reply.reason, text=reply.text, wishes=wishes)


class Mailed(FaultyJournal):
    """A journal that says when a note was posted, and when one arrived."""

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        await super().post(thread, mail)
        tell(posted=mail["kind"])

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self._told: set[tuple[str, int]] = set()

    async def mail(self, lease: Lease) -> list[Note]:
        notes = await super().mail(lease)
        for note in notes:
            if (lease.thread, note.number) not in self._told:
                self._told.add((lease.thread, note.number))
                tell(arrived=note.body["kind"])
        return notes


async def main(folder: str, script: str, ttl: float = 600.0, save: bool = False, stay: bool = False) -> None:
    scene = Scene(Path(folder))
    journal = Mailed(SQLiteStore(scene.journal, lease_ttl=ttl, poll=0.02))
    agent, _ = driver(scene, journal, script, tell)
    await told(agent.call("Go.", thread=THREAD))
    if save:
        scene.state.write_text(json.dumps(agent.save_state(thread=THREAD)))
        tell(saved=True)
    if stay:
        await asyncio.to_thread(sys.stdin.readline)
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
