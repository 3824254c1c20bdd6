"""Kill an agent in the middle of its work, twice, and see it finish.

A scripted demo: the model is a script, so it needs no network and no key. The processes, the kills and the journal are
real. `make demo` runs it, or `python examples/crash_and_resume.py`; it exits with 1 if the promise does not hold.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treadle import ReActAgent, Result, Toolkit
from treadle.journal import (
    EndedRecord,
    FinishedRecord,
    InputRecord,
    PausedRecord,
    Record,
    ResumedRecord,
    SQLiteStore,
    StartedRecord,
    UpdateRecord,
)
from treadle.testing import ScriptedModel, assert_valid_history, tool_call

THREAD = "order-1042"
ANSWER = "Order 1042 is charged and its receipt is sent."
CHARGED = "charged 42.00 EUR"


# The agent. Its tools leave a line in a ledger, so that everybody can count what really happened.


def build_agent(folder: Path, stop_at: str = "") -> ReActAgent:
    """An order desk. Where it should be killed, it says so and waits for that."""

    async def reach(place: str) -> None:
        if place == stop_at:
            print(f"STOP {place}", flush=True)
            await asyncio.Event().wait()

    def enter(line: str) -> None:
        with (folder / "ledger.txt").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    toolkit = Toolkit()

    @toolkit.tool(read_only=True)
    def look_up_order(number: int) -> str:
        """Find an order."""
        enter(f"look_up_order {number}")
        return "one lamp, 42.00 EUR"

    @toolkit.tool(read_only=True)
    def check_stock(item: str) -> str:
        """Count what is there."""
        enter(f"check_stock {item}")
        return "3 left"

    @toolkit.tool
    async def charge_card(amount: str) -> str:
        """Take the money. Not safe to repeat, so it is not declared idempotent."""
        enter(f"charge_card {amount}")
        await reach("inside charge_card")
        return f"charged {amount}"

    @toolkit.tool(idempotent=True)
    async def send_receipt(number: int) -> str:
        """Send the receipt; the mail service drops duplicates."""
        enter(f"send_receipt {number}")
        return "sent"

    async def ask_for_receipt(_: Any) -> Any:
        await reach("while the model thinks")
        return [tool_call("send_receipt", number=1042)]

    script = [
        [tool_call("look_up_order", number=1042), tool_call("check_stock", item="lamp")],
        [tool_call("charge_card", amount="42.00 EUR")],
        ask_for_receipt,
        ANSWER,
    ]
    return ReActAgent(
        name="Desk",
        model=ScriptedModel(script),
        toolkit=toolkit,
        store=f"sqlite:///{folder / 'journal.db'}",
    )


# A worker process: starts the run or goes on with it, and says how that ended.


async def work(folder: Path, stop_at: str, decisions: Mapping[str, str]) -> None:
    agent = build_agent(folder, stop_at)
    if decisions:
        reply = await agent.resume(THREAD, {call: Result(output) for call, output in decisions.items()})
    elif await agent.history(THREAD):
        reply = await agent.call(None, thread=THREAD)
    else:
        reply = await agent.call("Please handle order 1042.", thread=THREAD)
    for wish in reply.pause.calls if reply.pause else ():
        print(f"paused, {wish.kind} outcome: {wish.reason}")
    if not reply.pause:
        print(f"answer: {reply.text}")
    await agent.close()


# The demo: starts workers, kills them, and reads the journal and the ledger after each.


class Demo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers = 0
        self.shown = 0

    def run_worker(self, *, kill_at: str = "", decisions: Mapping[str, str] | None = None) -> str:
        """Run a worker to its end, or until it is where it should be killed; return the last thing it said."""
        self.workers += 1
        command = [sys.executable, __file__, "--worker", str(self.folder), kill_at, json.dumps(decisions or {})]
        last = ""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last = line.strip()
                if last.startswith("STOP"):
                    process.kill()  # SIGKILL: no clean-up, nothing flushed
                    last = f"killed {last[5:]}"
                print(f"   worker {self.workers} (process {process.pid}): {last}")
        return last

    async def show(self) -> None:
        """What the last worker left behind."""
        store = SQLiteStore(self.folder / "journal.db")
        records = await store.read(THREAD)
        await store.close()
        names = dict(pair for record in records for pair in calls_in(record))
        for number, record in list(enumerate(records, 1))[self.shown :]:
            print(f"   journal {number:2}: {describe(record, names)}")
        self.shown = len(records)
        print(f"   ledger: {', '.join(self.ledger())}")

    def ledger(self) -> list[str]:
        return (self.folder / "ledger.txt").read_text(encoding="utf-8").splitlines()

    async def unknown_call(self) -> str:
        """The call that was started and never finished."""
        store = SQLiteStore(self.folder / "journal.db")
        records = await store.read(THREAD)
        await store.close()
        finished = {record.call for record in records if isinstance(record, FinishedRecord)}
        return next(
            record.call for record in records if isinstance(record, StartedRecord) and record.call not in finished
        )


def calls_in(record: Record) -> Iterator[tuple[str, str]]:
    """The calls that a model's answer makes: id and tool."""
    if isinstance(record, UpdateRecord) and record.values:
        for block in (block for msg in record.values.get("messages", ()) for block in msg["content"]):
            if block["type"] == "tool_use":
                yield block["id"], block["name"]


def describe(record: Record, names: Mapping[str, str]) -> str:
    match record:
        case InputRecord():
            return "the order came in"
        case UpdateRecord(node="model"):
            wanted = [name for _, name in calls_in(record)]
            return f"the model asked for {', '.join(wanted)}" if wanted else "the model answered"
        case UpdateRecord():
            return "the results are part of the history"
        case StartedRecord():
            return f"{names[record.call]} is about to run"
        case FinishedRecord():
            return f"{names[record.call]} has finished: {record.result['output']!r}"
        case PausedRecord():
            return "the run waits for a decision"
        case ResumedRecord():
            return "a new run goes on" + (" with the decision" if record.answers else "")
        case EndedRecord():
            return f"the run ended: {record.reason}"
        case _:
            return record.kind


async def check(demo: Demo, answer: str) -> list[tuple[str, bool]]:
    """The promise, point by point."""
    agent = build_agent(demo.folder)
    history = await agent.history(THREAD)
    await agent.close()
    assert_valid_history(history)
    ledger = demo.ledger()
    return [
        ("every tool ran exactly once", len(ledger) == len(set(ledger)) == 4),
        ("the card was charged once", ledger.count("charge_card 42.00 EUR") == 1),
        ("every call has exactly one result", sum(len(msg.tool_results) for msg in history) == 4),
        ("the run came to its answer", answer == f"answer: {ANSWER}" and history[-1].text == ANSWER),
    ]


async def main(folder: Path) -> int:
    demo = Demo(folder)
    print("Treadle, a scripted demo: the model is a script; the processes, the kills and the journal are real.")

    print("\n1. A worker takes the order. It is killed inside `charge_card`, after the money moved.")
    demo.run_worker(kill_at="inside charge_card")
    await demo.show()
    print("   The two look-ups are finished. `charge_card` was started, and nothing says how it ended.")

    print("\n2. A new worker goes on. The look-ups do not run again, and `charge_card` is not repeated on a guess.")
    demo.run_worker()
    await demo.show()

    call = await demo.unknown_call()
    print("\n3. A person looks into the ledger: the charge is there. The decision is")
    print(f"   Result({CHARGED!r}) for {call}, and the next worker is killed between two steps.")
    demo.run_worker(kill_at="while the model thinks", decisions={call: CHARGED})
    await demo.show()

    print("\n4. The last worker finishes the order.")
    answer = demo.run_worker()
    await demo.show()

    print("\nWhat had to hold, over two kills and four processes:")
    points = await check(demo, answer)
    for point, holds in points:
        print(f"   {'yes' if holds else 'NO '}  {point}")
    return 0 if all(holds for _, holds in points) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        asyncio.run(work(Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])))
    else:
        with tempfile.TemporaryDirectory() as made:
            sys.exit(asyncio.run(main(Path(made))))
