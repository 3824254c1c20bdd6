"""Annotations written as text, made into types."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import CodeType, SimpleNamespace
from typing import Any

from treadle.errors import ToolDefinitionError
from treadle.tool._context import Context, ToolContext

_OURS: dict[str, Any] = {"Context": Context, "ToolContext": ToolContext}


def resolve(function: Callable[..., Any], annotations: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """Evaluate annotations in the places where the function can see names, Treadle's own last."""
    target: Any = inspect.unwrap(function)
    globalns: dict[str, Any] = getattr(target, "__globals__", {})
    try:
        return _evaluate(annotations, globalns, _enclosing(target))
    except Exception:  # one of them failed: go through them with more names, and find out which
        localns = {**_OURS, **_defining_locals(target), **_enclosing(target)}
        return {name: _resolve_one(tool, name, value, globalns, localns) for name, value in annotations.items()}


def _resolve_one(tool: str, name: str, annotation: Any, globalns: dict[str, Any], localns: dict[str, Any]) -> Any:
    try:
        return _evaluate({name: annotation}, {**localns, **globalns}, localns)[name]
    except Exception as error:
        raise ToolDefinitionError(
            f"`{tool}`: the annotation {annotation!r} of parameter `{name}` cannot be evaluated ({error}). "
            "Import the names it uses at run time, not under `TYPE_CHECKING`, or define them at module level."
        ) from error


def _evaluate(annotations: Mapping[str, Any], globalns: dict[str, Any], localns: dict[str, Any]) -> dict[str, Any]:
    holder: Any = SimpleNamespace(__annotations__=annotations)
    return typing.get_type_hints(holder, globalns, localns, include_extras=True)


def _enclosing(target: Any) -> dict[str, Any]:
    """The variables of enclosing functions that the function uses, and its type parameters."""
    names: dict[str, Any] = {kind.__name__: kind for kind in getattr(target, "__type_params__", ())}
    code: CodeType | None = getattr(target, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(target, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def _defining_locals(target: Any) -> dict[str, Any]:
    """The local names of the function that defines this one, as long as it is still running."""
    code: CodeType | None = getattr(target, "__code__", None)
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while code is not None and frame.f_back is not None:
        frame = frame.f_back
        if code in frame.f_code.co_consts:
            return frame.f_locals
    return {}
