"""Arguments checked against a JSON schema that somebody else wrote."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from treadle.errors import ToolDefinitionError
from treadle.tool._adapter import path_text


class SchemaValidator:
    """A compiled schema. References to other documents are refused, never fetched."""

    __slots__ = ("_validator",)

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        import jsonschema_rs

        if schema.get("type", "object") != "object":
            raise ToolDefinitionError(
                f"`{tool}`: its parameters must be a schema of type 'object', not {schema!r:.200}."
            )
        try:
            self._validator = jsonschema_rs.validator_for({"type": "object", **schema}, offline=True)
        except (ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise ToolDefinitionError(f"`{tool}`: its parameters are not a valid JSON schema ({reason}).") from error

    def problems(self, input: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Path and text of everything that is wrong."""
        value = dict(input)
        if self._validator.is_valid(value):
            return []
        return [(path_text(error.instance_path), error.message) for error in self._validator.iter_errors(value)]


def without(schema: Mapping[str, Any], names: Collection[str], *, required_only: bool = False) -> Mapping[str, Any]:
    """A schema that does not ask for some properties, and unless told otherwise does not show them."""
    if not names:
        return schema
    lean = {**schema, "required": [name for name in schema.get("required", ()) if name not in names]}
    if not required_only:
        lean["properties"] = {name: item for name, item in schema.get("properties", {}).items() if name not in names}
    return lean
