"""Treadle for the bench that compares frameworks; fake seam: `ChatModel`. Run it from the root of this repository."""

# pyright: reportMissingModuleSource=false
# `script` belongs to the bench.

PACKAGES = ["."]
IMPORTS = "from treadle import ReActAgent, Toolkit"
DIST = "treadle"
STORES = ("sqlite",)

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from script import PROMPT, SYSTEM, Script, Turn, chunks

from treadle import ReActAgent, Toolkit
from treadle.event import ReasoningChunkEvent
from treadle.message import TextBlock, ToolUseBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta, Usage


class Fake(ChatModel):
    """The bench's script as a model; `chunked` is set by `stream`."""

    name = "fake"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.chunked = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        turn = await self.script.next()
        if isinstance(turn, str):
            for piece in chunks(turn) if self.chunked else ():
                yield TextDelta(piece)
            yield ModelResponse(content=(TextBlock(text=turn),), usage=Usage(requests=1))
        else:
            calls = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.args) for call in turn)
            yield ModelResponse(content=calls, stop_reason="tool_use", usage=Usage(requests=1))


@dataclass(frozen=True, slots=True)
class Subject:
    """What the bench hands around: an agent, its model, and the thread it talks on."""

    agent: ReActAgent
    model: ChatModel
    thread: str | None


def agent(
    turns: Sequence[Turn],
    tools: Sequence[Callable[..., Awaitable[int]]],
    latency: float = 0.0,
    store: str | None = None,
    path: str | None = None,
) -> Subject:
    toolkit = Toolkit()
    for function in tools:
        toolkit.tool(function)
    model = Fake(Script(turns, latency))
    built = ReActAgent(
        name="calculator",
        system_prompt=SYSTEM,
        model=model,
        toolkit=toolkit,
        max_iters=10**9,
        store=f"sqlite:///{path}" if store else None,
    )
    return Subject(built, model, "t" if store else None)


def wire(base_url: str, tools: Sequence[Callable[..., Awaitable[int]]]) -> Callable[[], Subject]:
    from treadle.model._openai import OpenAIChatModel

    toolkit = Toolkit(tools)
    model = OpenAIChatModel("fake", base_url=base_url, auth="x")

    def fresh() -> Subject:
        built = ReActAgent(name="calculator", system_prompt=SYSTEM, model=model, toolkit=toolkit)
        return Subject(built, model, None)

    return fresh


async def run(subject: Subject, prompt: str = PROMPT) -> str:
    return (await subject.agent.call(prompt, thread=subject.thread)).text


async def stream(subject: Subject, prompt: str = PROMPT) -> AsyncIterator[str]:
    if isinstance(subject.model, Fake):
        subject.model.chunked = True
    async for event in subject.agent.stream(prompt, thread=subject.thread):
        if isinstance(event, ReasoningChunkEvent) and isinstance(event.delta, TextDelta):
            yield event.delta.text


async def close(subject: Subject) -> None:
    await subject.agent.close()
