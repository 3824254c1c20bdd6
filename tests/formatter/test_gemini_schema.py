"""Schemas in Gemini's dialect."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from treadle.formatter._gemini_schema import gemini_schema


class Place(BaseModel):
    city: str = Field(min_length=1, pattern="^[A-Z]")


class Tree(BaseModel):
    children: list[Tree] = []


class Everything(BaseModel):
    place: Place = Field(description="Where.")
    other: Place | None = None
    kind: str = Field(default="a", json_schema_extra={"enum": ["a", "b"]})
    tree: Tree
    count: int = Field(gt=0, le=9)
    names: dict[str, int]


def test_a_schema_of_pydantic_in_the_dialect() -> None:
    city = {"properties": {"city": {"title": "City", "type": "string"}}, "required": ["city"], "title": "Place"}
    place = {**city, "type": "object"}
    found = gemini_schema(Everything.model_json_schema())
    assert found["properties"] == {
        "place": {**place, "description": "Where."},
        "other": {"anyOf": [place, {"type": "null"}]},
        "kind": {"title": "Kind", "type": "string", "enum": ["a", "b"]},
        "tree": {"$ref": "#/$defs/Tree"},
        "count": {"title": "Count", "type": "integer", "maximum": 9},
        "names": {"title": "Names", "type": "object", "additionalProperties": {"type": "integer"}},
    }
    children = {"title": "Children", "type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert found["$defs"] == {"Tree": {"title": "Tree", "type": "object", "properties": {"children": children}}}


KEYWORDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"const": "a"}, {"type": "string", "enum": ["a"]}),
    ({"const": 1, "type": "integer"}, {"type": "integer", "enum": [1]}),
    ({"const": True, "type": "boolean"}, {"type": "boolean"}),
    ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
    ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
    ({"enum": ["a", True]}, {}),
    ({"enum": [None]}, {}),
    ({"type": ["string", "null"], "minLength": 3}, {"type": ["string", "null"]}),
    ({"not": {}, "if": {}, "examples": [1], "default": 1}, {}),
    ({"items": True, "type": "array"}, {"items": True, "type": "array"}),
    ({"prefixItems": [{"type": "string"}, True]}, {"prefixItems": [{"type": "string"}, {}]}),
    ({"$ref": "#/$defs/Nowhere", "title": "x"}, {}),
    ({"definitions": {"X": {"type": "string"}}, "$ref": "#/definitions/X"}, {"type": "string"}),
    (
        {
            "allOf": [
                {"properties": {"a": {"const": 1}}, "required": ["a"]},
                {"allOf": [{"properties": {"b": {}}, "required": ["b"]}]},
            ],
            "type": "object",
        },
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "enum": [1]}, "b": {}},
            "required": ["a", "b"],
        },
    ),
]


@pytest.mark.parametrize(("given", "expected"), KEYWORDS)
def test_keywords_in_the_dialect(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert gemini_schema(given) == expected
