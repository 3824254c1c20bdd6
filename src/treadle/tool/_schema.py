"""JSON schemas of plain annotations, without pydantic; equal to what pydantic would say."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

Schema: TypeAlias = dict[str, Any]

_LITERAL: dict[Any, str] = {int: "integer", str: "string", bool: "boolean"}
_PLAIN: dict[Any, str] = {**_LITERAL, float: "number", None: "null", type(None): "null"}

EXACT = (int, str, bool, float)
"""A value whose type is exactly one of these needs no validator for a parameter annotated so."""


def schema_of(annotation: Any) -> Schema | None:
    """The schema of an annotation, or None if it takes pydantic to know."""
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:  # an unhashable Annotated or Literal
        return None
    if plain is not None:
        return {"type": plain}
    if annotation is Any or annotation is object:
        return {}
    origin = get_origin(annotation) or annotation
    make = _GENERIC.get(origin)
    return make(get_args(annotation)) if make else None


def split(annotation: Any) -> tuple[Any, str | None]:
    """An annotation without its plain description string, and that string."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    base, *metadata = get_args(annotation)
    texts = [item for item in metadata if isinstance(item, str)]
    rest = tuple(item for item in metadata if not isinstance(item, str))
    return (Annotated[(base, *rest)] if rest else base), (texts[0] if texts else None)


def allows_none(annotation: Any) -> bool:
    """Whether None is among the values of an annotation."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return allows_none(args[0])
    if origin is Union or origin is types.UnionType:
        return any(allows_none(arg) for arg in args)
    return annotation in (None, type(None), Any, object) or (origin is Literal and None in args)


def optional(annotation: Any) -> Any:
    """The annotation, None allowed."""
    if allows_none(annotation):
        return annotation
    if get_origin(annotation) is Annotated:
        base, *metadata = get_args(annotation)
        return Annotated[(optional(base), *metadata)]
    return Union[annotation, None]  # noqa: UP007 (`|` does not take every annotation)


def required_type(annotation: Any) -> Any:
    """The one type that is left without Annotated and None, or the annotation itself if there are several."""
    if get_origin(annotation) is Annotated:
        return required_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [arg for arg in get_args(annotation) if arg is not type(None)]
        return required_type(members[0]) if len(members) == 1 else annotation
    return annotation


def _array(args: tuple[Any, ...]) -> Schema | None:
    items = schema_of(args[0]) if args else {}
    return None if items is None else {"items": items, "type": "array"}


def _set(args: tuple[Any, ...]) -> Schema | None:
    array = _array(args)
    return None if array is None else {**array, "uniqueItems": True}


def _tuple(args: tuple[Any, ...]) -> Schema | None:
    if not args:
        return None  # `tuple` and `tuple[()]` differ, and only pydantic's answer to the second is worth having
    if len(args) == 2 and args[1] is Ellipsis:
        return _array(args[:1])
    items = [schema_of(arg) for arg in args]
    if None in items:
        return None
    return {"prefixItems": items, "minItems": len(items), "maxItems": len(items), "type": "array"}


def _object(args: tuple[Any, ...]) -> Schema | None:
    if args and args[0] is not str:
        return None
    values = schema_of(args[1]) if args else {}
    return None if values is None else {"additionalProperties": values or True, "type": "object"}


def _union(args: tuple[Any, ...]) -> Schema | None:
    # Pydantic names null last.
    schemas = [schema_of(arg) for arg in sorted(args, key=lambda arg: arg is type(None))]
    members: list[Schema] = []
    for schema in schemas:
        if schema is None:
            return None
        if schema not in members:
            members.append(schema)
    return members[0] if len(members) == 1 else {"anyOf": members}


def _literal(args: tuple[Any, ...]) -> Schema | None:
    kinds: set[Any] = {type(arg) for arg in args}
    if not kinds <= {int, str, bool, type(None)} or kinds == {type(None)}:
        return None
    schema: Schema = {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if len(kinds) == 1:
        schema["type"] = _LITERAL[kinds.pop()]
    return schema


_GENERIC: dict[Any, Callable[[tuple[Any, ...]], Schema | None]] = {
    list: _array,
    set: _set,
    frozenset: _set,
    tuple: _tuple,
    dict: _object,
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
}
