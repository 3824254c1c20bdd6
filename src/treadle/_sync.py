"""The face for code without async: one background event loop for all of it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop behind `call_sync` and its like, started at first use."""
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_loop.run_forever, name="treadle-sync", daemon=True)
            thread.start()
            atexit.register(_stop, _loop, thread)
        return _loop


def _after_fork() -> None:
    """A forked child has the loop but not the thread that runs it, so it makes a loop of its own."""
    global _lock, _loop
    if _loop is not None:
        atexit.unregister(_stop)
    _lock, _loop = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Let cancelled runs close their threads before the process goes."""
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
    thread.join(timeout=5)
    if not thread.is_alive():
        loop.close()


async def _cancel_all() -> None:
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=4)
    loop.call_soon(loop.stop)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from sync code, also inside a running loop such as a notebook's.

    Ctrl-C while waiting cancels the work, which still closes its thread properly.
    """
    loop = background_loop()
    if threading.current_thread().name == "treadle-sync":
        work.close()
        raise RuntimeError(
            "`call_sync`, `invoke_sync` and their like cannot be used in async code that one of them runs; "
            "use `await call(...)` or `await invoke(...)` there."
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
