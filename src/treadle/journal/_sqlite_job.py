"""`Job`: one piece of work for a journal's file, and the way of its outcome back to the event loop that asked."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any


class Job:
    """Work to do with a connection.

    `after` is called in the worker's thread once the work is durable. `undo` is called with the result if nobody is
    left to take it. `size` is about how many bytes it writes.
    """

    __slots__ = ("after", "error", "future", "loop", "result", "run", "settled", "size", "undo")

    def __init__(
        self,
        run: Callable[[sqlite3.Connection], Any],
        after: Callable[[Any], None] | None = None,
        undo: Callable[[Any], None] | None = None,
        size: int = 0,
    ) -> None:
        self.run = run
        self.after = after
        self.undo = undo
        self.size = size
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None
        self.result: Any = None
        self.error: Exception | None = None
        self.settled = False

    def expect(self) -> asyncio.Future[Any]:
        """Make the outcome come to the running event loop; without this it is nobody's."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        return self.future

    async def outcome(self) -> Any:
        """Wait for the outcome. Cancelling stops the wait, not the work."""
        assert self.future is not None
        try:
            return await self.future
        except asyncio.CancelledError:
            # Done, yet cancelled before it could be taken. Asking for the error marks it as seen.
            if not self.future.cancelled() and self.future.exception() is None:
                self.abandon()
            raise

    async def certain_outcome(self) -> Any:
        """Wait for the outcome. Cancelling takes effect after it, so that it is never in doubt."""
        cancelled: asyncio.CancelledError | None = None
        while True:
            assert self.future is not None
            try:
                result = await self.future
                break
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
                if self.settled and self.future.cancelled():  # the outcome came first, and was abandoned
                    raise cancelled from None
                if self.future.cancelled():
                    self.expect()
            except Exception as error:
                raise cancelled or error from None
        if cancelled is None:
            return result
        self.abandon()
        raise cancelled

    def resolve(self) -> None:
        """Hand the outcome over, in the event loop that asked for it."""
        self.settled = True
        if self.future is None or self.future.done():
            self.abandon()
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)

    def abandon(self) -> None:
        """Take back what nobody waits for any more."""
        if self.undo is not None and self.error is None:
            self.undo(self.result)


def deliver(jobs: list[Job]) -> None:
    """Resolve finished jobs, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, done)
        except RuntimeError:  # the loop is closed
            for job in done:
                job.abandon()


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        job.resolve()
