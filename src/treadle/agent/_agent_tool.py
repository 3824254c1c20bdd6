"""An agent as a tool of another agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from treadle.message import Msg
from treadle.message._codec import to_jsonable
from treadle.model import Usage
from treadle.tool import Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from treadle.agent._react import ReActAgentBase
    from treadle.graph._run import Run


class AgentTool(Tool):
    """Asks an agent, on a thread derived from the call's id; repeating the call takes that thread up again."""

    idempotent = True

    def __init__(self, agent: ReActAgentBase, *, name: str | None = None, description: str | None = None) -> None:
        self.agent = agent
        self.name = name or f"ask_{_identifier(agent.name)}"
        self.description = description or agent.description or f"Give a task to the agent {agent.name}."
        self.parameters = {
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "The task, with everything it takes to do it."}
            },
            "required": ["message"],
            "additionalProperties": False,
        }

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Run the agent, or go on with its run, and return its answer."""
        parent = cast("Run", ctx.host)
        messages = [Msg.user(str(arguments["message"]), name=ctx.agent or "user")]
        reply = await self.agent.run_child(parent, ctx.call_id, self.name, messages, ctx.context)
        metadata = {"reason": reply.reason, "thread": reply.thread, "usage": to_jsonable(reply.usage)}
        if reply.reason == "interrupted":
            text = f"[ERROR] `{self.name}` was interrupted before it was done. Its last words: {reply.text or '(none)'}"
            return ToolResult(output=text, status="interrupted", metadata=metadata)
        return ToolResult(output=reply.text, metadata=metadata)


def spent_by(metadata: Mapping[str, Any] | None) -> Usage:
    """What the sub-agent behind a result used; a hook may have taken that out of the result."""
    noted: Any = (metadata or {}).get("usage")
    try:
        return Usage(**cast("Mapping[str, Any]", noted)) if isinstance(noted, Mapping) else Usage()
    except TypeError:
        return Usage()


def _identifier(name: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in name).strip("_").lower() or "agent"
