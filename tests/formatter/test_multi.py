"""Several speakers become one user message that names them."""

from __future__ import annotations

from treadle import Msg
from treadle.formatter._speakers import HEADING, merge_speakers
from treadle.message import ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, URLSource

CALL = Msg.assistant([ToolUseBlock(id="1", name="f", input={})], name="Bo")
RESULT = Msg.tool(ToolResultBlock(id="1", name="f", output="ok"))


def texts(messages: list[Msg]) -> list[str]:
    return [msg.text for msg in messages]


def test_each_line_names_its_speaker() -> None:
    talk = [Msg.user("Hello.", name="Ada"), Msg.assistant("Good morning.", name="Bo"), Msg.user("Well?", name="Cy")]
    merged = merge_speakers([Msg.system("Be kind."), *talk])
    assert [msg.role for msg in merged] == ["system", "user"]
    assert merged[1].text == f"{HEADING}<history>\nAda: Hello.\nBo: Good morning.\nCy: Well?\n</history>"


def test_tool_calls_and_results_stay_as_they_are() -> None:
    merged = merge_speakers([Msg.user("Go.", name="Ada"), CALL, RESULT, Msg.user("And?", name="Ada")])
    assert merged[1:3] == [CALL, RESULT]
    assert texts(merged)[3] == "<history>\nAda: And?\n</history>"


def test_media_keep_their_place_and_thinking_is_nobodys_business() -> None:
    image = ImageBlock(source=URLSource(url="https://example.org/a.png"))
    merged = merge_speakers(
        [
            Msg.user([TextBlock(text="See:"), image], name="Ada"),
            Msg.assistant([ThinkingBlock(thinking="hm"), TextBlock(text="Nice.")], name="Bo"),
        ]
    )
    assert [block.type for block in merged[0].content] == ["text", "image", "text"]
    assert merged[0].text == f"{HEADING}<history>\nAda: See:\nAda:\nBo: Nice.\n</history>"


def test_nothing_is_nothing() -> None:
    assert merge_speakers([]) == []
