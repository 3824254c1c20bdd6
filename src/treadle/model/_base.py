"""`ChatModel`: the one seam between an agent and a language model."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from treadle.errors import MalformedResponseError
from treadle.model._types import Delta, ModelRequest, ModelResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What a model can do; the loop asks here instead of testing names."""

    tools: bool = True
    parallel_calls: bool = True
    forced_tool_choice: bool = True
    forced_choice_with_thinking: bool = True
    native_json_schema: bool = False
    images: bool = False
    audio: bool = False
    video: bool = False
    files: bool = False
    thinking: bool = False
    echoes_thinking: bool = False
    """Whether thinking goes back to the model with the next request, as plain text."""
    signs_calls: bool = False
    """Whether the model refuses calls in a conversation that come back without a signature."""
    prompt_caching: bool = False
    context_window: int | None = None


@asynccontextmanager
async def closing_stream(
    stream: AsyncIterator[Delta | ModelResponse],
) -> AsyncGenerator[AsyncIterator[Delta | ModelResponse]]:
    """Close a model's stream here and now, so that its clean-up does not run in some other task later."""
    try:
        yield stream
    finally:
        await close_stream(stream)


async def close_stream(stream: AsyncIterator[Any]) -> None:
    """Close a stream, if it is one that can be closed."""
    close: Any = getattr(stream, "aclose", None)
    if close is not None:
        await close()


async def close_model(model: ChatModel) -> None:
    """Close what a model keeps open, if it is one that does."""
    close: Any = getattr(model, "close", None)
    if inspect.iscoroutinefunction(close):
        await close()


class ChatModel(ABC):
    """A model that answers a request with a stream of deltas and, last, the whole response.

    A model that does not stream yields the response alone.
    """

    name: str = "model"
    profile: ModelProfile = ModelProfile()

    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Ask, and yield deltas as they come and the `ModelResponse` at the end."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask, and return the response alone."""
        async for item in self.stream(request):
            if isinstance(item, ModelResponse):
                return item
        raise MalformedResponseError(f"`{self.name}` ended its stream without a response.")
