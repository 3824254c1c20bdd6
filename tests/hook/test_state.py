"""What hooks keep: journaled with the thread, seen by later events, there again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hook.support import ADD, ADD_TWICE, THREAD, add, agent_of, died_now, lines, valid_history
from treadle import Approve, Hook, ReActAgent
from treadle.errors import FormatError
from treadle.event import (
    Event,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
)
from treadle.hook import on, post_acting, post_reasoning, pre_acting, pre_call, pre_reasoning
from treadle.journal import Journal, Lease, Record, SettledRecord, SQLiteStore
from treadle.testing import FaultyJournal, tool_call
from treadle.tool import tool


class Counting(Hook):
    """Counts events of some classes, in the thread and not in itself."""

    def __init__(self, *events: type[Event], priority: int = 100) -> None:
        self.events = events
        self.priority = priority

    async def on_event(self, event: Any) -> None:
        key = type(event).__name__
        event.update_state(**{key: event.state.get(key, 0) + 1})


class Reading(Hook):
    """Reads the state that a thread has."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    events = (PreReasoningEvent,)

    async def on_event(self, event: Any) -> None:
        self.state = dict(event.state)


async def state_of(agent: ReActAgent) -> dict[str, Any]:
    """What is stored in a thread, as another run sees it."""
    reading = Reading()
    other = agent_of(["Hi."] * 20, reading, store=agent.journal)
    await other.call("What is stored?", thread=THREAD)
    return reading.state


STATEFUL: list[type[Event]] = [PreReasoningEvent, PostReasoningEvent, PreActingEvent, PostActingEvent]


@pytest.mark.parametrize("kind", STATEFUL)
async def test_every_event_that_takes_state_stores_it(kind: type[Event], store: Journal) -> None:
    agent = agent_of([ADD, ADD_TWICE, "Done."], Counting(kind), store=store)
    await agent.call("Hello", thread=THREAD)
    assert await state_of(agent) == {kind.__name__: 3}


async def test_state_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    script = [ADD, "One.", ADD, "Two."]
    for _ in range(2):
        store = SQLiteStore(path)
        agent = agent_of(script, Counting(*STATEFUL), store=store)
        await agent.call("Hello", thread=THREAD)
        await store.close()
    store = SQLiteStore(path)
    assert await state_of(agent_of(script, store=store)) == {
        "PreReasoningEvent": 4,
        "PostReasoningEvent": 4,
        "PreActingEvent": 2,
        "PostActingEvent": 2,
    }
    await store.close()


async def test_threads_do_not_share_state() -> None:
    agent = agent_of(["a", "b"], Counting(PreReasoningEvent))
    await agent.call("Hello", thread="other")
    assert await state_of(agent) == {}


async def test_later_hooks_and_later_events_see_what_was_stored() -> None:
    seen: list[tuple[str, Any]] = []

    @pre_reasoning(priority=1)
    async def writes(event: PreReasoningEvent) -> None:
        event.update_state(plan=["look", "leap"])

    @on(PreReasoningEvent, PostReasoningEvent, PreActingEvent, PostActingEvent, priority=2)
    async def reads(event: PreReasoningEvent | PostReasoningEvent | PreActingEvent | PostActingEvent) -> None:
        seen.append((type(event).__name__, event.state.get("plan")))

    await agent_of([ADD, "42"], writes, reads).call("Hello")
    assert [name for name, _ in seen] == [
        "PreReasoningEvent",
        "PostReasoningEvent",
        "PreActingEvent",
        "PostActingEvent",
        "PreReasoningEvent",
        "PostReasoningEvent",
    ]
    assert all(plan == ["look", "leap"] for _, plan in seen)


async def test_calls_beside_each_other_do_not_overwrite_each_others_state() -> None:
    agent = agent_of([ADD_TWICE, "Done."], Counting(PreActingEvent, PostActingEvent))
    await agent.call("Hello", thread=THREAD)
    assert await state_of(agent) == {"PreActingEvent": 2, "PostActingEvent": 2}


async def test_none_removes_a_value(store: Journal) -> None:
    seen: list[Any] = []

    @pre_reasoning
    async def writes(event: PreReasoningEvent) -> None:
        event.update_state(kept=1, gone=None if event.state else 2)
        seen.append(dict(event.state))

    agent = agent_of([ADD, "42"], writes, store=store)
    await agent.call("Hello", thread=THREAD)
    assert seen == [{"kept": 1, "gone": 2}, {"kept": 1}]
    assert await state_of(agent) == {"kept": 1}


async def test_what_cannot_be_stored_is_an_error_in_the_hook() -> None:
    @pre_reasoning
    async def writes(event: PreReasoningEvent) -> None:
        event.update_state(where=object())

    with pytest.raises(FormatError, match="cannot be stored as JSON") as caught:
        await agent_of(["Hi."], writes).call("Hello")
    assert caught.value.__notes__ == ["In hook `writes`, on `PreReasoningEvent`."]


async def test_what_a_hook_does_to_a_value_after_storing_it_is_not_stored() -> None:
    @pre_reasoning
    async def writes(event: PreReasoningEvent) -> None:
        plan = ["look"]
        event.update_state(plan=plan)
        plan.append("leap")

    agent = agent_of(["Hi."], writes)
    await agent.call("Hello", thread=THREAD)
    assert await state_of(agent) == {"plan": ["look"]}


async def test_state_of_a_call_is_kept_when_a_sibling_pauses_and_the_process_restarts(store: Journal) -> None:
    @pre_acting(priority=1000)
    async def asks(event: PreActingEvent) -> None:
        if event.call.id == "c2":
            event.ask()

    def fresh() -> ReActAgent:
        return agent_of([ADD_TWICE, "Done."], Counting(PreActingEvent, PostActingEvent), asks, store=store)

    reply = await fresh().call("Hello", thread=THREAD)
    assert reply.reason == "paused"
    agent = fresh()
    await agent.resume(THREAD, {"c2": Approve()})
    # A hook that ran before a pause runs again, and what it noted counts once: with the call that then ran.
    assert await state_of(agent) == {"PreActingEvent": 2, "PostActingEvent": 2}


async def test_state_is_written_with_the_record_it_belongs_to(store: Journal) -> None:
    @pre_acting
    async def before(event: PreActingEvent) -> None:
        event.update_state(before=True)

    @post_acting
    async def after(event: PostActingEvent) -> None:
        event.update_state(after=True)

    agent = agent_of([ADD, "42"], before, after, store=store)
    await agent.call("Hello", thread=THREAD)
    stored = await lines(agent)
    assert stored[stored.index("started c1") - 1] == "note {'state': {'before': True}}"
    assert stored[stored.index("settled c1") - 1] == "note {'state': {'after': True}}"


async def test_state_of_a_call_that_does_not_run_is_stored_too(store: Journal) -> None:
    @pre_acting
    async def answers(event: PreActingEvent) -> None:
        event.update_state(answered=event.call.id)
        event.answer("Enough.")

    agent = agent_of([ADD, "42"], answers, store=store)
    await agent.call("Hello", thread=THREAD)
    assert await state_of(agent) == {"answered": "c1"}


class Settling(FaultyJournal):
    """A journal that says when a call's final result was written."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.settled = asyncio.Event()

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        await super().append(lease, expected, records)
        if any(isinstance(record, SettledRecord) for record in records):
            self.settled.set()


async def test_state_of_a_settled_call_is_there_after_a_crash(store: Journal) -> None:
    left: list[Any] = []
    journal = Settling(store)

    @tool(idempotent=True)
    async def slow() -> str:
        """Die here, after the other call is done."""
        if not left:
            await journal.settled.wait()
            left.append(await died_now(agent))
        return "done"

    def fresh(**options: Any) -> ReActAgent:
        calls = [tool_call("add", id="c1", a=1, b=1), tool_call("slow", id="c2")]
        return agent_of([calls, "Done."], Counting(PreActingEvent, PostActingEvent), toolkit=[add, slow], **options)

    agent = fresh(store=journal)
    await agent.call("Hello", thread=THREAD)
    other = fresh()
    other.load_state(left[0], thread=THREAD)
    await other.resume(THREAD)
    assert await state_of(other) == {"PreActingEvent": 2, "PostActingEvent": 2}
    await valid_history(other)


async def test_state_is_kept_when_the_run_fails(store: Journal) -> None:
    class Boom(Exception):
        """What the hook raises."""

    @post_reasoning
    async def breaks(event: PostReasoningEvent) -> None:
        if not event.message.tool_calls:
            raise Boom

    agent = agent_of([ADD, "42"], Counting(PostActingEvent), breaks, store=store)
    with pytest.raises(Boom):
        await agent.call("Hello", thread=THREAD)
    assert await state_of(agent) == {"PostActingEvent": 1}


async def test_a_thread_goes_on_in_a_process_with_other_hooks(store: Journal) -> None:
    @on(PreCallEvent, PreReasoningEvent, PostReasoningEvent, PostCallEvent)
    async def watches(event: Event) -> None: ...

    @pre_acting
    async def stops(event: PreActingEvent) -> None:
        event.stop()

    left: list[Any] = []

    @pre_call
    async def dies(event: PreCallEvent) -> None:
        left.append(await died_now(first))

    first = agent_of([ADD, "42"], watches, stops, dies, store=store)
    assert (await first.call("Hello", thread=THREAD)).reason == "stopped"
    bare = agent_of([ADD, "42"], store=store)
    assert (await bare.resume(THREAD)).text == "42"
    await valid_history(bare)

    earlier = agent_of([ADD, "42"])
    earlier.load_state(left[0], thread=THREAD)
    assert (await earlier.resume(THREAD)).text == "42"
    assert [msg.role for msg in await valid_history(earlier)] == ["user", "assistant", "tool", "assistant"]
