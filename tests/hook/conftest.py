"""Stores for the tests in which durability matters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.journal import Journal, MemoryStore, SQLiteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    journal: Journal = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield journal
    await journal.close()
