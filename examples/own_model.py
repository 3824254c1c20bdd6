"""A model of your own: one method, `stream`, that yields pieces as they come and the whole answer last.

This one is no language model but a few rules, so it needs no network and no key: `python examples/own_model.py`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from treadle import ReActAgent
from treadle.message import TextBlock, ToolUseBlock
from treadle.model import ChatModel, Delta, ModelProfile, ModelRequest, ModelResponse, TextDelta, Usage


class Rules(ChatModel):
    """Adds whatever numbers it finds, by calling a tool if it was given one."""

    name = "rules"
    profile = ModelProfile(forced_tool_choice=False)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Call `add` for a question; put the tool's result into words."""
        usage = Usage(requests=1, input_tokens=sum(len(msg.text.split()) for msg in request.messages))
        last = request.messages[-1]
        numbers = [int(number) for number in re.findall(r"\d+", last.text)]
        if last.role == "user" and numbers and any(spec.name == "add" for spec in request.tools):
            call = ToolUseBlock(id="", name="add", input={"numbers": numbers})  # without an id it gets one
            yield ModelResponse(content=(call,), stop_reason="tool_use", usage=usage)
            return
        text = f"It is {last.tool_results[0].text}." if last.tool_results else "I only add numbers."
        for word in re.findall(r"\S+\s*", text):
            yield TextDelta(word)
        yield ModelResponse(content=(TextBlock(text=text),), usage=usage)


def add(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)


def main() -> None:
    """A plain script: `call_sync` needs no event loop."""
    agent = ReActAgent(name="Adder", model=Rules(), toolkit=[add])
    for question in ("What is 17 and 25?", "And 1, 2 and 3?", "Who are you?"):
        reply = agent.call_sync(question)
        print(f"{question} {reply.text} ({reply.usage.requests} requests, {reply.usage.input_tokens} tokens)")


if __name__ == "__main__":
    main()
