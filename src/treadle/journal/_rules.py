"""What every store checks, and the errors it raises, in the same words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from treadle.errors import (
    AgentBusyError,
    ConflictError,
    InputError,
    JournalError,
    LeaseLostError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from treadle.journal._journal import Lease, Snapshot

MAX_NAME = 1_000
KEPT_SNAPSHOTS = 2
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def check_thread(name: str) -> None:
    """Refuse what some database cannot hold as the name of a thread."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"A thread's name must be a string, not {name!r:.200}.")
    if not name:
        raise InputError("A thread's name must not be empty.")
    if len(name) > MAX_NAME:
        raise InputError(f"A thread's name has at most {MAX_NAME:,} characters; {name[:40]!r}... has {len(name):,}.")
    if "\0" in name or not is_unicode(name):
        raise InputError(f"A thread's name must not hold NUL or half a surrogate pair: {name!r:.200}.")


def is_unicode(text: str) -> bool:
    """Say whether the text can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def after_prefix(prefix: str) -> str | None:
    """Return the first name after all that start with `prefix`; None if every later name does."""
    head = prefix.rstrip(chr(_LAST_CHARACTER))
    if not head:
        return None
    following = ord(head[-1]) + 1
    return head[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def check_fork(thread: str, at: int, seq: int) -> None:
    """Refuse to share records that are not there."""
    if not 0 <= at <= seq:
        raise InputError(f"Thread {thread!r} has {seq} records, so it cannot be forked at {at!r}.")


def check_snapshot(lease: Lease, snapshot: Snapshot, seq: int) -> None:
    """Refuse a snapshot of records that are not there."""
    if not 0 <= snapshot.seq <= seq:
        raise InputError(f"Thread {lease.thread!r} has {seq} records; a snapshot cannot be of number {snapshot.seq!r}.")


def check_mail(mail: Mapping[str, Any]) -> None:
    """Refuse mail that would not come back as a dict."""
    if not isinstance(mail, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"Mail must be a mapping that JSON can hold, not {mail!r:.200}.")


def busy(thread: str, owner: str) -> AgentBusyError:
    """Somebody alive drives the thread."""
    return AgentBusyError(f'Thread {thread!r} is driven by {owner!r}; wait for it, or pass `on_busy="wait"`.')


def closed() -> JournalError:
    """The store was closed."""
    return JournalError("This store is closed; make a new one to go on.")


def conflict(thread: str, expected: int, seq: int) -> ConflictError:
    """The thread is not as long as the writer thinks."""
    return ConflictError(f"Thread {thread!r} has {seq} records, not {expected}; read it again before adding to it.")


def exists(thread: str) -> ThreadExistsError:
    """The name is taken."""
    return ThreadExistsError(f"There is a thread {thread!r} already; choose another name or delete it first.")


def lost(lease: Lease) -> LeaseLostError:
    """The lease is not, or no longer, the current one of this store."""
    return LeaseLostError(
        f"{lease.owner!r} does not drive thread {lease.thread!r} any more: its lease, number {lease.epoch}, "
        "was given back or taken over."
    )


def not_found(thread: str) -> ThreadNotFoundError:
    """No such thread."""
    return ThreadNotFoundError(f"There is no thread {thread!r}.")


def covers(snapshot: Snapshot, until: int | None) -> bool:
    """Say whether a snapshot is not after record `until`."""
    return until is None or snapshot.seq <= until


def newest(snapshots: list[Snapshot]) -> list[Snapshot]:
    """Return the snapshots worth keeping, oldest first; a later one replaces an earlier one of the same number."""
    by_seq = {snapshot.seq: snapshot for snapshot in snapshots}
    return [by_seq[seq] for seq in sorted(by_seq)[-KEPT_SNAPSHOTS:]]


def frozen_copy(snapshot: Snapshot) -> Snapshot:
    """Take the mapping over, so that a caller who changes it later does not change what is stored."""
    return dataclasses.replace(snapshot, data=dict(snapshot.data))
