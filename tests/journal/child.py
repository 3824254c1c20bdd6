"""A process of its own for the tests: `python child.py <what> <file> ...`; tells what happened line by line."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import warnings
from collections.abc import Awaitable, Callable

from treadle.errors import JournalFullError, TreadleError
from treadle.journal import EndedRecord, SQLiteStore


def tell(*words: object) -> None:
    print(*words, flush=True)


async def hammer(path: str, owner: str, rounds: str) -> None:
    """Take the one thread again and again, and add two records each time."""
    store = SQLiteStore(path, poll=0.02)
    for round_ in range(int(rounds)):
        lease = await store.acquire("contested", owner=owner, wait=True)
        await store.append(lease, lease.seq, [EndedRecord(reason=f"{owner} {round_} first")])
        await store.append(lease, lease.seq + 1, [EndedRecord(reason=f"{owner} {round_} second")])
        await store.release(lease)
    await store.close()


async def own(path: str, owner: str, rounds: str) -> None:
    """Write to a thread of its own, beside others that write to the same file."""
    store = SQLiteStore(path)
    lease = await store.acquire(owner, owner=owner)
    for round_ in range(int(rounds)):
        await store.append(lease, round_, [EndedRecord(reason=f"{owner} {round_}")])
    await store.close()


async def hold(path: str, ttl: str) -> None:
    """Take the thread, say so, and add a record for each line of input."""
    store = SQLiteStore(path, lease_ttl=float(ttl), poll=0.02)
    lease = await store.acquire("held", owner="holder")
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    store.listen(lease, lambda: loop.call_soon_threadsafe(woken.set) and None)
    tell("holding")
    seq = lease.seq
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            await store.append(lease, seq, [EndedRecord(reason="held")])
            seq += 1
            tell("appended")
        except TreadleError as error:
            await asyncio.wait_for(woken.wait(), 5)
            tell(type(error).__name__)
    await store.close()


async def fill(path: str, limit: str) -> None:
    """Write until the file may not grow any more; then say how much was acknowledged."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    store = SQLiteStore(path)
    lease = await store.acquire("t", owner="run")
    written = 0
    try:
        while True:
            await store.append(lease, written, [EndedRecord(reason="x" * 5_000)])
            written += 1
    except JournalFullError as error:
        tell(written, str(error).replace("\n", " "))
    await store.close()


async def leave(path: str) -> None:
    """End without closing the store, with a write still queued and a lease still held."""
    store = SQLiteStore(path, durability="power")
    lease = await store.acquire("t", owner="run")
    for number in range(20):
        asyncio.ensure_future(store.append(lease, number, [EndedRecord(reason=str(number))]))  # noqa: RUF006
    await asyncio.sleep(0)
    keep.append(store)


async def fork(path: str) -> None:
    """Use one store on both sides of a fork."""
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about any fork beside threads
    store = SQLiteStore(path)
    lease = await store.acquire("parent", owner="parent")
    await store.append(lease, 0, [EndedRecord(reason="before")])
    await store.read("parent")
    child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)  # the parent's loop does not run here
        os._exit(asyncio.run(in_child(store, lease)))
    tell("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))  # noqa: ASYNC222
    await store.append(lease, 1, [EndedRecord(reason="after")])
    tell("parent", len(await store.read("parent")), len(await store.read("child")))
    await store.close()


def inherited_files() -> int:
    """How many open files of the journal this process has."""
    folder = "/proc/self/fd"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sum("j.db" in os.readlink(f"{folder}/{name}") for name in names if os.path.islink(f"{folder}/{name}"))


async def in_child(store: SQLiteStore, inherited: object) -> int:
    tell("inherited", inherited_files())
    try:
        await store.append(inherited, 1, [EndedRecord(reason="stolen")])  # pyright: ignore[reportArgumentType]
        return 1
    except TreadleError as error:
        tell(type(error).__name__)
    lease = await store.acquire("child", owner="child")
    await store.append(lease, 0, [EndedRecord(reason="from the child")] * 3)
    seen = len(await store.read("parent"))
    await store.close()
    return 0 if seen == 1 else 2


keep: list[SQLiteStore] = []
COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    "hammer": hammer,
    "own": own,
    "hold": hold,
    "fill": fill,
    "leave": leave,
    "fork": fork,
}

if __name__ == "__main__":

    async def main() -> None:
        await COMMANDS[sys.argv[1]](*sys.argv[2:])

    asyncio.run(main())
