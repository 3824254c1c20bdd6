"""DashScope's native API: Qwen and the other models of Alibaba Cloud's Model Studio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from treadle.model._base import ModelProfile
from treadle.model._profiles import profile_of
from treadle.model._provider import ProviderModel

if TYPE_CHECKING:
    from treadle.formatter import Formatter


class DashScopeModel(ProviderModel):
    """A model behind DashScope's native API. Another region has another `base_url`.

    The request's options are DashScope's parameters, such as `enable_thinking`, `thinking_budget` or
    `parallel_tool_calls`. What the profile says about images, audio and video decides between the text and the
    multimodal address; if DashScope answers "url error", pass a `profile` that says otherwise.
    """

    provider: ClassVar[str] = "DashScope"
    key_variables: ClassVar[tuple[str, ...]] = ("DASHSCOPE_API_KEY",)
    default_url: ClassVar[str] = "https://dashscope.aliyuncs.com/api/v1"

    def make_formatter(self) -> Formatter:
        """The native format."""
        from treadle.formatter._dashscope import DashScopeFormatter

        return DashScopeFormatter()

    def find_profile(self, name: str) -> ModelProfile:
        """What the table says about a model."""
        return profile_of("dashscope", name)

    def url(self, *, stream: bool) -> str:
        """The address of text models or of multimodal ones, streamed or not."""
        from treadle.formatter._dashscope import is_multimodal

        kind = "multimodal-generation" if is_multimodal(self.profile) else "text-generation"
        return f"{self.base_url}/services/aigc/{kind}/generation"

    def auth_headers(self, key: str) -> Mapping[str, str]:
        """A bearer token, and the wish for a stream, which is a header here."""
        stream = {"x-dashscope-sse": "enable"} if self.streams else {}
        return {"authorization": f"Bearer {key}", **stream}
