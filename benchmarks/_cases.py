"""What is measured in this process, one function per group of lines.

The targets that are times were set on one machine. Here they are multiples of what the hand-written loop took on that
machine, and are compared with what it takes on this one.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import _raw
import _treadle
from _measure import Figure, Plan, check, cpu_of, kilobytes, medians, micro, milli
from _script import ANSWER, NAP, PIECE, PROMPT, Counter, Side, add, call, fresh_tools, nap, react

SIDES: dict[str, Side] = {"raw": _raw, "treadle": _treadle}

# What the hand-written loop took where the targets were set.
ITERATION = 50e-6
CHUNK = 1.3e-6
TEN_TOOLS = 2.6e-3

PARALLEL_CALLS = 50
FLAT = 1.2
LINEAR = 1.1


async def iterations(plan: Plan) -> list[Figure]:
    """A: CPU per iteration, and that it does not grow with the history."""

    async def sample(side: Side, n: int) -> float:
        agent = side.agent(react(n), side.toolkit([add]))
        return (await cpu_of(agent.run, tools=n))[0] / n

    cases = {(name, n): partial(sample, side, n) for n in plan.iterations for name, side in SIDES.items()}
    repeats = {key: max(1, plan.iterations[1] // key[1]) for key in cases}
    took = await medians(cases, plan.rounds, repeats)
    few, some, many = plan.iterations

    def line(n: int, value: float, unit: str, limit: float) -> Figure:
        shown, floor = micro(took["treadle", n]), micro(took["raw", n])
        return Figure(what=f"CPU per iteration, {n:,}", treadle=shown, raw=floor, value=value, unit=unit, limit=limit)

    return [
        line(few, took["treadle", few] / took["raw", few], "x raw", 3.0),
        line(some, took["treadle", some] / took["treadle", few], f"x at {few}", 1.1),
        line(many, took["treadle", many] / took["treadle", few], f"x at {few}", FLAT),
    ]


async def chunks(plan: Plan) -> list[Figure]:
    """B: CPU per streamed piece of text."""

    async def sample(side: Side, n: int) -> float:
        agent, text = side.agent([PIECE * n], side.toolkit([add])), PIECE * n

        async def read() -> str:
            return "".join([piece async for piece in agent.stream()])

        return (await cpu_of(read, tools=0, answer=text))[0] / n

    few, many = plan.chunks
    cases = {(name, n): partial(sample, side, n) for n in plan.chunks for name, side in SIDES.items()}
    repeats = {key: max(1, many // key[1] // 2) for key in cases}
    took = await medians(cases, plan.rounds, repeats)
    lines = [
        Figure(
            what=f"CPU per streamed chunk, {n:,}",
            treadle=micro(took["treadle", n]),
            raw=micro(took["raw", n]),
            value=took["treadle", n] / took["raw", n],
            unit="x raw",
            limit=5e-6 / CHUNK,
            stated="5 us",
        )
        for n in plan.chunks
    ]
    growth = took["treadle", many] / took["treadle", few]
    return [*lines, Figure(what="  growth", treadle="", value=growth, unit=f"x at {few}", limit=FLAT)]


async def parallel(plan: Plan) -> list[Figure]:
    """C: wall time of one turn with many slow tools."""

    async def sample(side: Side) -> float:
        turn = [call("nap", i=i) for i in range(PARALLEL_CALLS)]
        agent = side.agent([turn, ANSWER], side.toolkit([nap]))
        return (await cpu_of(agent.run, tools=PARALLEL_CALLS))[1]

    took = await medians({name: partial(sample, side) for name, side in SIDES.items()}, plan.rounds)
    return [
        Figure(
            what=f"{PARALLEL_CALLS} parallel tools of 20 ms, wall",
            treadle=milli(took["treadle"]),
            raw=milli(took["raw"]),
            value=took["treadle"] / NAP,
            unit="x ideal",
            limit=1.3,
        )
    ]


async def construction(plan: Plan) -> list[Figure]:
    """E: from functions to the first answer, and from a toolkit to the first answer."""

    async def fresh(side: Side) -> float:
        functions = fresh_tools()

        async def build_and_ask() -> str:
            return await side.agent([ANSWER], side.toolkit(functions)).run()

        return (await cpu_of(build_and_ask, tools=0))[0]

    def built(side: Side) -> Callable[[], Awaitable[float]]:
        tools = side.toolkit(fresh_tools())

        async def build_and_ask() -> str:
            return await side.agent([ANSWER], tools).run()

        async def sample() -> float:
            return (await cpu_of(build_and_ask, tools=0))[0]

        return sample

    async def iteration() -> float:
        n = plan.iterations[0]
        return (await cpu_of(_raw.agent(react(n), _raw.toolkit([add])).run, tools=n))[0] / n

    cases: dict[str, Callable[[], Awaitable[float]]] = {f"fresh {name}": partial(fresh, s) for name, s in SIDES.items()}
    cases |= {f"built {name}": built(side) for name, side in SIDES.items()} | {"iteration": iteration}
    took = await medians(cases, plan.builds)
    return [
        Figure(
            what="10 fresh tools, agent, first answer",
            treadle=milli(took["fresh treadle"]),
            raw=milli(took["fresh raw"]),
            value=took["fresh treadle"] / took["fresh raw"],
            unit="x raw",
            limit=2e-3 / TEN_TOOLS,
            stated="2 ms",
        ),
        Figure(
            what="agent with a built toolkit, first answer",
            treadle=micro(took["built treadle"]),
            raw=micro(took["built raw"]),
            value=took["built treadle"] / took["iteration"],
            unit="raw iterations",
            limit=0.1e-3 / ITERATION,
            stated="0.1 ms",
        ),
    ]


def on_disk(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).iterdir())


async def sqlite(plan: Plan) -> list[Figure]:
    """G: every step on disk."""
    sizes: dict[int, int] = {}

    async def durable(n: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            agent = _treadle.agent(react(n), _treadle.toolkit([add]), store=f"sqlite:///{folder}/bench.db")
            cpu, _ = await cpu_of(agent.run, tools=n)
            await agent.close()
            sizes[n] = on_disk(folder)
        return cpu / n

    async def floor(n: int) -> float:
        return (await cpu_of(_raw.agent(react(n), _raw.toolkit([add])).run, tools=n))[0] / n

    few, some, many = plan.iterations
    cases: dict[int, Callable[[], Awaitable[float]]] = {n: partial(durable, n) for n in plan.iterations}
    repeats = {0: some // few, **{n: max(1, some // n) for n in plan.iterations}}
    took = await medians({0: partial(floor, few), **cases}, plan.rounds, repeats)
    growth, disk_growth = took[many] / took[some], (sizes[many] / many) / (sizes[some] / some)
    return [
        *(
            Figure(
                what=f"SQLite: CPU per iteration, {n:,}",
                treadle=micro(took[n]),
                value=took[n] / took[0],
                unit="raw iterations",
                limit=400e-6 / ITERATION if n == some else None,
                stated="400 us" if n == some else "",
            )
            for n in plan.iterations
        ),
        Figure(what="  growth", treadle="", value=growth, unit=f"x at {some:,}", limit=FLAT),
        *(
            Figure(
                what=f"SQLite: on disk, {n:,}",
                treadle=kilobytes(sizes[n]),
                value=sizes[n] / 1024,
                unit="KB",
                limit=250 if n == some else None,
            )
            for n in plan.iterations
        ),
        Figure(what="  growth", treadle="", value=disk_growth, unit=f"x at {some:,}", limit=LINEAR),
    ]


async def reopening(plan: Plan) -> list[Figure]:
    """A long thread: from nothing but the file to the next answer."""
    with tempfile.TemporaryDirectory() as folder:
        store, tools = f"sqlite:///{folder}/long.db", _treadle.toolkit([add])
        writer = _treadle.agent(react(plan.long_thread), tools, store=store)
        Counter.ran = 0
        started = time.process_time()
        check(await writer.run() == ANSWER and Counter.ran == plan.long_thread, "the long thread was not written")
        wrote = time.process_time() - started
        await writer.close()
        del writer
        gc.collect()
        started = time.perf_counter()
        reader = _treadle.agent([ANSWER], tools, store=store)
        check(await reader.run(PROMPT) == ANSWER, "the long thread gave no answer")
        took = time.perf_counter() - started
        await reader.close()
    n = plan.long_thread
    return [
        Figure(what=f"SQLite: write {n:,} iterations, CPU", treadle=milli(wrote), value=wrote / n * 1e6, unit="us"),
        Figure(what=f"SQLite: re-open {n:,} iterations, answer", treadle=milli(took), value=took, unit="s", limit=1.0),
    ]
