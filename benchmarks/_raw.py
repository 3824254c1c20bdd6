"""The floor: the loop that one would write by hand, with plain dicts, pydantic for the arguments, and `gather`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import validate_call

from _script import PROMPT, SYSTEM, Script, ToolFunction, Turn, pieces

Message: TypeAlias = dict[str, Any]
Tools: TypeAlias = Mapping[str, Callable[..., Awaitable[object]]]


def toolkit(functions: Sequence[ToolFunction]) -> Tools:
    return {function.__name__: validate_call(function) for function in functions}


class RawAgent:
    """A model, tools, and a list of messages; nothing is stored, nothing can be watched or resumed."""

    def __init__(self, script: Script, tools: Tools) -> None:
        self._script = script
        self._tools = tools

    async def run(self, prompt: str = PROMPT) -> str:
        messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
        while True:
            answer = await self._ask(messages)
            messages.append(answer)
            calls = answer.get("tool_calls")
            if not calls:
                return answer["content"]
            messages.extend(await asyncio.gather(*map(self._act, calls)))

    async def stream(self, prompt: str = PROMPT) -> AsyncIterator[str]:
        collected: list[str] = []
        async for chunk in self._ask_streaming([{"role": "user", "content": prompt}]):
            text = chunk["choices"][0]["delta"]["content"]
            collected.append(text)
            yield text

    async def close(self) -> None:
        pass

    async def _ask(self, messages: Sequence[Message]) -> Message:
        turn = await self._script.next()
        if isinstance(turn, str):
            return {"role": "assistant", "content": turn}
        calls = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.json}} for c in turn]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    async def _ask_streaming(self, messages: Sequence[Message]) -> AsyncIterator[dict[str, Any]]:
        turn = await self._script.next()
        assert isinstance(turn, str)
        for piece in pieces(turn):
            yield {"choices": [{"index": 0, "delta": {"content": piece}}]}

    async def _act(self, tool_call: Mapping[str, Any]) -> Message:
        function = tool_call["function"]
        result = await self._tools[function["name"]](**json.loads(function["arguments"]))
        return {"role": "tool", "tool_call_id": tool_call["id"], "content": str(result)}


def agent(turns: Sequence[Turn], toolkit: Tools, *, latency: float = 0.0, store: str | None = None) -> RawAgent:
    assert store is None, "the hand-written loop stores nothing"
    return RawAgent(Script(turns, latency), toolkit)
