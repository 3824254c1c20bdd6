"""What models can do, as tables: the loop and the formatters ask here and never test names themselves."""

from __future__ import annotations

import re
from dataclasses import replace

from treadle.model._base import ModelProfile
from treadle.model._services import SERVICES

__all__ = ["SERVICES", "profile_of"]

_PLAIN = ModelProfile()
_SEES = ModelProfile(images=True, files=True)


def _claude(window: int, *, thinking: bool = True, forced_tool_choice: bool = True) -> ModelProfile:
    return ModelProfile(
        forced_tool_choice=forced_tool_choice,
        forced_choice_with_thinking=False,
        images=True,
        files=True,
        thinking=thinking,
        prompt_caching=True,
        context_window=window,
    )


_QWEN_CHOOSES = ModelProfile(thinking=True, forced_choice_with_thinking=False)
_QWEN_THINKS = replace(_QWEN_CHOOSES, forced_tool_choice=False)
_QWEN_SEES = replace(_QWEN_CHOOSES, images=True, video=True, context_window=262_144)
_OLLAMA = ModelProfile(forced_tool_choice=False, forced_choice_with_thinking=False, native_json_schema=True)
_OLLAMA_THINKS = replace(_OLLAMA, thinking=True, echoes_thinking=True)
_OLLAMA_LOOKS = replace(_OLLAMA, tools=False, images=True)


def _gemini(*, thinking: bool = True, native_json_schema: bool = False, signs_calls: bool = False) -> ModelProfile:
    return ModelProfile(
        native_json_schema=native_json_schema,
        images=True,
        audio=True,
        video=True,
        files=True,
        thinking=thinking,
        signs_calls=signs_calls,
        context_window=1_048_576,
    )


def _responses(window: int, *, thinking: bool = True) -> ModelProfile:
    return ModelProfile(
        native_json_schema=True,
        images=True,
        files=True,
        thinking=thinking,
        context_window=window,
    )


_PROFILES: dict[str, tuple[tuple[str, ModelProfile], ...]] = {
    "anthropic": (
        # These think unless told otherwise, or always; forcing a call is refused then.
        (r"(.*[./])?claude-(fable|mythos|(opus|sonnet|haiku)-5)", _claude(1_000_000, forced_tool_choice=False)),
        (r"(.*[./])?claude-(opus|sonnet)-4[-.][678]", _claude(1_000_000)),
        (r"(.*[./])?claude-(3-5|3-opus|3-sonnet|3-haiku)", _claude(200_000, thinking=False)),
        (r"(.*[./])?claude", _claude(200_000)),
    ),
    "gemini": (
        (r"gemma", ModelProfile(tools=False, images=True, context_window=131_072)),
        (r"gemini-(1|2\.0)", _gemini(thinking=False)),
        (r"gemini-2|gemini-robotics", _gemini()),
        # From the third generation on, a schema for the answer goes together with tools, and calls are signed.
        (r"gemini", _gemini(native_json_schema=True, signs_calls=True)),
    ),
    "openai": (
        (r"gpt-4o.*audio|gpt-audio", ModelProfile(audio=True, context_window=128_000)),
        (r"gpt-5|gpt-4\.1", ModelProfile(images=True, files=True, native_json_schema=True, context_window=400_000)),
        (r"gpt-4o", ModelProfile(images=True, files=True, native_json_schema=True, context_window=128_000)),
        (r"o[134]", ModelProfile(images=True, files=True, native_json_schema=True, context_window=200_000)),
    ),
    "dashscope": (
        (r"qwen3\.\d+-max", _QWEN_THINKS),
        (r"qwen3\.\d+-omni|qwen.*-omni", replace(_QWEN_SEES, audio=True, context_window=65_536)),
        (r"qwen3\.\d+", replace(_QWEN_SEES, forced_tool_choice=False, context_window=1_000_000)),
        (r"qvq|qwen.*-vl-.*thinking", replace(_QWEN_SEES, forced_tool_choice=False)),
        (r"qwen3-vl", _QWEN_SEES),
        (r"qwen.*-(vl|ocr)", ModelProfile(tools=False, images=True, video=True, context_window=131_072)),
        (r"qwen.*-audio", ModelProfile(tools=False, audio=True, context_window=8_192)),
        (r"kimi-k2\.\d+", replace(_QWEN_SEES, forced_tool_choice=False, echoes_thinking=True)),
        (r"qwq|.*thinking|deepseek-r1|qwen3-(?!max|coder|.*instruct)", _QWEN_THINKS),
        (r"deepseek-v(3\.[1-9]|[4-9])|glm-|minimax", replace(_QWEN_THINKS, echoes_thinking=True)),
        (r"qwen-long", ModelProfile(tools=False, context_window=10_000_000)),
        (r"qwen-(plus|flash|turbo)", replace(_QWEN_CHOOSES, context_window=1_000_000)),
        (r"qwen3-max", replace(_QWEN_CHOOSES, context_window=262_144)),
    ),
    "ollama": (
        (r"qwen3-vl|qwen3\.\d|gemma4|kimi-k2\.", replace(_OLLAMA_THINKS, images=True)),
        (r"qwen3|gpt-oss|deepseek-(r1|v)|magistral|glm-|kimi-k2|minimax|nemotron-3", _OLLAMA_THINKS),
        (r"llama4|mistral-small3\.[1-9]|ministral-3|mistral-large-3|qwen2\.5vl", replace(_OLLAMA, images=True)),
        (r"gemma3|llava|bakllava|moondream|minicpm-v|llama3\.2-vision|granite3\.2-vision", _OLLAMA_LOOKS),
        (r"gemma|phi3|llama2|codellama|tinyllama|vicuna|orca", replace(_OLLAMA, tools=False)),
        (r"", _OLLAMA),
    ),
    "openai-responses": (
        (r"gpt-5(\.\d)?-chat|gpt-4o", _responses(128_000, thinking=False)),
        (r"gpt-4\.1", _responses(1_047_576, thinking=False)),
        (r"gpt-5\.[4-9]", _responses(1_050_000)),
        (r"gpt-5|codex", _responses(400_000)),
        (r"o\d", _responses(200_000)),
        (r"", _SEES),
    ),
}


def profile_of(provider: str, name: str) -> ModelProfile:
    """The first entry of the provider's table whose pattern fits the model's name."""
    for pattern, profile in _PROFILES.get(provider, ()):
        if re.match(pattern, name):
            return profile
    return _SEES if provider == "openai" else _PLAIN
