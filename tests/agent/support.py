"""What the tests of agents share: agents with a script, records that can be compared, and processes that die."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from treadle import ReActAgent, Reply
from treadle.event import Event
from treadle.graph import EventStream
from treadle.journal import encode
from treadle.message import Msg, TextBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta
from treadle.testing import ScriptedModel, assert_valid_history

_IDS = re.compile(r"\b(msg|call|run|response|load)_[0-9a-f]+-[0-9a-f]+")


def agent_of(script: Sequence[Any] | ChatModel, *tools: Any, **options: Any) -> ReActAgent:
    """An agent that follows a script."""
    model = script if isinstance(script, ChatModel) else ScriptedModel(script)
    options.setdefault("toolkit", tools)
    options.setdefault("name", "Agent")
    return ReActAgent(model=model, **options)


def script_of(agent: ReActAgent) -> ScriptedModel:
    """The scripted model of an agent."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


async def valid_history(agent: ReActAgent, thread: str | None = None, *, open_calls: bool = False) -> list[Msg]:
    """The messages of a thread, which must be valid; and so must be every request that the model got."""
    history = await agent.history(thread)
    assert_valid_history(history, open_calls=open_calls)
    if isinstance(agent.model, ScriptedModel):
        for request in agent.model.requests:
            assert_valid_history(request.messages)
    return history


def said(history: Sequence[Msg]) -> list[str]:
    """A history in short: `user: hi`, `assistant: add()`, `tool: 3`."""
    return [f"{msg.role}: {_said(msg)}" for msg in history]


def _said(msg: Msg) -> str:
    parts = [msg.text] if msg.text else []
    parts += [f"{call.name}()" for call in msg.tool_calls]
    parts += [result.text for result in msg.tool_results]
    return " ".join(parts)


async def records(agent: ReActAgent, thread: str | None = None) -> list[Any]:
    """The records of a thread, ids numbered in the order in which they appear, times left out."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"{match[1]}#{len(numbers)}")

    found = await agent.journal.read(thread or agent.thread)
    return [_timeless(json.loads(_IDS.sub(number, encode(record)))) for record in found]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return {key: _timeless(item) for key, item in items.items() if key not in ("at", "timestamp", "began")}
    if isinstance(value, list):
        return [_timeless(item) for item in cast("list[Any]", value)]
    return value


def kinds(found: Sequence[Any]) -> list[str]:
    """The kinds of normalised records."""
    return [record["kind"] for record in found]


async def read_all(stream: EventStream[Reply[Any]]) -> list[Event]:
    """Every event of a run that does not fail."""
    return [event async for event in stream]


def names(events: Sequence[Event]) -> list[str]:
    """The classes of events, without `Event`."""
    return [type(event).__name__.removesuffix("Event") for event in events]


def died_now(agent: ReActAgent, thread: str | None = None) -> dict[str, Any]:
    """What another process finds if this one dies at this moment."""
    return json.loads(json.dumps(agent.save_state(thread=thread)))


def running(agent: ReActAgent, text: str = "Go.", **options: Any) -> asyncio.Task[Reply[Any]]:
    """A call in a task of its own."""

    async def call() -> Reply[Any]:
        return await agent.call(text, **options)

    return asyncio.ensure_future(call())


def results(history: Sequence[Msg]) -> list[tuple[str, str]]:
    """Status and text of every result."""
    return [(result.status, result.text) for msg in history for result in msg.tool_results]


class GatedModel(ChatModel):
    """Streams one text per request; at the sign `|` in a text it waits until somebody opens the gate."""

    def __init__(self, *texts: str) -> None:
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()
        self.closed = 0
        self._texts = list(texts)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Stream, wait at the gate, go on."""
        before, gate, after = self._texts.pop(0).partition("|")
        try:
            yield TextDelta(before)
            if gate:
                self.reached.set()
                await self.gate.wait()
                yield TextDelta(after)
        finally:
            self.closed += 1
        yield ModelResponse(content=(TextBlock(text=before + after),))
