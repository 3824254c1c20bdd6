"""Records that were written once can always be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from treadle.errors import FormatError
from treadle.journal import Record, decode, encode

GOLDEN = Path(__file__).with_name("golden_v1.jsonl")


def test_golden_records_still_decode() -> None:
    """A line is never changed; a new format gets a file of its own beside this one."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    records = [decode(line) for line in lines]
    assert {type(record) for record in records} == set(get_args(Record))
    assert [json.loads(encode(record)) for record in records] == [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a Treadle record"),
        ("[]", "not a Treadle record"),
        ('{"kind":"ended"}', "not a Treadle record"),
        ('{"v":2,"kind":"ended","reason":"x"}', "newer Treadle"),
        ('{"v":1,"kind":"unheard","reason":"x"}', "newer Treadle"),
        ('{"v":[1],"kind":"ended"}', "not a Treadle record"),
        ('{"v":1,"kind":["ended"]}', "not a Treadle record"),
        ('{"v":1,"kind":"ended"}', "damaged"),
        ('{"v":1,"kind":"ended","reason":"x","unheard":1}', "damaged"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(text)
