"""Checks of a journal's threads: listing, forking and deleting them."""

from __future__ import annotations

import time

from treadle.errors import AgentBusyError, InputError, ThreadExistsError, ThreadNotFoundError
from treadle.journal._journal import Journal, Snapshot
from treadle.journal._record import EndedRecord
from treadle.testing._checks import MakeStore, fresh, notes, refused, texts, write


async def _names(store: Journal, prefix: str) -> list[str]:
    return [info.thread for info in await store.threads(prefix=prefix)]


async def threads_are_listed_by_name(make_store: MakeStore) -> None:
    """With how long they are and when they were made and last written."""
    store, root = make_store(), fresh()
    before = time.time()
    for name in ("b", "a", "ab", "B", "ä", "a/1"):
        await write(store, f"{root}{name}", "x", "y")
    assert await _names(store, root) == [root + name for name in sorted(("b", "a", "ab", "B", "ä", "a/1"))]
    assert await _names(store, root + "a") == [root + "a", root + "a/1", root + "ab"]
    assert await _names(store, root + "nothing") == []
    lease = await store.acquire(root + "b", owner="run")
    await store.append(lease, 2, [EndedRecord(reason="z", at=before + 5)])
    await store.release(lease)
    (info,) = await make_store().threads(prefix=root + "b")
    assert (info.thread, info.seq, info.parent, info.forked_at) == (root + "b", 3, None, None)
    assert before - 1 <= info.created <= time.time() + 1
    assert info.updated == before + 5


async def a_lease_does_not_make_a_thread(make_store: MakeStore) -> None:
    """A thread is there once it has a record."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    assert await _names(store, thread) == []
    with refused(ThreadNotFoundError):
        await store.fork(thread, 0, fresh())
    await store.append(lease, 0, notes("a"))
    assert await _names(store, thread) == [thread]
    await store.release(lease)


async def a_fork_shares_and_then_differs(make_store: MakeStore) -> None:
    """Its records continue after the shared ones; neither sees what the other adds. The source may be driven."""
    store, thread, new = make_store(), fresh(), fresh()
    await write(store, thread, "a", "b", "c")
    lease = await store.acquire(thread, owner="run")
    await make_store().fork(thread, 2, new)
    await store.append(lease, 3, notes("d"))
    await store.release(lease)
    await write(store, new, "B")
    assert await texts(store, thread) == ["a", "b", "c", "d"]
    assert await texts(store, new) == ["a", "b", "B"]
    assert await texts(store, new, after=1, until=2) == ["b"]
    assert await texts(store, new, after=2) == ["B"]
    (info,) = await store.threads(prefix=new)
    assert (info.seq, info.parent, info.forked_at) == (3, thread, 2)


async def forks_of_forks_share_all_the_way(make_store: MakeStore) -> None:
    """Also where a fork shares less than the one it was made from."""
    store, root = make_store(), fresh()
    await write(store, root, "a", "b")
    await store.fork(root, 2, root + "-1")
    await write(store, root + "-1", "c", "d")
    await store.fork(root + "-1", 3, root + "-2")
    await write(store, root + "-2", "e")
    await store.fork(root + "-2", 1, root + "-3")
    await write(store, root + "-3", "x")
    await store.fork(root + "-2", 4, root + "-4")
    assert await texts(store, root + "-2") == ["a", "b", "c", "e"]
    assert await texts(store, root + "-3") == ["a", "x"]
    assert await texts(store, root + "-4") == ["a", "b", "c", "e"]
    assert await texts(store, root + "-4", after=1, until=3) == ["b", "c"]
    assert await texts(store, root + "-2", after=2) == ["c", "e"]


async def an_empty_fork_is_a_thread(make_store: MakeStore) -> None:
    """Sharing nothing is allowed."""
    store, thread, new = make_store(), fresh(), fresh()
    await write(store, thread, "a")
    await store.fork(thread, 0, new)
    assert await store.read(new) == []
    (info,) = await store.threads(prefix=new)
    assert (info.seq, info.forked_at) == (0, 0)
    await write(store, new, "b")
    assert await texts(store, new) == ["b"]


async def an_impossible_fork_is_refused(make_store: MakeStore) -> None:
    """There must be the records, and not yet the name."""
    store, thread, new = make_store(), fresh(), fresh()
    await write(store, thread, "a", "b")
    with refused(ThreadNotFoundError):
        await store.fork(fresh(), 0, new)
    for at in (3, -1):
        with refused(InputError):
            await store.fork(thread, at, new)
    with refused(ThreadExistsError):
        await store.fork(thread, 1, thread)
    await store.fork(thread, 1, new)
    with refused(ThreadExistsError):
        await store.fork(thread, 1, new)
    lease = await store.acquire(fresh(), owner="run")
    with refused(AgentBusyError):
        await store.fork(thread, 1, lease.thread)
    await store.release(lease)
    assert await texts(store, new) == ["a"]


async def a_fork_uses_the_snapshots_it_shares(make_store: MakeStore) -> None:
    """Those up to the fork, and none after it."""
    store, thread, new = make_store(), fresh(), fresh()
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, notes("a", "b", "c"))
    await store.save_snapshot(lease, Snapshot(seq=2, since=1, data={"n": 2}))
    await store.save_snapshot(lease, Snapshot(seq=3, since=1, data={"n": 3}))
    await store.release(lease)
    await store.fork(thread, 2, new)
    shared = await store.load_snapshot(new)
    assert shared is None or shared == Snapshot(seq=2, since=1, data={"n": 2})
    assert await store.load_snapshot(new, until=1) is None
    lease = await store.acquire(new, owner="run")
    await store.append(lease, 2, notes("C"))
    await store.save_snapshot(lease, Snapshot(seq=3, since=0, data={"n": "own"}))
    await store.release(lease)
    assert await store.load_snapshot(new) == Snapshot(seq=3, since=0, data={"n": "own"})
    assert await store.load_snapshot(thread) == Snapshot(seq=3, since=1, data={"n": 3})


async def deleting_takes_all_below(make_store: MakeStore) -> None:
    """Records, snapshots, mail and threads named below it; not those that merely begin alike."""
    store, root = make_store(), fresh()
    for name in ("", "/1", "/1/2", "-not", "0", "/"):
        await write(store, root + name, "a")
    lease = await store.acquire(root, owner="run")
    await store.save_snapshot(lease, Snapshot(seq=1, since=0, data={}))
    await store.release(lease)
    await store.post(root, {"n": 1})
    await make_store().delete(root)
    assert await _names(store, root) == [root + "-not", root + "0"]
    assert await store.load_snapshot(root) is None
    lease = await store.acquire(root, owner="run")
    assert lease.seq == 0
    assert await store.mail(lease) == []
    await store.append(lease, 0, notes("new"))
    await store.release(lease)
    assert await texts(store, root) == ["new"]
    await store.delete(fresh())


async def a_driven_thread_is_not_deleted(make_store: MakeStore) -> None:
    """Nor one above it, and then nothing at all is deleted."""
    store, other, root = make_store(), make_store(), fresh()
    await write(store, root, "a")
    lease = await store.acquire(root + "/child", owner="run")
    await store.append(lease, 0, notes("b"))
    for thread in (root, lease.thread):
        with refused(AgentBusyError):
            await other.delete(thread)
    await store.append(lease, 1, notes("c"))
    await store.release(lease)
    assert await texts(store, root) == ["a"]
    assert await texts(store, root + "/child") == ["b", "c"]
    await other.delete(root)
    assert await _names(store, root) == []


async def forks_outlive_what_they_were_made_from(make_store: MakeStore) -> None:
    """They keep what they share, also when a new thread takes the old name."""
    store, root = make_store(), fresh()
    old, fork, second = root + "-old", root + "-fork", root + "-second"
    await write(store, old, "a", "b", "c")
    await store.fork(old, 2, fork)
    await write(store, fork, "F")
    await store.fork(fork, 3, second)
    await store.delete(old)
    assert await _names(store, root) == [fork, second]
    await write(store, old, "new")
    await store.delete(fork)
    assert await texts(store, second) == ["a", "b", "F"]
    assert await texts(store, old) == ["new"]
    await write(store, second, "S")
    (info,) = await store.threads(prefix=second)
    assert (info.seq, info.parent, info.forked_at) == (4, None, 3)
    await store.delete(second)
    assert await _names(store, root) == [old]
    await store.fork(old, 1, fork)
    assert await texts(store, fork) == ["new"]


THREAD_CHECKS = (
    threads_are_listed_by_name,
    a_lease_does_not_make_a_thread,
    a_fork_shares_and_then_differs,
    forks_of_forks_share_all_the_way,
    an_empty_fork_is_a_thread,
    an_impossible_fork_is_refused,
    a_fork_uses_the_snapshots_it_shares,
    deleting_takes_all_below,
    a_driven_thread_is_not_deleted,
    forks_outlive_what_they_were_made_from,
)
