"""A thread as one JSON value, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from treadle._ids import new_id
from treadle.agent._history import as_result_block
from treadle.agent._plan import react_plan
from treadle.errors import FormatError
from treadle.graph._state import ThreadState
from treadle.journal import Journal
from treadle.journal._record import Record, decode, encode
from treadle.message._codec import dumps


async def save_records(journal: Journal, thread: str) -> dict[str, Any]:
    """All records of a thread, and of the threads of sub-agents below it."""
    prefix = f"{thread}/"
    below = {
        info.thread[len(prefix) :]: await _dumped(journal, info.thread) for info in await journal.threads(prefix=prefix)
    }
    return {"treadle": 1, "thread": thread, "records": await _dumped(journal, thread), "below": below}


async def load_records(journal: Journal, thread: str, state: Mapping[str, Any]) -> None:
    """Put saved records in the place of a thread; what was there is gone only once the saved ones were understood."""
    below: Any = _field(state, "below", {})
    if _field(state, "treadle") != 1 or not isinstance(_field(state, "records"), list) or not _are_lists(below):
        raise FormatError(f"This is not what `save_state` returned: {state!r:.200}")
    saved = {f"{thread}/{name}": _decoded(records) for name, records in below.items()}
    saved[thread] = _decoded(state["records"])
    _check(saved[thread])
    await journal.delete(thread)
    for name, records in saved.items():
        await _put(journal, name, records)


def _field(state: Any, name: str, default: Any = None) -> Any:
    return cast("Mapping[str, Any]", state).get(name, default) if isinstance(state, Mapping) else None


def _are_lists(below: Any) -> bool:
    return isinstance(below, Mapping) and all(
        isinstance(one, list) for one in cast("Mapping[str, Any]", below).values()
    )


async def _dumped(journal: Journal, thread: str) -> list[Any]:
    return [json.loads(encode(record)) for record in await journal.read(thread)]


def _decoded(records: Sequence[Any]) -> list[Record]:
    return [decode(dumps(record)) for record in records]


def _check(records: Sequence[Record]) -> None:
    """Whether an agent can go on with the records: a thread must never hold what cannot be read."""
    state = ThreadState(react_plan().schema)
    try:
        for record in records:
            state.apply(record)
        results = [call.result for call in state.calls.values() if call.finished]
        for result in (*results, *(late.result for late in state.late)):
            as_result_block(result)
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(f"The saved thread makes no sense: {error!r}") from error


async def _put(journal: Journal, thread: str, records: Sequence[Record]) -> None:
    lease = await journal.acquire(thread, owner=new_id("load"))
    try:
        if records:
            await journal.append(lease, 0, records)
    finally:
        await journal.release(lease)
