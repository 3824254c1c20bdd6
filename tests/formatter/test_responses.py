"""OpenAI's Responses format: requests and answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from formatter.loopback import read_stream, sse
from formatter.responses_samples import (
    ADD,
    ANSWER,
    BEFORE_THE_END,
    CALLS,
    EVENTS,
    MESSAGE,
    OUTPUT,
    PART,
    PDF,
    PLAIN,
    PNG,
    PROFILE,
    REASONING,
    begun,
    body,
    call,
    ended,
    event,
    pieces,
    response,
    thought,
)
from treadle import Msg
from treadle.errors import (
    BadRequestError,
    ContentRefusedError,
    ContextWindowError,
    InputError,
    MalformedResponseError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from treadle.formatter._responses import OpenAIResponsesFormatter
from treadle.message import (
    AudioBlock,
    Block,
    FileBlock,
    ImageBlock,
    PathSource,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
    msg_from_json,
    msg_to_json,
)
from treadle.model import ModelProfile, ModelRequest, ModelResponse, TextDelta, ThinkingDelta, ToolCallDelta, ToolChoice

# Requests


@dataclass(frozen=True)
class Case:
    name: str
    block: Block
    part: dict[str, Any]


MEDIA = (
    Case(
        "image url",
        ImageBlock(source=URLSource(url="https://x.org/a.png")),
        {"type": "input_image", "image_url": "https://x.org/a.png", "detail": "auto"},
    ),
    Case(
        "image bytes",
        ImageBlock(source=PNG),
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
    ),
    Case(
        "file url",
        FileBlock(source=URLSource(url="https://x.org/a.pdf")),
        {"type": "input_file", "file_url": "https://x.org/a.pdf"},
    ),
    Case(
        "file bytes",
        FileBlock(source=PDF, name="a.pdf"),
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
    ),
    Case(
        "file as a data url",
        FileBlock(source=URLSource(url="data:application/pdf;base64,BBBB")),
        {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,BBBB"},
    ),
)


@pytest.mark.parametrize("case", MEDIA, ids=lambda case: case.name)
def test_media_in_messages_and_in_results(case: Case) -> None:
    assert isinstance(case.block, ImageBlock | FileBlock)
    assert body(Msg.user([TextBlock(text="see"), case.block]))["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"}, case.part]}
    ]
    result = ToolResultBlock(id="c1", name="add", output=(TextBlock(text="see"), case.block))
    assert body(Msg.tool(result))["input"] == [
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "see"}, case.part]}
    ]
    with pytest.raises(InputError, match="does not take"):
        body(Msg.user([case.block]), profile=ModelProfile())


@pytest.mark.parametrize("block", [AudioBlock(source=PNG), VideoBlock(source=PNG), call("c1")], ids=lambda b: b.type)
def test_what_the_provider_does_not_take_is_refused_before_sending(block: Block) -> None:
    with pytest.raises(InputError, match=block.type):
        body(Msg.user([block]))
    if not isinstance(block, ToolUseBlock):
        with pytest.raises(InputError, match=block.type):
            body(Msg.assistant([block]))


def test_a_file_is_read_when_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(b"GIF")
    content = body(Msg.user([ImageBlock(source=PathSource(path=str(path)))]))["input"][0]["content"]
    assert content == [{"type": "input_image", "image_url": "data:image/gif;base64,R0lG", "detail": "auto"}]


def test_a_whole_request() -> None:
    sent = body(
        Msg.system("Be brief."),
        Msg.system("Be kind."),
        Msg.user("q"),
        Msg.assistant([TextBlock(text="I add."), call("c1", a=1)]),
        Msg.tool(ToolResultBlock(id="c1", name="add", output="[ERROR] no", status="error")),
        Msg.system("Now."),
        tools=[ADD],
        tool_choice=ToolChoice(),
        stream=True,
    )
    assert sent == {
        "model": "gpt-5-mini",
        "instructions": "Be brief.\n\nBe kind.",
        "input": [
            {"type": "message", "role": "user", "content": "q"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I add.", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "[ERROR] no"},
            {"type": "message", "role": "system", "content": "Now."},
        ],
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add.",
                "parameters": ADD.parameters,
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(name="add"), {"type": "function", "name": "add"}),
    ],
)
def test_the_choice_among_tools(choice: ToolChoice, sent: Any) -> None:
    assert body(Msg.user("q"), tools=[ADD], tool_choice=choice)["tool_choice"] == sent
    assert "tool_choice" not in body(Msg.user("q"), tool_choice=choice)


def test_options_win_and_lists_are_joined() -> None:
    options: dict[str, Any] = {
        "store": True,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "tools": [{"type": "web_search"}],
    }
    sent = body(Msg.user("q"), tools=[ADD], options=options)
    assert sent["store"] is True
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    assert sent["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert [tool["type"] for tool in sent["tools"]] == ["function", "web_search"]
    assert "include" not in body(Msg.user("q"), profile=PLAIN)


def kinds(*blocks: Block) -> list[tuple[Any, Any]]:
    return [(item["type"], item.get("id")) for item in body(Msg.assistant(blocks))["input"]]


def test_reasoning_goes_back_only_with_what_it_led_to() -> None:
    own = call("c1", extra={"id": "call_1", "item_id": "fc_1"})
    said = TextBlock(text="a", extra={"item_id": "msg_1"})
    secret = thought("rs_1", encrypted_content="E")
    assert kinds(secret, own) == [("reasoning", "rs_1"), ("function_call", "fc_1")]
    assert kinds(secret, said) == [("reasoning", "rs_1"), ("message", "msg_1")]
    assert kinds(secret, thought("rs_2", encrypted_content="F"), own)[:2] == [
        ("reasoning", "rs_1"),
        ("reasoning", "rs_2"),
    ]
    # nothing follows; nothing that the provider could read; somebody else's
    assert kinds(said, secret) == [("message", None)]
    assert kinds(thought("rs_1"), own, said) == [("function_call", None), ("message", None)]
    assert kinds(ThinkingBlock(thinking="hm", extra={"signature": "x"}), own) == [("function_call", None)]
    # an open model's reasoning is readable as it is; a hosted tool's item counts as what follows
    assert kinds(thought("rs_1", content=[{"type": "reasoning_text", "text": "hm"}]), own)[0] == ("reasoning", "rs_1")
    search = ThinkingBlock(thinking="", extra={"item": {"type": "web_search_call", "id": "ws_1"}})
    assert kinds(secret, search) == [("reasoning", "rs_1"), ("web_search_call", "ws_1")]


def test_text_parts_of_one_message_go_back_in_one() -> None:
    extra = {"item_id": "msg_1", "phase": "commentary"}
    blocks = [
        thought("rs_1", encrypted_content="E"),
        TextBlock(text="a", extra=extra),
        TextBlock(text="b", extra={**extra, "refusal": True}),
        TextBlock(text="c", extra={"item_id": "msg_2"}),
    ]
    assert body(Msg.assistant(blocks))["input"][1:] == [
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "a", "annotations": []},
                {"type": "refusal", "refusal": "b"},
            ],
        },
        {
            "type": "message",
            "id": "msg_2",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c", "annotations": []}],
        },
    ]


def test_formatting_again_gives_the_same() -> None:
    formatter = OpenAIResponsesFormatter()
    said = Msg.assistant([thought("rs_1", encrypted_content="E"), call("c1", extra={"id": "p1", "item_id": "fc_1"})])
    request = ModelRequest(messages=[said, Msg.tool(ToolResultBlock(id="c1", name="add", output="2"))])
    bodies = [formatter.body(request, model="m", profile=PROFILE, stream=False) for _ in range(3)]
    assert bodies[0] == bodies[1] == bodies[2]
    assert [item.get("call_id") for item in bodies[0]["input"]] == [None, "p1", "p1"]


@pytest.mark.parametrize(
    ("extras", "wire"),
    [
        (({"id": "p1", "item_id": "fc_1"}, {"id": "p2", "item_id": "fc_2"}), ["p1", "p2"]),
        (({"id": "p", "item_id": "fc_1"}, {"id": "p", "item_id": "fc_2"}), ["p", "c2"]),
        (({"id": "toolu_1"}, None), ["c1", "c2"]),
    ],
)
def test_results_are_matched_by_treadles_ids(extras: Any, wire: list[str]) -> None:
    calls = Msg.assistant([call("c1", extras[0]), call("c2", extras[1])])
    results = [ToolResultBlock(id="c2", name="add", output="2"), ToolResultBlock(id="c1", name="add", output="1")]
    sent = body(calls, Msg.tool(results))["input"]
    assert [item["call_id"] for item in sent[:2]] == wire
    assert [(item["call_id"], item["output"]) for item in sent[2:]] == [(wire[1], "2"), (wire[0], "1")]


# Answers


def read(*events: dict[str, Any]) -> tuple[list[Any], ModelResponse]:
    return read_stream(OpenAIResponsesFormatter(), sse(events, named=True))


def test_an_answer_that_was_not_streamed() -> None:
    assert OpenAIResponsesFormatter().response(response(*OUTPUT)) == ANSWER


def test_a_stream_gives_the_same_answer_and_its_pieces() -> None:
    deltas, answer = read(*EVENTS)
    assert answer == ANSWER
    assert deltas == [
        ThinkingDelta("Let ", 0),
        ThinkingDelta("me", 0),
        ThinkingDelta("\n\nsee.", 0),
        TextDelta("Hé", 1),
        TextDelta("llo 🎉", 1),
        ToolCallDelta("", 2, "call_1", "add"),
        ToolCallDelta("", 3, "call_2", "add"),
        ToolCallDelta('{"a": 1, "t', 2, "call_1"),
        ToolCallDelta('": "\\u00', 2, "call_1"),
        ToolCallDelta("{}", 3, "call_2"),
        ToolCallDelta('e9\\n"}', 2, "call_1"),
    ]


def test_a_stream_may_be_cut_at_every_byte() -> None:
    whole = sse(EVENTS, named=True)
    expected = read_stream(OpenAIResponsesFormatter(), whole)
    for at in range(len(whole)):
        assert read_stream(OpenAIResponsesFormatter(), whole[:at], whole[at:]) == expected
    assert read_stream(OpenAIResponsesFormatter(), *(whole[at : at + 1] for at in range(len(whole)))) == expected


def test_a_stream_that_ends_early_is_an_error_with_what_had_come() -> None:
    partials: list[str] = []
    for end in range(len(EVENTS)):
        with pytest.raises(MalformedResponseError, match="end marker") as caught:
            read(*EVENTS[:end])
        partials.append(caught.value.partial)
    assert sorted(set(partials)) == ["", "Hé", "Héllo 🎉"]


def test_a_last_event_without_output_is_filled_from_the_items_or_their_pieces() -> None:
    """Some servers leave out the output at the end, and some the items' ends too."""
    last = event("response.completed", response=response())
    assert read(*BEFORE_THE_END, last, event("unknown"))[1] == ANSWER
    rest = [one for one in BEFORE_THE_END if one["type"] != "response.output_item.done"]
    unfinished = ThinkingBlock(
        thinking="Let me\n\nsee.",
        extra={"item": {**REASONING, "encrypted_content": "unfinished", "content": []}},
    )
    assert read(*rest, last)[1] == replace(ANSWER, content=(unfinished, *ANSWER.content[1:]))


def test_pieces_without_beginnings_are_read_too() -> None:
    _, answer = read(
        *pieces("reasoning_text", ["hm"], output_index=0, content_index=0),
        *pieces("output_text", ["a"], output_index=1, content_index=0),
        event("response.completed", response=response()),
    )
    assert [type(block) for block in answer.content] == [ThinkingBlock, TextBlock]
    assert answer.content[1] == TextBlock(text="a")


def test_items_that_come_whole_are_shown_as_one_piece_each() -> None:
    events = [ended(place, item) for place, item in enumerate(OUTPUT)]
    deltas, answer = read(*events, event("response.completed", response=response(*OUTPUT)))
    assert answer == ANSWER
    assert deltas == [
        ThinkingDelta("Let me\n\nsee.", 0),
        TextDelta("Héllo 🎉", 1),
        ToolCallDelta('{"a": 1, "t": "\\u00e9\\n"}', 2, "call_1", "add"),
        ToolCallDelta("{}", 3, "call_2", "add"),
    ]


def test_arguments_that_come_only_at_their_end_are_shown_once() -> None:
    done = event("response.function_call_arguments.done", output_index=0, arguments=CALLS[0]["arguments"])
    last = event("response.completed", response=response(CALLS[0]))
    deltas, answer = read(begun(0, CALLS[0], arguments=""), done, ended(0, CALLS[0]), last)
    assert [delta.arguments for delta in deltas] == ["", CALLS[0]["arguments"]]
    assert answer.content == (ANSWER.content[2],)


def test_readable_reasoning_of_open_models() -> None:
    item = {
        **REASONING,
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "summary": [],
        "encrypted_content": None,
    }
    last = event("response.completed", response=response(item))
    where = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    deltas, answer = read(begun(0, item), *pieces("reasoning_text", ["h", "m"], **where), ended(0, item), last)
    assert deltas == [ThinkingDelta("h", 0), ThinkingDelta("m", 0)]
    kept = {key: value for key, value in item.items() if key != "encrypted_content"}
    assert answer.content == (ThinkingBlock(thinking="hm", extra={"item": kept}),)
    assert answer == OpenAIResponsesFormatter().response(response(item))


def test_a_refusal_is_text_that_says_so() -> None:
    item = {**MESSAGE, "content": [{"type": "refusal", "refusal": "I will not."}]}
    last = event("response.completed", response=response(item))
    deltas, answer = read(begun(0, item, content=[]), *pieces("refusal", ["I will", " not."], **PART), last)
    assert deltas == [TextDelta("I will", 0), TextDelta(" not.", 0)]
    assert answer == OpenAIResponsesFormatter().response(response(item))
    assert answer.stop_reason == "refused"
    assert Msg.assistant(answer.content).text == "I will not."


def test_items_of_hosted_tools_come_back_as_they_were() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    searching = event("response.web_search_call.searching", output_index=1, item_id="ws_1")
    last = event("response.completed", response=response(REASONING, search, MESSAGE))
    deltas, answer = read(begun(0, REASONING), begun(1, search), searching, ended(1, search), ended(2, MESSAGE), last)
    assert deltas == [TextDelta("Héllo 🎉", 2)]
    assert body(Msg.assistant(answer.content))["input"][:2] == [REASONING, search]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", "length"), ("content_filter", "refused"), ("something new", "length"), (None, "length")],
)
def test_answers_that_were_cut(reason: str | None, stop: str) -> None:
    cut = {**CALLS[0], "status": "incomplete", "arguments": '{"a": 1'}
    whole = response(cut, status="incomplete", incomplete_details={"reason": reason})
    deltas, answer = read(
        begun(0, cut, arguments=""),
        *pieces("function_call_arguments", ['{"a": 1'], output_index=0),
        ended(0, cut),
        event("response.incomplete", response=whole),
    )
    assert answer == OpenAIResponsesFormatter().response(whole)
    assert answer.stop_reason == stop
    assert answer.content == (
        ToolUseBlock(id="", name="add", input={}, raw='{"a": 1', extra={"id": "call_1", "item_id": "fc_1"}),
    )
    assert len(deltas) == 2


def test_an_answer_of_nothing_is_an_answer() -> None:
    empty = response(usage=None)
    assert OpenAIResponsesFormatter().response(empty) == ModelResponse(content=(), id="resp_1")
    assert read(event("response.completed", response=empty))[1] == ModelResponse(content=(), id="resp_1")


ERRORS: list[tuple[dict[str, Any], type[ModelError]]] = [
    ({"code": "server_error", "message": "m"}, ServerError),
    ({"code": "rate_limit_exceeded", "message": "m"}, RateLimitError),
    ({"code": "vector_store_timeout", "message": "m"}, ModelTimeoutError),
    ({"code": "context_length_exceeded", "message": "m"}, ContextWindowError),
    ({"code": "invalid_image_url", "message": "m"}, BadRequestError),
    ({"code": "invalid_prompt", "message": "m"}, ContentRefusedError),
    ({"code": "bio_policy", "message": "m"}, ContentRefusedError),
    ({"code": None, "message": "m"}, ServerError),
    ({"code": None, "type": "invalid_request_error", "message": "m"}, BadRequestError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=str)
def test_errors_inside_a_200(error: dict[str, Any], kind: type[ModelError]) -> None:
    failed = response(status="failed", error=error)
    for events in (
        [event("error", **{**error, "type": "error"})] if "type" not in error else [],
        [event("error", error=error)],
        [event("response.failed", response=failed)],
    ):
        if events:
            with pytest.raises(kind) as caught:
                read(*EVENTS[:12], *events)
            assert type(caught.value) is kind
    with pytest.raises(kind):
        OpenAIResponsesFormatter().response(failed)


def test_answers_that_make_no_sense() -> None:
    for data in ({}, {"output": None}, response(status="in_progress"), response(status="cancelled")):
        with pytest.raises(MalformedResponseError):
            OpenAIResponsesFormatter().response(data)
    with pytest.raises(ServerError):
        OpenAIResponsesFormatter().response(response(status="failed"))
    with pytest.raises(MalformedResponseError, match="end marker"):
        read_stream(OpenAIResponsesFormatter(), b"data: [DONE]\n\n")


def test_a_conversation_of_several_steps_goes_back_as_it_came() -> None:
    """Whatever the model said, stored and read again, is sent in the very items that it came in."""
    messages = [Msg.user("q")]
    expected: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "q"}]
    for step in range(3):
        reasoning = {**REASONING, "id": f"rs_{step}", "encrypted_content": f"E{step}=="}
        function = {**CALLS[0], "id": f"fc_{step}", "call_id": f"call_{step}", "arguments": f'{{"a":{step}}}'}
        said = OpenAIResponsesFormatter().response(response(reasoning, function)).content
        named = [replace(item, id=f"c{step}") if isinstance(item, ToolUseBlock) else item for item in said]
        messages.append(msg_from_json(msg_to_json(Msg.assistant(named))))
        messages.append(Msg.tool(ToolResultBlock(id=f"c{step}", name="add", output=str(step))))
        expected += [
            reasoning,
            {key: value for key, value in function.items() if key != "status"},
            {"type": "function_call_output", "call_id": f"call_{step}", "output": str(step)},
        ]
    assert body(*messages)["input"] == expected
