"""Values for what the model leaves out: first the preset, then the run's context, then the default."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from treadle.errors import ToolDefinitionError, ToolError
from treadle.tool._context import Context, ToolContext
from treadle.tool._schema import required_type
from treadle.tool._signature import Param

MISSING: Any = object()


class Filler:
    """Provides one parameter that is not in the model's arguments."""

    __slots__ = ("factory", "kind", "name", "preset", "required")

    def __init__(self, name: str, param: Param | None, preset: Callable[[ToolContext], Any] | None) -> None:
        self.name = name
        self.preset = preset
        self.kind: type[Any] | None = None if param is None else _injectable(param)
        self.required = param is not None and param.required
        self.factory = None if param is None else param.factory or _default_of_field(param)

    def value(self, tool: str, ctx: ToolContext) -> Any:
        """The value, or MISSING if the function's own default serves."""
        if self.kind is ToolContext:
            return ctx
        if self.preset is not None:
            return self._preset(self.preset, tool, ctx)
        if ctx.context is not None and (value := self._from_context(ctx.context)) is not MISSING:
            return value
        if self.required:
            raise ToolError(f"`{tool}` needs {self._wanted()}: give it with `context=Context(...)`.")
        return MISSING if self.factory is None else self.factory()

    def _preset(self, preset: Callable[[ToolContext], Any], tool: str, ctx: ToolContext) -> Any:
        try:
            return preset(ctx)
        except Exception as error:  # its text may hold what is secret
            kind = type(error).__name__
        raise ToolError(f"`{tool}`: the preset `{self.name}` could not be made ({kind}).")

    def _from_context(self, context: Context) -> Any:
        if self.name in context and (self.kind is None or isinstance(context[self.name], self.kind)):
            return context[self.name]
        found: Any = None if self.kind is None else context.get(self.kind)
        return MISSING if found is None else found

    def _wanted(self) -> str:
        return f"`{self.name}`" if self.kind is None else f"an object of type `{self.kind.__name__}` for `{self.name}`"


def _injectable(param: Param) -> type | None:
    """The type to look for in the context. Values of built-in types are found by name only."""
    kind = param.inject or required_type(param.annotation)
    return kind if isinstance(kind, type) and kind.__module__ != "builtins" else None


def _default_of_field(param: Param) -> Callable[[], Any] | None:
    """A default that the function cannot apply itself, because it stands inside pydantic's `Field`."""
    return (lambda: param.default) if param.from_field and not param.required else None


def preset_maker(tool: str, name: str, value: Any) -> Callable[[ToolContext], Any]:
    """A function of the call for a preset: a value, a function without parameters, or one of the `ToolContext`."""
    if not callable(value):
        return lambda ctx: value
    if inspect.iscoroutinefunction(value):
        raise ToolDefinitionError(f"`{tool}`: the preset `{name}` is async; presets are made by sync functions.")
    return value if _takes_context(value) else lambda ctx: value()


def constant(value: Any) -> Callable[[ToolContext], Any]:
    """A preset that is taken as it is, even if it can be called."""
    return lambda ctx: value


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return False
    return any(parameter.default is inspect.Parameter.empty and parameter.kind < 2 for parameter in parameters)
