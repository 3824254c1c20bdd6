"""Graphs: nodes that read a state and return updates, on threads that never lose a step."""

from treadle.graph._compiled import CompiledGraph, GraphResult, StateAt
from treadle.graph._control import END, START, Command, Send
from treadle.graph._graph import StateGraph
from treadle.graph._node import NodeContext, Retry, pause
from treadle.graph._run import Run
from treadle.graph._strategy import append, merge, replace
from treadle.graph._stream import EventStream

__all__ = [
    "END",
    "START",
    "Command",
    "CompiledGraph",
    "EventStream",
    "GraphResult",
    "NodeContext",
    "Retry",
    "Run",
    "Send",
    "StateAt",
    "StateGraph",
    "append",
    "merge",
    "pause",
    "replace",
]
