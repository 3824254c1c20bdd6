"""What the model says and what hooks do, as small values that hypothesis can draw, print and shrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import strategies as st

from treadle.message import Block, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.model import ModelResponse, StopReason, Usage

TOOLS = (
    "ok",
    "bad",
    "hang",
    "safe",
    "sync",
    "slow_sync",
    "self_cancel",
    "stubborn",
    "suspend",
    "approve",
    "external",
    "ends",
    "alone",
    "chatty",
    "stopper",
    "nobody",
)
REPEATABLE = ("safe",)
Shape: TypeAlias = Literal["fresh", "none", "twice", "broken", "misfit"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the model makes: a fresh provider id, none or a repeated one, broken JSON, or wrong arguments."""

    tool: str
    shape: Shape = "fresh"

    def block(self, number: int) -> ToolUseBlock:
        call = {"twice": "twice", "none": ""}.get(self.shape, f"p{number}")
        if self.shape == "broken":
            return ToolUseBlock(id=call, name=self.tool, input={}, raw='{"n": ')
        return ToolUseBlock(id=call, name=self.tool, input={"m": "x"} if self.shape == "misfit" else {"n": 1})


Kind: TypeAlias = Literal["say", "raise", "drop"]


@dataclass(frozen=True, slots=True)
class Say:
    """One answer of the model; it may wait at a gate before its first and before its last piece."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: bool = False
    stop: StopReason | None = None
    kind: Kind = "say"
    gate: Literal["", "first", "last"] = ""
    streams: bool = True

    def response(self, first: int) -> ModelResponse:
        blocks: list[Block] = [ThinkingBlock(thinking="hm")] if self.thinking else []
        if self.text:
            blocks.append(TextBlock(text=self.text))
        blocks += [call.block(first + place) for place, call in enumerate(self.calls)]
        stop: StopReason = self.stop or ("tool_use" if self.calls else "stop")
        return ModelResponse(content=tuple(blocks), stop_reason=stop, usage=Usage(requests=1, output_tokens=3))


calls = st.builds(
    Call,
    tool=st.sampled_from(TOOLS),
    shape=st.sampled_from(("fresh", "fresh", "fresh", "none", "twice", "broken", "misfit")),
)
_gates = st.sampled_from(("", "", "", "first", "last"))
acting = st.builds(
    Say,
    text=st.sampled_from(("", "on it")),
    calls=st.lists(calls, min_size=1, max_size=4).map(tuple),
    gate=_gates,
    streams=st.booleans(),
    stop=st.sampled_from((None, None, None, None, "length")),
)
talking = st.builds(
    Say,
    text=st.sampled_from(("done", "fine then", "", " ")),
    thinking=st.booleans(),
    gate=_gates,
    streams=st.booleans(),
    stop=st.sampled_from((None, None, None, "length", "refused")),
    kind=st.sampled_from(("say", "say", "say", "say", "raise", "drop")),
)
says = st.one_of(acting, acting, talking)
