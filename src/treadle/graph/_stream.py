"""A run's events as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

from treadle.event import Event, RunFailedEvent
from treadle.graph._channel import Channel
from treadle.graph._run import Run, Terminal

T = TypeVar("T")


class EventStream(AsyncIterator[Event], Generic[T]):
    """Yields a run's events, the last one being how it ended; then raises what the run failed with, if it failed.

    The reader sets the pace. Closing the stream (`aclose`, `async with`, or letting go of it) interrupts the run
    cleanly, or lets it finish unwatched with `detach=True`.
    """

    def __init__(
        self, start: Callable[[Channel], Run], result: Callable[[Terminal], T], *, detach: bool = False
    ) -> None:
        self._start = start
        self._result = result
        self._detach = detach
        self._channel = Channel()
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def run(self) -> Run:
        """The run, started if it was not yet."""
        if self._run is None:
            self._loop = asyncio.get_running_loop()
            self._run = self._start(self._channel).start()
        return self._run

    def __aiter__(self) -> EventStream[T]:
        return self

    async def __anext__(self) -> Event:
        event = self._channel.take()
        if event is None:
            if self._run is None and self._channel.closed:
                raise StopAsyncIteration
            run = self.run
            event = await self._channel.get()
            if event is None:
                last = await run.wait()
                if isinstance(last, RunFailedEvent):
                    raise last.error
                raise StopAsyncIteration
        return event

    async def result(self) -> T:
        """Read to the end and return what `call` would have returned."""
        run = self.run
        self._channel.mute()
        return self._result(await run.wait())

    async def aclose(self) -> None:
        """Stop reading; returns when the run is over, or at once with `detach=True`."""
        run, channel = self._run, self._channel
        if run is None:
            self._channel.closed = True
            return
        over = self._detach or channel.closed
        _let_go(run, channel, over)
        if not over:
            await run.over()

    async def __aenter__(self) -> EventStream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        run, loop = self._run, self._loop
        if run is None or loop is None or self._channel.closed or loop.is_closed():
            return
        loop.call_soon_threadsafe(_let_go, run, self._channel, self._detach)


def _let_go(run: Run, channel: Channel, detach: bool) -> None:
    if not detach:
        run.interrupt(now=True)  # before nodes that wait for the reader are let through
    channel.mute()


class Watcher(AsyncIterator[Event]):
    """Events of somebody else's run; never slows it, and letting go of it changes nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._observer = run.observe()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Event:
        event = await self._observer.get()
        if event is None:
            raise StopAsyncIteration
        return event

    def __del__(self) -> None:
        self._run.unobserve(self._observer)  # else what nobody reads would pile up until the run is over
