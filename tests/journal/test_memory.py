"""What only `MemoryStore` promises: it costs next to nothing."""

from __future__ import annotations

import asyncio
import sys
import time
import tracemalloc

import pytest

from treadle.errors import JournalError
from treadle.journal import EndedRecord, MemoryStore


async def test_records_are_kept_as_they_are() -> None:
    store, record = MemoryStore(), EndedRecord(reason="x")
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [record])
    assert (await store.read("t"))[0] is record


async def test_a_store_is_small_and_an_empty_thread_leaves_nothing() -> None:
    await asyncio.sleep(0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    stores = [MemoryStore() for _ in range(1_000)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / len(stores) < 1_000
    for number in range(100):
        await stores[0].release(await stores[0].acquire(f"t{number}", owner="run"))
    assert sys.getsizeof(stores[0]._threads) <= sys.getsizeof({"one": 1})  # pyright: ignore[reportPrivateUsage]


async def test_appending_stays_cheap_however_long_the_thread() -> None:
    """A generous bound: the benchmark measures the real figure, this notices another order of magnitude."""
    store, records = MemoryStore(), [EndedRecord(reason="x")]
    lease = await store.acquire("t", owner="run")
    best = float("inf")
    for start in range(0, 20_000, 1_000):
        began = time.perf_counter()
        for seq in range(start, start + 1_000):
            await store.append(lease, seq, records)
        best = min(best, time.perf_counter() - began)
    assert best / 1_000 < 10e-6


async def test_a_closed_store_forgets_and_refuses() -> None:
    store = MemoryStore()
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [EndedRecord(reason="x")])
    await store.close()
    await store.close()
    await store.release(lease)
    for call in (lambda: store.read("t"), lambda: store.append(lease, 1, []), store.threads):
        with pytest.raises(JournalError, match="closed"):
            await call()


async def test_a_waiter_whose_event_loop_is_gone_is_passed_over() -> None:
    store = MemoryStore()
    lease = await store.acquire("t", owner="run")

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        coroutine = store.acquire("t", owner="gone", wait=True)
        task = loop.create_task(coroutine)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        keep.append((task, coroutine))
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]  # on purpose

    keep: list[object] = []
    await asyncio.to_thread(abandon)
    waiting = asyncio.create_task(store.acquire("t", owner="next", wait=True))
    await asyncio.sleep(0)
    await store.release(lease)
    assert (await asyncio.wait_for(waiting, 5)).owner == "next"
