"""A random program against the five promises: calls, streams, interrupts, cancellations, hooks, faults and crashes.

Nothing here waits for a clock: models, tools and hooks wait at gates that the machine opens, and the event loop goes
round as often as the machine says. `TREADLE_DEEP=1` looks longer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from contract._parts import ACTS
from contract._same import Op, outcome, shape
from contract._script import Say, says
from contract._tap import FAULTS, Fault
from contract._world import HOWS, How, Kind, World
from treadle import Approve, Edit, Msg, Reject, Result, Retry
from treadle.message import ToolResultBlock

DEEP = os.environ.get("TREADLE_DEEP") == "1"
_common: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}
if os.environ.get("TREADLE_SHRINK") == "0":
    _common["phases"] = [Phase.generate]
if DEEP:
    profile = settings(
        max_examples=int(os.environ.get("TREADLE_EXAMPLES", "3000")),
        stateful_step_count=20,
        derandomize=False,
        **_common,
    )
else:
    profile = settings(max_examples=150, stateful_step_count=10, derandomize=True, database=None, **_common)

threads = st.sampled_from(("t", "t", "t", "u"))
hows = st.sampled_from(HOWS)
counts = st.integers(1, 12)
decisions = st.sampled_from(
    (Approve(), Approve(), Retry(), Result("given"), Reject("no"), Edit({"n": 3}), Edit({"m": 1}))
)
all_acts = [(kind, act) for kind, known in ACTS.items() for act in known]
acts = st.sampled_from(all_acts)
faults = st.one_of(st.none(), st.none(), st.none(), st.none(), st.tuples(st.integers(0, 6), st.sampled_from(FAULTS)))
Move: TypeAlias = tuple[str, int]
"""Let the event loop go round, open a gate, get in the way, or wait for the end; then go round a few times."""
moves = st.tuples(
    st.sampled_from(("turns", "turns", "turns", "release", "settle", "cancel", "stop", "now", "answer", "observe")),
    st.integers(0, 12),
)


def fitting(kind: str, decision: Any) -> Any:
    """The decision, or one in its place that the wish allows."""
    if kind == "approval":
        return Approve() if isinstance(decision, Retry) else decision
    if kind in ("unknown", "external"):
        return Retry() if isinstance(decision, Approve | Edit) else decision
    return decision


FAILING = ("raise", "misname", "cancelled")
"""What makes a hook fail, so that readers do not get the event."""
KINDS = ("say", "say", "say", "nothing", "decide", "decide", "decide", "results", "misnamed", "results_and_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the machine."""

    first: str
    kind: str
    thread: str
    how: How
    count: int
    says: tuple[Say, ...]
    decisions: tuple[Any, ...]
    acts: tuple[tuple[str, str], ...]
    fault: tuple[int, Fault] | None
    moves: tuple[Move, ...]


steps = st.builds(
    Step,
    first=st.sampled_from(("", "settle", "settle", "settle", "crash")),
    kind=st.sampled_from(KINDS),
    thread=threads,
    how=hows,
    count=counts,
    says=st.lists(says, max_size=3).map(tuple),
    decisions=st.lists(decisions, max_size=4).map(tuple),
    acts=st.one_of(st.just(()), st.lists(acts, max_size=2).map(tuple)),
    fault=faults,
    moves=st.lists(moves, max_size=4).map(tuple),
)


class AgentMachine(RuleBasedStateMachine):
    """One agent, two threads."""

    kind: Kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        hooked=st.booleans(), delay=st.integers(0, 2), parallel=st.booleans(), max_iters=st.sampled_from((4, 2))
    )
    def begin(self, hooked: bool, delay: int, parallel: bool, max_iters: int) -> None:
        self.world = World(self.kind, hooked=hooked, delay=delay, parallel=parallel, max_iters=max_iters)

    @property
    def here(self) -> World:
        assert self.world is not None
        return self.world

    @rule(step=steps)
    def step(self, step: Step) -> None:
        """One call, and what gets in its way. One rule, because hypothesis leaves whole rules out of many runs."""
        here = self.here
        if step.first == "settle":
            here.settle()
        elif step.first == "crash":
            here.crash()
        here.says.extend(step.says)
        here.meddle(step.acts)
        if step.fault is not None:
            here.tap.arm(*step.fault)
        self._start(step)
        self._move(step.thread, step.moves)

    def _start(self, step: Step) -> None:
        here, thread = self.here, step.thread
        state = here.state(thread)
        pending = state.values["messages"].pending
        if step.kind == "say":
            here.start(thread, step.how, step.count, Msg.user("hello"))
        elif step.kind == "nothing":
            here.start(thread, step.how, step.count)
        elif step.kind == "decide":
            waiting = [wish["id"] for wish in state.wishes] or list(pending)
            kinds = {wish["id"]: wish["kind"] for wish in state.wishes}
            given = {
                wish: decision if step.count == 12 else fitting(kinds.get(wish, ""), decision)
                for wish, decision in zip(waiting, step.decisions, strict=False)
            }
            here.start(thread, step.how, step.count, decisions=given or None)
        elif pending:
            name = "else" if step.kind == "misnamed" else ""
            given = [ToolResultBlock(id=call.id, name=name or call.name, output="mine") for call in pending.values()]
            some = given[: step.count]
            here.start(thread, step.how, step.count, [*some, "and this"] if step.kind == "results_and_text" else some)

    def _move(self, thread: str, moves: tuple[Move, ...]) -> None:
        here = self.here
        for kind, number in moves:
            if kind == "turns":
                here.pump(number)
            elif kind == "release":
                here.release(number % 4)
                here.pump(number)
            elif kind == "cancel" and here.handles:
                here.cancel(here.handles[number % len(here.handles)])
                here.pump(number)
            elif kind == "settle":
                here.settle()
            elif kind == "observe":
                here.observe(thread, Msg.user("fyi", name="other"))
            elif kind in ("stop", "now", "answer") and here.handles:
                here.interrupt(thread, kind)
                here.pump(number)

    @invariant()
    def promises(self) -> None:
        if self.world is not None:
            self.world.check()

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()


class SQLiteMachine(AgentMachine):
    """The same on a file."""

    kind: Kind = "sqlite"


quiet_acts = st.sampled_from([pair for pair in all_acts if pair[1] not in ("gate", "cancelled")])
in_order = says.filter(lambda say: not {call.tool for call in say.calls} & {"sync", "slow_sync"})
"""Answers whose tools do not run in threads, so that parallel calls end in the same order every time."""
ops = st.builds(
    Op,
    kind=st.sampled_from(("say", "say", "decide", "nothing")),
    says=st.lists(in_order, max_size=3).map(tuple),
    decisions=st.lists(decisions, max_size=3).map(tuple),
    acts=st.lists(quiet_acts, max_size=2).map(tuple),
)


@profile
@given(script=st.lists(ops, min_size=1, max_size=5), hooked=st.booleans(), parallel=st.booleans())
def test_streamed_and_not_streamed_are_the_same_run(script: list[Op], hooked: bool, parallel: bool) -> None:
    found: list[dict[str, Any]] = []
    for streamed in (False, True):
        world = World("memory", hooked=hooked, delay=0, parallel=parallel)
        found.append(outcome(world, script, streamed=streamed))
        world.close()
    called, streamed = found
    assert called["ends"] == streamed["ends"]
    assert called["records"] == streamed["records"]
    assert called["seen"] == streamed["seen"]
    if hooked and not any(act in FAILING for op in script for _, act in op.acts):
        read = [shape(event) for events in streamed["streams"] for event in events]
        assert read == streamed["seen"], "readers and hooks see different events"


_patience = [pytest.mark.timeout(36_000 if DEEP else 300)]
TestMemory = AgentMachine.TestCase
TestMemory.settings = profile
TestMemory.pytestmark = _patience  # type: ignore[attr-defined]
TestSQLite = SQLiteMachine.TestCase
TestSQLite.settings = profile if DEEP else settings(profile, max_examples=50)
TestSQLite.pytestmark = _patience  # type: ignore[attr-defined]
