"""What the model is told about calls that did not end with a result of their tool. All failures read `[ERROR] ...`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.graph._state import CallState
from treadle.message import Msg, Status, ToolResultBlock, ToolUseBlock
from treadle.tool import ToolResult

EMPTY_HINT = "Your last answer was empty. Answer the user, or call a tool."
SUMMARY_HINT = (
    "The limit of reasoning steps for this task is reached. Do not call any tool. "
    "Tell the user directly what was done so far, what is still open, and the best answer you can give now."
)


def output_hint(finish: str) -> str:
    """Remind the model how to give its answer."""
    return f"Give your answer by calling the tool `{finish}`, with arguments that fit its schema."


def error_block(call: ToolUseBlock, text: str, status: Status = "error") -> ToolResultBlock:
    """A result that says what went wrong."""
    return ToolResultBlock(id=call.id, name=call.name, output=f"[ERROR] {text}", status=status)


def settle(
    pending: Iterable[ToolUseBlock],
    calls: Mapping[str, CallState],
    why: str,
    *,
    cancelled: bool = False,
    abandoned: Iterable[str] = (),
) -> list[Any]:
    """One result for each open call, saying what is known: a finished call keeps its result, none is invented.

    Args:
        pending: The open calls.
        calls: What the journal knows of them.
        why: Why they are settled now, as a sentence without its first capital.
        cancelled: Whether this process itself stopped the ones that ran.
        abandoned: The ones that could not be stopped.
    """
    running = set(abandoned)
    return [_settled(call, calls.get(call.id), why, cancelled, call.id in running) for call in pending]


def _settled(call: ToolUseBlock, known: CallState | None, why: str, cancelled: bool, running: bool) -> Any:
    if known is not None and known.finished:
        return known.result
    if known is None:
        return error_block(call, f"Not run: {why}", "interrupted")
    name, reason = call.name, _sentence(why)
    if running:
        text = f"`{name}` could not be stopped and may still be running, so its outcome is unknown. {reason}"
        return error_block(call, text, "unknown")
    if cancelled:
        text = f"`{name}` was stopped while it ran; it may have taken effect in part. {reason}"
        return error_block(call, text, "interrupted")
    text = f"`{name}` was started and its outcome is unknown: it may have taken effect, so check first. {reason}"
    return error_block(call, text, "unknown")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def late_note(call: str, name: str, text: str) -> Msg:
    """Tell the model what a call that was given up came to."""
    return Msg.user(
        f"[NOTE] The earlier call of `{name}` ({call}), whose outcome was unknown, has finished after all: {text}",
        name="system",
    )


def failed(name: str, error: BaseException, *, running: bool = False) -> ToolResult:
    """What the model is told about a tool that raised, or that was left `running` because it could not be stopped."""
    text = str(error) or type(error).__name__
    kind = (
        "" if type(error).__name__ in text or type(error).__name__.startswith("Tool") else f"{type(error).__name__}: "
    )
    if running:
        text += " It could not be stopped and may still be running, so its outcome is unknown."
    return ToolResult(output=f"[ERROR] `{name}` failed: {kind}{text}", status="unknown" if running else "error")


def json_problem(raw: str) -> str:
    """Why arguments are not a JSON object."""
    try:
        json.loads(raw)
    except ValueError as error:
        return f"{error}. The text was: {raw[:500]}"
    return f"it is another kind of JSON. The text was: {raw[:500]}"
