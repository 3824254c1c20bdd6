"""What may be given to an agent, as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast, get_args

from treadle.agent._reply import Reply
from treadle.agent._template import Template
from treadle.errors import InputError
from treadle.message import Block, Msg, TextBlock, ToolResultBlock, ToolUseBlock
from treadle.message._check import problem_of

Input: TypeAlias = "str | Msg | Block | Template | Sequence[Msg | Block | str | Template] | None"


def to_messages(given: Any, variables: Mapping[str, Any]) -> list[Msg]:
    """Text, messages, blocks, or a list of them, as messages; texts and blocks of a list make one user message."""
    items = cast("Sequence[Any]", given) if _is_list(given) else [given]
    out: list[Msg] = []
    blocks: list[Block] = []
    for item in items:
        if isinstance(item, Msg):
            out.append(_checked(item))
        elif isinstance(item, ToolResultBlock):
            out.append(storable(Msg.tool(item)))
        else:
            blocks.append(_as_block(item, variables))
    if blocks:
        out.append(storable(Msg.user(blocks)))
    return out


def _as_block(item: Any, variables: Mapping[str, Any]) -> Block:
    if isinstance(item, str):
        return TextBlock(text=item)
    if isinstance(item, Template):
        return TextBlock(text=item.render(variables))
    if isinstance(item, get_args(Block)) and not isinstance(item, ToolUseBlock):
        return item
    raise InputError(f"{item!r:.200} is not a message; give text, a `Msg`, blocks, or a list of these.")


def _checked(given: Msg) -> Msg:
    msg = storable(given)
    if msg.role == "system":
        raise InputError("System messages belong in `system_prompt`, or in a `PreReasoningEvent` hook.")
    if msg.tool_calls and msg.role != "assistant":
        raise InputError(f"Only messages of the assistant make calls, and this one is of the {msg.role}: {msg!r:.200}")
    return msg


def storable(msg: Msg) -> Msg:
    """The message as it is stored, if it can be."""
    plain = cast("Reply[Any]", msg).as_msg() if isinstance(msg, Reply) else msg
    problem = problem_of(plain)
    if problem is not None:
        raise InputError(f"This message cannot be stored: {problem}.")
    return plain


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
