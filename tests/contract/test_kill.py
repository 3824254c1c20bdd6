"""Kill the process anywhere: the next one goes on, nothing that finished runs again, and the history is the same."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from queue import Queue
from typing import Any, TypeAlias

import pytest

import treadle
from contract._child import LABELS, ONCE, SCRIPT, THREAD, Desk, Moment, Place, Plan, clerk
from treadle.journal import FinishedRecord, SQLiteStore
from treadle.message._codec import dumps
from treadle.testing import assert_valid_history

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL is POSIX")]
ENDED, KILLED = 0, -9
MOMENTS: tuple[Moment, ...] = ("before", "after")

CHILD = Path(__file__).with_name("_child.py")
SOURCE = Path(treadle.__file__).parent.parent
AT_ONCE = 2
Servers: TypeAlias = "Queue[subprocess.Popen[str]]"
servers: Servers = Queue()
"""Idle processes that fork the ones to be killed."""


@pytest.fixture(scope="module", autouse=True)
def serving() -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(AT_ONCE):
            server = subprocess.Popen(
                [sys.executable, "-W", "error", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
            )
            stack.enter_context(server)
            stack.callback(server.kill)
            servers.put(server)
        yield
        for _ in range(AT_ONCE):
            servers.get(timeout=30)


def run(place: Place, plan: Plan) -> int:
    """One process, to its end; the exit code."""
    server = servers.get()
    try:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"{json.dumps([str(place.folder), asdict(plan)])}\n")
        server.stdin.flush()
        return int(server.stdout.readline())
    finally:
        servers.put(server)


async def finished_calls(place: Place) -> Counter[str]:
    """How often each call of any thread has a finished record."""
    store = SQLiteStore(place.journal)
    records = [record for info in await store.threads() for record in await store.read(info.thread)]
    await store.close()
    return Counter(record.call for record in records if isinstance(record, FinishedRecord))


async def picture(place: Place) -> dict[str, Any]:
    """Every thread's history, with ids replaced by the order in which they appear, and without times."""
    store = SQLiteStore(place.journal)
    agent = clerk(store, Desk(place, Plan()))
    histories = {info.thread: await agent.history(info.thread) for info in await store.threads()}
    await store.close()
    names: dict[str, str] = {}
    for thread in sorted(histories, key=lambda name: (name.count("/"), len(names))):
        assert_valid_history(histories[thread])
    main = histories[THREAD]
    for call in (call for msg in main for call in msg.tool_calls):
        names[call.id] = f"call {len(names)}"
    for thread in sorted(histories, key=lambda name: names.get(name.partition("/")[2], "")):
        for call in (call for msg in histories[thread] for call in msg.tool_calls):
            names.setdefault(call.id, f"call {len(names)}")
    return {
        _renamed(thread, names): [_plain(msg, names) for msg in history]
        for thread, history in sorted(histories.items(), key=lambda item: _renamed(item[0], names))
    }


def _plain(msg: Any, names: dict[str, str]) -> Any:
    data = json.loads(_renamed(dumps(msg), names))
    del data["id"], data["timestamp"]
    return data


def _renamed(text: str, names: dict[str, str]) -> str:
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(old, names[old])
    return text


class Truth:
    """The undisturbed run, which every other one is compared with."""

    def __init__(self, place: Place, picture: dict[str, Any]) -> None:
        report = json.loads(place.report.read_text())
        self.picture = picture
        self.appends: int = report.pop("appends")
        self.report = report


@pytest.fixture
async def truth(tmp_path: Path) -> Truth:
    place = new_place(tmp_path, "undisturbed")
    assert run(place, Plan()) == ENDED
    assert sorted(label for label, _ in place.effects()) == sorted(LABELS)
    return Truth(place, await picture(place))


def new_place(folder: Path, name: str) -> Place:
    (folder / name).mkdir()
    return Place(folder / name)


def crash_and_resume(place: Place, plans: Sequence[Plan]) -> list[int]:
    """Process after process, and a last one that is left in peace; what is finished after one stays as it is."""
    codes: list[int] = []
    before: Counter[str] = Counter()
    for plan in (*plans, Plan(decide=plans[-1].decide)):
        ran = Counter(call for _, call in place.effects())
        codes.append(run(place, plan))
        after = Counter(call for _, call in place.effects())
        again = [call for call in before if after[call] > ran[call]]
        assert not again, f"{plan}: finished calls {again} ran again"
        before = asyncio.run(finished_calls(place))
        twice = [call for call, count in before.items() if count > 1]
        assert not twice, f"{plan}: calls {twice} finished twice"
    assert codes[-1] == ENDED, f"{plans}: the undisturbed process failed"
    return codes


async def check(place: Place, truth: Truth, *, retried: bool = False) -> None:
    """The promise: the same history, every effect there, none of the dangerous ones twice."""
    assert await picture(place) == truth.picture
    report = json.loads(place.report.read_text())
    del report["appends"]
    if len(report) > 1:  # the run was not over before the last process began
        assert {**report, "pauses": 0} == truth.report
    effects = Counter(label for label, _ in place.effects())
    assert effects.keys() == set(LABELS)
    if not retried:
        assert {label: effects[label] for label in ONCE} == dict.fromkeys(ONCE, 1)
    finished = await finished_calls(place)
    ids = {label: {call for other, call in place.effects() if other == label} for label in LABELS}
    # A call has one id over all its attempts.
    assert {label: len(calls) for label, calls in ids.items()} == dict.fromkeys(LABELS, 1)
    assert all(finished[call] == 1 for calls in ids.values() for call in calls)


async def attack(
    folder: Path, truth: Truth, cases: Iterable[Sequence[Plan]], *, retried: bool = False
) -> list[tuple[Sequence[Plan], list[int]]]:
    """Many cases beside each other; all failures at once."""
    cases = list(cases)
    places = [new_place(folder, f"case-{number}") for number in range(len(cases))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(_codes, places, cases))
    failures: list[str] = []
    for place, plans, outcome in zip(places, cases, outcomes, strict=True):
        try:
            if isinstance(outcome, AssertionError):
                raise outcome
            await check(place, truth, retried=retried)
        except AssertionError as error:
            failures.append(f"{plans} in {place.folder}:\n{error}")
    assert not failures, f"{len(failures)} of {len(cases)} cases fail\n" + "\n\n".join(failures[:3])
    return [(plans, codes) for plans, codes in zip(cases, outcomes, strict=True) if isinstance(codes, list)]


def _codes(place: Place, plans: Sequence[Plan]) -> list[int] | AssertionError:
    try:
        return crash_and_resume(place, plans)
    except AssertionError as error:
        return error


async def test_the_run_has_ten_steps_and_every_kind_of_call(truth: Truth) -> None:
    answers = [msg for msg in truth.picture[THREAD] if msg["role"] == "assistant"]
    assert len(answers) == len(SCRIPT) == 10
    assert len(truth.picture) == 5
    assert truth.report == {
        "pauses": 0,
        "reason": "finished",
        "text": '{"title": "Books", "paid": 3}',
        "output": {"title": "Books", "paid": 3},
        "requests": 16,  # ten of its own, six of its sub-agents
    }


@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_at_every_append(tmp_path: Path, truth: Truth, moment: Moment) -> None:
    # Parallel calls share writes as chance has it, so a few more than the undisturbed run took.
    numbers = range(1, truth.appends + 9)
    done = await attack(tmp_path, truth, [[Plan(append=number, moment=moment)] for number in numbers])
    survivors = [plans[0].append or 0 for plans, codes in done if codes[0] == ENDED]
    assert min(survivors, default=truth.appends + 9) > truth.appends - 9
    assert len(done) - len(survivors) > truth.appends - 9


@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_in_every_tool(tmp_path: Path, truth: Truth, moment: Moment) -> None:
    done = await attack(tmp_path, truth, [[Plan(label=label, moment=moment)] for label in LABELS])
    assert [codes for _, codes in done] == [[KILLED, ENDED]] * len(LABELS)


async def test_killed_again_while_it_resumes(tmp_path: Path, truth: Truth) -> None:
    cases = [
        [
            Plan(append=number, moment=MOMENTS[number % 2]),
            Plan(append=1 + number % 7, moment=MOMENTS[number // 2 % 2]),
        ]
        for number in range(1, truth.appends, 1)
    ]
    done = await attack(tmp_path, truth, cases)
    assert all(codes[0] == KILLED for _, codes in done[: truth.appends - 9])


@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_twice_in_the_same_tool(tmp_path: Path, truth: Truth, moment: Moment) -> None:
    twice = [[Plan(label=label, moment="before"), Plan(label=label, moment=moment)] for label in LABELS]
    done = await attack(tmp_path, truth, twice)
    assert [codes for _, codes in done] == [[KILLED, KILLED, ENDED]] * len(LABELS)


@pytest.mark.parametrize("every", [12, 17])
async def test_a_process_that_never_lives_long_gets_there(tmp_path: Path, truth: Truth, every: int) -> None:
    place = new_place(tmp_path, "short-lived")
    for _ in range(200):
        if run(place, Plan(append=every, moment="after")) == ENDED:
            break
    else:
        raise AssertionError("it does not get there")
    await check(place, truth)


async def test_a_retry_is_for_one_attempt(tmp_path: Path, truth: Truth) -> None:
    """Retry, crash in the retried call: the outcome is unknown again, and somebody is asked again."""
    labels = sorted(ONCE)
    cases = [[Plan(label=label, moment="after", decide="retry")] * 2 for label in labels]
    places = [new_place(tmp_path, f"retry-{label}") for label in labels]
    for place, plans in zip(places, cases, strict=True):
        assert [run(place, plan) for plan in plans] == [KILLED, KILLED]
        assert run(place, Plan(decide="look")) == ENDED
        await check(place, truth, retried=True)
        label = plans[0].label
        effects = Counter(label for label, _ in place.effects())
        assert {name: effects[name] for name in ONCE} == {**dict.fromkeys(ONCE, 1), label: 2}, label
