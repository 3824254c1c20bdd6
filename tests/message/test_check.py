"""What `problem_of` lets through can be written and read again; what it does not says which field is wrong."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.test_round_trip import messages
from treadle.errors import FormatError
from treadle.message import (
    Base64Source,
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
    msg_from_json,
    msg_to_json,
)
from treadle.message._check import problem_of

make: Any = Msg
"""The constructor, for what a type checker would not let through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(TextBlock):
    """A block that somebody derived."""

    remark: Any = None


TEXT = TextBlock(text="hi")


@pytest.mark.parametrize("content", ["hi", TEXT, [TEXT], (TEXT,)], ids=["text", "block", "list", "tuple"])
def test_content_is_a_tuple_of_blocks_however_it_was_given(content: Any) -> None:
    msg = make(role="user", content=content)
    assert msg.content == (TEXT,)
    assert msg_from_json(msg_to_json(msg)) == msg


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"role": "boss"}, "`role` must be one of 'assistant', 'system', 'tool', 'user', not 'boss'"),
    "role that cannot be looked up": ({"role": ["user"]}, "`role` must be one of"),
    "name": ({"name": 5}, "`name` must be text, not 5"),
    "id": ({"id": None}, "`id` must be text, not None"),
    "time": ({"timestamp": "now"}, "`timestamp` must be a number, not 'now'"),
    "no content": ({"content": None}, "`content[0]` must be a block, such as a `TextBlock`, not None"),
    "bytes": ({"content": b"hi"}, "`content[0]` must be a block, such as a `TextBlock`, not b'hi'"),
    "texts": ({"content": (TEXT, "hi")}, "`content[1]` must be a block, such as a `TextBlock`, not 'hi'"),
    "dict": ({"content": [{"type": "text", "text": "hi"}]}, "`content[0]` must be a block"),
    "metadata": ({"metadata": 5}, "`metadata` must be a dict, not 5"),
    "object in metadata": ({"metadata": {"o": {1}}}, "`metadata` cannot be stored as JSON: set"),
    "deep metadata": ({"metadata": nested(200_000)}, "`metadata` cannot be stored as JSON: maximum recursion depth"),
    "large number": ({"metadata": {"n": 10**5000}}, "`metadata` cannot be stored as JSON: Exceeds the limit"),
    "key": ({"metadata": {(1, 2): 3}}, "`metadata` cannot be stored as JSON: keys must be"),
}
ANY: Any = None
BLOCKS: dict[str, tuple[Any, str]] = {
    "text": (TextBlock(text=ANY), "`content[0].text` must be text, not None"),
    "thinking": (ThinkingBlock(thinking=ANY), "`content[0].thinking` must be text, not None"),
    "extra": (TextBlock(text="hi", extra={"o": [object()]}), "`content[0].extra` cannot be stored as JSON: object"),
    "proxy": (TextBlock(text="hi", extra=MappingProxyType({})), "`content[0].extra` cannot be stored as JSON"),
    "source": (ImageBlock(source=ANY), "`content[0].source` must be a `URLSource`, `Base64Source` or `PathSource`"),
    "url": (VideoBlock(source=URLSource(url=ANY)), "`content[0].source.url` must be text"),
    "data": (ImageBlock(source=Base64Source(data=ANY, media_type="a/b")), "`content[0].source.data` must be text"),
    "media": (ImageBlock(source=Base64Source(data="", media_type=ANY)), "`content[0].source.media_type` must be text"),
    "path": (FileBlock(source=PathSource(path=ANY)), "`content[0].source.path` must be text"),
    "call id": (ToolUseBlock(id=ANY, name="f", input={}), "`content[0].id` must be text"),
    "call name": (ToolUseBlock(id="c", name=ANY, input={}), "`content[0].name` must be text"),
    "call input": (ToolUseBlock(id="c", name="f", input=ANY), "`content[0].input` must be a dict"),
    "call values": (ToolUseBlock(id="c", name="f", input={"o": b""}), "`content[0].input` cannot be stored as JSON"),
    "result": (ToolResultBlock(id="c", name="f", output=ANY), "`content[0].output` must be text or a tuple of blocks"),
    "results": (ToolResultBlock(id="c", name="f", output=(ANY,)), "`content[0].output[0]` must be a block of text"),
    "inside": (ToolResultBlock(id="c", name="f", output=(TextBlock(text=ANY),)), "`content[0].output[0].text` must"),
    "status": (ToolResultBlock(id="c", name="f", output="", status=ANY), "`content[0].status` must be one of"),
    "derived": (Note(text="hi", remark=object()), "`content[0]` cannot be stored and read again"),
    "type": (dataclasses.replace(TEXT, type=ANY), "`content[0].type` must be 'text'"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_the_field_that_is_wrong_is_named(case: tuple[dict[str, Any], str]) -> None:
    fields, text = case
    assert text in (problem_of(make(**{"role": "user", "content": "hi", **fields})) or "")


@pytest.mark.parametrize("case", BLOCKS.values(), ids=BLOCKS)
def test_the_field_of_a_block_that_is_wrong_is_named(case: tuple[Any, str]) -> None:
    assert case[1] in (problem_of(Msg.user(case[0])) or "")


def test_what_is_no_message_is_a_problem() -> None:
    assert problem_of({"role": "user", "content": []}) == "it must be a `Msg`, not {'role': 'user', 'content': []}"


def test_a_derived_block_that_can_be_stored_is_none() -> None:
    assert problem_of(Msg.user(Note(text="hi", remark="good"))) is None


@given(messages)
def test_a_message_is_no_problem(msg: Msg) -> None:
    assert problem_of(msg) is None


odd: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from(
        [object(), {1, 2}, {"a": 1}, {1: 2}, {(1, 2): 3}, [TEXT], ["a"], (), TEXT, Note(text="n"), 10**400]
    ),
    st.sampled_from(["user", "ok", "text", "url", "tool_use", MappingProxyType({"a": 1}), URLSource(url="u")]),
)
PARTS: list[Any] = [
    Msg.user("hi"),
    TEXT,
    ThinkingBlock(thinking=""),
    ImageBlock(source=URLSource(url="u")),
    FileBlock(source=PathSource(path="p"), name="f"),
    URLSource(url="u"),
    Base64Source(data="", media_type="a/b"),
    PathSource(path="p"),
    ToolUseBlock(id="c", name="f", input={}),
    ToolResultBlock(id="c", name="f", output=""),
]


@st.composite
def spoiled(draw: st.DrawFn) -> Msg:
    """A message with something odd in a field, however deep."""
    part = draw(st.sampled_from(PARTS))
    field = draw(st.sampled_from([field.name for field in dataclasses.fields(part) if field.name != "__weakref__"]))
    part = dataclasses.replace(part, **{field: draw(odd)})
    if isinstance(part, URLSource | Base64Source | PathSource):
        part = draw(st.sampled_from([ImageBlock, FileBlock]))(source=part)
    if isinstance(part, TextBlock | ImageBlock | FileBlock) and draw(st.booleans()):
        part = ToolResultBlock(id="c", name="f", output=(part,))
    return part if isinstance(part, Msg) else Msg.user([part])


@given(spoiled())
def test_what_passes_can_be_read_again(msg: Msg) -> None:
    problem = problem_of(msg)
    try:
        msg_from_json(msg_to_json(msg))
    except FormatError:
        assert problem is not None
