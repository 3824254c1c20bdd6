"""The services that speak OpenAI's chat format, as a table: where they are, and in what they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from treadle.model._base import ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """In what a service differs from OpenAI's own format.

    Args:
        stream_options: Whether it takes `stream_options`; those that do not send usage unasked.
        limit_name: What it calls the token limit; None sends the option under the name that was given.
        tool_choice: Whether it takes a choice other than `auto`.
        id_length: The exact length of call ids, letters and digits only; None takes any.
        thinking_field: Under which name thinking goes back, where the profile says that it does.
        reasoning_details: Whether the opaque `reasoning_details` of an answer go back with it.
    """

    stream_options: bool = True
    limit_name: str | None = None
    tool_choice: bool = True
    id_length: int | None = None
    thinking_field: str = "reasoning_content"
    reasoning_details: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One compatible service. `models` lists what its models can do, by pattern; the first that fits counts."""

    title: str
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    url_suffix: str = ""
    dialect: Dialect = Dialect()
    models: tuple[tuple[str, ModelProfile], ...] = ()

    def profile(self, name: str) -> ModelProfile:
        """What a model of this service can do."""
        return next((profile for pattern, profile in self.models if re.match(pattern, name)), ModelProfile())


def _thinks(window: int | None, *, forced: bool = True, images: bool = False, schema: bool = False) -> ModelProfile:
    """A model that thinks, and wants its thoughts back beside its calls."""
    return ModelProfile(
        thinking=True,
        echoes_thinking=True,
        forced_tool_choice=forced,
        forced_choice_with_thinking=False,
        images=images,
        native_json_schema=schema,
        context_window=window,
    )


def _qwen(window: int | None, *, images: bool = False, video: bool = False) -> ModelProfile:
    return ModelProfile(
        thinking=True, forced_choice_with_thinking=False, images=images, video=video, context_window=window
    )


_SCHEMA = ModelProfile(native_json_schema=True)
_LOOKS = ModelProfile(images=True, native_json_schema=True)
_AZURE = ModelProfile(images=True, files=True, native_json_schema=True)

SERVICES: Final[Mapping[str, Service]] = {
    "azure": Service(
        title="Azure OpenAI",
        key_variables=("AZURE_OPENAI_API_KEY",),
        url_variables=("AZURE_OPENAI_ENDPOINT",),
        url_suffix="/openai/v1",
        dialect=Dialect(limit_name="max_completion_tokens"),
        models=((r"", _AZURE),),
    ),
    "deepseek": Service(
        title="DeepSeek",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        dialect=Dialect(limit_name="max_tokens"),
        models=((r"deepseek-v[4-9]", _thinks(1_000_000)), (r"", _thinks(128_000))),
    ),
    "groq": Service(
        title="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        dialect=Dialect(limit_name="max_completion_tokens", thinking_field="reasoning"),
        models=(
            (r"openai/gpt-oss", ModelProfile(thinking=True, native_json_schema=True, context_window=131_072)),
            (r".*llama-4", ModelProfile(images=True, native_json_schema=True, context_window=131_072)),
            (r"qwen", ModelProfile(thinking=True, context_window=131_072)),
        ),
    ),
    "llama.cpp": Service(
        title="llama.cpp",
        base_url="http://localhost:8080/v1",
        dialect=Dialect(limit_name="max_tokens"),
        models=((r"", _LOOKS),),
    ),
    "mistral": Service(
        title="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        dialect=Dialect(stream_options=False, limit_name="max_tokens", id_length=9),
        models=(
            (r"magistral", ModelProfile(thinking=True, images=True, native_json_schema=True, context_window=128_000)),
            (r"(mistral-(small|medium|large)|pixtral|ministral)", _LOOKS),
            (r"", _SCHEMA),
        ),
    ),
    "moonshot": Service(
        title="Moonshot",
        base_url="https://api.moonshot.ai/v1",
        key_variables=("MOONSHOT_API_KEY", "KIMI_API_KEY"),
        dialect=Dialect(limit_name="max_completion_tokens"),
        models=(
            (r"kimi-k(2\.[5-9]|[3-9])", _thinks(262_144, images=True)),
            (r"kimi-k2-thinking", _thinks(262_144)),
            (r".*vision", ModelProfile(images=True, context_window=131_072)),
            (r"kimi", ModelProfile(context_window=262_144)),
            (r"", ModelProfile(context_window=131_072)),
        ),
    ),
    "openrouter": Service(
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        dialect=Dialect(thinking_field="reasoning", reasoning_details=True),
        models=((r"", ModelProfile(images=True, files=True, forced_choice_with_thinking=False)),),
    ),
    "qwen": Service(
        title="Qwen",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        key_variables=("DASHSCOPE_API_KEY",),
        models=(
            (r"qwen3\.|qwen.*-vl|qvq", _qwen(262_144, images=True, video=True)),
            (r"qwen-(plus|flash|turbo)", _qwen(1_000_000)),
            (r"", _qwen(None)),
        ),
    ),
    "vllm": Service(
        title="vLLM",
        base_url="http://localhost:8000/v1",
        models=((r"", ModelProfile(images=True, audio=True, video=True, native_json_schema=True)),),
    ),
    "zhipu": Service(
        title="Zhipu",
        base_url="https://open.bigmodel.cn/api/paas/v4",
        key_variables=("ZAI_API_KEY", "ZHIPUAI_API_KEY"),
        dialect=Dialect(stream_options=False, limit_name="max_tokens", tool_choice=False),
        models=(
            (r"glm-[\d.]+v", _thinks(128_000, forced=False, images=True)),
            (r"glm-(4\.[5-9]|[5-9])", _thinks(200_000, forced=False)),
            (r"", ModelProfile(forced_tool_choice=False, context_window=128_000)),
        ),
    ),
}
"""By the name in `provider:name`; `openai` itself is a provider of its own."""

OPENAI: Final = Service(
    title="OpenAI",
    base_url="https://api.openai.com/v1",
    key_variables=("OPENAI_API_KEY",),
    dialect=Dialect(limit_name="max_completion_tokens"),
)
