"""Nodes: what runs at a place of the graph, and how often and how long it may try."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from treadle.errors import GraphDefinitionError, GraphError, NodeTimeoutError, StateError
from treadle.event import CustomEvent, Wish
from treadle.graph._control import Command
from treadle.graph._state import Task
from treadle.graph._strategy import MISSING, as_json, own

if TYPE_CHECKING:
    from treadle.graph._run import Run

Result: TypeAlias = Command | Mapping[str, Any] | None


class PauseSignal(BaseException):
    """A node wants something from outside. Not an `Exception`, so that a node's own `except` does not swallow it."""

    def __init__(self, wishes: Sequence[Wish]) -> None:
        super().__init__(wishes)
        self.wishes = tuple(wishes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a failing node is tried, and how long to wait between tries."""

    attempts: int = 3
    delay: float = 0.1
    factor: float = 2.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise GraphDefinitionError(f"A node is tried at least once; `attempts` is {self.attempts!r}.")


class NodeContext:
    """What a node may ask about the run it is part of: take a second parameter to get it."""

    __slots__ = ("_pauses", "run", "task")

    def __init__(self, run: Run, task: Task) -> None:
        self.run = run
        self.task = task
        self._pauses = 0

    @property
    def thread(self) -> str:
        """The id of the thread."""
        return self.run.name

    @property
    def task_id(self) -> str:
        """A name for this visit of this node: the same after a crash, different at the next visit."""
        state = self.run.state
        return f"{self.task.node}@{state.turn}.{state.steps}.{self.task.index}"

    @property
    def context(self) -> Any:
        """What the caller passed as `context=`."""
        return self.run.context

    @property
    def variables(self) -> Mapping[str, Any]:
        """What the caller passed as `variables=`."""
        return self.run.variables

    async def emit(self, name: str, data: Any = None) -> None:
        """Tell whoever watches the run."""
        await self.run.emit(CustomEvent(source=self.run.source, name=name, data=data))

    def pause(self, value: Any = None) -> Any:
        """Stop here until somebody answers; see the function `pause`."""
        wish = f"{self.task_id}#{self._pauses}"
        self._pauses += 1
        if wish in self.run.state.answers:
            return own(self.run.state.answers[wish])
        try:
            shown = as_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise StateError(f"`pause` shows JSON to whoever has to answer: {error}") from error
        raise PauseSignal([Wish(id=wish, kind="input", name=self.task.node, value=shown)])


_current: ContextVar[NodeContext | None] = ContextVar("treadle_node", default=None)


def pause(value: Any = None) -> Any:
    """Stop the run inside a node until `resume` brings an answer, and return that answer.

    The node runs again from its beginning on resume, so what comes before must bear repetition. `value` (JSON) is shown
    to whoever has to answer.
    """
    context = _current.get()
    if context is None:
        raise RuntimeError(
            "`pause()` works inside a node of a running graph only; a tool of an agent raises `Suspend` instead."
        )
    return context.pause(value)


def leave_node() -> None:
    """Begin a run inside a node: what it does is not done by that node, so it cannot pause in its name."""
    _current.set(None)


class Node(Protocol):
    """Something that can run at a place of a graph."""

    name: str
    interruptible: bool
    """Whether a cooperative interrupt may take effect just before this node."""
    commits: bool
    """Whether the node itself makes what came before durable, before it does anything that counts."""

    async def run(self, context: NodeContext) -> Result:
        """Do the work and return the update."""
        ...


class NodeLike(Protocol):
    """An object that knows how to be a node, such as an agent or a compiled graph."""

    def as_node(self) -> Callable[[Any, NodeContext], Any]:
        """Return the function to run."""
        ...


NodeGiven: TypeAlias = Callable[[Any], Any] | Callable[[Any, NodeContext], Any] | NodeLike
"""What can be made a node."""


@dataclass(slots=True)
class FunctionNode:
    """A node made of a function of the state, or of the state and the `NodeContext`."""

    name: str
    function: Callable[..., Any]
    wants_context: bool
    is_async: bool
    retry: Retry | None = None
    timeout: float | None = None
    on_error: Callable[..., Any] | None = None
    interruptible: bool = True
    commits: bool = False

    async def run(self, context: NodeContext) -> Result:
        """Call the function, again where the retry policy says so, and let the error handler have the last word."""
        token = _current.set(context)
        try:
            return await self._try(context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise GraphError(f"Node {self.name!r} raised `CancelledError`, though nobody cancelled it.") from error
        except Exception as error:
            if self.on_error is None:
                error.add_note(f"In node {self.name!r} of thread {context.thread!r}.")
                raise
            handled = self.on_error(self._argument(context), error)
            return cast("Result", await handled if inspect.isawaitable(handled) else handled)
        finally:
            _current.reset(token)

    async def _try(self, context: NodeContext) -> Result:
        policy = self.retry or Retry(attempts=1)
        delay = policy.delay
        for attempt in range(1, policy.attempts + 1):
            try:
                return await self._once(context)
            except policy.on:
                if attempt == policy.attempts:
                    raise
                await asyncio.sleep(delay)
                delay *= policy.factor
        raise AssertionError("A retry policy needs at least one attempt.")

    async def _once(self, context: NodeContext) -> Result:
        context._pauses = 0  # pyright: ignore[reportPrivateUsage]
        argument = self._argument(context)
        call = self._call((argument, context) if self.wants_context else (argument,))
        if self.timeout is None:
            return await call
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return await call
        except TimeoutError as error:
            if limit.expired():
                raise NodeTimeoutError(f"Node {self.name!r} did not finish within {self.timeout} s.") from error
            raise

    async def _call(self, arguments: tuple[Any, ...]) -> Result:
        if self.is_async:
            return await self.function(*arguments)
        result = await asyncio.to_thread(self._call_sync, arguments)
        return await result if inspect.isawaitable(result) else result

    def _call_sync(self, arguments: tuple[Any, ...]) -> Any:
        try:
            return self.function(*arguments)
        except StopIteration as error:  # which a future cannot carry
            raise RuntimeError(f"Node {self.name!r} raised `StopIteration`.") from error

    def _argument(self, context: NodeContext) -> Any:
        return context.run.state.view() if context.task.arg is MISSING else own(context.task.arg)


def make_node(name: str, given: Any, **options: Any) -> FunctionNode:
    """Make a node of a function, a compiled graph or an agent."""
    function = given.as_node() if hasattr(given, "as_node") else given
    if not callable(function):
        raise GraphDefinitionError(f"Node {name!r} must be a function, a compiled graph or an agent, not {given!r}.")
    call = getattr(type(function), "__call__", None)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
    return FunctionNode(name, function, _wants_context(function), is_async, **options)


def _wants_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    return len(required) > 1 or (len(positional) > 1 and positional[1].name in ("context", "ctx"))


def as_command(result: Any, node: str) -> Command:
    """Bring what a node returned into one form."""
    if isinstance(result, Command):
        return result
    if result is None:
        return Command()
    if isinstance(result, Mapping):
        return Command(update=cast("Mapping[str, Any]", result))
    raise StateError(f"Node {node!r} returned {result!r:.200}; a node returns a dict of updates, a `Command` or None.")
