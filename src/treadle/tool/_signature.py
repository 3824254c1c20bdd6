"""What a function's signature says, read once per function and shared by every tool made from it."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ForwardRef, Literal, NamedTuple, get_origin

from treadle.errors import ToolDefinitionError
from treadle.tool import _adapter
from treadle.tool._annotations import resolve
from treadle.tool._context import Context, ToolContext
from treadle.tool._docstring import read_docstring
from treadle.tool._schema import EXACT, Schema, optional, required_type, schema_of, split

if TYPE_CHECKING:
    from treadle.tool._plan import Plan

EMPTY: Any = inspect.Parameter.empty
_VAR_POSITIONAL, _VAR_KEYWORD = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Param:
    """One parameter. It has a schema, or a type to inject, or a problem that forbids both."""

    __slots__ = (
        "annotation",
        "default",
        "description",
        "factory",
        "from_field",
        "inject",
        "kind",
        "name",
        "problem",
        "schema",
    )

    def __init__(self, parameter: inspect.Parameter, annotation: Any, description: str | None) -> None:
        self.name = parameter.name
        self.kind = parameter.kind
        self.default: Any = parameter.default
        self.factory: Callable[[], Any] | None = None
        annotation, text = split(Any if annotation is EMPTY else annotation)
        self.description = text or description
        self.annotation: Any = list[annotation] if self.kind is _VAR_POSITIONAL else annotation
        self.from_field = type(self.default).__name__ == "FieldInfo"
        if self.from_field:
            self.annotation, self.default, self.factory = _adapter.from_field(self.annotation, self.default)
        if self.default is None:
            self.annotation = optional(self.annotation)
        wanted = required_type(self.annotation)
        self.inject: type | None = wanted if wanted is ToolContext or wanted is Context else None
        self.schema: Schema | None = None if self.inject else schema_of(self.annotation)
        self.problem: str | None = None

    @property
    def required(self) -> bool:
        """Whether a call without it fails."""
        variadic = self.kind is _VAR_POSITIONAL or self.kind is _VAR_KEYWORD
        return self.default is EMPTY and self.factory is None and not variadic


class Signature:
    """What is known about one function. Holds no reference to the function, so that the cache can forget it."""

    def __init__(self, function: Callable[..., Any], bound: bool, name: str, docstring: str | None) -> None:
        doc = read_docstring(docstring)
        self.description = doc.description
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.is_coroutine = inspect.iscoroutinefunction(function)
        params = _read(function, bound, name, doc.parameters)
        self.params = {param.name: param for param in params if param.kind is not _VAR_KEYWORD}
        self.extra = next((param for param in params if param.kind is _VAR_KEYWORD), None)
        self.positional = _positional(params)
        self._described = False
        self._adapter: Any = None
        self.defs: dict[str, Any] = {}
        self.plan: Plan | None = None

    def describe(self) -> None:
        """Give every parameter its schema, or the type to inject, or its problem."""
        if self._described:
            return
        unknown = [param for param in self._all() if param.schema is None and param.inject is None]
        if unknown:
            self.defs = _adapter.describe(unknown)
        for param in self.params.values():
            if param.schema is not None:
                param.schema = _complete(param)
        self._described = True

    def _all(self) -> list[Param]:
        return [*self.params.values(), *([self.extra] if self.extra else [])]

    def exact(self) -> dict[str, type]:
        """The parameters whose values need no validator if they are of this very type."""
        return {name: param.annotation for name, param in self.params.items() if param.annotation in EXACT}

    def validate(self, values: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Coerced values, or the problems found: path and text."""
        if self._adapter is None:
            fields = {name: param.annotation for name, param in self.params.items() if param.schema is not None}
            self._adapter = _adapter.compile_validator(fields, self.extra)
        return _adapter.validate(self._adapter, values)

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The values as positional and keyword arguments."""
        named, args = dict(values), list[Any]()
        for param in self.positional:
            if param.kind is _VAR_POSITIONAL:
                args.extend(named.pop(param.name, ()))
            elif param.name in named or param.default is not EMPTY:
                args.append(named.pop(param.name, param.default))
        return args, named


class Target(NamedTuple):
    """A callable taken apart: what is called, what it is called, and what is bound to it already."""

    call: Callable[..., Any]
    name: str
    signature: Signature
    presets: dict[str, Any]


_free: weakref.WeakKeyDictionary[Any, Signature] = weakref.WeakKeyDictionary()
_bound: weakref.WeakKeyDictionary[Any, Signature] = weakref.WeakKeyDictionary()


def target_of(call: Any, name: str | None = None) -> Target:
    """Take any callable apart."""
    if isinstance(call, staticmethod):
        return target_of(call.__func__, name)
    if isinstance(call, functools.partial):
        return _partial(call, name)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(call, types.FunctionType | types.BuiltinFunctionType):
        name = name or call.__name__
        return Target(call, name, _signature(_free, call, False, name), {})
    if isinstance(call, types.MethodType):
        name = name or call.__name__
        return Target(call, name, _signature(_bound, call.__func__, True, name), {})
    return _object(call, name)


def _object(call: Any, name: str | None) -> Target:
    if isinstance(call, type) or not callable(call):
        raise ToolDefinitionError(
            f"{call!r:.200} cannot be made a tool: give a function, a bound method, or an object that can be called."
        )
    kind: Any = type(call)
    name = name or str(kind.__name__)
    signature = _bound.get(kind)
    if signature is None:
        doc = kind.__call__.__doc__ or kind.__doc__
        signature = _bound[kind] = Signature(kind.__call__, True, name, doc)
    return Target(call, name, signature, {})


def _partial(call: functools.partial[Any], name: str | None) -> Target:
    inner = target_of(call.func, name)
    by_position = [param for param in inner.signature.params.values() if param.kind < _VAR_POSITIONAL]
    free = [param.name for param in by_position if param.name not in inner.presets]
    if len(call.args) > len(free):
        raise ToolDefinitionError(f"`{inner.name}`: the partial binds more positional arguments than can be named.")
    presets = {**inner.presets, **dict(zip(free, call.args, strict=False)), **call.keywords}
    return inner._replace(presets=presets)


def _signature(cache: weakref.WeakKeyDictionary[Any, Signature], function: Any, bound: bool, name: str) -> Signature:
    signature = cache.get(function)
    if signature is None:
        signature = cache[function] = Signature(function, bound, name, function.__doc__)
    return signature


def _read(function: Callable[..., Any], bound: bool, tool: str, descriptions: Mapping[str, str]) -> list[Param]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, NameError, TypeError) as error:
        raise ToolDefinitionError(
            f"`{tool}`: its signature cannot be read ({error}). Wrap it in a function."
        ) from error
    if bound:
        parameters = parameters[1:]
    elif parameters and parameters[0].name in ("self", "cls") and parameters[0].annotation is EMPTY:
        raise ToolDefinitionError(
            f"`{tool}` is a method without its object: give the bound method, as in `toolkit.add(instance.{tool})`."
        )
    raw = {parameter.name: parameter.annotation for parameter in parameters if _is_text(parameter.annotation)}
    hints = resolve(function, raw, tool) if raw else {}
    return [Param(p, hints.get(p.name, p.annotation), descriptions.get(p.name)) for p in parameters]


def _is_text(annotation: Any) -> bool:
    """Whether an annotation is text or has text inside."""
    if isinstance(annotation, str | ForwardRef):
        return True
    args = () if get_origin(annotation) is Literal else getattr(annotation, "__args__", ())
    return any(_is_text(arg) for arg in args)


def _positional(params: list[Param]) -> tuple[Param, ...]:
    """The parameters that must be passed by position: none, as a rule."""
    if any(param.kind is _VAR_POSITIONAL for param in params):
        return tuple(param for param in params if param.kind <= _VAR_POSITIONAL)
    return tuple(param for param in params if param.kind is inspect.Parameter.POSITIONAL_ONLY)


def _complete(param: Param) -> Schema:
    """The schema of a parameter with its description and default."""
    schema = dict(param.schema or {})
    if param.description and "description" not in schema:
        schema["description"] = param.description
    if param.default is not EMPTY and "default" not in schema:
        shown = _adapter.jsonable(param.default)
        if shown is not _adapter.MISSING:
            schema["default"] = shown
    return schema
