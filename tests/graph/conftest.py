"""Places to keep threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from graph.support import FilePlace, MemoryPlace, Place


@pytest.fixture(params=["memory", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "memory":
        yield MemoryPlace()
        return
    found = FilePlace(tmp_path / "threads.db")
    yield found
    for store in found.opened:
        await store.close()
