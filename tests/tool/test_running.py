"""How functions run: on the loop or in threads, with progress, retries, timeouts and cancellation."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tool.support import Progress, context_of, invoke, output
from treadle.errors import ToolError, ToolTimeoutError, TreadleError
from treadle.message import TextBlock
from treadle.tool import FunctionTool, Suspend, Tool, ToolContext, ToolResult, tool

user = contextvars.ContextVar("user", default="nobody")


class Gate:
    """Lets a test wait until a thread has arrived, and lets the thread go on."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> None:
        self.arrived.set()
        assert self.go.wait(20)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.arrived.wait, 20)


# Threads


async def test_sync_functions_run_in_a_thread_that_sees_the_context_variables() -> None:
    @tool
    def look() -> list[Any]:
        seen = [threading.current_thread() is threading.main_thread(), user.get()]
        user.set("changed in the thread")
        return seen

    user.set("ada")
    assert await output(look) == '[false,"ada"]'
    assert user.get() == "ada"


async def test_sync_functions_do_not_block_each_other_or_the_loop() -> None:
    barrier = threading.Barrier(50)

    @tool
    def meet(i: int) -> int:
        barrier.wait(20)
        return i

    results = await asyncio.gather(*(output(meet, {"i": i}) for i in range(50)))
    assert results == [str(i) for i in range(50)]


async def test_a_sync_function_may_return_something_to_wait_for() -> None:
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async def items(n: int) -> AsyncIterator[int]:
        yield n
        yield 3 * n

    @functools.wraps(later)
    def wrapper(*args: Any, **kwargs: Any) -> Awaitable[int]:
        return later(*args, **kwargs)

    @functools.wraps(items)
    def generator(*args: Any, **kwargs: Any) -> AsyncIterator[int]:
        return items(*args, **kwargs)

    assert await output(FunctionTool(wrapper), {"n": 4}) == "8"
    assert await output(FunctionTool(generator), {"n": 4}) == "12"


# Progress


def counting(n: int) -> Iterator[str]:
    for i in range(n):
        yield f"{user.get()} {i}"


async def counting_async(n: int) -> AsyncIterator[str]:
    for i in range(n):
        yield f"{user.get()} {i}"


@pytest.mark.parametrize("function", [counting, counting_async])
async def test_items_are_progress_and_the_last_one_is_the_result(function: Callable[..., Any]) -> None:
    progress = Progress()
    user.set("ada")
    assert (await invoke(FunctionTool(function), {"n": 3}, emitter=progress)).output == "ada 2"
    assert progress.chunks == ["ada 0", "ada 1", "ada 2"]
    assert await output(FunctionTool(function), {"n": 3}) == "ada 2"
    assert await output(FunctionTool(function), {"n": 0}) == ""


async def test_a_generators_return_value_wins() -> None:
    def count() -> Iterator[Any]:
        yield 1
        yield {"done": 2}
        yield TextBlock(text="block")
        yield ToolResult(output=(TextBlock(text="a"), TextBlock(text="b")))
        return "all"

    progress = Progress()
    assert (await invoke(FunctionTool(count), emitter=progress)).output == "all"
    blocks = [TextBlock(text=text) for text in ("block", "a", "b")]
    assert progress.chunks == ["1", '{"done":2}', *blocks]


async def test_a_generator_stays_in_one_thread() -> None:
    def where() -> Iterator[str]:
        for _ in range(5):
            yield threading.current_thread().name

    progress = Progress()
    await invoke(FunctionTool(where), emitter=progress)
    assert len(set(progress.chunks)) == 1


def failing() -> Iterator[str]:
    yield "one"
    raise ValueError("broken")


async def failing_async() -> AsyncIterator[str]:
    yield "one"
    raise ValueError("broken")


@pytest.mark.parametrize("function", [failing, failing_async])
async def test_a_generator_that_fails_has_made_progress(function: Callable[..., Any]) -> None:
    progress = Progress()
    with pytest.raises(ValueError, match="broken"):
        await invoke(FunctionTool(function), emitter=progress)
    assert progress.chunks == ["one"]


@pytest.mark.parametrize("function", [counting, counting_async])
async def test_an_emitter_that_fails_ends_the_generator(function: Callable[..., Any]) -> None:
    async def emit(chunk: Any) -> None:
        raise RuntimeError("nobody listens")

    with pytest.raises(RuntimeError, match="nobody listens"):
        await invoke(FunctionTool(function), {"n": 3}, emitter=emit)


# Failures


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (asyncio.CancelledError(), "`broken` was cancelled from within"),
        (concurrent.futures.CancelledError(), "`broken` was cancelled from within"),
        (SystemExit(3), "`broken` tried to end the program"),
    ],
)
async def test_what_would_tear_down_the_run_is_an_ordinary_error(error: BaseException, text: str) -> None:
    def broken() -> None:
        raise error

    async def broken_async() -> None:
        raise error

    for function in (broken, broken_async):
        with pytest.raises(ToolError, match=text):
            await output(FunctionTool(function, name="broken"))


async def test_stop_iteration_does_not_hang_the_run() -> None:
    @tool
    def broken() -> None:
        raise StopIteration

    with pytest.raises(ToolError, match="`broken` raised StopIteration"):
        await output(broken)


async def test_a_task_of_the_tools_own_that_is_cancelled_is_an_ordinary_error() -> None:
    @tool
    async def broken() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    with pytest.raises(ToolError, match="cancelled from within"):
        await output(broken)


async def test_a_suspended_tool_says_why() -> None:
    @tool(retries=3)
    def ask() -> None:
        raise Suspend("a person must look at it")

    with pytest.raises(Suspend) as caught:
        await output(ask)
    assert caught.value.reason == "a person must look at it"


# Retries


def flaky(failures: int, error: type[BaseException] = ConnectionError) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def function() -> str:
        calls.append(len(calls))
        if len(calls) <= failures:
            raise error(f"failure {len(calls)}")
        return "done"

    return function, calls


@pytest.mark.parametrize("is_async", [False, True])
async def test_retries_really_retry(is_async: bool) -> None:
    function, calls = flaky(failures=2)

    async def function_async() -> str:
        return function()

    made = FunctionTool(function_async if is_async else function, retries=2)
    assert await output(made) == "done"
    assert len(calls) == 3


async def test_the_last_error_is_the_one_that_is_raised() -> None:
    function, calls = flaky(failures=5)
    with pytest.raises(ConnectionError, match="failure 2"):
        await output(FunctionTool(function, retries=1))
    assert len(calls) == 2


@pytest.mark.parametrize("error", [Suspend, KeyboardInterrupt])
async def test_what_is_no_failure_is_not_retried(error: type[BaseException]) -> None:
    calls: list[int] = []

    @tool(retries=3)
    async def function() -> str:
        calls.append(1)
        raise error("x")

    run = function.run({}, context_of())
    with pytest.raises(error):
        run.send(None)
    assert len(calls) == 1


# Timeouts


async def forever() -> None:
    await asyncio.Event().wait()


async def test_an_async_function_is_cancelled_at_its_timeout() -> None:
    ended: list[str] = []

    @tool(timeout=0.01, retries=5)
    async def slow() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(ToolTimeoutError, match=r"`slow` did not finish within 0\.01 s") as caught:
        await output(slow)
    assert ended == ["cancelled"]
    assert isinstance(caught.value, TreadleError)
    assert isinstance(caught.value, TimeoutError)


async def test_a_thread_that_is_late_is_abandoned_and_its_result_is_not_lost() -> None:
    gate = Gate()
    late: list[concurrent.futures.Future[Any]] = []

    @tool(timeout=0.01)
    def slow() -> str:
        gate()
        return "late"

    with pytest.raises(ToolTimeoutError):
        await invoke(slow, abandoned=late.append)
    gate.go.set()
    assert await asyncio.wrap_future(late[0]) == ToolResult(output="late")


async def test_a_timeout_of_the_functions_own_stays_its_own() -> None:
    @tool(timeout=20)
    async def slow() -> None:
        raise TimeoutError("the server's")

    with pytest.raises(TimeoutError, match="the server's") as caught:
        await output(slow)
    assert not isinstance(caught.value, ToolTimeoutError)


async def test_a_timeout_covers_all_tries() -> None:
    @tool(timeout=0.2, retries=1_000)
    async def broken() -> None:
        raise ConnectionError

    with pytest.raises(ToolTimeoutError):
        await output(broken)


# Cancellation


async def test_cancelling_an_async_tool_reaches_it() -> None:
    ended, started = list[str](), asyncio.Event()

    @tool
    async def slow() -> None:
        started.set()
        try:
            await forever()
        finally:
            ended.append("cleaned up")

    task = asyncio.ensure_future(output(slow))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]


async def cancelled(made: Tool, gate: Gate, **fields: Any) -> None:
    """Run a tool, cancel the run when the tool is at its gate, and see it end while the tool still stands there."""
    task = asyncio.ensure_future(invoke(made, **fields))
    await gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_running_thread_is_abandoned_at_once() -> None:
    gate, late = Gate(), list[concurrent.futures.Future[Any]]()

    @tool(retries=3)
    def slow() -> int:
        gate()
        return 7

    await cancelled(slow, gate, abandoned=late.append)
    gate.go.set()
    assert await asyncio.wrap_future(late[0]) == ToolResult(output="7")


async def test_a_late_failure_is_handed_over_too_and_shows_nothing_locked() -> None:
    gate, late = Gate(), list[concurrent.futures.Future[Any]]()

    def slow(key: str) -> int:
        gate()
        raise ValueError(key)

    await cancelled(FunctionTool(slow, presets={"key": "sk-123456"}, locked="key"), gate, abandoned=late.append)
    gate.go.set()
    with pytest.raises(ToolError, match=r"^ValueError: \*\*\*$"):
        await asyncio.wrap_future(late[0])


async def test_nobody_has_to_take_an_abandoned_thread() -> None:
    gate, ended = Gate(), threading.Event()

    @tool
    def slow() -> None:
        gate()
        ended.set()

    await cancelled(slow, gate)
    gate.go.set()
    assert await asyncio.to_thread(ended.wait, 20)


async def test_a_thread_that_has_not_started_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Any] = []
    ran: list[int] = []

    @tool
    def quick(i: int) -> None:
        ran.append(i)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr("treadle.tool._invoke._pool", pool)
        gate = Gate()
        busy = pool.submit(gate)
        task = asyncio.ensure_future(invoke(quick, {"i": 1}, abandoned=late.append))
        await gate.reached()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.go.set()
        busy.result()
    assert (ran, late) == ([], [])


async def test_a_generator_ends_at_its_next_item_when_nobody_waits_for_it() -> None:
    gate, late = Gate(), list[concurrent.futures.Future[Any]]()
    ended: list[str] = []

    @tool
    def slow() -> Iterator[int]:
        try:
            gate()
            yield 1
            ended.append("went on")
        finally:
            ended.append("closed")

    await cancelled(slow, gate, abandoned=late.append)
    gate.go.set()
    with pytest.raises(ToolError, match="`slow` was stopped before its end"):
        await asyncio.wrap_future(late[0])
    assert ended == ["closed"]


async def test_a_generator_whose_item_nobody_takes_is_freed() -> None:
    late, taking = list[concurrent.futures.Future[Any]](), asyncio.Event()

    @tool
    def slow() -> Iterator[int]:
        yield 1

    async def emit(chunk: Any) -> None:
        taking.set()
        await forever()

    task = asyncio.ensure_future(invoke(slow, emitter=emit, abandoned=late.append))
    await taking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ToolError, match="was stopped"):
        await asyncio.wrap_future(late[0])


async def test_a_coroutine_that_nobody_waits_for_is_closed() -> None:
    gate, late = Gate(), list[concurrent.futures.Future[Any]]()

    async def later() -> int:
        return 1

    @tool
    def slow() -> Awaitable[int]:
        gate()
        return later()

    await cancelled(slow, gate, abandoned=late.append)
    gate.go.set()
    with pytest.raises(ToolError, match="was stopped"):
        await asyncio.wrap_future(late[0])


async def test_a_sync_tool_can_see_that_nobody_waits() -> None:
    gate, seen = Gate(), list[bool]()

    @tool
    def slow(ctx: ToolContext) -> None:
        seen.append(ctx.cancelled)
        gate()
        seen.append(ctx.cancelled)

    late: list[concurrent.futures.Future[Any]] = []
    await cancelled(slow, gate, abandoned=late.append)
    gate.go.set()
    await asyncio.wrap_future(late[0])
    assert seen == [False, True]


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_pool_is_not_shared_with_a_forked_child() -> None:
    async def run() -> Any:
        return await output(tool(lambda: "ran", name="quick"))

    assert asyncio.run(run()) == "ran"
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, asyncio.run(run()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"ran"
