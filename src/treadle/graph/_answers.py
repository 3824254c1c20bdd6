"""Answers to what a paused thread waits for: fitting them to the wishes, and leading them down to nested runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from treadle.errors import InputError
from treadle.event import Event, Wish
from treadle.graph._node import PauseSignal
from treadle.graph._state import ThreadState
from treadle.graph._strategy import as_json
from treadle.message._codec import dumps, to_jsonable


def match_answers(wishes: Sequence[Mapping[str, Any]], answers: Any, *, partial: bool = False) -> dict[str, Any]:
    """Fit what somebody answered to what was asked, as a record holds it.

    Breakpoints need no answer. A dict by wish id may leave some open; `partial` ignores answers that nobody waits for.
    """
    by_id = {wish["id"]: wish for wish in wishes}
    out: dict[str, Any] = {wish["id"]: True for wish in wishes if wish["kind"] == "breakpoint"}
    given = cast("Mapping[Any, Any]", answers) if isinstance(answers, Mapping) else None
    asked = [wish for wish in wishes if wish["kind"] != "breakpoint"]
    if answers is None:
        return out
    if given is not None and (partial or (given and all(key in by_id for key in given))):
        return out | {id: _stored(by_id[id], answer) for id, answer in given.items() if id in by_id}
    if len(asked) == 1:
        return out | {asked[0]["id"]: _stored(asked[0], answers)}
    if not wishes:
        raise InputError(f"The thread waits for no answer; go on without one instead of {answers!r:.200}.")
    raise InputError(f"The thread waits for {list(by_id)}; answer with a dict by these ids, not {answers!r:.200}.")


def _stored(wish: Mapping[str, Any], answer: Any) -> Any:
    if wish["kind"] in ("input", "breakpoint"):
        return _json(answer, answer)
    if isinstance(answer, Mapping):
        return _json(dict(cast("Mapping[str, Any]", answer)), wish)
    if not dataclasses.is_dataclass(answer) or isinstance(answer, type):
        raise InputError(
            f"{answer!r:.200} is no decision about call {wish['id']!r}; use `Approve()`, `Reject(...)`, ..."
        )
    decision = {"decision": type(answer).__name__.lower(), **to_jsonable(answer)}
    if decision["decision"] == "approve":
        decision["input"] = wish.get("input")  # an approval is bound to what was shown
    return _json(json.loads(dumps(decision)), answer)


def _json(value: Any, answer: Any) -> Any:
    try:
        return as_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"An answer is stored, so it must be JSON, not {answer!r:.200}: {error}") from error


def answers_below(state: ThreadState, prefix: str) -> dict[str, Any]:
    """The answers that are for a child, under the names that the child knows."""
    return {wish[len(prefix) :]: answer for wish, answer in state.answers.items() if wish.startswith(prefix)}


def raise_pause(last: Event, prefix: str, label: str) -> None:
    """Hand a child's pause on to its parent, with ids that lead back down."""
    pause = getattr(last, "pause", None)
    if pause is not None:
        wishes: Sequence[Wish] = pause.wishes
        raise PauseSignal(
            [dataclasses.replace(wish, id=f"{prefix}{wish.id}", path=(label, *wish.path)) for wish in wishes]
        )
