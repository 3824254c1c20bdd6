"""Ask a person first: one process stops before the payment, another one goes on with the decision.

The model is a script, so it needs no network and no key: `python examples/approval.py` plays all three parts.
`python examples/approval.py FOLDER ask`, `... show` and `... decide 90` play them one by one.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from treadle import Approve, Edit, ReActAgent, Reject, Reply
from treadle.testing import ScriptedModel, tool_call
from treadle.tool import tool

THREAD = "invoice-7"


@tool(approval=lambda input: input["amount"] > 10)
def pay(amount: int) -> str:
    """Pay an invoice; amounts above 10 need a person's consent."""
    return f"paid {amount} EUR"


def build_agent(folder: Path) -> ReActAgent:
    """Every process builds the same agent on the same file."""
    script = [[tool_call("pay", amount=5), tool_call("pay", amount=100)], "Both invoices are settled."]
    store = f"sqlite:///{folder / 'clerk.db'}"
    return ReActAgent(name="Clerk", model=ScriptedModel(script), toolkit=[pay], store=store)


def tell(reply: Reply[Any]) -> None:
    """What there is to decide, or the answer."""
    if reply.pause is None:
        print(f"   {reply.reason}: {reply.text}")
        return
    for wish in reply.pause.calls:
        print(f"   waiting: {wish.name} {wish.input}. {wish.reason}")


async def decide(agent: ReActAgent, amount: int) -> Reply[Any]:
    """Approve the amount, lower it, or refuse with 0."""
    reply = await agent.resume(THREAD)  # shows again what waits; nothing has to be remembered outside
    for wish in reply.pause.calls if reply.pause is not None else ():
        asked = (wish.input or {})["amount"]
        lower = Edit({"amount": amount}) if amount else Reject("Not this month.")
        reply = await agent.resume(THREAD, {wish.id: Approve() if amount == asked else lower})
    return reply


async def play(folder: Path, part: str, amount: int) -> None:
    """One process."""
    agent = build_agent(folder)
    if part == "ask":
        tell(await agent.call("Pay the open invoices.", thread=THREAD))
    elif part == "show":
        tell(await agent.resume(THREAD))
    else:
        tell(await decide(agent, amount))
        for msg in await agent.history(THREAD):
            for result in msg.tool_results:
                print(f"   {result.name}: {result.text}")
    await agent.close()


def main() -> None:
    """Three processes, one after another, that share nothing but a file."""
    with tempfile.TemporaryDirectory() as folder:
        for part in (["ask"], ["show"], ["decide", "90"]):
            print(f"A process: {' '.join(part)}", flush=True)
            subprocess.run([sys.executable, __file__, folder, *part], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(play(Path(sys.argv[1]).resolve(), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    else:
        main()
