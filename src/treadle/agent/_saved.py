"""A thread as one JSON value, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from treadle._ids import new_id
from treadle.errors import FormatError
from treadle.journal import Journal
from treadle.journal._record import Record, decode, encode


async def save_records(journal: Journal, thread: str) -> dict[str, Any]:
    """All records of a thread, and of the threads of sub-agents below it."""
    prefix = f"{thread}/"
    below = {
        info.thread[len(prefix) :]: await _dumped(journal, info.thread) for info in await journal.threads(prefix=prefix)
    }
    return {"treadle": 1, "thread": thread, "records": await _dumped(journal, thread), "below": below}


async def load_records(journal: Journal, thread: str, state: Mapping[str, Any]) -> None:
    """Put saved records in the place of a thread; what was there is gone only once the saved ones were understood."""
    if state.get("treadle") != 1 or not isinstance(state.get("records"), list):
        raise FormatError("This is not what `save_state` returned.")
    below = cast("Mapping[str, Any]", state.get("below", {}))
    saved = {f"{thread}/{name}": _decoded(records) for name, records in below.items()}
    saved[thread] = _decoded(state["records"])
    await journal.delete(thread)
    for name, records in saved.items():
        await _put(journal, name, records)


async def _dumped(journal: Journal, thread: str) -> list[Any]:
    return [json.loads(encode(record)) for record in await journal.read(thread)]


def _decoded(records: Sequence[Any]) -> list[Record]:
    return [decode(json.dumps(record)) for record in records]


async def _put(journal: Journal, thread: str, records: Sequence[Record]) -> None:
    lease = await journal.acquire(thread, owner=new_id("load"))
    try:
        if records:
            await journal.append(lease, 0, records)
    finally:
        await journal.release(lease)
