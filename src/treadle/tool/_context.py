"""What a tool may ask for besides its arguments, and how it says that somebody else has to run it."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, cast

from treadle.message import OutputBlock, ToolUseBlock

T = TypeVar("T")
Emitter: TypeAlias = Callable[[str | OutputBlock], Awaitable[None]]
Abandoned: TypeAlias = Callable[["concurrent.futures.Future[Any]"], None]


class Context:
    """Objects and values of one run that tools receive without the model knowing them. Never stored.

    Objects are found by type, named values by name.

    Example:
        >>> context = Context(3.5, region="eu")
        >>> context.get(float), context["region"]
        (3.5, 'eu')
    """

    __slots__ = ("_objects", "_values")

    def __init__(self, *objects: Any, **values: Any) -> None:
        self._objects = objects
        self._values = values

    def get(self, kind: type[T]) -> T | None:
        """The first object of that type, or None."""
        if kind is Context:
            return cast(T, self)
        return next((item for item in self._objects if isinstance(item, kind)), None)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        # Types and names only: what is injected is often a credential.
        parts = [type(item).__name__ for item in self._objects] + [f"{name}=..." for name in self._values]
        return f"Context({', '.join(parts)})"


class ToolContext:
    """One call of a tool, as the tool sees it. A parameter annotated `ToolContext` receives it, whatever its name.

    `cancelled` becomes True when the run no longer waits for this call; a long sync tool may look at it and stop.
    `emitter`, `abandoned` and `host` belong to the agent that runs the call.
    """

    __slots__ = ("abandoned", "agent", "call", "cancelled", "context", "emitter", "host", "run", "thread")

    def __init__(
        self,
        call: ToolUseBlock,
        thread: str = "",
        agent: str = "",
        run: str = "",
        context: Context | None = None,
        emitter: Emitter | None = None,
        abandoned: Abandoned | None = None,
        host: Any = None,
    ) -> None:
        self.call = call
        self.thread = thread
        self.agent = agent
        self.run = run
        self.context = context
        self.emitter = emitter
        self.abandoned = abandoned
        self.host = host
        self.cancelled = False

    @property
    def call_id(self) -> str:
        """The call's id. It stays the same when the call is repeated, so it serves as an idempotency key."""
        return self.call.id

    @property
    def logger(self) -> logging.Logger:
        """The logger `treadle.tool.<name>`."""
        return logging.getLogger(f"treadle.tool.{self.call.name}")

    async def emit(self, chunk: str | OutputBlock) -> None:
        """Show progress to whoever watches the run; it does not become part of the result."""
        if self.emitter is not None:
            await self.emitter(chunk)

    def __repr__(self) -> str:
        return f"ToolContext(tool={self.call.name!r}, call_id={self.call.id!r}, thread={self.thread!r})"


class Suspend(Exception):
    """Raised by a tool that cannot do the work itself: the agent pauses until the result is given from outside."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
