"""Hooks: watch, change, wrap and extend what an agent does."""

from treadle.hook._builtin import HumanInTheLoopHook, InterruptionHook
from treadle.hook._decorators import (
    FunctionHook,
    around_model,
    around_tool,
    on,
    on_error,
    post_acting,
    post_call,
    post_reasoning,
    post_summary,
    pre_acting,
    pre_call,
    pre_print,
    pre_reasoning,
    pre_summary,
)
from treadle.hook._hook import CallModel, CallTool, Hook, HookSet, ToolCall

__all__ = [
    "CallModel",
    "CallTool",
    "FunctionHook",
    "Hook",
    "HookSet",
    "HumanInTheLoopHook",
    "InterruptionHook",
    "ToolCall",
    "around_model",
    "around_tool",
    "on",
    "on_error",
    "post_acting",
    "post_call",
    "post_reasoning",
    "post_summary",
    "pre_acting",
    "pre_call",
    "pre_print",
    "pre_reasoning",
    "pre_summary",
]
