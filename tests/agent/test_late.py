"""Tools that cannot be stopped: their outcome is unknown, and what they come to is not lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import pytest

from agent.support import agent_of, results, running, said, valid_history
from treadle import ReActAgent
from treadle.errors import JournalFullError
from treadle.journal import Journal, Lease, MemoryStore, Note, Record
from treadle.message import TextBlock
from treadle.testing import FaultyJournal, InjectedFault, tool_call
from treadle.tool import ToolContext, tool


class Stubborn:
    """A sync tool that ends when it wants to."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.contexts: list[ToolContext] = []

    def send(self, ctx: ToolContext) -> str:
        self.contexts.append(ctx)
        self.entered.set()
        assert self.gate.wait(20)
        return "sent"


async def entered(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 20)


class Mailbox(FaultyJournal):
    """A journal that says when a note has arrived."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.posted = threading.Event()

    async def post(self, thread: str, mail: Any) -> None:
        await super().post(thread, mail)
        self.posted.set()


CONTINUED: list[Callable[[ReActAgent], Any]] = [lambda agent: agent.call("Well?"), lambda agent: agent.call()]


@pytest.mark.parametrize("go_on", CONTINUED, ids=["new message", "nothing"])
async def test_a_sync_tool_that_cannot_be_stopped_is_unknown_and_its_late_result_is_told(
    go_on: Callable[[ReActAgent], Any], store: Journal
) -> None:
    stubborn, mail = Stubborn(), Mailbox(store)
    agent = agent_of([[tool_call("send", "send")], "I see."], stubborn.send, store=mail)
    task = running(agent)
    await entered(stubborn.entered)
    await agent.interrupt(when="now")
    assert (await task).reason == "interrupted"
    ((status, text),) = results(await valid_history(agent))
    assert status == "unknown"
    assert "could not be stopped and may still be running" in text
    assert stubborn.contexts[0].cancelled
    stubborn.gate.set()
    await entered(mail.posted)
    reply = await go_on(agent)
    history = await valid_history(agent)
    assert reply.text == "I see."
    (note,) = [msg.text for msg in history if msg.text.startswith("[NOTE]")]
    assert "The earlier call of `send` (send), whose outcome was unknown, has finished after all: sent" in note


async def test_a_late_failure_is_told_too() -> None:
    begun, gate, mail = threading.Event(), threading.Event(), Mailbox(MemoryStore())

    def send() -> str:
        begun.set()
        assert gate.wait(20)
        raise ConnectionError("refused")

    agent = agent_of([[tool_call("send", "send")], "I see."], send, store=mail)
    task = running(agent)
    await entered(begun)
    await agent.interrupt(when="now")
    await task
    gate.set()
    await entered(mail.posted)
    await agent.call("Well?")
    assert any("ConnectionError: refused" in text for text in said(await valid_history(agent)) if "[NOTE]" in text)


async def test_a_sync_tool_that_runs_into_its_timeout_is_unknown_too(store: Journal) -> None:
    stubborn, mail = Stubborn(), Mailbox(store)
    agent = agent_of(
        [[tool_call("send", "send")], "Too slow.", "I see."], tool(stubborn.send, timeout=0.01), store=mail
    )
    assert (await agent.call("Go.")).text == "Too slow."
    ((status, text),) = results(await valid_history(agent))
    assert status == "unknown"
    assert "did not finish within 0.01 s" in text
    assert "may still be running" in text
    stubborn.gate.set()
    await entered(mail.posted)
    await agent.call("Well?")
    assert any("has finished after all: sent" in msg.text for msg in await valid_history(agent))


async def test_an_async_tool_that_will_not_stop_is_given_up_and_its_late_result_is_told(
    store: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.graph._run.CLEANUP_SECONDS", 0.01)
    began, gate = asyncio.Event(), asyncio.Event()

    async def send() -> str:
        began.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "sent"

    in_model, answer = asyncio.Event(), asyncio.Event()

    async def wait(request: Any) -> str:
        in_model.set()
        await answer.wait()
        return "Second."

    mail = Mailbox(store)
    agent = agent_of([[tool_call("send", "send")], wait, "Third."], send, store=mail)
    task = running(agent)
    await began.wait()
    await agent.interrupt(when="now")
    assert (await task).reason == "interrupted"
    assert [status for status, _ in results(await valid_history(agent))] == ["unknown"]
    second = running(agent, "Second?")
    await in_model.wait()
    gate.set()
    await entered(mail.posted)
    answer.set()
    assert (await second).text == "Second."
    assert (await agent.call("Third?")).text == "Third."
    assert sum("has finished after all: sent" in msg.text for msg in await valid_history(agent)) == 1


class Log(logging.Handler):
    """Says when a warning was logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.written = threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.written.set()


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logging.getLogger("treadle").addHandler(handler)
    yield handler
    logging.getLogger("treadle").removeHandler(handler)


async def test_a_late_result_of_blocks_is_told_too_and_one_that_cannot_be_stored_is_logged(log: Log) -> None:
    begun, gate = threading.Event(), threading.Event()

    def send() -> list[TextBlock]:
        begun.set()
        assert gate.wait(20)
        return [TextBlock(text="sent as a block")]

    class Full(Mailbox):
        async def post(self, thread: str, mail: Any) -> None:
            if thread == "full":
                raise JournalFullError("no space left")
            await super().post(thread, mail)

    mail = Full(MemoryStore())
    agent = agent_of([[tool_call("send", "send")], "I see."], send, store=mail)
    for thread in ("full", "good"):
        begun.clear()
        task = running(agent, thread=thread)
        await entered(begun)
        await agent.interrupt(thread=thread, when="now")
        await task
    gate.set()
    await entered(log.written)
    await entered(mail.posted)
    await agent.call("Well?", thread="good")
    assert any("has finished after all: sent as a block" in msg.text for msg in await valid_history(agent, "good"))
    (text,) = log.texts
    assert "late result of call send of `send` (thread 'full', status ok) could not be stored" in text


class Killed(FaultyJournal):
    """The journal of a process that is killed after it read a late result: before the commit, or before the discard."""

    def __init__(self, journal: Journal, before: Literal["commit", "discard"]) -> None:
        super().__init__(journal)
        self.before = before
        self.dead = False
        self.arrived = asyncio.Event()

    async def mail(self, lease: Lease) -> list[Note]:
        notes = await super().mail(lease)
        if notes:
            self.arrived.set()
        return notes

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        self._check(self.before == "commit" and any(record.kind == "late" for record in records))
        await super().append(lease, expected, records)

    async def discard(self, lease: Lease, upto: int) -> None:
        self._check(self.before == "discard")
        await super().discard(lease, upto)

    def _check(self, now: bool) -> None:
        self.dead = self.dead or now
        if self.dead:
            raise InjectedFault("This process is dead.")


async def post_late(journal: Journal) -> None:
    result = {"type": "tool_result", "id": "c", "name": "send", "output": "sent"}
    await journal.post("t", {"kind": "late", "call": "c", "result": result})


def told(text: str) -> bool:
    return "has finished after all: sent" in text


@pytest.mark.parametrize("comes", ["before the run", "in the run"])
@pytest.mark.parametrize("before", ["commit", "discard"])
async def test_a_kill_neither_loses_a_late_result_nor_tells_it_twice(
    comes: str, before: Literal["commit", "discard"], store: Journal
) -> None:
    killed = Killed(store, before)

    async def think(_: Any) -> str:
        if comes == "in the run":
            await post_late(store)
            await killed.arrived.wait()
        return "Done."

    if comes == "before the run":
        await post_late(store)
    with suppress(InjectedFault):
        await agent_of([think], store=killed).call("Go.", thread="t")
    assert killed.dead
    agent = agent_of(["I see.", "And on.", "Yes."], store=FaultyJournal(store))
    await agent.call("Well?", thread="t")
    await agent.call("And then?", thread="t")
    assert [told(text) for text in said(await valid_history(agent, "t"))].count(True) == 1
    lease = await store.acquire("t", owner="test")
    assert await store.mail(lease) == []
    await store.release(lease)


async def test_a_run_whose_mail_cannot_be_discarded_has_its_answer_all_the_same() -> None:
    killed = Killed(MemoryStore(), "discard")

    async def think(_: Any) -> str:
        await post_late(killed)
        await killed.arrived.wait()
        return "Done."

    assert (await agent_of([think], store=killed).call("Go.", thread="t")).text == "Done."
    assert killed.dead


async def test_a_note_that_waits_interrupts_a_run_once() -> None:
    """Waking a run again, before it has discarded the note, does not disturb how it ends."""

    class Waking(FaultyJournal):
        wake: Callable[[], None]

        def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
            self.wake = wake
            return super().listen(lease, wake)

    journal, began, cleaned = Waking(MemoryStore()), asyncio.Event(), asyncio.Event()

    async def send() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                journal.wake()
                await asyncio.sleep(0)
            cleaned.set()
        return "sent"

    agent = agent_of([[tool_call("send")]], send, store=journal)
    task = running(agent)
    await began.wait()
    await journal.post(agent.thread, {"kind": "interrupt", "now": True})
    assert (await task).reason == "interrupted"
    assert cleaned.is_set()
