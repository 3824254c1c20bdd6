"""What somebody who interrupts an agent has it say."""

from __future__ import annotations

import dataclasses

from treadle.agent._input import storable
from treadle.errors import InputError
from treadle.message import Msg


def last_word(message: str | Msg, name: str) -> Msg:
    """What somebody who interrupts says, as the agent's answer."""
    if isinstance(message, str):
        return Msg.assistant(message, name=name)
    msg = storable(message)
    if msg.tool_calls or msg.tool_results:
        raise InputError(f"The message of an interrupt makes no calls and has no results: {message!r:.200}")
    return msg if msg.role == "assistant" else dataclasses.replace(msg, role="assistant")
