"""The records that a thread's journal is made of.

A record is a durable fact. `values` and `result` hold JSON values or Treadle's own frozen messages and blocks, nothing
else; a store that writes bytes uses `encode` and `decode`, one that stays in memory keeps the objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from treadle.errors import FormatError
from treadle.message._codec import dumps, to_jsonable
from treadle.message._msg import now

FORMAT = 1
Values: TypeAlias = Mapping[str, Any]
Target: TypeAlias = "str | Mapping[str, Any]"
"""Where a run goes: a node's name; `{"node", "arg"}` for a `Send`; `{"wait", "have"}` for a join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """Something came from outside: it updates the state and says which nodes run next (None: as it was)."""

    kind: ClassVar[str] = "input"
    run: str
    values: Values = field(default_factory=dict[str, Any])
    next: Sequence[Target] | None = ()
    turn: bool = True
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord:
    """A node finished. `calls` names call records whose results belong to the update, so that they are stored once.

    `next` is there once the last node of the step has finished; `goto` is where this node alone wants to go, kept while
    its neighbours still run; `reason` is there when the node decided how the run ends.
    """

    kind: ClassVar[str] = "update"
    node: str
    values: Values | None = None
    calls: Sequence[str] | None = None
    task: int = 0
    next: Sequence[Target] | None = None
    goto: Sequence[Target] | None = None
    reason: str | None = None
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRecord:
    """The edges of a finished step were followed."""

    kind: ClassVar[str] = "routed"
    next: Sequence[Target]
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRecord:
    """A call is about to run. `input` is there only if it is not what the model said."""

    kind: ClassVar[str] = "started"
    call: str
    input: Values | None = None
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRecord:
    """A call ran, and this is its result as the tool gave it. It never runs again."""

    kind: ClassVar[str] = "finished"
    call: str
    result: Any
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRecord:
    """A call's result is final. `result`: only if it is not the finished one; `stop`: a hook ends the run here."""

    kind: ClassVar[str] = "settled"
    call: str
    result: Any = None
    stop: bool = False
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedRecord:
    """The run waits for the outside; `wishes` says for what, each with its id."""

    kind: ClassVar[str] = "paused"
    wishes: Sequence[Values]
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedRecord:
    """Answers came, by wish id; an empty one continues a run that a crash or an interrupt cut short."""

    kind: ClassVar[str] = "resumed"
    run: str
    answers: Values = field(default_factory=dict[str, Any])
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRecord:
    """The run is over. `values` closes what was open; `open` keeps the unfinished nodes for a later resume."""

    kind: ClassVar[str] = "ended"
    reason: str
    values: Values | None = None
    error: str | None = None
    open: bool = False
    at: float = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecord:
    """A call that had been given up finished after all."""

    kind: ClassVar[str] = "late"
    call: str
    result: Any
    at: float = field(default_factory=now)


Record: TypeAlias = (
    InputRecord
    | UpdateRecord
    | RoutedRecord
    | StartedRecord
    | FinishedRecord
    | SettledRecord
    | PausedRecord
    | ResumedRecord
    | EndedRecord
    | LateRecord
)
_KINDS: dict[str, type[Record]] = {
    cls.kind: cls
    for cls in (
        InputRecord,
        UpdateRecord,
        RoutedRecord,
        StartedRecord,
        FinishedRecord,
        SettledRecord,
        PausedRecord,
        ResumedRecord,
        EndedRecord,
        LateRecord,
    )
}
_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Format n to format n + 1, applied in turn to records that an older version wrote."""


def encode(record: Record) -> str:
    """Write a record as one line of JSON."""
    return dumps({"v": FORMAT, "kind": record.kind, **to_jsonable(record)})


def decode(text: str | bytes) -> Record:
    """Read a record of this or any older format."""
    try:
        data = json.loads(text)
        version, kind = data.pop("v"), data.pop("kind")
        hash((version, kind))  # a list or an object, which no lookup takes, is a TypeError
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise FormatError(f"This is not a Treadle record: {text[:200]!r}") from error
    while version in _UPGRADES:
        data, version = _UPGRADES[version](data), version + 1
    if version != FORMAT or kind not in _KINDS:
        raise FormatError(f"Record of kind {kind!r} in format {version!r}: a newer Treadle wrote it, please upgrade.")
    try:
        return _KINDS[kind](**data)
    except TypeError as error:
        raise FormatError(f"A {kind!r} record is damaged: {error}") from error
