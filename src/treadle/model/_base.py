"""`ChatModel`: the one seam between an agent and a language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass

from treadle.errors import MalformedResponseError
from treadle.model._types import Delta, ModelRequest, ModelResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What a model can do; the loop asks here instead of testing names."""

    tools: bool = True
    forced_tool_choice: bool = True
    native_json_schema: bool = False
    context_window: int | None = None


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
