"""Trying again: how often, how long between, and when it makes sense."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from treadle.errors import ModelError

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often an error that may pass is met with another try, and how long to wait: longer each time, with jitter.

    A provider that says when to come back (`Retry-After`) is heeded. If that is further away than `longest` seconds,
    the error is raised at once, with `retry_after` in it: waiting less than asked would only fail again.
    """

    attempts: int = 3
    first: float = 0.5
    longest: float = 30.0


async def retried(policy: Retries, work: Callable[[], Awaitable[T]]) -> T:
    """Do some work, again where its error is worth it."""
    try:
        return await work()
    except ModelError as error:
        if policy.attempts <= 1 or not _is_worth_it(policy, error):
            raise
        return await _again(policy, work, error)


def _is_worth_it(policy: Retries, error: BaseException) -> bool:
    return isinstance(error, ModelError) and error.retryable and (error.retry_after or 0.0) <= policy.longest


async def _again(policy: Retries, work: Callable[[], Awaitable[T]], first: ModelError) -> T:
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    backoff = wait_random_exponential(multiplier=policy.first, max=policy.longest)
    failed = [first]

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after if isinstance(error, ModelError) else None
        return backoff(state) if asked is None else asked

    async def attempt() -> T:
        if failed:  # the first attempt was made before this library was needed
            raise failed.pop()
        return await work()

    retrying = AsyncRetrying(
        stop=stop_after_attempt(policy.attempts),
        wait=wait,
        retry=retry_if_exception(lambda error: _is_worth_it(policy, error)),
        reraise=True,
    )
    return await retrying(attempt)
