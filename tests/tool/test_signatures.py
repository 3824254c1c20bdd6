"""What becomes the schema of a function: a table over signatures."""

import enum
import functools
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar, cast

import pytest
from pydantic import BaseModel, Field

from tool.support import output
from treadle.errors import ToolDefinitionError
from treadle.tool import Context, FunctionTool, ToolContext

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    title: str
    price: float = Field(1.0, ge=0)


class Node(BaseModel):
    value: int
    children: "list[Node]" = []


class Page(BaseModel, Generic[T]):
    items: list[T]


@dataclass
class Point:
    x: int
    y: int = 0


class Movie(typing.TypedDict):
    name: str
    year: NotRequired[int]


class Tree(typing.TypedDict):
    children: "list[Tree]"


class Database:
    pass


class Greeter:
    """Greets people."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    def greet(self, name: str) -> str:
        """Greet one person."""
        return f"{self.greeting} {name}"

    def __call__(self, name: str) -> str:
        return f"{self.greeting}, {name}"

    @staticmethod
    def shout(name: str) -> str:
        return name.upper()

    @classmethod
    def make(cls, name: str) -> str:
        return f"{cls.__name__} {name}"


def plain(a: int, b: str, c: float, d: bool) -> None: ...
def nothing() -> None: ...
def anything(a: Any, b: None, c: object) -> None: ...
def containers(a: list[int], b: dict[str, Any], c: tuple[int, str], d: set[str]) -> None: ...
def unions(a: int | str, b: int | None, c: typing.Optional[str] = None) -> None: ...  # noqa: UP045
def literals(a: Literal["x", "y"], b: Literal[1], c: Literal["x", 1, None] = None) -> None: ...  # noqa: PYI061
def defaults(a: int = 1, b: str = "x", c: list[int] = [1], d: float = float("inf"), e: Colour = Colour.RED) -> None: ...  # noqa: B006
def enums(a: Colour) -> None: ...
def described(a: Annotated[int, "How many"], b: Annotated[int, Field(ge=1, description="More")]) -> None: ...
def fields(a: int = Field(3, ge=1, description="How many"), b: str = Field(description="What")) -> None: ...
def models(a: Item, b: Node, c: Page[int]) -> None: ...
def dataclasses_(a: Point, b: list[Point]) -> None: ...
def typed_dicts(a: Movie, b: list[Movie] | None = None) -> None: ...
def positional(a: int, /, b: int = 2) -> None: ...
def variadic(a: int, *args: int, flag: bool = False, **kwargs: str) -> None: ...
def injected(a: int, db: Database, ctx: ToolContext, all: Context, other: Database | None = None) -> None: ...
def sequences(a: Sequence[int], b: typing.List[int]) -> None: ...  # noqa: UP006
def optional_fields(
    a: Annotated[int | None, Field(ge=1)] = None, b: Annotated[int, Field(ge=1)] = cast(Any, None)
) -> None: ...
def odd_defaults(a: Any = object(), b: tuple[()] = (), c: Annotated[Literal["x"], []] = "x") -> None: ...  # noqa: B008
def typevars(a: T, b: list[T]) -> None: ...


# What a type checker does not like to see.
LOOSE: dict[str, Any] = {}
exec(
    """
def unannotated(a, b=1): ...
def bare(a: list, b: dict): ...
def implicit(a: int = None): ...
def method(self, a: int): ...
""",
    LOOSE,
)


ITEM = {
    "properties": {"title": {"type": "string"}, "price": {"default": 1.0, "minimum": 0, "type": "number"}},
    "required": ["title"],
    "type": "object",
}
NODE: dict[str, Any] = {
    "properties": {
        "value": {"type": "integer"},
        "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array"},
    },
    "required": ["value"],
    "type": "object",
}
PAGE = {
    "properties": {"items": {"items": {"type": "integer"}, "type": "array"}},
    "required": ["items"],
    "type": "object",
}
POINT = {
    "properties": {"x": {"type": "integer"}, "y": {"default": 0, "type": "integer"}},
    "required": ["x"],
    "type": "object",
}
MOVIE = {
    "properties": {"name": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["name"],
    "type": "object",
}
NULL = {"type": "null"}
AT_LEAST_ONE = {"anyOf": [{"type": "integer", "minimum": 1}, NULL], "default": None}
COLOUR = {"enum": ["red", "blue"], "type": "string"}


@dataclass(frozen=True, kw_only=True)
class Case:
    function: Callable[..., Any]
    properties: dict[str, Any]
    required: list[str]
    defs: dict[str, Any] | None = None
    extra: Any = False


CASES = [
    Case(
        function=plain,
        properties={
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"type": "number"},
            "d": {"type": "boolean"},
        },
        required=["a", "b", "c", "d"],
    ),
    Case(function=nothing, properties={}, required=[]),
    Case(function=LOOSE["unannotated"], properties={"a": {}, "b": {"default": 1}}, required=["a"]),
    Case(function=anything, properties={"a": {}, "b": NULL, "c": {}}, required=["a", "b", "c"]),
    Case(
        function=containers,
        properties={
            "a": {"type": "array", "items": {"type": "integer"}},
            "b": {"type": "object", "additionalProperties": True},
            "c": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
            "d": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        },
        required=["a", "b", "c", "d"],
    ),
    Case(
        function=LOOSE["bare"],
        properties={"a": {"type": "array", "items": {}}, "b": {"type": "object", "additionalProperties": True}},
        required=["a", "b"],
    ),
    Case(
        function=unions,
        properties={
            "a": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "b": {"anyOf": [{"type": "integer"}, NULL]},
            "c": {"anyOf": [{"type": "string"}, NULL], "default": None},
        },
        required=["a", "b"],
    ),
    Case(
        function=literals,
        properties={
            "a": {"enum": ["x", "y"], "type": "string"},
            "b": {"const": 1, "type": "integer"},
            "c": {"enum": ["x", 1, None], "default": None},
        },
        required=["a", "b"],
    ),
    Case(
        function=defaults,
        properties={
            "a": {"type": "integer", "default": 1},
            "b": {"type": "string", "default": "x"},
            "c": {"type": "array", "items": {"type": "integer"}, "default": [1]},
            "d": {"type": "number"},
            "e": {"$ref": "#/$defs/Colour", "default": "red"},
        },
        required=[],
        defs={"Colour": COLOUR},
    ),
    Case(
        function=LOOSE["implicit"],
        properties={"a": {"anyOf": [{"type": "integer"}, NULL], "default": None}},
        required=[],
    ),
    Case(function=enums, properties={"a": {"$ref": "#/$defs/Colour"}}, required=["a"], defs={"Colour": COLOUR}),
    Case(
        function=described,
        properties={
            "a": {"type": "integer", "description": "How many"},
            "b": {"type": "integer", "description": "More", "minimum": 1},
        },
        required=["a", "b"],
    ),
    Case(
        function=fields,
        properties={
            "a": {"type": "integer", "description": "How many", "minimum": 1, "default": 3},
            "b": {"type": "string", "description": "What"},
        },
        required=["b"],
    ),
    Case(
        function=models,
        properties={"a": {"$ref": "#/$defs/Item"}, "b": {"$ref": "#/$defs/Node"}, "c": {"$ref": "#/$defs/Page_int_"}},
        required=["a", "b", "c"],
        defs={"Item": ITEM, "Node": NODE, "Page_int_": PAGE},
    ),
    Case(
        function=dataclasses_,
        properties={"a": {"$ref": "#/$defs/Point"}, "b": {"type": "array", "items": {"$ref": "#/$defs/Point"}}},
        required=["a", "b"],
        defs={"Point": POINT},
    ),
    Case(
        function=positional,
        properties={"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        required=["a"],
    ),
    Case(
        function=variadic,
        properties={
            "a": {"type": "integer"},
            "args": {"type": "array", "items": {"type": "integer"}},
            "flag": {"type": "boolean", "default": False},
        },
        required=["a"],
        extra={"type": "string"},
    ),
    Case(function=injected, properties={"a": {"type": "integer"}}, required=["a"]),
    Case(
        function=sequences,
        properties={
            "a": {"type": "array", "items": {"type": "integer"}},
            "b": {"type": "array", "items": {"type": "integer"}},
        },
        required=["a", "b"],
    ),
    Case(
        function=optional_fields,
        properties={"a": AT_LEAST_ONE, "b": AT_LEAST_ONE},
        required=[],
    ),
    Case(
        function=odd_defaults,
        properties={
            "a": {},
            "b": {"type": "array", "minItems": 0, "maxItems": 0, "default": []},
            "c": {"const": "x", "type": "string", "default": "x"},
        },
        required=[],
    ),
    Case(function=typevars, properties={"a": {}, "b": {"type": "array", "items": {}}}, required=["a", "b"]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_schema(case: Case) -> None:
    expected: dict[str, Any] = {"type": "object", "properties": case.properties, "additionalProperties": case.extra}
    if case.required:
        expected["required"] = case.required
    if case.defs:
        expected["$defs"] = case.defs
    assert FunctionTool(case.function).spec.parameters == expected


def test_typed_dicts_of_the_standard_library_are_taken_on_every_python() -> None:
    parameters = FunctionTool(typed_dicts).parameters
    assert list(parameters["properties"]) == ["a", "b"]
    assert all(schema == MOVIE for schema in parameters["$defs"].values())
    values = FunctionTool(typed_dicts).validate({"a": {"name": "Playtime"}, "b": [{"name": "Trafic", "year": "1971"}]})
    assert values == {"a": {"name": "Playtime"}, "b": [{"name": "Trafic", "year": 1971}]}


def annotated_movie(a: Annotated[Movie, Field(description="A film")]) -> None: ...
def tree(root: Tree) -> None: ...


def test_typed_dicts_inside_annotated() -> None:
    assert FunctionTool(annotated_movie).parameters["properties"]["a"]["description"] == "A film"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes them as they are")
def test_a_recursive_typed_dict_of_the_standard_library_is_refused_with_advice() -> None:
    with pytest.raises(ToolDefinitionError, match=r"`root`.*typing_extensions\.TypedDict"):
        FunctionTool(tree)


def test_classes_of_one_name_stay_apart() -> None:
    def make(kind: Any) -> type:
        return type("Twin", (BaseModel,), {"__annotations__": {"value": kind}})

    first, second = make(int), make(str)

    def twins(a: Any, b: Any) -> None: ...

    twins.__annotations__ = {"a": first, "b": second}
    definitions = FunctionTool(twins).parameters["$defs"]
    assert sorted(item["properties"]["value"]["type"] for item in definitions.values()) == ["integer", "string"]


def not_json(callback: Callable[[int], int]) -> None: ...
def nested_class(items: list[Database]) -> None: ...


class Duck(typing.Protocol):
    def quack(self) -> str: ...


def unchecked_protocol(duck: Duck) -> None: ...
def bad_extra(**options: Callable[[], int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (not_json, ["`not_json`", "`callback`", "presets="]),
        (nested_class, ["`nested_class`", "`items`"]),
        (unchecked_protocol, ["`unchecked_protocol`", "`duck`", "runtime_checkable"]),
        (bad_extra, ["`bad_extra`", "`options`"]),
        (functools.partial(variadic, 1, 2), ["`variadic`", "partial"]),
        (Greeter.__dict__["make"], ["bound method"]),
        (LOOSE["method"], ["`method`", "bound"]),
        (lambda: None, ["<lambda>", "name="]),
        (Database, ["function"]),
        (17, ["17"]),
    ],
)
def test_what_cannot_be_offered_is_refused_at_registration(function: Any, words: list[str]) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        FunctionTool(function)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_preset_provides_what_no_schema_can_say() -> None:
    tool = FunctionTool(not_json, presets={"callback": lambda: abs})
    assert tool.parameters["properties"] == {}


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"retries": -1},
        {"presets": {"z": 1}},
        {"locked": "a"},
        {"injected": "z"},
        {"presets": {"a": 1}, "injected": ("a",)},
        {"name": "with space"},
        {"name": "é"},
        {"name": "x" * 65},
        {"colour": "red"},
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(options: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        FunctionTool(plain, **options)


# Every kind of callable


def greet(greeting: str, name: str, mark: str = "!") -> str:
    """Greet somebody."""
    return f"{greeting} {name}{mark}"


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@logged
async def wrapped(name: str) -> str:
    """Greet softly."""
    return f"psst {name}"


@dataclass(frozen=True, kw_only=True)
class CallableCase:
    function: Any
    name: str
    description: str
    output: str


CALLABLES = [
    CallableCase(function=Greeter("Hi").greet, name="greet", description="Greet one person.", output="Hi Ada"),
    CallableCase(function=Greeter("Hi"), name="Greeter", description="Greets people.", output="Hi, Ada"),
    CallableCase(function=Greeter.shout, name="shout", description="", output="ADA"),
    CallableCase(function=Greeter.__dict__["shout"], name="shout", description="", output="ADA"),
    CallableCase(function=Greeter.make, name="make", description="", output="Greeter Ada"),
    CallableCase(
        function=functools.partial(greet, "Hello", mark="?"),
        name="greet",
        description="Greet somebody.",
        output="Hello Ada?",
    ),
    CallableCase(
        function=functools.partial(functools.partial(greet, mark="."), "Hey"),
        name="greet",
        description="Greet somebody.",
        output="Hey Ada.",
    ),
    CallableCase(function=wrapped, name="wrapped", description="Greet softly.", output="psst Ada"),
]


@pytest.mark.parametrize("case", CALLABLES, ids=lambda case: case.output)
async def test_a_tool_from_any_callable(case: CallableCase) -> None:
    tool = FunctionTool(case.function)
    assert (tool.name, tool.description) == (case.name, case.description)
    assert list(tool.parameters["properties"]) == ["name"]
    assert await output(tool, {"name": "Ada"}) == case.output


async def test_a_callable_bound_by_a_partial_is_handed_over_as_it_is() -> None:
    def apply(function: Callable[[int], int], n: int) -> int:
        return function(n)

    assert await output(FunctionTool(functools.partial(apply, abs)), {"n": -3}) == "3"


async def test_positional_only_and_variadic_parameters_arrive_where_they_belong() -> None:
    def show(a: int, /, b: int = 2, *args: int, flag: bool = False, **kwargs: str) -> list[Any]:
        return [a, b, args, flag, kwargs]

    tool = FunctionTool(show)
    assert await output(tool, {"a": 1}) == "[1,2,[],false,{}]"
    given = {"a": 1, "b": 5, "args": [7, "8"], "flag": True, "x": "y"}
    assert await output(tool, given) == '[1,5,[7,8],true,{"x":"y"}]'


async def test_defaults_inside_a_field_are_applied() -> None:
    def show(a: int = Field(3, ge=1), b: list[int] = Field(default_factory=list)) -> list[Any]:  # noqa: B008
        return [a, b]

    assert await output(FunctionTool(show)) == "[3,[]]"
    assert await output(FunctionTool(show), {"a": 4, "b": [1]}) == "[4,[1]]"


async def test_a_builtin_with_a_signature_is_a_tool() -> None:
    assert await output(FunctionTool(sys.intern), {"string": "x"}) == "x"


def test_a_tool_can_still_be_called_as_the_function() -> None:
    assert FunctionTool(greet)("Hello", "Ada", mark="") == "Hello Ada"


def test_the_same_function_is_read_once() -> None:
    copy = types.FunctionType(greet.__code__, greet.__globals__, "copy")
    first, second = FunctionTool(copy), FunctionTool(copy, idempotent=True)
    assert first.parameters is second.parameters
    assert (first.repeatable, second.repeatable) == (False, True)
