"""Gemini's format: requests and answers."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from formatter.gemini_samples import ADD, ANSWER, CALLS, CHUNKS, PNG, SIGNS, WHOLE, body, call, chunk
from formatter.loopback import read_stream, sse
from treadle import Msg
from treadle.errors import (
    BadRequestError,
    ContentRefusedError,
    InputError,
    MalformedResponseError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from treadle.formatter._gemini import GeminiFormatter
from treadle.message import (
    AudioBlock,
    Base64Source,
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
from treadle.model import ModelProfile, ModelResponse, TextDelta, ThinkingDelta, ToolCallDelta, ToolChoice, ToolSpec

# Requests


@dataclass(frozen=True)
class Case:
    name: str
    block: Block
    part: dict[str, Any]


USER_PARTS = (
    Case("text", TextBlock(text="hi"), {"text": "hi"}),
    Case("image bytes", ImageBlock(source=PNG), {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
    Case(
        "image url",
        ImageBlock(source=URLSource(url="https://x.org/a.jpg?s=1")),
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x.org/a.jpg?s=1"}},
    ),
    Case(
        "data url",
        ImageBlock(source=URLSource(url="data:image/webp;base64,BBBB")),
        {"inlineData": {"mimeType": "image/webp", "data": "BBBB"}},
    ),
    Case(
        "audio",
        AudioBlock(source=Base64Source(data="AAAA", media_type="audio/mp3")),
        {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
    ),
    Case(
        "video",
        VideoBlock(source=URLSource(url="https://youtu.be/abc")),
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/abc"}},
    ),
    Case(
        "file",
        FileBlock(source=URLSource(url="https://x.org/files/7"), name="a.pdf"),
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x.org/files/7"}},
    ),
)


@pytest.mark.parametrize("case", USER_PARTS, ids=lambda case: case.name)
def test_parts_of_a_user_message(case: Case) -> None:
    assert body(Msg.user([case.block])) == {"contents": [{"role": "user", "parts": [case.part]}]}


def test_a_file_is_read_when_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(b"GIF")
    parts = body(Msg.user([ImageBlock(source=PathSource(path=str(path)))]))["contents"][0]["parts"]
    assert parts == [{"inlineData": {"mimeType": "image/gif", "data": base64.b64encode(b"GIF").decode()}}]
    with pytest.raises(InputError, match="cannot be read"):
        body(Msg.user([ImageBlock(source=PathSource(path=str(tmp_path / "none.gif")))]))


@pytest.mark.parametrize("case", USER_PARTS[1:], ids=lambda case: case.name)
def test_media_that_the_model_does_not_take_are_refused_before_sending(case: Case) -> None:
    with pytest.raises(InputError, match="does not take"):
        body(Msg.user([case.block]), profile=ModelProfile())


def test_a_call_is_no_part_of_a_user_message() -> None:
    with pytest.raises(InputError, match="tool_use"):
        body(Msg.user([call("c1")]))


ANSWER_PARTS = (
    Case("text", TextBlock(text="hi"), {"text": "hi"}),
    Case(
        "signed text",
        TextBlock(text="hi", extra={"thoughtSignature": "S+/="}),
        {"text": "hi", "thoughtSignature": "S+/="},
    ),
    Case("thought", ThinkingBlock(thinking="hm", extra={"thought": True}), {"text": "hm", "thought": True}),
    Case(
        "signed thought",
        ThinkingBlock(thinking="hm", extra={"thought": True, "thoughtSignature": "S"}),
        {"text": "hm", "thought": True, "thoughtSignature": "S"},
    ),
    Case(
        "signature alone",
        ThinkingBlock(thinking="", extra={"thoughtSignature": "S"}),
        {"text": "", "thoughtSignature": "S"},
    ),
    Case(
        "signed call",
        call("c1", extra={"id": "g1", "thoughtSignature": "S"}, a=1),
        {"functionCall": {"id": "g1", "name": "add", "args": {"a": 1}}, "thoughtSignature": "S"},
    ),
    Case("call without id", call("c1", a=1), {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1}}}),
    Case(
        "picture",
        ImageBlock(source=PNG, extra={"thoughtSignature": "S"}),
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thoughtSignature": "S"},
    ),
    Case(
        "a part of another kind",
        ThinkingBlock(thinking="", extra={"part": {"executableCode": {"code": "1"}, "thoughtSignature": "S"}}),
        {"executableCode": {"code": "1"}, "thoughtSignature": "S"},
    ),
)


@pytest.mark.parametrize("case", ANSWER_PARTS, ids=lambda case: case.name)
def test_parts_of_an_answer(case: Case) -> None:
    assert body(Msg.assistant([case.block])) == {"contents": [{"role": "model", "parts": [case.part]}]}


def test_thinking_of_another_provider_and_empty_text_are_left_out() -> None:
    foreign = ThinkingBlock(thinking="hm", extra={"signature": "other"})
    sent = body(Msg.user("q"), Msg.assistant([foreign, TextBlock(text="")]), Msg.user("r"))
    assert sent["contents"] == [{"role": "user", "parts": [{"text": "q"}, {"text": "r"}]}]


def test_results_of_one_step_are_in_one_content_in_front_of_their_media() -> None:
    image = (TextBlock(text="see"), ImageBlock(source=PNG))
    sent = body(
        Msg.system("Be brief."),
        Msg.user("q"),
        Msg.assistant([call("c1", a=1), call("c2", "look")]),
        Msg.tool(ToolResultBlock(id="c1", name="add", output=image)),
        Msg.tool(ToolResultBlock(id="c2", name="look", output="[ERROR] no", status="error")),
        Msg.system("Be kind."),
    )
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]}
    assert [content["role"] for content in sent["contents"]] == ["user", "model", "user"]
    assert sent["contents"][2]["parts"] == [
        {"functionResponse": {"id": "c1", "name": "add", "response": {"output": "see"}}},
        {"functionResponse": {"id": "c2", "name": "look", "response": {"error": "[ERROR] no"}}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
    ]


def test_ids_that_the_provider_repeats_are_replaced_on_both_sides() -> None:
    sent = body(
        Msg.assistant([call("c1", extra={"id": "same"}), call("c2", extra={"id": "same"})]),
        Msg.tool([ToolResultBlock(id="c2", name="add", output="2"), ToolResultBlock(id="c1", name="add", output="1")]),
    )
    calls, results = (content["parts"] for content in sent["contents"])
    assert [part["functionCall"]["id"] for part in calls] == ["same", "c2"]
    assert [(part["functionResponse"]["id"], part["functionResponse"]["response"]) for part in results] == [
        ("c2", {"output": "2"}),
        ("same", {"output": "1"}),
    ]


def test_calls_of_another_model_are_signed_where_that_is_asked_for() -> None:
    foreign = Msg.assistant([call("c1"), call("c2")])
    parts = body(foreign, profile=SIGNS)["contents"][0]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["skip_thought_signature_validator", None]
    own = Msg.assistant([call("c1", extra={"thoughtSignature": "S"}), call("c2")])
    parts = body(own, profile=SIGNS)["contents"][0]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["S", None]
    assert "thoughtSignature" not in body(foreign)["contents"][0]["parts"][0]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(), {"mode": "AUTO"}),
        (ToolChoice(mode="required"), {"mode": "ANY"}),
        (ToolChoice(mode="none"), {"mode": "NONE"}),
        (ToolChoice(name="add"), {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_tools_and_the_choice_among_them(choice: ToolChoice, config: dict[str, Any]) -> None:
    bare = ToolSpec(name="now", description="Time.", parameters={"type": "object", "properties": {}})
    sent = body(Msg.user("q"), tools=[ADD, bare], tool_choice=choice)
    assert sent["tools"] == [
        {
            "functionDeclarations": [
                {"name": "add", "description": "Add.", "parametersJsonSchema": ADD.parameters},
                {"name": "now", "description": "Time."},
            ]
        }
    ]
    assert sent["toolConfig"] == {"functionCallingConfig": config}


def test_options_go_to_their_place() -> None:
    options: dict[str, Any] = {
        "temperature": 0.5,
        "thinkingConfig": {"includeThoughts": True},
        "generationConfig": {"seed": 1, "temperature": 1},
        "safetySettings": [],
        "tools": [{"googleSearch": {}}],
        "toolConfig": {"includeServerSideToolInvocations": True},
    }
    sent = body(Msg.user("q"), tools=[ADD], tool_choice=ToolChoice(), options=options)
    assert sent["generationConfig"] == {"temperature": 0.5, "thinkingConfig": {"includeThoughts": True}, "seed": 1}
    assert sent["safetySettings"] == []
    assert [list(tool) for tool in sent["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert sent["toolConfig"] == {
        "functionCallingConfig": {"mode": "AUTO"},
        "includeServerSideToolInvocations": True,
    }


# Answers


def test_an_answer_that_was_not_streamed() -> None:
    assert GeminiFormatter().response(WHOLE) == ANSWER


def test_a_stream_gives_the_same_answer_and_its_pieces() -> None:
    deltas, answer = read_stream(GeminiFormatter(), sse(CHUNKS))
    assert answer == ANSWER
    assert deltas == [
        ThinkingDelta("Let me ", 0),
        ThinkingDelta("see.", 0),
        TextDelta("Héllo ", 1),
        TextDelta("wörld 🎉", 1),
        ToolCallDelta('{"a":1,"t":"é\\n"}', 2, "g1", "add"),
        ToolCallDelta("{}", 3, None, "add"),
    ]


def test_a_stream_may_be_cut_at_every_byte() -> None:
    whole = sse(CHUNKS)
    expected = read_stream(GeminiFormatter(), whole)
    for at in range(len(whole)):
        assert read_stream(GeminiFormatter(), whole[:at], whole[at:]) == expected
    assert read_stream(GeminiFormatter(), *(whole[at : at + 1] for at in range(len(whole)))) == expected


def test_a_stream_that_ends_early_is_an_error_with_what_had_come() -> None:
    for end in range(len(CHUNKS)):
        with pytest.raises(MalformedResponseError) as caught:
            read_stream(GeminiFormatter(), sse(CHUNKS[:end]))
        assert caught.value.partial == {0: "", 1: "", 2: "", 3: "", 4: "Héllo "}.get(end, "Héllo wörld 🎉")


def test_text_after_a_signature_is_a_block_of_its_own_and_a_signature_alone_adds_no_text() -> None:
    parts = (
        {"text": "", "thoughtSignature": "S0"},
        {"text": "a", "thoughtSignature": "c2lnMQ=="},
        {"text": "b"},
        {"text": "c", "thought": True},
        {"text": "d"},
    )
    answer = GeminiFormatter().response(chunk(*parts, finish="STOP"))
    assert answer.content == (
        ThinkingBlock(thinking="", extra={"thoughtSignature": "S0"}),
        TextBlock(text="a", extra={"thoughtSignature": "c2lnMQ=="}),
        TextBlock(text="b"),
        ThinkingBlock(thinking="c", extra={"thought": True}),
        TextBlock(text="d"),
    )
    assert body(Msg.assistant(answer.content))["contents"][0]["parts"] == list(parts)
    assert Msg.assistant(answer.content).text == "a\nb\nd"


@pytest.mark.parametrize(
    ("kind", "block"), [("image", ImageBlock), ("audio", AudioBlock), ("video", VideoBlock), ("application", FileBlock)]
)
def test_media_in_an_answer(kind: str, block: Any) -> None:
    part = {"inlineData": {"mimeType": f"{kind}/x", "data": "AAAA"}, "thoughtSignature": "S"}
    answer = GeminiFormatter().response(chunk(part, finish="STOP"))
    source = Base64Source(data="AAAA", media_type=f"{kind}/x")
    assert answer.content == (block(source=source, extra={"thoughtSignature": "S"}),)
    assert body(Msg.assistant(answer.content))["contents"][0]["parts"] == [part]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}, "thoughtSignature": "S"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thought": True},
    ],
)
def test_parts_of_other_kinds_come_back_as_they_were(part: dict[str, Any]) -> None:
    answer = GeminiFormatter().response(chunk(part, {"text": "1"}, finish="STOP"))
    assert answer.content[1] == TextBlock(text="1")
    assert body(Msg.assistant(answer.content))["contents"][0]["parts"] == [part, {"text": "1"}]


def test_arguments_that_are_no_object_are_kept_raw() -> None:
    part = {"functionCall": {"name": "add", "args": [1]}}
    assert GeminiFormatter().response(chunk(part, finish="STOP")).content == (
        ToolUseBlock(id="", name="add", input={}, raw="[1]"),
    )


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "stop"),
        ("OTHER", "stop"),
        ("MAX_TOKENS", "length"),
        *((reason, "refused") for reason in ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII")),
        *((reason, "refused") for reason in ("PROHIBITED_CONTENT", "IMAGE_SAFETY", "IMAGE_RECITATION")),
    ],
)
def test_reasons_to_stop(reason: str, stop: str) -> None:
    assert GeminiFormatter().response(chunk({"text": "a"}, finish=reason)).stop_reason == stop
    nothing = {"candidates": [{"finishReason": reason}]}
    assert GeminiFormatter().response(nothing) == ModelResponse(content=(), stop_reason=stop)  # type: ignore[arg-type]


def test_calls_of_an_answer_that_was_cut_do_not_hide_that() -> None:
    assert GeminiFormatter().response(chunk(CALLS[0], finish="MAX_TOKENS")).stop_reason == "length"


@dataclass(frozen=True)
class Broken:
    name: str
    data: dict[str, Any]
    error: type[ModelError]
    match: str


BROKEN = (
    Broken("no candidate", {"candidates": []}, MalformedResponseError, "no candidate"),
    Broken("nothing", {}, MalformedResponseError, "no candidate"),
    Broken("no reason", chunk({"text": "a"}), MalformedResponseError, "without a finish reason"),
    Broken("malformed", chunk(finish="MALFORMED_FUNCTION_CALL"), MalformedResponseError, "MALFORMED_FUNCTION_CALL"),
    Broken(
        "unexpected",
        {"candidates": [{"finishReason": "UNEXPECTED_TOOL_CALL", "finishMessage": "no such tool"}]},
        MalformedResponseError,
        "no such tool",
    ),
    Broken("unsigned", chunk(finish="MISSING_THOUGHT_SIGNATURE"), BadRequestError, "signature"),
    Broken("blocked", {"promptFeedback": {"blockReason": "SAFETY"}}, ContentRefusedError, "SAFETY"),
    Broken("busy", {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, OverloadedError, "busy"),
    Broken("limit", {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}, RateLimitError, "m"),
)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_answers_that_are_errors(case: Broken) -> None:
    with pytest.raises(case.error, match=case.match):
        GeminiFormatter().response(case.data)
    with pytest.raises(case.error, match=case.match):
        read_stream(GeminiFormatter(), sse([case.data]))


def test_an_event_that_is_not_json_is_an_error() -> None:
    with pytest.raises(MalformedResponseError, match="not JSON"):
        read_stream(GeminiFormatter(), b"data: {\n\n")


def test_a_conversation_of_several_steps_goes_back_as_it_came() -> None:
    """Whatever the model said, stored and read again, is sent in the very parts that it came in."""
    messages = [Msg.user("q")]
    turns: list[list[dict[str, Any]]] = []
    for step in range(3):
        parts: list[dict[str, Any]] = [
            {"text": f"thought {step}", "thought": True},
            {"text": f"text {step}", "thoughtSignature": f"T{step}=="},
            {"functionCall": {"id": f"g{step}", "name": "add", "args": {"a": step}}, "thoughtSignature": f"C{step}=="},
            {"functionCall": {"id": f"h{step}", "name": "add", "args": {"a": -step}}},
        ]
        turns.append(parts)
        said = GeminiFormatter().response(chunk(*parts, finish="STOP")).content
        named = [
            replace(item, id=f"c{step}{i}") if isinstance(item, ToolUseBlock) else item for i, item in enumerate(said)
        ]
        messages.append(msg_from_json(msg_to_json(Msg.assistant(named))))
        messages.append(
            Msg.tool([ToolResultBlock(id=item.id, name="add", output=item.id) for item in messages[-1].tool_calls])
        )
    contents = body(*messages)["contents"]
    assert [content["parts"] for content in contents[1::2]] == turns
    for step, content in enumerate(contents[2::2]):
        assert [part["functionResponse"] for part in content["parts"]] == [
            {"id": f"g{step}", "name": "add", "response": {"output": f"c{step}2"}},
            {"id": f"h{step}", "name": "add", "response": {"output": f"c{step}3"}},
        ]
