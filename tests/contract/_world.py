"""The world of the machine: one agent on one store, an event loop of its own, and all that must always hold."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from contract._parts import Boom, MachineModel, Meddler, make_toolkit
from contract._script import REPEATABLE, Say
from contract._tap import Tap
from treadle import Msg, ReActAgent, Reply
from treadle.agent._plan import react_plan
from treadle.agent._react import result_of
from treadle.errors import AgentBusyError, InputError, JournalError, TreadleError
from treadle.event import Event, RunEndedEvent, RunFailedEvent, RunPausedEvent, RunStartedEvent
from treadle.graph import _run as graph_run
from treadle.graph import _thread as graph_thread
from treadle.graph._state import ThreadState
from treadle.graph._strategy import MISSING
from treadle.graph._thread import load_state
from treadle.journal import Journal, MemoryStore, SQLiteStore
from treadle.journal._record import FinishedRecord, Record, ResumedRecord, StartedRecord
from treadle.message._codec import dumps
from treadle.model import ModelRequest
from treadle.testing import history_problems
from treadle.testing._faults import InjectedFault
from treadle.tool import ToolContext

Kind: TypeAlias = Literal["memory", "sqlite"]
How: TypeAlias = Literal["call", "wait", "stream", "close", "drop", "detach", "limit"]
HOWS: tuple[How, ...] = ("call", "call", "wait", "stream", "close", "drop", "detach", "limit")
TERMINAL = (RunEndedEvent, RunPausedEvent, RunFailedEvent)
PATIENCE = 3.0
"""After this many seconds without an end something hangs; nothing else depends on it."""


@dataclass(eq=False)
class Handle:
    """Something under way on a thread: a call, a stream and its reader, or an `observe`."""

    thread: str
    how: str
    task: asyncio.Task[Any]
    lost: int
    before: str
    events: list[Event] = field(default_factory=list[Event])
    stopped: int = 0
    """How often somebody cancelled it or let its time run out; the second time it does not wait for its run."""
    limit: asyncio.Timeout | None = None
    sent: Msg | None = None
    busy: bool = False


class World:
    """Everything that outlives a crash: the stored data, what was executed, and what anybody was told."""

    _frozen = False

    def __init__(self, kind: Kind, *, hooked: bool, delay: int, parallel: bool, max_iters: int = 4) -> None:
        if not World._frozen:  # so that collecting garbage looks only at what the machine made
            World._frozen = True
            gc.collect()
            gc.freeze()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._on_loop_error)
        self.kind, self.hooked, self.delay, self.parallel, self.max_iters = kind, hooked, delay, parallel, max_iters
        self.problems: list[str] = []
        self.says: deque[Say] = deque()
        self.acts: dict[str, deque[str]] = {}
        self.cancelling_hooks = 0
        self.gates: list[asyncio.Future[None]] = []
        self.thread_gates: list[threading.Event] = []
        self.releasing = False
        self.ignored = 0
        self.requests = 0
        self.calls_made = 0
        self.seen: list[Event] = []
        self.executed: Counter[tuple[str, str]] = Counter()
        self.told: dict[str, list[str]] = {}
        self.handles: list[Handle] = []
        self._number = 0
        self._saved = (graph_run.CLEANUP_SECONDS, graph_thread.SNAPSHOT_EVERY)
        graph_run.CLEANUP_SECONDS = 0.02
        graph_thread.SNAPSHOT_EVERY = 3
        self.folder = tempfile.mkdtemp() if kind == "sqlite" else ""
        self.raw: Journal = self._open()
        self._new_agent()

    # Setting up, crashing, closing.

    def _open(self) -> Journal:
        return SQLiteStore(f"{self.folder}/runs.db", poll=5.0) if self.kind == "sqlite" else MemoryStore()

    def _new_agent(self) -> None:
        self.tap = Tap(self.raw, delay=self.delay)
        self.agent = ReActAgent(
            name="A",
            model=MachineModel(self),
            system_prompt="Be brief.",
            toolkit=make_toolkit(self, parallel=self.parallel),
            hooks=[Meddler(self)] if self.hooked else [],
            store=self.tap,
            max_iters=self.max_iters,
        )

    def crash(self) -> None:
        """Kill the process: whatever is not in the store is gone. Then start another one."""
        self.tap.dead = True
        self.do(self._until_idle())
        self.reap()
        self.acts.clear()
        self.seen.clear()
        self.do(self._reopen())
        self._new_agent()

    async def _reopen(self) -> None:
        old = self.raw
        if self.kind == "sqlite":
            await old.close()
            self.raw = self._open()
            return
        self.raw = self._open()
        for info in await old.threads():
            records = await old.read(info.thread)
            lease = await self.raw.acquire(info.thread, owner="copy")
            await self.raw.append(lease, 0, records)
            await self.raw.release(lease)

    def close(self) -> None:
        """Let everything come to its end, check once more, and clean up."""
        try:
            self.settle()
            self.check()
            self.do(self.raw.close())
            self.handles.clear()
            self.seen.clear()
            del self.agent, self.tap
            gc.collect()
            self.do(asyncio.sleep(0))
            assert not self.problems, "\n".join(self.problems)
        finally:
            graph_run.CLEANUP_SECONDS, graph_thread.SNAPSHOT_EVERY = self._saved
            self._open_gates()
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True) if self.folder else None

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"the event loop reports: {context.get('message')} {context.get('future')!r}")

    # What model, tools and hooks ask for.

    def next_say(self) -> Say:
        return self.says.popleft() if self.says else Say(text="done")

    def next_act(self, kind: str) -> str:
        queue = self.acts.get(kind)
        act = queue.popleft() if queue else ""
        self.cancelling_hooks += act == "cancelled"
        return act

    def number(self, count: int) -> int:
        self._number += count
        return self._number - count

    async def gate(self) -> None:
        if self.releasing:
            await asyncio.sleep(0)
            return
        gate = self.loop.create_future()
        self.gates.append(gate)
        await gate

    async def executing(self, ctx: ToolContext) -> None:
        """A tool runs: its start must be in the store, and its end must not."""
        self.execute(ctx)
        if self.tap.dead:
            return
        records = await self.raw.read(ctx.thread)
        started = sum(isinstance(r, StartedRecord) and r.call == ctx.call_id for r in records)
        if started < self.executed[ctx.thread, ctx.call_id]:
            self.problems.append(f"{ctx.call_id} runs before its start is recorded")
        if any(isinstance(r, FinishedRecord) and r.call == ctx.call_id for r in records):
            self.problems.append(f"{ctx.call_id} runs although it is finished")

    def execute(self, ctx: ToolContext) -> None:
        self.executed[ctx.thread, ctx.call_id] += 1

    async def check_told(self, request: ModelRequest) -> None:
        """What the model is told must be in the store already, but for hints and for what hooks add."""
        if self.tap.dead or request.thread is None:
            return
        state = await load_state(self.raw, request.thread, react_plan().schema)
        stored = {msg.id for msg in state.values["messages"].messages}
        for msg in request.messages:
            limit = msg.role == "tool" and "limit of" in str(msg.tool_results[0].output)
            if msg.id not in stored and msg.role in ("assistant", "tool") and not limit:
                self.problems.append(f"the model was told what is not stored: {msg!r}")

    # Driving.

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def pump(self, turns: int) -> None:
        """Let the event loop go round a few times."""

        async def spin() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.do(spin())
        self.reap()

    async def loaded(self, thread: str) -> ThreadState:
        return await load_state(self.raw, thread, react_plan().schema)

    def state(self, thread: str) -> ThreadState:
        return self.do(self.loaded(thread))

    def active(self, thread: str) -> list[Handle]:
        return [handle for handle in self.handles if handle.thread == thread]

    def start(self, thread: str, how: How, count: int, input: Any = None, decisions: Any = None) -> Handle:
        """Begin a call or a stream; it goes on while the machine does other things."""
        # A handle that is cancelled twice does not wait for its run to close.
        busy = bool(self.active(thread)) or graph_run.active_run(self.tap, thread) is not None
        before = self.state(thread).phase
        sent = input if isinstance(input, Msg) else None
        given: dict[str, Any] = {
            "thread": thread,
            "decisions": decisions,
            "on_busy": "wait" if how == "wait" else "error",
        }
        ready: asyncio.Future[Handle] = self.loop.create_future()

        async def work() -> Any:
            handle = await ready
            if how in ("call", "wait"):
                return await self.agent.call(input, **given)
            if how == "limit":
                async with asyncio.timeout(None) as handle.limit:
                    return await self.agent.call(input, **given)
            return await self._read(handle, count, input, given)

        task = self.loop.create_task(work())
        handle = Handle(thread, how, task, self.tap.lost, before, sent=sent, busy=busy)
        ready.set_result(handle)
        self._add(handle)
        return handle

    def _add(self, handle: Handle) -> None:
        self.calls_made += 1
        for other in self.active(handle.thread):
            other.busy = True
        self.handles.append(handle)

    async def _read(self, handle: Handle, count: int, input: Any, given: Mapping[str, Any]) -> Any:
        stream = self.agent.stream(input, **given, detach=handle.how == "detach")
        run = stream.run
        whole = handle.how == "stream"
        try:
            async for event in stream:
                handle.events.append(event)
                if not whole and len(handle.events) >= count:
                    break
        except asyncio.CancelledError:
            await stream.aclose()
            if handle.how == "detach":
                await run.wait()
            raise
        if handle.how == "drop":
            del stream
        else:
            await stream.aclose()
        return result_of(await run.wait())

    def meddle(self, acts: Sequence[tuple[str, str]]) -> None:
        """Plan what hooks do at the next events of some kinds."""
        for kind, act in acts:
            self.acts.setdefault(kind, deque()).append(act)

    def interrupt(self, thread: str, how: str) -> None:
        async def wish() -> None:
            with suppress(InjectedFault):
                message = "enough" if how == "answer" else None
                await self.agent.interrupt(message, thread=thread, when="now" if how == "now" else "checkpoint")

        self.do(wish())

    def observe(self, thread: str, msg: Msg) -> None:
        before = self.state(thread).phase
        task = self.loop.create_task(self.agent.observe(msg, thread=thread))
        self._add(Handle(thread, "observe", task, self.tap.lost, before, sent=msg))

    def cancel(self, handle: Handle) -> None:
        """Cancel the task around a call, or let the time run out that it has."""

        async def stop() -> None:
            handle.stopped += 1
            if handle.limit is None:
                handle.task.cancel()
            elif not handle.task.done() and not handle.limit.expired():
                handle.limit.reschedule(0.0)

        if not handle.task.done():
            self.do(stop())

    def _open_gates(self) -> None:
        for gate in self.gates:
            if not gate.done():
                gate.set_result(None)
        self.gates.clear()
        for event in self.thread_gates:
            event.set()

    def release(self, index: int) -> None:
        """Open one of the gates that somebody waits at."""
        waiting = [gate for gate in self.gates if not gate.done()]
        closed = [event for event in self.thread_gates if not event.is_set()]
        if index < len(waiting):
            waiting[index].set_result(None)
        elif index - len(waiting) < len(closed):
            closed[index - len(waiting)].set()

    async def _until_idle(self) -> None:
        """Open all gates until nothing is left to do."""
        self.releasing = True
        deadline = time.monotonic() + PATIENCE
        quiet, dying = 0, list[bool]()
        while quiet < 3:
            self._open_gates()
            if self.tap.dead and not dying:
                dying = [handle.task.cancel() for handle in self.handles]
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            quiet = 0 if others else quiet + 1
            if others and time.monotonic() > deadline:
                stuck = [f"{task.get_coro()}" for task in others]
                for task in others:
                    task.cancel()
                raise AssertionError(f"This never ends, with all gates open: {stuck}")
            if others:
                await asyncio.wait(others, timeout=0.001, return_when=asyncio.FIRST_COMPLETED)
        self.releasing = False

    def settle(self) -> None:
        """Let everything that is under way come to its end."""
        if self.tap.dead:
            self.crash()
        if self.handles or asyncio.all_tasks(self.loop):
            self.do(self._until_idle())
        self.reap()
        if self.tap.dead:
            self.crash()
        assert not self.handles

    # What must hold.

    def reap(self) -> None:
        """Look at everything that ended since."""
        for handle in [handle for handle in self.handles if handle.task.done()]:
            self.handles.remove(handle)
            if not self.tap.dead:
                self._check_outcome(handle)
            elif not handle.task.cancelled():
                handle.task.exception()

    def _check_outcome(self, handle: Handle) -> None:
        try:
            result = handle.task.result()
        except BaseException as error:
            self._check_error(handle, error)
            reply = None
        else:
            reply = cast("Reply[Any]", result) if isinstance(result, Reply) else None
            if handle.sent is not None and (reply is None or reply.reason not in ("interrupted",)):
                self.told.setdefault(handle.thread, []).append(handle.sent.id)
        if reply is not None and reply.content and reply.text != "edited":
            self.told.setdefault(handle.thread, []).append(reply.id)
        if handle.how == "stream" and not handle.stopped:
            ends = [isinstance(event, TERMINAL) for event in handle.events]
            assert ends == [False] * (len(ends) - 1) + [True], f"the stream gave {handle.events}"

    def _check_error(self, handle: Handle, error: BaseException) -> None:
        lost = self.tap.lost > handle.lost
        if isinstance(error, AgentBusyError):
            assert handle.busy or handle.how == "wait", "busy, but nobody else was there"
        elif isinstance(error, asyncio.CancelledError | TimeoutError):
            assert handle.stopped or self.cancelling_hooks, f"nobody cancelled {handle.how}"
        elif isinstance(error, JournalError):
            assert lost, f"the journal failed without a fault: {error!r}"
        else:
            assert isinstance(error, TreadleError | Boom), f"{error!r} reached the caller"
        began = not isinstance(error, InputError | AgentBusyError)
        if began and not lost and handle.stopped < 2 and not self.active(handle.thread):
            phase = self.state(handle.thread).phase
            assert phase in ("ended", "paused", handle.before), f"after {error!r} the thread is {phase}"

    def check(self) -> None:
        """Check all that can be checked at any moment."""
        assert not self.problems, "\n".join(self.problems)
        ran = Counter(self.executed)
        for info in self.do(self.raw.threads()):
            self._check_thread(info.thread, self.do(self.raw.read(info.thread)), ran)
        self._check_events()
        self._check_costs()

    def _check_thread(self, thread: str, records: Sequence[Record], ran: Counter[tuple[str, str]]) -> None:
        schema = react_plan().schema
        folded = ThreadState(schema)
        for record in records:
            folded.apply(record)
        assert folded.seq == len(records)
        loaded = self.do(load_state(self.raw, thread, schema, until=len(records)))
        assert not (change := difference(folded, loaded)), f"a snapshot gives another state: {change}"
        kept = graph_thread.desk_of(self.tap).states
        for cached in [state for (name, _), state in kept.items() if name == thread and state.seq == folded.seq]:
            assert not (change := difference(folded, cached)), f"the kept state is not what the records say: {change}"
        self._check_history(thread, folded)
        started = check_calls(records, folded)
        for (where, call), times in ran.items():
            assert where != thread or times <= started[call], f"{call} ran {times} times, started {started[call]}"

    def _check_history(self, thread: str, state: ThreadState) -> None:
        messages = list(state.values["messages"].messages)
        problems = history_problems(messages, open_calls=state.phase in ("running", "paused"))
        assert not problems, f"{state.phase}: {problems}"
        stored = {msg.id for msg in messages} | {msg.id for msg in state.values["messages"]._deferred}
        missing = [told for told in self.told.get(thread, ()) if told not in stored]
        assert not missing, f"{missing} were promised and are not stored"

    def _check_events(self) -> None:
        """Every run that began has one last event, once it is over."""
        ends = Counter(event.source.run for event in self.seen if isinstance(event, TERMINAL))
        begun = {event.source.run for event in self.seen if isinstance(event, RunStartedEvent)}
        assert all(times == 1 for times in ends.values()), f"runs ended more than once: {ends}"
        if not self.handles and not asyncio.all_tasks(self.loop):
            assert begun <= ends.keys(), f"runs {begun - ends.keys()} never ended"

    def _check_costs(self) -> None:
        """What a step costs depends on what it adds, not on what was there."""
        for thread, cost in self.tap.plan.costs.items():
            assert cost.largest < 4_000, f"a record of {thread} has {cost.largest} bytes"
            most = 8 * self.calls_made + 20 * self.requests
            assert cost.records <= most, f"{cost.records} records of {thread} after {self.requests} answers"


def check_calls(records: Sequence[Record], state: ThreadState) -> Counter[str]:
    """Check that no call ran twice without leave, and return how often each was started."""
    names = {call.id: call.name for msg in state.values["messages"].messages for call in msg.tool_calls}
    started: Counter[str] = Counter()
    finished: set[str] = set()
    retries: set[str] = set()
    for record in records:
        if isinstance(record, ResumedRecord):
            retries |= {call for call, answer in record.answers.items() if _decision(answer) == "retry"}
        elif isinstance(record, StartedRecord):
            assert record.call not in finished, f"{record.call} started after it had finished"
            again = started[record.call] and names[record.call] not in REPEATABLE
            assert not again or record.call in retries, f"{record.call} started again, and nobody said so"
            retries.discard(record.call)
            started[record.call] += 1
        elif isinstance(record, FinishedRecord):
            assert record.call not in finished, f"{record.call} finished twice"
            finished.add(record.call)
    return started


def _decision(answer: Any) -> str:
    return str(cast("Mapping[str, Any]", answer).get("decision", "")) if isinstance(answer, Mapping) else ""


def difference(one: ThreadState, other: ThreadState) -> dict[str, Any]:
    """Where two states are not the same."""
    ours, theirs = picture(one), picture(other)
    return {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}


def picture(state: ThreadState) -> Any:
    """A state as plain JSON, to compare one with another."""
    values = {name: value for name, value in state.values.items() if value is not MISSING and name != "messages"}
    history = state.values["messages"]
    data: dict[str, Any] = {
        "values": values,
        "messages": list(history.messages),
        "deferred": list(history._deferred),
        "pending": list(history.pending),
        "phase": state.phase,
        "reason": state.reason,
        "frontier": [(task.index, task.node) for task in state.frontier],
        "last": [update.node for update in state.last],
        "unrouted": state.unrouted,
        "visits": state.visits,
        "total": state.total,
        "steps": state.steps,
        "turn": state.turn,
        "input_seq": state.input_seq,
        "calls": {
            call: (known.input, known.result, known.finished, known.settled, known.at)
            for call, known in state.calls.items()
        },
        "wishes": list(state.wishes),
        "answers": state.answers,
        "late": [(late.call, late.result) for late in state.late],
        "seq": state.seq,
    }
    return json.loads(dumps(data))
