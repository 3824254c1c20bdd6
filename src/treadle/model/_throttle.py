"""`ThrottledModel`: stay within what a provider allows, instead of finding out."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from treadle.errors import InputError
from treadle.model._base import ChatModel, close_model, closing_stream
from treadle.model._types import Delta, ModelRequest, ModelResponse

_MINUTE = 60.0


class ThrottledModel(ChatModel):
    """Lets requests through as fast as the limits allow; the others wait their turn, in order.

    Args:
        model: The model to protect.
        requests_per_minute: How many requests may begin in any minute.
        tokens_per_minute: How many tokens (input and output, as reported) may be used in any minute; a request waits
            until those of the last minute are below that.
        concurrent: How many requests may be under way at once.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent: int | None = None,
    ) -> None:
        for limit in (requests_per_minute, tokens_per_minute, concurrent):
            if limit is not None and limit < 1:
                raise InputError(f"A limit must be at least 1, not {limit!r}.")
        self.model = model
        self.name, self.profile = model.name, model.profile
        self._requests = _Window(requests_per_minute)
        self._tokens = _Window(tokens_per_minute)
        self._places = asyncio.Semaphore(concurrent) if concurrent else None
        self._turn = asyncio.Lock()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Wait for a place, then ask."""
        if self._places is None:
            async with aclosing(self._within_limits(request)) as items:
                async for item in items:
                    yield item
            return
        async with self._places, aclosing(self._within_limits(request)) as items:
            async for item in items:
                yield item

    async def close(self) -> None:
        """Close the model, if it can be closed."""
        await close_model(self.model)

    async def _within_limits(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelResponse]:
        async with self._turn:
            await self._requests.wait()
            await self._tokens.wait()
            self._requests.add(1)
        async with closing_stream(self.model.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, ModelResponse):
                    self._tokens.add(item.usage.total_tokens)
                yield item


class _Window:
    """What was used in the last minute."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._used: deque[tuple[float, int]] = deque()
        self._sum = 0

    def add(self, amount: int) -> None:
        if self._limit is not None and amount:
            self._used.append((time.monotonic(), amount))
            self._sum += amount

    async def wait(self) -> None:
        while self._limit is not None and self._over():  # noqa: ASYNC110 - waits for time to pass, not for an event
            await asyncio.sleep(self._used[0][0] + _MINUTE - time.monotonic())

    def _over(self) -> bool:
        assert self._limit is not None
        now = time.monotonic()
        while self._used and self._used[0][0] <= now - _MINUTE:
            self._sum -= self._used.popleft()[1]
        return self._sum >= self._limit
