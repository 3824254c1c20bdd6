"""Treadle's side: the same script behind `ChatModel`, everything else as a user has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from _script import PROMPT, SYSTEM, Call, Script, ToolFunction, Turn, pieces
from treadle import ReActAgent, Toolkit
from treadle.event import ReasoningChunkEvent
from treadle.message import TextBlock, ToolUseBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta, Usage


class ScriptModel(ChatModel):
    """A model that takes no time. With `chunked` it streams its text in pieces, else it gives the whole answer."""

    name = "script"

    def __init__(self, script: Script, *, chunked: bool = False) -> None:
        self.chunked = chunked
        self._script = script

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        turn = await self._script.next()
        if isinstance(turn, str):
            if self.chunked:
                for piece in pieces(turn):
                    yield TextDelta(piece)
            yield ModelResponse(content=(TextBlock(text=turn),), usage=Usage(requests=1))
        else:
            yield _asking_for(turn)


def _asking_for(calls: Sequence[Call]) -> ModelResponse:
    content = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in calls)
    return ModelResponse(content=content, stop_reason="tool_use", usage=Usage(requests=1))


def toolkit(functions: Sequence[ToolFunction]) -> Toolkit:
    tools = Toolkit()
    for function in functions:
        tools.tool(function)
    return tools


class TreadleAgent:
    """A `ReActAgent` on one thread: the private one in memory, or the thread `t` of a store."""

    def __init__(self, model: ScriptModel, tools: Toolkit, store: str | None) -> None:
        self._model = model
        self._thread = "t" if store else None
        self._agent = ReActAgent(
            name="calculator", system_prompt=SYSTEM, model=model, toolkit=tools, max_iters=10**9, store=store
        )

    async def run(self, prompt: str = PROMPT) -> str:
        return (await self._agent.call(prompt, thread=self._thread)).text

    async def stream(self, prompt: str = PROMPT) -> AsyncIterator[str]:
        self._model.chunked = True
        async for event in self._agent.stream(prompt, thread=self._thread):
            if isinstance(event, ReasoningChunkEvent) and isinstance(event.delta, TextDelta):
                yield event.delta.text

    async def close(self) -> None:
        await self._agent.close()


def agent(turns: Sequence[Turn], toolkit: Toolkit, *, latency: float = 0.0, store: str | None = None) -> TreadleAgent:
    return TreadleAgent(ScriptModel(Script(turns, latency)), toolkit, store)
