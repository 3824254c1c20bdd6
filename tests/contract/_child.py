"""The program that the kill tests kill: ten steps of an agent on SQLite, and a file that counts side effects.

`work` starts the run or takes it up again, whatever state it finds the thread in, and decides about calls of unknown
outcome as a careful person does: by looking whether the effect is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel

from treadle import ReActAgent, Reply, Result, Retry, Toolkit
from treadle.event import Wish
from treadle.journal import EndedRecord, Journal, SQLiteStore
from treadle.message import ToolUseBlock
from treadle.model import ModelRequest
from treadle.testing import FaultyJournal, ScriptedModel, kill, tool_call
from treadle.tool import ToolContext

THREAD = "clerk"
TASK = "Do the books."
Moment = Literal["before", "after"]
Decide = Literal["look", "retry"]


class Report(BaseModel):
    title: str
    paid: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one process ends: at an append, in a tool, or well.

    Args:
        append: The append to die at.
        label: The call to die in.
        moment: Before or after the append is written, or the tool's effect is there.
        decide: What to do about the unknown outcome of that call: `look` first, or just `retry`.
    """

    append: int | None = None
    label: str | None = None
    moment: Moment = "before"
    decide: Decide = "look"


@dataclass(frozen=True)
class Place:
    """Where one run lives: its journal, its ledger, and what its processes report."""

    folder: Path

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    def effects(self) -> list[tuple[str, str]]:
        """The side effects so far: label and call id, in order."""
        if not self.ledger.exists():
            return []
        return [(label, call) for label, call in (line.split() for line in self.ledger.read_text().splitlines())]


def outcome(label: str) -> str:
    return f"{label} is done"


class Desk:
    """The tools. Each one leaves one line in the ledger, or dies on the way."""

    def __init__(self, place: Place, plan: Plan) -> None:
        self.place = place
        self.plan = plan

    def leave_line(self, label: str, ctx: ToolContext) -> str:
        self._die(label, "before")
        file = os.open(self.place.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{label} {ctx.call_id}\n".encode())
        os.close(file)
        self._die(label, "after")
        return outcome(label)

    def _die(self, label: str, moment: Moment) -> None:
        if (label, moment) == (self.plan.label, self.plan.moment):
            kill()

    def toolkit(self) -> Toolkit:
        kit = Toolkit()

        @kit.tool(idempotent=True)
        async def note(label: str, ctx: ToolContext) -> str:
            await asyncio.sleep(0)
            return self.leave_line(label, ctx)

        @kit.tool(read_only=True)
        def fetch(label: str, ctx: ToolContext) -> str:
            return self.leave_line(label, ctx)

        @kit.tool
        async def pay(label: str, ctx: ToolContext) -> str:
            await asyncio.sleep(0)
            return self.leave_line(label, ctx)

        @kit.tool
        def send(label: str, ctx: ToolContext) -> str:
            return self.leave_line(label, ctx)

        @kit.tool(sequential=True, idempotent=True)
        def stamp(label: str, ctx: ToolContext) -> str:
            return self.leave_line(label, ctx)

        @kit.tool(idempotent=True)
        def stumble(label: str, ctx: ToolContext) -> str:
            raise ValueError(self.leave_line(label, ctx))

        return kit


def errand(request: ModelRequest) -> list[ToolUseBlock]:
    """What the helper does with its task, which is a label."""
    task = request.messages[-1].text
    return [tool_call("note", label=f"{task}.1"), tool_call("send", label=f"{task}.2")]


SCRIPT: list[Any] = [
    [tool_call("note", label="a")],
    [tool_call("note", label="b"), tool_call("fetch", label="c")],
    [tool_call("send", label="d")],
    ["Three at once.", tool_call("pay", label="e"), tool_call("note", label="f"), tool_call("send", label="g")],
    [tool_call("ask_helper", message="h")],
    [tool_call("note", label="i"), tool_call("stamp", label="j"), tool_call("pay", label="k")],
    [tool_call("stumble", label="l"), tool_call("ask_nobody", message="m")],
    [tool_call("ask_helper", message="n"), tool_call("ask_helper", message="o"), tool_call("note", label="p")],
    ["Almost done.", tool_call("pay", label="q")],
    [tool_call("generate_response", title="Books", paid=3), tool_call("note", label="r")],
]
LABELS = [*"abcdefg", "h.1", "h.2", *"ijkl", "n.1", "n.2", "o.1", "o.2", *"pqr"]
"""Every side effect of an undisturbed run."""
ONCE = frozenset(("d", "e", "g", "h.2", "k", "n.2", "o.2", "q"))
"""The ones whose tools are not safe to repeat."""


def clerk(journal: Journal, desk: Desk) -> ReActAgent:
    errands = ScriptedModel([errand, lambda request: f"Errand over: {request.messages[1].text}."])
    helper = ReActAgent(name="Helper", system_prompt="Help.", model=errands, toolkit=desk.toolkit())
    nobody = ReActAgent(name="Nobody", model=ScriptedModel([ValueError("nobody is in")]))
    toolkit = desk.toolkit()
    toolkit.add(helper.as_tool())
    toolkit.add(nobody.as_tool())
    model = ScriptedModel(SCRIPT)
    return ReActAgent(name="Clerk", model=model, toolkit=toolkit, store=journal, max_iters=20)


async def _work(place: Place, plan: Plan) -> None:
    async def die(write: Callable[[], Awaitable[None]]) -> None:
        if plan.moment == "after":
            await write()
        kill()

    store = SQLiteStore(place.journal)
    journal = FaultyJournal(store, fail_at=plan.append, how=die)
    agent = clerk(journal, Desk(place, plan))
    records = await store.read(THREAD)
    report: dict[str, Any] = {"pauses": 0}
    if not records or not isinstance(records[-1], EndedRecord):
        reply = await agent.call(None if records else TASK, thread=THREAD, output=Report)
        while reply.pause:
            report["pauses"] += 1
            decisions = {wish.id: decision(place, plan, wish) for wish in reply.pause.wishes}
            reply = await agent.resume(THREAD, decisions, output=Report)
        report |= summary(reply)
    report["appends"] = journal.appends
    await agent.close()
    place.report.write_text(json.dumps(report))


def decision(place: Place, plan: Plan, wish: Wish) -> Result | Retry:
    assert wish.kind == "unknown", wish
    call = wish.id.rsplit("/", 1)[-1]
    happened = any(call == other for _, other in place.effects())
    assert wish.input is not None
    label = wish.input["label"]
    return Retry() if not happened or (plan.decide == "retry" and label == plan.label) else Result(outcome(label))


def summary(reply: Reply[Any]) -> dict[str, Any]:
    """What must not depend on crashes."""
    return {
        "reason": reply.reason,
        "text": reply.text,
        "output": reply.output.model_dump(),
        "requests": reply.usage.requests,
    }


def work(folder: str, plan: Plan) -> None:
    """One process's share of the run."""
    asyncio.run(_work(Place(Path(folder)), plan))


def serve() -> None:
    """Fork a process for each line of input and say how it ended.

    This process only imports, so each one starts as a new one does, without the price of a start.
    """
    for line in sys.stdin:
        folder, plan = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # a process that hangs ends with this signal
            _as_process(folder, Plan(**plan))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _as_process(folder: str, plan: Plan) -> NoReturn:
    code = 1
    try:
        work(folder, plan)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
