"""The `summarize` node: the iteration limit is reached, so the model is asked for a last word without tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from treadle.agent._history import Conversation
from treadle.agent._reasoning import check_cancelled, cut_off, is_empty
from treadle.agent._storable import usage_problem
from treadle.agent._texts import SUMMARY_HINT, error_block
from treadle.agent._turn import MAX_REMINDERS, Turn, turn_of
from treadle.errors import EmptyResponseError, MalformedResponseError
from treadle.event import PostSummaryEvent, PreSummaryEvent, SummaryChunkEvent
from treadle.graph import END, Command, NodeContext
from treadle.message import Msg, TextBlock, ThinkingBlock
from treadle.message._check import problem_of
from treadle.model import ModelRequest, ModelResponse, Usage

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase


class SummaryNode:
    """PreSummary, the model without tools, PostSummary."""

    name = "summarize"
    interruptible = True
    commits = False

    async def run(self, context: NodeContext) -> Command:
        """Give open calls an error result, ask for a summary, and end with it."""
        turn = turn_of(context.run)
        if turn.over_budget():
            return Command(update={"extra_answers": -1}, goto=END, reason="budget")
        settled = [
            Msg.tool(error_block(call, f"Not run: the limit of {turn.max_iters} iterations was reached."))
            for call in turn.history.pending.values()
        ]
        agent = cast("ReActAgentBase", context.run.host)
        try:
            message, usage = await agent._summarizing(settled, context.run)  # pyright: ignore[reportPrivateUsage]
        except asyncio.CancelledError as error:
            check_cancelled(turn, error)
            context.run.salvaged = {"messages": [*settled, *cut_off(turn)]}
            raise
        problem = problem_of(message) or usage_problem(usage)
        if problem is not None:
            raise MalformedResponseError(f"The summary of {agent.name!r} makes no sense: {problem}.")
        update: dict[str, Any] = {"messages": [*settled, message], "usage": usage}
        if turn.asked_again:
            update["extra_answers"], turn.asked_again = turn.asked_again, 0
        return Command(update=update, goto=END, reason="max_iters")


async def summarize(turn: Turn, settled: list[Msg]) -> tuple[Msg, Usage]:
    """Ask for the summary, again if it is empty; a call that the model makes all the same is left out."""
    usage = Usage()
    while turn.asked_again <= MAX_REMINDERS:
        response = await _ask(turn, settled)
        usage += response.usage
        content = tuple(block for block in response.content if isinstance(block, TextBlock | ThinkingBlock))
        message = Msg.assistant(content, name=turn.agent.name, metadata=response.metadata)
        if not is_empty(message):
            return await _shown(turn, message), usage
        turn.asked_again += 1
    raise EmptyResponseError(f"`{turn.model.name}` gave {turn.asked_again} empty summaries at the iteration limit.")


async def _ask(turn: Turn, settled: list[Msg]) -> ModelResponse:
    tail = (*settled, Msg.user(SUMMARY_HINT, name="system"))
    messages: Any = Conversation(turn.system, turn.history.messages, tail)
    options: Any = turn.agent.options
    if turn.watched(PreSummaryEvent):
        event = await turn.fire(PreSummaryEvent(source=turn.run.source, messages=messages, options=dict(options)))
        messages, options = event.messages, event.options
    request = ModelRequest(messages=messages, options=options, thread=turn.run.name, step=turn.step)
    return await turn.through_hooks(lambda asked: turn.ask(asked, SummaryChunkEvent), request, SummaryChunkEvent)


async def _shown(turn: Turn, message: Msg) -> Msg:
    if turn.watched(PostSummaryEvent):
        event = await turn.fire(PostSummaryEvent(source=turn.run.source, message=message))
        message = event.message
    await turn.agent.show(turn, message)
    return message
