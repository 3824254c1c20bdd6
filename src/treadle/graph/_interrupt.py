"""Interrupting a thread from anywhere: this loop, another loop, another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

from treadle._sync import background_loop, run_sync
from treadle.graph._run import Run, active_run
from treadle.journal import Journal
from treadle.message import Msg
from treadle.message._codec import dumps


class Interruption:
    """A wish to interrupt, on its way. Await it to be sure that it was delivered; nothing depends on doing so."""

    def __init__(self, delivery: asyncio.Future[None] | None = None) -> None:
        self._delivery = delivery

    def __await__(self) -> Generator[Any, None, None]:
        if self._delivery is not None:
            yield from asyncio.shield(self._delivery).__await__()


def interrupt_thread(journal: Journal, thread: str, message: Msg | None, *, now: bool) -> Interruption:
    """Tell the run that drives a thread; where it is in another process, leave a note for it."""
    run = active_run(journal, thread)
    if run is not None:
        _interrupt_here(run, message, now)
        return Interruption()
    note = {"kind": "interrupt", "message": _plain(message), "now": now}
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run_sync(_post(journal, thread, note))
        return Interruption()
    # The note is posted by the background loop, so that it arrives even if this loop ends at once.
    return Interruption(
        asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_post(journal, thread, note), background_loop()))
    )


def _interrupt_here(run: Run, message: Msg | None, now: bool) -> None:
    try:
        here = asyncio.get_running_loop() is run.loop
    except RuntimeError:
        here = False
    if here or run.loop is None:
        run.interrupt(message, now=now)
    else:
        run.loop.call_soon_threadsafe(lambda: run.interrupt(message, now=now))


async def _post(journal: Journal, thread: str, note: dict[str, Any]) -> None:
    await journal.post(thread, note)


def _plain(message: Msg | None) -> Any:
    return None if message is None else json.loads(dumps(message))
