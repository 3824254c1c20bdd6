"""`ScriptedModel`: a model that says what a test wants it to say."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, cast

from treadle._ids import new_id
from treadle.message import Block, Msg, TextBlock, ThinkingBlock, ToolUseBlock
from treadle.message._codec import dumps
from treadle.model import (
    ChatModel,
    Delta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer with everything that can be said about it.

    Args:
        content: Text, blocks, or a mixture.
        stop_reason: Why the answer ended; follows from the content if not given.
        usage: What it cost.
        chunks: How text is cut when it streams: a size, or the lengths of the pieces.
        delay: Seconds to wait before each chunk.
        error: Raised after the content was streamed.
    """

    content: str | Block | Sequence[str | Block] = ()
    stop_reason: StopReason | None = None
    usage: Usage = field(default_factory=lambda: Usage(requests=1))
    chunks: int | Sequence[int] | None = None
    delay: float = 0.0
    error: BaseException | None = None


Said: TypeAlias = "str | Block | Sequence[str | Block] | BaseException | type[BaseException] | Turn | ModelResponse"
ScriptTurn: TypeAlias = "Said | Callable[[ModelRequest], Any]"


def tool_call(name: str, /, id: str = "", **input: Any) -> ToolUseBlock:
    """A call as a model would make it: `tool_call("add", a=17, b=25)`."""
    return ToolUseBlock(id=id, name=name, input=input)


def thinking(text: str) -> ThinkingBlock:
    """A thought as a model would have it."""
    return ThinkingBlock(thinking=text)


class ScriptedModel(ChatModel):
    """Answers turn by turn from a script.

    Which turn is next follows from the request: how many answers the thread has had so far. So a script goes on at the
    right place in another process, and several threads can share one model. A turn is text, blocks, an exception, a
    `Turn`, or a function of the request that returns one of these.

    Args:
        turns: The script.
        name: The model's name.
        stream: Whether answers come in chunks.
        chunk_size: How long a chunk of text is.
        loop: Start again when the script is at its end.
        profile: What the model claims to be able to do.

    Example:
        >>> model = ScriptedModel([[tool_call("add", a=17, b=25)], "It is 42."])
    """

    def __init__(
        self,
        turns: Sequence[ScriptTurn],
        *,
        name: str = "scripted",
        stream: bool = True,
        chunk_size: int = 8,
        loop: bool = False,
        profile: ModelProfile | None = None,
    ) -> None:
        self.name = name
        self.profile = profile or ModelProfile()
        self.requests: list[ModelRequest] = []
        self._turns = list(turns)
        self._streams = stream
        self._chunk_size = chunk_size
        self._loop = loop
        self._raised: Counter[str | None] = Counter()
        self._used: set[int] = set()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Give the next turn."""
        self.requests.append(request)
        turn = await self._turn(request)
        response = _response(turn)
        try:
            if self._streams:
                for delta in _deltas(response, turn.chunks or self._chunk_size):
                    await asyncio.sleep(turn.delay)
                    yield delta
            elif turn.delay:
                await asyncio.sleep(turn.delay)
            if turn.error is not None:
                raise turn.error
        except Exception:
            self._raised[request.thread] += 1
            raise
        yield response

    async def _turn(self, request: ModelRequest) -> Turn:
        index = _place(request) + self._raised[request.thread]
        if self._loop and self._turns:
            index %= len(self._turns)
        if index >= len(self._turns):
            last = request.messages[-1].text[:200] if request.messages else ""
            raise AssertionError(
                f"The script has {len(self._turns)} turns, and the model was asked for turn {index + 1}; "
                f"the last message was: {last!r}"
            )
        self._used.add(index)
        given: Any = self._turns[index]
        if callable(given) and not isinstance(given, type):
            given = given(request)
            if inspect.isawaitable(given):
                given = await given
        return _as_turn(given)

    @property
    def left(self) -> int:
        """How many turns were never asked for."""
        return len(self._turns) - len(self._used)

    def assert_consumed(self) -> None:
        """Fail if a turn of the script was never asked for."""
        unused = [turn for index, turn in enumerate(self._turns) if index not in self._used]
        assert not unused, f"{len(unused)} turns of the script were not used; the first is {unused[0]!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.assert_consumed()


def _place(request: ModelRequest) -> int:
    if request.step is not None:
        return request.step
    return sum(msg.role == "assistant" for msg in request.messages)


def _as_turn(given: Any) -> Turn:
    if isinstance(given, Turn):
        return given
    if isinstance(given, BaseException):
        return Turn(error=given)
    if isinstance(given, type) and issubclass(given, BaseException):
        return Turn(error=given())
    if isinstance(given, ModelResponse):
        return Turn(content=given.content, stop_reason=given.stop_reason, usage=given.usage)
    if isinstance(given, Msg):
        return Turn(content=given.content)
    return Turn(content=cast("str | Block | Sequence[str | Block]", given))


def _response(turn: Turn) -> ModelResponse:
    given = turn.content
    items = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    blocks = tuple(TextBlock(text=item) if isinstance(item, str) else item for item in items)
    calls = any(isinstance(block, ToolUseBlock) for block in blocks)
    return ModelResponse(
        content=blocks,
        stop_reason=turn.stop_reason or ("tool_use" if calls else "stop"),
        usage=turn.usage,
        id=new_id("response"),
    )


def _deltas(response: ModelResponse, chunks: int | Sequence[int]) -> list[Delta]:
    out: list[Delta] = []
    for index, block in enumerate(response.content):
        if isinstance(block, TextBlock):
            out += [TextDelta(piece, index) for piece in _cut(block.text, chunks)]
        elif isinstance(block, ThinkingBlock):
            out += [ThinkingDelta(piece, index) for piece in _cut(block.thinking, chunks)]
        elif isinstance(block, ToolUseBlock):
            arguments = block.raw if block.raw is not None else dumps(block.input)
            pieces = _cut(arguments, chunks) or [""]
            out.append(ToolCallDelta(pieces[0], index, block.id or None, block.name))
            out += [ToolCallDelta(piece, index) for piece in pieces[1:]]
    return out


def _cut(text: str, chunks: int | Sequence[int]) -> list[str]:
    if isinstance(chunks, int):
        return [text[i : i + chunks] for i in range(0, len(text), chunks)]
    pieces: list[str] = []
    for length in chunks:
        pieces.append(text[:length])
        text = text[length:]
    return [*pieces, text] if text else pieces
