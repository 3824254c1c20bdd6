"""A checked graph: nodes, edges and pauses, and the pure question of where a finished step leads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

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

    @property
    def slow(self) -> bool:
        """Whether the function must be awaited."""
        call = getattr(type(self.function), "__call__", None)  # noqa: B004
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)


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

    has_breakpoints: bool = field(init=False)
    """Whether the graph ever stops by itself."""

    def __post_init__(self) -> None:
        self.has_breakpoints = bool(self.pause_before or self.pause_after or self.pause_on_edge)

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
        steps = [self._after(update, state, _answer) for update in state.last]
        return self._gather(state, state.last, steps)

    async def next_slowly(self, state: ThreadState, last: Sequence[UpdateRecord] | None = None) -> list[Target]:
        """The same where conditional edges may be async, perhaps as if other nodes had just run."""
        updates = state.last if last is None else last
        answers: dict[int, Any] = {}
        for update in updates:
            for route in self.routes.get(update.node, ()) if update.goto is None else ():
                answer = _call(route, state)
                answers[id(route)] = await answer if inspect.isawaitable(answer) else answer
        steps = [self._after(update, state, lambda route, _: answers[id(route)]) for update in updates]
        return self._gather(state, updates, steps)

    def first(self) -> list[Target]:
        """Where a run begins: at the node behind `START` if the way on depends on the input."""
        return [START] if START in self.nodes else [edge for edge in self.edges[START] if edge != END]

    def _after(
        self, update: UpdateRecord, state: ThreadState, ask: Callable[[Route, ThreadState], Any]
    ) -> list[Target]:
        if update.goto is not None:
            return self.checked(update.goto, update.node)
        found: list[Target] = [edge for edge in self.edges.get(update.node, ()) if edge != END]
        for route in self.routes.get(update.node, ()):
            chosen = _translate(route, ask(route, state), update.node)
            found += self.checked(to_targets(chosen, update.node, self.schema), update.node)
        return found

    def checked(self, targets: Sequence[Target], source: str) -> list[Target]:
        """The targets, if all of them are nodes of this graph."""
        for target in targets:
            name = target if isinstance(target, str) else target["node"]
            if name not in self.nodes:
                known = ", ".join(sorted(self.nodes))
                raise GraphError(f"Node {source!r} leads to {name!r}, which does not exist; there are {known}.")
        return list(targets)

    def _gather(self, state: ThreadState, last: Sequence[UpdateRecord], steps: Sequence[list[Target]]) -> list[Target]:
        """All targets: a node named twice runs once, every `Send` counts, joins wait for all their sources."""
        out: list[Target] = []
        for target in chain.from_iterable(steps):
            if not isinstance(target, str) or target not in out:
                out.append(target)
        finished = {update.node for update in last} if self.joins else set[str]()
        for name, join in self.joins.items():
            have = {*state.waiting.get(name, ()), *(finished & set(join.sources))}
            if have == set(join.sources):
                out += [join.target] if join.target not in (END, *out) else []
            elif have:
                out.append({"wait": name, "have": sorted(have)})
        return out

    def breakpoints(self, state: ThreadState) -> list[Wish]:
        """The stops in front of the current step that nobody has answered yet."""
        came_from = [update.node for update in state.last] or ([START] if not state.steps else [])
        going_to = [task.node for task in state.frontier]
        wishes = {f"before:{node}": node for node in going_to if node in self.pause_before}
        wishes |= {
            f"edge:{source}:{node}": node
            for node in going_to or [END]
            for source in came_from
            if (source, node) in self.pause_on_edge
        }
        wishes |= {f"after:{node}": node for node in came_from if node in self.pause_after}
        return [Wish(id=id, kind="breakpoint", name=node) for id, node in wishes.items() if id not in state.answers]


def _call(route: Route, state: ThreadState) -> Any:
    return route.function(state.view())


def _answer(route: Route, state: ThreadState) -> Any:
    """What a route says at once; one that turns out to be async is asked again by `next_slowly`."""
    answer = _call(route, state)
    if inspect.iscoroutine(answer):
        answer.close()
        raise GraphError("This edge must be awaited.")
    return answer


def _translate(route: Route, answer: Any, source: str) -> Goto:
    if route.paths is None or isinstance(answer, Send):
        return answer
    answers: Sequence[Any] = cast("Sequence[Any]", answer) if isinstance(answer, list | tuple) else [answer]
    out: list[str | Send] = []
    for item in answers:
        if isinstance(item, Send):
            out.append(item)
        elif isinstance(item, Hashable) and item in route.paths:
            out.append(route.paths[item])
        else:
            raise GraphError(
                f"The edge from {source!r} answered {item!r}; it may answer {sorted(map(str, route.paths))}."
            )
    return out
