"""Which process holds a lease, and whether it is provably dead.

A process is known by the boot of its machine, its pid namespace, its pid and its start time. Only a process that shares
the first two with us can be looked up; of any other nothing is known, and its lease runs out by time.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache

_DEAD_STATES = ("Z", "X", "x")
_ENDED = "ended"


def this_process() -> str:
    """Return the identity of this process."""
    return _identity(os.getpid())


def is_dead(identity: str) -> bool:
    """Say whether the process is certainly gone."""
    place, _, process = identity.partition("#")
    pid, _, started = process.partition("#")
    if place != _place() or not pid.isdecimal():
        return False
    if not _is_running(int(pid)):
        return True
    found = _start_time(int(pid))
    return found is not None and found != started


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    return f"{_place()}#{pid}#{_start_time(pid) or ''}"


@lru_cache(maxsize=1)
def _place() -> str:
    """The machine since its last boot, and the pid namespace: where a pid means the same process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}|{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{platform.node()}|"


def _start_time(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None if that cannot be seen here."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The command's name, in brackets, may itself hold blanks and brackets.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return _ENDED if fields[0] in _DEAD_STATES else fields[19]


def _is_running(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # os.kill would end the process there; the lease runs out instead
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
