"""Structured output: the finish tool of a run, and answers of every wanted type."""

from __future__ import annotations

import asyncio
import datetime
import enum
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field

from agent.support import agent_of, died_now, names, read_all, said, script_of, valid_history
from treadle import Approve, Msg, Reply, Toolkit
from treadle.errors import InputError, OutputError, TreadleError
from treadle.event import PostReasoningEvent
from treadle.hook import post_reasoning
from treadle.journal import Journal
from treadle.message import ToolUseBlock
from treadle.model import ModelProfile, ModelRequest
from treadle.testing import ScriptedModel, Turn, tool_call
from treadle.tool import tool

FINISH = "generate_response"


class Invoice(BaseModel):
    number: str
    total: float = Field(ge=0)


@dataclass
class Place:
    city: str
    zip: int | None = None


class Film(TypedDict):
    title: str
    year: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: datetime.date
    pair: tuple[int, int]


class Anything(BaseModel):
    note: str = "nothing"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@dataclass(frozen=True)
class Wanted:
    name: str
    type: Any
    arguments: dict[str, Any]
    output: Any
    wrong: dict[str, Any]


WANTED = [
    Wanted(
        "pydantic", Invoice, {"number": "1", "total": 2}, Invoice(number="1", total=2), {"number": "1", "total": -2}
    ),
    Wanted("dataclass", Place, {"city": "Rome"}, Place("Rome"), {"zip": 1}),
    Wanted(
        "TypedDict", Film, {"title": "M", "year": 1931}, {"title": "M", "year": 1931}, {"title": "M", "year": "old"}
    ),
    Wanted("JSON schema", SCHEMA, {"n": 1}, {"n": 1}, {"n": "one"}),
    Wanted(
        "JSON schema of a list",
        {"type": "array", "items": {"type": "integer"}},
        {"response": [1]},
        [1],
        {"response": ["a"]},
    ),
    Wanted("list", list[int], {"response": [1, 2]}, [1, 2], {"response": "none"}),
    Wanted("number", int, {"response": 7}, 7, {}),
    Wanted("text", str, {"response": "hi"}, "hi", {"response": 7}),
    Wanted("literal", Literal["yes", "no"], {"response": "yes"}, "yes", {"response": "maybe"}),
    Wanted("enum", Colour, {"response": "red"}, Colour.RED, {"response": "green"}),
    Wanted("union", Place | Film, {"response": {"city": "Rome"}}, Place("Rome"), {"response": {}}),
    Wanted(
        "strict",
        Strict,
        {"day": "2024-02-29", "pair": [1, 2]},
        Strict(day=datetime.date(2024, 2, 29), pair=(1, 2)),
        {"day": 1},
    ),
    Wanted("all defaults", Anything, {}, Anything(), {"note": 1}),
]


@pytest.mark.parametrize("case", WANTED, ids=lambda case: case.name)
async def test_the_finish_call_gives_typed_output_and_errors_go_back_to_the_model(case: Wanted, store: Journal) -> None:
    agent = agent_of([[tool_call(FINISH, **case.wrong)], [tool_call(FINISH, **case.arguments)], "Plain."], store=store)
    reply = await agent.call("Well?", output=case.type)
    assert (reply.output, reply.reason) == (case.output, "finished")
    assert type(reply.output) is type(case.output)
    history = await valid_history(agent)
    wrong, right = (msg.tool_results[0] for msg in history if msg.tool_results)
    assert (wrong.status, right.status) == ("error", "ok")
    assert "does not fit the schema" in wrong.text
    first = script_of(agent).requests[0]
    assert [spec.name for spec in first.tools] == [FINISH]
    reply = await agent.call("And now plainly.")
    assert (reply.text, reply.output, reply.reason) == ("Plain.", None, "answered")
    assert list(script_of(agent).requests[-1].tools) == []


async def test_output_is_typed_for_the_checker_too() -> None:
    reply: Reply[Invoice] = await agent_of([[tool_call(FINISH, number="1", total=2)]]).call("Well?", output=Invoice)
    assert reply.output.total == 2
    assert reply.text == '{"number": "1", "total": 2}'


async def test_the_text_of_a_reply_is_the_response_where_that_is_all() -> None:
    reply = await agent_of([[tool_call(FINISH, response="All is well.")]]).call("Well?", output=str)
    assert (reply.text, reply.output) == ("All is well.", "All is well.")


# Text instead of a finish call


@dataclass(frozen=True)
class Text:
    name: str
    text: str
    type: Any
    output: Any


TEXTS = [
    Text("JSON", '{"number": "1", "total": 2}', Invoice, Invoice(number="1", total=2)),
    Text("fenced JSON", '```json\n{"number": "1", "total": 2}\n```', Invoice, Invoice(number="1", total=2)),
    Text("bare list", "[1, 2]", list[int], [1, 2]),
    Text("wrapped list", '{"response": [1, 2]}', list[int], [1, 2]),
    Text("plain text where text is wanted", "All is well.", str, "All is well."),
    Text("text that happens to be JSON", "42", str, "42"),
    Text("a word of a literal", "yes", Literal["yes", "no"], "yes"),
]


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
async def test_text_that_is_the_answer_is_taken_as_the_answer(case: Text) -> None:
    agent = agent_of([case.text])
    reply = await agent.call("Well?", output=case.type)
    assert (reply.output, reply.reason, len(script_of(agent).requests)) == (case.output, "finished", 1)
    assert said(await valid_history(agent)) == ["user: Well?", f"assistant: {case.text}"]


async def test_text_becomes_the_response_of_a_schema_that_has_one() -> None:
    class Seed(BaseModel):
        response: str
        mood: str = "calm"

    reply = await agent_of(["All is well."]).call("Well?", output=Seed)
    assert reply.output == Seed(response="All is well.")


@pytest.mark.parametrize("mode", ["tool_choice", "prompt"])
@pytest.mark.parametrize("able", [True, False], ids=["can be forced", "cannot be forced"])
async def test_other_text_is_reminded_by_forced_choice_or_by_prompt(mode: Any, able: bool) -> None:
    model = ScriptedModel(
        ["It is 2.", [tool_call(FINISH, number="1", total=2)], "Plain."],
        profile=ModelProfile(forced_tool_choice=able),
    )
    agent = agent_of(model, output_reminder=mode)
    reply = await agent.call("Well?", output=Invoice)
    assert reply.output == Invoice(number="1", total=2)
    first, second = model.requests
    assert first.tool_choice is None
    assert (second.tool_choice is not None) == (mode == "tool_choice" and able)
    if second.tool_choice is not None:
        assert (second.tool_choice.mode, second.tool_choice.name) == ("required", FINISH)
    assert FINISH in second.messages[-1].text
    await agent.call("Thanks.")
    assert model.requests[-1].tool_choice is None
    history = await valid_history(agent)
    assert said(history)[1] == "assistant: It is 2."
    assert not any(f"`{FINISH}`" in msg.text for msg in [*history, *model.requests[-1].messages])


async def test_reminders_are_bounded_and_the_thread_stays_usable() -> None:
    def last(request: ModelRequest) -> str:
        return "It is 2." if FINISH in request.messages[-1].text else "Plain."

    agent = agent_of([*["It is 2."] * 3, last])
    with pytest.raises(OutputError, match=r"reminded 3 times; its last answer: 'It is 2\.'"):
        await agent.call("Well?", output=Invoice)
    await valid_history(agent)
    assert (await agent.call("Plainly.")).text == "Plain."


async def test_reminders_count_as_iterations() -> None:
    agent = agent_of(["It is 2.", "Summary."], max_iters=1)
    reply = await agent.call("Well?", output=Invoice)
    assert (reply.reason, reply.text, reply.output) == ("max_iters", "Summary.", None)
    await valid_history(agent)


async def test_an_empty_answer_is_reminded_too() -> None:
    agent = agent_of(["", [tool_call(FINISH, number="1", total=2)]])
    assert (await agent.call("Well?", output=Invoice)).output == Invoice(number="1", total=2)
    await valid_history(agent)


async def test_output_that_was_cut_off_is_no_output() -> None:
    agent = agent_of([Turn(content='{"number": "1", "total": 2', stop_reason="length")])
    reply = await agent.call("Well?", output=Invoice)
    assert (reply.reason, reply.output) == ("length", None)


async def test_a_finish_call_whose_arguments_are_no_json_is_told_so() -> None:
    broken = ToolUseBlock(id="", name=FINISH, input={}, raw='{"note": "x')
    agent = agent_of([[broken], [tool_call(FINISH, note="y")]])
    assert (await agent.call("Well?", output=Anything)).output == Anything(note="y")
    assert "not a JSON object" in said(await valid_history(agent))[2]


# Beside other calls


async def test_calls_beside_the_finish_call_run_before_it() -> None:
    log: list[str] = []

    def save() -> str:
        log.append("saved")
        return "ok"

    agent = agent_of([[tool_call(FINISH, number="1", total=2), tool_call("save")]], save)
    reply = await agent.call("Well?", output=Invoice)
    assert (reply.output, log) == (Invoice(number="1", total=2), ["saved"])
    assert said(await valid_history(agent))[2:] == ["tool: Done.", "tool: ok"]


async def test_a_finish_call_waits_for_an_approval_beside_it(store: Journal) -> None:
    agent = agent_of(
        [[tool_call(FINISH, number="1", total=2), tool_call("pay", "pay")]],
        tool(lambda: "paid", name="pay", approval=True),
        store=store,
    )
    assert (await agent.call("Well?", output=Invoice)).reason == "paused"
    reply = await agent.resume(agent.thread, {"pay": Approve()}, output=Invoice)
    assert reply.output == Invoice(number="1", total=2)
    await valid_history(agent)


async def test_without_the_type_a_resumed_turn_gives_checked_json(store: Journal) -> None:
    agent = agent_of(
        [
            [tool_call("pay", "pay")],
            [tool_call(FINISH, number="1", total=-2)],
            [tool_call(FINISH, number="1", total=2)],
        ],
        tool(lambda: "paid", name="pay", approval=True),
        store=store,
    )
    await agent.call("Well?", output=Invoice)
    other = agent_of(script_of(agent), toolkit=agent.toolkit, store=store)
    other.load_state(died_now(agent))
    reply = await other.resume(other.thread, {"pay": Approve()})
    assert (reply.output, reply.reason) == ({"number": "1", "total": 2}, "finished")
    await valid_history(other)


async def test_two_finish_calls_give_the_first_answer_and_each_has_a_result() -> None:
    calls = [tool_call(FINISH, number="1", total=1), tool_call(FINISH, number="2", total=2)]
    agent = agent_of([calls])
    reply = await agent.call("Well?", output=Invoice)
    assert reply.output == Invoice(number="1", total=1)
    assert said(await valid_history(agent))[2:] == ["tool: Done.", "tool: [ERROR] The answer was given already."]


async def test_goto_reasoning_from_a_hook_refines_the_answer() -> None:
    asked = [1]

    @post_reasoning
    async def once_more(event: PostReasoningEvent) -> None:
        if asked:
            asked.pop()
            event.goto_reasoning([Msg.user("Check the total.")])

    agent = agent_of(
        [[tool_call(FINISH, number="1", total=1)], [tool_call(FINISH, number="1", total=2)]], hooks=[once_more]
    )
    reply = await agent.call("Well?", output=Invoice)
    assert reply.output == Invoice(number="1", total=2)
    assert said(await valid_history(agent))[2:4] == [
        "tool: [ERROR] Not run: the model is asked again.",
        "user: Check the total.",
    ]


# One run's business


async def test_agents_that_share_a_toolkit_and_a_model_can_want_different_outputs_at_once() -> None:
    both = asyncio.Barrier(2)

    async def answer(request: ModelRequest) -> Any:
        await both.wait()
        (spec,) = [spec for spec in request.tools if spec.name == FINISH]
        fields: dict[str, Any] = (
            {"number": "1", "total": 2} if "total" in spec.parameters["properties"] else {"city": "Rome"}
        )
        return [tool_call(FINISH, **fields)]

    toolkit = Toolkit([tool(lambda: "x", name="other")])
    model = ScriptedModel([answer])
    one, two = (agent_of(model, toolkit=toolkit, name=name) for name in ("One", "Two"))
    replies = await asyncio.gather(one.call("Well?", output=Invoice), two.call("Well?", output=Place))
    assert [reply.output for reply in replies] == [Invoice(number="1", total=2), Place("Rome")]
    assert [spec.name for spec in toolkit.specs()] == ["other"]
    await valid_history(one)
    await valid_history(two)


async def test_one_agent_can_want_different_outputs_on_two_threads_at_once() -> None:
    both = asyncio.Barrier(2)

    async def answer(request: ModelRequest) -> Any:
        await both.wait()
        return [tool_call(FINISH, number="1", total=2, city="Rome")]

    agent = agent_of([answer])
    one, two = await asyncio.gather(
        agent.call("Well?", output=Invoice, thread="a"), agent.call("Well?", output=Place, thread="b")
    )
    assert (one.output, two.output) == (Invoice(number="1", total=2), Place("Rome"))


async def test_a_tool_that_has_the_name_of_the_finish_tool_is_refused_where_it_matters() -> None:
    agent = agent_of(["Hello.", [tool_call("done", number="1", total=2)]], tool(lambda: "x", name=FINISH))
    assert (await agent.call("Hi")).text == "Hello."
    with pytest.raises(InputError, match="finish_name"):
        await agent.call("Well?", output=Invoice)
    agent.finish_name = "done"
    assert (await agent.call("Well?", output=Invoice)).output == Invoice(number="1", total=2)
    await valid_history(agent)


@pytest.mark.parametrize(
    "wanted",
    [object(), {"type": "nonsense"}, {"type": "object", "properties": 7}],
    ids=["no type", "unknown type", "broken"],
)
async def test_an_output_without_a_schema_is_refused_at_once(wanted: Any) -> None:
    agent = agent_of(["Never."])
    with pytest.raises(TreadleError):
        await agent.call("Well?", output=wanted)
    assert script_of(agent).requests == []
    assert await agent.journal.read(agent.thread) == []


async def test_a_finish_call_is_shown_as_text_and_as_a_call_only_when_it_failed() -> None:
    import io

    console = io.StringIO()
    agent = agent_of([[tool_call(FINISH, response=7)], [tool_call(FINISH, response="All is well.")]], console=console)
    await agent.call("Well?", output=str)
    lines = console.getvalue().splitlines()
    assert lines[-1] == "Agent: All is well."
    assert any("does not fit the schema" in line for line in lines)
    assert not any("Done." in line for line in lines)


async def test_streaming_gives_the_same_output() -> None:
    script = ["It is 2.", [tool_call(FINISH, number="1", total=2)]]
    agent = agent_of(script)
    stream = agent.stream("Well?", output=Invoice)
    assert names(await read_all(stream))[-1] == "RunEnded"
    assert (await stream.result()).output == Invoice(number="1", total=2)
