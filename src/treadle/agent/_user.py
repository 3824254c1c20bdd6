"""`UserAgent`: a person, or any async source of text, as an agent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TextIO, TypeAlias, cast

from treadle.agent._base import AgentBase
from treadle.errors import InputError
from treadle.hook import Hook
from treadle.message import Msg

Source: TypeAlias = Callable[[], "str | Msg | Awaitable[str | Msg]"] | AsyncIterator["str | Msg"]


class UserAgent(AgentBase):
    """Answers with what a person types, or with what an async source gives.

    Example:
        >>> user = UserAgent(name="Ada", source=lambda: "Good morning.")
    """

    def __init__(
        self,
        *,
        name: str = "user",
        source: Source | None = None,
        prompt: str = "> ",
        hooks: Iterable[Hook] = (),
        console: TextIO | None = None,
    ) -> None:
        """Configure the agent.

        Args:
            name: The person's name in messages.
            source: A function (sync or async) that returns the next input, or an async iterator; else the terminal.
            prompt: What the terminal shows.
            hooks: Hooks of this agent.
            console: Where observed messages are printed.
        """
        super().__init__(name=name, hooks=hooks, console=console)
        self._source = source
        self._prompt = prompt

    async def call(self, msg: Any = None) -> Msg:
        """Show the message, if there is one, and return the person's answer."""
        return await self.reply(msg)

    async def reply(self, msg: Any = None) -> Msg:
        """Show the message, if there is one, and return the person's answer."""
        if msg is not None:
            await self.observe(msg)
        given = await self._next()
        return given if isinstance(given, Msg) else Msg.user(given, name=self.name)

    async def observe(self, msg: str | Msg | list[Msg]) -> None:
        """Show messages."""
        for item in msg if isinstance(msg, list) else [msg]:
            await self.print(Msg.user(item) if isinstance(item, str) else item)

    async def _next(self) -> str | Msg:
        try:
            if self._source is None:
                return await asyncio.to_thread(input, self._prompt)
            if hasattr(self._source, "__anext__"):
                return await anext(cast("AsyncIterator[str | Msg]", self._source))
        except (StopAsyncIteration, EOFError):
            raise InputError(f"The source of {self.name!r} has no more input.") from None
        given = cast("Callable[[], Any]", self._source)()
        return await given if inspect.isawaitable(given) else given
