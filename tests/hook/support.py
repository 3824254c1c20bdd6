"""What the tests of hooks share: agents with a script, hooks that write down what they saw, and a process that dies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from treadle import ReActAgent
from treadle.event import Event
from treadle.hook import Hook
from treadle.journal import (
    EndedRecord,
    FinishedRecord,
    InputRecord,
    PausedRecord,
    Record,
    ResumedRecord,
    SettledRecord,
    StartedRecord,
    UpdateRecord,
    encode,
)
from treadle.message import Msg
from treadle.model import ChatModel
from treadle.testing import ScriptedModel, assert_valid_history, tool_call

THREAD = "t"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = [tool_call("add", id="c1", a=17, b=25)]
"""An answer with one call."""
ADD_TWICE = [tool_call("add", id="c1", a=1, b=1), tool_call("add", id="c2", a=2, b=2)]
"""An answer with two calls that run beside each other."""


def agent_of(script: Sequence[Any] | ChatModel, *hooks: Hook, **options: Any) -> ReActAgent:
    """An agent that follows a script and has these hooks."""
    model = script if isinstance(script, ChatModel) else ScriptedModel(script)
    options.setdefault("toolkit", [add])
    return ReActAgent(name="Agent", model=model, hooks=hooks, **options)


def model_of(agent: ReActAgent) -> ScriptedModel:
    """The scripted model of an agent."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


class Log(Hook):
    """Writes down the events that it sees."""

    def __init__(self, *events: type[Event], priority: int = 100) -> None:
        self.events = events or None
        self.priority = priority
        self.seen: list[Event] = []

    async def on_event(self, event: Event) -> None:
        self.seen.append(event)

    @property
    def names(self) -> list[str]:
        return names(self.seen)


class Label(Hook):
    """Writes its label into a list that several hooks share."""

    def __init__(self, label: str, lines: list[str], *events: type[Event], priority: int = 100) -> None:
        self.name = label
        self.lines = lines
        self.events = events
        self.priority = priority

    async def on_event(self, event: Event) -> None:
        self.lines.append(self.name)


def names(events: Sequence[Event]) -> list[str]:
    """The classes of events, without `Event`."""
    return [type(event).__name__.removesuffix("Event") for event in events]


async def valid_history(agent: ReActAgent, thread: str | None = THREAD, *, open_calls: bool = False) -> list[Msg]:
    """The messages of a thread, which must be valid; and so must be every request that the model got."""
    history = await agent.history(thread)
    assert_valid_history(history, open_calls=open_calls)
    for request in model_of(agent).requests:
        assert_valid_history(request.messages)
    return history


def results(history: Sequence[Msg]) -> dict[str, str]:
    """The text of every result, by the id of its call."""
    return {result.id: result.text for msg in history for result in msg.tool_results}


async def lines(agent: ReActAgent, thread: str = THREAD) -> list[str]:
    """The records of a thread in short."""
    return [short(record) for record in await agent.journal.read(thread)]


def short(record: Record) -> str:
    """A record in short: its kind and what it is about."""
    match record:
        case StartedRecord() | FinishedRecord() | SettledRecord():
            return f"{record.kind} {record.call}"
        case UpdateRecord():
            return f"update {record.node}"
        case InputRecord():
            return "input" if record.next is not None else f"note {dict(record.values)}"
        case PausedRecord():
            return f"paused {', '.join(wish['kind'] for wish in record.wishes)}"
        case ResumedRecord():
            return "resumed"
        case EndedRecord():
            return f"ended {record.reason}"
        case _:
            return record.kind


async def on_disk(agent: ReActAgent, thread: str = THREAD) -> str:
    """Everything that is stored about a thread."""
    return "\n".join(encode(record) for record in await agent.journal.read(thread))


async def died_now(agent: ReActAgent, thread: str = THREAD) -> dict[str, Any]:
    """What another process finds if this one dies at this moment: what `load_state` of a fresh agent takes."""
    found = await agent.journal.read(thread)
    return {"treadle": 1, "thread": thread, "records": [json.loads(encode(record)) for record in found]}
