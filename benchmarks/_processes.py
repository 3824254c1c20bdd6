"""What needs a process of its own: memory of many agents, and imports."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

from _measure import Figure, Plan, check, milli
from _script import ANSWER, Counter, Side, add, react

Results: TypeAlias = dict[tuple[str, str], float]

HERE = Path(__file__).parent
ITERATIONS = 3
LATENCY = 0.05

# What the hand-written loop took where the targets were set.
AGENT = 0.2e-3
IMPORT = 0.13


def _resident() -> int:
    """Bytes of memory in use now; where the system does not say, the most that ever were."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return _peak()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


async def run_many(side: Side, number: int) -> dict[str, float]:
    """CPU seconds and bytes per agent, with this many agents at once; to be run in a fresh process."""
    tools = side.toolkit([add])
    await side.agent(react(ITERATIONS), tools).run()
    gc.collect()
    before, Counter.ran = _resident(), 0
    agents = [side.agent(react(ITERATIONS), side.toolkit([add]), latency=LATENCY) for _ in range(number)]
    cpu = time.process_time()
    answers = await asyncio.gather(*(agent.run() for agent in agents))
    cpu = time.process_time() - cpu
    check(answers == [ANSWER] * number, "an agent gave a wrong answer")
    check(Counter.ran == number * ITERATIONS, f"{Counter.ran} tools ran, {number * ITERATIONS} were called")
    return {"cpu": cpu / number, "bytes": max(0, _peak() - before) / number}


def _child(*arguments: str, environment: dict[str, str] | None = None) -> dict[str, float]:
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stderr[-2_000:])
    return json.loads(done.stdout)


def _in_turn(commands: dict[str, list[str]], rounds: int, environment: dict[str, str] | None = None) -> Results:
    """The medians of what child processes report; the commands take turns."""
    samples: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, command in commands.items():
            for figure, value in _child(*command, environment=environment).items():
                samples[name, figure].append(value)
    return {key: statistics.median(values) for key, values in samples.items()}


async def concurrency(plan: Plan) -> list[Figure]:
    """D: many agents at once, each with a model that takes 50 ms to answer."""
    commands = {name: [str(HERE / "run.py"), "--many", name, str(plan.agents)] for name in ("raw", "treadle")}
    took = _in_turn(commands, min(3, plan.rounds))
    cpu, raw_cpu = took["treadle", "cpu"], took["raw", "cpu"]
    size, raw_size = took["treadle", "bytes"] / 1024, took["raw", "bytes"] / 1024
    return [
        Figure(
            what=f"{plan.agents:,} agents at once, CPU each",
            treadle=milli(cpu),
            raw=milli(raw_cpu),
            value=cpu / raw_cpu,
            unit="x raw",
            limit=0.6e-3 / AGENT,
            stated="0.6 ms",
        ),
        Figure(
            what=f"{plan.agents:,} agents at once, memory each",
            treadle=f"{size:.1f} KB",
            raw=f"{raw_size:.1f} KB",
            value=size,
            unit="KB",
            limit=25,
        ),
    ]


IMPORT_CODE = """import json, sys, time
before, cpu = len(sys.modules), time.process_time()
{}
print(json.dumps({{"cpu": time.process_time() - cpu, "modules": len(sys.modules) - before}}))"""
STATEMENTS = {
    "raw": "import asyncio, json, pydantic; pydantic.validate_call",
    "treadle": "from treadle import ReActAgent, Toolkit",
}


async def imports(plan: Plan) -> list[Figure]:
    """F: a cold process, with compiled files at hand as after an installation."""
    commands = {name: ["-c", IMPORT_CODE.format(code)] for name, code in STATEMENTS.items()}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _in_turn(commands, 1, environment)
        took = _in_turn(commands, 2 * plan.rounds, environment)
    cpu, raw_cpu, modules = took["treadle", "cpu"], took["raw", "cpu"], took["treadle", "modules"]
    pinned = (HERE.parent / "requirements" / "core.txt").read_text().split()
    packages = len([line for line in pinned if "==" in line]) + 1
    return [
        Figure(
            what="import, CPU",
            treadle=milli(cpu),
            raw=milli(raw_cpu),
            value=cpu / raw_cpu,
            unit="x raw",
            limit=0.25 / IMPORT,
            stated="0.25 s",
        ),
        Figure(
            what="import, modules",
            treadle=f"{modules:.0f}",
            raw=f"{took['raw', 'modules']:.0f}",
            value=modules,
            unit="modules",
        ),
        Figure(what="installed packages", treadle=f"{packages}", value=packages, unit="packages", limit=15),
    ]
