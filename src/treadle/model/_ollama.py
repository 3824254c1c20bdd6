"""Ollama's native API: models on this machine, or on another of one's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from treadle.errors import InputError
from treadle.model._base import ModelProfile
from treadle.model._profiles import profile_of
from treadle.model._provider import ProviderModel
from treadle.model._sse import JSONLinesParser, SSEParser

if TYPE_CHECKING:
    from treadle.formatter import Formatter


class OllamaModel(ProviderModel):
    """A model that an Ollama server runs: the one that `OLLAMA_HOST` names, or the one on this machine.

    No key is needed; where a proxy wants one, `auth=` is sent as a bearer token. Of the request's options, `think`,
    `format` and `keep_alive` have places of their own, all others (`temperature`, `num_ctx`, ...) are the model's.
    """

    provider: ClassVar[str] = "Ollama"
    default_url: ClassVar[str] = "http://127.0.0.1:11434"
    parser: ClassVar[type[SSEParser | JSONLinesParser]] = JSONLinesParser

    def find_url(self) -> str:
        """The server that the environment names."""
        return host_url(os.environ.get("OLLAMA_HOST", "")) or self.default_url

    def make_formatter(self) -> Formatter:
        """The native format."""
        from treadle.formatter._ollama import OllamaFormatter

        return OllamaFormatter()

    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""
        return profile_of("ollama", name)

    def url(self, *, stream: bool) -> str:
        """One address, streamed or not."""
        return f"{self.base_url}/api/chat"

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """A bearer token, if there is one."""
        return {"authorization": f"Bearer {key}"} if key else {}


def host_url(host: str) -> str:
    """`OLLAMA_HOST` as a URL: it may lack the scheme, the host or the port, and may be the address to listen on."""
    host = host.strip().strip("\"'").rstrip("/")
    if not host:
        return ""
    scheme, found, rest = host.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
        port = parts.port or (None if found else 11434)
    except ValueError as error:
        raise InputError(f"`OLLAMA_HOST={host}` is no address: {error}") from error
    # A server that listens on every address is reached on this machine's own.
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(parts.hostname or "0.0.0.0", parts.hostname)
    name = f"[{name}]" if name and ":" in name else name
    return f"{scheme or 'http'}://{name}{f':{port}' if port else ''}{parts.path}"
