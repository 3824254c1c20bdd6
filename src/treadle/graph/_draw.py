"""A graph as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.graph._control import END, START
from treadle.graph._plan import Plan


def mermaid(plan: Plan, gotos: Mapping[str, Sequence[str]]) -> str:
    """Draw nodes in the order they were added; conditional edges are dotted and carry their answers."""
    names = {name: f"n{i}" for i, name in enumerate(plan.nodes) if name != START} | {START: "start", END: "end_"}
    lines = ["flowchart TD", "    start([START])"]
    lines += [f'    {names[node]}["{_text(node)}"]' for node in plan.nodes if node != START]
    lines.append("    end_([END])")
    for source, found in plan.edges.items():
        lines += [f"    {names[source]} --> {names[target]}" for target in found]
    for source, routes in plan.routes.items():
        for route in routes:
            paths = route.paths or {name: name for name in (*plan.nodes, END) if name != START}
            lines += [_dotted(names, source, target, str(answer)) for answer, target in paths.items()]
    for join in plan.joins.values():
        lines += [f"    {names[source]} --> |all| {names[join.target]}" for source in join.sources]
    for source, found in gotos.items():
        lines += [_dotted(names, source, target, "command") for target in found]
    return "\n".join(lines) + "\n"


def _dotted(names: Mapping[str, str], source: str, target: str, answer: str) -> str:
    label = "" if answer in (target, END) else f'|"{_text(answer)}"|'
    return f"    {names[source]} -.-> {label}{names[target]}"


def _text(text: str) -> str:
    return text.replace('"', "#quot;")
