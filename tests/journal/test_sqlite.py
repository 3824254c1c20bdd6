"""What only `SQLiteStore` does: group commit, a small file, silence when idle, careful ends."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from journal import files
from treadle.errors import LeaseLostError
from treadle.journal import (
    EndedRecord,
    FinishedRecord,
    Lease,
    Snapshot,
    SQLiteStore,
    StartedRecord,
    UpdateRecord,
    encode,
)
from treadle.journal import _sqlite_file as sqlite_file
from treadle.journal import _sqlite_worker as sqlite_worker
from treadle.journal import _sqlite_writes as sqlite_writes
from treadle.journal._sqlite_job import Job
from treadle.message import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from treadle.testing._checks import eventually, refused


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what SQLite is told, by its first words."""
    counts: Counter[str] = Counter()
    connect = sqlite_file.connect

    def traced(settings: sqlite_file.Settings) -> sqlite3.Connection:
        connection = connect(settings)
        connection.set_trace_callback(lambda text: counts.update([text.split()[0]]))
        return connection

    monkeypatch.setattr(sqlite_worker, "connect", traced)
    return counts


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("treadle-journal")]


async def test_a_record_with_numbers_that_are_no_json_does_not_spoil_the_list(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    for name, value in (("a", 1.5), ("b", float("nan")), ("c", float("-inf"))):
        lease = await store.acquire(name, owner="run")
        await store.append(lease, 0, [EndedRecord(reason="x", values={"score": value}, at=7.0)])
        await store.release(lease)
    assert [(info.thread, info.updated) for info in await store.threads()] == [("a", 7.0), ("b", 7.0), ("c", 7.0)]
    await store.close()


async def test_many_writers_share_few_commits(tmp_path: Path, statements: Counter[str]) -> None:
    store = SQLiteStore(tmp_path / "j.db", durability="power")

    async def run(number: int) -> None:
        lease = await store.acquire(f"t{number}", owner="run")
        for seq in range(10):
            await store.append(lease, seq, [EndedRecord(reason="x")])

    await asyncio.gather(*map(run, range(100)))
    assert len(await store.threads()) == 100
    await store.close()
    assert statements["COMMIT"] < 200


async def test_small_writes_need_no_other_thread(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("t", owner="run")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    for seq in range(50):
        await store.append(lease, seq, [EndedRecord(reason="x")])
    assert ticks == 0
    await store.append(lease, 50, [EndedRecord(reason="x" * 1_000_000)])
    assert ticks > 0
    ticking.cancel()
    await store.close()


async def test_an_iteration_takes_little_more_than_its_json(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("t", owner="run")
    written = 0
    for number in range(500):
        call = ToolUseBlock(id=f"call_{number:024x}", name="add", input={"a": number, "b": 25})
        said = Msg.assistant([TextBlock(text="I look that up for you, then add it to the sum."), call])
        result = ToolResultBlock(id=call.id, name="add", output="The result of the addition is 42, and some more text.")
        records = [
            UpdateRecord(node="model", values={"messages": [said]}, next=["tools"]),
            StartedRecord(call=call.id),
            FinishedRecord(call=call.id, result=result),
            UpdateRecord(node="tools", calls=[call.id], next=["model"]),
        ]
        written += sum(len(encode(record)) for record in records)
        await store.append(lease, 4 * number, records[:2])
        await store.append(lease, 4 * number + 2, records[2:])
    await store.close()
    size = files.size(tmp_path / "j.db")
    assert 700 < written / 500 < 900
    assert size / 500 < 1_100
    assert files.names(tmp_path) == ["j.db"]


async def test_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("t", owner="run")
    largest = 0
    for seq in range(400):
        await store.append(lease, seq, [EndedRecord(reason="x" * 30_000)])
        largest = max(largest, files.size(tmp_path / "j.db-wal"))
    await store.close()
    assert largest < 10_000_000


async def test_an_idle_store_does_nothing(tmp_path: Path, statements: Counter[str]) -> None:
    store = SQLiteStore(tmp_path / "j.db", lease_ttl=0.03, poll=0.01)
    lease = await store.acquire("t", owner="run")
    stop = store.listen(lease, lambda: None)
    polls = statements["PRAGMA"]
    await eventually(lambda: statements["PRAGMA"] > polls + 3 and statements["UPDATE"] > 3, "polling and heartbeat")
    stop()
    await store.release(lease)
    await asyncio.sleep(0.05)  # alarms that were set run out
    before = statements.total()
    await asyncio.sleep(0.1)
    assert statements.total() == before
    await store.close()


async def test_only_two_snapshots_are_kept(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [EndedRecord(reason="x")] * 9)
    for seq in (1, 5, 3, 9):
        await store.save_snapshot(lease, Snapshot(seq=seq, since=0, data={"seq": seq}))
    assert await store.load_snapshot("t", until=8) == Snapshot(seq=5, since=0, data={"seq": 5})
    assert await store.load_snapshot("t", until=4) is None
    await store.close()


async def test_nothing_is_left_of_what_was_deleted(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("a", owner="run")
    await store.append(lease, 0, [EndedRecord(reason="shared"), EndedRecord(reason="secret")])
    await store.save_snapshot(lease, Snapshot(seq=1, since=0, data={}))
    await store.release(lease)
    await store.fork("a", 1, "b")
    await store.fork("b", 1, "c")
    for thread in ("a", "b"):
        await store.delete(thread)
    assert "secret" not in rows(tmp_path / "j.db")
    assert await store.load_snapshot("c") == Snapshot(seq=1, since=0, data={})
    await store.delete("c")
    await store.close()
    assert rows(tmp_path / "j.db") == "[] [] [] [] []"


def rows(path: Path) -> str:
    tables = ("threads", "records", "snapshots", "mail", "leases")
    connection = sqlite3.connect(path)
    found = [str(connection.execute(f"SELECT * FROM {table}").fetchall()) for table in tables]
    connection.close()
    return " ".join(found)


async def test_a_thread_that_was_only_looked_at_leaves_nothing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    await store.release(await store.acquire("t", owner="run"))
    await store.close()
    assert rows(tmp_path / "j.db") == "[] [] [] [] []"


async def test_a_lease_that_is_taken_over_wakes_its_listeners(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db", poll=0.01)
    lease = await store.acquire("t", owner="run")
    lost = threading.Event()
    stop = store.listen(lease, lost.set)
    connection = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
    connection.execute("UPDATE leases SET epoch = epoch + 1, holder = 'somebody else'")
    connection.close()
    await eventually(lost.is_set, "being told of a lost lease")
    stop()
    late = threading.Event()
    store.listen(lease, late.set)()
    await eventually(late.is_set, "being told of a lease that was lost before")
    await store.close()


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_the_file_itself_fences_a_writer_that_does_not_know_yet(
    tmp_path: Path, durability: Literal["process", "power"]
) -> None:
    store = SQLiteStore(tmp_path / "j.db", durability=durability)
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [EndedRecord(reason="x")])
    connection = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
    connection.execute("UPDATE leases SET epoch = epoch + 1, holder = 'somebody else'")
    connection.close()
    with refused(LeaseLostError):
        await store.append(lease, 1, [EndedRecord(reason="late")])
    with refused(LeaseLostError):
        await store.save_snapshot(lease, Snapshot(seq=1, since=0, data={}))
    with refused(LeaseLostError):
        await store.mail(lease)
    with refused(LeaseLostError):
        await store.discard(lease, 1)
    assert len(await store.read("t")) == 1
    await store.close()


@pytest.mark.parametrize("outcome_first", [True, False])
async def test_an_outcome_and_a_cancellation_at_the_same_time(outcome_first: bool) -> None:
    undone: list[str] = []
    job = Job(lambda _: None, undo=undone.append)
    job.expect()
    job.result = "lease"
    task = asyncio.create_task(job.certain_outcome())
    await asyncio.sleep(0)
    for step in (job.resolve, task.cancel) if outcome_first else (task.cancel, job.resolve):
        step()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert undone == ["lease"]


async def test_a_forgotten_store_writes_and_ends(tmp_path: Path) -> None:
    before = workers()
    store = SQLiteStore(tmp_path / "j.db", durability="power")
    lease = await store.acquire("t", owner="run")
    own = [thread for thread in workers() if thread not in before]
    assert len(own) == 1
    task = asyncio.create_task(store.append(lease, 0, [EndedRecord(reason="x")]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del store, task

    def ended() -> bool:
        gc.collect()
        return not any(thread.is_alive() for thread in own)

    await eventually(ended, "the end of the writer's thread")
    again = SQLiteStore(tmp_path / "j.db")
    assert len(await again.read("t")) == 1
    await again.release(await again.acquire("t", owner="next"))
    await again.close()


async def test_jobs_of_a_closed_event_loop_do_not_block_others(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db", durability="power")

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        coroutine = store.acquire("t", owner="gone")
        task = loop.create_task(coroutine)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        coroutine.close()
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]  # on purpose

    await asyncio.to_thread(abandon)
    async with asyncio.timeout(10):
        lease = await store.acquire("t", owner="run", wait=True)
    await store.append(lease, 0, [EndedRecord(reason="x")])
    await store.close()


async def test_reading_does_not_hold_up_writing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("t", owner="run")
    await store.append(lease, 0, [EndedRecord(reason="x")] * 20_000)
    reading = asyncio.create_task(store.read("t"))
    await asyncio.sleep(0)
    began = time.perf_counter()
    await store.append(lease, 20_000, [EndedRecord(reason="y")])
    assert not reading.done()
    assert time.perf_counter() - began < 5
    assert len(await reading) in (20_000, 20_001)
    await store.close()


async def test_a_lease_of_another_store_object_is_not_ours(tmp_path: Path) -> None:
    one, other = SQLiteStore(tmp_path / "j.db"), SQLiteStore(tmp_path / "j.db")
    lease = await one.acquire("t", owner="run")
    with refused(LeaseLostError):
        await other.append(lease, 0, [EndedRecord(reason="x")])
    with refused(LeaseLostError):
        await one.append(Lease(thread="t", owner="run", epoch=99, seq=0, created=0.0), 0, [])
    await one.close()
    await other.close()


async def test_a_write_cut_short_by_ctrl_c_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    lease = await store.acquire("t", owner="run")
    insert = sqlite_writes.insert

    def interrupted(*arguments: Any) -> None:
        insert(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_writes, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(lease, 0, [EndedRecord(reason="cut")]).send(None)
    await store.append(lease, 0, [EndedRecord(reason="whole")])
    assert len(await store.read("t")) == 1
    await store.close()
