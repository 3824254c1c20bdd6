"""Keys and tokens: given, in the environment, or fetched when they are needed. They never show in texts."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from treadle.errors import AuthenticationError

_REMEMBERED = 8
_SHORTEST = 6  # anything shorter is a placeholder such as "none", and taking it out would spoil honest words
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_LOOKS_LIKE_A_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|gsk|xai|hf|nvapi|tgp|fw)[-_][-_A-Za-z0-9*.]{8,}|AIza[-_A-Za-z0-9*]{8,})|\bBearer\s+[^\s\"',]+"
)


@dataclass(frozen=True, slots=True)
class EnvVar:
    """The name of an environment variable that holds a key."""

    name: str


Auth: TypeAlias = str | EnvVar | Callable[[], "str | Awaitable[str]"]


class Secret(str):
    """Text that does not show in a `repr`, and so in no traceback that prints variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Credential:
    """A key, wherever it comes from."""

    def __init__(self, auth: Auth | None, *, variables: tuple[str, ...], provider: str) -> None:
        self._auth = Secret(auth) if isinstance(auth, str) else auth
        self._variables = (auth.name,) if isinstance(auth, EnvVar) else variables
        self._provider = provider
        self._seen: tuple[str, ...] = ()

    async def key(self) -> str:
        """The key to send now.

        Raises:
            AuthenticationError: There is none, or none that can be sent; the text says what to do.
        """
        found = Secret((await self._find()).strip())
        if found:
            if not (found.isascii() and found.isprintable()):
                raise self._error(f"The key for {self._provider} has characters in it that no header can carry.")
            self.remember(found)
        elif callable(self._auth):
            raise self._error(f"No key for {self._provider}: the function given as `auth` returned an empty one.")
        elif self._variables:
            names = " or ".join(f"`{name}`" for name in self._variables)
            raise self._error(f"No key for {self._provider}: set the environment variable {names}, or pass `auth=...`.")
        return found

    def _error(self, text: str) -> AuthenticationError:
        return AuthenticationError(text, provider=self._provider)

    async def _find(self) -> str:
        auth = self._auth
        if isinstance(auth, str):
            return auth
        if auth is None or isinstance(auth, EnvVar):
            return next((os.environ[name] for name in self._variables if os.environ.get(name)), "")
        given = auth()
        return (await given if inspect.isawaitable(given) else given) or ""

    def remember(self, secret: str) -> None:
        """Take this out of texts from now on."""
        if len(secret) >= _SHORTEST and secret not in self._seen:
            self._seen = (Secret(secret), *self._seen[: _REMEMBERED - 1])

    def remember_headers(self, headers: Mapping[str, str]) -> None:
        """Take the values of headers that sound secret out of texts."""
        for name, value in headers.items():
            if _SECRET_HEADER.search(name):
                self.remember(value)

    def redact(self, text: str) -> str:
        """The text without any key that was sent, and without anything that looks like one."""
        for key in self._seen:
            text = text.replace(key, "***")
        return _LOOKS_LIKE_A_KEY.sub("***", text)

    def redact_error(self, error: BaseException) -> None:
        """Take keys out of an error's text, and out of those that led to it."""
        seen: set[int] = set()
        link: BaseException | None = error
        while link is not None and id(link) not in seen:
            seen.add(id(link))
            link.args = tuple(self.redact(arg) if isinstance(arg, str) else arg for arg in link.args)
            link = link.__cause__ or link.__context__

    def __repr__(self) -> str:
        return f"Credential({self._provider})"
