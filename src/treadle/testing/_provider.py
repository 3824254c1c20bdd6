"""`FakeProvider`: a provider on this machine, over real HTTP, that follows a script and fails on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from treadle.message import Block, TextBlock, ToolUseBlock
from treadle.model import ModelResponse, Usage
from treadle.testing._provider_formats import Said, WireFormat, find_format
from treadle.testing._provider_http import AnswerWriter, ProviderRequest, read_request
from treadle.testing._provider_openai import OPENAI_CHAT

Saying: TypeAlias = str | Block | Sequence[Block] | ModelResponse
FaultKind: TypeAlias = Literal[
    "status", "page", "slow", "silence", "truncate", "reset", "malformed", "error", "keep_alive", "whole"
]
FOREVER = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with an answer.

    `status` answers with an HTTP status and the provider's error; `page` with a page of HTML. `slow` waits before the
    first byte. The others let the first `after` events of a stream pass, and then: `silence` sends nothing more,
    `truncate` ends without the terminal marker, `reset` cuts the connection (before the answer if `after` is None),
    `malformed` sends broken JSON, `error` sends an error object. `keep_alive` puts comments between all events;
    `whole` answers at once though a stream was asked for.
    """

    kind: FaultKind
    answer: Saying = "Hello, world!"
    status: int = 500
    code: str = ""
    message: str = "It did not work."
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after: int | None = 0
    seconds: float = FOREVER


Answering: TypeAlias = Saying | Fault
Script: TypeAlias = (
    Sequence[Answering | Callable[[ProviderRequest], Answering]] | Callable[[ProviderRequest], Answering]
)


class FakeProvider:
    """A server on loopback that answers in the provider's own format, found by the path of the request.

    Args:
        script: What to answer, in order (text, blocks, a `ModelResponse`, a `Fault`, or a function of the request); or
            one function for all requests.
        key: The one key that is accepted; any if not given.
        piece: Cut bodies into chunks of so many bytes, each sent on its own.
        keep_alive: Whether a connection is left open after an answer.

    Example:
        async with FakeProvider(["Hello!"]) as provider:
            model = OpenAIChatModel("fake", base_url=provider.url, auth="key")
    """

    def __init__(self, script: Script = (), *, key: str | None = None, piece: int = 0, keep_alive: bool = True) -> None:
        self.requests: list[ProviderRequest] = []
        self.connections = 0
        self.open = 0
        self.hangups = 0
        self._script = script
        self._key = key
        self._piece = piece
        self._keep_alive = keep_alive
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def host(self) -> str:
        """The address without a path: `http://127.0.0.1:port`."""
        assert self._server is not None, "use it as `async with FakeProvider(...) as provider`"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def url(self) -> str:
        """The usual base URL of a provider."""
        return f"{self.host}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**26, backlog=512)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def until(self, condition: Callable[[FakeProvider], bool]) -> None:
        """Wait until something is so: `until(lambda provider: provider.open == 0)`."""
        async with self._changed:
            await self._changed.wait_for(lambda: condition(self))

    # Serving.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            await self._converse(reader, writer, self.connections)
        except ConnectionError:
            self.hangups += 1
        except asyncio.CancelledError:
            pass  # the server is closing; asyncio would complain about a connection's task that was cancelled
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.open -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while (request := await read_request(reader, number)) is not None:
            self.requests.append(request)
            await self._tell()
            out = AnswerWriter(writer, piece=self._piece)
            await _Reply(out, reader, find_format(request.path) or OPENAI_CHAT, request).give(self._next(request))
            if not self._keep_alive:
                return

    def _next(self, request: ProviderRequest) -> Answering:
        if find_format(request.path) is None:
            return Fault(kind="status", status=404, message=f"No such address: {request.path}")
        if self._key is not None and request.key != self._key:
            return Fault(kind="status", status=401, message=f"Incorrect API key provided: {request.key}.")
        if callable(self._script):
            return self._script(request)
        place = len(self.requests) - 1
        if place >= len(self._script):
            return Fault(kind="status", status=400, message=f"The script has only {len(self._script)} answers.")
        found = self._script[place]
        return found(request) if callable(found) else found


class _Reply:
    """One answer on its way out."""

    def __init__(
        self, out: AnswerWriter, reader: asyncio.StreamReader, format: WireFormat, request: ProviderRequest
    ) -> None:
        self.out = out
        self.reader = reader
        self.format = format
        self.request = request

    async def give(self, answering: Answering) -> None:
        fault = answering if isinstance(answering, Fault) else None
        saying = answering.answer if isinstance(answering, Fault) else answering
        said = Said(response=as_response(saying), path=self.request.path, body=self.request.body)
        if fault is not None and fault.kind in ("status", "page"):
            await self._refuse(fault)
        elif fault is not None and fault.kind == "reset" and fault.after is None:
            self.out.reset()
            raise ConnectionResetError
        else:
            if fault is not None and fault.kind == "slow":
                await self._wait(fault.seconds)
            await self._say(said, fault)

    async def _refuse(self, fault: Fault) -> None:
        if fault.kind == "page":
            page = f"<html><head><title>{fault.status}</title></head><body><h1>{fault.message}</h1></body></html>"
            await self.out.whole(fault.status, page.encode(), {"content-type": "text/html", **fault.headers})
        else:
            body = json.dumps(self.format.error(fault.status, fault.code, fault.message)).encode()
            await self.out.whole(fault.status, body, {"content-type": "application/json", **fault.headers})

    async def _say(self, said: Said, fault: Fault | None) -> None:
        streams = self.format.streams(self.request.path, self.request.body)
        if not streams or (fault is not None and fault.kind == "whole"):
            body = json.dumps(self.format.whole(said), ensure_ascii=False).encode()
            await self.out.whole(200, body, {"content-type": "application/json"})
            return
        events = list(self.format.events(said))
        await self.out.begin({"content-type": self.format.content_type})
        stop = len(events) if fault is None or fault.after is None else fault.after
        for place, event in enumerate([*events, b""]):  # a fault may come after the last event too
            if fault is not None and place == stop and await self._break(fault):
                return
            if fault is not None and fault.kind == "keep_alive":
                await self.out.chunk(self.format.comment)
            await self.out.chunk(event)
        await self.out.end()

    async def _break(self, fault: Fault) -> bool:
        """Do what the fault says in the middle of a stream, and say whether that was the end of it."""
        match fault.kind:
            case "silence":
                await self._wait(fault.seconds)
                return False
            case "truncate":
                await self.out.end()
                return True
            case "reset":
                self.out.reset()
                raise ConnectionResetError
            case "malformed":
                await self.out.chunk(self.format.event('{"broken": '))
            case "error":
                error = self.format.error(fault.status, fault.code, fault.message)
                await self.out.chunk(self.format.event(json.dumps(error)))
                await self.out.end()
                return True
            case _:
                pass
        return False

    async def _wait(self, seconds: float) -> None:
        """Say nothing for a while; a client that hangs up meanwhile is noticed at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
                raise ConnectionResetError


def as_response(saying: Saying) -> ModelResponse:
    """An answer, however it was given."""
    if isinstance(saying, ModelResponse):
        return saying
    blocks: tuple[Any, ...] = (TextBlock(text=saying),) if isinstance(saying, str) else ()
    if not isinstance(saying, str):
        blocks = tuple(saying) if isinstance(saying, Sequence) else (saying,)
    calls = any(isinstance(block, ToolUseBlock) for block in blocks)
    usage = Usage(input_tokens=7, output_tokens=11, cached_tokens=3, reasoning_tokens=2, requests=1)
    return ModelResponse(content=blocks, stop_reason="tool_use" if calls else "stop", usage=usage)
