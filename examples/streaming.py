"""Show an agent's work in the terminal while it happens: its words, its calls, and how far they are.

The model is a script, so it needs no network and no key: `python examples/streaming.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treadle import ReActAgent, Toolkit
from treadle.event import ActingChunkEvent, PostActingEvent, PreActingEvent, ReasoningChunkEvent
from treadle.testing import ScriptedModel, Turn, tool_call

toolkit = Toolkit()


@toolkit.tool
def download(url: str) -> Iterator[str]:
    """Download a page."""
    yield "10 %"
    yield "60 %"
    return f"the text of {url}"


SCRIPT = [
    ["I get the page.", tool_call("download", url="example.org")],
    Turn(content="It is an example, and nothing but an example.", delay=0.02),
]


async def main() -> None:
    """Ask one question, and print every event that a person may want to see."""
    agent = ReActAgent(name="Reader", model=ScriptedModel(SCRIPT), toolkit=toolkit)
    async with agent.stream("What is on example.org?") as stream:
        async for event in stream:
            match event:
                case ReasoningChunkEvent():
                    print(event.text, end="", flush=True)  # "" for thinking and pieces of calls: `event.delta` has them
                case PreActingEvent():
                    print(f"\n-> {event.call.name} {event.input}")
                case ActingChunkEvent():
                    print(f"   {event.chunk}")
                case PostActingEvent():
                    print(f"<- {event.result.text}")
                case _:
                    pass
    reply = await stream.result()
    print(f"\n[{reply.reason}, {reply.usage.requests} requests]")


if __name__ == "__main__":
    asyncio.run(main())
