"""The ReAct loop as a graph: `before_agent -> model -> (tools -> model)* -> end`, `summarize` at the limit.

Hooks of the model are phases of the `model` node and not nodes of their own, because what they change before the call
is never stored and what they change after it must be changed before it is stored (docs/adr/0002).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from treadle.agent._begin import first_node
from treadle.agent._history import HISTORY, result_msg
from treadle.agent._reasoning import ModelNode
from treadle.agent._summary import SummaryNode
from treadle.agent._tools import ToolsNode
from treadle.agent._turn import turn_of
from treadle.event import PreCallEvent
from treadle.graph import END, START, Command, NodeContext, merge, replace
from treadle.graph._plan import Plan
from treadle.graph._schema import Key, Schema
from treadle.graph._strategy import Custom
from treadle.message import Msg
from treadle.message._codec import as_msgs, dumps
from treadle.model import Usage

GOTOS: Mapping[str, Sequence[str]] = {
    "before_agent": ("model", "tools"),
    "model": ("tools", "model", "summarize", END),
    "tools": ("model", "summarize", END),
    "summarize": (END,),
}


class _MsgsKey(Key):
    """Messages: stored as they are."""

    def dump(self, value: Any) -> Any:
        return value

    def load(self, value: Any) -> Any:
        return None if value is None else as_msgs(value)


class _UsageKey(Key):
    """What a turn cost: stored as it is, which leaves out zeros."""

    def dump(self, value: Any) -> Any:
        return value

    def load(self, value: Any) -> Any:
        return Usage(**cast("dict[str, Any]", value)) if isinstance(value, dict) else value


class _JsonKey(Key):
    """Plain JSON, checked when it is written."""

    def dump(self, value: Any) -> Any:
        return value if isinstance(value, int | float | str | None) else json.loads(dumps(value))

    def load(self, value: Any) -> Any:
        return value


def _add_usage(old: Usage, new: Usage | None) -> Usage:
    return Usage() if new is None else old + new


def _sum(old: int, new: int) -> int:
    return old + new


def _count(old: dict[str, int], new: Mapping[str, int | None] | None) -> dict[str, int]:
    if new is None:
        return {}
    return {key: value for key, value in {**old, **new}.items() if value}


class _BeforeAgentNode:
    """PreCall: hooks see the input before it enters the history."""

    name = "before_agent"
    interruptible = False  # so that an interrupt finds the input in the history
    commits = False

    async def run(self, context: NodeContext) -> Command:
        turn = turn_of(context.run)
        messages: Sequence[Msg] = tuple(turn.state.values["input"] or ())
        event = await turn.fire(PreCallEvent(source=context.run.source, messages=messages))
        return Command(update={"messages": list(event.messages), "input": None}, goto=first_node(event.messages))


@cache
def react_plan() -> Plan:
    """The plan of every ReAct agent; it depends on none of their settings."""
    keys: list[Key] = [
        _MsgsKey("messages", list[Msg], HISTORY),
        _MsgsKey("input", list[Msg], replace),
        _UsageKey("usage", Usage, Custom(_add_usage, Usage)),
        _JsonKey("reminders", dict, Custom(_count, dict)),
        _JsonKey("state", dict, merge),
        _JsonKey("output", dict, replace),
        _JsonKey("answer", dict, replace),
        _JsonKey("began", float, replace),
        _JsonKey("extra_answers", int, Custom(_sum, int)),
        _JsonKey("limits", dict, replace),
    ]
    schema = Schema(
        {key.name: key for key in keys},
        from_calls=lambda done: {"messages": [result_msg(result, at) for result, at in done]},
    )
    nodes = {node.name: node for node in (_BeforeAgentNode(), ModelNode(), ToolsNode(), SummaryNode())}
    return Plan(schema=schema, nodes=nodes, edges={START: ("before_agent",)}, shows_nodes=False)
