"""Nothing that a hook puts into an event makes a thread unreadable: what cannot be stored is an `EventError`."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook.support import ADD, THREAD, add, agent_of, died_now, results, valid_history
from message.test_check import odd, spoiled
from treadle import Hook, Msg, ReActAgent
from treadle.errors import EventError
from treadle.event import (
    Event,
    PostActingEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
)
from treadle.hook import on
from treadle.journal import Journal
from treadle.message import TextBlock
from treadle.testing import ScriptedModel

ANY: Any = None
make: Any = Msg
Change = Callable[[Any, Any], None]


class Once(Hook):
    """Does something to the first event of a class, in this process."""

    def __init__(self, kind: type[Event], change: Change, value: Any) -> None:
        self.events = (kind,)
        self.change = change
        self.value = value
        self.done = False

    async def on_event(self, event: Event) -> None:
        if not self.done:
            self.done = True
            self.change(event, self.value)


def _set(field: str) -> Change:
    return lambda event, value: setattr(event, field, value)


def _result(field: str) -> Change:
    def change(event: Any, value: Any) -> None:
        event.result = dataclasses.replace(event.result, **{field: value})

    return change


def _in_place(event: Any, value: Any) -> None:
    event.input["a"] = value


DOORS: dict[str, tuple[type[Event], Change]] = {
    "PreCall.messages": (PreCallEvent, lambda event, value: setattr(event, "messages", [value])),
    "add_messages": (PreReasoningEvent, lambda event, value: event.add_messages([value])),
    "PostReasoning.message": (PostReasoningEvent, _set("message")),
    "goto_reasoning": (PostReasoningEvent, lambda event, value: event.goto_reasoning([value])),
    "PreActing.input": (PreActingEvent, _set("input")),
    "PreActing.input, in place": (PreActingEvent, _in_place),
    "answer": (PreActingEvent, lambda event, value: event.answer(value)),
    "answer, status": (PreActingEvent, lambda event, value: event.answer("", status=value)),
    "ask": (PreActingEvent, lambda event, value: event.ask(value)),
    "PostActing.result": (PostActingEvent, _set("result")),
    "PostActing.output": (PostActingEvent, _result("output")),
    "PostActing.status": (PostActingEvent, _result("status")),
    "PostActing.metadata": (PostActingEvent, _result("metadata")),
    "PostSummary.message": (PostSummaryEvent, _set("message")),
}
WRONG: list[tuple[str, Any, str]] = [
    ("PreCall.messages", make(role="user", content="x", name=5), "`name` must be text, not 5"),
    ("add_messages", Msg.user(TextBlock(text=ANY)), "`content[0].text` must be text, not None"),
    ("PostReasoning.message", Msg.assistant(TextBlock(text=ANY)), "`PostReasoningEvent.message` cannot be stored"),
    ("PostReasoning.message", Msg.assistant("x", metadata={"o": {1}}), "`metadata` cannot be stored as JSON"),
    ("goto_reasoning", Msg.user("x", metadata={"o": object()}), "`metadata` cannot be stored as JSON"),
    ("PreActing.input", {"a": object()}, "`input` cannot be stored as JSON"),
    ("PreActing.input, in place", object(), "`PreActingEvent.input` cannot be stored as JSON"),
    ("answer", 5, "`output` must be text or a tuple of blocks, not 5"),
    ("answer", ["a"], "`output[0]` must be a block of text or media, not 'a'"),
    ("answer, status", "weird", "`status` must be one of"),
    ("ask", 5, "`ask` takes the reason as text, not 5"),
    ("PostActing.output", 5, "`output` must be text or a tuple of blocks, not 5"),
    ("PostActing.status", "weird", "`status` must be one of"),
    ("PostActing.metadata", {"o": object()}, "`metadata` cannot be stored as JSON"),
    ("PostSummary.message", Msg.assistant(TextBlock(text=ANY)), "`PostSummaryEvent.message` cannot be stored"),
]


def agent_with(door: str, value: Any, **options: Any) -> ReActAgent:
    """An agent whose hook puts a value through a door; its loop takes every way that has one."""
    kind, change = DOORS[door]
    if kind is PostSummaryEvent:
        options["max_iters"] = 1
    return agent_of([ADD, "Done.", "Again.", "More."], Once(kind, change, value), **options)


@pytest.mark.parametrize(("door", "value", "text"), WRONG, ids=[case[0] for case in WRONG])
async def test_what_cannot_be_stored_is_refused_where_it_is_put_in(
    door: str, value: Any, text: str, store: Journal
) -> None:
    agent = agent_with(door, value, store=store)
    with pytest.raises(EventError) as error:
        await agent.call("Go.", thread=THREAD)
    assert text in str(error.value)
    other = agent_of([ADD, "Done.", "Again.", "More."])
    other.load_state(await died_now(agent), thread=THREAD)
    assert (await other.call("And now?", thread=THREAD)).reason == "answered"
    await valid_history(other)


@pytest.mark.parametrize("door", ["PreCall.messages", "add_messages", "PostReasoning.message", "goto_reasoning"])
async def test_plain_content_is_taken_as_blocks(door: str, store: Journal) -> None:
    role = "assistant" if door == "PostReasoning.message" else "user"
    agent = agent_with(door, make(role=role, content="Plain."), store=store)
    await agent.call("Go.", thread=THREAD)
    assert "Plain." in [msg.text for msg in await valid_history(agent)]
    agent.load_state(await died_now(agent), thread=THREAD)


async def test_an_answer_may_be_blocks() -> None:
    agent = agent_with("answer", [TextBlock(text="42")])
    await agent.call("Go.", thread=THREAD)
    assert results(await valid_history(agent)) == {"c1": "42"}


async def test_an_overlay_that_is_never_stored_may_be_anything_a_message_is() -> None:
    @on(PreReasoningEvent)
    async def overlay(event: PreReasoningEvent) -> None:
        event.messages = [*event.messages, Msg.user("x", metadata={"o": object()})]

    assert (await agent_of(["Done."], overlay).call("Go.", thread=THREAD)).text == "Done."


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(door=st.sampled_from(sorted(DOORS)), value=spoiled() | odd)
async def test_nothing_that_a_hook_does_makes_a_stored_thread_unreadable(door: str, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'runs.db'}"
        async with agent_with(door, value, store=store) as agent:
            with suppress(EventError):  # and nothing else
                await agent.call("Go.", thread=THREAD)
        model = ScriptedModel(["Done."], loop=True)
        async with ReActAgent(name="Agent", model=model, toolkit=[add], store=store) as agent:
            await agent.history(THREAD)
            assert (await agent.call("And now?", thread=THREAD)).text == "Done."
