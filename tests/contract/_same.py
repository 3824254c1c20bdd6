"""One script, run by `call` and by `stream`: what is stored and what is seen, in a form that can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contract._parts import Boom
from contract._script import Say
from contract._world import World
from treadle import Msg
from treadle.errors import TreadleError
from treadle.event import (
    ActingChunkEvent,
    Event,
    PostActingEvent,
    PostReasoningEvent,
    PreActingEvent,
    PreReasoningEvent,
    ReasoningChunkEvent,
    RunEndedEvent,
    RunFailedEvent,
    RunPausedEvent,
)
from treadle.journal._record import encode

_ID = re.compile(r"[a-zA-Z]+_[0-9a-f]{10}-[0-9a-f]+")
_TIME = re.compile(r'"(at|timestamp|began)":[0-9.e+]+')


@dataclass(frozen=True, slots=True)
class Op:
    """One call: with a message, with decisions about what waits, or with nothing."""

    kind: str
    says: tuple[Say, ...] = ()
    decisions: tuple[Any, ...] = ()
    acts: tuple[tuple[str, str], ...] = ()


def outcome(world: World, ops: Sequence[Op], *, streamed: bool) -> dict[str, Any]:
    """Run a script on a thread and return its records, the events that hooks saw, and how each call ended."""
    world.releasing = True
    ends: list[str] = []
    streams: list[list[Event]] = []
    for op in ops:
        world.says.extend(op.says)
        world.meddle(op.acts)
        world.calls_made += 1
        events: list[Event] = []
        ends.append(world.do(_one(world, op, events if streamed else None)))
        streams.append(events)
    records = [encode(record) for record in world.do(world.raw.read("t"))]
    return {
        "records": normal(records),
        "seen": [shape(event) for event in world.seen],
        "ends": normal(ends),
        "streams": streams,
    }


async def _one(world: World, op: Op, events: list[Event] | None) -> str:
    state = (await world.loaded("t")) if op.kind == "decide" else None
    given = None
    if state is not None:
        given = dict(zip([wish["id"] for wish in state.wishes], op.decisions, strict=False)) or None
    said = Msg.user("hello") if op.kind == "say" else None
    try:
        if events is None:
            reply = await world.agent.call(said, thread="t", decisions=given)
        else:
            stream = world.agent.stream(said, thread="t", decisions=given)
            with suppress(TreadleError, Boom):
                async for event in stream:
                    events.append(event)
            reply = await stream.result()
    except (TreadleError, Boom) as error:
        return f"{type(error).__name__}: {error}"
    return f"{reply.reason}: {reply.text} {[wish.id for wish in reply.pause.wishes] if reply.pause else ''}"


def normal(texts: Sequence[str]) -> list[str]:
    """Texts with ids numbered as they come and times left out."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"id{len(numbers)}")

    return [_TIME.sub(r'"\1":0', _ID.sub(number, text)) for text in texts]


def shape(event: Event) -> str:
    """An event in one line, without its ids."""
    name = type(event).__name__
    match event:
        case ReasoningChunkEvent():
            return f"{name} {event.delta!r}"
        case PreReasoningEvent():
            return f"{name} {len(event.messages)} messages, {len(event.tools)} tools, {event.iteration}"
        case PostReasoningEvent():
            return f"{name} {event.message.text} {[call.name for call in event.message.tool_calls]}"
        case PreActingEvent():
            return f"{name} {event.call.name} {json.dumps(dict(event.input))}"
        case PostActingEvent():
            return f"{name} {event.call.name} {event.result.text}"
        case ActingChunkEvent():
            return f"{name} {event.call.name} {event.chunk}"
        case RunEndedEvent():
            return f"{name} {event.reason}"
        case RunPausedEvent():
            return f"{name} {[wish.kind for wish in event.pause.wishes]}"
        case RunFailedEvent():
            return f"{name} {type(event.error).__name__}"
        case _:
            return name
