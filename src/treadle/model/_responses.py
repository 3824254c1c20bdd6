"""OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from treadle.model._base import ModelProfile
from treadle.model._profiles import profile_of
from treadle.model._provider import ProviderModel

if TYPE_CHECKING:
    from treadle.formatter._base import Formatter


class OpenAIResponsesModel(ProviderModel):
    """A model behind OpenAI's Responses; the choice for models that reason between their calls.

    Nothing is stored at the provider unless an option says so: `store=True`.
    """

    provider: ClassVar[str] = "OpenAI"
    key_variables: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    default_url: ClassVar[str] = "https://api.openai.com/v1"

    def make_formatter(self) -> Formatter:
        """The format of items."""
        from treadle.formatter._responses import OpenAIResponsesFormatter

        return OpenAIResponsesFormatter()

    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""
        return profile_of("openai-responses", name)

    def url(self, *, stream: bool) -> str:
        """One address, streamed or not."""
        return f"{self.base_url}/responses"

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """A bearer token."""
        return {"authorization": f"Bearer {key}"} if key else {}
