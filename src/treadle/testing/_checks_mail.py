"""Checks of the mail to whoever drives a thread."""

from __future__ import annotations

import threading

from treadle.errors import InputError
from treadle.testing._checks import MakeStore, eventually, fresh, refused


async def mail_is_collected_once_in_order(make_store: MakeStore) -> None:
    """Notes wait for the next driver, need no lease, and do not make a thread."""
    store, other, thread = make_store(), make_store(), fresh()
    for number in range(3):
        await other.post(thread, {"number": number, "text": "ü\ud800"})
    await other.post(fresh(), {"for": "somebody else"})
    assert await store.threads(prefix=thread) == []
    lease = await store.acquire(thread, owner="run")
    assert lease.seq == 0
    await other.post(thread, {"number": 3, "nested": {"a": [1, None, True]}})
    found = await store.collect(lease)
    assert [note["number"] for note in found] == [0, 1, 2, 3]
    assert found[0] == {"number": 0, "text": "ü\ud800"}
    assert found[3] == {"number": 3, "nested": {"a": [1, None, True]}}
    assert await store.collect(lease) == []
    await store.release(lease)


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
        assert await store.collect(lease) == [{"n": 1}]
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
    mail_is_collected_once_in_order,
    mail_must_be_a_mapping,
    mail_wakes_listeners,
    mail_that_waits_wakes_a_new_listener,
    a_listener_that_fails_disturbs_nobody,
)
