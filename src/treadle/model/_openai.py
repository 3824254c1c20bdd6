"""OpenAI's Chat Completions, and everything that is compatible with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from treadle.errors import InputError
from treadle.model._base import ModelProfile
from treadle.model._profiles import SERVICES, profile_of
from treadle.model._provider import ProviderModel
from treadle.model._services import OPENAI, Dialect, Service

if TYPE_CHECKING:
    from treadle.formatter import Formatter


class OpenAIChatModel(ProviderModel):
    """A model that speaks the chat format: OpenAI's own, or any compatible server under another `base_url`.

    Args:
        name: The provider's name for the model.
        service: One of the services in the table, for its address, key and peculiarities; OpenAI if not given.
        options: Those of `ProviderModel`: `auth`, `base_url`, `headers`, `extra_body`, `stream`, `proxy`, `timeouts`,
            `retries`, `profile`, `formatter`.
    """

    provider: ClassVar[str] = OPENAI.title
    key_variables: ClassVar[tuple[str, ...]] = OPENAI.key_variables
    default_url: ClassVar[str] = OPENAI.base_url

    def __init__(self, name: str, *, service: str | None = None, **options: Any) -> None:
        self._service = OPENAI if service is None else _find(service)
        self._dialect = self._service.dialect
        if service is None and options.get("base_url"):
            self._dialect = Dialect()  # some compatible server: nothing is known about it
        if service is not None:
            # One class speaks for many services; what is the class's for OpenAI is the instance's for the others.
            vars(self).update(provider=self._service.title, key_variables=self._service.key_variables)
        super().__init__(name, **options)

    def find_url(self) -> str:
        """The service's address: fixed, or in an environment variable."""
        service = self._service
        found = next((os.environ[name] for name in service.url_variables if os.environ.get(name)), "")
        if found:
            return found.rstrip("/").removesuffix(service.url_suffix) + service.url_suffix
        if not service.base_url:
            names = " or ".join(f"`{name}`" for name in service.url_variables)
            raise InputError(
                f"{service.title} has no fixed address: set the environment variable {names}, or pass `base_url`."
            )
        return service.base_url

    def make_formatter(self) -> Formatter:
        """The chat format."""
        from treadle.formatter import OpenAIFormatter

        return OpenAIFormatter(self._dialect)

    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""
        return profile_of("openai", name) if self._service is OPENAI else self._service.profile(name)

    def url(self, *, stream: bool) -> str:
        """One address, streamed or not."""
        return f"{self.base_url}/chat/completions"

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """A bearer token."""
        return {"authorization": f"Bearer {key}"} if key else {}


def openai_compatible(service: str, name: str, **options: Any) -> OpenAIChatModel:
    """A model of a service that is compatible with OpenAI's chat format: `openai_compatible("groq", "qwen3-32b")`."""
    return OpenAIChatModel(name, service=service, **options)


def _find(service: str) -> Service:
    if service not in SERVICES:
        raise InputError(f"There is no service {service!r} in the table. There are: {', '.join(sorted(SERVICES))}.")
    return SERVICES[service]
