"""Waking those who wait for mail or for a lease, from any thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from treadle.journal._journal import Lease

Wake: TypeAlias = Callable[[], None]
_log = logging.getLogger(__name__)


def ring(listeners: Iterable[Wake]) -> None:
    """Wake listeners; one that fails (its event loop may be closed) does not stop the others."""
    for wake in listeners:
        try:
            wake()
        except Exception:
            _log.debug("A listener of a journal could not be woken.", exc_info=True)


class Listeners:
    """Who wants to know about which lease."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_thread: dict[str, list[tuple[int, Wake]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_thread)

    def add(self, lease: Lease, wake: Wake) -> Callable[[], None]:
        """Remember a listener; returns how to forget it."""
        entry = (lease.epoch, wake)
        with self._lock:
            self._by_thread.setdefault(lease.thread, []).append(entry)
        return lambda: self._remove(lease.thread, entry)

    def of(self, threads: Iterable[str]) -> list[Wake]:
        """Return the listeners of some threads."""
        with self._lock:
            return [wake for thread in threads for _, wake in self._by_thread.get(thread, ())]

    def of_lease(self, lease: Lease) -> list[Wake]:
        """Return the listeners of one lease."""
        with self._lock:
            return [wake for epoch, wake in self._by_thread.get(lease.thread, ()) if epoch == lease.epoch]

    def _remove(self, thread: str, entry: tuple[int, Wake]) -> None:
        with self._lock:
            entries = self._by_thread.get(thread, [])
            if entry in entries:
                entries.remove(entry)
            if not entries:
                self._by_thread.pop(thread, None)


class Freed:
    """Tells those who wait for a lease in this process that it was given back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    async def wait(self, thread: str, timeout: float) -> None:
        """Wait until the thread's lease is given back here, but no longer than `timeout`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.setdefault(thread, set()).add(future)
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            with self._lock:
                futures = self._waiting.get(thread, set())
                futures.discard(future)
                if not futures:
                    self._waiting.pop(thread, None)

    def tell(self, thread: str) -> None:
        """Wake all who wait for the thread."""
        with self._lock:
            waiting = self._waiting.pop(thread, ())
        for future in waiting:
            with suppress(RuntimeError):  # its event loop is closed
                future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
