"""What formats with `tool_calls` inside messages share: collecting an answer, tools, and media that tools returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import InputError
from treadle.message import Block, Msg, OutputBlock, TextBlock, ToolResultBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.model import Delta, StopReason, TextDelta, ThinkingDelta, ToolCallDelta, ToolSpec
from treadle.model._accumulate import Accumulator

MEDIA_NOTE = "These belong to the tool results above:"


class Pieces:
    """An answer that is still coming: each piece is added to its block and becomes a delta."""

    def __init__(self) -> None:
        self._parts = Accumulator()

    def thinking(self, text: str) -> Iterable[Delta]:
        """A piece of thinking; an empty one is none."""
        if text:
            self._parts.part("thinking", "thinking").texts.append(text)
            yield ThinkingDelta(text, self._parts.index("thinking"))

    def text(self, text: str) -> Iterable[Delta]:
        """A piece of text; an empty one is none."""
        if text:
            self._parts.part("text", "text").texts.append(text)
            yield TextDelta(text, self._parts.index("text"))

    def call(self, key: Any, *, name: str, id: str, arguments: str) -> Delta:
        """A piece of the call under a key; name and id come with any piece, mostly the first."""
        part = self._parts.part(("call", key), "tool_use")
        part.name = part.name or name
        part.id = part.id or id
        part.texts.append(arguments)
        return ToolCallDelta(arguments, self._parts.index(("call", key)), part.id or None, name or None)

    def said(self) -> str:
        """The text so far."""
        return self._parts.text()

    def blocks(self) -> tuple[Block, ...]:
        """The whole answer; the arguments of its calls are parsed here, once."""
        return self._parts.blocks()


def arguments_text(function: Mapping[str, Any]) -> str:
    """The arguments of a call as JSON text, whether they came as text or as an object."""
    given = function.get("arguments")
    return given if isinstance(given, str) else "" if given is None else dumps(given)


def stop_reason(known: Mapping[str, StopReason], reason: Any, blocks: Sequence[Block]) -> StopReason:
    """Why an answer ended; one that ends as usual with calls in it ended for them."""
    found = known.get(reason, "stop") if isinstance(reason, str) else "stop"
    calls = any(isinstance(block, ToolUseBlock) for block in blocks)
    return "tool_use" if calls and found == "stop" else found


def function_tool(spec: ToolSpec) -> dict[str, Any]:
    """A tool as these formats describe it."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def result_text(result: ToolResultBlock) -> str:
    """The text of a result; where there is only media, where to find it."""
    return result.text or ("(see the next message)" if result_media([result]) else "")


def result_media(results: Iterable[ToolResultBlock]) -> list[OutputBlock]:
    """The media in results, which go into a user message of their own: tool messages hold text alone."""
    outputs = [result.output for result in results if not isinstance(result.output, str)]
    return [block for output in outputs for block in output if not isinstance(block, TextBlock)]


def media_message(msg: Msg) -> Msg | None:
    """The user message with the media of a message of results, if there are any."""
    media = result_media(msg.tool_results)
    return Msg.user([TextBlock(text=MEDIA_NOTE), *media]) if media else None


def require(can: bool, what: str) -> None:
    """Refuse what a model cannot take, before anything is sent."""
    if not can:
        raise InputError(f"This model does not take {what}; choose another, or pass a `profile` that says it does.")
