"""Nothing is recorded that cannot be read again, whoever made it: callers, models, tools, decisions, saved states."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.support import agent_of, died_now, read_all, records, results, said, valid_history
from message.test_check import odd, spoiled
from treadle import Approve, Edit, Msg, ReActAgent, Reject, Result
from treadle.errors import DecisionError, FormatError, InputError, MalformedResponseError, ModelError
from treadle.hook import CallTool, ToolCall, around_model, around_tool
from treadle.journal import Journal
from treadle.message import TextBlock, ToolResultBlock, ToolUseBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, Usage
from treadle.testing import tool_call
from treadle.tool import FunctionTool, Tool, ToolContext, ToolResult, tool

# Constructors, for what a type checker would not let through.
make: Any = Msg
respond: Any = ModelResponse
give: Any = ToolResult
edit: Any = Edit
decide: Any = Result
TEXT = TextBlock(text="hi")
ANY: Any = None


class Says(ChatModel):
    """Answers with what it is given, whatever that is."""

    name = "says"

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        yield self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]


# What is given to a call


@pytest.mark.parametrize("content", ["hi", TEXT, [TEXT]], ids=["text", "block", "list"])
async def test_a_message_with_plain_content_is_read_again(content: Any, store: Journal) -> None:
    agent = agent_of(["One.", "Two."], store=store)
    await agent.call(make(role="user", content=content), thread="t")
    other = agent_of(["One.", "Two."])
    other.load_state(died_now(agent, "t"))
    assert said(await valid_history(other)) == ["user: hi", "assistant: One."]


GIVEN: dict[str, Any] = {
    "name": make(role="user", content="hi", name=5),
    "role": make(role="boss", content="hi"),
    "texts in content": make(role="user", content=["hi"]),
    "number": Msg.user(ANY),
    "text": Msg.user(TextBlock(text=ANY)),
    "block": TextBlock(text=ANY),
    "metadata": Msg.user("hi", metadata={"o": object()}),
    "result": ToolResultBlock(id="c", name="f", output=ANY),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
async def test_a_message_that_could_not_be_read_again_is_refused(given: Any, store: Journal) -> None:
    agent = agent_of(["One."], store=store)
    with pytest.raises(InputError, match="cannot be stored: `"):
        await agent.call(given)
    with pytest.raises(InputError, match="cannot be stored: `"):
        await agent.observe(given)
    assert await records(agent) == []
    assert (await agent.call("Hi")).text == "One."


def test_the_message_of_an_interrupt_is_checked_too() -> None:
    with pytest.raises(InputError, match="`name` must be text, not 5"):
        agent_of([]).interrupt(make(role="user", content="Stop.", name=5))


# What the model answers


@pytest.mark.parametrize("content", ["hi", TEXT, [TEXT]], ids=["text", "block", "list"])
async def test_an_answer_in_plain_content_is_taken_as_blocks(content: Any, store: Journal) -> None:
    agent = agent_of(Says(respond(content=content)), store=store)
    reply = await agent.call("Hi")
    assert (reply.content, reply.reason) == ((TEXT,), "answered")
    assert [msg.content for msg in await valid_history(agent)][1] == (TEXT,)


ANSWERS: dict[str, tuple[Any, str]] = {
    "text": (respond(content=(TextBlock(text=ANY),)), "`content[0].text` must be text"),
    "texts": (respond(content=("hi",)), "`content[0]` must be a block"),
    "stop reason": (respond(content="hi", stop_reason="end_turn"), "`stop_reason` must be one of ('stop', 'tool_use'"),
    "no stop reason": (respond(content="hi", stop_reason=["stop"]), "`stop_reason` must be one of"),
    "no usage": (respond(content="hi", usage=None), "`usage` must be a `Usage`, not None"),
    "usage": (respond(content="hi", usage=Usage(input_tokens=ANY)), "`usage.input_tokens` must be a number"),
    "cost": (
        respond(content="hi", usage=dataclasses.replace(Usage(), cost="1$")),
        "`usage.cost` must be a number, not '1$'",
    ),
    "extra": (respond(content=TextBlock(text="hi", extra={"o": object()})), "`content[0].extra` cannot be stored"),
    "metadata": (respond(content="hi", metadata={"o": {1}}), "`metadata` cannot be stored as JSON"),
    "call id": (respond(content=ToolUseBlock(id=ANY, name="f", input={})), "`content[0].id` must be text"),
    "input": (respond(content=ToolUseBlock(id="c", name="f", input=ANY)), "`content[0].input` must be a dict"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_that_makes_no_sense_is_an_error(case: tuple[Any, str], streamed: bool, store: Journal) -> None:
    agent = agent_of(Says(case[0], respond(content="hi")), store=store)
    with pytest.raises(MalformedResponseError) as error:
        await (read_all(agent.stream("Hi")) if streamed else agent.call("Hi"))
    assert "The answer of `says` makes no sense: " + case[1] in str(error.value)
    assert (await agent.call()).text == "hi"
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: hi"]


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS)
async def test_so_is_an_answer_that_a_hook_or_a_subclass_makes(case: tuple[Any, str]) -> None:
    @around_model
    async def instead(request: ModelRequest, call_next: Any) -> ModelResponse:
        await call_next(request)
        return case[0]

    class Own(ReActAgent):
        async def _reasoning(self, request: ModelRequest, run: Any) -> ModelResponse:
            return case[0]

    for agent in (agent_of(["Hi."], hooks=[instead]), Own(name="Own", model=Says())):
        with pytest.raises(MalformedResponseError) as error:
            await agent.call("Hi")
        assert case[1] in str(error.value)
        assert said(await agent.history()) == ["user: Hi"]


async def test_a_subclass_that_returns_no_response_or_no_summary_is_an_error() -> None:
    class Own(ReActAgent):
        async def _reasoning(self, request: ModelRequest, run: Any) -> ModelResponse:
            return ANY

    with pytest.raises(MalformedResponseError, match="must give a `ModelResponse` and gave None"):
        await Own(name="Own", model=Says()).call("Hi")

    class Short(ReActAgent):
        async def _summarizing(self, settled: list[Msg], run: Any) -> tuple[Msg, Usage]:
            return ANY, Usage()

    short = Short(name="Short", model=Says(respond(content=tool_call("f"))), max_iters=1)
    with pytest.raises(MalformedResponseError, match="summary of 'Short' makes no sense: it must be a `Msg`"):
        await short.call("Hi")


# What tools give

RESULTS: dict[str, tuple[ToolResult, tuple[str, str]]] = {
    "number": (give(output=5), ("ok", "5")),
    "list": (give(output=["a", 3]), ("ok", '["a",3]')),
    "status": (give(output="x", status="weird"), ("error", "`status` must be one of")),
    "blocks": (ToolResult(output=(ANY,)), ("error", "`output[0]` must be a block of text or media, not None")),
    "metadata": (ToolResult(output="x", metadata={"o": object()}), ("error", "`metadata` cannot be stored as JSON")),
    "no metadata": (give(output="x", metadata=5), ("error", "`metadata` must be a dict, not 5")),
}


class Gives(Tool):
    name = "f"

    def __init__(self, result: Any) -> None:
        self.result = result

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        return self.result


@pytest.mark.parametrize("way", ["function", "tool", "around_tool"])
@pytest.mark.parametrize("case", RESULTS.values(), ids=RESULTS)
async def test_a_result_that_makes_no_sense_says_so(
    case: tuple[ToolResult, tuple[str, str]], way: str, store: Journal
) -> None:
    @around_tool
    async def instead(call: ToolCall, call_next: CallTool) -> ToolResult:
        return case[0] if way == "around_tool" else await call_next(call)

    def f() -> Any:
        return case[0] if way == "function" else "fine"

    used = Gives(case[0]) if way == "tool" else f
    agent = agent_of([[tool_call("f")], "Done."], used, hooks=[instead], store=store)
    assert (await agent.call("Go.")).text == "Done."
    ((status, text),) = results(await valid_history(agent))
    assert (status, text.startswith("[ERROR] `f` gave a result")) == (case[1][0], case[1][0] == "error")
    assert case[1][1] in text
    agent.load_state(died_now(agent))


# Decisions


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def waits(store: Journal | None = None, **options: Any) -> ReActAgent:
    agent = agent_of([[tool_call("pay", "pay", amount=100)], "Done."], pay, store=store, **options)
    assert (await agent.call("Go.")).reason == "paused"
    return agent


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        ({"seat": "12A"}, "ok", '{"seat":"12A"}'),
        (5, "ok", "5"),
        (None, "ok", ""),
        (["a", TEXT], "ok", "a\nhi"),
        (give(output={"a": 1}, status="rejected"), "rejected", '{"a":1}'),
    ],
    ids=["dict", "number", "nothing", "blocks", "result"],
)
async def test_a_result_is_what_a_tool_may_return(given: Any, status: str, text: str, store: Journal) -> None:
    agent = await waits(store)
    assert (await agent.resume(agent.thread, {"pay": Result(given)})).reason == "answered"
    assert results(await valid_history(agent)) == [(status, text)]


async def test_metadata_of_a_decided_result_is_kept_and_it_may_end_the_run(store: Journal) -> None:
    agent = await waits(store)
    given = ToolResult(output="paid by hand", metadata={"by": "Ann"}, ends_run=True)
    reply = await agent.resume(agent.thread, {"pay": Result(given)})
    assert (reply.reason, reply.text) == ("finished", "paid by hand")
    assert (await valid_history(agent))[2].tool_results[0].metadata == {"by": "Ann", "ends_run": True}


REFUSED: dict[str, tuple[Any, str]] = {
    "result": ({"pay": Result(object())}, "cannot be shown to the model"),
    "inside": ({"pay": Result(give(output=object()))}, "cannot be shown to the model"),
    "status": ({"pay": decide("x", status="weird")}, "`status` must be one of"),
    "metadata": ({"pay": Result(ToolResult(output="", metadata={"o": {1}}))}, "`metadata` cannot be stored"),
    "input": ({"pay": Edit(ANY)}, "`Edit` does not fit call 'pay': `input` must be a dict, not None"),
    "value": ({"pay": Edit({"amount": object()})}, "`input` cannot be stored as JSON"),
    "arguments": ({"pay": Edit({"amount": "lots"})}, "The arguments of `pay` are not valid:\n- `amount`"),
    "reason": ({"pay": Reject(ANY)}, "takes its reason as text, not None"),
    "a list": ([Approve()], "`decisions` is a dict from ids of calls to decisions, not [Approve()]"),
    "a decision": (Approve(), "`decisions` is a dict from ids of calls to decisions, not Approve()"),
    "an empty list": ([], "`decisions` is a dict"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_a_decision_that_makes_no_sense_is_refused_and_the_call_waits_on(
    case: tuple[Any, str], store: Journal
) -> None:
    agent = await waits(store)
    before = await records(agent)
    with pytest.raises(DecisionError) as error:
        await agent.resume(agent.thread, case[0])
    assert case[1] in str(error.value)
    assert await records(agent) == before
    reply = await agent.resume(agent.thread, {"pay": Edit({"amount": "7"})})
    assert (reply.reason, results(await valid_history(agent))) == ("answered", [("ok", "paid 7")])


async def test_an_edit_of_a_call_that_a_sub_agent_makes_is_checked_there() -> None:
    below = agent_of([[tool_call("pay", "pay", amount=1)], "Paid."], pay, name="Clerk")
    agent = agent_of([[tool_call("ask_clerk", "ask", message="Pay.")], "Done."], below.as_tool())
    await agent.call("Go.")
    with pytest.raises(DecisionError, match="`input` must be a dict, not 5"):
        await agent.resume(agent.thread, {"ask/pay": edit(5)})
    await agent.resume(agent.thread, {"ask/pay": Edit({"sum": 5})})
    ((status, text),) = results(await agent.history(f"{agent.thread}/ask"))
    assert (status, "are not valid" in text) == ("error", True)


async def test_a_sub_agents_call_gets_a_result_like_any_other(store: Journal) -> None:
    below = agent_of([[tool_call("pay", "pay", amount=1)], "Paid."], pay, name="Clerk")
    agent = agent_of([[tool_call("ask_clerk", "ask", message="Pay.")], "Done."], below.as_tool(), store=store)
    await agent.call("Go.")
    await agent.resume(agent.thread, {"ask/pay": Result([TEXT])})
    assert results(await agent.history(f"{agent.thread}/ask")) == [("ok", "hi")]


async def test_an_edit_of_the_finish_call_must_fit_the_output() -> None:
    agent = agent_of([["Ok."], "Done."])
    call = tool_call("generate_response", "end", response="x")
    await agent.observe([Msg.user("Go."), Msg.assistant([call])])
    with pytest.raises(DecisionError, match="does not fit call 'end'"):
        await agent.resume(agent.thread, {"end": Edit({"n": "x"})}, output={"type": "object", "required": ["m"]})


async def test_an_answer_to_an_external_call_that_is_no_tool_of_ours_is_not_checked() -> None:
    seat = FunctionTool.from_schema("seat", "Choose", {"type": "object", "required": ["flight"]})
    agent = agent_of(["Done."], seat)
    await agent.observe([Msg.user("Go."), Msg.assistant([tool_call("seat", "s"), tool_call("gone", "g")])])
    reply = await agent.resume(agent.thread, {"s": Edit({"a": 1}), "g": Edit({"a": 1})})
    assert reply.pause is not None
    assert [wish.id for wish in reply.pause.wishes] == ["s"]


# Saved states

BAD_MESSAGE = {"role": "user", "content": "hi"}
BAD_RESULT = {"type": "tool_result", "id": "c", "name": "f", "output": 5}


def saved(*records: Any) -> dict[str, Any]:
    return {"treadle": 1, "records": [{"v": 1, "at": 0.0, **record} for record in records]}


STATES: dict[str, Any] = {
    "nothing": None,
    "text": "{}",
    "list": [1],
    "below": {"treadle": 1, "records": [], "below": [1]},
    "records below": {"treadle": 1, "records": [], "below": {"a": 5}},
    "object": {"treadle": 1, "records": [object()]},
    "message": saved({"kind": "input", "run": "r", "values": {"messages": [BAD_MESSAGE]}}),
    "key": saved({"kind": "input", "run": "r", "values": {"nope": 1}}),
    "result": saved({"kind": "finished", "call": "c", "result": BAD_RESULT}),
    "late result": saved({"kind": "late", "call": "c", "result": BAD_RESULT}),
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
async def test_what_is_no_state_is_refused_and_nothing_is_lost(state: Any, store: Journal) -> None:
    agent = agent_of(["One."], store=store)
    await agent.call("Hi")
    with pytest.raises(FormatError):
        agent.load_state(state)
    assert said(await valid_history(agent)) == ["user: Hi", "assistant: One."]


# Whatever comes, through whichever door


def _response_with(field: str) -> Any:
    async def door(value: Any, **options: Any) -> None:
        async with agent_of(Says(dataclasses.replace(respond(content="hi"), **{field: value})), **options) as agent:
            await agent.call("Hi", thread="t")

    return door


async def _by_call(value: Any, **options: Any) -> None:
    async with agent_of(["One."], **options) as agent:
        await agent.call(value, thread="t")


async def _by_observe(value: Any, **options: Any) -> None:
    async with agent_of(["One."], **options) as agent:
        await agent.observe(value, thread="t")


async def _by_model(value: Any, **options: Any) -> None:
    content = value.content if isinstance(value, Msg) else (value,)
    async with agent_of(Says(respond(content=content)), max_iters=2, **options) as agent:
        await agent.call("Hi", thread="t")


async def _by_tool(value: Any, **options: Any) -> None:
    def f(which: str) -> Any:
        return dataclasses.replace(ToolResult(output="x"), **{which: value})

    calls = [tool_call("f", which=which) for which in ("output", "status", "metadata")]
    async with agent_of([calls, "Done."], f, **options) as agent:
        await agent.call("Hi", thread="t")


async def _by_decision(value: Any, **options: Any) -> None:
    async with agent_of([[tool_call("pay", "pay", amount=1)], "Done."], pay, **options) as agent:
        await agent.call("Hi", thread="t")
        for decision in (Edit(value), Reject(value), Result("x", status=value), Result(value)):
            with suppress(DecisionError):
                await agent.resume("t", {"pay": decision})


RESPONSES = [_response_with(field) for field in ("content", "stop_reason", "usage", "metadata")]
DOORS = [_by_call, _by_observe, _by_model, _by_tool, _by_decision, *RESPONSES]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(door=st.sampled_from(DOORS), value=spoiled() | odd)
async def test_nothing_makes_a_stored_thread_unreadable(door: Any, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'runs.db'}"
        with suppress(InputError, ModelError):  # and nothing else
            await door(value, store=store)
        async with agent_of(["One."] * 9, store=store) as agent:
            await agent.history("t")
            assert (await agent.call("And now?", thread="t")).text == "One."
