"""The `tools` node: bring every open call of the thread to its one result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.agent._acting import Acting
from treadle.agent._agent_tool import AgentTool, spent_by
from treadle.agent._history import as_result_block
from treadle.agent._turn import Turn, turn_of
from treadle.event import Wish
from treadle.graph import END, Command, NodeContext
from treadle.graph._node import PauseSignal
from treadle.message import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from treadle.model import Usage


class ToolsNode:
    """One task per open call, results in the order of the calls."""

    name = "tools"
    interruptible = False
    commits = True

    async def run(self, context: NodeContext) -> Command:
        """Settle what can be settled; pause for the rest."""
        turn = turn_of(context.run)
        batch = Batch(turn, list(turn.history.pending.values()))
        await batch.act()
        if batch.wishes:
            raise PauseSignal(batch.wishes)
        return batch.command()


class Batch:
    """The open calls of a thread, acted on together."""

    def __init__(self, turn: Turn, calls: list[ToolUseBlock]) -> None:
        self.turn = turn
        self.calls = calls
        self.wishes: list[Wish] = []
        self.open = 0
        self._errors: list[BaseException] = []

    async def act(self) -> None:
        """Run the calls beside each other, sequential ones and the finish call alone; then raise what a hook raised."""
        for group in self._groups():
            if self.turn.run.stopping:  # and the call before did not let itself be stopped
                raise asyncio.CancelledError
            await self._act_group(group)
            if self._errors:
                raise self._errors[0]
            if self.wishes:
                return

    def _groups(self) -> list[list[ToolUseBlock]]:
        """Which calls run beside each other: a sequential tool is alone, and the finish call comes last."""
        if len(self.calls) == 1:
            return [self.calls]
        finish = self.turn.output.name if self.turn.output else None
        one_by_one = not self.turn.agent.toolkit.parallel
        groups: list[list[ToolUseBlock]] = []
        alone = True
        for call in sorted(self.calls, key=lambda call: call.name == finish):
            tool = self.turn.tool(call.name)
            last, alone = alone, one_by_one or (tool is not None and tool.sequential) or call.name == finish
            if last or alone:
                groups.append([])
            groups[-1].append(call)
        return groups

    async def _act_group(self, calls: list[ToolUseBlock]) -> None:
        self.open = len(calls)
        if len(calls) == 1:
            return await self._act_one(calls[0])
        places = asyncio.Semaphore(self.turn.agent.toolkit.max_parallel)
        tasks = [asyncio.ensure_future(self._act_in_turn(call, places)) for call in calls]
        try:
            await _all_done(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        return None

    async def _act_in_turn(self, call: ToolUseBlock, places: asyncio.Semaphore) -> None:
        """Begin as soon as one of the calls before is done, where there are more than may run at once."""
        async with places:
            await self._act_one(call)

    async def _act_one(self, call: ToolUseBlock) -> None:
        acting = Acting(self, call)
        try:
            wishes = await acting.settle()
        except PauseSignal as signal:
            wishes = signal.wishes
        except Exception as error:
            self.fail(error)
            wishes = ()
        finally:
            self.open -= 1
        self.wishes += wishes
        if self.open and not wishes:
            await self._commit()

    async def _commit(self) -> None:
        """Keep what a call came to while its neighbours still run."""
        try:
            await self.turn.run.commit()
        except Exception as error:
            self._errors.append(error)

    def fail(self, error: Exception) -> None:
        """Take note of what a hook raised; it goes on once the calls beside it are settled."""
        self._errors.append(error)

    def command(self) -> Command:
        """All calls have a result: fold them, and go on."""
        turn, results = self.turn, [self._result(call) for call in self.calls]
        update: dict[str, Any] = {}
        goto, reason = turn.again(), None
        ending = next((result for result in results if result.metadata and result.metadata.get("ends_run")), None)
        answer = self.answer() if turn.output is not None else None
        if any(turn.state.calls[call.id].stop for call in self.calls):
            goto, reason = END, "stopped"
        if answer is not None:
            update["answer"] = answer
            goto, reason = END, "finished"
        elif ending is not None:
            content = ending.output if not isinstance(ending.output, str) else (TextBlock(text=ending.output),)
            update["messages"] = [Msg.assistant(content, name=turn.agent.name)]
            goto, reason = END, "finished"
        if spent := self._spent_below(results):
            update["usage"] = spent
        return Command(update=update, goto=goto, reason=reason, calls=[call.id for call in self.calls])

    def _spent_below(self, results: Sequence[ToolResultBlock]) -> Usage | None:
        """What sub-agents cost: their caller's budget is theirs too."""
        spent = [spent_by(result.metadata) for result in results if isinstance(self.turn.tool(result.name), AgentTool)]
        return sum(spent[1:], spent[0]) if spent else None

    def answer(self) -> Mapping[str, Any] | None:
        """What a finish call gave as the final answer, if one was good."""
        for call in self.calls:
            known = self.turn.state.calls.get(call.id)
            metadata = (as_result_block(known.result).metadata or {}) if known is not None and known.finished else {}
            if metadata.get("finish"):
                return metadata.get("input", call.input)
        return None

    def _result(self, call: ToolUseBlock) -> ToolResultBlock:
        return as_result_block(self.turn.state.calls[call.id].result)


async def _all_done(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all tasks; being cancelled leaves them running."""
    left = len(tasks)
    done = asyncio.get_running_loop().create_future()

    def count(_: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if not left and not done.done():
            done.set_result(None)

    for task in tasks:
        task.add_done_callback(count)
    await done
