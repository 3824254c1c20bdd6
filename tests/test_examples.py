"""Every example runs, offline and in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import treadle

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
SOURCE = Path(treadle.__file__).parent.parent


def run(example: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1"}
    command = [sys.executable, "-W", "error", str(example)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(example: Path) -> None:
    done = run(example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_the_main_demo_says_what_it_is_and_what_held() -> None:
    done = run(next(path for path in EXAMPLES if path.stem == "crash_and_resume"))
    lines = done.stdout.splitlines()
    assert "a scripted demo" in lines[0]
    assert sum("): killed " in line for line in lines) == 2
    assert sum("unknown outcome" in line for line in lines) == 1
    assert [line.strip()[:3] for line in lines[-4:]] == ["yes"] * 4
