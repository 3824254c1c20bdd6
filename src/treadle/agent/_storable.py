"""What models and tools give, checked before it is stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from treadle.errors import MalformedResponseError
from treadle.message._check import content_problem, json_problem, output_problem, status_problem
from treadle.message._msg import as_blocks
from treadle.model import ModelResponse, StopReason, Usage
from treadle.tool import ToolResult
from treadle.tool._result import as_result, error_result

_STOP_REASONS: Final[tuple[Any, ...]] = get_args(StopReason)


def checked_response(response: Any, model: str) -> ModelResponse:
    """The response, its content as blocks; text alone, one block or a list will do, as in a `Msg`.

    Raises:
        MalformedResponseError: It could not be stored and read again, or its stop reason is none that we know.
    """
    if not isinstance(response, ModelResponse):
        raise MalformedResponseError(f"`{model}` must give a `ModelResponse` and gave {response!r:.200}.")
    content: Any = response.content
    if type(content) is not tuple:
        response = dataclasses.replace(response, content=as_blocks(content))
    problem = content_problem(response.content)
    if problem is None and response.stop_reason not in _STOP_REASONS:
        problem = f"`stop_reason` must be one of {_STOP_REASONS}, not {response.stop_reason!r:.200}"
    if problem is None:
        problem = usage_problem(response.usage)
    if problem is None and response.metadata is not None:
        problem = json_problem("metadata", response.metadata)
    if problem is not None:
        raise MalformedResponseError(f"The answer of `{model}` makes no sense: {problem}.")
    return response


def usage_problem(usage: Any) -> str | None:
    """What is wrong with what an answer cost, or None."""
    if not isinstance(usage, Usage):
        return f"`usage` must be a `Usage`, not {usage!r:.200}"
    tokens = type(usage.input_tokens) is type(usage.output_tokens) is type(usage.cached_tokens) is int
    if tokens and type(usage.reasoning_tokens) is type(usage.requests) is int and usage.cost is None:
        return None
    for field in dataclasses.fields(usage):
        value = getattr(usage, field.name)
        if type(value) not in (int, float) and not (value is None and field.name == "cost"):
            return f"`usage.{field.name}` must be a number, not {value!r:.200}"
    return None


def checked_result(result: ToolResult, name: str) -> ToolResult:
    """The result of a call, in a form that can be stored; an error in its place where there is none."""
    if type(result.output) is not str and type(result.output) is not tuple:
        result = as_result(result, name)
    if type(result.output) is str and result.status == "ok" and result.metadata is None:
        return result
    problem = output_problem(result.output) or status_problem(result.status)
    if problem is None and result.metadata is not None:
        given: Any = result.metadata
        metadata = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else given
        problem = json_problem("metadata", metadata)
    if problem is None:
        return result
    return error_result(f"`{name}` gave a result that makes no sense: {problem}. It may have done its work.")
