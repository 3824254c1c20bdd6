"""Keys and tokens: given, in the environment, or fetched when they are needed. They never show in texts."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from treadle.errors import AuthenticationError


@dataclass(frozen=True, slots=True)
class EnvVar:
    """The name of an environment variable that holds a key."""

    name: str


Auth: TypeAlias = str | EnvVar | Callable[[], "str | Awaitable[str]"]


class Credential:
    """A key, wherever it comes from."""

    def __init__(self, auth: Auth | None, *, variables: tuple[str, ...], provider: str) -> None:
        self._auth = auth
        self._variables = (auth.name,) if isinstance(auth, EnvVar) else variables
        self._provider = provider
        self._seen: set[str] = set()

    async def key(self) -> str:
        """The key to send now.

        Raises:
            AuthenticationError: There is none; the text says which variable to set.
        """
        found = await self._find()
        if not found and self._variables:
            names = " or ".join(f"`{name}`" for name in self._variables)
            raise AuthenticationError(
                f"No key for {self._provider}: set the environment variable {names}, or pass `auth=...`.",
                provider=self._provider,
            )
        if found:
            self._seen.add(found)
        return found

    async def _find(self) -> str:
        auth = self._auth
        if isinstance(auth, str):
            return auth
        if auth is None or isinstance(auth, EnvVar):
            return next((os.environ[name] for name in self._variables if os.environ.get(name)), "")
        given = auth()
        return await cast("Awaitable[str]", given) if inspect.isawaitable(given) else cast("str", given)

    def redact(self, text: str) -> str:
        """The text without any key that was sent, and without anything that looks like one."""
        for key in self._seen:
            text = text.replace(key, "***")
        return _LOOKS_LIKE_A_KEY.sub("***", text)

    def __repr__(self) -> str:
        return f"Credential({self._provider})"


_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|rk|gsk|xai|AIza)[-_A-Za-z0-9*]{8,}|\bBearer\s+\S+")
