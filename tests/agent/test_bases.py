"""What every agent can do, what subclasses may override, and a person as an agent."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import pytest

from agent.support import agent_of, names, said, valid_history
from treadle import Msg, ReActAgent, UserAgent
from treadle.agent import AgentBase, ReActAgentBase
from treadle.errors import InputError
from treadle.event import Event, PrePrintEvent
from treadle.graph import END, START, StateGraph, append
from treadle.hook import Hook, ToolCall, pre_print
from treadle.message import TextBlock
from treadle.model import ModelRequest, ModelResponse, Usage
from treadle.testing import ScriptedModel, tool_call
from treadle.tool import ToolResult


class Keeper(Hook):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.wrapped: list[str] = []

    async def on_event(self, event: Event) -> None:
        self.seen += names([event])

    async def around_tool(self, call: ToolCall, call_next: Any) -> ToolResult:
        self.wrapped.append(call.call.name)
        return await call_next(call)


class Custom(ReActAgent):
    """Thinks and acts by itself."""

    async def _reasoning(self, request: ModelRequest, run: Any) -> ModelResponse:
        if len(request.messages) == 1:
            return ModelResponse(content=(tool_call("add", a=1, b=2),), stop_reason="tool_use")
        return ModelResponse(content=(TextBlock(text=f"After {len(request.messages)} messages."),))

    async def _acting(self, call: ToolCall, run: Any) -> ToolResult:
        if call.input["a"] < 0:
            raise ValueError("negative")
        return ToolResult(output=f"{call.call.name} by hand")

    async def _summarizing(self, settled: list[Msg], run: Any) -> tuple[Msg, Usage]:
        return Msg.assistant("By hand.", name=self.name), Usage(requests=7)


def add(a: int, b: int) -> int:
    return a + b


async def test_overridden_reasoning_and_acting_have_their_hooks_all_the_same() -> None:
    keeper = Keeper()
    agent = Custom(name="Custom", model=ScriptedModel([]), toolkit=[add], hooks=[keeper])
    reply = await agent.call("Go.")
    assert reply.text == "After 3 messages."
    assert said(await valid_history(agent))[2] == "tool: add by hand"
    once = ["PreReasoning", "ReasoningChunk", "PostReasoning"]
    assert keeper.seen == ["RunStarted", "PreCall", *once, "PreActing", "PostActing", *once, "PostCall", "RunEnded"]
    assert keeper.wrapped == ["add"]


async def test_overridden_summarizing_is_used_at_the_limit() -> None:
    agent = Custom(name="Custom", model=ScriptedModel([]), toolkit=[add], max_iters=1)
    reply = await agent.call("Go.")
    assert (reply.text, reply.reason, reply.usage.requests) == ("By hand.", "max_iters", 8)
    await valid_history(agent)


async def test_what_an_overridden_acting_raises_is_an_error_result() -> None:
    agent = Custom(name="Custom", model=ScriptedModel([]), toolkit=[add])
    await agent.call([Msg.user("Go."), Msg.assistant(tool_call("add", "one", a=-1, b=2))])
    assert said(await valid_history(agent))[2] == "tool: [ERROR] `add` failed: ValueError: negative"


def test_the_bases_cannot_be_made_without_their_parts() -> None:
    with pytest.raises(TypeError):
        AgentBase(name="x")  # type: ignore[abstract]
    with pytest.raises(TypeError):
        ReActAgentBase(name="x", model=ScriptedModel([]))  # type: ignore[abstract]


async def test_reply_is_call_on_the_private_thread() -> None:
    agent = agent_of(["Hello."])
    assert (await agent.reply("Hi")).text == "Hello."
    assert len(await valid_history(agent)) == 2


class Echo(AgentBase):
    """The smallest agent."""

    async def reply(self, msg: Any = None) -> Msg:
        return msg

    async def observe(self, msg: Msg | list[Msg]) -> None:
        pass


async def test_every_agent_can_be_interrupted_saved_and_loaded() -> None:
    agent = Echo(name="Echo")
    await agent.interrupt()
    state = agent.save_state()
    agent.load_state(state)
    assert repr(agent) == "Echo(name='Echo')"


async def test_print_hooks_change_what_is_shown_and_not_what_is_stored() -> None:
    @pre_print
    async def shout(event: PrePrintEvent) -> None:
        event.message = Msg.assistant(event.message.text.upper(), name=event.message.name)

    console = io.StringIO()
    agent = agent_of(["Hello."], hooks=[shout], console=console)
    assert (await agent.call("Hi")).text == "Hello."
    assert console.getvalue() == "Agent: HELLO.\n"
    assert said(await valid_history(agent))[-1] == "assistant: Hello."


def test_a_model_must_be_a_model() -> None:
    wrong: Any = 7
    with pytest.raises(InputError, match="ChatModel"):
        ReActAgent(name="x", model=wrong)
    with pytest.raises(InputError, match="provider:name"):
        ReActAgent(name="x", model="gpt-5-mini")
    assert ReActAgent(name="x", model="openai:gpt-5-mini").model.name == "gpt-5-mini"


def test_the_loop_can_be_drawn() -> None:
    drawing = agent_of(["Hi."]).mermaid()
    for node in ("before_agent", "model", "tools", "summarize"):
        assert node in drawing


class State(TypedDict):
    messages: Annotated[list[Msg], append]


async def test_an_agent_is_a_node_of_a_graph() -> None:
    graph = StateGraph(State)
    graph.add_node("one", agent_of(["From one."], name="One"))
    graph.add_node("two", agent_of(["From two."], name="Two"))
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", END)
    result = await graph.compile().invoke({"messages": [Msg.user("Hi")]})
    assert [msg.text for msg in result["messages"]] == ["Hi", "From one.", "From two."]


# A person as an agent


async def lines(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def ask() -> str:
    await asyncio.sleep(0)
    return "From a coroutine."


SOURCES: list[tuple[Any, str]] = [
    (lambda: "From a function.", "From a function."),
    (lambda: Msg.user("A message.", name="Ada"), "A message."),
    (ask, "From a coroutine."),
]


@pytest.mark.parametrize(("source", "text"), SOURCES, ids=["function", "message", "coroutine"])
async def test_a_person_answers_from_any_source(source: Any, text: str) -> None:
    user = UserAgent(name="Ada", source=source)
    reply = await user.call()
    assert (reply.text, reply.role, reply.name) == (text, "user", "Ada")


async def test_a_person_answers_line_by_line_until_there_is_no_more() -> None:
    user = UserAgent(source=lines("One", "Two"))
    assert [(await user.reply()).text, (await user.reply()).text] == ["One", "Two"]
    with pytest.raises(InputError, match="'user' has no more input"):
        await user.reply()


async def test_a_person_answers_from_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "Typed."

    monkeypatch.setattr("builtins.input", read)
    assert (await UserAgent(prompt="you> ").call()).text == "Typed."
    assert prompts == ["you> "]


async def test_the_end_of_the_terminal_is_the_end_of_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", read)
    with pytest.raises(InputError, match="no more input"):
        await UserAgent().call()


async def test_a_person_is_shown_what_others_say() -> None:
    console = io.StringIO()
    user = UserAgent(name="Ada", source=lambda: "Fine.", console=console)
    await user.call(Msg.assistant("How are you?", name="Bob"))
    await user.observe([Msg.assistant("Good.", name="Bob"), Msg.assistant("Bye.", name="Bob")])
    await user.call("Plain text.")
    assert console.getvalue() == "Bob: How are you?\nBob: Good.\nBob: Bye.\nuser: Plain text.\n"


async def test_a_person_and_an_agent_talk_to_each_other() -> None:
    user = UserAgent(name="Ada", source=lines("Hi", "Bye"))
    agent = agent_of(["Hello.", "See you."])
    reply: Msg | None = None
    for _ in range(2):
        reply = await agent.call(await user.call(reply))
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: Hello.", "user: Bye", "assistant: See you."]
