"""Anthropic's Messages, and everything that is compatible with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from treadle.model._base import ModelProfile
from treadle.model._profiles import profile_of
from treadle.model._provider import ProviderModel

if TYPE_CHECKING:
    from treadle.formatter import Formatter


class AnthropicModel(ProviderModel):
    """A model that speaks Messages: Anthropic's own, or any compatible server under another `base_url`.

    Args:
        name: The provider's name for the model.
        bearer: Whether `auth` gives bearer tokens, which go into `authorization` instead of `x-api-key`.
        version: The version of the API. From 2026-10-21 on it refuses `temperature`, `top_p` and `top_k` for every
            model; older servers know only 2023-06-01.
        max_tokens: The longest answer, where a request's options do not say it.
        cache: Whether to mark prompts for caching; where the profile says that the model can, if not given.
        settings: As for every `ProviderModel`: `auth`, `base_url`, `headers`, `stream`, ...
    """

    provider: ClassVar[str] = "Anthropic"
    key_variables: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    default_url: ClassVar[str] = "https://api.anthropic.com"

    def __init__(
        self,
        name: str,
        *,
        bearer: bool = False,
        version: str = "2023-06-01",
        max_tokens: int | None = None,
        cache: bool | None = None,
        **settings: Any,
    ) -> None:
        self._bearer = bearer
        self._version = version
        self._formatting: dict[str, Any] = {"max_tokens": max_tokens, "cache": cache}
        super().__init__(name, **settings)

    def make_formatter(self) -> Formatter:
        """The format of Messages."""
        from treadle.formatter._anthropic import AnthropicFormatter

        return AnthropicFormatter(**self._formatting)

    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""
        return profile_of("anthropic", name)

    def url(self, *, stream: bool) -> str:
        """One address, streamed or not."""
        return f"{self.base_url.removesuffix('/v1')}/v1/messages"

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """The key or the token, and the version of the API."""
        headers = {"anthropic-version": self._version}
        if key:
            headers |= {"authorization": f"Bearer {key}"} if self._bearer else {"x-api-key": key}
        return headers
