"""One tool call on its way: PreActing, checks, approval, the tool, PostActing; each durable step recorded first."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from treadle.agent._agent_tool import AgentTool
from treadle.agent._decision import decided_result, decision_in
from treadle.agent._history import as_result_block
from treadle.agent._late import late_reporter, report_late
from treadle.agent._storable import checked_result
from treadle.agent._texts import error_block, failed, json_problem
from treadle.errors import EventError, FormatError, JournalError, ToolError, ToolInputError
from treadle.event import ActingChunkEvent, PostActingEvent, PreActingEvent, Wish
from treadle.graph._state import CallState
from treadle.hook import ToolCall
from treadle.journal._record import FinishedRecord, InputRecord, SettledRecord, StartedRecord
from treadle.message import OutputBlock, ToolResultBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.tool import Suspend, ToolContext, ToolResult

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase
    from treadle.agent._tools import Batch


class Acting:
    """One call, from what the model said to the result that the history keeps."""

    def __init__(self, batch: Batch, call: ToolUseBlock) -> None:
        self.batch = batch
        self.turn = batch.turn
        self.call = call
        self.tool = self.turn.tool(call.name)
        self.input: Mapping[str, Any] = call.input
        self.arguments: dict[str, Any] = {}
        self.updates: Mapping[str, Any] = {}
        """What hooks noted before the call; stored once they will not be asked again."""
        self.stop = False

    @property
    def known(self) -> CallState | None:
        """What the journal says about this call."""
        return self.turn.state.calls.get(self.call.id)

    async def settle(self) -> Sequence[Wish]:
        """Bring the call to its result, or say what is missing for that."""
        known = self.known
        if known is not None and known.settled:
            return ()
        if known is not None and known.finished:
            await self._post(as_result_block(known.result))
            return ()
        if known is not None:
            wish = self._unknown(known)
        else:
            wish = self._checked(None) if self.turn.silent else await self._prepare()
        if isinstance(wish, Wish):
            return (wish,)
        result = wish if wish is not None else await self._run()
        if isinstance(result, Wish):
            return (result,)
        await self._finish(result)
        return ()

    # Before the tool runs.

    def _unknown(self, known: CallState) -> Wish | ToolResultBlock | None:
        """The call was started and did not finish: run it again only if that is safe or somebody says so."""
        self.input = known.input if known.input is not None else self.call.input
        decided = self._decided()
        if decided is not None:
            return decided
        waiting = self._open_wish("external")
        if waiting is not None:
            return waiting
        decision, _ = decision_in(self.turn.state.answers.get(self.call.id))
        safe = self.tool is not None and (self.tool.repeatable or self._is_below())
        if decision == "retry" or safe:
            return self._validate()
        return self._wish("unknown", f"`{self.call.name}` was started, and it is not known how it ended.")

    def _is_below(self) -> bool:
        """Whether the call waits for answers of a sub-agent, which takes up its own thread again."""
        prefix = f"{self.call.id}/"
        state = self.turn.state
        return any(str(wish["id"]).startswith(prefix) for wish in state.wishes) or any(
            name.startswith(prefix) for name in state.answers
        )

    async def _prepare(self) -> Wish | ToolResultBlock | None:
        """PreActing, checks, approval; None means: go."""
        asked: str | None = None
        if self.turn.watched(PreActingEvent):
            event = await self._fire_before()
            asked, self.updates = event.asked, event.updates
            if event.answered is not None:
                self.stop = event.stopped
                return event.answered
            wish = f"stop:{self.call.id}"
            if event.stopped and wish not in self.turn.state.answers:
                reason = f"A hook stopped the run before `{self.call.name}`."
                return Wish(id=wish, kind="breakpoint", reason=reason, name=self.call.name)
        return self._checked(asked)

    async def _fire_before(self) -> PreActingEvent:
        """Hooks get the input as a copy: what the model said stays as it was said, whatever they do to it."""
        turn, said = self.turn, self.call.input
        given = copy.deepcopy(said) if turn.hooks.wanting(PreActingEvent) else said
        event = await turn.fire(PreActingEvent(source=turn.run.source, call=self.call, input=given, state=turn.notes))
        if event.input is not given or (given is not said and given != said):
            self.input = _stored_input(event.input)
        return event

    def _checked(self, asked: str | None) -> Wish | ToolResultBlock | None:
        return self._decided() or self._validate() or self._permitted(asked)

    def _decided(self) -> ToolResultBlock | None:
        """The result that somebody's decision gives the call without running it."""
        if not self.turn.state.answers:
            return None
        decision, data = decision_in(self.turn.state.answers.get(self.call.id))
        if decision == "edit":
            if not isinstance(data.get("input"), Mapping):
                return error_block(self.call, f"The edited input of `{self.call.name}` is not a JSON object.")
            self.input = data["input"]
        elif decision == "reject":
            why = f" {data['reason']}" if data.get("reason") else ""
            return error_block(self.call, f"The call of `{self.call.name}` was rejected.{why}", "rejected")
        elif decision == "result":
            return decided_result(self.call, data)
        return None

    def _validate(self) -> ToolResultBlock | None:
        call, turn = self.call, self.turn
        if turn.output is not None and call.name == turn.output.name:
            return self._finish_call()
        if call.raw is not None and self.input is call.input:
            return error_block(call, f"The arguments are not a JSON object: {json_problem(call.raw)}")
        if self.tool is None:
            known = ", ".join(f"`{name}`" for name in turn.tool_names) or "none"
            return error_block(call, f"There is no tool `{call.name}`. Available: {known}.")
        if self.tool.external:
            return None
        try:
            self.arguments = self.tool.validate(self.input)
        except ToolInputError as error:
            return error_block(call, str(error))
        return None

    def _finish_call(self) -> ToolResultBlock:
        """Check the final answer; it ends the run only if it fits."""
        output = self.turn.output
        assert output is not None
        if self.batch.answer() is not None:
            return error_block(self.call, "The answer was given already.")
        problem = (
            f"The arguments are not a JSON object: {json_problem(self.call.raw)}"
            if self.call.raw is not None
            else output.problem(self.input)
        )
        if problem is not None:
            return error_block(self.call, problem)
        metadata = {"finish": True} if self.input is self.call.input else {"finish": True, "input": dict(self.input)}
        return ToolResultBlock(id=self.call.id, name=self.call.name, output="Done.", metadata=metadata)

    def _permitted(self, asked: str | None) -> Wish | None:
        tool = self.tool
        assert tool is not None
        if tool.external:
            return self._wish("external", f"`{self.call.name}` is run outside.")
        if asked is None and not tool.needs_approval(self.input):
            return None
        decision, data = decision_in(self.turn.state.answers.get(self.call.id))
        if decision == "edit" or (decision == "approve" and data.get("input") == dict(self.input)):
            return None
        return self._wish("approval", asked or f"`{self.call.name}` needs approval.")

    # The tool.

    async def _run(self) -> ToolResultBlock | Wish:
        run = self.turn.run
        edited = None if self.input is self.call.input or self.input == self.call.input else dict(self.input)
        self._keep(self.updates)
        run.record(StartedRecord(call=self.call.id, input=edited))
        await run.commit()
        assert self.tool is not None
        context = self._context()
        call = ToolCall(call=self.call, tool=self.tool, input=self.arguments, context=context)
        act = self.turn.hooks.wrap_tool(self._act)
        try:
            result = await act(call)
        except Suspend as suspended:
            return self._wish("external", suspended.reason or f"`{self.call.name}` waits for its result from outside.")
        except asyncio.CancelledError as error:
            context.cancelled = True
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            result = failed(self.call.name, error)
        except Exception as error:
            if isinstance(error, JournalError) and isinstance(self.tool, AgentTool):
                run.lose(error)  # the sub-agent could not record its work, so it has no outcome yet
                raise
            result = failed(self.call.name, error, running=self.call.id in self.turn.abandoned)
        if run.given_up:
            await report_late(self.turn, self.call, result)
            raise asyncio.CancelledError  # the thread is closed, or about to be
        return self._block(checked_result(result, self.call.name), edited)

    async def _act(self, call: ToolCall) -> ToolResult:
        agent = cast("ReActAgentBase", self.turn.run.host)
        result = await agent._acting(call, self.turn.run)  # pyright: ignore[reportPrivateUsage]
        if not isinstance(result, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolError(f"`_acting` must return a `ToolResult` and returned {result!r:.100}.")
        return result

    def _context(self) -> ToolContext:
        turn = self.turn
        emitter = None if turn.silent or not turn.watched(ActingChunkEvent) else self._emit
        context = turn.run.context
        return ToolContext(
            self.call, turn.run.name, turn.agent.name, turn.run.id, context, emitter, self._abandon, turn.run
        )

    async def _emit(self, chunk: str | OutputBlock) -> None:
        try:
            await self.turn.run.emit(ActingChunkEvent(source=self.turn.run.source, call=self.call, chunk=chunk))
        except Exception as error:  # a hook's fault and not the tool's, which goes on; the run fails after it
            self.batch.fail(error)

    def _abandon(self, future: concurrent.futures.Future[Any]) -> None:
        """A sync tool could not be stopped: what it comes to is posted to the thread when it is known."""
        self.turn.abandoned.add(self.call.id)
        assert self.tool is not None
        call = ToolCall(call=self.call, tool=self.tool, input=self.arguments, context=self._context())
        future.add_done_callback(late_reporter(self.turn, call))

    def _block(self, result: ToolResult, edited: Mapping[str, Any] | None) -> ToolResultBlock:
        metadata = dict(result.metadata) if result.metadata else {}
        if edited is not None:
            metadata["input"] = edited
        ends = self.tool is not None and self.tool.ends_run and result.status == "ok"
        if result.ends_run or ends:
            metadata["ends_run"] = True
        return ToolResultBlock(
            id=self.call.id,
            name=self.call.name,
            output=result.output,
            status=result.status,
            metadata=metadata or None,
        )

    # After the tool ran.

    async def _finish(self, result: ToolResultBlock) -> None:
        run = self.turn.run
        self._keep(self.updates)
        run.record(FinishedRecord(call=self.call.id, result=result))
        if self.turn.silent:
            return
        if self.turn.hooks.wanting(PostActingEvent):
            await run.commit()
        await self._post(result)

    async def _post(self, result: ToolResultBlock) -> None:
        turn = self.turn
        if turn.watched(PostActingEvent):
            event = PostActingEvent(source=turn.run.source, call=self.call, result=result, state=turn.notes)
            event = await turn.fire(event)
            self._keep(event.updates)
            changed = event.result if event.result is not result and event.result != result else None
            self.stop = self.stop or event.stopped
            if self.stop or turn.hooks.wanting(PostActingEvent):
                turn.run.record(SettledRecord(call=self.call.id, result=changed, stop=self.stop))
            result = event.result
        elif self.stop:
            turn.run.record(SettledRecord(call=self.call.id, stop=True))
        await turn.agent.show_result(turn, result)

    def _keep(self, updates: Mapping[str, Any]) -> None:
        """Store what hooks noted, in one write with the record that follows."""
        self.updates = {}
        if updates:
            run = self.turn.run
            run.record(InputRecord(run=run.id, values={"state": updates}, next=None, turn=False))

    def _wish(self, kind: Any, reason: str) -> Wish:
        return Wish(id=self.call.id, kind=kind, reason=reason, name=self.call.name, input=dict(self.input))

    def _open_wish(self, kind: str) -> Wish | None:
        for wish in self.turn.state.wishes:
            if wish["id"] == self.call.id and wish["kind"] == kind:
                decision, _ = decision_in(self.turn.state.answers.get(self.call.id))
                fields: dict[str, Any] = {**wish, "path": tuple(wish.get("path", ()))}
                return None if decision == "retry" else Wish(**fields)
        return None


def _stored_input(input: Mapping[str, Any]) -> Mapping[str, Any]:
    """What hooks made of an input, as it is stored."""
    try:
        return json.loads(dumps(dict(input)))
    except FormatError as error:
        raise EventError(f"`PreActingEvent.input` cannot be stored as JSON: {error.__cause__}") from error
