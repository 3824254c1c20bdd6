"""What is wrong with a message, asked before it is stored: what passes here can be written, and read again.

Written by hand, because it is asked of every answer of a model. Types that are not exactly ours (a subclass of a block)
are rare, and are checked by writing and reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast, get_args

from treadle.errors import FormatError
from treadle.message._blocks import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    OutputBlock,
    Source,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from treadle.message._codec import dumps, msg_from_json
from treadle.message._msg import Msg, Role

Problem: TypeAlias = "tuple[str, str] | None"
"""The field that is wrong, and what is wrong with it."""

_ROLES: Final = frozenset(get_args(Role))
STATUSES: Final = frozenset(get_args(Status))
_PLAIN: Final[frozenset[Any]] = frozenset({str, bool, float, type(None)})
_LARGE: Final = 1 << 64
_DEPTH: Final = 100
_BLOCKS: Final = get_args(Block)
_OUTPUT_BLOCKS: Final = get_args(OutputBlock)
_SOURCES: Final = get_args(Source)


def problem_of(msg: Any) -> str | None:
    """What keeps a message from being stored and read again, or None."""
    if not isinstance(msg, Msg):
        return f"it must be a `Msg`, not {msg!r:.200}"
    if msg.role.__class__ is not str or msg.role not in _ROLES:
        problem = _choice("role", msg.role, _ROLES)
        if problem is not None:
            return _said(problem)
    if not isinstance(msg.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _said(_wrong("name", "text", msg.name))
    if not isinstance(msg.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _said(_wrong("id", "text", msg.id))
    if type(msg.timestamp) is not float and not _is_number(msg.timestamp):
        return _said(_wrong("timestamp", "a number", msg.timestamp))
    problem = content_problem(msg.content)
    if problem is not None:
        return problem
    if msg.metadata is not None:
        problem = json_problem("metadata", msg.metadata)
    return problem if type(msg) is Msg else problem or _unusual(msg)


def content_problem(content: Any) -> str | None:
    """What is wrong with the blocks of a message, or None."""
    if type(content) is not tuple:
        return _said(_wrong("content", "a tuple of blocks", content))
    for block in cast("tuple[Any, ...]", content):
        problem = _CHECKS.get(block.__class__, _other_block)(block)
        if problem is not None:
            place = next(place for place, one in enumerate(cast("tuple[Any, ...]", content)) if one is block)
            return _said(_inside(f"content[{place}]", problem))
    return None


def output_problem(output: Any) -> str | None:
    """What is wrong with the output of a tool, or None."""
    problem = None if type(output) is str else _output(output)
    return None if problem is None else _said(problem)


def result_problem(block: ToolResultBlock) -> str | None:
    """What is wrong with a result, or None."""
    problem = _tool_result(block) if type(block) is ToolResultBlock else _other_block(block)
    return None if problem is None else _said(problem)


def status_problem(status: Any) -> str | None:
    """What is wrong with the status of a result, or None."""
    problem = _choice("status", status, STATUSES)
    return None if problem is None else _said(problem)


def json_problem(field: str, value: Any) -> str | None:
    """Why a dict of JSON values cannot be stored, or None."""
    problem = _json(field, value)
    return None if problem is None else _said(problem)


def unstorable(value: Any) -> str | None:
    """Why a value cannot be stored as JSON, or None."""
    for _ in range(_DEPTH):
        value = [value]  # whoever reads it may be called from deeper down than we are
    try:
        dumps(value)
    except FormatError as error:
        return str(error.__cause__)
    return None


def _said(problem: tuple[str, str]) -> str:
    return f"`{problem[0]}` {problem[1]}"


def _inside(path: str, problem: tuple[str, str]) -> tuple[str, str]:
    return (f"{path}.{problem[0]}" if problem[0] else path), problem[1]


def _wrong(field: str, wanted: str, value: Any) -> tuple[str, str]:
    return field, f"must be {wanted}, not {value!r:.200}"


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < _LARGE)


def _choice(field: str, value: Any, allowed: frozenset[str]) -> Problem:
    if isinstance(value, str) and value in allowed:
        return None
    return _wrong(field, f"one of {', '.join(repr(one) for one in sorted(allowed))}", value)


def _json(field: str, value: Any) -> Problem:
    """A dict of JSON values; one that is made of plain values, as most are, is not written for this."""
    if type(value) is dict:
        if _is_plain(cast("dict[Any, Any]", value), _DEPTH):
            return None
    elif not isinstance(value, Mapping):
        return _wrong(field, "a dict", value)
    why = unstorable(value)
    return None if why is None else (field, f"cannot be stored as JSON: {why}")


def _is_plain(value: dict[Any, Any], depth: int) -> bool:
    for key, item in value.items():
        if type(key) is not str:
            return False
        if type(item) is str or (type(item) is int and -_LARGE < item < _LARGE) or type(item) in _PLAIN:
            continue
        if not (depth and _is_plain_inside(item, depth - 1)):
            return False
    return True


def _is_plain_inside(item: Any, depth: int) -> bool:
    if type(item) is dict:
        return _is_plain(cast("dict[Any, Any]", item), depth)
    items = cast("list[Any]", item)
    return type(item) is list and _is_plain({str(place): one for place, one in enumerate(items)}, depth)


def _text(block: TextBlock) -> Problem:
    if not isinstance(block.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("text", "text", block.text)
    if block.type != "text":
        return _wrong("type", "'text'", block.type)
    return None if block.extra is None else _json("extra", block.extra)


def _thinking(block: ThinkingBlock) -> Problem:
    if not isinstance(block.thinking, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("thinking", "text", block.thinking)
    if block.type != "thinking":
        return _wrong("type", "'thinking'", block.type)
    return None if block.extra is None else _json("extra", block.extra)


def _media(kind: str) -> Callable[[Any], Problem]:
    def check(block: Any) -> Problem:
        problem = _source(block.source)
        if problem is not None:
            return _inside("source", problem)
        if block.type != kind:
            return _wrong("type", repr(kind), block.type)
        return None if block.extra is None else _json("extra", block.extra)

    return check


_file_like = _media("file")


def _file(block: FileBlock) -> Problem:
    if block.name is not None and not isinstance(block.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("name", "text", block.name)
    return _file_like(block)


def _source(source: Any) -> Problem:
    kind = source.__class__
    if kind not in _SOURCES:
        if isinstance(source, _SOURCES):
            return _other_block(ImageBlock(source=cast("Source", source)))
        return _wrong("", "a `URLSource`, `Base64Source` or `PathSource`", source)
    field = "url" if kind is URLSource else "data" if kind is Base64Source else "path"
    if not isinstance(getattr(source, field), str):
        return _wrong(field, "text", getattr(source, field))
    if not isinstance(source.media_type, str) and (kind is Base64Source or source.media_type is not None):
        return _wrong("media_type", "text", source.media_type)
    wanted = "url" if kind is URLSource else "base64" if kind is Base64Source else "path"
    return None if source.type == wanted else _wrong("type", repr(wanted), source.type)


def _tool_use(block: ToolUseBlock) -> Problem:
    if not isinstance(block.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("id", "text", block.id)
    if not isinstance(block.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("name", "text", block.name)
    if block.raw is not None and not isinstance(block.raw, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("raw", "text", block.raw)
    if block.type != "tool_use":
        return _wrong("type", "'tool_use'", block.type)
    given: Any = block.input
    if given.__class__ is not dict or not _is_plain(given, _DEPTH):
        problem = _json("input", given)
        if problem is not None:
            return problem
    return None if block.extra is None else _json("extra", block.extra)


def _tool_result(block: ToolResultBlock) -> Problem:
    if not isinstance(block.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("id", "text", block.id)
    if not isinstance(block.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _wrong("name", "text", block.name)
    if block.type != "tool_result":
        return _wrong("type", "'tool_result'", block.type)
    problem = _output(block.output) or _choice("status", block.status, STATUSES)
    return problem if problem is not None or block.metadata is None else _json("metadata", block.metadata)


def _output(output: Any) -> Problem:
    if isinstance(output, str):
        return None
    if type(output) is not tuple:
        return _wrong("output", "text or a tuple of blocks", output)
    for place, block in enumerate(cast("tuple[Any, ...]", output)):
        if not isinstance(block, _OUTPUT_BLOCKS):
            return _wrong(f"output[{place}]", "a block of text or media", block)
        problem = _CHECKS.get(block.__class__, _other_block)(block)
        if problem is not None:
            return _inside(f"output[{place}]", problem)
    return None


_CHECKS: Final[Mapping[type, Callable[[Any], Problem]]] = {
    TextBlock: _text,
    ThinkingBlock: _thinking,
    ImageBlock: _media("image"),
    AudioBlock: _media("audio"),
    VideoBlock: _media("video"),
    FileBlock: _file,
    ToolUseBlock: _tool_use,
    ToolResultBlock: _tool_result,
}


def _other_block(block: Any) -> Problem:
    if not isinstance(block, _BLOCKS):
        return _wrong("", "a block, such as a `TextBlock`", block)
    why = _unusual({"role": "user", "content": [block]})
    return None if why is None else ("", why)


def _unusual(msg: Any) -> str | None:
    """What is wrong with a message, found out the slow way."""
    try:
        msg_from_json(dumps(msg))
    except FormatError as error:
        return f"cannot be stored and read again: {error!s:.300}"
    return None
