"""Structured output: what the caller wants, as a schema for the model and as a check of its answer."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from treadle.errors import InputError, ToolDefinitionError
from treadle.message import Msg, TextBlock, ToolUseBlock
from treadle.model import ToolSpec
from treadle.tool._adapter import portable
from treadle.tool._jsonschema import SchemaValidator

_FENCE = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)


class OutputSpec:
    """The wanted output. What is not an object by itself is asked for as the field `response` of one."""

    def __init__(self, name: str, schema: Mapping[str, Any], *, wrapped: bool = False, adapter: Any = None) -> None:
        self.name = name
        self.schema = schema
        self.wrapped = wrapped
        self._adapter = adapter
        self._validator: SchemaValidator | None = None

    @classmethod
    def of(cls, name: str, wanted: Any) -> OutputSpec:
        """Make one from a pydantic model, a dataclass, a TypedDict, any other type, or a JSON schema."""
        if isinstance(wanted, Mapping):
            return cls._of_schema(name, cast("Mapping[str, Any]", wanted))
        from pydantic import TypeAdapter

        try:
            adapter: Any = TypeAdapter(portable(wanted))
            schema, wrapped = _as_object(adapter.json_schema())
        except Exception as error:  # pydantic's own, and whatever evaluating an annotation raises
            raise InputError(f"`output={wanted!r}` cannot be turned into a JSON schema: {error}") from error
        return cls(name, schema, wrapped=wrapped, adapter=adapter)

    @classmethod
    def _of_schema(cls, name: str, wanted: Mapping[str, Any]) -> OutputSpec:
        schema, wrapped = _as_object(wanted)
        made = cls(name, schema, wrapped=wrapped)
        try:
            made._validator = SchemaValidator(name, schema)
        except ToolDefinitionError as error:
            raise InputError(f"`output={wanted!r:.200}` is not a JSON schema: {error}") from error
        return made

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> OutputSpec:
        """Make one from what a thread remembers of it; its answers stay plain JSON."""
        return cls(data["name"], data["schema"], wrapped=data.get("wrapped", False))

    def to_state(self) -> dict[str, Any]:
        """What a thread remembers of it."""
        return {"name": self.name, "schema": self.schema, "wrapped": self.wrapped}

    @property
    def tool(self) -> ToolSpec:
        """The finish tool, as the model sees it."""
        text = "Give the final answer. Call this once, when you have everything you need."
        return ToolSpec(name=self.name, description=text, parameters=self.schema)

    def in_words(self, message: Msg) -> Msg:
        """A message as people read it: a finish call is the text that it gives."""
        content = tuple(
            TextBlock(text=shown(block.input)) if isinstance(block, ToolUseBlock) and block.name == self.name else block
            for block in message.content
        )
        return dataclasses.replace(message, content=content)

    def problem(self, data: Mapping[str, Any]) -> str | None:
        """What is wrong with an answer, in words for the model; None if nothing is."""
        problems = self._problems(data)
        if not problems:
            return None
        lines = [f"- `{path}`: {text}" if path else f"- {text}" for path, text in problems[:20]]
        return "\n".join(["The answer does not fit the schema:", *lines, "Correct it and try again."])

    def _problems(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        if self._adapter is None:
            self._validator = self._validator or SchemaValidator(self.name, self.schema)
            return self._validator.problems(data)
        from pydantic import ValidationError

        try:
            self.parse(data)
        except ValidationError as error:
            return [(".".join(map(str, item["loc"])), item["msg"]) for item in error.errors()]
        except KeyError:
            return [("response", "is missing")]
        return []

    def parse(self, data: Mapping[str, Any]) -> Any:
        """The answer as the caller wants it; only for answers without a `problem`."""
        value = data["response"] if self.wrapped else data
        return value if self._adapter is None else self._adapter.validate_json(json.dumps(value))

    def from_text(self, text: str) -> Mapping[str, Any] | None:
        """The answer in a text: JSON, with or without a code fence, or else the text itself as the `response`."""
        return next((data for data in self._readings(text) if self.problem(data) is None), None)

    def _readings(self, text: str) -> Iterator[Mapping[str, Any]]:
        """What a text may mean, the likeliest first."""
        if not text.strip():
            return
        fenced = _FENCE.match(text)
        try:
            value = json.loads(fenced[1] if fenced else text)
        except ValueError:
            value = None
        if isinstance(value, dict):
            yield cast("Mapping[str, Any]", value)
        if self.wrapped and value is not None:
            yield {"response": value}
        if "response" in self.schema.get("properties", {}):
            yield {"response": text}


def _as_object(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return a schema that describes an object, and whether it had to be wrapped for that."""
    target = schema
    reference = schema.get("$ref", "")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        target = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), schema)
    if target.get("type") == "object" or "properties" in target:
        return schema, False
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {"response": inner}, "required": ["response"]}
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped, True


def shown(data: Mapping[str, Any]) -> str:
    """The answer as text for people: its `response` if that is all it says, else JSON."""
    response = data.get("response")
    return response if isinstance(response, str) else json.dumps(data, ensure_ascii=False)
