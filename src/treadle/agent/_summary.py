"""The `summarize` node: the iteration limit is reached, so the model is asked for a last word without tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from treadle.agent._history import Conversation
from treadle.agent._reasoning import is_empty
from treadle.agent._texts import SUMMARY_HINT, error_block
from treadle.agent._turn import Turn, partial_blocks, turn_of
from treadle.errors import EmptyResponseError
from treadle.event import PostSummaryEvent, PreSummaryEvent
from treadle.graph import END, Command, NodeContext
from treadle.message import Msg, TextBlock, ThinkingBlock
from treadle.model import ModelRequest

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
            return Command(goto=END, reason="budget")
        settled = [
            Msg.tool(error_block(call, f"Not run: the limit of {turn.max_iters} iterations was reached."))
            for call in turn.history.pending.values()
        ]
        agent = cast("ReActAgentBase", context.run.host)
        try:
            message, usage = await agent._summarizing(settled, context.run)  # pyright: ignore[reportPrivateUsage]
        except asyncio.CancelledError:
            partial = partial_blocks(turn.deltas)
            if partial:
                said = Msg.assistant(partial, name=agent.name, metadata={"interrupted": True})
                context.run.salvaged = {"messages": [*settled, said]}
            raise
        update: dict[str, Any] = {"messages": [*settled, message], "usage": usage}
        return Command(update=update, goto=END, reason="max_iters")


async def summarize(turn: Turn, settled: list[Msg]) -> tuple[Msg, Any]:
    """Ask for the summary; a call that the model makes all the same is left out."""
    from treadle.event import SummaryChunkEvent

    messages: Any = Conversation(turn.system, turn.history.messages, (*settled, Msg.user(SUMMARY_HINT, name="system")))
    options: Any = turn.agent.options
    if turn.watched(PreSummaryEvent):
        event = await turn.fire(PreSummaryEvent(source=turn.run.source, messages=messages, options=options))
        messages, options = event.messages, event.options
    request = ModelRequest(
        messages=messages, options=options, thread=turn.run.name, step=turn.state.total.get("model", 0)
    )
    response = await turn.ask(request, SummaryChunkEvent)
    content = tuple(block for block in response.content if isinstance(block, TextBlock | ThinkingBlock))
    message = Msg.assistant(content, name=turn.agent.name, metadata=response.metadata)
    if is_empty(message):
        raise EmptyResponseError(f"`{turn.model.name}` gave an empty summary at the iteration limit.")
    if turn.watched(PostSummaryEvent):
        event = await turn.fire(PostSummaryEvent(source=turn.run.source, message=message))
        message = event.message
    await turn.agent.show(turn, message)
    return message, response.usage
