"""What the tests of tools share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.message import OutputBlock, ToolUseBlock
from treadle.tool import Context, Tool, ToolContext, ToolResult


class Progress:
    """An emitter that keeps what it was given."""

    def __init__(self) -> None:
        self.chunks: list[str | OutputBlock] = []

    async def __call__(self, chunk: str | OutputBlock) -> None:
        self.chunks.append(chunk)


def context_of(name: str = "tool", context: Context | None = None, **fields: Any) -> ToolContext:
    """A call's context as an agent would make it."""
    return ToolContext(ToolUseBlock(id="call-1", name=name, input={}), context=context, **fields)


async def invoke(
    tool: Tool, input: Mapping[str, Any] | None = None, context: Context | None = None, **fields: Any
) -> ToolResult:
    """Validate and run, as an agent does."""
    return await tool.run(tool.validate(input or {}), context_of(tool.name, context, **fields))


async def output(tool: Tool, input: Mapping[str, Any] | None = None, context: Context | None = None) -> Any:
    """The output of a call."""
    return (await invoke(tool, input, context)).output
