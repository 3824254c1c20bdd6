"""All that writes to a journal's file for one store: transactions, the heartbeat of leases, and the watch for mail.

Handing work to another thread and back costs several times what a small commit costs that need not reach the disk. So
a small job is done at once, in the thread that asks, if nothing is queued and no other process is writing. Everything
that may wait (for the disk, for a lock, for a large write) is done by the writer's thread, all that is queued in one
transaction. Either way the connection is used under `lock`.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import suppress
from typing import Any

from treadle.errors import JournalError, TreadleError
from treadle.journal import _sqlite_writes as writes
from treadle.journal._bells import ring
from treadle.journal._sqlite_errors import concerns_the_file, is_busy
from treadle.journal._sqlite_file import Settings
from treadle.journal._sqlite_job import Job
from treadle.journal._sqlite_leases import Leases
from treadle.journal._sqlite_worker import Worker

_log = logging.getLogger(__name__)
_SMALL = 64 * 1024
_PAGE = 4096
_CHECKPOINT = 1000 * _PAGE
_RETRY = 0.002
_LONGEST_RETRY = 0.05


class Writer(Worker):
    """Writes, for all event loops of the process."""

    name = "writer"
    most = 10_000

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.leases = Leases(settings.lease_ttl)
        self._next_beat: float | None = None
        self._next_poll: float | None = None
        self._seen: int | None = None
        self._logged = 0

    async def do(self, job: Job) -> Any:
        """Do a job and wait for its outcome. Cancelling takes effect after it, so that it is never in doubt."""
        if not self._do_now(job):
            job.expect()
            self.submit(job)
            return await job.certain_outcome()
        if job.error is not None:
            raise job.error
        return job.result

    def start(self, job: Job) -> None:
        """Do a job whose outcome nobody waits for."""
        if not self._do_now(job):
            self.submit(job)

    def work(self, jobs: list[Job]) -> None:
        if self._is_due(self._next_beat):
            jobs.insert(0, Job(self.leases.beat, after=self.leases.lose))
        if jobs:
            self._transact(jobs)
        if self._is_due(self._next_poll):
            self._poll()
        if self._logged > _CHECKPOINT:
            self._checkpoint()
        self._set_alarms()

    def idle(self) -> float | None:
        alarms = [alarm for alarm in (self._next_beat, self._next_poll) if alarm is not None]
        return max(min(alarms) - time.monotonic(), 0.0) if alarms else None

    def connection(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = super().connection()
            # SQLite must not wait, nor move its log into the file, in a thread that runs an event loop.
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            self._seen = None
        return super().connection()

    def finish(self) -> None:
        if self.leases:
            self._transact([Job(self.leases.release_all)])

    def _do_now(self, job: Job) -> bool:
        """Do a job in the calling thread; False if that might mean to wait."""
        if self.settings.durability == "power" or job.size > _SMALL or not self.lock.acquire(blocking=False):
            return False
        try:
            connection = self._connection
            if connection is None or self._stopped or self._pending or not _begin_now(connection):
                return False
            self._complete(connection, [job])
            if self._is_alarm_missing() or self._logged > _CHECKPOINT:
                self.wake()
            return True
        finally:
            self.lock.release()

    def _is_alarm_missing(self) -> bool:
        return (self._next_beat is None and bool(self.leases)) or (
            self._next_poll is None and bool(self.leases.listeners)
        )

    def _is_due(self, alarm: float | None) -> bool:
        return alarm is not None and alarm <= time.monotonic()

    def _set_alarms(self) -> None:
        """Sleep without a timeout unless there is a lease to keep or somebody to tell about mail."""
        now = time.monotonic()
        if not self.leases:
            self._next_beat = None
        elif self._next_beat is None or self._next_beat <= now:
            self._next_beat = now + self.settings.lease_ttl / 3
        if not self.leases.listeners:
            self._next_poll = None
        elif self._next_poll is None or self._next_poll <= now:
            self._next_poll = now + self.settings.poll

    def _transact(self, jobs: list[Job]) -> None:
        """Do all jobs in one transaction."""
        try:
            connection = self.connection()
            _begin(connection, self.settings.busy_timeout)
        except Exception as error:
            self.fail(jobs, error)
        else:
            self._complete(connection, jobs)

    def _complete(self, connection: sqlite3.Connection, jobs: list[Job]) -> None:
        """Do all jobs and commit. A job that refuses has written nothing, so the others go on."""
        try:
            for job in jobs:
                _attempt(job, connection)
            connection.execute("COMMIT")
        except Exception as error:
            self._undo(jobs, error)
        except BaseException:  # Ctrl-C, where the caller's thread does the job
            self._roll_back()
            raise
        else:
            self._logged += _PAGE
            for job in jobs:
                self._logged += job.size
                if job.after is not None and job.error is None:
                    job.after(job.result)

    def _undo(self, jobs: list[Job], error: Exception) -> None:
        """Roll back. If one job's own error spoilt the transaction, give each a transaction of its own."""
        _log.debug("A transaction of %d jobs is undone: %s", len(jobs), error)
        self._roll_back()
        if len(jobs) == 1 or concerns_the_file(error):
            self.fail(jobs, error)
        else:
            for job in jobs:
                self._transact([job])

    def _roll_back(self) -> None:
        self.rollback()
        self.leases.forget_lengths()

    def _checkpoint(self) -> None:
        """Move what was written from the log into the file, as far as readers allow it."""
        self._logged = 0
        with suppress(sqlite3.Error, JournalError):
            self.connection().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _poll(self) -> None:
        """Look for mail and lost leases, if any other connection wrote since."""
        with suppress(sqlite3.Error, JournalError):
            connection = self.connection()
            version = connection.execute("PRAGMA data_version").fetchone()[0]
            if version != self._seen:
                self._seen = version
                self.leases.lose(self.leases.missing(connection))
                ring(self.leases.listeners.of(writes.with_mail(connection)))


def _begin_now(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error:
        return False
    return True


def _begin(connection: sqlite3.Connection, timeout: float) -> None:
    """Start to write; wait for other processes that do."""
    deadline = time.monotonic() + timeout
    pause = _RETRY
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_RETRY)


def _attempt(job: Job, connection: sqlite3.Connection) -> None:
    job.error = None
    try:
        job.result = job.run(connection)
    except TreadleError as error:
        job.error = error
