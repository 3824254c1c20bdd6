"""Models: what a question and an answer look like, the providers, and the interface to implement for another."""

import importlib
from typing import TYPE_CHECKING, Any

from treadle.model._auth import EnvVar
from treadle.model._base import ChatModel, ModelProfile
from treadle.model._fallback import FallbackModel
from treadle.model._registry import PROVIDERS, resolve_model
from treadle.model._retry import Retries
from treadle.model._throttle import ThrottledModel
from treadle.model._types import (
    Delta,
    ModelRequest,
    ModelResponse,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolChoice,
    ToolSpec,
    Usage,
)

if TYPE_CHECKING:
    from treadle.model._anthropic import AnthropicModel
    from treadle.model._dashscope import DashScopeModel
    from treadle.model._gemini import GeminiModel
    from treadle.model._http import Timeouts
    from treadle.model._ollama import OllamaModel
    from treadle.model._openai import OpenAIChatModel, openai_compatible
    from treadle.model._responses import OpenAIResponsesModel

__all__ = [
    "AnthropicModel",
    "ChatModel",
    "DashScopeModel",
    "Delta",
    "EnvVar",
    "FallbackModel",
    "GeminiModel",
    "ModelProfile",
    "ModelRequest",
    "ModelResponse",
    "OllamaModel",
    "OpenAIChatModel",
    "OpenAIResponsesModel",
    "Retries",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ThrottledModel",
    "Timeouts",
    "ToolCallDelta",
    "ToolChoice",
    "ToolSpec",
    "Usage",
    "openai_compatible",
    "resolve_model",
]

_LATER = {name: module for module, name in PROVIDERS.values()} | {
    "Timeouts": "treadle.model._http",
    "openai_compatible": "treadle.model._openai",
}


def __getattr__(name: str) -> Any:
    """Load a provider only for those who use it."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
