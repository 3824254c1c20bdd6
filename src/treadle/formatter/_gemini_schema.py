"""JSON schemas as Gemini takes them: the keywords it knows, and nothing beside a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

# What the API reference lists for `parametersJsonSchema` and `responseJsonSchema`; anything else may be refused.
_TEXTS = ("type", "format", "title", "description", "$id", "$anchor")
_LIMITS = ("minItems", "maxItems", "minimum", "maximum", "required", "propertyOrdering")
_PLAIN = frozenset((*_TEXTS, *_LIMITS))
_LISTS = ("anyOf", "oneOf", "prefixItems")
_ONE = ("items", "additionalProperties")
_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number"}


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in Gemini's dialect.

    What is dropped only tells the model less: Treadle validates arguments against the whole schema itself.
    """
    definitions = {**_schemas(schema.get("definitions")), **_schemas(schema.get("$defs"))}
    out = _Dialect(definitions).convert(schema)
    used = _reached(out, definitions)
    if used:
        out["$defs"] = used
    return out


class _Dialect:
    """Converts the parts of one schema."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._inside: list[str] = []

    def convert(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            return {}
        given = _merged(cast("Mapping[str, Any]", schema))
        if "$ref" in given:
            return self._reference(given)
        out = {key: value for key, value in given.items() if key in _PLAIN}
        for key in _LISTS:
            if isinstance(given.get(key), list):
                out[key] = [self.convert(item) for item in given[key]]
        for key in _ONE:
            if key in given:
                out[key] = given[key] if isinstance(given[key], bool) else self.convert(given[key])
        if "properties" in given:
            out["properties"] = {name: self.convert(item) for name, item in _schemas(given["properties"]).items()}
        return out | _choices(given)

    def _reference(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is referred to, in its place. A type that contains itself stays a reference, which stands alone."""
        name = str(given["$ref"]).rpartition("/")[2]
        target = self._definitions.get(name)
        if not isinstance(target, Mapping):
            return {}
        if name in self._inside or _contains_itself(name, self._definitions):
            return {"$ref": f"#/$defs/{name}"}
        self._inside.append(name)
        beside = {key: value for key, value in given.items() if key != "$ref"}
        out = self.convert({**cast("Mapping[str, Any]", target), **beside})
        self._inside.pop()
        return out


def _merged(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`allOf`, which Gemini does not know, folded into one."""
    members = schema.get("allOf")
    if not isinstance(members, list):
        return schema
    out: dict[str, Any] = {}
    for member in [*cast("list[Any]", members), {key: value for key, value in schema.items() if key != "allOf"}]:
        for key, value in _merged(_schemas(member)).items():
            both = key in out and key in ("properties", "required")
            out[key] = (out[key] | value if key == "properties" else [*out[key], *value]) if both else value
    return out


def _choices(given: Mapping[str, Any]) -> dict[str, Any]:
    """`enum` and `const`: only texts and numbers can be listed, and null is a type of its own."""
    values: list[Any] = [given["const"]] if "const" in given else list(given.get("enum") or ())
    listed = [value for value in values if isinstance(value, str | int | float) and not isinstance(value, bool)]
    if not listed or len(listed) + (None in values) < len(values):
        return {}
    types = {_TYPES[type(value)] for value in listed}
    kind = {"type": types.pop()} if len(types) == 1 else {}
    if None in values:
        return {"anyOf": [{**kind, "enum": listed}, {"type": "null"}]}
    return {**({} if "type" in given else kind), "enum": listed}


def _schemas(value: Any) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _references(schema: Any) -> set[str]:
    """The names of the definitions that a schema refers to."""
    found: set[str] = set()
    if isinstance(schema, Mapping):
        for key, value in cast("Mapping[str, Any]", schema).items():
            found |= {str(value).rpartition("/")[2]} if key == "$ref" else _references(value)
    elif isinstance(schema, list):
        for item in cast("list[Any]", schema):
            found |= _references(item)
    return found


def _contains_itself(name: str, definitions: Mapping[str, Any]) -> bool:
    seen: set[str] = set()
    ahead = _references(definitions[name])
    while ahead - seen:
        seen |= ahead
        ahead = {inner for outer in ahead if outer in definitions for inner in _references(definitions[outer])}
    return name in seen


def _reached(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that are still referred to, in the dialect, with those that they refer to."""
    out: dict[str, Any] = {}
    ahead = sorted(_references(schema))
    while ahead:
        name = ahead.pop()
        if name not in out and isinstance(definitions.get(name), Mapping):
            out[name] = _Dialect(definitions).convert(definitions[name])
            ahead += sorted(_references(out[name]))
    return out
