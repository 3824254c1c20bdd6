"""Anthropic's Messages: requests. Blocks are in `_anthropic_blocks`, what comes back in `_anthropic_reader`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.formatter._anthropic_blocks import Wire, given, said
from treadle.formatter._anthropic_reader import AnthropicReader, read_message
from treadle.formatter._base import Formatter, ResponseReader
from treadle.formatter._json import obj, text
from treadle.message import Msg
from treadle.model import ModelProfile, ModelRequest, ModelResponse, ToolChoice, ToolSpec

_MARK: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
_ANSWER_ROOM = 4_096
_THINKING_ROOM = 16_384


class AnthropicFormatter(Formatter):
    """The format of Messages: system text apart, turns of user and assistant by turns, results inside a user turn.

    A conversation that ends with the assistant gets a short user turn after it: current models refuse to go on
    inside their own last message.

    Args:
        max_tokens: The longest answer, where a request's options do not say it. The provider wants one: 16,384 for
            models that think (their thinking counts), else 4,096; a thinking budget comes on top.
        cache: Whether to mark the prompt for caching; where the profile says that the model can, if not given. The
            request option `cache` decides for one request.
    """

    def __init__(self, *, max_tokens: int | None = None, cache: bool | None = None) -> None:
        super().__init__()
        self._max_tokens = max_tokens
        self._cache = cache

    def body(self, request: ModelRequest, *, model: str, profile: ModelProfile, stream: bool) -> Wire:
        """The JSON of a request."""
        options = dict(request.options)
        cache = _wants_cache(options, options.pop("cache", self._cache), profile)
        system, turns = _turns(self.formatted(request.messages, profile))
        out: Wire = {"model": model, "max_tokens": self._limit(options, profile)}
        out |= _tools(request, turns, options, profile)
        if system:
            out["system"] = system
        out["messages"] = turns
        if stream:
            out["stream"] = True
        return {**(_with_marks(out) if cache else out), **options}

    def format_message(self, msg: Msg, profile: ModelProfile) -> tuple[str, list[Wire]]:
        """One message as its role on the wire and its blocks."""
        if msg.role == "assistant":
            return "assistant", said(msg, profile)
        role = "system" if msg.role == "system" else "user"
        return role, given(msg, role, profile)

    def response(self, data: Mapping[str, Any]) -> ModelResponse:
        """The answer in a response that was not streamed."""
        return read_message(data)

    def reader(self) -> ResponseReader:
        """A reader for one streamed response."""
        return AnthropicReader()

    def _limit(self, options: Mapping[str, Any], profile: ModelProfile) -> int:
        budget = obj(options.get("thinking")).get("budget_tokens")
        room = self._max_tokens or (_THINKING_ROOM if profile.thinking else _ANSWER_ROOM)
        return room + budget if isinstance(budget, int) and self._max_tokens is None else room


# Turns


def _turns(pieces: Iterable[tuple[str, list[Wire]]]) -> tuple[list[Wire], list[Wire]]:
    """System blocks, and the turns: one message for each stretch of one role."""
    system: list[Wire] = []
    turns: list[Wire] = []
    for role, content in pieces:
        if role == "system":
            system += content
        elif content and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        elif content:
            turns.append({"role": role, "content": list(content)})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=_after_results)
    return system, _bounded(turns)


def _after_results(part: Wire) -> bool:
    """The provider wants the results of a turn before anything else that is said in it."""
    return part["type"] != "tool_result"


def _bounded(turns: list[Wire]) -> list[Wire]:
    """The turns with a user's at both ends."""
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, _user("(The conversation starts here.)"))
    if not turns or turns[-1]["role"] == "assistant":
        turns.append(_user("Continue."))
    return turns


def _user(words: str) -> Wire:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


# Caching


def _wants_cache(options: Mapping[str, Any], asked: Any, profile: ModelProfile) -> bool:
    if "cache_control" in options:
        return False  # The provider places the marks itself.
    return profile.prompt_caching if asked is None else bool(asked)


def _with_marks(body: Wire) -> Wire:
    """Mark the ends of what stays the same: the tools, the system text, and the conversation so far.

    A mark is no part of what is cached, so moving the last one forward with each request keeps the prefix.
    """
    for key in ("tools", "system"):
        if body.get(key):
            body[key] = _marked(body[key])
    last = body["messages"][-1]
    body["messages"][-1] = {**last, "content": _marked(last["content"])}
    return body


def _marked(parts: list[Wire]) -> list[Wire]:
    # A copy: the blocks are kept for the next request.
    return [*parts[:-1], {**parts[-1], **_MARK}]


# Tools


def _tools(request: ModelRequest, turns: Sequence[Wire], options: Mapping[str, Any], profile: ModelProfile) -> Wire:
    if not request.tools:
        return _old_tools(turns)
    out: Wire = {"tools": [_tool(spec) for spec in request.tools]}
    choice = _choice(request.tool_choice, options, profile)
    if not profile.parallel_calls and choice != {"type": "none"}:
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if choice is not None:
        out["tool_choice"] = choice
    return out


def _old_tools(turns: Sequence[Wire]) -> Wire:
    """Declare the tools of earlier calls where a request offers none: calls to tools unknown may be refused."""
    names = {part["name"]: None for turn in turns for part in turn["content"] if part["type"] == "tool_use"}
    tools = [_tool(ToolSpec(name=name, description="", parameters={})) for name in names]
    return {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}


def _tool(spec: ToolSpec) -> Wire:
    described = {"description": spec.description} if spec.description else {}
    schema = dict(spec.parameters) or {"type": "object", "properties": {}}
    return {"name": spec.name, **described, "input_schema": schema}


def _choice(choice: ToolChoice | None, options: Mapping[str, Any], profile: ModelProfile) -> Wire | None:
    """The choice; a forced one becomes `auto` where the model would refuse it."""
    if choice is None:
        return None
    forced = choice.name is not None or choice.mode == "required"
    if forced and not _may_force(options, profile):
        return {"type": "auto"}
    if choice.name is not None:
        return {"type": "tool", "name": choice.name}
    return {"type": {"auto": "auto", "none": "none", "required": "any"}[choice.mode]}


def _may_force(options: Mapping[str, Any], profile: ModelProfile) -> bool:
    thinks = text(obj(options.get("thinking")).get("type")) not in ("", "disabled")
    return profile.forced_tool_choice and (profile.forced_choice_with_thinking or not thinks)
