"""What becomes of a call that was given up because it could not be stopped: its result comes late, as a note."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
from collections.abc import Callable
from typing import Any

from treadle._sync import background_loop
from treadle.agent._storable import checked_result
from treadle.agent._texts import failed
from treadle.agent._turn import Turn
from treadle.hook import ToolCall
from treadle.message import ToolResultBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.tool import ToolResult

logger = logging.getLogger("treadle")


def late_reporter(turn: Turn, call: ToolCall) -> Callable[[concurrent.futures.Future[Any]], None]:
    """What to do when a tool that was given up comes to an end: leave a note for whoever drives the thread."""

    def report(future: concurrent.futures.Future[Any]) -> None:
        if not future.cancelled():
            asyncio.run_coroutine_threadsafe(_report(turn, call, future), background_loop())

    return report


async def _report(turn: Turn, call: ToolCall, future: concurrent.futures.Future[Any]) -> None:
    """A late result passes `around_tool` too, because what that removes must not be stored this way either."""

    async def came(_: ToolCall) -> ToolResult:
        return future.result()

    try:
        result = await turn.hooks.wrap_tool(came)(call)
    except Exception as error:
        result = failed(call.call.name, error)
    await report_late(turn, call.call, result)


async def report_late(turn: Turn, call: ToolUseBlock, result: ToolResult) -> None:
    """Leave a note about what a call that was given up came to; where even that fails, the log has it."""
    result = checked_result(result, call.name)
    block = ToolResultBlock(id=call.id, name=call.name, output=result.output, status=result.status)
    try:
        await turn.run.journal.post(
            turn.run.name, {"kind": "late", "call": call.id, "result": json.loads(dumps(block))}
        )
    except Exception as error:
        text = "The late result of call %s of `%s` (thread %r, status %s) could not be stored: %r"
        logger.warning(text, call.id, call.name, turn.run.name, result.status, error)
