"""`CompiledGraph`: run a graph on threads, pause and resume it, look back and fork."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from treadle._ids import new_id
from treadle._sync import run_sync
from treadle.errors import InputError, StateError
from treadle.event import Event, Pause, RunFailedEvent
from treadle.graph._answers import answers_below, match_answers, raise_pause
from treadle.graph._channel import Channel
from treadle.graph._child import as_mapping, changes, shared
from treadle.graph._draw import mermaid
from treadle.graph._interrupt import Interruption, interrupt_thread
from treadle.graph._node import NodeContext
from treadle.graph._options import OnBusy, When, at_once, must_wait, named, named_or_new
from treadle.graph._plan import Plan
from treadle.graph._run import Run, Terminal, active_run
from treadle.graph._state import ThreadState
from treadle.graph._strategy import plain
from treadle.graph._stream import EventStream, Watcher
from treadle.graph._thread import OpenThread, load_state
from treadle.journal import Journal, open_store
from treadle.journal._record import EndedRecord, InputRecord, Record, ResumedRecord, RoutedRecord, UpdateRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphResult(Mapping[str, Any]):
    """What a run of a graph gave: the state (also as items), how it ended, and what it waits for if it paused."""

    thread: str
    state: Any
    reason: str
    pause: Pause | None = None

    def _items(self) -> Mapping[str, Any]:
        return as_mapping(self.state)

    def __getitem__(self, key: str) -> Any:
        return self._items()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAt:
    """The state of a thread after one of its records."""

    seq: int
    state: Any
    next: tuple[str, ...]
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What a run of a graph is asked to do. A child continues wherever its thread is, so it may be asked again."""

    input: Mapping[str, Any] | None = None
    answers: Any = None
    child: bool = False


class CompiledGraph:
    """A graph that is ready to run. It holds no run's state: any number of threads may use it at once."""

    def __init__(
        self,
        plan: Plan,
        *,
        name: str = "graph",
        store: Journal | str | os.PathLike[str] | None = None,
        gotos: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.name = name
        self._plan = plan
        self._own_store = None if store is None else open_store(store)
        self._journal: Journal | None = self._own_store
        self._gotos = gotos or {}

    @property
    def journal(self) -> Journal:
        """The store of this graph's threads; in memory if none was given."""
        if self._journal is None:
            self._journal = open_store("memory:")
        return self._journal

    # Running.

    async def invoke(
        self,
        input: Mapping[str, Any] | None = None,
        *,
        thread: str | None = None,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "error",
    ) -> GraphResult:
        """Run until the graph ends or pauses. Without input, go on where the thread stopped.

        Args:
            input: Values for keys of the state, which begin a new turn.
            thread: The thread to run on; a new one if not given.
            context: An object for nodes; never stored.
            variables: Values for templates of agents; never stored.
            on_busy: What to do if another run drives the thread: raise `AgentBusyError`, or wait for it.
        """
        run = self._run(Invocation(input=input), thread, on_busy, context=context, variables=variables)
        return self._result(await run.start().wait())

    async def resume(
        self,
        thread: str,
        answers: Any = None,
        *,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "error",
    ) -> GraphResult:
        """Answer what a paused thread waits for and go on.

        Answers are a dict by wish id, or the answer itself where there is one wish; breakpoints need none.
        """
        run = self._run(Invocation(answers=answers), named(thread), on_busy, context=context, variables=variables)
        return self._result(await run.start().wait())

    def stream(
        self,
        input: Mapping[str, Any] | None = None,
        *,
        thread: str | None = None,
        answers: Any = None,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        on_busy: OnBusy = "error",
        detach: bool = False,
    ) -> EventStream[GraphResult]:
        """The same as `invoke` (or `resume`, with `answers`), event by event."""
        asked, name = Invocation(input=input, answers=answers), named_or_new(thread)
        must_wait(on_busy)  # what is wrong is said here, not when somebody begins to read

        def start(channel: Channel) -> Run:
            return self._run(asked, name, on_busy, context=context, variables=variables, channel=channel)

        return EventStream(start, self._result, detach=detach)

    def invoke_sync(self, input: Mapping[str, Any] | None = None, **options: Any) -> GraphResult:
        """`invoke` for code without async; works inside a running event loop too."""
        return run_sync(self.invoke(input, **options))

    def resume_sync(self, thread: str, answers: Any = None, **options: Any) -> GraphResult:
        """`resume` for code without async."""
        return run_sync(self.resume(thread, answers, **options))

    def interrupt(self, thread: str, *, when: When = "checkpoint") -> Interruption:
        """Stop the run that drives a thread, in this or another process: before its next step, or `now`.

        It ends with reason `interrupted` and keeps its unfinished nodes; without a run there is nothing to stop.
        Await what this returns to be sure that the wish was delivered.
        """
        return interrupt_thread(self.journal, named(thread), None, now=at_once(when))

    def watch(self, thread: str) -> AsyncIterator[Event]:
        """Watch a run that somebody else started in this process, without slowing it."""
        run = active_run(self.journal, thread)
        if run is None:
            raise InputError(f"No run drives thread {thread!r} in this process.")
        return Watcher(run)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the graph's store; agents and graphs inside it that have their own are not closed with it."""
        if self._journal is not None:
            await self._journal.close()

    def _run(self, asked: Invocation, thread: str | None, on_busy: OnBusy, **options: Any) -> Run:
        name, wait = named_or_new(thread), must_wait(on_busy)
        return Run(self._plan, self, self.journal, name, request=asked, wait=wait, **options)

    def _result(self, last: Terminal) -> GraphResult:
        if isinstance(last, RunFailedEvent):
            raise last.error
        return last.result

    # What the runner asks its host.

    async def begin_run(self, run: Run) -> Sequence[Record] | None:
        """Turn an invocation into the records that start the run."""
        asked, state = cast("Invocation", run.request), run.state
        done = not (state.frontier or state.unrouted or state.waiting or state.phase == "paused")
        if asked.child and state.phase == "ended" and done:
            return None
        if asked.input is not None and not (asked.child and state.phase != "new"):
            values = self._plan.schema.dump(as_mapping(asked.input))
            return [InputRecord(run=run.id, values=values, next=self._plan.first())]
        if done:
            raise InputError(f"Thread {run.name!r} has nothing to go on with; give it an input.")
        answers = match_answers(state.wishes, asked.answers, partial=asked.child)
        return [ResumedRecord(run=run.id, answers=answers)]

    def close_run(self, run: Run, reason: str, error: BaseException | None) -> EndedRecord:
        """A graph that stops early keeps its unfinished nodes, so that it can go on."""
        return EndedRecord(
            reason=reason, error=None if error is None else f"{type(error).__name__}: {error}", open=True
        )

    async def finish_run(self, run: Run, reason: str) -> GraphResult:
        """The state as it is now."""
        return GraphResult(thread=run.name, state=_copied(run.state.view()), reason=reason, pause=run.pause)

    # Looking back and changing course.

    async def state(self, thread: str, *, at: int | None = None) -> StateAt:
        """The state now, or after record `at`."""
        return _state_at(await load_state(self.journal, thread, self._plan.schema, until=at))

    async def history(self, thread: str) -> list[StateAt]:
        """The state after every finished step, oldest first; fork at any `seq` of it."""
        state, out = ThreadState(self._plan.schema), list[StateAt]()
        for record in await self.journal.read(thread):
            state.apply(record)
            step = isinstance(record, InputRecord | UpdateRecord | RoutedRecord) and not state.done
            if step or isinstance(record, EndedRecord):
                out.append(_state_at(state))
        return out

    async def fork(self, thread: str, at: int, new: str | None = None) -> str:
        """Make a thread that shares the first `at` records, and return its id.

        Graphs and agents inside it start afresh there, unless it is forked where it stands now.
        """
        name = named_or_new(new)
        below = await self.journal.threads(prefix=f"{thread}/")
        now = len(await self.journal.read(thread, after=at)) == 0
        await self.journal.fork(thread, at, name)
        for child in below if now else ():
            await self.journal.fork(child.thread, child.seq, name + child.thread[len(thread) :])
        return name

    async def update_state(self, thread: str, values: Mapping[str, Any], *, as_node: str | None = None) -> None:
        """Edit the state from outside; with `as_node`, go on as if that node had just returned the values."""
        if as_node is not None and as_node not in self._plan.nodes:
            raise StateError(f"There is no node {as_node!r} to continue after.")
        opened = await OpenThread.open(self.journal, named(thread), self._plan.schema, owner=new_id("edit"), wait=False)
        try:
            dumped = self._plan.schema.dump(values)
            opened.record(InputRecord(run=opened.lease.owner, values=dumped, next=None, turn=False))
            if as_node is not None:
                next = await self._plan.next_slowly(opened.state, [UpdateRecord(node=as_node)])
                opened.record(InputRecord(run=opened.lease.owner, next=next, turn=False))
            await opened.commit()
        finally:
            await opened.close()

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return mermaid(self._plan, self._gotos)

    # As a node of another graph.

    def as_node(
        self,
        *,
        input: Callable[[Any], Mapping[str, Any]] | None = None,
        output: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> Callable[[Any, NodeContext], Any]:
        """Run this graph inside another, on a thread of its own below the parent's.

        Keys that both graphs have go in and what changed comes out, unless `input` and `output` say otherwise.
        """

        async def node(state: Any, context: NodeContext) -> Mapping[str, Any]:
            run = self._child(context, input(state) if input else shared(self._plan.schema, state))
            last = await run.start().wait()
            raise_pause(last, f"{context.task_id}/", context.task.node)
            result = self._result(last)
            if output is not None:
                return output(result.state)
            return changes(
                context.run.state.schema, await load_state(run.journal, run.name, self._plan.schema, until=1), run.state
            )

        return node

    def _child(self, context: NodeContext, given: Mapping[str, Any]) -> Run:
        """A run on a thread below the node's, where it goes on if it was there before."""
        answers = answers_below(context.run.state, f"{context.task_id}/")
        return Run(
            self._plan,
            self,
            self._own_store or context.run.journal,
            f"{context.thread}/{context.task_id}",
            request=Invocation(input=given, answers=answers, child=True),
            context=context.context,
            variables=context.variables,
            parent=context.run,
            label=context.task.node,
            wait=True,  # whoever holds this thread while we hold the one above is about to lose it, or to be done
        )


def _state_at(state: ThreadState) -> StateAt:
    next = tuple(task.node for task in state.open_tasks())
    return StateAt(seq=state.seq, state=_copied(state.view()), next=next, reason=state.reason)


def _copied(view: Any) -> Any:
    """The state as it is now, apart from what later steps add to it."""
    if not isinstance(view, dict):
        return view
    return {name: plain(value) for name, value in cast("dict[str, Any]", view).items()}
