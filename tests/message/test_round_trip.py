"""Every message survives JSON without loss, and a message of an older release still loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import FormatError
from treadle.message import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    Msg,
    OutputBlock,
    PathSource,
    Source,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
    msg_from_json,
    msg_to_json,
)

GOLDEN = Path(__file__).parent / "golden_v1.json"

text = st.text(st.characters(codec="utf-8"), max_size=20)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(text, json_values, max_size=3)
extras = st.none() | objects
sources: st.SearchStrategy[Source] = st.one_of(
    st.builds(URLSource, url=text, media_type=st.none() | text),
    st.builds(Base64Source, data=text, media_type=text),
    st.builds(PathSource, path=text, media_type=st.none() | text),
)
media: st.SearchStrategy[OutputBlock] = st.one_of(
    st.builds(TextBlock, text=text, extra=extras),
    st.builds(ImageBlock, source=sources, extra=extras),
    st.builds(AudioBlock, source=sources, extra=extras),
    st.builds(VideoBlock, source=sources, extra=extras),
    st.builds(FileBlock, source=sources, name=st.none() | text, extra=extras),
)
blocks: st.SearchStrategy[Block] = st.one_of(
    media,
    st.builds(ThinkingBlock, thinking=text, extra=extras),
    st.builds(ToolUseBlock, id=text, name=text, input=objects, raw=st.none() | text, extra=extras),
    st.builds(
        ToolResultBlock,
        id=text,
        name=text,
        output=text | st.lists(media, max_size=2).map(tuple),
        status=st.sampled_from(["ok", "error", "rejected", "interrupted", "unknown"]),
        metadata=extras,
    ),
)
messages = st.builds(
    Msg,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.lists(blocks, max_size=4).map(tuple),
    name=text,
    metadata=extras,
    timestamp=st.floats(0, 2e9),
)


@given(messages)
def test_what_is_written_is_what_is_read(msg: Msg) -> None:
    assert msg_from_json(msg_to_json(msg)) == msg


@given(messages)
def test_writing_twice_gives_the_same_text(msg: Msg) -> None:
    once = msg_to_json(msg)
    assert msg_to_json(msg_from_json(once)) == once


def test_opaque_provider_data_comes_back_unchanged() -> None:
    extra = {"signature": "Eo8B+/==", "encrypted_content": None, "nested": {"index": [0, None, {"a": 1.5}]}}
    msg = Msg.assistant(
        [ThinkingBlock(thinking="", extra=extra), ToolUseBlock(id="c", name="f", input={}, extra=extra)]
    )
    read = msg_from_json(msg_to_json(msg))
    assert [block.extra for block in read.blocks(ThinkingBlock) + read.blocks(ToolUseBlock)] == [extra, extra]


def test_an_older_message_still_loads() -> None:
    """The file holds what version 0.1 wrote; it never changes, whatever later versions write."""
    first, second = (msg_from_json(json.dumps(item)) for item in json.loads(GOLDEN.read_text(encoding="utf-8")))
    assert first.text == "你好, Treadle"
    assert [block.type for block in first.content] == ["text", "image", "audio", "video", "file"]
    assert second.tool_calls[0].input == {"a": 17, "b": None}
    assert second.blocks(ThinkingBlock)[0].extra == {"signature": "abc=="}
    assert second.tool_results[0].status == "error"
    assert second.metadata == {"trace": "1"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a Treadle message"),
        ('{"role": "user"}', "content"),
        ('{"role": "robot", "content": []}', "role"),
        ('{"role": "user", "content": [{"type": "hologram"}]}', "content"),
        ('{"role": "user", "content": [{"type": "text", "text": 5}]}', "text"),
    ],
)
def test_what_is_not_a_message_is_refused_with_the_reason(given: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        msg_from_json(given)


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(FormatError, match="cannot be stored as JSON"):
        msg_to_json(Msg.user("hi", metadata={"file": object()}))
