"""How a run ends: the record that closes it, and the reply that its caller gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from treadle.agent._history import as_result_block
from treadle.agent._output import OutputSpec, shown
from treadle.agent._reply import Reason, Reply, make_reply
from treadle.agent._texts import settle
from treadle.agent._turn import Turn
from treadle.journal._record import EndedRecord
from treadle.message import Msg, TextBlock
from treadle.model import Usage


def closing_record(turn: Turn, reason: str, error: BaseException | None) -> EndedRecord:
    """The end of a run that was interrupted or failed: a result for every open call, what was said, the last word."""
    run = turn.run
    why = "the run was interrupted." if reason == "interrupted" else "the run failed before it."
    given_up = run.state.calls if run.given_up else turn.abandoned
    results = settle(turn.history.pending.values(), run.state.calls, why, cancelled=True, abandoned=given_up)
    values = dict(run.salvaged or {})
    messages: list[Any] = [Msg.tool(as_result_block(result)) for result in results]
    messages += values.get("messages", ())
    wish = (run.interruption or {}).get("message")
    if reason == "interrupted" and wish is not None:
        messages.append(wish)
    if messages:
        values["messages"] = messages
    text = None if error is None else f"{type(error).__name__}: {error}"
    return EndedRecord(reason=reason, values=values or None, error=text)


def _last_words(turn: Turn) -> Msg | None:
    """What the agent said last in its turn; other messages may have been observed since."""
    if not turn.over:
        return turn.history.last_answer(turn.since)
    mine = (msg for msg in reversed(turn.history.messages) if msg.role == "assistant" and msg.name == turn.agent.name)
    return next(mine, None)


def reply_of(turn: Turn, reason: str) -> Reply[Any]:
    """What the caller of a run gets that ended or paused."""
    run, state = turn.run, turn.state
    if run.pause is not None and all(wish.kind == "breakpoint" for wish in run.pause.wishes):
        reason = "stopped"
    said = _last_words(turn) or Msg(role="assistant", name=turn.agent.name, content=())
    output: Any = None
    answer = state.values["answer"] if reason == "finished" else None
    if isinstance(answer, Mapping):
        data = cast("Mapping[str, Any]", answer)
        output = (turn.output or OutputSpec.stored(state.values["output"])).parse(data)
        said = dataclasses.replace(said, content=(TextBlock(text=shown(data)),))
    return make_reply(
        said,
        reason=cast("Reason", reason),
        usage=state.values["usage"] or Usage(),
        output=output,
        pause=run.pause,
        thread=run.name,
        run=run.id,
    )
