"""A random program against the five promises: calls, streams, interrupts, cancellations, hooks, faults and crashes.

Nothing here waits for a clock: models, tools and hooks wait at gates that the machine opens, and the event loop goes
round as often as the machine says. `TREADLE_DEEP=1` looks longer.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contract._parts import ACTS
from contract._script import Say, says
from contract._tap import FAULTS, Fault
from contract._world import HOWS, How, Kind, World
from treadle import Approve, Edit, Msg, Reject, Result, Retry
from treadle.message import ToolResultBlock

DEEP = os.environ.get("TREADLE_DEEP") == "1"
threads = st.sampled_from(("t", "t", "t", "u"))
hows = st.sampled_from(HOWS)
counts = st.integers(1, 12)
decisions = st.sampled_from(
    (Approve(), Approve(), Retry(), Result("given"), Reject("no"), Edit({"n": 3}), Edit({"m": 1}))
)
acts = st.sampled_from([(kind, act) for kind, known in ACTS.items() for act in known])


class AgentMachine(RuleBasedStateMachine):
    """One agent, two threads."""

    kind: Kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(hooked=st.booleans(), delay=st.integers(0, 2), parallel=st.booleans(), max_iters=st.sampled_from((4, 2)))
    def begin(self, hooked: bool, delay: int, parallel: bool, max_iters: int) -> None:
        self.world = World(self.kind, hooked=hooked, delay=delay, parallel=parallel, max_iters=max_iters)

    @property
    def here(self) -> World:
        assert self.world is not None
        return self.world

    # What is going to happen.

    @rule(turns=st.lists(says, min_size=1, max_size=3))
    def script(self, turns: list[Say]) -> None:
        self.here.says.extend(turns)

    @precondition(lambda self: self.here.hooked)
    @rule(act=acts)
    def meddle(self, act: tuple[str, str]) -> None:
        kind, what = act
        self.here.acts.setdefault(kind, type(self.here.says)()).append(what)  # type: ignore[arg-type]

    @rule(appends=st.integers(0, 6), fault=st.sampled_from(FAULTS))
    def break_store(self, appends: int, fault: Fault) -> None:
        self.here.tap.arm(appends, fault)

    # Calls of every kind.

    @rule(thread=threads, how=hows, count=counts, turns=st.integers(0, 12), script=st.lists(says, max_size=2))
    def say_something(self, thread: str, how: How, count: int, turns: int, script: list[Say]) -> None:
        self.here.says.extend(script)
        self.here.start(thread, how, count, Msg.user("hello"))
        self.here.pump(turns)

    @rule(thread=threads, how=hows, count=counts, turns=st.integers(0, 12))
    def say_nothing(self, thread: str, how: How, count: int, turns: int) -> None:
        self.here.start(thread, how, count)
        self.here.pump(turns)

    @rule(thread=threads, how=hows, count=counts, turns=st.integers(0, 12), chosen=st.lists(decisions, max_size=4))
    def decide(self, thread: str, how: How, count: int, turns: int, chosen: list[Any]) -> None:
        state = self.here.state(thread)
        waiting = [wish["id"] for wish in state.wishes] or list(state.values["messages"].pending)
        given = dict(zip(waiting, chosen, strict=False))
        if given:
            self.here.start(thread, how, count, decisions=given)
            self.here.pump(turns)

    @rule(thread=threads, how=hows, count=counts, most=st.integers(1, 3), name=st.booleans(), text=st.booleans())
    def give_results(self, thread: str, how: How, count: int, most: int, name: bool, text: bool) -> None:
        pending = list(self.here.state(thread).values["messages"].pending.values())[:most]
        given: list[Any] = [
            ToolResultBlock(id=call.id, name=call.name if name else "else", output="by hand") for call in pending
        ]
        if given:
            self.here.start(thread, how, count, [*given, "and this"] if text else given)
            self.here.pump(3)

    @rule(thread=threads)
    def observe(self, thread: str) -> None:
        self.here.observe(thread, Msg.user("fyi", name="other"))
        self.here.pump(2)

    # Getting in the way.

    @rule(turns=st.integers(1, 15))
    def go_round(self, turns: int) -> None:
        self.here.pump(turns)

    @rule(index=st.integers(0, 4), turns=st.integers(0, 6))
    def release(self, index: int, turns: int) -> None:
        self.here.release(index)
        self.here.pump(turns)

    @rule(thread=threads, now=st.booleans(), message=st.sampled_from((None, "stop it")), turns=st.integers(0, 6))
    def interrupt(self, thread: str, now: bool, message: str | None, turns: int) -> None:
        async def wish() -> None:
            await self.here.agent.interrupt(message, thread=thread, when="now" if now else "checkpoint")

        if self.here.handles:
            self.here.do(wish())
            self.here.pump(turns)

    @rule(index=st.integers(0, 2), turns=st.integers(0, 6))
    def cancel(self, index: int, turns: int) -> None:
        handles = self.here.handles
        if handles:
            self.here.cancel(handles[index % len(handles)])
            self.here.pump(turns)

    @rule()
    def settle(self) -> None:
        self.here.settle()

    # Preconditions would depend on the timing of tools in threads, and hypothesis wants the same choices every time.

    @rule()
    def crash(self) -> None:
        self.here.crash()

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


_common: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}
if os.environ.get("TREADLE_SHRINK") == "0":
    _common["phases"] = [Phase.generate]
if DEEP:
    profile = settings(max_examples=int(os.environ.get("TREADLE_EXAMPLES", "3000")), stateful_step_count=40, derandomize=False, **_common)
else:
    profile = settings(max_examples=150, stateful_step_count=25, derandomize=True, database=None, **_common)

TestMemory = AgentMachine.TestCase
TestMemory.settings = profile
TestSQLite = SQLiteMachine.TestCase
TestSQLite.settings = profile
for case in (TestMemory, TestSQLite):
    case.pytestmark = [pytest.mark.timeout(36_000 if DEEP else 300)]  # type: ignore[attr-defined]
