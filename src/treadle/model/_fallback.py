"""`FallbackModel`: ask the next model when one cannot answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from treadle.errors import BadRequestError, ContentRefusedError, InputError, ModelError
from treadle.model._base import ChatModel, close_model, closing_stream
from treadle.model._types import Delta, ModelRequest, ModelResponse


class FallbackModel(ChatModel):
    """Asks the first model, and on its failure the next, for each request anew.

    A failure counts only before anything of the answer was seen: afterwards the error goes on, with the partial text in
    it. A request that is wrong in itself, or that a provider refuses to answer, is not taken to the next one.

    Args:
        models: The models, best first.
        name: What the whole is called.
    """

    def __init__(self, models: Sequence[ChatModel], *, name: str | None = None) -> None:
        if not models:
            raise InputError("`FallbackModel` needs at least one model.")
        self.models = tuple(models)
        self.name = name or " or ".join(model.name for model in models)
        self.profile = models[0].profile

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Give the answer of the first model that has one."""
        failures: list[ModelError] = []
        for model in self.models:
            seen = False
            try:
                async with closing_stream(model.stream(request)) as stream:
                    async for item in stream:
                        seen = True
                        yield item
                return
            except ModelError as error:
                if seen or _is_final(error):
                    raise
                failures.append(error)
        raise _told_of_all(failures)

    async def close(self) -> None:
        """Close every model that can be closed."""
        for model in self.models:
            await close_model(model)


def _told_of_all(failures: Sequence[ModelError]) -> ModelError:
    """The last error, with a word about the ones before."""
    last = failures[-1]
    for error in failures[:-1]:
        last.add_note(f"Before that, another model failed: {error}")
    return last


def _is_final(error: ModelError) -> bool:
    return type(error) is BadRequestError or isinstance(error, ContentRefusedError)
