"""A checked graph: nodes, edges and pauses, and the pure question of where a finished step leads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.errors import GraphError
from treadle.event import Wish
from treadle.graph._control import END, START, Goto, Send
from treadle.graph._node import Node
from treadle.graph._schema import Schema
from treadle.graph._state import ThreadState, to_targets
from treadle.journal._record import Target, UpdateRecord


@dataclass(frozen=True, slots=True)
class Route:
    """A conditional edge: a function of the state says where to go, `paths` translates what it says."""

    function: Callable[[Any], Any]
    paths: Mapping[Any, str] | None = None
    raw: bool = False
    """Whether the function takes the `ThreadState` itself; the built-in loop uses this."""

    @property
    def slow(self) -> bool:
        """Whether the function must be awaited."""
        return inspect.iscoroutinefunction(self.function)


@dataclass(frozen=True, slots=True)
class Join:
    """An edge that waits for all its sources."""

    name: str
    sources: tuple[str, ...]
    target: str


@dataclass(slots=True, kw_only=True)
class Plan:
    """Everything a run needs to know about a graph."""

    schema: Schema
    nodes: Mapping[str, Node]
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict[str, tuple[Route, ...]])
    joins: Mapping[str, Join] = field(default_factory=dict[str, Join])
    pause_before: frozenset[str] = frozenset()
    pause_after: frozenset[str] = frozenset()
    pause_on_edge: frozenset[tuple[str, str]] = frozenset()
    step_limit: int | None = None
    shows_nodes: bool = True
    slow_routes: bool = False

    @property
    def has_breakpoints(self) -> bool:
        """Whether the graph ever stops by itself."""
        return bool(self.pause_before or self.pause_after or self.pause_on_edge)

    def node(self, name: str) -> Node:
        """Return a node; a stored thread may name one that the graph no longer has."""
        try:
            return self.nodes[name]
        except KeyError:
            raise GraphError(
                f"The thread goes to node {name!r}, which this graph does not have. Was it renamed since?"
            ) from None

    def next(self, state: ThreadState) -> list[Target]:
        """Where the step that just finished leads, in the order of its tasks and their edges."""
        steps = [self._after(update, state, _call) for update in state.last]
        return self._gather(state, steps)

    async def next_slowly(self, state: ThreadState) -> list[Target]:
        """The same where conditional edges are async."""
        for update in state.last:
            for route in self.routes.get(update.node, ()):
                if route.slow and update.goto is None:
                    return await self._awaited(state)
        return self.next(state)

    async def _awaited(self, state: ThreadState) -> list[Target]:
        answers: dict[int, Any] = {}
        for update in state.last:
            for route in self.routes.get(update.node, ()):
                answer = _call(route, state)
                answers[id(route)] = await answer if inspect.isawaitable(answer) else answer
        steps = [self._after(update, state, lambda route, _: answers[id(route)]) for update in state.last]
        return self._gather(state, steps)

    def first(self, state: ThreadState) -> list[Target]:
        """Where a run begins."""
        start = UpdateRecord(node=START)
        return self._gather(state, [self._after(start, state, _call)])

    def after(self, node: str, state: ThreadState) -> list[Target]:
        """Where a node leads, as if it had just run."""
        return self._gather(state, [self._after(UpdateRecord(node=node), state, _call)])

    def _after(
        self, update: UpdateRecord, state: ThreadState, ask: Callable[[Route, ThreadState], Any]
    ) -> list[Target]:
        if update.goto is not None:
            return self.checked(update.goto, update.node)
        found: list[Target] = [edge for edge in self.edges.get(update.node, ()) if edge != END]
        for route in self.routes.get(update.node, ()):
            chosen = _translate(route, ask(route, state), update.node)
            found += self.checked(to_targets(chosen), update.node)
        return found

    def checked(self, targets: Sequence[Target], source: str) -> list[Target]:
        """The targets, if all of them are nodes of this graph."""
        for target in targets:
            name = target if isinstance(target, str) else target["node"]
            if name not in self.nodes:
                known = ", ".join(sorted(self.nodes))
                raise GraphError(f"Node {source!r} leads to {name!r}, which does not exist; there are {known}.")
        return list(targets)

    def _gather(self, state: ThreadState, steps: Sequence[list[Target]]) -> list[Target]:
        """One list of all targets: a node named twice runs once, every `Send` counts, joins wait for all their sources."""
        out: list[Target] = []
        for step in steps:
            out += [target for target in step if not isinstance(target, str) or target not in out]
        if not self.joins:
            return out
        finished = {update.node for update in state.last}
        for name, join in self.joins.items():
            have = {*state.waiting.get(name, ()), *(finished & set(join.sources))}
            if have == set(join.sources):
                out += [join.target] if join.target not in out else []
            elif have:
                out.append({"wait": name, "have": sorted(have)})
        return out

    def breakpoints(self, state: ThreadState) -> list[Wish]:
        """The stops in front of the current step that nobody has answered yet."""
        came_from = [update.node for update in state.last]
        wishes: list[str] = []
        for task in state.frontier:
            wishes += [f"before:{task.node}"] if task.node in self.pause_before else []
            wishes += [
                f"edge:{source}:{task.node}" for source in came_from if (source, task.node) in self.pause_on_edge
            ]
        wishes += [f"after:{source}" for source in came_from if source in self.pause_after]
        open_wishes = [wish for wish in dict.fromkeys(wishes) if wish not in state.answers]
        return [Wish(id=wish, kind="breakpoint", name=wish.split(":")[-1]) for wish in open_wishes]


def _call(route: Route, state: ThreadState) -> Any:
    return route.function(state if route.raw else state.view())


def _translate(route: Route, answer: Any, source: str) -> Goto:
    if route.paths is None or isinstance(answer, Send):
        return answer
    answers: list[Any] = list(answer) if isinstance(answer, list | tuple) else [answer]  # pyright: ignore[reportUnknownArgumentType]
    out: list[str | Send] = []
    for item in answers:
        if isinstance(item, Send):
            out.append(item)
        elif item in route.paths:
            out.append(route.paths[item])
        else:
            raise GraphError(
                f"The edge from {source!r} answered {item!r}; it may answer {sorted(map(str, route.paths))}."
            )
    return out
