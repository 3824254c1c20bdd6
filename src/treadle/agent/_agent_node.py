"""An agent as a node of a graph."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from treadle.errors import StateError
from treadle.graph import NodeContext
from treadle.graph._child import as_mapping
from treadle.graph._strategy import append
from treadle.message import Msg

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase
    from treadle.agent._reply import Reply


def agent_node(
    agent: ReActAgentBase, output_key: str | None
) -> Callable[[Any, NodeContext], Awaitable[Mapping[str, Any]]]:
    """A node function: asks the agent with the state's `input` or `messages`, writes its reply under a key."""

    async def node(state: Any, context: NodeContext) -> Mapping[str, Any]:
        messages = _input_of(state, agent.name)
        reply = await agent.run_child(context.run, context.task_id, context.task.node, messages)
        key = output_key or ("messages" if "messages" in context.run.state.schema.keys else agent.name)
        return {key: _value(context, key, reply)}

    return node


def _input_of(state: Any, name: str) -> list[Msg]:
    values = as_mapping(state)
    given = values.get("input") or values.get("messages")
    if isinstance(given, str):
        return [Msg.user(given)]
    if isinstance(given, Msg):
        return [given]
    if isinstance(given, Sequence) and given:
        items = cast("Sequence[Any]", given)
        return [item if isinstance(item, Msg) else Msg.user(str(item)) for item in items]
    raise StateError(f"Agent {name!r} reads the state's `input` or `messages`, and neither has anything in it.")


def _value(context: NodeContext, key: str, reply: Reply[Any]) -> Any:
    """The reply in the form that the key takes: messages, structured output, or text."""
    found = context.run.state.schema.key(key)
    if found.of_msgs:
        return [reply.as_msg()] if found.strategy is append else reply.as_msg()
    return reply.text if reply.output is None else reply.output
