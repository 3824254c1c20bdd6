"""A graph around an agent: work side by side, a question to a person, an agent as a node, and a look at what if.

The model is a script, so it needs no network and no key: `python examples/report_graph.py`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, TypedDict

from treadle import ReActAgent
from treadle.graph import END, START, CompiledGraph, Send, StateGraph, append, pause
from treadle.testing import ScriptedModel


class State(TypedDict):
    """What the nodes share. `notes` grows; the other keys are replaced."""

    topic: str
    questions: list[str]
    notes: Annotated[list[str], append]
    input: str
    report: str


async def plan(state: State) -> dict[str, list[str]]:
    """Split the work."""
    return {"questions": [f"Who invented {state['topic']}?", f"Who makes {state['topic']} today?"]}


async def research(question: str) -> dict[str, list[str]]:
    """Answer one question; there is a run of this node for each."""
    return {"notes": [f"{question} Not known."]}


def ask(state: State) -> dict[str, str]:
    """Wait for a person's word, in this process or another one."""
    style = pause({"question": f"{len(state['notes'])} notes. Which style?"})
    return {"input": f"Write in {style} style: {' '.join(state['notes'])}"}


def build() -> CompiledGraph:
    """The agent reads `input` and writes its answer under its `output_key`."""
    writer = ReActAgent(
        name="writer", output_key="report", model=ScriptedModel([lambda request: request.messages[-1].text])
    )
    graph = StateGraph(State).add_node(plan).add_node(research).add_node(ask).add_node(writer)
    graph.add_edge(START, "plan").add_edge("research", "ask").add_edge("ask", "writer").add_edge("writer", END)
    graph.add_conditional_edges("plan", lambda state: [Send("research", q) for q in state["questions"]], ["research"])
    return graph.compile()


async def main() -> None:
    """Run to the question, answer it, then go back and answer it in another way."""
    graph = build()
    result = await graph.invoke({"topic": "silk"}, thread="silk")
    if result.pause is not None:
        print("waiting:", result.pause.wishes[0].value)
    result = await graph.resume("silk", "plain")
    print("report: ", result["report"])

    before_ask = next(at for at in await graph.history("silk") if at.next == ("ask",))
    fork = await graph.fork("silk", before_ask.seq)
    await graph.update_state(fork, {"notes": ["One more note."]})
    await graph.invoke(thread=fork)
    result = await graph.resume(fork, "florid")
    print("what if:", result["report"])
    first = (await graph.state("silk")).state
    print("the first thread is as it was:", len(first["notes"]), "notes")


if __name__ == "__main__":
    asyncio.run(main())
