"""Google's Gemini: generateContent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from treadle.model._base import ModelProfile
from treadle.model._profiles import profile_of
from treadle.model._provider import ProviderModel

if TYPE_CHECKING:
    from treadle.formatter._base import Formatter


class GeminiModel(ProviderModel):
    """A Gemini model, by its name (`gemini-3-flash-preview`) or by its path (`tunedModels/mine`)."""

    provider: ClassVar[str] = "Gemini"
    key_variables: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    default_url: ClassVar[str] = "https://generativelanguage.googleapis.com/v1beta"

    def make_formatter(self) -> Formatter:
        """Gemini's format."""
        from treadle.formatter._gemini import GeminiFormatter

        return GeminiFormatter()

    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""
        return profile_of("gemini", name.rpartition("/")[2])

    def url(self, *, stream: bool) -> str:
        """The model and the method are in the address."""
        path = self.name if "/" in self.name else f"models/{self.name}"
        return f"{self.base_url}/{path}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """Google's own header."""
        return {"x-goog-api-key": key} if key else {}
