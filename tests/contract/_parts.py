"""The model, the tools and the hook of the machine: each does what the world says, and waits at gates."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from treadle import Hook, Msg, Toolkit
from treadle.event import (
    Event,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PreActingEvent,
    PreReasoningEvent,
)
from treadle.hook import CallModel, CallTool, ToolCall
from treadle.message import TextBlock, ToolResultBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta
from treadle.testing import history_problems
from treadle.tool import Suspend, ToolContext, ToolResult

if TYPE_CHECKING:
    from contract._world import World
else:
    World = Any


class Boom(Exception):
    """What models, tools and hooks of the machine raise."""


class MachineModel(ChatModel):
    """Says what was planned next, or that it is done. Every request must be valid and be in the journal."""

    name = "machine"

    def __init__(self, world: World) -> None:
        self.world = world

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        world = self.world
        world.requests += 1
        problems = history_problems(list(request.messages))
        world.problems += [f"the model was sent: {problem}" for problem in problems]
        await world.check_told(request)
        say = world.next_say()
        if say.gate == "first":
            await world.gate()
        response = say.response(world.number(len(say.calls)))
        if say.streams:
            for piece in ("so", "-so"):
                await asyncio.sleep(0)
                yield TextDelta(piece, 0)
        if say.gate == "last":
            await world.gate()
        if say.kind == "raise":
            raise Boom("model")
        if say.kind == "say":
            yield response


def make_toolkit(world: World, *, parallel: bool) -> Toolkit:  # noqa: C901 - many tools, each of a few lines
    """One tool for each way in which a tool can behave."""
    kit = Toolkit(parallel=parallel)

    @kit.tool
    async def ok(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        return "fine"

    @kit.tool
    async def bad(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        raise Boom("tool")

    @kit.tool
    async def hang(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        await world.gate()
        return "at last"

    @kit.tool(idempotent=True)
    async def safe(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        await world.gate()
        return "safe"

    @kit.tool
    def sync(n: int, ctx: ToolContext) -> str:
        world.execute(ctx)
        return "sync"

    @kit.tool
    def slow_sync(n: int, ctx: ToolContext) -> str:
        world.execute(ctx)
        gate = threading.Event()
        world.thread_gates.append(gate)
        if world.releasing:
            gate.set()
        assert gate.wait(20), "nobody released a sync tool"
        return "slow"

    @kit.tool
    async def self_cancel(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        raise asyncio.CancelledError

    @kit.tool
    async def stubborn(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        gate = asyncio.ensure_future(world.gate())
        while not gate.done():
            try:
                await asyncio.shield(gate)
            except asyncio.CancelledError:
                world.ignored += 1
        return "no way"

    @kit.tool
    async def suspend(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        raise Suspend("elsewhere")

    @kit.tool(approval=True)
    async def approve(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        return "approved"

    @kit.tool(external=True)
    async def external(n: int) -> str:
        raise AssertionError("an external tool never runs here")

    @kit.tool(ends_run=True)
    async def ends(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        return "the end"

    @kit.tool(sequential=True)
    async def alone(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        await asyncio.sleep(0)
        return "alone"

    @kit.tool
    async def chatty(n: int, ctx: ToolContext) -> ToolResult:
        await world.executing(ctx)
        await ctx.emit("half")
        await ctx.emit("whole")
        return ToolResult(output="said", metadata={"k": 1})

    @kit.tool
    async def stopper(n: int, ctx: ToolContext) -> str:
        await world.executing(ctx)
        world.agent.interrupt(thread=ctx.thread)
        return "stopping"

    return kit


ACTS: dict[str, tuple[str, ...]] = {
    "PreCallEvent": ("raise", "gate"),
    "PreReasoningEvent": ("raise", "gate", "stop", "add", "note", "cancelled"),
    "ReasoningChunkEvent": ("raise", "gate"),
    "PostReasoningEvent": ("raise", "gate", "stop", "goto", "goto_answered", "edit", "note"),
    "PreActingEvent": ("raise", "gate", "stop", "ask", "edit", "answer", "note", "cancelled"),
    "ActingChunkEvent": ("raise", "gate"),
    "PostActingEvent": ("raise", "gate", "stop", "edit", "misname", "note", "cancelled"),
    "PostCallEvent": ("raise", "gate", "edit"),
    "PreSummaryEvent": ("raise", "gate"),
    "PostSummaryEvent": ("raise", "gate"),
    "ErrorEvent": ("raise", "gate"),
    "RunStartedEvent": ("raise", "gate"),
    "RunEndedEvent": ("raise", "gate"),
    "RunPausedEvent": ("raise", "gate"),
    "RunFailedEvent": ("raise", "gate"),
    "around_model": ("raise", "gate", "cancelled"),
    "around_tool": ("raise", "gate", "cancelled"),
}


class Meddler(Hook):
    """Sees everything, and does what the world has planned for the next event of a kind."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def on_event(self, event: Event) -> None:
        kind = type(event).__name__
        self.world.seen.append(event)
        act = self.world.next_act(kind)
        if act in ("raise", "gate", "cancelled"):
            await self._get_in_the_way(act, kind)
        elif act:
            meddle(event, act)

    async def around_model(self, request: ModelRequest, call_next: CallModel) -> ModelResponse:
        await self._get_in_the_way(self.world.next_act("around_model"), "around_model")
        return await call_next(request)

    async def around_tool(self, call: ToolCall, call_next: CallTool) -> ToolResult:
        await self._get_in_the_way(self.world.next_act("around_tool"), "around_tool")
        return await call_next(call)

    async def _get_in_the_way(self, act: str, kind: str) -> None:
        if act == "raise":
            raise Boom(f"hook on {kind}")
        if act == "cancelled":
            raise asyncio.CancelledError
        if act == "gate":
            await self.world.gate()


def meddle(event: Event, act: str) -> None:
    """Change an event as a hook may."""
    match event:
        case PreReasoningEvent():
            _meddle_before(event, act)
        case PostReasoningEvent():
            _meddle_answer(event, act)
        case PreActingEvent():
            _meddle_call(event, act)
        case PostActingEvent():
            _meddle_result(event, act)
        case PostCallEvent():
            event.reply = dataclasses.replace(event.reply, content=(TextBlock(text="edited"),))
        case _:
            raise AssertionError(act)


def _meddle_before(event: PreReasoningEvent, act: str) -> None:
    if act == "stop":
        event.stop()
    elif act == "add":
        event.add_messages([Msg.user("by the way")])
    else:
        event.update_state(before=event.iteration)


def _meddle_answer(event: PostReasoningEvent, act: str) -> None:
    if act == "stop":
        event.stop()
    elif act == "goto":
        event.goto_reasoning([Msg.user("again")])
    elif act == "goto_answered":
        first = event.message.tool_calls[:1]
        answers = [Msg.tool(ToolResultBlock(id=call.id, name=call.name, output="by hook")) for call in first]
        event.goto_reasoning([Msg.user("again"), *answers])
    elif act == "edit":
        event.message = dataclasses.replace(event.message, content=(*event.message.content, TextBlock(text="!")))
    else:
        event.update_state(after=1)


def _meddle_call(event: PreActingEvent, act: str) -> None:
    if act == "stop":
        event.stop()
    elif act == "ask":
        event.ask("why?")
    elif act == "edit":
        event.input = {"n": 2}
    elif act == "answer":
        event.answer("by hook")
    else:
        event.update_state(called=event.call.id)


def _meddle_result(event: PostActingEvent, act: str) -> None:
    if act == "stop":
        event.stop()
    elif act == "edit":
        event.result = dataclasses.replace(event.result, output="edited")
    elif act == "misname":
        event.result = ToolResultBlock(id="else", name="other", output="misnamed")
    else:
        event.update_state(**{f"done_{event.call.name}": event.call.id})
