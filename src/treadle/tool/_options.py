"""The options that make one tool differ from another made from the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from treadle.errors import ToolDefinitionError


class SchemaOptions(TypedDict, total=False):
    """What `FunctionTool.from_schema` takes beside name, description and schema.

    `presets` are values, or functions that make them per call, for parameters that the model does not see; it may still
    override them by name unless they are `locked`. `injected` names parameters that only the run's context provides.
    """

    presets: Mapping[str, Any]
    locked: Iterable[str]
    injected: Iterable[str]
    idempotent: bool
    read_only: bool
    sequential: bool
    external: bool
    ends_run: bool
    timeout: float | None
    retries: int
    approval: bool | Callable[[Mapping[str, Any]], bool]


class ToolOptions(SchemaOptions, total=False):
    """What `tool`, `Toolkit.tool` and `Toolkit.add` take beside the function."""

    name: str
    description: str


class AddOptions(ToolOptions, total=False):
    """What a toolkit takes besides: `replace` puts the tool in the place of one with the same name."""

    replace: bool


ATTRIBUTES = frozenset(
    ("description", "idempotent", "read_only", "sequential", "external", "ends_run", "timeout", "retries", "approval")
)


def check_name(name: str) -> None:
    """Refuse a name that providers refuse."""
    if not (name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) <= 64):
        raise ToolDefinitionError(
            f"{name!r} cannot be a tool's name: providers take at most 64 letters, digits, `_` and `-`. "
            'Give another one: `name="..."`.'
        )


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that cannot work."""
    unknown = options.keys() - ToolOptions.__annotations__.keys()
    if unknown:
        raise ToolDefinitionError(f"`{name}`: there is no option {', '.join(f'`{item}`' for item in sorted(unknown))}.")
    if (timeout := options.get("timeout")) is not None and not timeout > 0:
        raise ToolDefinitionError(f"`{name}`: `timeout` must be more than 0 seconds, not {timeout!r}.")
    if (retries := options.get("retries", 0)) < 0:
        raise ToolDefinitionError(f"`{name}`: `retries` must be 0 or more, not {retries!r}.")


def names_of(value: Iterable[str]) -> frozenset[str]:
    """A set of names; one name may stand alone."""
    return frozenset((value,) if isinstance(value, str) else value)
