"""What the fork and the end of the process mean for open journals.

SQLite's connections must not cross a fork: not even closing one in the child is safe. So all are closed before a fork
and opened again when they are next needed, and a store in the child starts afresh. At the end of the process what is
queued is written, but nothing waits for ever.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Protocol

_EXIT_TIMEOUT = 10.0


class _Worker(Protocol):
    lock: threading.Lock

    def disconnect(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout: float) -> None: ...


class _Store(Protocol):
    def start_afresh(self) -> None: ...


_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()
_stores: weakref.WeakSet[_Store] = weakref.WeakSet()
_paused: list[_Worker] = []


def track(worker: _Worker) -> None:
    """Remember a worker whose thread has started."""
    _workers.add(worker)


def track_store(store: _Store) -> None:
    """Remember a store, to start it afresh in a forked child."""
    _stores.add(store)


def stop(*workers: _Worker) -> None:
    """Stop the workers of a store that nobody uses any more."""
    for worker in workers:
        worker.stop()


def _before_fork() -> None:
    for worker in list(_workers):
        worker.lock.acquire()
        worker.disconnect()
        _paused.append(worker)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().lock.release()


def _after_fork_in_child() -> None:
    _paused.clear()
    _workers.clear()
    for store in list(_stores):
        store.start_afresh()


def _at_exit() -> None:
    workers = list(_workers)
    stop(*workers)
    for worker in workers:
        worker.join(_EXIT_TIMEOUT)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
