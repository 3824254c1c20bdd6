"""Checks of what a journal writes and reads: records, names and snapshots."""

from __future__ import annotations

from treadle.errors import ConflictError, InputError
from treadle.journal._journal import Journal, Snapshot
from treadle.journal._record import InputRecord, Record
from treadle.testing._checks import MakeStore, every_kind, fresh, notes, refused, same, texts, write

GOOD_NAMES = [
    "a'b\"c`",
    "x; DROP TABLE threads",
    "50%_\\",
    "/",
    "a//b/",
    " ",
    "\n",
    "naïve-线程-🧵",
    "NULL",
    "n" * 1_000,
]
BAD_NAMES = ["", "nul\0inside", "half\ud800pair", "n" * 10_000]


async def records_are_numbered_from_one(make_store: MakeStore) -> None:
    """`after` is left out, `until` is included, and what is not there is not an error."""
    store, thread = make_store(), fresh()
    await write(store, thread, "a", "b", "c")
    await write(store, thread, "d")
    assert await texts(store, thread) == ["a", "b", "c", "d"]
    assert await texts(store, thread, after=1) == ["b", "c", "d"]
    assert await texts(store, thread, after=1, until=3) == ["b", "c"]
    assert await texts(store, thread, until=0) == []
    assert await texts(store, thread, after=3, until=2) == []
    assert await texts(store, thread, after=4) == []
    assert await texts(store, thread, after=99, until=999) == []
    assert await texts(store, thread, until=99) == ["a", "b", "c", "d"]


async def an_unknown_thread_has_no_records(make_store: MakeStore) -> None:
    """Reading does not make a thread."""
    store, thread = make_store(), fresh()
    assert await store.read(thread) == []
    assert await store.load_snapshot(thread) is None
    assert await store.threads(prefix=thread) == []


async def other_handles_see_what_was_written(make_store: MakeStore) -> None:
    """An append that returned can be read everywhere."""
    one, other, thread = make_store(), make_store(), fresh()
    lease = await one.acquire(thread, owner="one")
    for number in range(5):
        await one.append(lease, number, notes(str(number)))
        assert await texts(other, thread, after=number) == [str(number)]
    await one.release(lease)


async def records_of_every_kind_come_back(make_store: MakeStore) -> None:
    """The JSON form of a record survives."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, every_kind())
    await store.release(lease)
    assert same(await make_store().read(thread), every_kind())


async def large_and_strange_values_come_back(make_store: MakeStore) -> None:
    """A megabyte, deep nesting, all of Unicode and big numbers."""
    store, thread = make_store(), fresh()
    nested: list[object] = []
    for _ in range(100):
        nested = [nested]
    strange = {"text": "\0\x1f\u2028\uffff\U0010ffff \ud83d lone", "big": 2**80, "float": 1e-300, "nested": nested}
    records: list[Record] = [
        InputRecord(run="r", values={"text": "ü" * 500_000}, at=0.0),
        InputRecord(run="r", values=strange, at=0.0),
    ]
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, records)
    await store.release(lease)
    assert same(await store.read(thread), records)


async def a_wrong_number_is_a_conflict(make_store: MakeStore) -> None:
    """Whoever did not see the last record adds none of its own, not even the first of several."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, notes("a", "b"))
    for expected in (0, 1, 3, -1):
        with refused(ConflictError):
            await store.append(lease, expected, notes("x", "y"))
    await store.append(lease, 2, notes("c"))
    await store.release(lease)
    assert await texts(store, thread) == ["a", "b", "c"]


async def appending_nothing_changes_nothing(make_store: MakeStore) -> None:
    """An empty append still says whether the number is right."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, [])
    with refused(ConflictError):
        await store.append(lease, 1, [])
    await store.release(lease)
    assert await store.threads(prefix=thread) == []


async def what_is_read_can_be_changed_safely(make_store: MakeStore) -> None:
    """The list that `read` returns, and the one that `append` got, belong to the caller."""
    store, thread, given = make_store(), fresh(), notes("a")
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, given)
    given.clear()
    (await store.read(thread)).clear()
    await store.release(lease)
    assert await texts(store, thread) == ["a"]


async def hostile_names_are_only_names(make_store: MakeStore) -> None:
    """Quotes, slashes, wildcards and a thousand characters are fine."""
    store, root = make_store(), fresh()
    names = [(root + name)[-1_000:] for name in GOOD_NAMES]
    for name in names:
        await write(store, name, name)
    for name in names:
        assert await texts(store, name) == [name]
    assert [info.thread for info in await store.threads(prefix=root)] == sorted(n for n in names if n.startswith(root))


async def impossible_names_are_refused(make_store: MakeStore) -> None:
    """Empty, with a NUL or half a character, or far too long: an `InputError` everywhere."""
    store, good = make_store(), fresh()
    await write(store, good, "a")
    for bad in BAD_NAMES:
        await _refuses_name(store, bad, good)
    assert await store.threads(prefix="half\ud800pair") == []


async def _refuses_name(store: Journal, bad: str, good: str) -> None:
    for call in (
        lambda: store.acquire(bad, owner="run"),
        lambda: store.read(bad),
        lambda: store.load_snapshot(bad),
        lambda: store.fork(good, 1, bad),
        lambda: store.fork(bad, 1, good),
        lambda: store.delete(bad),
        lambda: store.post(bad, {}),
    ):
        with refused(InputError):
            await call()


async def the_newest_fitting_snapshot_is_found(make_store: MakeStore) -> None:
    """Never one after `until`; a later one of the same record replaces the earlier."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, notes("a", "b", "c", "d"))
    assert await store.load_snapshot(thread) is None
    await store.save_snapshot(lease, Snapshot(seq=2, since=0, data={"n": 2}))
    await store.save_snapshot(lease, Snapshot(seq=4, since=1, data={"n": "old"}))
    await store.save_snapshot(lease, Snapshot(seq=4, since=3, data={"n": {"deep": [1, None, "ü"]}}))
    await store.release(lease)
    other = make_store()
    assert await other.load_snapshot(thread) == Snapshot(seq=4, since=3, data={"n": {"deep": [1, None, "ü"]}})
    earlier = await other.load_snapshot(thread, until=3)
    assert earlier is None or earlier == Snapshot(seq=2, since=0, data={"n": 2})
    assert await other.load_snapshot(thread, until=1) is None


async def a_snapshot_of_the_future_is_refused(make_store: MakeStore) -> None:
    """A snapshot is of records that are there."""
    store, thread = make_store(), fresh()
    lease = await store.acquire(thread, owner="run")
    await store.append(lease, 0, notes("a"))
    with refused(InputError):
        await store.save_snapshot(lease, Snapshot(seq=2, since=0, data={}))
    await store.release(lease)
    assert await store.load_snapshot(thread) is None


RECORD_CHECKS = (
    records_are_numbered_from_one,
    an_unknown_thread_has_no_records,
    other_handles_see_what_was_written,
    records_of_every_kind_come_back,
    large_and_strange_values_come_back,
    a_wrong_number_is_a_conflict,
    appending_nothing_changes_nothing,
    what_is_read_can_be_changed_safely,
    hostile_names_are_only_names,
    impossible_names_are_refused,
    the_newest_fitting_snapshot_is_found,
    a_snapshot_of_the_future_is_refused,
)
