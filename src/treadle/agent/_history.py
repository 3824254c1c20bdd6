"""The messages of a thread, and which calls in them have no result yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

from treadle.graph._strategy import Items
from treadle.message import Msg, ToolResultBlock, ToolUseBlock
from treadle.message._codec import as_msgs


class History:
    """A growing list of messages that knows its open calls without looking at old messages again.

    A message that arrives between a call and its result (from `observe`) waits until the result is in, so that the
    order is one that every provider accepts.
    """

    __slots__ = ("_deferred", "_seen", "messages", "pending")

    def __init__(self) -> None:
        self.messages: list[Msg] = []
        self.pending: dict[str, ToolUseBlock] = {}
        self._deferred: list[Msg] = []
        self._seen: set[str] = set()

    def has_seen(self, call: str) -> bool:
        """Whether a call of that id is anywhere in the history."""
        return call in self._seen

    def add(self, msg: Msg) -> None:
        """Add a message; a second result for a call, or one for no call, is left out."""
        if msg.role == "tool":
            self._add_results(msg)
        elif self.pending:
            self._deferred.append(msg)
        else:
            self._append(msg)
        while self._deferred and not self.pending:
            self._append(self._deferred.pop(0))

    def _append(self, msg: Msg) -> None:
        self.messages.append(msg)
        for block in msg.content:
            if isinstance(block, ToolUseBlock):
                self.pending[block.id] = block
                self._seen.add(block.id)

    def _add_results(self, msg: Msg) -> None:
        fitting = [b for b in msg.content if not isinstance(b, ToolResultBlock) or b.id in self.pending]
        if not fitting:
            return
        for block in fitting:
            if isinstance(block, ToolResultBlock):
                self.pending.pop(block.id, None)
        whole = len(fitting) == len(msg.content)
        self.messages.append(msg if whole else dataclasses.replace(msg, content=tuple(fitting)))

    def last_answer(self, since: int = 0) -> Msg | None:
        """The newest assistant message after the newest user message, and not among the first `since` messages."""
        for place in range(len(self.messages) - 1, since - 1, -1):
            msg = self.messages[place]
            if msg.role == "assistant":
                return msg
            if msg.role == "user":
                return None
        return None


class _HistoryStrategy:
    """Folds messages into a `History`."""

    grows = True

    def start(self) -> History:
        return History()

    def fold(self, old: History, new: Sequence[Msg]) -> History:
        for msg in new:
            old.add(msg)
        return old

    def view(self, value: History) -> Items[Msg]:
        return Items(value.messages)


HISTORY: Final = _HistoryStrategy()


class Conversation(Sequence[Msg]):
    """The system message and the history as they are now, without copying: what a model is asked with."""

    __slots__ = ("_head", "_length", "_messages", "_tail")

    def __init__(self, head: tuple[Msg, ...], messages: list[Msg], tail: tuple[Msg, ...] = ()) -> None:
        self._head = head
        self._messages = messages
        self._length = len(messages)
        self._tail = tail

    def __len__(self) -> int:
        return len(self._head) + self._length + len(self._tail)

    def __iter__(self) -> Iterator[Msg]:
        yield from self._head
        messages = self._messages
        for i in range(self._length):
            yield messages[i]
        yield from self._tail

    @overload
    def __getitem__(self, index: int) -> Msg: ...
    @overload
    def __getitem__(self, index: slice) -> list[Msg]: ...
    def __getitem__(self, index: int | slice) -> Msg | list[Msg]:
        if isinstance(index, slice):
            return list(self)[index]
        size = len(self)
        place = index + size if index < 0 else index
        if not 0 <= place < size:
            raise IndexError("There is no such message.")
        if place < len(self._head):
            return self._head[place]
        place -= len(self._head)
        return self._messages[place] if place < self._length else self._tail[place - self._length]

    def __repr__(self) -> str:
        return f"<{len(self)} messages>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]

    __hash__ = None  # type: ignore[assignment]


def result_msg(result: Any, at: float) -> Any:
    """The message for a call's stored result; its id and time follow from the record, so folding gives it again."""
    if isinstance(result, ToolResultBlock):
        return Msg(role="tool", name="tool", content=(result,), id=f"{result.id}-result", timestamp=at)
    return {"role": "tool", "name": "tool", "content": [result], "id": f"{result['id']}-result", "timestamp": at}


def as_result_block(result: Any) -> ToolResultBlock:
    """A result as a block, whether it comes from this process or from the disk."""
    if isinstance(result, ToolResultBlock):
        return result
    return as_msgs([{"role": "tool", "content": [result]}])[0].tool_results[0]
