"""Several processes, one file: nobody interleaves, nothing is lost, the dead do not block the living."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import treadle
from journal import files
from treadle.errors import AgentBusyError
from treadle.journal import EndedRecord, Journal, SQLiteStore

CHILD = Path(__file__).with_name("child.py")
SOURCE = Path(treadle.__file__).parent.parent
Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks are POSIX")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts child processes, and ends them with the test."""
    with ExitStack() as stack:

        def start_child(*words: object) -> subprocess.Popen[str]:
            child = subprocess.Popen(
                [sys.executable, "-W", "error", str(CHILD), *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
            )
            stack.enter_context(child)
            stack.callback(child.kill)
            return child

        yield start_child


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def ask(child: subprocess.Popen[str]) -> str:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    return line(child)


async def reasons(store: Journal, thread: str) -> list[str]:
    return [record.reason for record in await store.read(thread) if isinstance(record, EndedRecord)]


async def test_drivers_of_one_thread_take_turns(tmp_path: Path, start: Start) -> None:
    children = [start("hammer", tmp_path / "j.db", name, 40) for name in ("one", "two", "three")]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    store = SQLiteStore(tmp_path / "j.db")
    found = await reasons(store, "contested")
    await store.close()
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert all(first.replace("first", "second") == second for first, second in pairs)
    assert Counter(first.split()[0] for first, _ in pairs) == {"one": 40, "two": 40, "three": 40}
    for name in ("one", "two", "three"):
        assert [first for first, _ in pairs if first.startswith(name)] == [f"{name} {n} first" for n in range(40)]
    assert files.names(tmp_path) == ["j.db"]


async def test_drivers_of_different_threads_do_not_disturb_each_other(tmp_path: Path, start: Start) -> None:
    names = ["one", "two"]
    children = [start("own", tmp_path / "j.db", name, 500) for name in names]
    assert [child.wait(60) for child in children] == [0, 0]
    store = SQLiteStore(tmp_path / "j.db")
    for name in names:
        assert await reasons(store, name) == [f"{name} {number}" for number in range(500)]
    await store.close()


async def test_a_killed_holder_is_followed_at_once(tmp_path: Path, start: Start) -> None:
    holder = start("hold", tmp_path / "j.db", 600)
    assert line(holder) == "holding"
    assert ask(holder) == "appended"
    store = SQLiteStore(tmp_path / "j.db")
    with pytest.raises(AgentBusyError, match="'holder'"):
        await store.acquire("held", owner="next")
    holder.send_signal(signal.SIGKILL)
    async with asyncio.timeout(10):
        lease = await store.acquire("held", owner="next", wait=True)
    assert lease.seq == 1
    await store.append(lease, 1, [EndedRecord(reason="next")])
    assert await reasons(store, "held") == ["held", "next"]
    await store.close()


async def test_a_stopped_holder_loses_its_lease_by_time_and_is_told(tmp_path: Path, start: Start) -> None:
    holder = start("hold", tmp_path / "j.db", 0.5)
    assert line(holder) == "holding"
    assert ask(holder) == "appended"
    holder.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    store = SQLiteStore(tmp_path / "j.db")
    async with asyncio.timeout(10):
        lease = await store.acquire("held", owner="next", wait=True)
    assert time.monotonic() - stopped > 0.1
    await store.append(lease, 1, [EndedRecord(reason="next")])
    holder.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(ask, holder) == "LeaseLostError"
    assert await reasons(store, "held") == ["held", "next"]
    await store.close()


async def test_a_living_holder_keeps_its_lease(tmp_path: Path, start: Start) -> None:
    holder = start("hold", tmp_path / "j.db", 0.3)
    assert line(holder) == "holding"
    store = SQLiteStore(tmp_path / "j.db")
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        with pytest.raises(AgentBusyError):
            await store.acquire("held", owner="next")
        await asyncio.sleep(0.05)
    assert await asyncio.to_thread(ask, holder) == "appended"
    await store.close()


async def test_what_is_queued_is_written_at_the_end_of_the_process(tmp_path: Path, start: Start) -> None:
    child = start("leave", tmp_path / "j.db")
    assert child.wait(30) == 0
    assert files.names(tmp_path) == ["j.db"]
    store = SQLiteStore(tmp_path / "j.db")
    assert await reasons(store, "t") == [str(number) for number in range(20)]
    await store.release(await store.acquire("t", owner="next"))
    await store.close()


async def test_a_store_is_used_on_both_sides_of_a_fork(tmp_path: Path, start: Start) -> None:
    child = start("fork", tmp_path / "j.db")
    output, _ = child.communicate(timeout=30)
    assert output.split("\n") == ["inherited 0", "LeaseLostError", "child 0", "parent 2 3", ""]
    with sqlite3.connect(tmp_path / "j.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_a_file_that_may_not_grow_is_full(tmp_path: Path, start: Start) -> None:
    child = start("fill", tmp_path / "j.db", 1_000_000)
    written, message = line(child).split(maxsplit=1)
    assert child.wait(30) == 0
    assert "j.db" in message
    assert "full" in message
    store = SQLiteStore(tmp_path / "j.db")
    assert int(written) > 10
    assert len(await store.read("t")) == int(written)
    await store.close()
