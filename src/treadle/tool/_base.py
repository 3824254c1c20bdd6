"""`Tool`: what every tool is, wherever it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from treadle.errors import ToolInputError
from treadle.model import ToolSpec
from treadle.tool._context import ToolContext
from treadle.tool._jsonschema import SchemaValidator
from treadle.tool._result import ToolResult


class Tool:
    """Something that a model may call. Subclasses set the attributes and override `run`; most tools are functions.

    Attributes:
        name: What the model calls it.
        description: What it is for, for the model.
        parameters: The JSON schema of its arguments, an object.
        idempotent: Safe to run again after an unknown outcome.
        read_only: Changes nothing, so it is idempotent too.
        sequential: Never runs beside another call of the same batch.
        external: Has a schema only; it is run elsewhere and the agent pauses.
        ends_run: Its successful result is the answer.
        timeout: Seconds for the whole call, retries included.
        retries: How often to try again when the function raises.
        approval: Whether a person is asked first; a function decides by the input.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    idempotent: bool = False
    read_only: bool = False
    sequential: bool = False
    external: bool = False
    ends_run: bool = False
    timeout: float | None = None
    retries: int = 0
    approval: bool | Callable[[Mapping[str, Any]], bool] = False

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    @property
    def repeatable(self) -> bool:
        """Whether it may run again after an unknown outcome."""
        return self.idempotent or self.read_only

    def validate(self, input: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, checked and coerced.

        Raises:
            ToolInputError: They do not fit; the text names every path that is wrong.
        """
        problems = self._schema_validator.problems(input)
        if problems:
            raise input_error(self.name, problems)
        return dict(input)

    def needs_approval(self, input: Mapping[str, Any]) -> bool:
        """Whether a person has to agree to a call with this input."""
        if isinstance(self.approval, bool):
            return self.approval
        try:
            return bool(self.approval(input))
        except Exception as error:
            error.add_note(f"In the `approval` function of tool `{self.name}`.")
            raise

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Do the work. `arguments` is what `validate` returned."""
        raise NotImplementedError(f"{type(self).__name__} must override `run`.")

    @cached_property
    def _schema_validator(self) -> SchemaValidator:
        return SchemaValidator(self.name, self.parameters)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def input_error(tool: str, problems: list[tuple[str, str]]) -> ToolInputError:
    """One text for everything that is wrong with a call's arguments."""
    lines = [f"- `{path}`: {text}" if path else f"- {text}" for path, text in problems[:20]]
    if len(problems) > 20:
        lines.append(f"- and {len(problems) - 20} more")
    return ToolInputError("\n".join([f"The arguments of `{tool}` are not valid:", *lines]))
