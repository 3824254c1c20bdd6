"""Tools: functions that a model may call, with their schemas, their checks and what is injected into them."""

from treadle.tool._base import Tool
from treadle.tool._context import Context, Suspend, ToolContext
from treadle.tool._function import FunctionTool, tool
from treadle.tool._result import ToolResult
from treadle.tool._toolkit import Toolkit

__all__ = [
    "Context",
    "FunctionTool",
    "Suspend",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Toolkit",
    "tool",
]
