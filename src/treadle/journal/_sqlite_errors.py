"""SQLite's errors in Treadle's words."""

from __future__ import annotations

import sqlite3

from treadle.errors import (
    ConflictError,
    JournalCorruptError,
    JournalError,
    JournalFullError,
    JournalLockedError,
)

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}
_REFUSED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_CANNOT_WRITE = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


def translate(error: Exception, path: str) -> Exception:
    """Return what to raise instead of an error of SQLite; any other error is returned as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return _translate(error, code, f"{path!r}: {error}.")


def _translate(error: sqlite3.Error, code: int, what: str) -> JournalError:
    primary = code & 0xFF
    if primary in _LOCKED:
        return JournalLockedError(f"{what} Another program holds the file; end it or raise `busy_timeout`.")
    if primary == sqlite3.SQLITE_FULL or code in _CANNOT_WRITE:
        return JournalFullError(f"{what} The disk or quota is full; nothing stored was lost. Free space and try again.")
    if primary in _CORRUPT or _is_missing(error):
        return JournalCorruptError(f"{what} The file is damaged or not a journal; restore a copy or use another path.")
    if primary in _REFUSED:
        return JournalError(f"{what} Check that the file and its folder can be read and written.")
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return ConflictError(f"{what} Another writer was faster; read the thread again.")
    return JournalError(what)


def _is_missing(error: sqlite3.Error) -> bool:
    """Say whether a table or column that we know is not there, or a stored text is not what it should be."""
    text = str(error)
    return text.startswith(("no such", "malformed", "Could not decode")) or "has no column" in text


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether somebody else holds the file, so that trying again may help."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _LOCKED


def concerns_the_file(error: Exception) -> bool:
    """Say whether the error would hit any other operation as well, rather than being one operation's own."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
