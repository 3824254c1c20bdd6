"""`FunctionTool`: a tool made from a callable, or from a JSON schema and a callable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from treadle.errors import ToolInputError, ToolTimeoutError
from treadle.tool._base import Tool, input_error
from treadle.tool._context import Suspend, ToolContext
from treadle.tool._invoke import Invocation, in_thread, on_loop, surfaced
from treadle.tool._jsonschema import SchemaValidator, without
from treadle.tool._options import ATTRIBUTES, SchemaOptions, ToolOptions, check_name, check_options
from treadle.tool._plan import Plan, plan_of
from treadle.tool._result import ToolResult, as_result
from treadle.tool._signature import Target, target_of

P = ParamSpec("P")
R = TypeVar("R")

_BACKOFF = 0.05
_BACKOFF_LIMIT = 2.0
_OURS = "is provided by the application: leave it out"


class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function; it can still be called as the function.

    Example:
        >>> def add(a: int, b: int) -> int:
        ...     return a + b
        >>> FunctionTool(add).validate({"a": 17, "b": "25"})
        {'a': 17, 'b': 25}
    """

    def __init__(self, function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> None:
        target = target_of(function, options.get("name"))
        target.signature.describe()
        self.description = target.signature.description
        self.function: Callable[P, R] = function
        self._configure(target, options, plan_of(target, options))
        self.parameters = self._plan.parameters

    def _configure(self, target: Target, options: Mapping[str, Any], plan: Plan) -> None:
        check_name(target.name)
        self.name = target.name
        if options:
            check_options(target.name, options)
            for key in ATTRIBUTES & options.keys():
                setattr(self, key, options[key])
        self._call = target.call
        self._signature = target.signature
        self._plan = plan
        self._simple = self.timeout is None and not self.retries
        signature = target.signature
        self._plain = self._simple and signature.is_coroutine and not (plan.locked or signature.positional)

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[..., Any] | None = None,
        **options: Unpack[SchemaOptions],
    ) -> FunctionTool[..., Any]:
        """A tool whose schema is given. Without a function it is external: the agent pauses for its result.

        The function receives the arguments by name, as they came; its other parameters are injected.
        """
        return _SchemaTool(function or _elsewhere, name, description, parameters, options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def validate(self, input: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, checked and coerced: `"5"` serves for an int, `5.5` does not."""
        plan = self._plan
        if plan.required <= input.keys():
            exact = plan.exact
            for name, value in input.items():
                if exact.get(name) is not type(value):
                    break
            else:
                return dict(input)
        return self._check(input)

    def _check(self, input: Mapping[str, Any]) -> dict[str, Any]:
        plan = self._plan
        problems = [(name, _OURS) for name in input if name in plan.refused]
        problems += [(name, "is missing") for name in self._signature.params if name in plan.required - input.keys()]
        given = {name: value for name, value in input.items() if name not in plan.refused}
        values, wrong = self._signature.validate(given)
        if problems or wrong:
            raise input_error(self.name, problems + wrong)
        return values

    async def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Call the function with the arguments and what is injected."""
        if self.external:
            raise Suspend(f"`{self.name}` is run elsewhere.")
        plan = self._plan
        values = plan.filled(self.name, arguments, ctx) if plan.fillers else arguments
        if self._plain:
            return await self._directly(values, ctx)
        if self._signature.positional:
            args, named = self._signature.arguments(values)
            call = partial(self._call, *args, **named)
        else:
            call = partial(self._call, **values)
        invocation = Invocation(self.name, call, ctx, plan.secrets(values) if plan.locked else ())
        if self._simple:
            return await self._attempt(invocation)
        return await self._guarded(invocation)

    async def _directly(self, values: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Most tools: a coroutine function without secrets, timeout or retries needs nothing in between."""
        try:
            return as_result(await self._call(**values), self.name)
        except BaseException as error:
            failure = surfaced(Invocation(self.name, self._call, ctx, ()), error)
            if failure is error:
                raise
        raise failure

    async def _attempt(self, invocation: Invocation) -> ToolResult:
        return await (on_loop if self._signature.is_async else in_thread)(invocation)

    async def _guarded(self, invocation: Invocation) -> ToolResult:
        scope = asyncio.timeout(self.timeout)
        try:
            async with scope:
                return await self._retrying(invocation)
        except TimeoutError:
            if not scope.expired():
                raise
        raise ToolTimeoutError(f"`{self.name}` did not finish within {self.timeout:g} s.")

    async def _retrying(self, invocation: Invocation) -> ToolResult:
        for attempt in range(self.retries):
            try:
                return await self._attempt(invocation)
            except (Suspend, ToolInputError):
                raise
            except Exception as error:
                invocation.ctx.logger.debug("try %d failed: %s", attempt + 1, type(error).__name__)
            await asyncio.sleep(min(_BACKOFF * 2 ** min(attempt, 10), _BACKOFF_LIMIT))
        return await self._attempt(invocation)


class _SchemaTool(FunctionTool[..., Any]):
    """A function behind a schema that somebody else wrote."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        target = target_of(function, name)
        self.function = function
        self.external = function is _elsewhere
        plan = plan_of(target, options, parameters.get("properties", {}))
        self._configure(target, {"description": description, **options}, plan)
        preset = {**target.presets, **options.get("presets", {})}.keys()
        self.parameters = without(parameters, preset)
        self._validator = SchemaValidator(name, without(parameters, preset, required_only=True))

    def validate(self, input: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are, if the schema allows them."""
        problems = [(name, _OURS) for name in input if name in self._plan.refused]
        problems += self._validator.problems(input)
        if problems:
            raise input_error(self.name, problems)
        return dict(input)


def _elsewhere(**arguments: Any) -> Any:
    """Stands for the function of an external tool."""


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...


@overload
def tool(
    function: None = None, /, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool; use it bare or with options.

    Example:
        >>> @tool(idempotent=True)
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> double(4), double.spec.parameters["required"]
        (8, ['n'])
    """
    if function is None:
        make: Any = FunctionTool
        return partial(make, **options)
    return FunctionTool(function, **options)
