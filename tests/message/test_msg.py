"""Messages are values with a few conveniences."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from treadle import Msg
from treadle.message import ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, URLSource


def test_text_is_all_text_and_nothing_else() -> None:
    image = ImageBlock(source=URLSource(url="https://example.org/a.png"))
    msg = Msg.assistant([ThinkingBlock(thinking="hm"), TextBlock(text="one"), image, TextBlock(text="two")])
    assert msg.text == "one\ntwo"


def test_calls_and_results_are_found_in_order() -> None:
    calls = [ToolUseBlock(id=str(i), name="f", input={}) for i in range(3)]
    results = [ToolResultBlock(id=str(i), name="f", output="ok") for i in range(3)]
    assert Msg.assistant(calls).tool_calls == calls
    assert Msg.tool(results).tool_results == results
    assert Msg.user("x").tool_calls == []


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_text_one_block_and_many_blocks_make_the_same_message(role: str) -> None:
    make = getattr(Msg, role)
    block = TextBlock(text="hi")
    assert make("hi").content == make(block).content == make([block]).content == (block,)
    assert make("hi").role == make("hi").name == role


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Msg.user("hi").name = "eve"  # pyright: ignore[reportAttributeAccessIssue]


def test_ids_differ_and_messages_can_be_keys() -> None:
    one, two = Msg.user("hi"), Msg.user("hi")
    assert one.id != two.id
    assert len({one, two, one}) == 2


def test_messages_can_be_pickled() -> None:
    msg = Msg.assistant([ToolUseBlock(id="1", name="f", input={"a": 1})])
    assert pickle.loads(pickle.dumps(msg)) == msg


def test_the_text_of_a_result_is_its_text_blocks() -> None:
    blocks = (TextBlock(text="a"), ImageBlock(source=URLSource(url="u")), TextBlock(text="b"))
    assert ToolResultBlock(id="1", name="f", output=blocks).text == "a\nb"
    assert ToolResultBlock(id="1", name="f", output="plain").text == "plain"
