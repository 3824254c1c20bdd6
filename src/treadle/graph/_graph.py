"""`StateGraph`: describe nodes and edges, then compile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from treadle.errors import GraphDefinitionError
from treadle.graph._control import END, START
from treadle.graph._node import Node, NodeContext, NodeGiven, Retry, make_node
from treadle.graph._plan import Join, Plan, Route
from treadle.graph._schema import schema_of

if TYPE_CHECKING:
    from treadle.graph._compiled import CompiledGraph
    from treadle.journal import Journal


class _Start:
    """The node behind `START` where its way on depends on the input."""

    name = START
    interruptible = True
    commits = False

    async def run(self, context: NodeContext) -> None:
        return None


class StateGraph:
    """A graph whose nodes read a state and return updates to it.

    Example:
        >>> from typing import Annotated, TypedDict
        >>> from treadle.graph import END, START, StateGraph, append
        >>> class State(TypedDict):
        ...     numbers: Annotated[list[int], append]
        >>> graph = StateGraph(State)
        >>> _ = graph.add_node("double", lambda state: {"numbers": [2 * state["numbers"][-1]]})
        >>> _ = graph.add_edge(START, "double").add_edge("double", END)
        >>> compiled = graph.compile()

    Args:
        state: A TypedDict, a dataclass or a pydantic model, its keys annotated with `append`, `merge` or a function
            where updates do not simply replace; or a dict of key strategies; or None to take any key.
    """

    def __init__(self, state: Any = None) -> None:
        self._state = state
        self._nodes: dict[str, Node] = {}
        self._gotos: dict[str, tuple[str, ...]] = {}
        self._edges: dict[str, list[str]] = {}
        self._routes: dict[str, list[Route]] = {}
        self._joins: list[Join] = []
        self._problems: list[str] = []

    def add_node(
        self,
        name: str | NodeGiven,
        node: NodeGiven | None = None,
        *,
        retry: Retry | None = None,
        timeout: float | None = None,
        on_error: Callable[[Any, Exception], Any] | None = None,
        goto: Iterable[str] = (),
    ) -> StateGraph:
        """Add a node: a sync or async function, a compiled graph, or an agent.

        Args:
            name: The node's name; a function, graph or agent alone is added under its own name.
            node: What runs there. A function takes the state, and the `NodeContext` if it has a second parameter.
            retry: How often to try again after an error.
            timeout: Seconds after which a try counts as failed.
            on_error: Called with the state and the error when all tries failed; returns an update or a `Command`.
            goto: Where a `Command` of this node may lead, for the checks and the drawing.
        """
        if not isinstance(name, str):
            name, node = str(getattr(name, "__name__", None) or getattr(name, "name", name)), name
        if name in self._nodes:
            self._problems.append(f"There are two nodes named {name!r}; give one another name.")
        if name in (START, END):
            self._problems.append(f"{name!r} is reserved; give the node another name.")
        self._nodes[name] = make_node(name, node, retry=retry, timeout=timeout, on_error=on_error)
        self._gotos[name] = _names(goto)
        return self

    def add_edge(self, source: str | Sequence[str], target: str) -> StateGraph:
        """Go from a node to the next; from several, wait until all of them have finished."""
        if isinstance(source, str):
            self._edges.setdefault(source, []).append(target)
        else:
            self._joins.append(Join(f"{' + '.join(map(repr, source))} > {target!r}", tuple(source), target))
        return self

    def add_conditional_edges(
        self, source: str, route: Callable[[Any], Any], paths: Mapping[Any, str] | Sequence[str] | None = None
    ) -> StateGraph:
        """Let a function of the state choose: it returns a node's name, `END`, a `Send`, or a list of these.

        `paths` says what it may answer: a dict from answers to nodes, or a list of nodes. Without it, a return type of
        `Literal[...]` is used; without that the drawing and the checks know less.
        """
        if paths is not None and not isinstance(paths, Mapping):
            paths = {name: name for name in paths}
        self._routes.setdefault(source, []).append(Route(route, paths or _literals(route)))
        return self

    def compile(
        self,
        *,
        name: str = "graph",
        store: Journal | str | os.PathLike[str] | None = None,
        pause_before: Iterable[str] = (),
        pause_after: Iterable[str] = (),
        pause_before_edge: Iterable[tuple[str, str]] = (),
        step_limit: int = 1_000,
    ) -> CompiledGraph:
        """Check the graph and make it runnable; `GraphDefinitionError` lists everything that is wrong."""
        from treadle.graph._compiled import CompiledGraph

        before, after, edges = (
            frozenset(_names(pause_before)),
            frozenset(_names(pause_after)),
            frozenset(pause_before_edge),
        )
        problems = [*self._problems, *self._check(before | after, edges)]
        if problems:
            raise GraphDefinitionError("This graph cannot be compiled:\n" + "\n".join(f"- {p}" for p in problems))
        routes = {source: tuple(found) for source, found in self._routes.items()}
        nodes = dict(self._nodes)
        if START in routes:
            nodes[START] = _Start()
        plan = Plan(
            schema=schema_of(self._state),
            nodes=nodes,
            edges={source: tuple(dict.fromkeys(found)) for source, found in self._edges.items()},
            routes=routes,
            joins={join.name: join for join in self._joins},
            pause_before=before,
            pause_after=after,
            pause_on_edge=edges,
            step_limit=step_limit,
            slow_routes=any(route.slow for found in routes.values() for route in found),
        )
        return CompiledGraph(plan, name=name, store=store, gotos=dict(self._gotos))

    def _check(self, paused: frozenset[str], edges: frozenset[tuple[str, str]]) -> list[str]:
        problems = [
            f"An edge names {name!r}, {_hint(name, self._nodes)}"
            for name in self._named()
            if name not in {*self._nodes, START, END}
        ]
        problems += [f"A pause names {name!r}, {_hint(name, self._nodes)}" for name in sorted(paused - {*self._nodes})]
        problems += [
            f"A pause names the edge from {source!r} to {target!r}, which is not there."
            for source, target in sorted(edges)
            if target not in self._ways(source)
        ]
        return [*problems, *self._check_ends()] or [*self._unreachable(), *self._dead_ends()]

    def _check_ends(self) -> list[str]:
        problems: list[str] = []
        if any(not join.sources or {START, END} & set(join.sources) for join in self._joins):
            problems.append("An edge waits for nothing, for `START` or for `END`; name the nodes it waits for.")
        if self._edges.get(END) or self._routes.get(END):
            problems.append("An edge leaves `END`; nothing comes after it.")
        if any(START in self._ways(node) for node in (START, *self._nodes)):
            problems.append("An edge leads to `START`; name the first node instead.")
        if not self._edges.get(START) and not self._routes.get(START):
            problems.append("Nothing leaves `START`; add an edge from it to the first node.")
        return problems

    def _named(self) -> list[str]:
        names = [*self._edges, *self._routes, *(target for found in self._edges.values() for target in found)]
        names += [end for join in self._joins for end in (*join.sources, join.target)]
        names += [path for found in self._routes.values() for route in found for path in (route.paths or {}).values()]
        names += [target for found in self._gotos.values() for target in found]
        return list(dict.fromkeys(names))

    def _ways(self, node: str) -> set[str]:
        """Everything a node may lead to; a route that does not say may lead anywhere."""
        ways = {*self._edges.get(node, ()), *self._gotos.get(node, ())}
        ways |= {join.target for join in self._joins if node in join.sources}
        for route in self._routes.get(node, ()):
            ways |= {*self._nodes, END} if route.paths is None else set(route.paths.values())
        return ways

    def _unreachable(self) -> list[str]:
        seen, todo = {START}, [START]
        while todo:
            new = self._ways(todo.pop()) - seen
            seen |= new
            todo += new
        return [f"No edge leads to node {name!r}." for name in self._nodes if name not in seen]

    def _dead_ends(self) -> list[str]:
        ending, grew = {END}, True
        while grew:
            more = {name for name in self._nodes if name not in ending and self._ways(name) & ending}
            ending, grew = ending | more, bool(more)
        return [
            f"Node {name!r} is a dead end: no way leads from it to `END`. Add an edge, or `goto=` if it gives commands."
            for name in self._nodes
            if name not in ending
        ]


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _hint(name: str, nodes: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(nodes), 1)
    return f"which is not a node; did you mean {close[0]!r}?" if close else "which is not a node."


def _literals(route: Callable[..., Any]) -> dict[Any, str] | None:
    try:
        answer = get_type_hints(route).get("return")
    except Exception:
        return None
    return {name: name for name in get_args(answer)} if get_origin(answer) is Literal else None
