"""Streams are read the same, however their bytes are cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.model._sse import JSONLinesParser, LineReader, ServerEvent, SSEParser


def read(parser: SSEParser | JSONLinesParser, chunks: Sequence[bytes]) -> list[ServerEvent]:
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_have_a_name_and_data(end: bytes) -> None:
    lines = [b"event: delta", b'data: {"a": 1}', b"", b"data: [DONE]", b"", b"data:tight", b"", b":", b""]
    got = read(SSEParser(), [end.join(lines) + end + b"x"])
    assert got == [ServerEvent('{"a": 1}', "delta"), ServerEvent("[DONE]"), ServerEvent("tight")]


def test_comments_and_other_fields_are_skipped() -> None:
    stream = b": ping\n\nid: 5\nretry: 10\ndata: x\n\nevent: lonely\n\ndata: y\n\n"
    assert read(SSEParser(), [stream]) == [ServerEvent("x"), ServerEvent("y")]


def test_data_over_several_lines_is_joined() -> None:
    assert read(SSEParser(), [b"data: a\ndata:\ndata\ndata:  b\n\n"]) == [ServerEvent("a\n\n\n b")]


def test_a_byte_order_mark_is_skipped() -> None:
    assert read(SSEParser(), [b"\xef\xbb", b"\xbfdata: x\n\n"]) == [ServerEvent("x")]


def test_half_an_event_at_the_end_does_not_count() -> None:
    assert read(SSEParser(), [b"data: a\n\ndata: b\n"]) == [ServerEvent("a")]


STREAM = (
    'event: one\r\ndata: {"text": "héllo 你好 \\u00e9"}\r\n\r\n: keep-alive\n\ndata: a\ndata: b\r\rdata: [DONE]\n\n\n'
)


@given(st.sets(st.integers(1, len(STREAM.encode()) - 1)))
def test_cutting_the_bytes_anywhere_changes_nothing(cuts: set[int]) -> None:
    whole = STREAM.encode()
    places = [0, *sorted(cuts), len(whole)]
    chunks = [whole[a:b] for a, b in pairwise(places)]
    assert read(SSEParser(), chunks) == read(SSEParser(), [whole])


def test_each_byte_alone_changes_nothing() -> None:
    whole = STREAM.encode()
    assert read(SSEParser(), [whole[i : i + 1] for i in range(len(whole))]) == read(SSEParser(), [whole])


def test_json_lines() -> None:
    assert read(JSONLinesParser(), [b'{"a"', b": 1}\n", b'\n{"b": 2}\r\n{"c"']) == [
        ServerEvent('{"a": 1}'),
        ServerEvent('{"b": 2}'),
    ]


def test_the_rest_of_a_line_can_be_seen() -> None:
    reader = LineReader()
    assert reader.feed(b"a\nb") == [b"a"]
    assert reader.rest() == b"b"


def test_the_last_line_needs_no_end_but_an_event_does() -> None:
    lines, events = JSONLinesParser(), SSEParser()
    assert lines.feed(b'{"a": 1}\n{"b": 2}') == [ServerEvent('{"a": 1}')]
    assert (lines.close(), JSONLinesParser().close()) == ([ServerEvent('{"b": 2}')], [])
    assert events.feed(b"data: x\n") == []
    assert events.close() == []
