"""`SQLiteStore`: threads in one file, shared by any number of processes of one machine."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from treadle.errors import AgentBusyError, InputError, JournalError
from treadle.journal import _rules as rules
from treadle.journal import _sqlite_reads as reads
from treadle.journal import _sqlite_writes as writes
from treadle.journal._bells import ring
from treadle.journal._journal import Lease, Note, Snapshot, ThreadInfo
from treadle.journal._record import Record, encode
from treadle.journal._sqlite_file import Settings
from treadle.journal._sqlite_job import Job
from treadle.journal._sqlite_process import stop, track_store
from treadle.journal._sqlite_worker import Reader
from treadle.journal._sqlite_writer import Writer
from treadle.message._codec import dumps

_FIRST_WAIT = 0.01


class SQLiteStore:
    """Keeps threads in a SQLite file. The file is opened when it is first needed; a closed store stays closed.

    Args:
        path: The file; its folder must exist.
        durability: `"process"` survives the death of the process, `"power"` also the loss of power, for one disk flush
            per commit.
        lease_ttl: After how many seconds the lease of a process that shows no sign of life may be taken over. A process
            of this machine that is dead is found out at once.
        busy_timeout: How many seconds to wait for another process that is writing.
        poll: How often, in seconds, a running thread looks for mail from other processes.

    Example:
        >>> import asyncio, tempfile
        >>> from treadle.journal import EndedRecord, SQLiteStore
        >>> async def main(folder: str) -> int:
        ...     store = SQLiteStore(f"{folder}/runs.db")
        ...     lease = await store.acquire("chat", owner="run-1")
        ...     await store.append(lease, 0, [EndedRecord(reason="done")])
        ...     found = await store.read("chat")
        ...     await store.close()
        ...     return len(found)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(main(folder))
        1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["process", "power"] = "process",
        lease_ttl: float = 10.0,
        busy_timeout: float = 5.0,
        poll: float = 0.2,
    ) -> None:
        name = os.fspath(path)
        if not name or name == ":memory:":
            raise InputError(f"{name!r} is not a file; use `MemoryStore()` to keep threads in memory.")
        if durability not in ("process", "power"):
            raise InputError(f"`durability` must be 'process' or 'power', not {durability!r}.")
        if lease_ttl <= 0 or poll <= 0 or busy_timeout < 0:
            raise InputError("`lease_ttl` and `poll` must be positive, `busy_timeout` must not be negative.")
        self._settings = Settings(
            path=os.path.abspath(name), durability=durability, lease_ttl=lease_ttl, busy_timeout=busy_timeout, poll=poll
        )
        self.start_afresh()
        track_store(self)

    def __repr__(self) -> str:
        return f"SQLiteStore({self._settings.path!r})"

    def start_afresh(self) -> None:
        """Forget connections, threads and leases without touching them, as a forked child must."""
        self._writer = Writer(self._settings)
        self._reader = Reader(self._settings)
        self._leases = self._writer.leases
        weakref.finalize(self, stop, self._reader, self._writer)

    async def acquire(self, thread: str, *, owner: str, wait: bool = False) -> Lease:
        """Take the right to write; see `Journal.acquire`."""
        rules.check_thread(thread)
        pause = _FIRST_WAIT
        while True:
            try:
                return await self._acquire(thread, owner)
            except AgentBusyError:
                if not wait:
                    raise
            await self._leases.freed.wait(thread, pause)
            pause = min(pause * 1.5, self._settings.poll)

    async def release(self, lease: Lease) -> None:
        """Give the right back. A closed store has given all back, so there is nothing to do."""
        if not self._writer.stopped:
            await self._writer.do(_release(self._writer, lease))

    async def append(self, lease: Lease, expected: int, records: Sequence[Record]) -> None:
        """Add records after number `expected`; see `Journal.append`."""
        bodies = [_storable(encode(record)) for record in records]
        size = sum(map(len, bodies))
        await self._writer.do(Job(partial(self._leases.append, lease, expected, bodies), size=size))

    async def read(self, thread: str, *, after: int = 0, until: int | None = None) -> list[Record]:
        """Return the records `after` < number <= `until`."""
        rules.check_thread(thread)
        return await self._reader.ask(Job(partial(reads.read, name=thread, after=after, until=until)))

    async def save_snapshot(self, lease: Lease, snapshot: Snapshot) -> None:
        """Keep a snapshot, and the one before it."""
        data = _storable(dumps(snapshot.data))
        await self._writer.do(Job(partial(self._leases.save_snapshot, lease, snapshot, data), size=len(data)))

    async def load_snapshot(self, thread: str, *, until: int | None = None) -> Snapshot | None:
        """Return the newest snapshot that is not after record `until`."""
        rules.check_thread(thread)
        return await self._reader.ask(Job(partial(reads.load_snapshot, name=thread, until=until)))

    async def fork(self, thread: str, at: int, new: str) -> None:
        """Make a thread that shares the first `at` records."""
        rules.check_thread(thread)
        rules.check_thread(new)
        await self._writer.ask(Job(partial(writes.fork, name=thread, at=at, new=new)))

    async def threads(self, *, prefix: str = "") -> list[ThreadInfo]:
        """List threads whose name starts with `prefix`, by name."""
        return await self._reader.ask(Job(partial(reads.threads, prefix=prefix)))

    async def delete(self, thread: str) -> None:
        """Remove a thread and the ones below it."""
        rules.check_thread(thread)
        await self._writer.ask(Job(partial(writes.delete, name=thread)))

    async def post(self, thread: str, mail: Mapping[str, Any]) -> None:
        """Leave a note for whoever drives the thread."""
        rules.check_thread(thread)
        rules.check_mail(mail)
        body = _storable(dumps(dict(mail)))
        listeners = self._leases.listeners
        run = partial(writes.post, name=thread, body=body)
        await self._writer.do(Job(run, after=lambda _: ring(listeners.of((thread,))), size=len(body)))

    async def mail(self, lease: Lease) -> list[Note]:
        """Return the notes that wait, oldest first."""
        return await self._writer.do(Job(partial(self._leases.mail, lease)))

    async def discard(self, lease: Lease, upto: int) -> None:
        """Remove the notes up to number `upto`."""
        await self._writer.do(Job(partial(self._leases.discard, lease, upto)))

    def listen(self, lease: Lease, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` soon after a note arrives or the lease is lost; returns how to stop that."""
        stop_listening = self._leases.listeners.add(lease, wake)
        news = Job(partial(self._leases.has_news, lease), after=lambda found: ring((wake,) if found else ()))
        try:
            self._writer.start(news)
        except BaseException:
            stop_listening()
            raise
        return stop_listening

    async def close(self) -> None:
        """Write what is queued, give all leases back and close the file."""
        await self._reader.close()
        await self._writer.close()

    async def _acquire(self, thread: str, owner: str) -> Lease:
        run = partial(self._leases.acquire, thread, owner)
        job = Job(run, after=self._leases.acquired, undo=partial(_give_back, self._writer))
        granted: writes.Granted = await self._writer.do(job)
        return granted.lease


def _release(writer: Writer, lease: Lease) -> Job:
    return Job(partial(writer.leases.release, lease), after=lambda _: writer.leases.released(lease))


def _give_back(writer: Writer, granted: writes.Granted) -> None:
    """Release a lease that was granted to somebody who does not wait for it any more."""
    with suppress(JournalError):
        writer.start(_release(writer, granted.lease))


def _storable(text: str) -> str:
    """Write half surrogate pairs, which UTF-8 cannot hold, as JSON escapes; outside strings JSON has none."""
    return text if rules.is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()
