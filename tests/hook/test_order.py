"""In which order hooks run, how they are added and removed, and what may be a hook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from hook.support import ADD, Label, Log, agent_of, model_of
from treadle import Hook, ReActAgent
from treadle.errors import InputError
from treadle.event import (
    ActingChunkEvent,
    Event,
    NotificationEvent,
    PostActingEvent,
    PostReasoningEvent,
    PreCallEvent,
    PreReasoningEvent,
    ReasoningChunkEvent,
)
from treadle.hook import CallModel, CallTool, HookSet, ToolCall, on, pre_reasoning
from treadle.model import ModelRequest, ModelResponse
from treadle.testing import ScriptedModel
from treadle.tool import ToolResult


class Special(ReActAgent):
    """Has class-level hooks of its own."""


class MoreSpecial(Special):
    """Has those of `Special` and more."""


@pytest.fixture(autouse=True)
def no_class_hooks_left() -> Iterator[None]:
    yield
    for cls in (ReActAgent, Special, MoreSpecial):
        for hook in tuple(cast("dict[str, Any]", vars(cls)).get("_class_hooks", ())):
            cls.remove_class_hook(hook.name)


def labels(*given: tuple[str, int], event: type[Event] = PreReasoningEvent) -> tuple[list[str], list[Label]]:
    lines: list[str] = []
    return lines, [Label(label, lines, event, priority=priority) for label, priority in given]


async def test_lower_priorities_come_first_and_equal_ones_as_registered() -> None:
    lines, hooks = labels(("late", 900), ("first of two", 100), ("second of two", 100), ("early", -5))
    await agent_of(["Hi."], *hooks).call("Hello")
    assert lines == ["early", "first of two", "second of two", "late"]


@pytest.mark.parametrize("event", [PostReasoningEvent, PostActingEvent])
async def test_post_events_have_the_same_order_as_pre_events(event: type[Event]) -> None:
    lines, hooks = labels(("second", 2), ("first", 1), event=event)
    await agent_of([ADD, "42"], *hooks).call("Hello")
    assert lines[:2] == ["first", "second"]


async def test_class_hooks_come_before_instance_hooks_whatever_their_priority() -> None:
    lines, (late, own, base) = labels(("class, late", 1000), ("instance", 0), ("class, early", 10))
    Special.add_class_hook(late)
    Special.add_class_hook(base)
    agent = Special(name="Agent", model=ScriptedModel(["Hi."]), hooks=[own])
    await agent.call("Hello")
    assert lines == ["class, early", "class, late", "instance"]
    assert agent.hooks == (base, late, own)


async def test_class_hooks_reach_subclasses_and_not_the_classes_above() -> None:
    lines, (special, more) = labels(("special", 100), ("more", 100))
    MoreSpecial.add_class_hook(more)
    Special.add_class_hook(special)
    await ReActAgent(name="A", model=ScriptedModel(["Hi."])).call("Hello")
    assert lines == []
    await Special(name="A", model=ScriptedModel(["Hi."])).call("Hello")
    assert lines == ["special"]
    await MoreSpecial(name="A", model=ScriptedModel(["Hi."])).call("Hello")
    assert lines == ["special", "special", "more"]


async def test_class_hooks_reach_agents_that_exist_already() -> None:
    lines, (hook,) = labels(("hook", 100))
    agent = Special(name="A", model=ScriptedModel(["One.", "Two.", "Three."]))
    await agent.call("Hello")
    Special.add_class_hook(hook)
    await agent.call("Hello")
    assert lines == ["hook"]
    Special.remove_class_hook("hook")
    await agent.call("Hello")
    assert lines == ["hook"]


async def test_hooks_are_added_and_removed_by_name() -> None:
    lines, (one, two) = labels(("one", 1), ("two", 2))
    agent = agent_of(["a", "b", "c"], one)
    agent.add_hook(two)
    await agent.call("Hello")
    agent.remove_hook("one")
    await agent.call("Hello")
    assert lines == ["one", "two", "two"]


async def test_a_hook_that_takes_the_place_of_an_equal_one_is_the_one_that_runs() -> None:
    @dataclass
    class Counting(Hook):
        calls: int = 0

        async def on_event(self, event: Event) -> None:
            self.calls += isinstance(event, PreCallEvent)

    old, new = Counting(), Counting()
    agent = agent_of(["a"], old)
    assert agent.hooks == (old,)
    agent.remove_hook("Counting")
    agent.add_hook(new)
    await agent.call("Hello")
    assert (old.calls, new.calls) == (0, 1)


async def test_a_hook_without_a_name_goes_by_its_class() -> None:
    agent = agent_of(["a"], Log())
    agent.remove_hook("Log")
    assert agent.hooks == ()


async def test_all_hooks_of_a_name_are_removed() -> None:
    agent = agent_of(["a"], Log(), Log())
    agent.remove_hook("Log")
    assert agent.hooks == ()


async def test_removing_a_hook_that_is_not_there_is_an_error_that_names_the_others() -> None:
    agent = agent_of(["a"], Log())
    with pytest.raises(InputError, match=r"no hook `Lg`.*there are: `Log`"):
        agent.remove_hook("Lg")
    with pytest.raises(InputError, match=r"no hook `Log`.*there are: none"):
        Special.remove_class_hook("Log")


async def test_a_hook_added_during_a_run_joins_the_next_run() -> None:
    log = Log(PreReasoningEvent)

    @pre_reasoning
    async def adds(event: PreReasoningEvent) -> None:
        if not log.seen and log not in agent.hooks:
            agent.add_hook(log)

    agent = agent_of([ADD, "42", "Again."], adds)
    await agent.call("Hello")
    assert log.seen == []
    await agent.call("Hello")
    assert len(log.seen) == 1


def plain_function(event: PreReasoningEvent) -> None:
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("given", "advice"),
    [(plain_function, "decorate it"), (Log, "make an object of it"), ("a name", "derive from `Hook`")],
)
def test_what_is_no_hook_is_refused_at_once(given: Any, advice: str) -> None:
    for give in (lambda: agent_of(["a"], given), lambda: agent_of(["a"]).add_hook(given), lambda: HookSet([given])):
        with pytest.raises(InputError, match=advice):
            give()
    with pytest.raises(InputError, match=advice):
        Special.add_class_hook(given)


async def test_events_names_the_classes_that_a_hook_wants_and_none_means_all() -> None:
    some, everything = Log(PreCallEvent, PostActingEvent), Log()
    await agent_of([ADD, "42"], some, everything).call("Hello")
    assert some.names == ["PreCall", "PostActing"]
    assert list(dict.fromkeys(everything.names)) == [
        "RunStarted",
        "PreCall",
        "PreReasoning",
        "ReasoningChunk",
        "PostReasoning",
        "PreActing",
        "PostActing",
        "PostCall",
        "RunEnded",
    ]


async def test_a_base_class_stands_for_all_its_events() -> None:
    log = Log(NotificationEvent)
    await agent_of([ADD, "42"], log).call("Hello")
    assert set(log.names) == {"RunStarted", "ReasoningChunk", "RunEnded"}


class OnlyModel(Hook):
    """Overrides one method."""

    async def around_model(self, request: ModelRequest, call_next: CallModel) -> ModelResponse:
        return await call_next(request)


class OnlyTool(Hook):
    """Overrides another one."""

    async def around_tool(self, call: ToolCall, call_next: CallTool) -> ToolResult:
        return await call_next(call)


def test_a_method_that_is_not_overridden_is_never_called() -> None:
    model, tool, log = OnlyModel(), OnlyTool(), Log(PreReasoningEvent)
    hooks = HookSet([], [model, tool, log, Hook()])
    assert (hooks.model_hooks, hooks.tool_hooks) == ((model,), (tool,))
    assert hooks.wanting(PreReasoningEvent) == (log,)
    assert hooks.wanting(ReasoningChunkEvent) == ()


def test_without_interceptors_nothing_is_wrapped() -> None:
    async def call_model(request: ModelRequest) -> ModelResponse:
        raise AssertionError("never called")

    async def call_tool(call: ToolCall) -> ToolResult:
        raise AssertionError("never called")

    hooks = HookSet([], [Log()])
    assert hooks.wrap_model(call_model) is call_model
    assert hooks.wrap_tool(call_tool) is call_tool


@pytest.mark.parametrize("hooks", [(), (OnlyTool(),), (on(PreCallEvent)(lambda event: None),)])
async def test_an_event_that_nobody_wants_is_never_made(
    hooks: tuple[Hook, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counting(kind: type[Event]) -> Callable[..., None]:
        begin: Callable[..., None] = kind.__init__

        def init(self: Any, **fields: Any) -> None:
            made.append(kind.__name__)
            begin(self, **fields)

        return init

    for kind in (PreReasoningEvent, ReasoningChunkEvent, PostReasoningEvent, PostActingEvent, ActingChunkEvent):
        monkeypatch.setattr(kind, "__init__", counting(kind))
    agent = agent_of([ADD, "42"], *hooks)
    await agent.call("Hello")
    assert made == []
    model_of(agent).assert_consumed()
    await agent_of([ADD, "42"], Log()).call("Hello")
    assert {"PreReasoningEvent", "ReasoningChunkEvent", "PostReasoningEvent", "PostActingEvent"} == set(made)


async def test_interceptors_are_nested_the_first_hook_outermost() -> None:
    lines: list[str] = []

    def wrapping(label: str, priority: int) -> Hook:
        class Wrapping(Hook):
            async def around_model(self, request: ModelRequest, call_next: CallModel) -> ModelResponse:
                return await self._log("model", lambda: call_next(request))

            async def around_tool(self, call: ToolCall, call_next: CallTool) -> ToolResult:
                return await self._log("tool", lambda: call_next(call))

            async def _log(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
                lines.append(f"{label} before {what}")
                answer = await call()
                lines.append(f"{label} after {what}")
                return answer

        hook = Wrapping()
        hook.priority = priority
        return hook

    await agent_of([ADD, "42"], wrapping("inner", 2), wrapping("outer", 1)).call("Hello")
    nested = ["outer before {}", "inner before {}", "inner after {}", "outer after {}"]
    assert lines == [line.format(what) for what in ("model", "tool", "model") for line in nested]
