"""What the tests of models over HTTP share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from treadle.message import Msg
from treadle.model import Delta, ModelRequest, ModelResponse
from treadle.model._http import Timeouts
from treadle.model._openai import OpenAIChatModel
from treadle.model._retry import Retries
from treadle.testing import FakeProvider

KEY = "sk-secret-0123456789abcdef"
ONCE = Retries(attempts=1)
SOON = Retries(attempts=3, first=0.001, longest=0.05)
IMPATIENT = Timeouts(connect=1.0, silence=0.03)
ASKING = ModelRequest(messages=[Msg.user("Hello?")])


def chat(provider: FakeProvider | str, **options: Any) -> OpenAIChatModel:
    """A model that asks the fake provider once, unless told otherwise."""
    url = provider if isinstance(provider, str) else provider.url
    settings: dict[str, Any] = {"base_url": url, "auth": KEY, "retries": ONCE, **options}
    return OpenAIChatModel("fake", **settings)


async def collect(model: OpenAIChatModel, request: ModelRequest = ASKING) -> list[Delta | ModelResponse]:
    """All that a model says."""
    return [item async for item in model.stream(request)]


@asynccontextmanager
async def served(body: bytes, header: str, asked: list[bytes] | None = None) -> AsyncGenerator[str]:
    """The address of a server that answers every request with these bytes in one piece, and then hangs up."""
    head = f"HTTP/1.1 200 OK\r\n{header}\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(request)
        writer.write(head + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
