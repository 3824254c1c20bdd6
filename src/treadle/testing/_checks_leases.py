"""Checks of who may write to a journal."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from treadle.errors import AgentBusyError, ConflictError, JournalError, LeaseLostError
from treadle.journal._journal import Journal, Lease, Snapshot
from treadle.testing._checks import (
    PATIENCE,
    MakeStore,
    eventually,
    fresh,
    is_free,
    notes,
    refused,
    take_when_free,
    texts,
    write,
)


async def one_drives_a_thread(make_store: MakeStore) -> None:
    """The second is told that it is busy; other threads are free."""
    one, other, thread = make_store(), make_store(), fresh()
    lease = await one.acquire(thread, owner="run-1")
    assert (lease.thread, lease.owner, lease.seq) == (thread, "run-1", 0)
    for store in (one, other):
        with refused(AgentBusyError):
            await store.acquire(thread, owner="run-2")
        assert await is_free(store, fresh())
        assert await is_free(store, thread + "/below")
    await one.release(lease)
    assert await is_free(other, thread)


async def each_lease_has_a_later_epoch(make_store: MakeStore) -> None:
    """Also after the thread was deleted; `seq` is the number of records."""
    store, thread = make_store(), fresh()
    leases: list[Lease] = []
    for round_ in range(3):
        lease = await store.acquire(thread, owner="run")
        leases.append(lease)
        await store.append(lease, lease.seq, notes(str(round_)))
        await store.release(lease)
    await store.delete(thread)
    leases.append(await store.acquire(thread, owner="run"))
    await store.release(leases[-1])
    epochs = [lease.epoch for lease in leases]
    assert epochs == sorted(set(epochs))
    assert [lease.seq for lease in leases] == [0, 1, 2, 0]


async def a_lost_lease_may_do_nothing(make_store: MakeStore) -> None:
    """It is refused with `LeaseLostError`, and giving it back does not take it from the new owner."""
    store, other, thread = make_store(), make_store(), fresh()
    old = await store.acquire(thread, owner="run-1")
    await store.append(old, 0, notes("a"))
    await store.release(old)
    new = await other.acquire(thread, owner="run-2")
    with refused(LeaseLostError):
        await store.append(old, 1, notes("x"))
    with refused(LeaseLostError):
        await store.save_snapshot(old, Snapshot(seq=1, since=0, data={}))
    with refused(LeaseLostError):
        await store.mail(old)
    with refused(LeaseLostError):
        await store.discard(old, 1)
    await store.release(old)
    with refused(AgentBusyError):
        await store.acquire(thread, owner="run-3")
    await other.append(new, 1, notes("b"))
    await other.release(new)
    await other.release(new)
    assert await texts(store, thread) == ["a", "b"]


async def a_lease_of_a_deleted_thread_is_lost(make_store: MakeStore) -> None:
    """A new thread of the same name is another thread."""
    store, thread = make_store(), fresh()
    old = await store.acquire(thread, owner="run-1")
    await store.append(old, 0, notes("a"))
    await store.release(old)
    await store.delete(thread)
    new = await store.acquire(thread, owner="run-2")
    with refused(LeaseLostError, ConflictError):
        await store.append(old, 0, notes("x"))
    await store.release(new)
    assert await store.read(thread) == []


async def those_who_wait_take_turns(make_store: MakeStore) -> None:
    """With `wait`, everybody gets the thread, one at a time, through whichever handle."""
    stores, thread = (make_store(), make_store()), fresh()
    driving: list[str] = []

    async def run(store: Journal, owner: str) -> None:
        lease = await take_when_free(store, thread, owner)
        driving.append(owner)
        assert driving == [owner]
        await store.append(lease, lease.seq, notes(owner))
        await asyncio.sleep(0.001)
        driving.remove(owner)
        await store.release(lease)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(run(stores[number % 2], f"run-{number}"))
    assert sorted(await texts(stores[0], thread)) == [f"run-{number}" for number in range(8)]


async def waiting_can_be_cancelled(make_store: MakeStore) -> None:
    """Whoever gave up waiting does not get the lease, whenever it gave up."""
    store, thread = make_store(), fresh()
    for ticks in range(12):
        lease = await store.acquire(thread, owner="run-1")
        waiting = asyncio.create_task(store.acquire(thread, owner="run-2", wait=True))
        await asyncio.sleep(0)
        releasing = asyncio.create_task(store.release(lease))
        for _ in range(ticks):
            await asyncio.sleep(0)
        waiting.cancel()
        try:
            late = await waiting
        except asyncio.CancelledError:
            pass
        else:  # it had the lease before it was told to stop
            await store.release(late)
        await releasing
        last = await take_when_free(store, thread, "run-3")
        await store.release(last)


async def an_acquire_that_is_cancelled_takes_nothing(make_store: MakeStore) -> None:
    """No lease is left behind that nobody knows of."""
    store, thread = make_store(), fresh()
    for ticks in range(4):
        task = asyncio.create_task(store.acquire(thread, owner="run-1"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await store.release(await task)
        await store.release(await take_when_free(store, thread, "run-2"))


async def a_cancelled_append_is_not_in_doubt(make_store: MakeStore) -> None:
    """When the caller hears of its cancellation, the records are there or will never be."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    seq = 0
    for ticks in range(6):
        task = asyncio.create_task(store.append(lease, seq, notes(str(ticks), "x" * 100_000 * (ticks % 2))))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = len(await store.read(thread))
        assert found in (seq, seq + 2)
        seq = found
        await store.append(lease, seq, notes("sure"))
        seq += 1
    await store.release(lease)
    assert len(await store.read(thread)) == seq


async def many_threads_are_written_side_by_side(make_store: MakeStore) -> None:
    """A hundred drivers at once, and no record is lost or swapped."""
    store, root = make_store(), fresh()

    async def run(thread: str) -> None:
        lease = await store.acquire(thread, owner=thread)
        for number in range(5):
            await store.append(lease, number, notes(f"{thread} {number}"))
        await store.release(lease)

    threads = [f"{root}-{number}" for number in range(100)]
    await asyncio.gather(*map(run, threads))
    for thread in threads:
        assert await texts(store, thread) == [f"{thread} {number}" for number in range(5)]


async def several_event_loops_share_a_store(make_store: MakeStore) -> None:
    """A lease given back in one event loop is got by who waits in another."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="here")
    started = threading.Event()
    failures: list[BaseException] = []

    async def elsewhere() -> None:
        started.set()
        other = await take_when_free(store, thread, "there")
        await store.append(other, other.seq, notes("there"))
        await store.release(other)

    def run_loop() -> None:
        try:
            asyncio.run(elsewhere())
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=run_loop)
    worker.start()
    await eventually(started.is_set, "starting another event loop")
    await store.append(lease, 0, notes("here"))
    await store.release(lease)
    await eventually(lambda: not worker.is_alive(), "the end of the other event loop")
    assert failures == []
    assert await texts(store, thread) == ["here", "there"]


async def a_closed_store_is_closed(make_store: MakeStore) -> None:
    """Closing twice is fine; what was written stays for other handles, and its leases are free."""
    keeper, store, thread = make_store(), make_store(), fresh()
    if keeper is store:  # its data lives in the object
        return
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, notes("a"))
    async with asyncio.timeout(PATIENCE):
        await store.close()
        await store.close()
    with refused(JournalError):
        await store.append(lease, 1, notes("b"))
    with refused(JournalError):
        await store.read(thread)
    await store.release(lease)
    await write(keeper, thread, "c")
    assert await texts(keeper, thread) == ["a", "c"]


LEASE_CHECKS = (
    one_drives_a_thread,
    each_lease_has_a_later_epoch,
    a_lost_lease_may_do_nothing,
    a_lease_of_a_deleted_thread_is_lost,
    those_who_wait_take_turns,
    waiting_can_be_cancelled,
    an_acquire_that_is_cancelled_takes_nothing,
    a_cancelled_append_is_not_in_doubt,
    many_threads_are_written_side_by_side,
    several_event_loops_share_a_store,
    a_closed_store_is_closed,
)
