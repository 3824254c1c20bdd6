"""What can be changed in an event and what not, and that hooks and streams see the same objects."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hook.support import ADD, Log, agent_of, model_of, names, results, valid_history
from treadle import Hook, Msg
from treadle.errors import EventError
from treadle.event import (
    ActingChunkEvent,
    Event,
    ModifiableEvent,
    NotificationEvent,
    PostActingEvent,
    PostCallEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
    PreSummaryEvent,
    ReasoningChunkEvent,
    RunEndedEvent,
    RunStartedEvent,
    Source,
)
from treadle.hook import on, post_acting, post_reasoning, pre_acting, pre_reasoning
from treadle.message import ToolResultBlock, ToolUseBlock
from treadle.model import TextDelta
from treadle.testing import tool_call
from treadle.tool import ToolContext

SOURCE = Source(run="r", thread="t", agent="Agent")
CALL = ToolUseBlock(id="c1", name="add", input={"a": 1})
RESULT = ToolResultBlock(id="c1", name="add", output="2")


async def progress(ctx: ToolContext) -> str:
    """Report progress."""
    await ctx.emit("half")
    return "done"


# Hooks and readers


async def test_hooks_and_readers_get_the_same_objects_in_the_same_order() -> None:
    log = Log()
    agent = agent_of([[tool_call("progress")], ADD, "42"], log, toolkit=[progress], max_iters=2)
    events = [event async for event in agent.stream("Hello")]
    assert {"PreCall", "PreReasoning", "ReasoningChunk", "ActingChunk", "PreSummary", "PostCall"} <= set(log.names)
    assert [id(event) for event in log.seen] == [id(event) for event in events]
    assert isinstance(events[0], RunStartedEvent)
    assert isinstance(events[-1], RunEndedEvent)


async def test_a_reader_gets_the_same_events_where_no_hook_wants_any() -> None:
    def script() -> list[Any]:
        return [[tool_call("progress")], "Done."]

    with_hook = agent_of(script(), Log(), toolkit=[progress])
    without = agent_of(script(), toolkit=[progress])
    seen = [[event async for event in agent.stream("Hello")] for agent in (with_hook, without)]
    assert names(seen[0]) == names(seen[1])


async def test_a_reader_sees_what_hooks_made_of_an_event_and_cannot_change_it_any_more() -> None:
    @post_reasoning
    async def shout(event: PostReasoningEvent) -> None:
        event.message = dataclasses.replace(event.message, content=Msg.assistant("HI.").content)

    agent = agent_of(["Hi."], shout)
    events = [event async for event in agent.stream("Hello")]
    event = next(event for event in events if isinstance(event, PostReasoningEvent))
    assert event.message.text == "HI."
    with pytest.raises(EventError, match="is over"):
        event.message = Msg.assistant("Too late.")
    with pytest.raises(EventError, match="is over"):
        event.stop()


async def test_an_event_says_where_it_comes_from() -> None:
    log = Log()
    agent = agent_of(["Hi."], log)
    reply = await agent.call("Hello", thread="t")
    assert {event.source for event in log.seen} == {Source(run=reply.run, thread="t", agent="Agent")}


async def test_events_of_an_agent_inside_another_go_to_its_own_hooks_and_to_the_readers_of_both() -> None:
    outer_log, inner_log = Log(), Log()
    inner = agent_of(["Inner."], inner_log, toolkit=[])
    task = tool_call("ask", id="c1", message="Do it.")
    agent = agent_of([[task], "Outer."], outer_log, toolkit=[inner.as_tool(name="ask")])
    events = [event async for event in agent.stream("Hello", thread="t")]
    inside = [event for event in events if event.source.thread != "t"]
    assert [id(event) for event in inside] == [id(event) for event in inner_log.seen]
    assert {event.source.thread for event in inside} == {"t/c1"}
    assert {event.source.parent for event in inside} == {events[0].source.run}
    assert {event.source.thread for event in outer_log.seen} == {"t"}


# Notifications


NOTIFICATIONS: list[NotificationEvent] = [
    ReasoningChunkEvent(source=SOURCE, delta=TextDelta("Hi")),
    ActingChunkEvent(source=SOURCE, call=CALL, chunk="half"),
    RunStartedEvent(source=SOURCE),
]


@pytest.mark.parametrize("event", NOTIFICATIONS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("field", ["source", "delta", "anything"])
def test_a_notification_cannot_be_changed(event: NotificationEvent, field: str) -> None:
    kind = type(event).__name__
    with pytest.raises(EventError, match=rf"`{kind}` is a notification.*`{kind}.{field}` cannot be changed"):
        setattr(event, field, "other")
    with pytest.raises(EventError, match="is a notification"):
        delattr(event, field)


async def test_changing_a_notification_fails_the_run_and_names_the_hook() -> None:
    @on(ReasoningChunkEvent)
    def censor(event: Any) -> None:
        event.delta = TextDelta("***")

    agent = agent_of(["Hi."], censor)
    with pytest.raises(EventError, match="`ReasoningChunkEvent` is a notification") as caught:
        await agent.call("Hello", thread="t")
    assert caught.value.__notes__ == ["In hook `censor`, on `ReasoningChunkEvent`."]
    assert [msg.role for msg in await valid_history(agent)] == ["user"]


async def test_replacing_a_notification_is_an_error_too() -> None:
    @on(ReasoningChunkEvent)
    def censor(event: ReasoningChunkEvent) -> ReasoningChunkEvent:
        return ReasoningChunkEvent(source=event.source, delta=TextDelta("***"))

    with pytest.raises(EventError, match=r"`ReasoningChunkEvent` is a notification.*cannot be replaced"):
        await agent_of(["Hi."], censor).call("Hello")


# Modifiable events


def modifiable() -> list[ModifiableEvent]:
    said = Msg.assistant("Hi.")
    return [
        PreCallEvent(source=SOURCE, messages=[]),
        PreReasoningEvent(source=SOURCE, messages=[]),
        PostReasoningEvent(source=SOURCE, message=said),
        PreActingEvent(source=SOURCE, call=CALL, input={}),
        PostActingEvent(source=SOURCE, call=CALL, result=RESULT),
        PreSummaryEvent(source=SOURCE, messages=[]),
        PostSummaryEvent(source=SOURCE, message=said),
        PostCallEvent(source=SOURCE, reply=said),
    ]


@pytest.mark.parametrize("event", modifiable(), ids=lambda event: type(event).__name__)
def test_fields_that_are_not_changeable_are_refused_with_those_that_are(event: ModifiableEvent) -> None:
    fields = {field.name for field in dataclasses.fields(event)}
    assert event.changeable < fields
    for name in fields - event.changeable:
        with pytest.raises(EventError, match=rf"`{type(event).__name__}\.{name}` cannot be changed") as caught:
            setattr(event, name, "other")
        assert all(f"`{changeable}`" in str(caught.value) for changeable in event.changeable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A value that makes no sense in a field of an event."""

    event: Callable[[], ModifiableEvent]
    field: str
    value: Any
    problem: str


BAD = [
    Bad(event=lambda: modifiable()[0], field="messages", value="text", problem="a list of messages"),
    Bad(event=lambda: modifiable()[0], field="messages", value=["text"], problem="messages \\(`Msg`\\), not 'text'"),
    Bad(event=lambda: modifiable()[0], field="messages", value=[Msg.system("x")], problem="no system messages"),
    Bad(event=lambda: modifiable()[1], field="messages", value=None, problem="a list of messages, not None"),
    Bad(event=lambda: modifiable()[2], field="message", value="text", problem="a message of the assistant"),
    Bad(event=lambda: modifiable()[2], field="message", value=Msg.user("x"), problem="a message of the assistant"),
    Bad(event=lambda: modifiable()[3], field="input", value=[1], problem="a dict of arguments"),
    Bad(event=lambda: modifiable()[4], field="result", value="text", problem="a `ToolResultBlock`, not 'text'"),
    Bad(
        event=lambda: modifiable()[4],
        field="result",
        value=ToolResultBlock(id="c2", name="add", output=""),
        problem="the result of call 'c1' of `add`, not of 'c2'",
    ),
    Bad(event=lambda: modifiable()[5], field="messages", value="text", problem="a list of messages"),
    Bad(event=lambda: modifiable()[6], field="message", value=Msg.user("x"), problem="a message of the assistant"),
    Bad(event=lambda: modifiable()[6], field="message", value=Msg.assistant(CALL), problem="makes no tool calls"),
    Bad(event=lambda: modifiable()[7], field="reply", value="text", problem="a `Reply`, not 'text'"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{type(bad.event()).__name__}-{bad.problem[:20]}")
def test_a_value_that_makes_no_sense_is_refused_where_it_is_put_in(bad: Bad) -> None:
    event = bad.event()
    before = getattr(event, bad.field)
    with pytest.raises(EventError, match=bad.problem):
        setattr(event, bad.field, bad.value)
    assert getattr(event, bad.field) is before


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: PreReasoningEvent.add_messages, "no system messages"),
        (lambda: PostReasoningEvent.goto_reasoning, "no system messages"),
    ],
)
def test_messages_to_be_stored_are_no_system_messages(call: Any, problem: str) -> None:
    event = modifiable()[1] if call() is PreReasoningEvent.add_messages else modifiable()[2]
    with pytest.raises(EventError, match=problem):
        call()(event, [Msg.system("x")])


@pytest.mark.parametrize("msg", [Msg.assistant(CALL), Msg.tool(RESULT)], ids=["call", "result"])
def test_messages_added_before_a_model_call_have_nothing_to_do_with_tools(msg: Msg) -> None:
    event = PreReasoningEvent(source=SOURCE, messages=[])
    with pytest.raises(EventError, match="no tool calls and no results"):
        event.add_messages([msg])
    assert (event.added, event.messages) == ((), [])


def test_messages_for_another_try_make_no_calls() -> None:
    event = PostReasoningEvent(source=SOURCE, message=Msg.assistant("Hi."))
    with pytest.raises(EventError, match="no tool calls"):
        event.goto_reasoning([Msg.assistant(CALL)])
    assert event.goto is None


async def test_each_hook_sees_what_the_ones_before_made_of_an_event() -> None:
    seen: list[str] = []

    def adding(text: str) -> Hook:
        @pre_reasoning
        async def add_text(event: PreReasoningEvent) -> None:
            seen.append(event.messages[-1].text)
            event.messages = [*event.messages, Msg.user(text)]

        return add_text

    await agent_of(["Hi."], adding("one"), adding("two")).call("Hello")
    assert seen == ["Hello", "one"]


# Returning another event


def replaced(event: PreActingEvent) -> PreActingEvent:
    return dataclasses.replace(event, input={"a": 5, "b": 5})


def copied(event: PreActingEvent) -> PreActingEvent:
    other = copy.copy(event)
    other.input = {"a": 5, "b": 5}
    return other


@pytest.mark.parametrize("make", [replaced, copied])
async def test_a_hook_may_return_another_event_and_cannot_undo_what_another_hook_decided(
    make: Callable[[PreActingEvent], PreActingEvent],
) -> None:
    @pre_acting(priority=1)
    async def asks(event: PreActingEvent) -> None:
        event.ask("Really?")
        event.update_state(asked=1)

    @pre_acting(priority=2)
    async def returns(event: PreActingEvent) -> PreActingEvent:
        return make(event)

    log = Log(PreActingEvent, priority=3)
    agent = agent_of([ADD, "10"], asks, returns, log)
    reply = await agent.call("Hello", thread="t")
    assert reply.pause is not None
    assert [(wish.reason, wish.input) for wish in reply.pause.wishes] == [("Really?", {"a": 5, "b": 5})]
    event = log.seen[0]
    assert isinstance(event, PreActingEvent)
    assert (event.updates, event.state) == ({"asked": 1}, {"asked": 1})


async def test_decisions_of_a_returned_event_count() -> None:
    @post_reasoning
    async def returns(event: PostReasoningEvent) -> PostReasoningEvent | None:
        if event.message.text == "Better.":
            return None
        other = dataclasses.replace(event)
        other.goto_reasoning()
        other.update_state(tries=1)
        return other

    seen: list[Any] = []

    @post_reasoning
    async def looks(event: PostReasoningEvent) -> None:
        seen.append((event.goto, dict(event.state)))

    agent = agent_of(["Bad.", "Better."], returns, looks)
    assert (await agent.call("Hello")).text == "Better."
    assert seen == [((), {"tries": 1}), (None, {"tries": 1})]


async def test_a_returned_event_cannot_smuggle_in_what_is_not_changeable() -> None:
    @post_acting
    async def returns(event: PostActingEvent) -> PostActingEvent:
        other = ToolUseBlock(id="other", name="other", input={})
        result = dataclasses.replace(event.result, output="changed")
        return PostActingEvent(source=SOURCE, call=other, result=result)

    log = Log(PostActingEvent, priority=200)
    agent = agent_of([ADD, "42"], returns, log)
    await agent.call("Hello", thread="t")
    event = log.seen[0]
    assert isinstance(event, PostActingEvent)
    assert (event.call.id, event.source.thread) == ("c1", "t")
    assert results(await valid_history(agent)) == {"c1": "changed"}


async def test_returning_something_else_is_an_error_that_says_what() -> None:
    @on(PreReasoningEvent)
    def returns(event: Any) -> Any:
        return "text"

    with pytest.raises(EventError, match="returned 'text' for a `PreReasoningEvent`") as caught:
        await agent_of(["Hi."], returns).call("Hello")
    assert caught.value.__notes__ == ["In hook `returns`, on `PreReasoningEvent`."]


# What hooks do in place


async def test_what_a_hook_does_to_options_in_place_holds_for_one_request() -> None:
    @pre_reasoning
    async def cools(event: PreReasoningEvent) -> None:
        if event.iteration == 0:
            event.options["temperature"] = 0  # type: ignore[index]

    options = {"temperature": 1}
    agent = agent_of([ADD, "42"], cools, options=options)
    await agent.call("Hello")
    assert [request.options["temperature"] for request in model_of(agent).requests] == [0, 1]
    assert options == {"temperature": 1}


async def test_stored_state_cannot_be_changed_behind_the_journal() -> None:
    @pre_reasoning
    async def cheats(event: PreReasoningEvent) -> None:
        event.state["count"] = 1  # type: ignore[index]

    with pytest.raises(TypeError, match="does not support item assignment"):
        await agent_of(["Hi."], cheats).call("Hello")


async def test_an_unknown_event_class_reaches_nobody() -> None:
    class Mine(NotificationEvent):
        """Some other event."""

    log = Log(Mine)
    await agent_of(["Hi."], log).call("Hello")
    assert log.seen == []


def test_every_event_of_the_table_is_a_modifiable_one_or_a_notification() -> None:
    import treadle.event as package

    kinds = [vars(package)[name] for name in package.__all__ if name.endswith("Event")]
    unions = [kind for kind in kinds if not isinstance(kind, type)]
    assert unions == [Event]
    for kind in kinds:
        if isinstance(kind, type):
            assert issubclass(kind, ModifiableEvent) != issubclass(kind, NotificationEvent)
