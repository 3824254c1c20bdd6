"""An operating system thread with a connection of its own, which works off a queue for any number of event loops."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from treadle.errors import TreadleError
from treadle.journal import _rules as rules
from treadle.journal._sqlite_errors import translate
from treadle.journal._sqlite_file import Settings, connect, disconnect
from treadle.journal._sqlite_job import Job, deliver
from treadle.journal._sqlite_process import track

_WAKE = Job(lambda _: None)


class Worker:
    """Takes jobs from a queue and does them. Its thread starts with the first job and ends with `stop`."""

    name = "worker"
    most = 1
    """How many jobs are done in one go."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.Lock()
        """Held while the connection is used; a fork of the process waits for it."""
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._ended = False
        self._closing: list[Job] = []
        self._pending = 0
        self._connection: sqlite3.Connection | None = None

    async def ask(self, job: Job) -> Any:
        """Do a job and wait for its outcome."""
        job.expect()
        self.submit(job)
        return await job.outcome()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        with self._gate:
            if self._stopped:
                raise rules.closed()
            if self._thread is None:
                self._start()
            self._pending += 1
            self._queue.put(job)

    async def close(self) -> None:
        """Do what is queued, end the thread and wait for that."""
        job = Job(lambda _: None)
        job.expect()
        with self._gate:
            self._stopped = True
            if self._thread is None or self._ended:
                return
            self._closing.append(job)
            self._queue.put(None)
        await job.outcome()

    def stop(self) -> None:
        """Ask the thread to end after what is queued. Called by finalizers, so it must not take a lock."""
        self._stopped = True
        self._queue.put(None)

    def wake(self) -> None:
        """Make the thread look at its alarms again."""
        self._queue.put(_WAKE)

    @property
    def stopped(self) -> bool:
        """Whether no more jobs are taken."""
        return self._stopped

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def disconnect(self) -> None:
        """Close the connection; the next job opens another. `lock` must be held."""
        if self._connection is not None:
            disconnect(self._connection)
            self._connection = None

    def connection(self) -> sqlite3.Connection:
        """Return the open connection."""
        if self._connection is None:
            self._connection = connect(self.settings)
        return self._connection

    def work(self, jobs: list[Job]) -> None:
        """Do the jobs and note their outcomes. Whatever goes wrong is the outcome of a job."""
        raise NotImplementedError

    def idle(self) -> float | None:
        """Return in how many seconds `work` must be called even without jobs; None if it need not be."""
        return None

    def finish(self) -> None:
        """Do what is left before the connection closes."""

    def fail(self, jobs: list[Job], error: Exception) -> None:
        """Give every job an error of its own to raise."""
        shared = len(jobs) > 1 and isinstance(error, TreadleError)
        for job in jobs:
            job.error = type(error)(*error.args) if shared else translate(error, self.settings.path)

    def rollback(self) -> None:
        """Undo an open transaction."""
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._main, name=f"treadle-journal-{self.name}", daemon=True)
        self._thread.start()
        track(self)

    def _main(self) -> None:
        stopping = False
        while not stopping:
            jobs, stopping = self._take()
            taken = len(jobs)
            with self.lock:
                self.work(jobs)
            with self._gate:
                self._pending -= taken
            deliver(jobs)
            del jobs
        with self.lock:
            self.finish()
            self.disconnect()
        with self._gate:
            self._ended = True
        deliver(self._closing)

    def _take(self) -> tuple[list[Job], bool]:
        """Wait for jobs and take what is queued; the second value says that there will be no more."""
        jobs: list[Job] = []
        with suppress(Empty):
            job = self._queue.get(timeout=self.idle())
            while job is not None:
                if job is not _WAKE:
                    jobs.append(job)
                if len(jobs) == self.most:
                    return jobs, False
                job = self._queue.get_nowait()
            return jobs, True
        return jobs, False


class Reader(Worker):
    """Answers questions, one after another, each from one consistent view of the file."""

    name = "reader"

    def work(self, jobs: list[Job]) -> None:
        for job in jobs:
            try:
                connection = self.connection()
                connection.execute("BEGIN")
                job.result = job.run(connection)
                connection.execute("COMMIT")
            except Exception as error:
                self.rollback()
                self.fail([job], error)
