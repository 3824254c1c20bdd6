"""Measure Treadle against a hand-written loop and print every figure beside its target.

python benchmarks/run.py                       everything
python benchmarks/run.py --only iterations,sqlite
python benchmarks/run.py --smoke               tiny sizes: does it run? (the figures mean nothing)
python benchmarks/run.py --strict              exit with 1 if a target is missed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Awaitable, Callable

import _cases
import _processes
from _measure import SMOKE, Figure, Plan

GROUPS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    function.__name__: function
    for function in (
        _cases.iterations,
        _cases.chunks,
        _cases.parallel,
        _processes.concurrency,
        _cases.construction,
        _processes.imports,
        _cases.sqlite,
        _cases.reopening,
    )
}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def row(figure: Figure) -> str:
    """One Markdown row."""
    stated = f" ({figure.stated})" if figure.stated else ""
    target = f"<= {number(figure.limit)}{stated}" if figure.limit is not None else ""
    verdict = "" if figure.limit is None else "MISSED" if figure.missed else "ok"
    cells = (
        f"{figure.what:<42}",
        f"{figure.treadle:>12}",
        f"{figure.raw:>10}",
        f"{number(figure.value)} {figure.unit}".rjust(22),
        f"{target:<16}",
        f"{verdict:<6}",
    )
    return f"| {' | '.join(cells)} |"


async def measure(groups: list[str], plan: Plan) -> list[Figure]:
    """Run the groups and print each one's rows as soon as they are known."""
    print(row_of_titles(), flush=True)
    figures: list[Figure] = []
    for group in groups:
        for figure in await GROUPS[group](plan):
            figures.append(figure)
            print(row(figure), flush=True)
    return figures


def row_of_titles() -> str:
    widths = (42, 12, 10, 22, 16, 6)
    titles = ("", "Treadle", "raw", "judged", "target", "")
    first = " | ".join(title.ljust(width) for title, width in zip(titles, widths, strict=True))
    return f"| {first} |\n| {' | '.join('-' * width for width in widths)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Treadle against a hand-written loop.")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"a comma-separated part of: {', '.join(GROUPS)}")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--many", nargs=2, metavar=("SIDE", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.many:
        side, agents = options.many
        print(json.dumps(asyncio.run(_processes.run_many(_cases.SIDES[side], int(agents)))))
        return 0
    groups = options.only.split(",")
    if unknown := sorted(set(groups) - GROUPS.keys()):
        parser.error(f"no group {unknown[0]!r}; there are {', '.join(GROUPS)}")
    print(f"Python {platform.python_version()}, {platform.machine()}; `raw` is the hand-written loop in _raw.py\n")
    missed = [figure for figure in asyncio.run(measure(groups, SMOKE if options.smoke else Plan())) if figure.missed]
    print(f"\n{len(missed)} missed" if missed else "\nall targets met")
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
