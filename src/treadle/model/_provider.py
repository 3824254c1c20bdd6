"""`ProviderModel`: a formatter and a way to reach the provider make a model."""

from __future__ import annotations

import json
from abc import abstractmethod
from asyncio import timeout
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from treadle.errors import MalformedResponseError, ModelError
from treadle.model._auth import Auth, Credential, Secret
from treadle.model._base import ChatModel, ModelProfile
from treadle.model._failures import failure, plain_text
from treadle.model._http import Answer, Route, Timeouts, close_clients, send
from treadle.model._retry import Retries, retried
from treadle.model._sse import JSONLinesParser, SSEParser
from treadle.model._types import Delta, ModelRequest, ModelResponse

if TYPE_CHECKING:
    from treadle.formatter._base import Formatter

DONE: Final = "[DONE]"
PATIENCE: Final = 0.1
"""Seconds that a body may take to end after its `[DONE]`; then the connection is not worth keeping."""
SOMEBODY: Final = "The provider"
"""What formatters call whom they do not know."""
_JSON: Final = {"content-type": "application/json", "accept-encoding": "identity"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ProviderModel(ChatModel):
    """A model behind HTTP. Subclasses say where it is, how it is authenticated and which formatter it speaks with.

    Args:
        name: The provider's name for the model.
        auth: The key, an `EnvVar`, or a function (async too) that returns a fresh token; the provider's usual
            environment variable if not given.
        base_url: Another address, such as a proxy or a compatible server.
        headers: Sent with every request.
        extra_body: Merged into the body of every request.
        stream: Whether to ask for a stream.
        proxy: An HTTP proxy.
        timeouts: How long to wait for a connection, and for silence.
        retries: How often to try again after an error that may pass.
        profile: What the model can do, where the table does not know better.
    """

    provider: ClassVar[str]
    key_variables: ClassVar[tuple[str, ...]] = ()
    default_url: ClassVar[str]
    parser: ClassVar[type[SSEParser | JSONLinesParser]] = SSEParser

    def __init__(
        self,
        name: str,
        *,
        auth: Auth | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        stream: bool = True,
        proxy: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        profile: ModelProfile | None = None,
        formatter: Formatter | None = None,
    ) -> None:
        self.name = name
        self.base_url = (base_url or self.find_url()).rstrip("/")
        self.streams = stream
        self.profile = profile or self.find_profile(name)
        self.formatter = formatter or self.make_formatter()
        self.retries = retries or Retries()
        self._headers = {name.lower(): Secret(value) for name, value in (headers or {}).items()}
        self._extra_body = dict(extra_body or {})
        self._route = Route(proxy=proxy, timeouts=timeouts or Timeouts())
        self._credential = Credential(auth, variables=self.key_variables, provider=self.provider)
        self._credential.remember_headers(self._headers)

    def find_url(self) -> str:
        """Where the provider is if no `base_url` was given."""
        return self.default_url

    @abstractmethod
    def make_formatter(self) -> Formatter:
        """The provider's usual formatter."""

    @abstractmethod
    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""

    @abstractmethod
    def url(self, *, stream: bool) -> str:
        """Where to send a request."""

    @abstractmethod
    def auth_headers(self, key: str) -> Mapping[str, str]:
        """How the key is sent."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Ask, and yield what comes. What fails before anything was yielded is tried again where that may help."""
        body = self.formatter.body(request, model=self.name, profile=self.profile, stream=self.streams)
        content = _encode({**body, **self._extra_body} if self._extra_body else body).encode()
        reading = await retried(self.retries, lambda: self._begin(content))
        try:
            while True:
                for item in reading.items:
                    yield item
                if reading.over:
                    return
                await reading.more()
        except ModelError as error:
            self._clean(error, reading)
            raise
        finally:
            await reading.close()

    async def close(self) -> None:
        """Close the connections that this model opened on the running loop and that no other model uses."""
        await close_clients(self)

    async def _begin(self, content: bytes) -> _Reading:
        """Send the request and read up to the first item, so that a failure before it can be tried again."""
        reading: _Reading | None = None
        try:
            reading = await self._send(content)
            while not (reading.items or reading.over):
                await reading.more()
            return reading
        except BaseException as error:
            if reading is not None:
                await reading.close()
            if isinstance(error, ModelError):
                self._clean(error, reading)
            raise

    async def _send(self, content: bytes) -> _Reading:
        key = await self._credential.key()
        headers: dict[str, str] = {**_JSON, **self.auth_headers(key)}
        headers = {**{name.lower(): Secret(value) for name, value in headers.items()}, **self._headers}
        url = self.url(stream=self.streams)
        answer = await send(self._route, url, headers=headers, content=content, provider=self.provider, user=self)
        if answer.status < 300:
            return _Reading(self, answer)
        try:
            raise failure(self.provider, answer.status, await answer.read(), answer.headers)
        finally:
            await answer.close()

    def _clean(self, error: ModelError, reading: _Reading | None) -> None:
        """Take keys out of an error, and put into it what had been said before."""
        if error.provider in ("", SOMEBODY):
            error.args = tuple(str(arg).replace(SOMEBODY, self.provider, 1) for arg in error.args)
            error.provider = self.provider
        if reading is not None:
            error.partial = error.partial or reading.reader.partial()
        self._credential.redact_error(error)


class _Reading:
    """An answer that is being read: `items` are what the last piece of it gave, `over` says that it was the last."""

    def __init__(self, model: ProviderModel, answer: Answer) -> None:
        self.reader = model.formatter.reader()
        self.items: list[Delta | ModelResponse] = []
        self.over = False
        self._failed: ModelError | None = None
        self._formatter = model.formatter
        self._provider = model.provider
        self._parser = model.parser()
        self._answer = answer
        kind = answer.headers.get("content-type", "")
        # A server that does not stream answers whole though asked for a stream.
        self._whole = not model.streams or kind.startswith("application/json")
        self._page = kind.startswith("text/html")

    async def more(self) -> None:
        """Read the next piece."""
        if self._whole or self._page:
            self.items = [self._response(await self._answer.read())]
            self.over = True
            return
        if self._failed is not None:
            raise self._failed
        chunk = await self._answer.next_chunk()
        self.items = []
        try:
            await self._take(chunk)
        except ModelError as error:
            if not self.items:
                raise
            self._failed = error  # what came before it goes first

    async def _take(self, chunk: bytes) -> None:
        items, done = self.items, not chunk
        for event in self._parser.feed(chunk) if chunk else self._parser.close():
            items += self.reader.feed(event)
            done = done or event.data == DONE
        if done:
            await self._finish(drain=bool(chunk))

    async def _finish(self, *, drain: bool) -> None:
        """Let the connection go before the response is handed out: whoever gets it may not come back."""
        if drain:
            await self._drain()
        await self.close()
        self.items.append(self.reader.finish())
        self.over = True

    async def _drain(self) -> None:
        try:
            async with timeout(PATIENCE):
                while await self._answer.next_chunk():
                    pass
        except (TimeoutError, ModelError):
            pass  # the answer is whole; only the connection is lost

    def _response(self, body: bytes) -> ModelResponse:
        try:
            data = json.loads(body)
        except ValueError as error:
            said = plain_text(body) if self._page else repr(body[:200])
            raise MalformedResponseError(f"{self._provider} answered something that is not JSON: {said}") from error
        if not isinstance(data, dict):
            raise MalformedResponseError(f"{self._provider} answered with no JSON object: {body[:200]!r}")
        return self._formatter.response(data)  # pyright: ignore[reportUnknownArgumentType]

    async def close(self) -> None:
        """Let the connection go."""
        await self._answer.close()
