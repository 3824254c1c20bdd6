"""What a person (or a program) decides about a call that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from treadle.errors import DecisionError
from treadle.message import OutputBlock, Status
from treadle.message._codec import to_jsonable


@dataclass(frozen=True, slots=True)
class Approve:
    """Run the call as it was shown."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Run the call with another input."""

    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not run the call, and tell the model why."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Do not run the call here: this is its result."""

    output: str | Sequence[OutputBlock]
    status: Status = "ok"


@dataclass(frozen=True, slots=True)
class Retry:
    """Run a call again whose outcome is unknown."""


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


def to_answers(
    decisions: Mapping[str, Any],
    wishes: Sequence[Mapping[str, Any]],
    open_calls: Mapping[str, str],
) -> dict[str, Any]:
    """Check decisions against what the thread waits for, and write them as a record does.

    Args:
        decisions: What was decided, by the id of the wish.
        wishes: What the thread asked for when it paused.
        open_calls: The calls that have no result yet, and what there is to decide about each if nobody asked.
    """
    by_id: dict[str, Mapping[str, Any]] = {call: {"kind": kind} for call, kind in open_calls.items()}
    by_id.update({wish["id"]: wish for wish in wishes})
    out: dict[str, Any] = {}
    for call, decision in decisions.items():
        if call not in by_id:
            waiting = ", ".join(repr(name) for name in by_id) or "nothing"
            raise DecisionError(f"No call {call!r} waits for a decision; waiting: {waiting}.")
        out[call] = _answer(call, decision, by_id[call])
    return out


def _answer(call: str, decision: Any, wish: Mapping[str, Any]) -> Any:
    kind = wish["kind"]
    if kind in ("input", "breakpoint"):
        return decision
    if not isinstance(decision, Approve | Edit | Reject | Result | Retry):
        raise DecisionError(f"{decision!r} is no decision about call {call!r}: {_ADVICE[kind]}.")
    if not isinstance(decision, _ALLOWED[kind]):
        raise DecisionError(f"`{type(decision).__name__}` does not fit call {call!r} ({kind}): {_ADVICE[kind]}.")
    answer: dict[str, Any] = {"decision": type(decision).__name__.lower(), **to_jsonable(decision)}
    if isinstance(decision, Approve):
        answer["input"] = wish.get("input")
    return answer


def decision_in(answer: Any) -> tuple[str, Mapping[str, Any]]:
    """Read an answer back: the decision's name and what it carries."""
    if not isinstance(answer, Mapping):
        return "", {}
    data = cast("Mapping[str, Any]", answer)
    return str(data.get("decision", "")), data
