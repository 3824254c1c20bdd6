"""The one place that talks to pydantic, which is imported when a function or a value needs it."""

from __future__ import annotations

import copy
import json
import math
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Union, cast, get_args, get_origin

from treadle.tool._schema import required_type

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    from treadle.tool._signature import Param

MISSING: Any = object()


def from_field(annotation: Any, field: Any) -> tuple[Any, Any, Callable[[], Any] | None]:
    """Take `a: int = Field(1, ge=0)` apart: annotation, default, default factory."""
    from inspect import Parameter

    from pydantic_core import PydanticUndefined

    default = Parameter.empty if field.default is PydanticUndefined or field.default is ... else field.default
    bare = copy.copy(field)
    bare.default, bare.default_factory = PydanticUndefined, None
    return Annotated[annotation, bare], default, field.default_factory


def describe(params: Iterable[Param]) -> dict[str, Any]:
    """Give each parameter a schema, a type to inject or a problem; return the definitions that the schemas refer to."""
    from pydantic import TypeAdapter

    together: Any = TypeAdapter  # one generator for all, so that equal names of different classes stay apart
    possible = [(param, adapter) for param in params if (adapter := _probe(param)) is not None]
    inputs = [(param.name, "validation", adapter) for param, adapter in possible]
    schemas, common = together.json_schemas(inputs, schema_generator=_generator())
    for param, _ in possible:
        param.schema = untitled(schemas[(param.name, "validation")])
    return untitled(common).get("$defs", {})


def _probe(param: Param) -> TypeAdapter[Any] | None:
    """The parameter's adapter if a schema can be made with it; otherwise the parameter is told why not."""
    try:
        param.annotation = portable(param.annotation)
        adapter = _adapter(param.annotation)
        adapter.json_schema(schema_generator=_generator())
    except Exception as error:
        _explain(param, error)
        return None
    return adapter


def _explain(param: Param, error: Exception) -> None:
    from pydantic import PydanticSchemaGenerationError

    wanted = required_type(param.annotation)
    if isinstance(error, PydanticSchemaGenerationError) and isinstance(wanted, type) and not get_args(wanted):
        if _is_checkable(wanted):
            param.inject = wanted
            return
        error = TypeError("a protocol must be `@runtime_checkable` to be injected")
    param.problem = f"no JSON schema can be made for {param.annotation!r} ({str(error).partition(chr(10))[0]})"


def _is_checkable(kind: type) -> bool:
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)


@cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

    class Generator(GenerateJsonSchema):
        def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
            """Say nothing: a default that cannot be shown is left out."""

    return Generator


def untitled(node: Any) -> Any:
    """A schema without the titles that pydantic makes from names: they cost tokens and say nothing."""
    if isinstance(node, list):
        return [untitled(item) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    return {key: _inner(key, value) for key, value in cast(dict[str, Any], node).items() if key != "title"}


def _inner(key: str, value: Any) -> Any:
    if key in ("properties", "$defs", "patternProperties"):
        return {name: untitled(schema) for name, schema in value.items()}
    return value if key in ("default", "const", "enum", "examples", "required") else untitled(value)


def compile_validator(fields: Mapping[str, Any], extra: Param | None) -> Any:
    """One validator for all arguments. Which of them are required is the tool's business, not the validator's."""
    items = {name: NotRequired[annotation] for name, annotation in fields.items()}
    kind = _typed_dict("Arguments", items, **({} if extra is None else {"extra_items": extra.annotation}))
    if extra is None:
        kind.__pydantic_config__ = {"extra": "forbid"}
    return _adapter(kind).validator


def _typed_dict(name: str, items: Mapping[str, Any], **options: Any) -> Any:
    import typing_extensions

    make: Any = typing_extensions.TypedDict
    return make(name, items, **options)


def validate(validator: Any, values: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Coerced values, or the problems found: path and text."""
    from pydantic_core import ValidationError

    try:
        return validator.validate_python(values), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        return {}, [(path_text(item["loc"]), _problem_text(item)) for item in details]


def _problem_text(detail: Any) -> str:
    if detail["type"] == "extra_forbidden":
        return "there is no such argument"
    return f"{detail['msg']}, got {shortened(detail['input'])}"


def shortened(value: Any) -> str:
    """A value as it may stand in an error text."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def path_text(path: Iterable[str | int]) -> str:
    """A path such as `items[2].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def jsonable(value: Any) -> Any:
    """A default as it may stand in a schema, or MISSING."""
    if value is None or type(value) in (int, str, bool):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else MISSING
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return _jsonable_object(value)


def _jsonable_object(value: Any) -> Any:
    from pydantic_core import to_json

    try:
        return json.loads(to_json(value))
    except (TypeError, ValueError, RecursionError):
        return MISSING


def portable(annotation: Any, inside: tuple[Any, ...] = ()) -> Any:
    """Replace `typing.TypedDict` classes, which pydantic does not take before Python 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _portable_typeddict(annotation, inside)
    origin, args = get_origin(annotation), get_args(annotation)
    if not args or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(portable(args[0], inside), *args[1:])]
    new = tuple(portable(arg, inside) for arg in args)
    if new == args:
        return annotation
    return Union[new] if origin in (Union, UnionType) else origin[new]  # noqa: UP007 (made from a tuple)


def _portable_typeddict(kind: Any, inside: tuple[Any, ...]) -> Any:
    if kind in inside:
        raise TypeError(f"`{kind.__name__}` refers to itself: use `typing_extensions.TypedDict` before Python 3.12")
    hints = {name: portable(hint, (*inside, kind)) for name, hint in typing.get_type_hints(kind).items()}
    optional = kind.__optional_keys__
    new = _typed_dict(
        kind.__name__, {key: NotRequired[hint] if key in optional else hint for key, hint in hints.items()}
    )
    new.__doc__, new.__module__ = kind.__doc__, kind.__module__
    return new
