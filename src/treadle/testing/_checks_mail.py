"""Checks of the mail to whoever drives a thread."""

from __future__ import annotations

import threading

from treadle.errors import InputError, LeaseLostError
from treadle.testing._checks import MakeStore, eventually, fresh, refused, write


async def mail_comes_in_order(make_store: MakeStore) -> None:
    """Notes wait for the next driver, need no lease, and do not make a thread."""
    store, other, thread = make_store(), make_store(), fresh()
    for number in range(3):
        await other.post(thread, {"number": number, "text": "ü\ud800"})
    await other.post(fresh(), {"for": "somebody else"})
    assert await store.threads(prefix=thread) == []
    lease = await store.acquire(thread, owner="run")
    assert lease.seq == 0
    await other.post(thread, {"number": 3, "nested": {"a": [1, None, True]}})
    found = await store.mail(lease)
    assert [note.body["number"] for note in found] == [0, 1, 2, 3]
    assert found[0].body == {"number": 0, "text": "ü\ud800"}
    assert found[3].body == {"number": 3, "nested": {"a": [1, None, True]}}
    numbers = [note.number for note in found]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0
    await store.release(lease)


async def mail_is_kept_until_it_is_discarded(make_store: MakeStore) -> None:
    """By reading it, or by a driver that goes away, nothing is lost; what was not named stays."""
    store, other, thread = make_store(), make_store(), fresh()
    for text in "abc":
        await other.post(thread, {"text": text})
    lease = await store.acquire(thread, owner="run-1")
    found = await store.mail(lease)
    assert await store.mail(lease) == found
    await other.post(thread, {"text": "d"})
    await store.discard(lease, found[1].number)
    await store.release(lease)
    lease = await other.acquire(thread, owner="run-2")
    left = await other.mail(lease)
    assert left[0] == found[2]
    assert [note.body for note in left] == [{"text": "c"}, {"text": "d"}]
    assert left[1].number > left[0].number
    await other.discard(lease, found[1].number)
    assert await other.mail(lease) == left
    await other.discard(lease, left[1].number)
    await other.discard(lease, left[1].number)
    assert await other.mail(lease) == []
    await other.post(thread, {"text": "e"})
    assert [note.body for note in await other.mail(lease)] == [{"text": "e"}]
    await other.release(lease)


async def discarding_is_for_one_thread_and_its_driver(make_store: MakeStore) -> None:
    """Other threads, forks among them, have mail of their own; a lost lease removes none."""
    store, other, thread, fork = make_store(), make_store(), fresh(), fresh()
    await write(store, thread, "a")
    await store.post(thread, {"n": 1})
    await store.fork(thread, 1, fork)
    forked = await store.acquire(fork, owner="run")
    assert await store.mail(forked) == []
    await store.post(fork, {"n": 2})
    old = await store.acquire(thread, owner="run")
    (note,) = await store.mail(old)
    await store.release(old)
    with refused(LeaseLostError):
        await store.discard(old, note.number)
    lease = await other.acquire(thread, owner="run")
    with refused(LeaseLostError):
        await store.mail(old)
    with refused(LeaseLostError):
        await store.discard(old, note.number)
    await store.discard(forked, note.number + 10)
    await store.release(forked)
    assert await other.mail(lease) == [note]
    await other.release(lease)


async def mail_must_be_a_mapping(make_store: MakeStore) -> None:
    """Anything else would not come back as it was given."""
    store, thread = make_store(), fresh()
    wrong: object = ["not", "a", "mapping"]
    with refused(InputError):
        await store.post(thread, wrong)  # pyright: ignore[reportArgumentType]


async def mail_wakes_listeners(make_store: MakeStore) -> None:
    """Through the same handle or another; not for other threads, and not after listening stopped."""
    for store, sender in ((make_store(), make_store()), (one := make_store(), one)):
        thread, woken = fresh(), threading.Event()
        lease = await store.acquire(thread, owner="run")
        stop = store.listen(lease, woken.set)
        await sender.post(thread, {"n": 1})
        await eventually(woken.is_set, "being woken by mail")
        assert [note.body for note in await store.mail(lease)] == [{"n": 1}]
        stop()
        stop()
        await sender.post(thread, {"n": 2})
        await store.release(lease)


async def mail_that_waits_wakes_a_new_listener(make_store: MakeStore) -> None:
    """Nothing falls between taking a lease and listening."""
    store, thread, woken = make_store(), fresh(), threading.Event()
    await make_store().post(thread, {"n": 1})
    lease = await store.acquire(thread, owner="run")
    stop = store.listen(lease, woken.set)
    await eventually(woken.is_set, "being woken by mail that was there")
    stop()
    await store.release(lease)


async def a_listener_that_fails_disturbs_nobody(make_store: MakeStore) -> None:
    """A sender does not see the error, and others are still woken."""
    store, thread, woken = make_store(), fresh(), threading.Event()

    def fail() -> None:
        raise RuntimeError("Event loop is closed")

    lease = await store.acquire(thread, owner="run")
    stops = [store.listen(lease, fail), store.listen(lease, woken.set)]
    await store.post(thread, {})
    await eventually(woken.is_set, "being woken beside a listener that fails")
    for stop in stops:
        stop()
    await store.release(lease)


MAIL_CHECKS = (
    mail_comes_in_order,
    mail_is_kept_until_it_is_discarded,
    discarding_is_for_one_thread_and_its_driver,
    mail_must_be_a_mapping,
    mail_wakes_listeners,
    mail_that_waits_wakes_a_new_listener,
    a_listener_that_fails_disturbs_nobody,
)
