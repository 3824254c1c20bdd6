"""`CompiledGraph`: run a graph on threads, pause and resume it, look back and fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from treadle._ids import new_id
from treadle.errors import InputError, StateError
from treadle.event import Event, Pause, RunFailedEvent, Wish
from treadle.graph._channel import Channel
from treadle.graph._control import START
from treadle.graph._draw import mermaid
from treadle.graph._node import NodeContext, PauseSignal
from treadle.graph._plan import Plan
from treadle.graph._run import Run, Terminal
from treadle.graph._state import ThreadState
from treadle.graph._strategy import MISSING, Custom, Items
from treadle.graph._stream import EventStream
from treadle.graph._thread import OpenThread, load_state
from treadle.journal import Journal, open_store
from treadle.journal._record import EndedRecord, InputRecord, Record, ResumedRecord, Target, UpdateRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphResult(Mapping[str, Any]):
    """What a run of a graph gave: the state (also as items), how it ended, and what it waits for if it paused."""

    thread: str
    state: Any
    reason: str
    pause: Pause | None = None

    def _items(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.state if isinstance(self.state, Mapping) else vars(self.state))

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
        store: Journal | str | None = None,
        gotos: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.name = name
        self.plan = plan
        self.own_store = None if store is None else open_store(store)
        self._journal: Journal | None = self.own_store
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
        wait: bool = False,
    ) -> GraphResult:
        """Run until the graph ends or pauses. Without input, go on where the thread stopped."""
        run = self._run(Invocation(input=input), thread, context=context, variables=variables, wait=wait)
        return self._result(await run.start().wait())

    async def resume(
        self,
        thread: str,
        answers: Any = None,
        *,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        wait: bool = False,
    ) -> GraphResult:
        """Answer what a paused thread waits for and go on: a dict by wish id, or the answer itself if there is one wish."""
        run = self._run(Invocation(answers=answers), thread, context=context, variables=variables, wait=wait)
        return self._result(await run.start().wait())

    def stream(
        self,
        input: Mapping[str, Any] | None = None,
        *,
        thread: str | None = None,
        answers: Any = None,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        detach: bool = False,
    ) -> EventStream[GraphResult]:
        """The same as `invoke` (or `resume`, with `answers`), event by event."""
        asked = Invocation(input=input, answers=answers)

        def start(channel: Channel) -> Run:
            return self._run(asked, thread, context=context, variables=variables, channel=channel)

        return EventStream(start, self._result, detach=detach)

    def _run(self, asked: Invocation, thread: str | None, **options: Any) -> Run:
        return Run(self.plan, self, self.journal, thread or new_id("thread"), request=asked, **options)

    def _result(self, last: Terminal) -> GraphResult:
        if isinstance(last, RunFailedEvent):
            raise last.error
        return last.result

    # What the runner asks its host.

    async def begin_run(self, run: Run) -> Sequence[Record] | None:
        """Turn an invocation into the records that start the run."""
        asked, state = cast("Invocation", run.request), run.state
        if asked.child and state.phase == "ended" and not state.frontier:
            return None
        fresh = asked.input is not None and not (asked.child and state.phase != "new")
        if fresh:
            assert asked.input is not None
            values = self.plan.schema.dump(_as_mapping(asked.input))
            return [InputRecord(run=run.id, values=values, next=self._first())]
        if not state.frontier and not state.unrouted:
            raise InputError(f"Thread {run.name!r} has nothing to go on with; give it an input.")
        answers = match_answers(state.wishes, asked.answers, partial=asked.child)
        return [ResumedRecord(run=run.id, answers=answers)]

    def _first(self) -> list[Target]:
        return [START] if START in self.plan.routes else list(self.plan.first(ThreadState(self.plan.schema)))

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
        return _state_at(await load_state(self.journal, thread, self.plan.schema, until=at))

    async def history(self, thread: str) -> list[StateAt]:
        """The state after every finished step, oldest first; fork at any `seq` of it."""
        state, out = ThreadState(self.plan.schema), list[StateAt]()
        for record in await self.journal.read(thread):
            state.apply(record)
            if not state.done and isinstance(record, InputRecord | UpdateRecord | EndedRecord):
                out.append(_state_at(state))
        return out

    async def fork(self, thread: str, at: int, new: str | None = None) -> str:
        """Make a thread that shares the first `at` records, and return its id."""
        name = new or new_id("thread")
        await self.journal.fork(thread, at, name)
        return name

    async def update_state(self, thread: str, values: Mapping[str, Any], *, as_node: str | None = None) -> None:
        """Edit the state from outside; with `as_node`, go on as if that node had just returned the values."""
        opened = await OpenThread.open(self.journal, thread, self.plan.schema, owner=new_id("edit"), wait=False)
        try:
            next = None if as_node is None else self._after(as_node, opened.state, values)
            record = InputRecord(run=opened.lease.owner, values=self.plan.schema.dump(values), next=next, turn=False)
            opened.record(record)
            await opened.commit()
        finally:
            await opened.close()

    def _after(self, node: str, state: ThreadState, values: Mapping[str, Any]) -> list[Target]:
        if node not in self.plan.nodes:
            raise StateError(f"There is no node {node!r} to continue after.")
        return self.plan.after(node, state)

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return mermaid(self.plan, self._gotos)

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
            given = input(state) if input else self._shared(context, state)
            result = await self.run_child(context, given)
            return output(result.state) if output else self._changes(context, result)

        return node

    async def run_child(self, context: NodeContext, input: Mapping[str, Any]) -> GraphResult:
        """Run on a child thread of the node's; its pauses become the parent's."""
        prefix = f"{context.task_id}/"
        run = Run(
            self.plan,
            self,
            self.own_store or context.run.journal,
            f"{context.thread}/{context.task_id}",
            request=Invocation(input=input, answers=answers_below(context.run.state, prefix), child=True),
            context=context.context,
            variables=context.variables,
            parent=context.run,
            label=context.task.node,
        )
        last = await run.start().wait()
        raise_pause(last, prefix, context.task.node)
        return self._result(last)

    def _shared(self, context: NodeContext, state: Any) -> dict[str, Any]:
        given = _as_mapping(state)
        keys = self.plan.schema.keys
        if self.plan.schema.open:
            return dict(given)
        return {
            name: value[:] if isinstance(value, Sequence) and not isinstance(value, str | bytes) else value
            for name, value in given.items()
            if name in keys and not isinstance(keys[name].strategy, Custom)
        }

    def _changes(self, context: NodeContext, result: GraphResult) -> dict[str, Any]:
        """What the child added to the keys it shares with its parent."""
        parent = context.run.state
        out: dict[str, Any] = {}
        for name, value in result.items():
            key = parent.schema.keys.get(name)
            if key is None:
                if parent.schema.open:
                    out[name] = value
                continue
            old = parent.values.get(name, MISSING)
            if key.strategy.grows:
                out[name] = value[len(old) :] if old is not MISSING else value[:]
            elif old is MISSING or value != old:
                out[name] = dict(value) if isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]
        return out


def match_answers(wishes: Sequence[Mapping[str, Any]], answers: Any, *, partial: bool = False) -> dict[str, Any]:
    """Fit what somebody answered to what was asked; breakpoints need no answer, partial answers leave the rest open."""
    ids = [wish["id"] for wish in wishes]
    out = {wish["id"]: True for wish in wishes if wish["kind"] == "breakpoint"}
    if answers is None:
        return out
    if isinstance(answers, Mapping) and answers and all(key in ids for key in cast("Mapping[str, Any]", answers)):
        return {**out, **cast("Mapping[str, Any]", answers)}
    asked = [wish["id"] for wish in wishes if wish["kind"] != "breakpoint"]
    if len(asked) == 1 and not partial:
        return {**out, asked[0]: answers}
    if partial and not answers:
        return out
    raise InputError(f"The thread waits for {ids}; answer with a dict by these ids, not {answers!r:.200}.")


def answers_below(state: ThreadState, prefix: str) -> dict[str, Any]:
    """The answers that are for a child, under the names that the child knows."""
    return {wish[len(prefix) :]: answer for wish, answer in state.answers.items() if wish.startswith(prefix)}


def raise_pause(last: Event, prefix: str, label: str) -> None:
    """Hand a child's pause on to its parent, with ids that lead back down."""
    pause = getattr(last, "pause", None)
    if pause is not None:
        wishes: list[Wish] = []
        for wish in cast("Pause", pause).wishes:
            wishes.append(
                Wish(
                    id=f"{prefix}{wish.id}",
                    kind=wish.kind,
                    reason=wish.reason,
                    name=wish.name,
                    input=wish.input,
                    value=wish.value,
                    path=(label, *wish.path),
                )
            )
        raise PauseSignal(wishes)


def _as_mapping(state: Any) -> Mapping[str, Any]:
    if isinstance(state, Mapping):
        return cast("Mapping[str, Any]", state)
    if hasattr(state, "model_dump"):
        return {name: getattr(state, name) for name in type(state).model_fields}
    if hasattr(state, "__dataclass_fields__"):
        return {name: getattr(state, name) for name in state.__dataclass_fields__}
    raise StateError(f"{state!r:.200} cannot be the input of a graph; give a dict.")


def _state_at(state: ThreadState) -> StateAt:
    next = tuple(task.node for task in state.open_tasks())
    return StateAt(seq=state.seq, state=_copied(state.view()), next=next, reason=state.reason)


def _copied(view: Any) -> Any:
    """The state as it is now, apart from what later steps add to it."""
    if not isinstance(view, dict):
        return view
    return {name: _plain(value) for name, value in cast("dict[str, Any]", view).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Items):
        return cast("Items[Any]", value)[:]
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, MappingProxyType) else value
