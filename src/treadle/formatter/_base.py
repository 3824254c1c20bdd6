"""`Formatter`: what makes a provider's JSON out of messages, and messages out of a provider's JSON. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from treadle.message import Msg
from treadle.model import Delta, ModelProfile, ModelRequest, ModelResponse
from treadle.model._sse import ServerEvent


class ResponseReader(ABC):
    """Reads one streamed answer, event by event."""

    @abstractmethod
    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        """Take an event, and return the deltas in it. An error object in the stream is raised as its `ModelError`."""

    @abstractmethod
    def finish(self) -> ModelResponse:
        """The whole answer, once the stream is over; `MalformedResponseError` if its terminal marker never came."""

    @abstractmethod
    def partial(self) -> str:
        """The text that has come so far."""


class Formatter(ABC):
    """One provider's wire format."""

    def __init__(self) -> None:
        self._formatted: WeakKeyDictionary[Msg, Any] = WeakKeyDictionary()

    @abstractmethod
    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> dict[str, Any]:
        """The JSON of a request. What the model cannot take is an `InputError` here, before anything is sent."""

    @abstractmethod
    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""

    @abstractmethod
    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""

    @abstractmethod
    def format_message(self, msg: Msg, profile: ModelProfile) -> Any:
        """One message in the provider's form; pure, so that it is done once per message."""

    def prepare(self, messages: Sequence[Msg]) -> Iterable[Msg]:
        """The messages as they are to be formatted; one by one as they are, unless a subclass merges some."""
        return messages

    def formatted(self, messages: Sequence[Msg], profile: ModelProfile) -> list[Any]:
        """All messages in the provider's form; each was formatted once, however often it is sent."""
        known = self._formatted
        out: list[Any] = []
        for msg in self.prepare(messages):
            piece = known.get(msg)
            if piece is None:
                piece = known[msg] = self.format_message(msg, profile)
            out.append(piece)
        return out
