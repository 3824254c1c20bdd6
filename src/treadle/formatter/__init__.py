"""Formatters: messages to a provider's JSON and back. Pure functions of their input."""

from treadle.formatter._anthropic import AnthropicFormatter
from treadle.formatter._base import Formatter, ResponseReader
from treadle.formatter._dashscope import DashScopeFormatter
from treadle.formatter._gemini import GeminiFormatter
from treadle.formatter._multi import (
    AnthropicMultiAgentFormatter,
    DashScopeMultiAgentFormatter,
    GeminiMultiAgentFormatter,
    OllamaMultiAgentFormatter,
    OpenAIMultiAgentFormatter,
    OpenAIResponsesMultiAgentFormatter,
)
from treadle.formatter._ollama import OllamaFormatter
from treadle.formatter._openai import OpenAIFormatter
from treadle.formatter._responses import OpenAIResponsesFormatter
from treadle.formatter._speakers import MultiAgentFormatter

__all__ = [
    "AnthropicFormatter",
    "AnthropicMultiAgentFormatter",
    "DashScopeFormatter",
    "DashScopeMultiAgentFormatter",
    "Formatter",
    "GeminiFormatter",
    "GeminiMultiAgentFormatter",
    "MultiAgentFormatter",
    "OllamaFormatter",
    "OllamaMultiAgentFormatter",
    "OpenAIFormatter",
    "OpenAIMultiAgentFormatter",
    "OpenAIResponsesFormatter",
    "OpenAIResponsesMultiAgentFormatter",
    "ResponseReader",
]
