"""A server on this machine that answers what it was told to, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from treadle.formatter import Formatter
from treadle.model import Delta, ModelResponse
from treadle.model._sse import SSEParser


@dataclass
class Asked:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list[Asked])


def sse(events: Iterable[Mapping[str, Any]], *, named: bool = False) -> bytes:
    """A stream of server-sent events."""
    texts = (
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    )
    return "".join(texts).encode()


@asynccontextmanager
async def serving(*answers: Any, status: int = 200) -> AsyncGenerator[Server]:
    """A server whose answers are given in order: bytes are a stream, anything else is sent as JSON."""
    left = list(answers)
    server = Server("")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            server.asked.append(asked)
            writer.write(_reply(left.pop(0), status))
            await writer.drain()
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(head[0].split(" ")[1], headers, json.loads(body))


def _reply(answer: Any, status: int) -> bytes:
    stream = isinstance(answer, bytes)
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    kind = "text/event-stream" if stream else "application/json"
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


def read_stream(formatter: Formatter, *chunks: bytes) -> tuple[list[Delta], ModelResponse]:
    """What a formatter reads from a stream that is cut into these chunks."""
    reader, parser = formatter.reader(), SSEParser()
    deltas = [delta for chunk in chunks for event in parser.feed(chunk) for delta in reader.feed(event)]
    return deltas, reader.finish()
