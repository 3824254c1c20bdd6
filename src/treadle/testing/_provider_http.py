"""As much of HTTP/1.1 as a fake provider needs: requests with a length, answers with a length or in chunks."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

_KEY_HEADERS = ("authorization", "proxy-authorization", "api-key", "x-api-key", "x-goog-api-key")
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A request as the fake provider got it. Keys are shown nowhere; `key` has the one that was sent."""

    method: str
    path: str
    target: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    connection: int
    key: str = field(repr=False)


async def read_request(reader: asyncio.StreamReader, connection: int) -> ProviderRequest | None:
    """The next request of a connection, None when the client has hung up."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, target, _ = head[0].split(" ", 2)
    url = urlsplit(target)
    return ProviderRequest(
        method=method,
        path=url.path,
        target=target.replace(url.query, "...") if "key=" in url.query else target,
        query={name: "***" if name == "key" else value for name, value in parse_qsl(url.query)},
        headers={name: _shown(name, value) for name, value in headers.items()},
        body=_object(body),
        connection=connection,
        key=_key(headers) or dict(parse_qsl(url.query)).get("key", ""),
    )


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _shown(name: str, value: str) -> str:
    return f"{value.partition(' ')[0]} ***" if " " in value and name in _KEY_HEADERS else _hidden(name, value)


def _hidden(name: str, value: str) -> str:
    return "***" if name in _KEY_HEADERS else value


def _key(headers: Mapping[str, str]) -> str:
    found = next((headers[name] for name in _KEY_HEADERS if name in headers), "")
    return found.removeprefix("Bearer ")


class AnswerWriter:
    """Writes one answer."""

    def __init__(self, writer: asyncio.StreamWriter, *, piece: int = 0) -> None:
        self._writer = writer
        self._piece = piece

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """An answer that is known to its end."""
        await self._head(status, {**headers, "content-length": str(len(body))})
        await self._send(body)

    async def begin(self, headers: Mapping[str, str]) -> None:
        """The head of an answer whose body comes in chunks."""
        await self._head(200, {**headers, "transfer-encoding": "chunked"})

    async def chunk(self, data: bytes) -> None:
        """One piece of the body, or as many as the server was told to cut it into."""
        size = self._piece or len(data) or 1
        for start in range(0, len(data), size):
            part = data[start : start + size]
            await self._send(b"%x\r\n%s\r\n" % (len(part), part))
            if self._piece:
                await asyncio.sleep(0)

    async def end(self) -> None:
        """The end of the body."""
        await self._send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Cut the connection, so that the client sees a reset and not an end."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}", *(f"{k}: {v}" for k, v in headers.items())]
        await self._send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
