"""Models: what a question and an answer look like, and the interface to implement for a provider."""

from treadle.model._base import ChatModel, ModelProfile
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

__all__ = [
    "ChatModel",
    "Delta",
    "ModelProfile",
    "ModelRequest",
    "ModelResponse",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolChoice",
    "ToolSpec",
    "Usage",
]
