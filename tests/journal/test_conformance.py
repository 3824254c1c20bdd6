"""Every store keeps the contract of `docs/journal.md`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle.journal import Journal, Lease, MemoryStore, Record, SQLiteStore
from treadle.testing._conformance import JOURNAL_CHECKS, check_journal

MakeStore = Callable[[], Journal]
STORES = ["memory", "sqlite", "sqlite-power"]


@pytest.fixture(params=STORES)
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    memory = MemoryStore()
    made: list[Journal] = [memory]

    def make() -> Journal:
        if request.param == "memory":
            return memory
        durability: Any = "power" if request.param == "sqlite-power" else "process"
        made.append(SQLiteStore(tmp_path / "journal.db", poll=0.02, durability=durability))
        return made[-1]

    yield make
    for store in made:
        await store.close()
    assert os.listdir(tmp_path) in ([], ["journal.db"])


@pytest.mark.parametrize("check", JOURNAL_CHECKS)
async def test_store_conforms(make_store: MakeStore, check: Callable[[MakeStore], Awaitable[None]]) -> None:
    await check(make_store)


async def test_all_checks_run_on_the_same_data(tmp_path: Path) -> None:
    await check_journal(lambda: SQLiteStore(tmp_path / "journal.db", poll=0.02))
    memory = MemoryStore()
    await check_journal(lambda: memory)


async def test_a_failed_check_is_named(tmp_path: Path) -> None:
    class Forgetful(MemoryStore):
        async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
            """Lose everything."""

    store = Forgetful()
    with pytest.raises(AssertionError) as failure:
        await check_journal(lambda: store)
    assert "records_are_numbered_from_one" in failure.value.__notes__[0]
