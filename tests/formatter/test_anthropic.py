"""Anthropic's Messages: what is sent, to the letter."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import (
    InputError,
)
from treadle.formatter._anthropic import AnthropicFormatter
from treadle.formatter._anthropic_blocks import wire_id
from treadle.message import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    Msg,
    PathSource,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from treadle.model import (
    ModelProfile,
    ModelRequest,
    ToolChoice,
    ToolSpec,
)
from treadle.model._profiles import profile_of

PLAIN = ModelProfile(images=True, files=True, forced_choice_with_thinking=False)
CACHING = ModelProfile(prompt_caching=True)
PNG = base64.b64encode(b"\x89PNG").decode()
PDF = base64.b64encode(b"%PDF-").decode()
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
ADD_WIRE = {"name": "add", "description": "Add.", "input_schema": ADD.parameters}
MARK = {"cache_control": {"type": "ephemeral"}}


def body_of(*messages: Msg, profile: ModelProfile = PLAIN, stream: bool = False, **request: Any) -> dict[str, Any]:
    asked = ModelRequest(messages=messages, **request)
    return AnthropicFormatter().body(asked, model="claude-x", profile=profile, stream=stream)


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def call(id: str, **input: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name="add", input=input)


def result(id: str, output: Any = "3", **fields: Any) -> ToolResultBlock:
    return ToolResultBlock(id=id, name="add", output=output, **fields)


CALL = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
HI, HI_WIRE = Msg.user("Hi"), user(words("Hi"))
ASK = (HI, Msg.assistant(call("c1", a=1)))
ASK_WIRE = (HI_WIRE, assistant(CALL))


# What is sent: messages


@dataclass(frozen=True)
class Case:
    name: str
    messages: Sequence[Msg]
    wire: Sequence[Mapping[str, Any]]
    system: Sequence[Mapping[str, Any]] | None = None


def told(name: str, block: Block, wire: Mapping[str, Any]) -> Case:
    return Case(name, [Msg.user(block)], [user(dict(wire))])


def answered(name: str, block: ToolResultBlock, **wire: Any) -> Case:
    expected = {"type": "tool_result", "tool_use_id": "c1", **wire}
    return Case(name, [*ASK, Msg.tool(block)], [*ASK_WIRE, user(expected)])


def thought(extra: Mapping[str, Any] | None, *wire: dict[str, Any], text: str = "hm") -> Case:
    said = Msg.assistant([ThinkingBlock(thinking=text, extra=extra), TextBlock(text="So."), call("c1", a=1)])
    told = [HI_WIRE, assistant(*wire, words("So."), CALL), user({"type": "tool_result", "tool_use_id": "c1"})]
    return Case(f"thinking {text!r} {extra}", [HI, said, Msg.tool(result("c1", ""))], told)


IMAGE = {"type": "base64", "media_type": "image/png", "data": PNG}
CASES = [
    Case("text", [HI], [HI_WIRE]),
    Case("system is hoisted", [Msg.system("Be kind."), HI], [HI_WIRE], [words("Be kind.")]),
    Case("all of it", [Msg.system("A"), HI, Msg.system([TextBlock(text="B")])], [HI_WIRE], [words("A"), words("B")]),
    Case("blank text is dropped", [Msg.user([TextBlock(text=" \n"), TextBlock(text="Hi")])], [HI_WIRE]),
    Case("empty messages are dropped", [HI, Msg.assistant(""), Msg.user("there")], [user(words("Hi"), words("there"))]),
    Case(
        "one role, one turn",
        [HI, Msg.assistant("a"), Msg.assistant("b"), HI, HI],
        [HI_WIRE, assistant(words("a"), words("b")), user(words("Hi"), words("Hi"))],
    ),
    Case("nothing at all", [], [user(words("Continue."))]),
    Case(
        "assistant last",
        [HI, Msg.assistant("Well ")],
        [HI_WIRE, assistant(words("Well ")), user(words("Continue."))],
    ),
    Case(
        "assistant first",
        [Msg.assistant("Hello!"), HI],
        [user(words("(The conversation starts here.)")), assistant(words("Hello!")), HI_WIRE],
    ),
    told(
        "image bytes",
        ImageBlock(source=Base64Source(data=PNG, media_type="image/png")),
        {"type": "image", "source": IMAGE},
    ),
    told(
        "image url",
        ImageBlock(source=URLSource(url="https://x/y.svg")),
        {"type": "image", "source": {"type": "url", "url": "https://x/y.svg"}},
    ),
    told(
        "image data url",
        ImageBlock(source=URLSource(url=f"data:image/png;base64,{PNG}")),
        {"type": "image", "source": IMAGE},
    ),
    told(
        "pdf bytes",
        FileBlock(source=Base64Source(data=PDF, media_type="application/pdf"), name="a.pdf"),
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            "title": "a.pdf",
        },
    ),
    told(
        "pdf url",
        FileBlock(source=URLSource(url="https://x/paper")),
        {"type": "document", "source": {"type": "url", "url": "https://x/paper"}},
    ),
    told(
        "text file",
        FileBlock(source=Base64Source(data=base64.b64encode("é".encode()).decode(), media_type="text/markdown")),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é"}},
    ),
    answered("a result", result("c1"), content="3"),
    answered("an empty result", result("c1", "")),
    answered("an error", result("c1", "boom", status="error"), is_error=True, content="boom"),
    answered("rejected", result("c1", "", status="rejected"), is_error=True, content="rejected"),
    answered(
        "a result with an image",
        result(
            "c1",
            (
                TextBlock(text="see"),
                TextBlock(text=""),
                ImageBlock(source=Base64Source(data=PNG, media_type="image/png")),
            ),
        ),
        content=[words("see"), {"type": "image", "source": IMAGE}],
    ),
    Case(
        "parallel results are one message, before what else is said",
        [HI, Msg.assistant([call("c1", a=1), call("c2")]), HI, Msg.tool(result("c1")), Msg.tool(result("c2"))],
        [
            HI_WIRE,
            assistant(CALL, {**CALL, "id": "c2", "input": {}}),
            user(
                {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "3"},
                words("Hi"),
            ),
        ],
    ),
    Case(
        "ids that do not fit",
        [HI, Msg.assistant(call("a:b", a=1)), Msg.tool(result("a:b"))],
        [
            HI_WIRE,
            assistant({**CALL, "id": wire_id("a:b")}),
            user({"type": "tool_result", "tool_use_id": wire_id("a:b"), "content": "3"}),
        ],
    ),
    thought({"signature": "s=="}, {"type": "thinking", "thinking": "hm", "signature": "s=="}),
    thought({"signature": "s"}, {"type": "thinking", "thinking": "", "signature": "s"}, text=""),
    thought({"redacted_thinking": "x+/="}, {"type": "redacted_thinking", "data": "x+/="}, text=""),
    thought(None),
    thought({"thought_signature": "another provider's"}),
    Case(
        "thinking at the end is left out",
        [HI, Msg.assistant([TextBlock(text="a"), ThinkingBlock(thinking="b", extra={"signature": "s"})]), HI],
        [HI_WIRE, assistant(words("a")), HI_WIRE],
    ),
    Case("a user has no thinking", [Msg.user([ThinkingBlock(thinking="b"), TextBlock(text="Hi")])], [HI_WIRE]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages_on_the_wire(case: Case) -> None:
    calls = any(part["type"] == "tool_use" for turn in case.wire for part in turn["content"])
    expected: dict[str, Any] = {"model": "claude-x", "max_tokens": 4096}
    if calls:
        expected |= {"tools": [ADD_WIRE]}
    if case.system is not None:
        expected["system"] = list(case.system)
    body = body_of(*case.messages, tools=[ADD] if calls else [])
    assert body == {**expected, "messages": list(case.wire)}
    json.dumps(body)


def test_a_file_on_disk_is_sent_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-")
    (tmp_path / "b.json").write_text('{"a": 1}')
    blocks = [FileBlock(source=PathSource(path=str(tmp_path / name))) for name in ("a.pdf", "b.json")]
    sources = [part["source"] for part in body_of(Msg.user(blocks))["messages"][0]["content"]]
    assert sources == [
        {"type": "base64", "media_type": "application/pdf", "data": PDF},
        {"type": "text", "media_type": "text/plain", "data": '{"a": 1}'},
    ]


PICTURE = ImageBlock(source=URLSource(url="https://x/y.png"))


@pytest.mark.parametrize(
    ("msg", "says"),
    [
        (Msg.user(AudioBlock(source=URLSource(url="https://x/a.wav"))), "does not take audio"),
        (Msg.user(VideoBlock(source=URLSource(url="https://x/a.mp4"))), "does not take video"),
        (Msg.user(ImageBlock(source=Base64Source(data="", media_type="image/tiff"))), "'image/tiff'"),
        (Msg.user(FileBlock(source=Base64Source(data="", media_type="application/zip"))), "'application/zip'"),
        (Msg.user(FileBlock(source=URLSource(url="https://x/a.txt"))), "'text/plain' by URL"),
        (Msg.user(call("c")), "`tool_use`"),
        (Msg.assistant(PICTURE), "`image`"),
        (Msg.system(PICTURE), "`image`"),
    ],
)
def test_what_cannot_be_sent_is_an_error_before_sending(msg: Msg, says: str) -> None:
    with pytest.raises(InputError, match=says):
        body_of(msg)


@pytest.mark.parametrize("block", [PICTURE, FileBlock(source=URLSource(url="https://x/a.pdf"))])
def test_what_the_model_does_not_take_is_an_error_before_sending(block: Block) -> None:
    with pytest.raises(InputError, match="This model does not take"):
        body_of(Msg.user(block), profile=ModelProfile())


@given(st.text(), st.text())
def test_ids_fit_and_stay_apart(one: str, two: str) -> None:
    ids = {wire_id(one), wire_id(two)}
    assert all(id.isascii() and id.replace("-", "_").replace("_", "a").isalnum() and len(id) <= 64 for id in ids)
    assert len(ids) == len({one, two})
    assert wire_id("call_5f3a9c01d2-1") == "call_5f3a9c01d2-1"


# What is sent: tools, options, caching


@dataclass(frozen=True)
class Chosen:
    choice: ToolChoice | None
    wire: Mapping[str, Any] | None
    profile: ModelProfile = PLAIN
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


THINKS = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
FORCED = ToolChoice(mode="required", name="add")


@pytest.mark.parametrize(
    "case",
    [
        Chosen(None, None),
        Chosen(ToolChoice(), {"type": "auto"}),
        Chosen(ToolChoice(mode="none"), {"type": "none"}),
        Chosen(ToolChoice(mode="required"), {"type": "any"}),
        Chosen(FORCED, {"type": "tool", "name": "add"}),
        Chosen(ToolChoice(mode="required"), {"type": "auto"}, options=THINKS),
        Chosen(FORCED, {"type": "auto"}, options={"thinking": {"type": "adaptive"}}),
        Chosen(FORCED, {"type": "tool", "name": "add"}, options={"thinking": {"type": "disabled"}}),
        Chosen(FORCED, {"type": "tool", "name": "add"}, ModelProfile(), options=THINKS),
        Chosen(FORCED, {"type": "auto"}, ModelProfile(forced_tool_choice=False)),
        Chosen(None, {"type": "auto", "disable_parallel_tool_use": True}, ModelProfile(parallel_calls=False)),
        Chosen(ToolChoice(mode="none"), {"type": "none"}, ModelProfile(parallel_calls=False)),
    ],
)
def test_tool_choice(case: Chosen) -> None:
    body = body_of(HI, tools=[ADD], tool_choice=case.choice, options=case.options, profile=case.profile)
    assert body.get("tool_choice") == case.wire
    assert body["tools"] == [ADD_WIRE]


def test_old_calls_keep_their_tools_where_none_is_offered() -> None:
    body = body_of(*ASK, Msg.tool(result("c1")))
    assert body["tools"] == [{"name": "add", "input_schema": {"type": "object", "properties": {}}}]
    assert body["tool_choice"] == {"type": "none"}


def test_options_are_passed_through() -> None:
    options = {"temperature": 0.5, "max_tokens": 10, "stop_sequences": ["x"], "metadata": {"user_id": "u"}}
    expected = {"model": "claude-x", "messages": [HI_WIRE], "stream": True, **options}
    assert body_of(HI, stream=True, options=options) == expected


@pytest.mark.parametrize(
    ("formatter", "profile", "options", "limit"),
    [
        (AnthropicFormatter(), PLAIN, {}, 4096),
        (AnthropicFormatter(), ModelProfile(thinking=True), {}, 16_384),
        (AnthropicFormatter(), PLAIN, THINKS, 6096),
        (AnthropicFormatter(max_tokens=100), PLAIN, {}, 100),
        (AnthropicFormatter(max_tokens=100), PLAIN, {"max_tokens": 7}, 7),
    ],
)
def test_there_is_always_a_limit(
    formatter: AnthropicFormatter, profile: ModelProfile, options: dict[str, Any], limit: int
) -> None:
    request = ModelRequest(messages=[HI], options=options)
    assert formatter.body(request, model="m", profile=profile, stream=False)["max_tokens"] == limit


def test_marks_are_on_the_last_tool_the_last_system_block_and_the_last_turn() -> None:
    other = ToolSpec(name="other", description="", parameters={})
    body = body_of(Msg.system("A"), Msg.system("B"), *ASK, Msg.tool(result("c1")), tools=[ADD, other], profile=CACHING)
    bare: dict[str, Any] = {"name": "other", "input_schema": {"type": "object", "properties": {}}}
    assert body["tools"] == [ADD_WIRE, {**bare, **MARK}]
    assert body["system"] == [words("A"), {**words("B"), **MARK}]
    told = {"type": "tool_result", "tool_use_id": "c1", "content": "3", **MARK}
    assert body["messages"] == [*ASK_WIRE, user(told)]


@pytest.mark.parametrize(
    ("profile", "own", "options", "marked"),
    [
        (CACHING, None, {}, True),
        (PLAIN, None, {}, False),
        (PLAIN, True, {}, True),
        (CACHING, False, {}, False),
        (CACHING, None, {"cache": False}, False),
        (PLAIN, False, {"cache": True}, True),
        (CACHING, None, {"cache_control": {"type": "ephemeral"}}, False),
    ],
)
def test_who_decides_about_caching(
    profile: ModelProfile, own: bool | None, options: dict[str, Any], marked: bool
) -> None:
    request = ModelRequest(messages=[HI], options=options)
    body = AnthropicFormatter(cache=own).body(request, model="m", profile=profile, stream=False)
    assert ("cache_control" in body["messages"][-1]["content"][-1]) is marked
    assert "cache" not in body


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}  # pyright: ignore[reportUnknownVariableType]
    return value


def test_the_prefix_stays_as_it_was() -> None:
    formatter = AnthropicFormatter()
    history = [Msg.system("A"), HI]
    before: list[Any] = []
    for step in range(5):
        request = ModelRequest(messages=list(history), tools=[ADD])
        body = formatter.body(request, model="m", profile=CACHING, stream=False)
        assert sum(json.dumps(body[key]).count("cache_control") for key in ("tools", "system", "messages")) == 3
        now = without_marks(body["messages"])
        assert now[: len(before)] == before
        before = now
        history += [Msg.assistant(call(f"c{step}")), Msg.tool(result(f"c{step}"))]


# Profiles


@pytest.mark.parametrize(
    ("name", "window", "thinks", "forces"),
    [
        ("claude-opus-5-5", 1_000_000, True, False),
        ("claude-fable-5-1", 1_000_000, True, False),
        ("claude-sonnet-4-6", 1_000_000, True, True),
        ("claude-haiku-4-5-20251001", 200_000, True, True),
        ("us.anthropic.claude-opus-4-7-v1", 1_000_000, True, True),
        ("claude-3-5-haiku-20241022", 200_000, False, True),
    ],
)
def test_profiles(name: str, window: int, thinks: bool, forces: bool) -> None:
    found = profile_of("anthropic", name)
    assert (found.context_window, found.thinking, found.forced_tool_choice) == (window, thinks, forces)
    assert (found.images, found.files, found.prompt_caching, found.forced_choice_with_thinking) == (
        True,
        True,
        True,
        False,
    )
