"""The runner: the only thing that executes, journals, streams, pauses, cancels and resumes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from treadle._ids import new_id
from treadle.errors import GraphError, JournalError, StepLimitError
from treadle.event import (
    ErrorEvent,
    Event,
    NodeStartedEvent,
    NodeUpdatedEvent,
    Pause,
    RunEndedEvent,
    RunFailedEvent,
    RunPausedEvent,
    RunStartedEvent,
    Source,
    Wish,
)
from treadle.graph._channel import Channel, Observer
from treadle.graph._control import Command
from treadle.graph._node import Node, NodeContext, PauseSignal, as_command
from treadle.graph._plan import Plan
from treadle.graph._state import Task, ThreadState, to_targets
from treadle.graph._thread import OpenThread
from treadle.journal._journal import Journal
from treadle.journal._record import (
    EndedRecord,
    LateRecord,
    PausedRecord,
    Record,
    RoutedRecord,
    Target,
    UpdateRecord,
)
from treadle.message._codec import to_jsonable

logger = logging.getLogger("treadle")
CLEANUP_SECONDS = 5.0
"""How long a cancelled node may take to clean up before the run is closed without it."""
Terminal: TypeAlias = RunEndedEvent | RunPausedEvent | RunFailedEvent
_active: WeakKeyDictionary[Any, dict[str, Run]] = WeakKeyDictionary()


def active_run(journal: Journal, thread: str) -> Run | None:
    """The run of this process that drives a thread, if there is one."""
    return _active.get(journal, {}).get(thread)


def _resolve(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _forget(work: asyncio.Task[Any]) -> None:
    """Take note of how abandoned work ended, so that nobody complains that nobody did."""
    if not work.cancelled() and work.exception() is not None:
        logger.info("Work that had been given up ended with %r", work.exception())


class Host(Protocol):
    """Whom a run works for: says how a run begins, what closes it, and what the caller gets."""

    name: str

    async def begin_run(self, run: Run) -> Sequence[Record] | None:
        """The records that start the run; None if the thread is finished already and only its result is wanted."""
        ...

    def close_run(self, run: Run, reason: str, error: BaseException | None) -> EndedRecord:
        """The record that ends a run which was interrupted or failed."""
        ...

    async def finish_run(self, run: Run, reason: str) -> Any:
        """What the caller gets from a run that ended or paused (`run.pause` says for what)."""
        ...


class _Interrupted(Exception):
    """A cooperative interrupt reached its checkpoint."""


class Run:
    """One run on one thread. It owns its task; callers wait for it, interrupt it or listen to it."""

    def __init__(
        self,
        plan: Plan,
        host: Host,
        journal: Journal,
        thread: str,
        *,
        request: Any = None,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        channel: Channel | None = None,
        parent: Run | None = None,
        label: str = "",
        wait: bool = False,
    ) -> None:
        self.plan = plan
        self.host = host
        self.journal = journal
        self.name = thread
        self.request = request
        self.context = context
        self.variables = variables or {}
        self.id = new_id("run")
        self.parent = parent
        path = (*parent.source.path, label) if parent else ()
        self.source = Source(
            run=self.id, thread=thread, agent=host.name, parent=parent.id if parent else None, path=path
        )
        self.watch: Callable[[Event], Awaitable[None]] | None = None
        self.interruption: Mapping[str, Any] | None = None
        self.salvaged: Mapping[str, Any] | None = None
        """What a node that was cut short wants kept; the host puts it into the closing record."""
        self.pause: Pause | None = None
        self.scratch: dict[str, Any] = {}
        """The host's notes for this run only; nothing here survives it."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.opened: OpenThread
        """The thread, opened for writing; there once the run has its lease."""
        self.state: ThreadState
        """The folded state of the thread."""
        self.listening = channel is not None or (parent is not None and parent.listening)
        """Whether anybody reads this run's events."""
        self._children: list[Run] = []
        if parent is not None:
            parent._children.append(self)
        self._channel = channel
        self._observers: list[Observer] = []
        self._wait_for_lease = wait
        self._wishes: list[Wish] = []
        self._cancelled = False
        self.stopping = False
        """Whether the run has to stop now, and not at the next checkpoint."""
        self._opening = True
        self.given_up = False
        """Whether the run was closed while a node was still at work, because that would not stop."""
        self._work: asyncio.Task[bool] | None = None
        self._driven: asyncio.Future[None] | None = None
        self._lost: BaseException | None = None
        self._task: asyncio.Task[Terminal] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    # What callers do with a run.

    def start(self) -> Run:
        """Begin, in a task of its own."""
        self.loop = asyncio.get_running_loop()
        self._task = self.loop.create_task(self._main(), name=self.id)
        return self

    async def wait(self) -> Terminal:
        """Return the run's last event. Cancelling the waiter cancels the run, which still closes the thread."""
        task = self._task
        assert task is not None, "A run is started before it is waited for."
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.cancel()
                await asyncio.wait([task])
            raise

    async def over(self) -> None:
        """Wait until the run is over, however it ends; being cancelled here leaves it to itself."""
        assert self._task is not None, "A run is started before it is waited for."
        await asyncio.wait([self._task])

    def interrupt(self, message: Any = None, *, now: bool = False) -> None:
        """Stop at the next checkpoint, or `now`; `message` becomes the answer."""
        if message is not None or self.interruption is None:
            self.interruption = {"message": message}
        if now:
            self.stopping = True
            self._stop_work()

    def _stop_work(self) -> None:
        """Cancel what is under way; what does not stop in time is given up."""
        if self._opening and self._task is not None:
            self._cancelled = True
            self._task.cancel()
        elif self._work is not None and self.loop is not None and not self._work.done():
            self._work.cancel()
            self.loop.call_later(CLEANUP_SECONDS, _resolve, self._driven)

    def cancel(self) -> None:
        """Stop now, because nobody waits for the answer any more."""
        self._cancelled = True
        self.interrupt(now=True)

    def observe(self) -> Observer:
        """Watch the run without ever slowing it."""
        observer = Observer()
        observer.closed = self._task is not None and self._task.done()
        self._observers.append(observer)
        self._listen()
        return observer

    def _listen(self) -> None:
        self.listening = True
        for child in self._children:
            child._listen()

    @property
    def _fenced(self) -> BaseException | None:
        """Why this run must write no more: somebody took over its thread, or that of a run it is part of."""
        return self._lost if self._lost is not None or self.parent is None else self.parent._fenced

    # What nodes do with a run.

    async def emit(self, event: Event) -> None:
        """Hand an event to hooks that watch, then to readers; a full channel makes the run wait for its reader."""
        if self.watch is not None:
            await self.watch(event)
        await self.forward(event)

    async def forward(self, event: Event) -> None:
        """Hand an event to readers, here and in the run this one is part of."""
        for observer in self._observers:
            observer.put(event)
        if self._channel is not None and not self._channel.put(event):
            await self._channel.room()
        if self.parent is not None:
            await self.parent.forward(event)

    def record(self, record: Record) -> None:
        """Fold and queue a record."""
        self.opened.record(record)

    async def commit(self) -> None:
        """Make everything recorded durable."""
        await self.opened.commit()

    # The run itself.

    async def _main(self) -> Terminal:
        try:
            last = await self._opened_run()
        except BaseException as error:
            last = RunFailedEvent(source=self.source, error=error)
        try:
            await self.emit(last)
        except BaseException as error:
            logger.warning("A watcher of run %s failed on its last event: %r", self.id, error)
        for reader in (*self._observers, *([self._channel] if self._channel else [])):
            reader.close()
        if self.parent is not None:
            self.parent._children.remove(self)
        if isinstance(last, RunFailedEvent) and isinstance(last.error, asyncio.CancelledError):
            raise last.error
        return last

    async def _opened_run(self) -> Terminal:
        self.opened = thread = await OpenThread.open(
            self.journal, self.name, self.plan.schema, owner=self.id, wait=self._wait_for_lease
        )
        self.state = thread.state
        self._opening = False
        runs = _active.setdefault(self.journal, {})
        runs[self.name] = self
        try:
            thread.listen(self._wake_for_mail())
            await self._collect(interrupts=False)
            await thread.commit()
            await self.emit(RunStartedEvent(source=self.source))
            records = await self.host.begin_run(self)
            if records is None:
                reason = thread.state.reason or "ended"
                return RunEndedEvent(source=self.source, reason=reason, result=await self.host.finish_run(self, reason))
            for record in records:
                thread.record(record)
            await thread.commit()
            return await self._guarded()
        finally:
            del runs[self.name]
            await self._shut(thread)

    async def _shut(self, thread: OpenThread) -> None:
        thread.deafen()
        if self._chores:
            await asyncio.wait(self._chores)
            if thread.lost is None:
                await thread.commit()
        await thread.close()

    async def _guarded(self) -> Terminal:
        """Drive, and whatever happens leave a thread that is at rest."""
        try:
            if await self._at_work():
                pause = Pause(thread=self.name, wishes=tuple(self._wishes))
                self.pause = pause
                result = await self.host.finish_run(self, "paused")
                return RunPausedEvent(source=self.source, pause=pause, result=result)
            reason = self.state.reason or "ended"
            result = await self.host.finish_run(self, reason)
            self.record(EndedRecord(reason=reason))
            await self.commit()
            return RunEndedEvent(source=self.source, reason=reason, result=result)
        except _Interrupted:
            return await self._close_interrupted()
        except asyncio.CancelledError as error:
            if self._fenced is not None:
                return await self._close_failed(self._fenced)
            if self.interruption is None:
                self._cancelled = True
            ended = await self._close_interrupted()
            return RunFailedEvent(source=self.source, error=error) if self._cancelled else ended
        except Exception as error:
            return await self._close_failed(error)

    async def _at_work(self) -> bool:
        """Drive in a task of its own, so that the run can be closed even if a node does not stop when it is told to."""
        loop = asyncio.get_running_loop()
        work = self._work = loop.create_task(self._drive())
        driven = self._driven = loop.create_future()
        work.add_done_callback(lambda _: _resolve(driven))
        try:
            await driven
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            self._stop_work()
            await asyncio.wait([work], timeout=CLEANUP_SECONDS)
        if not work.done():
            self.given_up = True
            work.add_done_callback(_forget)
            raise asyncio.CancelledError
        return work.result()

    async def _close_interrupted(self) -> Terminal:
        self.record(self.host.close_run(self, "interrupted", None))
        await self.commit()
        if self._cancelled:
            return RunEndedEvent(source=self.source, reason="interrupted")
        result = await self.host.finish_run(self, "interrupted")
        return RunEndedEvent(source=self.source, reason="interrupted", result=result)

    async def _close_failed(self, error: BaseException) -> Terminal:
        try:
            if not isinstance(error, JournalError):
                self.state = await self.opened.refresh()
                self.record(self.host.close_run(self, "failed", error))
                await self.commit()
            await self.emit(ErrorEvent(source=self.source, error=error))
        except Exception as second:
            error.add_note(f"Closing the thread failed too: {second!r}")
        return RunFailedEvent(source=self.source, error=error)

    async def _drive(self) -> bool:
        """Run step after step; True if the run has to wait for the outside."""
        state, plan, thread = self.state, self.plan, self.opened
        while True:
            if state.unrouted:
                await self._route()
            tasks = state.open_tasks()
            if not tasks:
                self._check_joins()
            elif self.stopping or (
                self.interruption is not None and all(plan.node(task.node).interruptible for task in tasks)
            ):
                raise _Interrupted
            elif plan.step_limit is not None and state.steps >= plan.step_limit:
                raise StepLimitError(
                    f"Thread {self.name!r} did not end within {plan.step_limit} steps; raise `step_limit` if it should."
                )
            if not self._wishes and plan.has_breakpoints:
                self._wishes += plan.breakpoints(state)
            if not self._wishes:
                if not tasks:
                    return False
                if len(tasks) > 1:
                    await thread.commit()
                    await self._execute_all(tasks)
                else:
                    if not plan.node(tasks[0].node).commits:
                        await thread.commit()
                    await self._execute(tasks[0])
            if self._wishes:
                self.record(PausedRecord(wishes=[to_jsonable(wish) for wish in self._wishes]))
                await thread.commit()
                return True
            await thread.snapshot()

    def _check_joins(self) -> None:
        for join, have in self.state.waiting.items():
            missing = [source for source in self.plan.joins[join].sources if source not in have]
            raise GraphError(f"Node {self.plan.joins[join].target!r} waits for {missing}, which can no longer come.")

    async def _execute_all(self, tasks: list[Task]) -> None:
        running = [asyncio.ensure_future(self._execute(task)) for task in tasks]
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            raise
        errors = [task.exception() for task in running if not task.cancelled()]
        first = next((error for error in errors if error is not None), None)
        if first is not None:
            raise first

    async def _execute(self, task: Task) -> None:
        node: Node = self.plan.node(task.node)
        context = NodeContext(self, task)
        shown = self.plan.shows_nodes and self.listening
        if shown:
            await self.emit(NodeStartedEvent(source=self.source, node=task.node, task=context.task_id))
        try:
            command = as_command(await node.run(context), task.node)
        except PauseSignal as signal:
            self._wishes += signal.wishes
            return
        name = context.task_id if shown else ""
        try:
            self._finish_task(task, command)
        except GraphError as error:
            error.add_note(f"In node {task.node!r} of thread {self.name!r}.")
            raise
        self._wishes += command.pause
        if shown:
            await self.emit(NodeUpdatedEvent(source=self.source, node=task.node, task=name, values=command.update))
        if len(self.state.frontier) > 1:
            await self.commit()

    def _finish_task(self, task: Task, command: Command) -> None:
        """Record a node's update; with the last one of a step also where the run goes, if that is known at once."""
        plan, state, thread = self.plan, self.state, self.opened
        values = plan.schema.dump(command.update) if command.update else None
        goto = command.goto
        if goto is not None:
            goto = plan.checked(to_targets(goto, task.node, plan.schema), task.node)
        last = len(state.done) + 1 == len(state.frontier)
        alone = len(state.frontier) == 1
        if alone and goto is not None and not plan.joins:
            record = UpdateRecord(node=task.node, values=values, calls=command.calls, next=goto, reason=command.reason)
            return thread.record(record)
        if values and not alone:
            plan.schema.check(values)
        next: Sequence[Target] | None = None
        if last and not plan.slow_routes:
            draft = UpdateRecord(
                node=task.node, values=values, calls=command.calls, task=task.index, goto=goto, reason=command.reason
            )
            thread.apply(draft)
            next = self._routed_or_none()
            if next is not None:
                state.go(next)
                goto = None if alone else goto
        record = UpdateRecord(
            node=task.node,
            values=values,
            calls=command.calls,
            task=task.index,
            next=next,
            goto=goto,
            reason=command.reason,
        )
        if last and not plan.slow_routes:
            return thread.queue(record)
        return thread.record(record)

    def _routed_or_none(self) -> list[Target] | None:
        """Where the finished step leads; None if an edge raised, which `_route` meets again with the update stored."""
        try:
            return self.plan.next(self.state)
        except Exception:
            return None

    async def _route(self) -> None:
        await self.commit()
        self.record(RoutedRecord(next=await self.plan.next_slowly(self.state)))

    # Notes from elsewhere.

    def _wake_for_mail(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._start_collecting)

        return wake

    def _start_collecting(self) -> None:
        if self._task is not None and not self._task.done():
            chore = asyncio.ensure_future(self._collect())
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    async def _collect(self, *, interrupts: bool = True) -> None:
        try:
            notes = await self.journal.collect(self.opened.lease)
        except JournalError as error:
            self._lost = error
            self._stop_work()
            return
        for note in notes:
            if note["kind"] == "late":
                self.record(LateRecord(call=note["call"], result=note["result"]))
            elif interrupts:
                self.interrupt(note.get("message"), now=note.get("now", False))
