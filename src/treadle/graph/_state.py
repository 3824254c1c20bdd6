"""A thread's state as a fold over its records. Live runs and re-opened threads go through the same `apply`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from treadle.errors import GraphError
from treadle.graph._control import END, Goto, Send
from treadle.graph._schema import Schema
from treadle.graph._strategy import MISSING
from treadle.journal._journal import Snapshot
from treadle.journal._record import (
    EndedRecord,
    FinishedRecord,
    InputRecord,
    LateRecord,
    PausedRecord,
    Record,
    ResumedRecord,
    RoutedRecord,
    SettledRecord,
    StartedRecord,
    Target,
    UpdateRecord,
)

Phase: TypeAlias = Literal["new", "running", "paused", "ended"]


@dataclass(frozen=True, slots=True)
class Task:
    """One node to run in the current step; `arg` replaces the state where a `Send` gave one."""

    index: int
    node: str
    arg: Any = MISSING


@dataclass(slots=True)
class CallState:
    """What the journal knows of a call: started, finished with a raw result, settled with the final one."""

    input: Mapping[str, Any] | None = None
    result: Any = None
    finished: bool = False
    settled: bool = False
    stop: bool = False
    at: float = 0.0


def to_targets(goto: Goto, source: str, schema: Schema) -> list[Target]:
    """Write where to go as a record does; `END` is left out, so that an empty list ends the run."""
    if isinstance(goto, str):
        return [] if goto == END else [goto]
    items: Any = [goto] if isinstance(goto, Send) else goto
    if not isinstance(items, Sequence) or not all(
        isinstance(item, str | Send) for item in cast("Sequence[Any]", items)
    ):
        raise GraphError(f"Node {source!r} leads to {goto!r:.200}; name a node, `END`, a `Send`, or a list of these.")
    return [
        item if isinstance(item, str) else {"node": item.node, "arg": schema.dump_arg(item.node, item.arg)}
        for item in cast("Sequence[str | Send]", items)
        if item != END
    ]


class ThreadState:
    """Everything known about a thread after its first `seq` records."""

    __slots__ = (
        "answers",
        "calls",
        "done",
        "frontier",
        "input_seq",
        "last",
        "late",
        "phase",
        "reason",
        "schema",
        "seq",
        "since",
        "steps",
        "total",
        "turn",
        "unrouted",
        "values",
        "visits",
        "waiting",
        "wishes",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.seq = 0
        self.since = 1
        self.values = schema.start()
        self.phase: Phase = "new"
        self.reason: str | None = None
        self.frontier: list[Task] = []
        self.done: dict[int, UpdateRecord] = {}
        self.unrouted = False
        self.last: list[UpdateRecord] = []
        self.waiting: dict[str, tuple[str, ...]] = {}
        self.visits: dict[str, int] = {}
        self.total: dict[str, int] = {}
        self.steps = 0
        self.turn = 0
        self.input_seq = 0
        self.calls: dict[str, CallState] = {}
        self.wishes: tuple[Mapping[str, Any], ...] = ()
        self.answers: dict[str, Any] = {}
        self.late: list[LateRecord] = []

    def apply(self, record: Record) -> None:
        """Fold one record in."""
        self.seq += 1
        _APPLY[type(record)](self, record)

    def open_tasks(self) -> list[Task]:
        """The tasks of this step that have not finished."""
        if not self.done:
            return self.frontier
        return [task for task in self.frontier if task.index not in self.done]

    def view(self) -> Any:
        """The state as nodes see it."""
        return self.schema.view(self.values)

    # One method per kind of record.

    def _input(self, record: InputRecord) -> None:
        if record.turn:
            self.turn += 1
            self.visits = {}
            self.steps = 0
            self.input_seq = self.seq
        elif record.next is not None and self.frontier:
            self.steps += 1  # the nodes that were about to run are passed over: what runs now is another visit
        self.schema.fold(self.values, record.values)
        if record.next is None:
            return
        self.late = []
        self.calls = {}
        self.last = []
        self.phase, self.reason = "running", None
        self.go(record.next)

    def _update(self, record: UpdateRecord) -> None:
        self.done[record.task] = record
        if record.reason is not None:
            self.reason = record.reason
        if len(self.done) < len(self.frontier):
            return
        self.last = [self.done[task.index] for task in self.frontier]
        for update in self.last:
            self._fold_task(update)
        self.steps += 1
        if record.next is None:
            self.unrouted = True
        else:
            self.go(record.next)

    def _fold_task(self, record: UpdateRecord) -> None:
        node = record.node
        self.visits[node] = self.visits.get(node, 0) + 1
        self.total[node] = self.total.get(node, 0) + 1
        if record.calls and self.schema.from_calls:
            done = [(self.calls[call].result, self.calls[call].at) for call in record.calls]
            self.schema.fold(self.values, self.schema.from_calls(done))
            for call in record.calls:
                del self.calls[call]
        if record.values:
            self.schema.fold(self.values, record.values)

    def go(self, next: Sequence[Target]) -> None:
        """Make these the tasks of the current step."""
        self.frontier, self.waiting = [], {}
        for target in next:
            if isinstance(target, str):
                self.frontier.append(Task(len(self.frontier), target))
            elif "wait" in target:
                self.waiting[target["wait"]] = tuple(target["have"])
            else:
                self.frontier.append(Task(len(self.frontier), target["node"], self.schema.load_arg(target["arg"])))
        self.done = {}
        self.unrouted = False
        self.wishes = ()
        self.answers = {}

    def _routed(self, record: RoutedRecord) -> None:
        self.go(record.next)

    def _started(self, record: StartedRecord) -> None:
        self.calls[record.call] = CallState(record.input)
        self.answers.pop(record.call, None)  # a decision is good for one attempt

    def _finished(self, record: FinishedRecord) -> None:
        call = self.calls.setdefault(record.call, CallState())
        call.result, call.finished, call.at = record.result, True, record.at

    def _settled(self, record: SettledRecord) -> None:
        call = self.calls.setdefault(record.call, CallState())
        call.finished = call.settled = True
        call.stop = record.stop
        if record.result is not None:
            call.result = record.result
        call.at = record.at

    def _paused(self, record: PausedRecord) -> None:
        self.phase = "paused"
        self.wishes = tuple(record.wishes)
        for wish in self.wishes:
            self.answers.pop(wish["id"], None)  # what is asked again was not answered by what was said before

    def _resumed(self, record: ResumedRecord) -> None:
        if self.phase == "ended":
            self.reason = None
        self.phase = "running"
        self.answers.update(record.answers)
        self.wishes = tuple(wish for wish in self.wishes if wish["id"] not in record.answers)

    def _ended(self, record: EndedRecord) -> None:
        self.phase, self.reason = "ended", record.reason
        if record.values:
            self.schema.fold(self.values, record.values)
        if not record.open:
            self.calls = {}
            self.go(())
        self.wishes = ()

    def _late(self, record: LateRecord) -> None:
        self.late.append(record)

    # Snapshots.

    @property
    def quiet(self) -> bool:
        """Whether nothing is half done, so that a snapshot can be taken."""
        return not (self.calls or self.done or self.wishes or self.answers or self.late or self.unrouted)

    def snapshot(self) -> Snapshot:
        """Everything but growing values, which are read again from record `since` on."""
        keys = self.schema.keys
        values = {
            name: keys[name].dump(value)
            for name, value in self.values.items()
            if value is not MISSING and not keys[name].strategy.grows
        }
        frontier: list[Target] = [
            task.node if task.arg is MISSING else {"node": task.node, "arg": self.schema.dump_arg(task.node, task.arg)}
            for task in self.frontier
        ]
        frontier += [{"wait": join, "have": have} for join, have in self.waiting.items()]
        data = {
            "values": values,
            "frontier": frontier,
            "last": [update.node for update in self.last],
            "phase": self.phase,
            "reason": self.reason,
            "visits": dict(self.visits),
            "total": dict(self.total),
            "steps": self.steps,
            "turn": self.turn,
            "input_seq": self.input_seq,
        }
        return Snapshot(seq=self.seq, since=self.since, data=data)

    def restore(self, snapshot: Snapshot) -> None:
        """Take over everything but growing values from a snapshot."""
        data = snapshot.data
        self.seq, self.since = snapshot.seq, snapshot.since
        for name, value in data["values"].items():
            key = self.schema.key(name)
            self.values[name] = key.load(value) if value is not None else None
        self.calls, self.late = {}, []
        self.go(data["frontier"])
        self.last = [UpdateRecord(node=node) for node in data["last"]]
        self.phase, self.reason = data["phase"], data["reason"]
        self.visits, self.total = dict(data["visits"]), dict(data["total"])
        self.steps, self.turn, self.input_seq = data["steps"], data["turn"], data["input_seq"]


_APPLY: dict[type, Callable[[ThreadState, Any], None]] = {
    InputRecord: ThreadState._input,  # pyright: ignore[reportPrivateUsage]
    UpdateRecord: ThreadState._update,  # pyright: ignore[reportPrivateUsage]
    RoutedRecord: ThreadState._routed,  # pyright: ignore[reportPrivateUsage]
    StartedRecord: ThreadState._started,  # pyright: ignore[reportPrivateUsage]
    FinishedRecord: ThreadState._finished,  # pyright: ignore[reportPrivateUsage]
    SettledRecord: ThreadState._settled,  # pyright: ignore[reportPrivateUsage]
    PausedRecord: ThreadState._paused,  # pyright: ignore[reportPrivateUsage]
    ResumedRecord: ThreadState._resumed,  # pyright: ignore[reportPrivateUsage]
    EndedRecord: ThreadState._ended,  # pyright: ignore[reportPrivateUsage]
    LateRecord: ThreadState._late,  # pyright: ignore[reportPrivateUsage]
}
