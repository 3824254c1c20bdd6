"""What goes into a model and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from treadle.message import Block, Msg

StopReason: TypeAlias = Literal["stop", "tool_use", "length", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and money that one or more model calls cost. `cost` is None if the price of any of them is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
            cost=_sum_of_costs(self, other),
        )


def _sum_of_costs(one: Usage, two: Usage) -> float | None:
    """What both cost together; a request without a known price makes the sum unknown, never smaller."""
    if one.cost is None:
        return None if one.requests else two.cost
    if two.cost is None:
        return None if two.requests else one.cost
    return one.cost + two.cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it: its name, what it is for, and the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Whether the model may, must or must not call tools; `name` forces one tool."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model.

    `thread` and `step` say where the question comes from: the step counts the answers this thread has already received,
    so that a scripted or caching model knows its place in another process too.
    """

    messages: Sequence[Msg]
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    thread: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """The whole answer to one request, the same whether it was streamed or not."""

    content: tuple[Block, ...]
    stop_reason: StopReason = "stop"
    usage: Usage = field(default_factory=lambda: Usage(requests=1))
    id: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text. `index` is the block's place in the answer."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's thinking."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call: the name comes with the first piece, arguments are raw JSON text."""

    arguments: str = ""
    index: int = 0
    id: str | None = None
    name: str | None = None


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
