"""Treadle: ReAct agents that never lose a step."""

from treadle.agent import (
    Approve,
    Edit,
    Limits,
    ReActAgent,
    Reject,
    Reply,
    Result,
    Retry,
    Template,
    UserAgent,
)
from treadle.errors import AgentBusyError, TreadleError
from treadle.event import Pause
from treadle.hook import Hook
from treadle.message import Msg
from treadle.tool import Context, Toolkit

__version__ = "0.1.0"

__all__ = [
    "AgentBusyError",
    "Approve",
    "Context",
    "Edit",
    "Hook",
    "Limits",
    "Msg",
    "Pause",
    "ReActAgent",
    "Reject",
    "Reply",
    "Result",
    "Retry",
    "Template",
    "Toolkit",
    "TreadleError",
    "UserAgent",
]
