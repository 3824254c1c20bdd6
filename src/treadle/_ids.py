"""Names for messages, calls, runs and threads: unique across processes, cheap to make."""

from __future__ import annotations

import itertools
import os
import secrets

_prefix = secrets.token_hex(5)
_next = itertools.count(1).__next__


def _after_fork() -> None:
    global _prefix
    _prefix = secrets.token_hex(5)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def new_id(kind: str) -> str:
    """Return an id such as `msg_5f3a9c01d2-1`: a random part per process and a counter."""
    return f"{kind}_{_prefix}-{_next():x}"
