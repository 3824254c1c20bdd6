"""Several named speakers in one conversation, for models that know only a user and an assistant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.formatter._base import Formatter
from treadle.message import Block, Msg, TextBlock, ThinkingBlock

HEADING = "# Conversation so far\nEach line begins with the name of its speaker.\n"


class MultiAgentFormatter(Formatter):
    """Turns what several speakers said into one user message that names them; tool calls and results stay as they are.

    Mix it in before a provider's formatter: `class OpenAIMultiAgentFormatter(MultiAgentFormatter, OpenAIFormatter)`.
    """

    def prepare(self, messages: Sequence[Msg]) -> Iterable[Msg]:
        """The messages with each stretch of talk in one message."""
        return merge_speakers(messages)


def merge_speakers(messages: Sequence[Msg]) -> list[Msg]:
    """Put every stretch of plain talk into one user message; the first one says what it is."""
    out: list[Msg] = []
    talk: list[Msg] = []
    told = False
    for msg in messages:
        if msg.role == "system" or msg.tool_calls or msg.tool_results:
            if talk:
                out.append(_history(talk, HEADING if not told else ""))
                talk, told = [], True
            out.append(msg)
        else:
            talk.append(msg)
    if talk:
        out.append(_history(talk, HEADING if not told else ""))
    return out


def _history(talk: Sequence[Msg], heading: str) -> Msg:
    """What was said, as text with media in their places."""
    blocks: list[Block] = []
    lines: list[str] = [f"{heading}<history>"]
    for msg in talk:
        for block in msg.content:
            if isinstance(block, TextBlock):
                lines.append(f"{msg.name or msg.role}: {block.text}")
            elif not isinstance(block, ThinkingBlock):
                blocks += [TextBlock(text="\n".join([*lines, f"{msg.name or msg.role}:"])), block]
                lines = []
    blocks.append(TextBlock(text="\n".join([*lines, "</history>"])))
    return Msg(role="user", name="user", content=tuple(blocks), id=talk[-1].id, timestamp=talk[-1].timestamp)
