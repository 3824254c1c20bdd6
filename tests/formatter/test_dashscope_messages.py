"""DashScope's native format: messages and requests to JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from treadle import Msg
from treadle.errors import (
    InputError,
)
from treadle.formatter._dashscope import DashScopeFormatter, is_multimodal
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
)
from treadle.model import (
    ModelProfile,
    ModelRequest,
    ToolChoice,
    ToolSpec,
)
from treadle.model._dashscope import DashScopeModel
from treadle.model._profiles import profile_of

TEXT = ModelProfile()
ECHO = ModelProfile(echoes_thinking=True)
MEDIA = ModelProfile(images=True, audio=True, video=True)
PNG = Base64Source(data="aGk=", media_type="image/png")
ADD = ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object", "properties": {}})
SUB = replace(ADD, name="sub")


# Messages


def call(id: str = "c1", name: str = "add", **input: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input=input)


def wire(id: str = "c1", name: str = "add", arguments: str = '{"a":1}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(output: Any = "3", id: str = "c1", name: str = "add") -> ToolResultBlock:
    return ToolResultBlock(id=id, name=name, output=output)


@dataclass(frozen=True)
class Case:
    name: str
    msg: Msg
    wire: list[dict[str, Any]]
    profile: ModelProfile = TEXT


IMAGE = ImageBlock(source=URLSource(url="https://example.org/a.png"))
THOUGHT = ThinkingBlock(thinking="Hm.")
CASES = [
    Case("system", Msg.system("Be kind."), [{"role": "system", "content": "Be kind."}]),
    Case("user", Msg.user("Grüß dich 你好"), [{"role": "user", "content": "Grüß dich 你好"}]),
    Case("several texts", Msg.user([TextBlock(text="a"), TextBlock(text="b")]), [{"role": "user", "content": "a\nb"}]),
    Case("assistant", Msg.assistant("Yes."), [{"role": "assistant", "content": "Yes."}]),
    Case(
        "thinking stays here",
        Msg.assistant([THOUGHT, TextBlock(text="Yes.")]),
        [{"role": "assistant", "content": "Yes."}],
    ),
    Case(
        "thinking goes back where the profile says so",
        Msg.assistant([THOUGHT, call(a=1)]),
        [{"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [wire()]}],
        ECHO,
    ),
    Case(
        "calls",
        Msg.assistant([TextBlock(text="Let me see."), call(a=1), call("c2", "sub", b="é")]),
        [{"role": "assistant", "content": "Let me see.", "tool_calls": [wire(), wire("c2", "sub", '{"b":"é"}')]}],
    ),
    Case(
        "a call whose arguments were no JSON",
        Msg.assistant([ToolUseBlock(id="c1", name="add", input={}, raw="{a")]),
        [{"role": "assistant", "content": "", "tool_calls": [wire(arguments="{}")]}],
    ),
    Case(
        "results",
        Msg.tool([result(), result((TextBlock(text="x"), TextBlock(text="y")), "c2", "sub")]),
        [
            {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"},
            {"role": "tool", "tool_call_id": "c2", "name": "sub", "content": "x\ny"},
        ],
    ),
    Case(
        "an empty result", Msg.tool(result("")), [{"role": "tool", "tool_call_id": "c1", "name": "add", "content": ""}]
    ),
    Case("system, multimodal", Msg.system("Be kind."), [{"role": "system", "content": [{"text": "Be kind."}]}], MEDIA),
    Case(
        "media by URL",
        Msg.user([IMAGE, AudioBlock(source=URLSource(url="https://example.org/a.mp3")), TextBlock(text="What?")]),
        [
            {
                "role": "user",
                "content": [
                    {"image": "https://example.org/a.png"},
                    {"audio": "https://example.org/a.mp3"},
                    {"text": "What?"},
                ],
            }
        ],
        MEDIA,
    ),
    Case(
        "media as bytes",
        Msg.user(
            [
                ImageBlock(source=PNG),
                AudioBlock(source=Base64Source(data="aGk=", media_type="audio/mpeg")),
                VideoBlock(source=Base64Source(data="aGk=", media_type="video/mp4")),
            ]
        ),
        [
            {
                "role": "user",
                "content": [
                    {"image": "data:image/png;base64,aGk="},
                    {"audio": "data:audio/mpeg;base64,aGk="},
                    {"video": "data:video/mp4;base64,aGk="},
                ],
            }
        ],
        MEDIA,
    ),
    Case(
        "calls, multimodal",
        Msg.assistant([call(a=1)]),
        [{"role": "assistant", "content": [], "tool_calls": [wire()]}],
        MEDIA,
    ),
    Case(
        "media in a result",
        Msg.tool([result((IMAGE,)), result("4", "c2")]),
        [
            {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "(see the next message)"},
            {"role": "tool", "tool_call_id": "c2", "name": "add", "content": "4"},
            {
                "role": "user",
                "content": [
                    {"text": "These belong to the tool results above:"},
                    {"image": "https://example.org/a.png"},
                ],
            },
        ],
        MEDIA,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages(case: Case) -> None:
    assert DashScopeFormatter().format_message(case.msg, case.profile) == case.wire


def test_a_picture_by_path(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"hi")
    msg = Msg.user([ImageBlock(source=PathSource(path=str(path)))])
    got = DashScopeFormatter().format_message(msg, MEDIA)
    assert got == [{"role": "user", "content": [{"image": "data:image/jpeg;base64,aGk="}]}]


@pytest.mark.parametrize(
    ("block", "profile", "text"),
    [
        (IMAGE, TEXT, "does not take images"),
        (AudioBlock(source=PNG), TEXT, "does not take audio"),
        (VideoBlock(source=PNG), replace(MEDIA, video=False), "does not take video"),
        (FileBlock(source=PNG), MEDIA, "`file`"),
        (ImageBlock(source=PathSource(path="/no/such.png")), MEDIA, "cannot be read"),
        (call(), TEXT, "`tool_use`"),
    ],
)
def test_what_the_model_cannot_take_is_said_before_sending(block: Block, profile: ModelProfile, text: str) -> None:
    with pytest.raises(InputError, match=text):
        DashScopeFormatter().format_message(Msg.user([block]), profile)
    if not isinstance(block, ToolUseBlock):
        with pytest.raises(InputError, match=text):
            DashScopeFormatter().format_message(Msg.tool(result((block,))), profile)


# Requests


def body(profile: ModelProfile = TEXT, *, stream: bool = False, **request: Any) -> Any:
    asked = ModelRequest(messages=[Msg.user("Hi")], **request)
    return DashScopeFormatter().body(asked, model="qwen-plus", profile=profile, stream=stream)


def test_a_request() -> None:
    assert body(stream=True, tools=[ADD], options={"enable_thinking": True, "thinking_budget": 9}) == {
        "model": "qwen-plus",
        "input": {"messages": [{"role": "user", "content": "Hi"}]},
        "parameters": {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "add",
                        "description": "Add two numbers.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                }
            ],
            "enable_thinking": True,
            "thinking_budget": 9,
            "result_format": "message",
            "incremental_output": True,
        },
    }


def test_what_the_reader_needs_cannot_be_overridden() -> None:
    options = {"result_format": "text", "incremental_output": False}
    assert body(stream=True, options=options)["parameters"] == {"result_format": "message", "incremental_output": True}
    assert body()["parameters"] == {"result_format": "message"}


NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize(
    ("choice", "tools", "profile", "options", "expected"),
    [
        (ToolChoice(), [ADD], TEXT, {}, "auto"),
        (ToolChoice(mode="none"), [ADD], TEXT, {}, "none"),
        (ToolChoice(mode="required", name="add"), [ADD, SUB], TEXT, {}, NAMED),
        (ToolChoice(mode="required"), [ADD], TEXT, {}, NAMED),
        (ToolChoice(mode="required"), [ADD, SUB], TEXT, {}, "auto"),
        (ToolChoice(name="add"), [ADD], ModelProfile(forced_tool_choice=False), {}, "auto"),
        (ToolChoice(name="add"), [ADD], ModelProfile(forced_choice_with_thinking=False), {}, NAMED),
        (
            ToolChoice(name="add"),
            [ADD],
            ModelProfile(forced_choice_with_thinking=False),
            {"enable_thinking": True},
            "auto",
        ),
    ],
)
def test_the_choice_of_tools(
    choice: ToolChoice, tools: list[ToolSpec], profile: ModelProfile, options: dict[str, Any], expected: Any
) -> None:
    got = body(profile, tools=tools, tool_choice=choice, options=options)
    assert got["parameters"]["tool_choice"] == expected


def test_no_choice_without_tools() -> None:
    assert "tool_choice" not in body(tool_choice=ToolChoice(mode="none"))["parameters"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qwen-plus", "text"),
        ("qwen3-max", "text"),
        ("qwen3.7-max", "text"),
        ("qwen3-235b-a22b-thinking-2507", "text"),
        ("qwq-plus", "text"),
        ("deepseek-v3.2", "text"),
        ("kimi-k2-thinking", "text"),
        ("something-new", "text"),
        ("qwen3.5-plus", "multimodal"),
        ("qwen3.6-flash", "multimodal"),
        ("qwen3.5-397b-a17b", "multimodal"),
        ("qwen-vl-max", "multimodal"),
        ("qwen2.5-vl-72b-instruct", "multimodal"),
        ("qwen3-vl-plus", "multimodal"),
        ("qvq-max", "multimodal"),
        ("qwen3-omni-flash", "multimodal"),
        ("qwen-audio-turbo", "multimodal"),
        ("kimi-k2.5", "multimodal"),
    ],
)
def test_the_profile_decides_the_address(name: str, kind: str) -> None:
    model = DashScopeModel(name, auth="k")
    assert model.url(stream=True) == f"{DashScopeModel.default_url}/services/aigc/{kind}-generation/generation"
    assert is_multimodal(profile_of("dashscope", name)) == (kind == "multimodal")
