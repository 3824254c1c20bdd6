"""What both sides share: the model's scripted turns, the tools, and a count of the tools that really ran."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import count
from types import FunctionType
from typing import Any, Protocol, TypeAlias

SYSTEM = "You are a calculator."
PROMPT = "Add these numbers."
ANSWER = "The sum is 42."
PIECE = "word"
NAP = 0.02

ToolFunction: TypeAlias = Callable[..., Coroutine[Any, Any, int]]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the model makes it, also as the JSON text that a provider would send."""

    id: str
    name: str
    input: dict[str, Any]
    json: str


Turn: TypeAlias = Sequence[Call] | str
_ids = count()


def call(name: str, **arguments: int) -> Call:
    return Call(f"c{next(_ids)}", name, arguments, json.dumps(arguments))


def react(iterations: int) -> list[Turn]:
    """One call of `add` per iteration, then the answer."""
    return [*([call("add", a=i, b=1)] for i in range(iterations)), ANSWER]


def pieces(text: str) -> list[str]:
    return [text[i : i + len(PIECE)] for i in range(0, len(text), len(PIECE))]


class Script:
    """The turns, one after another; `latency` is the model's thinking time in seconds."""

    def __init__(self, turns: Sequence[Turn], latency: float = 0.0) -> None:
        self._turns = iter(turns)
        self._latency = latency

    async def next(self) -> Turn:
        if self._latency:
            await asyncio.sleep(self._latency)
        return next(self._turns)


class Counter:
    """How many tools ran: a benchmark whose tools did not run measures nothing."""

    ran = 0


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    Counter.ran += 1
    return a + b


async def nap(i: int) -> int:
    """Wait for 20 ms.

    Args:
        i: The number of the call.
    """
    await asyncio.sleep(NAP)
    Counter.ran += 1
    return i


def fresh_tools(number: int = 10) -> list[ToolFunction]:
    """Functions that nobody has seen before, so that no cache can know them."""
    tools: list[ToolFunction] = []
    for i in range(number):
        function = FunctionType(add.__code__, add.__globals__, f"add_{i}")
        function.__annotations__ = dict(add.__annotations__)
        function.__doc__, function.__module__, function.__qualname__ = add.__doc__, add.__module__, f"add_{i}"
        tools.append(function)
    return tools


class Agent(Protocol):
    """One agent of either side, with its own scripted model."""

    async def run(self, prompt: str = PROMPT) -> str: ...

    def stream(self, prompt: str = PROMPT) -> AsyncIterator[str]: ...

    async def close(self) -> None: ...


class Side(Protocol):
    """A way to build agents: the hand-written loop, or Treadle."""

    def toolkit(self, functions: Sequence[ToolFunction]) -> Any:
        """What can be built once and shared by many agents."""
        ...

    def agent(
        self, turns: Sequence[Turn], toolkit: Any, *, latency: float = 0.0, store: str | None = None
    ) -> Agent: ...
