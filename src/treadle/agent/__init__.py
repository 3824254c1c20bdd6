"""Agents: reason, act, and never lose a step."""

from treadle.agent._base import AgentBase
from treadle.agent._decision import Approve, Decision, Edit, Reject, Result, Retry
from treadle.agent._react import ReActAgent, ReActAgentBase
from treadle.agent._reply import Limits, Reason, Reply
from treadle.agent._template import Template
from treadle.agent._user import UserAgent

__all__ = [
    "AgentBase",
    "Approve",
    "Decision",
    "Edit",
    "Limits",
    "ReActAgent",
    "ReActAgentBase",
    "Reason",
    "Reject",
    "Reply",
    "Result",
    "Retry",
    "Template",
    "UserAgent",
]
