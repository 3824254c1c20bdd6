"""Measuring: CPU time of checked runs, both sides in turn, medians. Every figure knows its target."""

from __future__ import annotations

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from _script import ANSWER, Counter

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report: what was measured on both sides, and the number that the target is about.

    `stated` is the target as it was set, where that is a time. Without a `limit` the line is only there to be read.
    """

    what: str
    treadle: str
    raw: str = ""
    value: float
    unit: str
    limit: float | None = None
    stated: str = ""

    @property
    def missed(self) -> bool:
        return self.limit is not None and self.value > self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured. The defaults are the sizes that the targets speak of."""

    iterations: tuple[int, int, int] = (10, 200, 2_000)
    chunks: tuple[int, int] = (500, 8_000)
    agents: int = 1_000
    builds: int = 20
    long_thread: int = 10_000
    rounds: int = 5


SMOKE = Plan(iterations=(2, 4, 8), chunks=(5, 20), agents=10, builds=1, long_thread=20, rounds=1)


def check(ok: bool, what: str) -> None:
    """Refuse to report a run that did not do its work."""
    if not ok:
        raise AssertionError(what)


async def cpu_of(work: Callable[[], Awaitable[str]], *, tools: int, answer: str = ANSWER) -> tuple[float, float]:
    """(CPU, wall) seconds of a run that must execute this many tools and give this answer."""
    Counter.ran = 0
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    said = await work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    check(said == answer, f"the answer was {said[:80]!r}")
    check(Counter.ran == tools, f"{Counter.ran} tools ran, {tools} were called")
    return cpu, wall


async def medians(
    cases: Mapping[Key, Callable[[], Awaitable[float]]], rounds: int, repeats: Mapping[Key, int] | None = None
) -> dict[Key, float]:
    """The median of each case; the cases take turns, so that noise of the machine falls on all of them."""
    samples: defaultdict[Key, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for key, case in cases.items():
            for _ in range(repeats[key] if repeats else 1):
                samples[key].append(await case())
    return {key: statistics.median(values) for key, values in samples.items()}


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us" if seconds < 1e-4 else f"{seconds * 1e6:,.0f} us"


def milli(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"


def kilobytes(size: float) -> str:
    return f"{size / 1024:,.0f} KB"
