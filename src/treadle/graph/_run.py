"""The runner: the only thing that executes, journals, streams, pauses, cancels and resumes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from treadle._ids import new_id
from treadle.errors import JournalError
from treadle.event import (
    ErrorEvent,
    Event,
    Pause,
    RunEndedEvent,
    RunFailedEvent,
    RunPausedEvent,
    RunStartedEvent,
    Source,
)
from treadle.graph._channel import Channel, Observer
from treadle.graph._node import leave_node
from treadle.graph._plan import Plan
from treadle.graph._state import ThreadState
from treadle.graph._steps import Interrupted, Steps
from treadle.graph._thread import OpenThread, desk_of
from treadle.journal._journal import Journal, Note
from treadle.journal._record import (
    EndedRecord,
    LateRecord,
    Record,
)

logger = logging.getLogger("treadle")
CLEANUP_SECONDS = 5.0
"""How long a cancelled node may take to clean up before the run is closed without it."""
Terminal: TypeAlias = RunEndedEvent | RunPausedEvent | RunFailedEvent


def active_run(journal: Journal, thread: str) -> Run | None:
    """The run of this process that drives a thread, if there is one."""
    return desk_of(journal).runs.get(thread)


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


class Run:
    """One run on one thread. It owns its task; callers wait for it, interrupt it or listen to it."""

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_channel",
        "_children",
        "_chores",
        "_driven",
        "_heeded",
        "_lost",
        "_observers",
        "_opening",
        "_over",
        "_steps",
        "_task",
        "_wait_for_lease",
        "_work",
        "context",
        "given_up",
        "host",
        "id",
        "interruption",
        "journal",
        "listening",
        "loop",
        "name",
        "opened",
        "parent",
        "pause",
        "plan",
        "request",
        "salvaged",
        "scratch",
        "source",
        "state",
        "stopping",
        "variables",
        "watch",
    )

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
        self._steps: Steps
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
        self._over = False
        self._chores: set[asyncio.Task[None]] = set()
        self._heeded = 0
        """The number of the last note that this run has heeded and not yet discarded."""

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
        if self._task is not None and not self._opening and (self._work is None or self._work.done()):
            self._task.cancel()  # a hook on the first or last events of the run may be at it

    def observe(self) -> Observer:
        """Watch the run without ever slowing it."""
        observer = Observer()
        observer.closed = self._over
        self._observers.append(observer)
        self._listen()
        return observer

    def unobserve(self, observer: Observer) -> None:
        """Give an observer no more events."""
        self._observers = [other for other in self._observers if other is not observer]

    def _listen(self) -> None:
        self.listening = True
        for child in self._children:
            child._listen()

    def lose(self, error: BaseException) -> None:
        """Write no more: what came last could not be recorded, so it is for the next run to find out and go on."""
        self._lost = error

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
        leave_node()
        try:
            last = await self._opened_run()
        except BaseException as error:
            last = RunFailedEvent(source=self.source, error=error)
        try:
            if self.watch is not None:
                await self.watch(last)
        except BaseException as error:
            logger.warning("A watcher of run %s failed on its last event: %r", self.id, error)
        try:
            await self.forward(last)
        except BaseException as error:
            logger.warning("A reader of run %s failed on its last event: %r", self.id, error)
        for reader in (*self._observers, *([self._channel] if self._channel else [])):
            reader.close()
        self._over = True
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
        runs = thread.desk.runs
        runs[self.name] = self
        try:
            await self._take_mail()
            try:
                await self.emit(RunStartedEvent(source=self.source))
                records = await self.host.begin_run(self)
            except Exception as error:
                await self._tell(error)
                raise
            if records is None:
                reason = thread.state.reason or "ended"
                return RunEndedEvent(source=self.source, reason=reason, result=await self.host.finish_run(self, reason))
            for record in records:
                thread.record(record)
            # Not before: these records tell of late results, and a note must be discarded before it is told.
            thread.listen(self._wake_for_mail())
            return await self._guarded()
        finally:
            if runs.get(self.name) is self:  # and nobody took the thread over meanwhile
                del runs[self.name]
            await self._shut(thread)

    async def _shut(self, thread: OpenThread) -> None:
        thread.deafen()
        try:
            if self._chores:
                await asyncio.wait(self._chores)
            if thread.lost is None and self._fenced is None:
                await self._discard_mail()
        except JournalError as error:
            logger.info("The mail of thread %r waits for its next run: %r", self.name, error)
        finally:
            await thread.close()

    async def _guarded(self) -> Terminal:
        """Drive, and whatever happens leave a thread that is at rest."""
        try:
            await self.commit()
            if await self._at_work():
                pause = Pause(thread=self.name, wishes=tuple(self._steps.wishes))
                self.pause = pause
                result = await self.host.finish_run(self, "paused")
                return RunPausedEvent(source=self.source, pause=pause, result=result)
            reason = self.state.reason or "ended"
            result = await self.host.finish_run(self, reason)
            self.record(EndedRecord(reason=reason))
            await self.commit()
            return RunEndedEvent(source=self.source, reason=reason, result=result)
        except Interrupted:
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
        self._steps = Steps(self)
        work = self._work = loop.create_task(self._steps.drive())
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
            if self.opened.lost is None and self._fenced is None:
                self.state = await self.opened.refresh()
                self.record(self.host.close_run(self, "failed", error))
                await self.commit()
        except Exception as second:
            error.add_note(f"Closing the thread failed too: {second!r}")
        await self._tell(error)
        return RunFailedEvent(source=self.source, error=error)

    async def _tell(self, error: BaseException) -> None:
        try:
            await self.emit(ErrorEvent(source=self.source, error=error))
        except Exception as second:
            error.add_note(f"Telling of it failed too: {second!r}")

    # Notes from elsewhere. They are kept until what they say is recorded, so a run that is killed loses none.

    async def _take_mail(self) -> None:
        """Record what came since the last run; an interrupt among it was meant for a run that is over."""
        self._heed(await self.journal.mail(self.opened.lease), interrupts=False)
        await self._discard_mail()

    def _wake_for_mail(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._start_reading)

        return wake

    def _start_reading(self) -> None:
        if not self._over:
            chore = asyncio.ensure_future(self._read_mail())
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    async def _read_mail(self) -> None:
        try:
            self._heed(await self.journal.mail(self.opened.lease))
        except JournalError as error:
            self._lost = error
            self._stop_work()

    def _heed(self, notes: Sequence[Note], *, interrupts: bool = True) -> None:
        for note in notes:
            if note.number <= self._heeded:
                continue
            body = note.body
            if body["kind"] != "late":
                if interrupts:
                    self.interrupt(body.get("message"), now=body.get("now", False))
            elif all(late.call != body["call"] for late in self.opened.state.late):
                self.record(LateRecord(call=body["call"], result=body["result"]))
            self._heeded = note.number

    async def _discard_mail(self) -> None:
        """Remove the notes that were heeded, once what they said is durable."""
        upto = self._heeded
        if upto:
            await self.commit()
            await self.journal.discard(self.opened.lease, upto)
            self._heeded = 0  # a store may count anew when no notes wait
