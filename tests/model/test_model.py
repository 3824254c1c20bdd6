"""The seam between an agent and a model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from treadle.errors import MalformedResponseError
from treadle.message import TextBlock
from treadle.model import ChatModel, Delta, ModelRequest, ModelResponse, TextDelta, Usage


class Talking(ChatModel):
    """Yields what it is given."""

    def __init__(self, *items: Delta | ModelResponse) -> None:
        self.items = items

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        for item in self.items:
            yield item


async def test_generate_gives_the_response_of_the_stream() -> None:
    response = ModelResponse(content=(TextBlock(text="hello"),))
    assert await Talking(TextDelta("hel"), TextDelta("lo"), response).generate(ModelRequest(messages=[])) is response


async def test_a_stream_without_a_response_is_an_error() -> None:
    with pytest.raises(MalformedResponseError, match="without a response"):
        await Talking(TextDelta("hel")).generate(ModelRequest(messages=[]))


def test_usage_adds_up() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, reasoning_tokens=4, requests=1, cost=0.5)
    two = Usage(input_tokens=10, output_tokens=20, requests=1)
    assert one + two == Usage(input_tokens=11, output_tokens=22, cached_tokens=3, reasoning_tokens=4, requests=2)
    assert (one + two).total_tokens == 33


def test_an_unknown_price_is_never_counted_as_nothing() -> None:
    priced, unpriced, nothing = Usage(requests=1, cost=0.5), Usage(requests=1), Usage()
    assert (priced + priced).cost == 1.0
    assert (priced + unpriced).cost is None
    assert (unpriced + priced).cost is None
    assert (nothing + priced).cost == (priced + nothing).cost == 0.5
    assert (nothing + nothing).cost is None
