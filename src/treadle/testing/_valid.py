"""What makes a history valid."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.message import Msg


def history_problems(messages: Iterable[Msg], *, open_calls: bool = False) -> list[str]:
    """Everything that a provider would refuse about a history; `open_calls` allows open calls at its end."""
    problems: list[str] = []
    waiting: dict[str, str] = {}
    seen: set[str] = set()
    for place, msg in enumerate(messages):
        if msg.role == "tool":
            problems += _result_problems(place, msg, waiting)
            continue
        if waiting:
            problems.append(f"message {place} ({msg.role}) stands between calls {sorted(waiting)} and their results")
        for call in msg.tool_calls:
            if call.id in seen or not call.id:
                problems.append(f"message {place} has a call with a missing or repeated id {call.id!r}")
            seen.add(call.id)
            waiting[call.id] = call.name
        if msg.tool_calls and msg.role != "assistant":
            problems.append(f"message {place} ({msg.role}) makes calls")
    if waiting and not open_calls:
        problems.append(f"calls {sorted(waiting)} have no result")
    return problems


def _result_problems(place: int, msg: Msg, waiting: dict[str, str]) -> list[str]:
    problems: list[str] = []
    if not msg.tool_results:
        problems.append(f"message {place} (tool) has no result in it")
    for result in msg.tool_results:
        if result.id not in waiting:
            problems.append(f"message {place} has a result for {result.id!r}, which is no open call")
        elif waiting[result.id] != result.name:
            problems.append(f"message {place} names {result.name!r} for a call of {waiting[result.id]!r}")
        waiting.pop(result.id, None)
    return problems


def assert_valid_history(messages: Iterable[Msg], *, open_calls: bool = False) -> None:
    """Fail unless every call in a history has exactly one result, right after the message that made it."""
    problems = history_problems(list(messages), open_calls=open_calls)
    assert not problems, "The history is not valid:\n" + "\n".join(f"- {problem}" for problem in problems)
