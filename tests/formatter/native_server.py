"""A small HTTP server on this machine: it plays replies one after the other and keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from treadle.model import ModelResponse
from treadle.model._sse import JSONLinesParser, ServerEvent, SSEParser


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server says; `pieces` is the size of the pieces that the body is sent in."""

    body: bytes
    status: int = 200
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    pieces: int = 1_000_000


@dataclass(frozen=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    url: str
    answers: list[Answer]
    asked: list[Asked] = field(default_factory=list[Asked])


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.asked.append(Asked(self.path, headers, json.loads(data)))
            answer = server.answers.pop(0)
            self.send_response(answer.status)
            for name, value in {"content-type": answer.type, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for start in range(0, len(answer.body), answer.pieces):
                self.wfile.write(answer.body[start : start + answer.pieces])
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: tests are quiet."""

    return Handler


@contextmanager
def serving(*answers: Answer) -> Generator[Server]:
    """Serve these answers in their order."""
    server = Server("", list(answers))
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def events_of(parser: SSEParser | JSONLinesParser, chunks: Sequence[bytes]) -> list[ServerEvent]:
    """What a parser makes of bytes that come in chunks."""
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


def normal(response: ModelResponse) -> Any:
    """A response in short, for comparing with what an official client says."""
    out: dict[str, Any] = {"thinking": "", "text": "", "calls": []}
    for block in response.content:
        if block.type == "tool_use":
            out["calls"].append((block.name, dict(block.input)))
        elif block.type == "text":
            out["text"] += block.text
        elif block.type == "thinking":
            out["thinking"] += block.thinking
    return {**out, "input": response.usage.input_tokens, "output": response.usage.output_tokens}
