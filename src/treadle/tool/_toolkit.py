"""`Toolkit`: the tools of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, Unpack, cast, overload

from treadle.errors import InputError, ToolDefinitionError
from treadle.model import ToolSpec
from treadle.tool._base import Tool
from treadle.tool._function import FunctionTool
from treadle.tool._options import AddOptions

F = TypeVar("F", bound=Callable[..., Any])


class Toolkit:
    """A set of tools with different names. A run never changes it.

    Args:
        tools: Functions, tools, or another toolkit.
        parallel: Whether calls of one answer run beside each other.
        max_parallel: How many of them at most.

    Example:
        >>> toolkit = Toolkit()
        >>> @toolkit.tool
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> [spec.name for spec in toolkit.specs()]
        ['add']
    """

    __slots__ = ("_specs", "_tools", "max_parallel", "parallel")

    def __init__(
        self, tools: Iterable[Callable[..., Any] | Tool] = (), *, parallel: bool = True, max_parallel: int = 64
    ) -> None:
        if max_parallel < 1:
            raise ToolDefinitionError(f"`max_parallel` must be 1 or more, not {max_parallel!r}.")
        self.parallel = parallel
        self.max_parallel = max_parallel
        self._tools: dict[str, Tool] = {}
        self._specs: tuple[ToolSpec, ...] | None = None
        for item in tools:
            self.add(item)

    @overload
    def tool(self, function: F, /, **options: Unpack[AddOptions]) -> F: ...

    @overload
    def tool(self, function: None = None, /, **options: Unpack[AddOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Unpack[AddOptions]) -> Any:
        """Add the decorated function, and leave the function as it is; use it bare or with options."""

        def decorate(function: F) -> F:
            self.add(function, **options)
            return function

        return decorate if function is None else decorate(function)

    def add(self, tool_or_callable: Callable[..., Any] | Tool, /, **options: Unpack[AddOptions]) -> Tool:
        """Add a tool, or make one from a callable, and return it."""
        replace = options.pop("replace", False)
        made = _make(tool_or_callable, options)
        if made.name in self._tools and not replace:
            raise ToolDefinitionError(
                f"There is a tool `{made.name}` already. Give this one another name with `name=...`, "
                "or pass `replace=True` to put it in the other's place."
            )
        self._tools[made.name] = made
        self._specs = None
        return made

    def remove(self, name: str) -> None:
        """Take a tool out."""
        if name not in self._tools:
            raise InputError(f"There is no tool `{name}`; there are {', '.join(self._tools) or 'none'}.")
        del self._tools[name]
        self._specs = None

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._tools.get(name)

    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools as the model sees them, in the order they were added."""
        if self._specs is None:
            self._specs = tuple(tool.spec for tool in self._tools.values())
        return self._specs

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolkit({', '.join(self._tools)})"


def _make(item: Any, options: AddOptions) -> Tool:
    if not isinstance(item, Tool):
        return FunctionTool(item, **cast(Any, options))
    if options:
        raise ToolDefinitionError(
            f"`{item.name}` is a tool already: options ({', '.join(options)}) are given where it is made."
        )
    return item
