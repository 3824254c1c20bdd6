"""What a person (or a program) decides about a call that waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from treadle.agent._history import as_result_block
from treadle.errors import DecisionError, FormatError
from treadle.message import Status, ToolResultBlock, ToolUseBlock
from treadle.message._check import json_problem, output_problem, status_problem, unstorable
from treadle.message._codec import dumps
from treadle.tool import ToolResult
from treadle.tool._result import as_result


@dataclass(frozen=True, slots=True)
class Approve:
    """Run the call as it was shown."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Run the call with another input, which must fit the tool."""

    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not run the call, and tell the model why."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Do not run the call here: this is its result, anything that a tool may return."""

    output: Any
    status: Status = "ok"


@dataclass(frozen=True, slots=True)
class Retry:
    """Run a call again whose outcome is unknown, or ask a tool again that runs elsewhere."""


Decision: TypeAlias = Approve | Edit | Reject | Result | Retry
_ALLOWED: dict[str, tuple[type, ...]] = {
    "approval": (Approve, Edit, Reject, Result),
    "external": (Result, Reject, Retry),
    "unknown": (Retry, Result, Reject),
}
_ADVICE = {
    "approval": "decide with `Approve()`, `Edit(...)`, `Reject(...)` or `Result(...)`",
    "external": "give its result with `Result(...)`, or decide with `Reject(...)` or `Retry()`",
    "unknown": "it may have run already, so decide with `Retry()`, `Result(...)` or `Reject(...)`",
}
InputProblem: TypeAlias = Callable[[str, Mapping[str, Any]], str | None]
"""What a tool has against an input for one of its calls, by the id of the call."""


def to_answers(
    decisions: Mapping[str, Any],
    wishes: Sequence[Mapping[str, Any]],
    open_calls: Mapping[str, str],
    input_problem: InputProblem,
) -> dict[str, Any]:
    """Check decisions against what the thread waits for, and write them as a record does.

    Args:
        decisions: What was decided, by the id of the wish.
        wishes: What the thread asked for when it paused.
        open_calls: The calls that have no result yet, and what there is to decide about each if nobody asked.
        input_problem: What is wrong with another input for a call, as far as it is known here.
    """
    by_id: dict[str, Mapping[str, Any]] = {call: {"kind": kind} for call, kind in open_calls.items()}
    by_id.update({wish["id"]: wish for wish in wishes})
    out: dict[str, Any] = {}
    for call, decision in decisions.items():
        if call not in by_id:
            waiting = ", ".join(repr(name) for name in by_id) or "nothing"
            raise DecisionError(f"No call {call!r} waits for a decision; waiting: {waiting}.")
        out[call] = _answer(call, decision, by_id[call], input_problem)
    return out


def _answer(call: str, decision: Any, wish: Mapping[str, Any], input_problem: InputProblem) -> Any:
    kind = wish["kind"]
    if kind in ("input", "breakpoint"):
        why = unstorable(decision)
        if why is not None:
            raise DecisionError(f"The answer to {call!r} cannot be stored as JSON: {why}")
        return decision
    if not isinstance(decision, Approve | Edit | Reject | Result | Retry):
        raise DecisionError(f"{decision!r} is no decision about call {call!r}: {_ADVICE[kind]}.")
    if not isinstance(decision, _ALLOWED[kind]):
        raise DecisionError(f"`{type(decision).__name__}` does not fit call {call!r} ({kind}): {_ADVICE[kind]}.")
    match decision:
        case Approve():
            return {"decision": "approve", "input": wish.get("input")}
        case Edit():
            return {"decision": "edit", "input": _edited(call, decision.input, input_problem)}
        case Reject():
            return {"decision": "reject", **_reason(call, decision.reason)}
        case Result():
            return {"decision": "result", **_given(call, decision)}
        case Retry():
            return {"decision": "retry"}


def _edited(call: str, input: Any, input_problem: InputProblem) -> dict[str, Any]:
    """The input as it will be read again, if the tool takes it."""
    given = dict(cast("Mapping[str, Any]", input)) if isinstance(input, Mapping) else input
    problem = json_problem("input", given)
    if problem is None:
        stored: dict[str, Any] = json.loads(dumps(given))
        problem = input_problem(call, stored)
        if problem is None:
            return stored
    raise DecisionError(f"`Edit` does not fit call {call!r}: {problem}")


def _reason(call: str, reason: Any) -> dict[str, Any]:
    if not isinstance(reason, str):
        raise DecisionError(f"`Reject` of call {call!r} takes its reason as text, not {reason!r:.200}.")
    return {"reason": reason} if reason else {}


def _given(call: str, decision: Result) -> dict[str, Any]:
    """The result as if a tool had returned it."""
    given = decision.output
    whole = given if isinstance(given, ToolResult) else as_result(given, "Result")
    shown = as_result(whole.output, "Result") if type(whole.output) not in (str, tuple) else whole
    status: Any = whole.status if given is whole and decision.status == "ok" else decision.status
    metadata: Any = whole.metadata or {}
    problem = output_problem(shown.output) or status_problem(status) or json_problem("metadata", metadata)
    if shown is not given and shown.status == "error":
        problem = f"{given!r:.200} cannot be shown to the model; give text, blocks, or what can be written as JSON"
    if problem is not None:
        raise DecisionError(f"`Result` does not fit call {call!r}: {problem}.")
    if whole.ends_run:
        metadata = {**metadata, "ends_run": True}
    output = shown.output if isinstance(shown.output, str) else json.loads(dumps(shown.output))
    out = {"output": output} | ({} if status == "ok" else {"status": status})
    return out | ({"metadata": metadata} if metadata else {})


def decided_result(call: ToolUseBlock, data: Mapping[str, Any]) -> ToolResultBlock:
    """The result in a decision; one that came another way than through `to_answers` is shown as the JSON that it is."""
    output, status = data.get("output"), data.get("status", "ok")
    block = {"type": "tool_result", "id": call.id, "name": call.name, "output": output, "status": status}
    try:
        return as_result_block({**block, "metadata": data.get("metadata")})
    except FormatError:
        shown = as_result(output, call.name)
        kept: Status = status if shown.status == "ok" and status_problem(status) is None else "error"
        return ToolResultBlock(id=call.id, name=call.name, output=shown.output, status=kept)


def decision_in(answer: Any) -> tuple[str, Mapping[str, Any]]:
    """Read an answer back: the decision's name and what it carries."""
    if not isinstance(answer, Mapping):
        return "", {}
    data = cast("Mapping[str, Any]", answer)
    return str(data.get("decision", "")), data
