"""Running a function: on the event loop if it is async, in a worker thread otherwise."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from types import AsyncGeneratorType, GeneratorType
from typing import Any, cast

from treadle.errors import ToolError
from treadle.message import OutputBlock
from treadle.tool._context import Emitter, ToolContext
from treadle.tool._result import ToolResult, as_chunks, as_result, blotted, scrubbed

WORKERS = 64
_pool: concurrent.futures.ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _workers() -> concurrent.futures.ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = concurrent.futures.ThreadPoolExecutor(WORKERS, thread_name_prefix="treadle-tool")
    return _pool


class Invocation:
    """One call of one function, ready to be made. `secrets` are texts that nothing may show: no error, no result."""

    __slots__ = ("call", "ctx", "name", "secrets")

    def __init__(self, name: str, call: Callable[[], Any], ctx: ToolContext, secrets: tuple[str, ...]) -> None:
        self.name = name
        self.call = call
        self.ctx = ctx
        self.secrets = secrets
        if secrets and ctx.emitter is not None:
            ctx.emitter = _without(secrets, ctx.emitter)

    def result(self, value: Any) -> ToolResult:
        """What the function returned, as a result."""
        result = as_result(value, self.name)
        return scrubbed(result, self.secrets) if self.secrets else result

    def failure(self, error: BaseException) -> BaseException:
        """What to raise for the function's error: itself, unless it says too much or would mean something else here."""
        if isinstance(error, asyncio.CancelledError | concurrent.futures.CancelledError):
            return ToolError(f"`{self.name}` was cancelled from within: nobody had asked it to stop.")
        if isinstance(error, SystemExit):
            return ToolError(f"`{self.name}` tried to end the program.")
        if isinstance(error, StopIteration):  # a future cannot carry it
            return ToolError(f"`{self.name}` raised StopIteration.")
        text = f"{type(error).__name__}: {error}" if self.secrets else ""
        if not any(secret in text for secret in self.secrets):
            return error
        return ToolError(blotted(text, self.secrets))


def _without(secrets: tuple[str, ...], emitter: Emitter) -> Emitter:
    """An emitter that shows no secret."""

    async def emit(chunk: str | OutputBlock) -> None:
        clean = scrubbed(ToolResult(output=chunk if isinstance(chunk, str) else (chunk,)), secrets).output
        await emitter(clean if isinstance(clean, str) else clean[0])

    return emit


def surfaced(invocation: Invocation, error: BaseException) -> BaseException:
    """What an async function's error becomes: itself if it may go on as it is, or if the task really is cancelled."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        return error
    return invocation.failure(error)


async def on_loop(invocation: Invocation) -> ToolResult:
    """Run an async function or async generator."""
    try:
        return invocation.result(await _settled(invocation))
    except BaseException as error:
        failure = surfaced(invocation, error)
        if failure is error:
            raise
    raise failure


async def in_thread(invocation: Invocation) -> ToolResult:
    """Run a sync function or generator in a worker thread.

    A thread cannot be stopped. When nobody waits for it any more it is handed to `ctx.abandoned`, so that its result is
    not lost.
    """
    work, ctx = _Work(invocation), invocation.ctx
    future = _workers().submit(contextvars.copy_context().run, work)
    try:
        value = await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        ctx.cancelled = True
        work.stop()
        if not future.cancel() and ctx.abandoned is not None:
            ctx.abandoned(future)
        raise
    if isinstance(value, ToolResult):
        return value
    return await on_loop(Invocation(invocation.name, lambda: value, ctx, invocation.secrets))


class _Work:
    """What the thread does. Its value is a `ToolResult`, or something that only the event loop can wait for."""

    __slots__ = ("_emission", "_invocation", "_loop", "_stopped")

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._loop = asyncio.get_running_loop()
        self._emission: concurrent.futures.Future[None] | None = None
        self._stopped = False

    def __call__(self) -> Any:
        try:
            value = self._invocation.call()
            if isinstance(value, GeneratorType):
                value = self._drain(cast("Generator[Any, None, Any]", value))
            if isinstance(value, AsyncGeneratorType) or inspect.isawaitable(value):
                return self._for_the_loop(cast(Any, value))
            return self._invocation.result(value)
        except BaseException as error:
            failure = self._invocation.failure(error)
            if failure is error:
                raise
        raise failure

    def _for_the_loop(self, value: Any) -> Any:
        """A coroutine or async generator, as long as the event loop waits for it."""
        if self._stopped and inspect.iscoroutine(value):
            value.close()
        if self._stopped:
            raise ToolError(f"`{self._invocation.name}` was stopped before its end.")
        return value

    def stop(self) -> None:
        """Let a generator end at its next item; called on the event loop."""
        self._stopped = True
        if self._emission is not None:
            self._emission.cancel()

    def _drain(self, items: Generator[Any, None, Any]) -> Any:
        last = None
        try:
            while True:
                last = next(items)
                if not self._emit(last):
                    raise ToolError(f"`{self._invocation.name}` was stopped before its end.")
        except StopIteration as end:
            return last if end.value is None else end.value
        finally:
            items.close()

    def _emit(self, item: Any) -> bool:
        """Emit one item and wait until it is taken; False when nobody waits for the tool any more."""
        if self._invocation.ctx.emitter is None or self._stopped:
            return not self._stopped
        emission = self._emission = asyncio.run_coroutine_threadsafe(_emit_all(self._invocation, item), self._loop)
        if self._stopped:  # between the two lines above
            emission.cancel()
        try:
            emission.result()
        except concurrent.futures.CancelledError:
            return False
        return not self._stopped


async def _settled(invocation: Invocation) -> Any:
    value = invocation.call()
    if isinstance(value, AsyncGeneratorType):
        return await _drained(invocation, cast("AsyncGenerator[Any, None]", value))
    return await value


async def _drained(invocation: Invocation, items: AsyncGenerator[Any, None]) -> Any:
    last = None
    async with aclosing(items):
        async for last in items:
            await _emit_all(invocation, last)
    return last


async def _emit_all(invocation: Invocation, item: Any) -> None:
    if invocation.ctx.emitter is not None:
        for chunk in as_chunks(item, invocation.name):
            await invocation.ctx.emit(chunk)
