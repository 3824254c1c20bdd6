"""The one HTTP layer of all providers: connections, timeouts, and errors by their meaning.

It speaks through the library's transport, below its client: redirects, cookies and authentication flows have no place
in a request to a model, and the time they take is most of what the library can be spared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary, WeakSet

from treadle.errors import ModelConnectionError, ModelError, ModelTimeoutError

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds to wait: for a connection, and for the next bytes of an answer (silence, not the whole of it)."""

    connect: float = 10.0
    silence: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How to reach a provider: settings that clients with the same ones share connections for."""

    proxy: str | None = None
    verify: bool = True
    timeouts: Timeouts = Timeouts()
    transport: Any = None

    def timeout(self) -> dict[str, float | None]:
        """The timeouts in the library's words."""
        silence = self.timeouts.silence
        return {"connect": self.timeouts.connect, "read": silence, "write": silence, "pool": None}


class _Pool:
    """Connections along one route, of one event loop, and who uses them."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self.transport = transport
        self.users: WeakSet[object] = WeakSet()
        self.closed = False

    async def close(self) -> None:
        self.closed = True
        await self.transport.aclose()


class _Pools:
    """The pools of one event loop, closed with it where the loop ends as `asyncio.run` ends one."""

    def __init__(self) -> None:
        self.by_route: dict[tuple[Route, str | None], _Pool] = {}
        self._by_host: dict[tuple[Route, str, bytes], _Pool] = {}
        self._guard = self._until_the_loop_ends()
        with suppress(StopIteration):
            anext(self._guard).__await__().send(None)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self.close()

    def find(self, route: Route, url: httpx2.URL) -> _Pool:
        """The pool for an address, opened if it is new. The environment's proxies are read once for each host."""
        host = (route, url.scheme, url.netloc)
        found = self._by_host.get(host)
        if found is None or found.closed:
            proxy = route.proxy or _environment_proxy(url)
            found = self.by_route.get((route, proxy))
            if found is None or found.closed:
                found = self.by_route[route, proxy] = _Pool(route.transport or _connected(route, proxy))
            self._by_host[host] = found
        return found

    async def close(self) -> None:
        pools, self.by_route, self._by_host = list(self.by_route.values()), {}, {}
        for pool in pools:
            await pool.close()

    async def leave(self, user: object) -> None:
        for key, pool in list(self.by_route.items()):
            if user in pool.users:
                pool.users.discard(user)
                if not pool.users:
                    self.by_route.pop(key, None)
                    await pool.close()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pools] = WeakKeyDictionary()


def _pools_here() -> _Pools:
    """The pools of the running loop; connections belong to a loop and are never used from another."""
    loop = asyncio.get_running_loop()
    found = _pools.get(loop)
    if found is None:
        found = _pools[loop] = _Pools()
    return found


def _connected(route: Route, proxy: str | None) -> httpx2.AsyncHTTPTransport:
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=60.0)
    return httpx2.AsyncHTTPTransport(verify=route.verify, limits=limits, proxy=proxy)


async def close_clients(user: object = None) -> None:
    """Close the running loop's connections: all of them, or those that nobody but this user needs."""
    pools = _pools.get(asyncio.get_running_loop())
    if pools is None:
        return
    if user is None:
        await pools.close()
    else:
        await pools.leave(user)


@lru_cache(maxsize=256)
def _url(text: str) -> httpx2.URL:
    import httpx2

    url = httpx2.URL(text)
    if url.scheme not in ("http", "https") or not url.host:
        raise httpx2.UnsupportedProtocol(f"{text!r} does not begin with http:// or https:// and a host.")
    return url


def _environment_proxy(url: httpx2.URL) -> str | None:
    """The proxy that the environment names for an address, if any."""
    proxies = getproxies()
    if not proxies or proxy_bypass(url.netloc.decode("ascii")):
        return None
    found = proxies.get(url.scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"


class Answer:
    """An HTTP response whose body has not been read yet."""

    def __init__(self, response: httpx2.Response, provider: str) -> None:
        self._response = response
        self._provider = provider
        self._body: AsyncGenerator[bytes] | None = None
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """The whole body."""
        with _mapped(self._provider):
            return await self._response.aread()

    async def next_chunk(self) -> bytes:
        """The next piece of the body as it comes; empty at its end."""
        with _mapped(self._provider):
            if self._body is None:
                self._body = self._begin()
            return await anext(self._body, b"")

    def _begin(self) -> AsyncGenerator[bytes]:
        encoded = "content-encoding" in self.headers
        source: Any = self._response.aiter_bytes() if encoded else aiter(cast("Any", self._response.stream))
        return source

    async def close(self) -> None:
        """Let the connection go: back to the others if the body was read to its end, else closed at once."""
        try:
            if self._body is not None:
                await self._body.aclose()
        finally:
            await self._response.aclose()


async def send(
    route: Route, url: str, *, headers: Mapping[str, str], content: bytes, provider: str, user: object = None
) -> Answer:
    """Send a request and hand out the answer, which whoever asked has to close."""
    import httpx2

    with _mapped(provider):
        address = _url(url)
        pool = _pools_here().find(route, address)
        if user is not None:
            pool.users.add(user)
        request = httpx2.Request(
            "POST", address, headers=headers, content=content, extensions={"timeout": route.timeout()}
        )
        return Answer(await pool.transport.handle_async_request(request), provider)


@asynccontextmanager
async def post(
    route: Route, url: str, *, headers: Mapping[str, str], content: bytes, provider: str
) -> AsyncGenerator[Answer]:
    """Send a request and hand out the answer; leaving the block lets the connection go."""
    answer = await send(route, url, headers=headers, content=content, provider=provider)
    try:
        yield answer
    finally:
        await answer.close()


class _mapped:  # noqa: N801 - reads as a verb where it is used
    """Turns the HTTP library's errors into ours."""

    __slots__ = ("_provider",)

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, ModelError | asyncio.CancelledError | GeneratorExit):
            return
        found = _meaning(self._provider, error)
        if found is not None:
            raise found from error


def _meaning(provider: str, error: BaseException) -> ModelError | None:
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return ModelTimeoutError(f"{provider} could not be connected to in time.", provider=provider)
    if isinstance(error, httpx2.TimeoutException):
        return ModelTimeoutError(f"{provider} was silent for too long.", provider=provider)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ModelConnectionError(f"The address of {provider} is not valid: {error}", provider=provider)
    if isinstance(error, httpx2.TransportError | httpx2.StreamError | httpx2.DecodingError | OSError):
        said = str(error) or type(error).__name__
        return ModelConnectionError(f"The connection to {provider} failed: {said}", provider=provider)
    return None
