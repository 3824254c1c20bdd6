"""Threads and where they are kept: records, the `Journal` protocol and its stores."""

from typing import TYPE_CHECKING, Any

from treadle.journal._journal import Journal, Lease, Note, Snapshot, ThreadInfo
from treadle.journal._memory import MemoryStore
from treadle.journal._open import open_store
from treadle.journal._record import (
    EndedRecord,
    FinishedRecord,
    InputRecord,
    LateRecord,
    PausedRecord,
    Record,
    ResumedRecord,
    RoutedRecord,
    SettledRecord,
    StartedRecord,
    UpdateRecord,
    decode,
    encode,
)

if TYPE_CHECKING:
    from treadle.journal._sqlite import SQLiteStore

__all__ = [
    "EndedRecord",
    "FinishedRecord",
    "InputRecord",
    "Journal",
    "LateRecord",
    "Lease",
    "MemoryStore",
    "Note",
    "PausedRecord",
    "Record",
    "ResumedRecord",
    "RoutedRecord",
    "SQLiteStore",
    "SettledRecord",
    "Snapshot",
    "StartedRecord",
    "ThreadInfo",
    "UpdateRecord",
    "decode",
    "encode",
    "open_store",
]


def __getattr__(name: str) -> Any:
    """Load the database driver only for those who use it."""
    if name == "SQLiteStore":
        from treadle.journal._sqlite import SQLiteStore

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
