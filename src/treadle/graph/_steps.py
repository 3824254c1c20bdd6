"""From step to step: run the nodes of a step, record what they return, and find out where that leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treadle.errors import GraphError, StepLimitError
from treadle.event import NodeStartedEvent, NodeUpdatedEvent, Wish
from treadle.graph._control import Command
from treadle.graph._node import NodeContext, PauseSignal, as_command
from treadle.graph._state import Task, to_targets
from treadle.journal._record import PausedRecord, RoutedRecord, Target, UpdateRecord
from treadle.message._codec import to_jsonable

if TYPE_CHECKING:
    from treadle.graph._run import Run


class Interrupted(Exception):
    """A cooperative interrupt reached its checkpoint."""


class Steps:
    """The steps of one run. `wishes` is what its nodes want from outside."""

    __slots__ = ("_plan", "_run", "_state", "_thread", "wishes")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._plan = run.plan
        self._state = run.state
        self._thread = run.opened
        self.wishes: list[Wish] = []

    async def drive(self) -> bool:
        """Run step after step; True if the run has to wait for the outside."""
        state, plan, thread = self._state, self._plan, self._thread
        while True:
            if state.unrouted:
                await self._route()
            tasks = state.open_tasks()
            if tasks:
                self._check(tasks)
            else:
                self._check_joins()
            if plan.has_breakpoints and not self.wishes:
                self.wishes += plan.breakpoints(state)
            if not self.wishes:
                if not tasks:
                    return False
                if len(tasks) > 1 or not plan.node(tasks[0].node).commits:
                    await thread.commit()
                await (self._execute(tasks[0]) if len(tasks) == 1 else self._execute_all(tasks))
            if self.wishes:
                return await self._pause()
            await thread.snapshot()

    def _check(self, tasks: Sequence[Task]) -> None:
        """Whether the next step may begin."""
        run, plan = self._run, self._plan
        if run.interruption is not None and (run.stopping or all(plan.node(t.node).interruptible for t in tasks)):
            raise Interrupted
        if plan.step_limit is not None and self._state.steps >= plan.step_limit:
            raise StepLimitError(
                f"Thread {run.name!r} did not end within {plan.step_limit} steps; raise `step_limit` if it should."
            )

    def _check_joins(self) -> None:
        for join, have in self._state.waiting.items():
            missing = [source for source in self._plan.joins[join].sources if source not in have]
            raise GraphError(f"Node {self._plan.joins[join].target!r} waits for {missing}, which can no longer come.")

    async def _pause(self) -> bool:
        if self._run.interruption is not None:
            raise Interrupted
        self._thread.record(PausedRecord(wishes=[to_jsonable(wish) for wish in self.wishes]))
        await self._thread.commit()
        return True

    async def _execute_all(self, tasks: Sequence[Task]) -> None:
        """Run the nodes of a step beside each other; an error goes on once all of them are done."""
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
        run = self._run
        context = NodeContext(run, task)
        shown = context.task_id if self._plan.shows_nodes and run.listening else None
        if shown is not None:
            await run.emit(NodeStartedEvent(source=run.source, node=task.node, task=shown))
        try:
            command = as_command(await self._plan.node(task.node).run(context), task.node)
        except PauseSignal as signal:
            self.wishes += signal.wishes
            return
        try:
            self._finish(task, command)
        except GraphError as error:
            error.add_note(f"In node {task.node!r} of thread {run.name!r}.")
            raise
        self.wishes += command.pause
        if shown is not None:
            await run.emit(NodeUpdatedEvent(source=run.source, node=task.node, task=shown, values=command.update))
        if len(self._state.frontier) > 1:
            await self._thread.commit()

    def _finish(self, task: Task, command: Command) -> None:
        """Record a node's update; with the last one of a step also where the run goes, if that is known at once."""
        plan, state, thread = self._plan, self._state, self._thread
        values = plan.schema.dump(command.update) if command.update else None
        goto = None
        if command.goto is not None:
            goto = plan.checked(to_targets(command.goto, task.node, plan.schema), task.node)
        if len(state.frontier) > 1:
            return self._finish_beside(task, command, values, goto)
        if goto is not None and not plan.joins:
            return thread.record(_update(task, command, values, next=goto))
        return self._finish_last(task, command, values, goto)

    def _finish_beside(self, task: Task, command: Command, values: Any, goto: Sequence[Target] | None) -> None:
        """Record the update of a node that has neighbours in its step."""
        if values:
            self._plan.schema.check(values)
        if len(self._state.done) + 1 == len(self._state.frontier):
            return self._finish_last(task, command, values, goto)
        return self._thread.record(_update(task, command, values, goto=goto))

    def _finish_last(self, task: Task, command: Command, values: Any, goto: Sequence[Target] | None) -> None:
        """Record the last update of a step together with where the edges lead, unless they have to be awaited."""
        if self._plan.slow_routes:
            return self._thread.record(_update(task, command, values, goto=goto))
        self._thread.apply(_update(task, command, values, goto=goto))
        next = self._routed_or_none()
        if next is not None:
            self._state.go(next)
        alone = next is not None and len(self._state.last) == 1
        return self._thread.queue(_update(task, command, values, next=next, goto=None if alone else goto))

    def _routed_or_none(self) -> list[Target] | None:
        """Where the finished step leads; None if an edge raised, which `_route` meets again with the update stored."""
        try:
            return self._plan.next(self._state)
        except Exception:
            return None

    async def _route(self) -> None:
        await self._thread.commit()
        self._thread.record(RoutedRecord(next=await self._plan.next_slowly(self._state)))


def _update(
    task: Task,
    command: Command,
    values: Any,
    *,
    next: Sequence[Target] | None = None,
    goto: Sequence[Target] | None = None,
) -> UpdateRecord:
    return UpdateRecord(
        node=task.node,
        values=values,
        calls=command.calls,
        task=task.index,
        next=next,
        goto=goto,
        reason=command.reason,
    )
