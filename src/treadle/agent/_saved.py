"""A thread as one JSON value, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from treadle._ids import new_id
from treadle.errors import FormatError
from treadle.journal import Journal
from treadle.journal._record import decode, encode


async def save_records(journal: Journal, thread: str) -> dict[str, Any]:
    """All records of a thread."""
    records = await journal.read(thread)
    return {"treadle": 1, "thread": thread, "records": [json.loads(encode(record)) for record in records]}


async def load_records(journal: Journal, thread: str, state: Mapping[str, Any]) -> None:
    """Put saved records in the place of a thread; what was there is gone only once the saved ones were understood."""
    if state.get("treadle") != 1 or not isinstance(state.get("records"), list):
        raise FormatError("This is not what `save_state` returned.")
    records = [decode(json.dumps(record)) for record in state["records"]]
    await journal.delete(thread)
    lease = await journal.acquire(thread, owner=new_id("load"))
    try:
        if records:
            await journal.append(lease, 0, records)
    finally:
        await journal.release(lease)
