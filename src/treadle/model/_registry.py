"""Models by name: `provider:name`."""

from __future__ import annotations

import difflib
import importlib
from functools import partial
from typing import Any

from treadle.errors import InputError
from treadle.model._base import ChatModel

PROVIDERS: dict[str, tuple[str, str]] = {
    "anthropic": ("treadle.model._anthropic", "AnthropicModel"),
    "dashscope": ("treadle.model._dashscope", "DashScopeModel"),
    "gemini": ("treadle.model._gemini", "GeminiModel"),
    "ollama": ("treadle.model._ollama", "OllamaModel"),
    "openai": ("treadle.model._openai", "OpenAIChatModel"),
    "openai-responses": ("treadle.model._responses", "OpenAIResponsesModel"),
}
"""Where each provider's class is; it is imported when it is asked for."""


def resolve_model(model: ChatModel | str, **options: Any) -> ChatModel:
    """Return a model: as it is, or by its name `provider:name`."""
    if isinstance(model, ChatModel):
        return model
    if not isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"`model` must be a `ChatModel` or a name such as 'openai:gpt-5-mini', not {model!r}.")
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise InputError(f"`model={model!r}` is not of the form 'provider:name'; for example 'openai:{model}'.")
    return find_class(provider)(name, **options)


def find_class(provider: str) -> Any:
    """The class of a provider, or a function that makes models of a compatible service."""
    if provider in PROVIDERS:
        module, name = PROVIDERS[provider]
        return getattr(importlib.import_module(module), name)
    from treadle.model._openai import openai_compatible
    from treadle.model._profiles import SERVICES

    if provider in SERVICES:
        return partial(openai_compatible, provider)
    known = sorted([*PROVIDERS, *SERVICES])
    close = difflib.get_close_matches(provider, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InputError(f"There is no provider {provider!r}.{hint} There are: {', '.join(known)}.")
