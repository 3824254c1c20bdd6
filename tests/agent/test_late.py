"""Tools that cannot be stopped: their outcome is unknown, and what they come to is not lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.support import agent_of, results, running, said, valid_history
from treadle import ReActAgent
from treadle.errors import JournalFullError
from treadle.journal import Journal, MemoryStore
from treadle.message import TextBlock
from treadle.testing import FaultyJournal, tool_call
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
