"""Connections: used again, never across event loops, closed at once when nobody wants the rest, and at the end."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings

import pytest

from model.wire import ASKING, IMPATIENT, SOON, chat, collect
from treadle import ReActAgent
from treadle.errors import InputError, ModelTimeoutError
from treadle.message import TextBlock
from treadle.model import ModelResponse, TextDelta
from treadle.model._base import closing_stream
from treadle.model._http import close_clients
from treadle.testing import FakeProvider, Fault, ProviderRequest

HELLO = "Hello, world!"


def hello(request: ProviderRequest) -> str:
    return HELLO


@pytest.mark.parametrize("stream", [True, False])
async def test_a_connection_is_used_again(stream: bool) -> None:
    async with FakeProvider(hello) as provider:
        model, other = chat(provider, stream=stream), chat(provider)
        for _ in range(3):
            await model.generate(ASKING)
        await other.generate(ASKING)
        assert (len(provider.requests), provider.connections) == (4, 1)


async def test_a_refused_request_leaves_its_connection_to_the_next() -> None:
    async with FakeProvider([Fault(kind="status", status=400), HELLO]) as provider:
        model = chat(provider)
        with pytest.raises(Exception, match="400"):
            await model.generate(ASKING)
        await model.generate(ASKING)
        assert provider.connections == 1


async def test_a_server_that_hangs_up_between_requests_does_no_harm() -> None:
    async with FakeProvider(hello, keep_alive=False) as provider:
        model = chat(provider, retries=SOON)
        for _ in range(3):
            assert await model.generate(ASKING)
            await provider.until(lambda provider: provider.open == 0)
        assert provider.connections >= 3


def test_connections_are_never_shared_across_event_loops() -> None:
    """One model, several loops one after another, and two at the same time in threads."""
    started, asked = threading.Event(), threading.Event()
    addresses: list[str] = []
    counts: list[int] = []

    async def serve() -> None:
        async with FakeProvider(hello) as provider:
            addresses.append(provider.url)
            started.set()
            await asyncio.to_thread(asked.wait)
            counts.append(provider.connections)

    server = threading.Thread(target=asyncio.run, args=[serve()])
    server.start()
    started.wait()
    model = chat(addresses[0])

    async def ask_twice() -> None:
        for _ in range(2):
            assert await model.generate(ASKING)

    asyncio.run(ask_twice())
    asyncio.run(ask_twice())
    threads = [threading.Thread(target=asyncio.run, args=[ask_twice()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked.set()
    server.join()
    assert counts == [4]


@pytest.mark.parametrize("leave", ["cancel", "break"])
async def test_leaving_mid_stream_closes_the_connection_at_once_and_the_model_stays_usable(leave: str) -> None:
    async with FakeProvider([Fault(kind="silence", after=3), HELLO]) as provider:
        model = chat(provider)
        seen = asyncio.Event()

        async def read() -> None:
            async with closing_stream(model.stream(ASKING)) as stream:
                async for _ in stream:
                    seen.set()
                    if leave == "break":
                        break

        task = asyncio.create_task(read())
        await seen.wait()
        if leave == "cancel":
            task.cancel()
        started = time.monotonic()
        await asyncio.wait([task])
        await provider.until(lambda provider: provider.hangups == 1)
        assert time.monotonic() - started < 1
        assert task.cancelled() is (leave == "cancel")
        assert (await model.generate(ASKING)).content == (TextBlock(text=HELLO),)


async def test_cancelling_before_the_first_byte_closes_the_connection() -> None:
    async with FakeProvider([Fault(kind="slow"), HELLO]) as provider:
        model = chat(provider)
        task = asyncio.create_task(model.generate(ASKING))
        await provider.until(lambda provider: len(provider.requests) == 1)
        task.cancel()
        await provider.until(lambda provider: provider.hangups == 1)
        assert await model.generate(ASKING)


async def test_a_hundred_streams_at_once() -> None:
    def answer(request: ProviderRequest) -> str:
        return f"You said {request.body['messages'][0]['content']}."

    async with FakeProvider(answer) as provider:
        model = chat(provider)
        answers = await asyncio.gather(*(collect(model) for _ in range(100)))
        assert all(items == answers[0] for items in answers)
        assert len(provider.requests) == 100
        assert provider.connections <= 100


async def test_a_hundred_cancelled_streams_leave_nothing_behind() -> None:
    def answer(request: ProviderRequest) -> Fault | str:
        return Fault(kind="silence", after=2) if len(provider.requests) <= 100 else HELLO

    async with FakeProvider(answer) as provider:
        model = chat(provider)
        tasks = [asyncio.create_task(collect(model)) for _ in range(100)]
        await provider.until(lambda provider: len(provider.requests) >= 50)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        await provider.until(lambda provider: provider.open == 0)
        provider.requests[:] = provider.requests[:1] * 100
        assert (await model.generate(ASKING)).content == (TextBlock(text=HELLO),)
        assert provider.open == 1


async def test_silence_is_what_times_out_not_the_whole_answer() -> None:
    """Pieces that come more often than the timeout, for longer than the timeout."""
    async with FakeProvider([Fault(kind="silence", after=2, seconds=0.02), HELLO]) as provider:
        model = chat(provider, timeouts=IMPATIENT)
        assert isinstance((await collect(model))[-1], ModelResponse)
    async with FakeProvider([Fault(kind="silence", after=2, seconds=5)]) as provider:
        with pytest.raises(ModelTimeoutError):
            await collect(chat(provider, timeouts=IMPATIENT))


async def test_a_proxy_is_used() -> None:
    async with FakeProvider(hello) as proxy:
        model = chat("http://model.invalid/v1", proxy=proxy.host)
        assert (await model.generate(ASKING)).content == (TextBlock(text=HELLO),)
        assert proxy.requests[0].target == "http://model.invalid/v1/chat/completions"


async def test_the_environment_may_name_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeProvider(hello) as proxy, FakeProvider(hello) as direct:
        monkeypatch.setenv("http_proxy", proxy.host)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await chat("http://model.invalid/v1").generate(ASKING)
        assert await chat(direct).generate(ASKING)
        assert (len(proxy.requests), len(direct.requests)) == (1, 1)


async def test_closing_a_model_closes_its_connections_and_no_others() -> None:
    async with FakeProvider(hello) as provider:
        model, other = chat(provider), chat(provider)
        await model.generate(ASKING)
        await other.generate(ASKING)
        await model.close()
        await other.generate(ASKING)
        assert provider.connections == 1
        await other.close()
        await provider.until(lambda provider: provider.open == 0)
        await model.generate(ASKING)
        assert provider.connections == 2
        await model.close()
        await model.close()


async def test_closing_an_agent_closes_its_model() -> None:
    async with FakeProvider(hello) as provider:
        agent = ReActAgent(name="a", model=chat(provider))
        assert (await agent.call("Hi")).text == HELLO
        assert provider.open == 1
        await agent.close()
        await provider.until(lambda provider: provider.open == 0)


@pytest.mark.parametrize("close", [True, False])
def test_nothing_is_left_open_when_the_loop_ends(close: bool) -> None:
    """Also where nobody closed anything: the loop's end does it."""

    async def main() -> None:
        async with FakeProvider(hello) as provider:
            model = chat(provider)
            await model.generate(ASKING)
            if close:
                await close_clients()
                await provider.until(lambda provider: provider.open == 0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_a_body_that_does_not_end_after_its_last_event_is_not_waited_for() -> None:
    # Seven events: the role, three pieces, the end, usage, [DONE]; then nothing, and no end of the body.
    async with FakeProvider([Fault(kind="silence", after=7), HELLO]) as provider:
        model = chat(provider)
        items = await collect(model)
        assert [item.text for item in items if isinstance(item, TextDelta)] == ["Hello", ", wor", "ld!"]
        await provider.until(lambda provider: provider.hangups == 1)
        assert await model.generate(ASKING)


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
async def test_the_cut_of_the_body_changes_nothing(piece: int) -> None:
    answer = ModelResponse(content=(TextBlock(text="Grüße, 你好 🙂!"),))
    async with FakeProvider([answer]) as whole, FakeProvider([answer], piece=piece) as cut:
        assert await collect(chat(whole)) == await collect(chat(cut))


async def test_an_unknown_service_is_an_input_error() -> None:
    with pytest.raises(InputError, match="groq"):
        chat("http://127.0.0.1", service="nobody")
