"""How a run begins: what was given, what the thread was doing, and what follows from the two."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from treadle.agent._decision import to_answers
from treadle.agent._history import History, as_result_block
from treadle.agent._output import OutputSpec
from treadle.agent._texts import late_note, settle
from treadle.agent._turn import AgentRequest, Turn
from treadle.errors import DecisionError, InputError, PendingCallsError, ToolInputError
from treadle.event import PreCallEvent
from treadle.graph._answers import match_answers
from treadle.graph._state import ThreadState
from treadle.journal._record import InputRecord, Record, ResumedRecord
from treadle.message import Msg, ToolResultBlock
from treadle.message._codec import to_jsonable
from treadle.message._msg import now

NEW_MESSAGE = "a new message came first."


def begin(turn: Turn, request: AgentRequest) -> Sequence[Record] | None:
    """The records that start a run, or None if a child thread is finished already."""
    state = turn.state
    if request.child and state.phase != "new":
        if state.phase == "ended" and not state.frontier:
            return _once_more(turn, request) if state.reason == "failed" else None
        return _resume(turn, request)
    if request.resume and state.phase == "new" and not turn.history.messages:
        raise InputError(f"There is no thread {turn.run.name!r} to resume.")
    if request.resume and request.decisions is None and _is_answered(state):
        turn.output = _output_of(turn, request)
        return None
    if request.decisions is not None or request.messages is None:
        return _resume(turn, request)
    results = _for_open_calls(turn, request.messages)
    if results:
        return _with_results(turn, request, request.messages, results)
    return [_new_turn(turn, request, request.messages)]


def _is_answered(state: ThreadState) -> bool:
    """Whether the thread's last turn came to its own end, so that there is nothing to go on with."""
    cut_short = ("interrupted", "failed", "stopped", "budget")
    return state.phase == "ended" and not state.frontier and state.reason not in cut_short


def _for_open_calls(turn: Turn, messages: Sequence[Msg]) -> list[ToolResultBlock]:
    """The results from outside; those of calls that come with them are a conversation that is brought along."""
    brought = {call.id for msg in messages for call in msg.tool_calls}
    known = [call for call in brought if turn.history.has_seen(call)]
    if known:
        raise InputError(f"Calls {sorted(known)} are in the thread already; a call's id is its own.")
    return [result for msg in messages for result in msg.tool_results if result.id not in brought]


def _resume(turn: Turn, request: AgentRequest) -> Sequence[Record]:
    """Go on without new messages: with decisions, with what is pending, or by asking the model again."""
    state, run = turn.state, turn.run
    turn.output = _output_of(turn, request)
    if request.child:
        return [ResumedRecord(run=run.id, answers=match_answers(state.wishes, request.answers, partial=True))]
    decisions: Any = request.decisions
    if decisions is not None and not isinstance(decisions, Mapping):
        raise DecisionError(f"`decisions` is a dict from ids of calls to decisions, not {decisions!r:.200}.")
    if request.decisions:
        answers = to_answers(request.decisions, state.wishes, _open_calls(turn), partial(_input_problem, turn))
        resumed = ResumedRecord(run=run.id, answers={**match_answers(state.wishes, None), **answers})
        # Without a frontier the calls came by `observe`, to a thread that was at rest.
        return [resumed] if state.frontier else [_input(turn, request, _late(state), ["tools"]), resumed]
    if request.decisions is not None:
        raise InputError("`decisions` is empty; give one for each call, or leave it out to go on.")
    if state.frontier:
        return [ResumedRecord(run=run.id, answers=match_answers(state.wishes, None))]
    if not turn.history.messages and not turn.system:
        raise InputError(f"Thread {run.name!r} has nothing to go on with; give it a message.")
    return [_input(turn, request, _late(state), ["tools" if turn.history.pending else "model"])]


def _once_more(turn: Turn, request: AgentRequest) -> Sequence[Record]:
    """A child that failed is asked again: its parent died before it could take note of the failure."""
    turn.output = _output_of(turn, request)
    return [InputRecord(run=turn.run.id, next=["before_agent" if turn.state.values["input"] else "model"], turn=False)]


def _with_results(
    turn: Turn, request: AgentRequest, messages: Sequence[Msg], results: Sequence[ToolResultBlock]
) -> Sequence[Record]:
    """Results from outside: only for open calls, one each; text beside them only if none stays open."""
    pending = _open_calls(turn)
    seen: set[str] = set()
    for result in results:
        if result.id in seen:
            raise InputError(f"Two results were given for call {result.id!r}; a call has exactly one.")
        if result.id not in pending:
            raise InputError(f"No open call has the id {result.id!r}; open: {sorted(pending) or 'none'}.")
        seen.add(result.id)
    missing = [call for call in pending if call not in seen]
    others = [msg for msg in messages if not msg.tool_results]
    if missing and others:
        raise InputError(f"Calls {missing} are still open: give their results too, or send the other messages later.")
    turn.output = _output_of(turn, request)
    if others:
        settled = _settled_by(turn, results)
        return [_input(turn, request, [*settled, *_late(turn.state)], [_entry(turn, others)], others)]
    answers = {result.id: {"decision": "result", **_payload(result)} for result in results}
    if turn.state.frontier:
        return [ResumedRecord(run=turn.run.id, answers=answers)]
    first = _input(turn, request, _late(turn.state), ["tools"])
    return [first, ResumedRecord(run=turn.run.id, answers=answers)]


def _open_calls(turn: Turn) -> dict[str, str]:
    """The calls without a result, each with what there is to decide about it."""
    calls = turn.state.calls
    return {
        call: "unknown" if call in calls else "approval"
        for call in turn.history.pending
        if call not in calls or not calls[call].finished
    }


def _input_problem(turn: Turn, call: str, input: Mapping[str, Any]) -> str | None:
    """What the tool of an open call has against an input; a call of a sub-agent is not known here."""
    known = turn.history.pending.get(call)
    if known is None:
        return None
    if turn.output is not None and known.name == turn.output.name:
        return turn.output.problem(input)
    tool = turn.tool(known.name)
    if tool is None or tool.external:
        return None
    try:
        tool.validate(input)
    except ToolInputError as error:
        return str(error)
    return None


def _settled_by(turn: Turn, results: Sequence[ToolResultBlock]) -> list[Msg]:
    """A result for every pending call: its own where it finished, else the one that was given."""
    given = {result.id: result for result in results}
    return [
        Msg.tool(
            dataclasses.replace(given[call.id], name=call.name)
            if call.id in given
            else as_result_block(turn.state.calls[call.id].result)
        )
        for call in turn.history.pending.values()
    ]


def _payload(result: ToolResultBlock) -> dict[str, Any]:
    data = to_jsonable(result)
    return {"output": data["output"], "status": data.get("status", "ok")}


def _new_turn(turn: Turn, request: AgentRequest, messages: Sequence[Msg]) -> Record:
    """A new message: whatever the thread was doing is settled first, saying what is known."""
    state = turn.state
    pending = list(turn.history.pending.values())
    if pending and turn.agent.on_pending == "error":
        ids = [call.id for call in pending]
        raise PendingCallsError(f"Calls {ids} are open: `resume` them, give their results, or call without input.")
    turn.output = _wanted(turn, request)
    settled = [Msg.tool(as_result_block(result)) for result in settle(pending, state.calls, NEW_MESSAGE)]
    messages = [*_unseen(turn), *messages]
    return _input(turn, request, [*settled, *_late(state)], [_entry(turn, messages)], messages)


def _unseen(turn: Turn) -> Sequence[Msg]:
    """Input that a dead process had stored, and that no hook has seen yet."""
    state = turn.state
    return (state.values["input"] or ()) if state.phase == "running" else ()


def _entry(turn: Turn, messages: Sequence[Msg]) -> str:
    """The first node: hooks that want the input see it before it counts."""
    return "before_agent" if turn.hooks.wanting(PreCallEvent) else first_node(messages)


def first_node(messages: Sequence[Msg]) -> str:
    """Where a turn starts: with open calls among the messages themselves, act; else reason."""
    probe = History()
    for msg in messages:
        probe.add(msg)
    return "tools" if probe.pending else "model"


def _input(
    turn: Turn, request: AgentRequest, settled: Sequence[Msg], next: list[str], messages: Sequence[Msg] = ()
) -> InputRecord:
    turn.limits = request.limits or turn.agent.limits
    turn.given = tuple(messages)
    waits = next == ["before_agent"]
    values: dict[str, Any] = {"messages": [*settled, *(() if waits else messages)], "usage": None, "reminders": None}
    values["began"] = now()
    turn.since = len(turn.history.messages) + len(values["messages"])
    if not values["messages"]:
        del values["messages"]
    state = turn.state.values
    if waits or state["input"]:
        values["input"] = list(messages) if waits else None
    if turn.output is not None or state.get("output"):
        values["output"] = None if turn.output is None else turn.output.to_state()
    if isinstance(state["answer"], Mapping):
        values["answer"] = None
    if request.limits is not None or state["limits"]:
        values["limits"] = None if request.limits is None else to_jsonable(request.limits)
    return InputRecord(run=turn.run.id, values=values, next=next)


def _late(state: ThreadState) -> list[Msg]:
    notes: list[Msg] = []
    for record in state.late:
        block = as_result_block(record.result)
        notes.append(late_note(record.call, block.name, block.text))
    return notes


def _output_of(turn: Turn, request: AgentRequest) -> OutputSpec | None:
    """The wanted output of the turn that goes on: as given again, else as the thread remembers it."""
    if request.output is not None:
        return _wanted(turn, request)
    stored = turn.state.values["output"]
    return OutputSpec.stored(cast("Mapping[str, Any]", stored)) if isinstance(stored, Mapping) else None


def _wanted(turn: Turn, request: AgentRequest) -> OutputSpec | None:
    if request.output is None:
        return None
    name = turn.agent.finish_name
    if turn.tool(name) is not None:
        raise InputError(f"There is a tool `{name}` already: give the agent another `finish_name`.")
    return OutputSpec.of(name, request.output)
