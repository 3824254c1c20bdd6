"""How events leave a run: one reader that sets the pace, and any number of observers that never do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque

from treadle.event import Event, ReasoningChunkEvent, SummaryChunkEvent
from treadle.model import TextDelta, ThinkingDelta


class Channel:
    """A bounded queue of events between a run and its one reader.

    The reader takes what is there without waiting, so that a burst of chunks costs one switch of tasks, not one each.
    """

    __slots__ = ("_events", "_limit", "_ready", "_room", "closed", "muted")

    def __init__(self, limit: int = 256) -> None:
        self._events: deque[Event] = deque()
        self._limit = limit
        self._ready: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        self.closed = False
        self.muted = False

    def put(self, event: Event) -> bool:
        """Add an event; False means: full, call `room` before the next one."""
        if self.muted:
            return True
        self._events.append(event)
        if self._ready is not None:
            _wake(self._ready)
            self._ready = None
        return len(self._events) < self._limit

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while len(self._events) >= self._limit and not self.muted:
            self._room = self._room or asyncio.Event()  # one for all the nodes that wait
            await self._room.wait()

    async def get(self) -> Event | None:
        """Return the next event, or None when the run is over."""
        while not self._events:
            if self.closed:
                return None
            self._ready = asyncio.get_running_loop().create_future()
            await self._ready
        event = self._events.popleft()
        if self._room is not None and len(self._events) <= self._limit // 2:
            self._room.set()
            self._room = None
        return event

    def take(self) -> Event | None:
        """Return the next event if one is there and the run is not held up."""
        return self._events.popleft() if self._events and self._room is None else None

    def mute(self) -> None:
        """Nobody reads any more: let the run go on without waiting."""
        self.muted = True
        self._events.clear()
        if self._room is not None:
            self._room.set()
            self._room = None

    def close(self) -> None:
        """The run is over; what is queued can still be read."""
        self.closed = True
        if self._ready is not None:
            _wake(self._ready)
            self._ready = None


class Observer:
    """A reader that never slows a run: while it lags behind, neighbouring text is joined into one event."""

    __slots__ = ("_events", "_lag", "_ready", "closed")

    def __init__(self, lag: int = 64) -> None:
        self._events: deque[Event | list[ReasoningChunkEvent | SummaryChunkEvent]] = deque()
        self._lag = lag
        self._ready: asyncio.Future[None] | None = None
        self.closed = False

    def put(self, event: Event) -> None:
        """Add an event, never waiting."""
        if len(self._events) >= self._lag and _is_text(event):
            last = self._events[-1]
            if isinstance(last, list) and _same_block(last[0], event):
                last.append(event)  # type: ignore[arg-type]
            else:
                self._events.append([event])  # type: ignore[list-item]
        else:
            self._events.append(event)
        if self._ready is not None:
            _wake(self._ready)
            self._ready = None

    async def get(self) -> Event | None:
        """Return the next event, or None when the run is over."""
        while not self._events:
            if self.closed:
                return None
            self._ready = asyncio.get_running_loop().create_future()
            await self._ready
        event = self._events.popleft()
        return _join(event) if isinstance(event, list) else event

    def close(self) -> None:
        """The run is over; what is queued can still be read."""
        self.closed = True
        if self._ready is not None:
            _wake(self._ready)
            self._ready = None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_text(event: Event) -> bool:
    return isinstance(event, ReasoningChunkEvent | SummaryChunkEvent) and isinstance(
        event.delta, TextDelta | ThinkingDelta
    )


def _same_block(first: ReasoningChunkEvent | SummaryChunkEvent, event: Event) -> bool:
    return (
        type(first) is type(event)
        and isinstance(event, ReasoningChunkEvent | SummaryChunkEvent)
        and type(first.delta) is type(event.delta)
        and first.delta.index == event.delta.index
        and first.source is event.source
    )


def _join(events: list[ReasoningChunkEvent | SummaryChunkEvent]) -> Event:
    first = events[0]
    if len(events) == 1 or not isinstance(first.delta, TextDelta | ThinkingDelta):
        return first
    text = "".join(event.delta.text for event in events if isinstance(event.delta, TextDelta | ThinkingDelta))
    return dataclasses.replace(first, delta=dataclasses.replace(first.delta, text=text))
