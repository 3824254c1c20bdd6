"""What hooks may put into events; checked when it is put in, so that the error names the hook and not the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treadle.errors import EventError
from treadle.message import Msg, ToolResultBlock, ToolUseBlock
from treadle.message._check import json_problem, problem_of, result_problem


def check_messages(event: object, value: Any) -> None:
    """A sequence of messages, whatever they say."""
    kind = type(event).__name__
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise EventError(f"A `{kind}` takes a list of messages, not {value!r:.200}.")
    for msg in value:  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(msg, Msg):
            raise EventError(f"A `{kind}` takes messages (`Msg`), not {msg!r:.200}.")


def check_given(event: object, value: Any) -> None:
    """Messages that will be stored: a system message would not be found again when the prompt changes."""
    check_messages(event, value)
    for place, msg in enumerate(value):
        problem = problem_of(msg)
        if problem is not None:
            raise EventError(f"Message {place} for a `{type(event).__name__}` cannot be stored: {problem}.")
    if any(msg.role == "system" for msg in value):
        raise EventError(
            f"A `{type(event).__name__}` stores no system messages; use the agent's `system_prompt`, "
            "or `messages` of a `PreReasoningEvent`, which are for one request."
        )


def check_answer(event: object, value: Any) -> None:
    """One message of the assistant."""
    if not isinstance(value, Msg) or value.role != "assistant":
        raise EventError(f"`{type(event).__name__}.message` takes a message of the assistant, not {value!r:.200}.")
    problem = problem_of(value)
    if problem is not None:
        raise EventError(f"`{type(event).__name__}.message` cannot be stored: {problem}.")


def check_input(event: object, value: Any) -> None:
    """The arguments of a call."""
    if not isinstance(value, Mapping):
        raise EventError(f"`{type(event).__name__}.input` takes a dict of arguments, not {value!r:.200}.")
    problem = json_problem("input", dict(value))  # pyright: ignore[reportUnknownArgumentType]
    if problem is not None:
        raise EventError(f"In a `{type(event).__name__}`, {problem}.")


def check_result(event: object, value: Any, call: ToolUseBlock) -> None:
    """A result that belongs to the call."""
    kind = type(event).__name__
    if not isinstance(value, ToolResultBlock):
        raise EventError(f"`{kind}.result` takes a `ToolResultBlock`, not {value!r:.200}.")
    if (value.id, value.name) != (call.id, call.name):
        raise EventError(
            f"`{kind}.result` is the result of call {call.id!r} of `{call.name}`, "
            f"not of {value.id!r} of `{value.name}`; use `dataclasses.replace(event.result, output=...)`."
        )
    check_storable(event, value)


def check_storable(event: object, result: ToolResultBlock) -> None:
    """A result whose fields are what they should be."""
    problem = result_problem(result)
    if problem is not None:
        raise EventError(f"The result in a `{type(event).__name__}` cannot be stored: {problem}.")
