"""Every provider's formatter for conversations of several named speakers."""

from __future__ import annotations

from treadle.formatter._anthropic import AnthropicFormatter
from treadle.formatter._dashscope import DashScopeFormatter
from treadle.formatter._gemini import GeminiFormatter
from treadle.formatter._ollama import OllamaFormatter
from treadle.formatter._openai import OpenAIFormatter
from treadle.formatter._responses import OpenAIResponsesFormatter
from treadle.formatter._speakers import MultiAgentFormatter


class AnthropicMultiAgentFormatter(MultiAgentFormatter, AnthropicFormatter):
    """Several speakers, for Anthropic's Messages."""


class DashScopeMultiAgentFormatter(MultiAgentFormatter, DashScopeFormatter):
    """Several speakers, for DashScope."""


class GeminiMultiAgentFormatter(MultiAgentFormatter, GeminiFormatter):
    """Several speakers, for Gemini."""


class OllamaMultiAgentFormatter(MultiAgentFormatter, OllamaFormatter):
    """Several speakers, for Ollama."""


class OpenAIMultiAgentFormatter(MultiAgentFormatter, OpenAIFormatter):
    """Several speakers, for OpenAI's Chat Completions and what is compatible with it."""


class OpenAIResponsesMultiAgentFormatter(MultiAgentFormatter, OpenAIResponsesFormatter):
    """Several speakers, for OpenAI's Responses."""
