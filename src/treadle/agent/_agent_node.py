"""An agent as a node of a graph."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from treadle.agent._input import storable
from treadle.errors import StateError
from treadle.graph import NodeContext
from treadle.graph._child import as_mapping
from treadle.graph._key import Key
from treadle.graph._strategy import merge, replace
from treadle.message import Msg
from treadle.message._codec import as_msgs

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase
    from treadle.agent._reply import Reply


def agent_node(
    agent: ReActAgentBase, output_key: str | None
) -> Callable[[Any, NodeContext], Awaitable[Mapping[str, Any]]]:
    """A node function: asks the agent with the state's `input` or `messages`, writes its reply under a key."""

    async def node(state: Any, context: NodeContext) -> Mapping[str, Any]:
        messages = _input_of(state, agent.name)
        key = _key_for(context, output_key, agent.name)
        held = as_mapping(context.run.state.view()).get(key.name)
        reply = await agent.run_child(context.run, context.task_id, context.task.node, messages)
        return {key.name: _value(key, held, reply)}

    return node


def _input_of(state: Any, name: str) -> list[Msg]:
    values = as_mapping(state)
    given = values.get("input") or values.get("messages")
    if isinstance(given, str):
        return [Msg.user(given)]
    if isinstance(given, Msg):
        return [storable(given)]
    if isinstance(given, Sequence) and given:
        return [_as_msg(item) for item in cast("Sequence[Any]", given)]
    raise StateError(f"Agent {name!r} reads the state's `input` or `messages`, and neither has anything in it.")


def _as_msg(item: Any) -> Msg:
    return storable(as_msgs([item])[0]) if _is_msg(item) else Msg.user(str(item))


def _is_msg(item: Any) -> bool:
    """Whether this is a message, or what a state without types keeps of one."""
    return isinstance(item, Msg) or (isinstance(item, Mapping) and "role" in item and "content" in item)


def _key_for(context: NodeContext, output_key: str | None, agent: str) -> Key:
    """The key for the reply; that there is none, or that it takes none, is found out before the model is asked."""
    schema = context.run.state.schema
    name = output_key or ("messages" if "messages" in schema.keys else agent)
    try:
        key = schema.key(name)
    except StateError as error:
        raise StateError(f"Agent {agent!r} cannot write its reply: {error} Name one of them as `output_key`.") from None
    if key.strategy is merge or not (key.of_msg or key.of_msg_list or key.takes_text()):
        raise StateError(
            f"Agent {agent!r} cannot write its reply under `{name}`, which takes neither a message nor text; "
            "name another key as `output_key`."
        )
    return key


def _value(key: Key, held: Any, reply: Reply[Any]) -> Any:
    """The reply as an update of its key: a message, structured output or text; added to a list that is replaced."""
    items = cast("Sequence[Any]", held) if isinstance(held, Sequence) and not isinstance(held, str | bytes) else None
    if key.of_msg_list and (items is not None or not key.of_msg):
        return [*(items or ()), reply.as_msg()] if key.strategy is replace else [reply.as_msg()]
    if key.of_msg:
        return reply.as_msg()
    said: Any = reply.text if reply.output is None else reply.output
    if items is None or key.annotation is not Any:
        return said
    said = reply.as_msg() if any(map(_is_msg, items)) else said
    return [*items, said] if key.strategy is replace else said
