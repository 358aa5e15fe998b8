"""Records of the history in a SQLite file, which survives the process.

One process writes the file; other processes may read it at the same time. Committed records survive any end
of the process.
"""

import fcntl
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from extender.domain.explain.history import AnyRecord, Period, Report, missing_part_text, report

_APPLICATION, _VERSION = 0x4D555354, 1  # header of the file: Muster's identifier, and version
_SCHEMA_SQL = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
CREATE TABLE record (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, over REAL, body TEXT NOT NULL);
CREATE INDEX record_over ON record (over);
CREATE TABLE span (only INTEGER PRIMARY KEY CHECK (only = 1), first REAL NOT NULL, last REAL NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_PUT_SQL = "INSERT INTO record (key, over, body) VALUES (?, ?, ?) ON CONFLICT (key) DO "
_CHANGE_SQL = f"{_PUT_SQL}UPDATE SET over = excluded.over, body = excluded.body"
_SEEN_SQL = "INSERT INTO span VALUES (1, ?1, ?1) ON CONFLICT DO UPDATE SET last = excluded.last"
_OLDEST_SQL = "SELECT number FROM record WHERE over < ? ORDER BY over LIMIT ?"
_LOCK_TIMEOUT = 2.0  # longest wait for a locked file, in seconds
_WAL_BYTES = 16 * 2**20  # size limit of the write-ahead log
_BATCH_SIZE = 2000  # number of records that are deleted, and of pages that are freed, at once
_decoder = msgspec.json.Decoder(AnyRecord)


class HistoryFault(Exception):
    """Error of a history file, with a message for users."""

    @property
    def is_lasting(self) -> bool:
        """Return whether the fault stays: the file is unusable, and not just locked or on a full disk."""
        return not isinstance(self.__cause__, sqlite3.OperationalError)


class HistoryFile:
    """Writer of a history file, which it creates if necessary.

    Only one thread may use it at a time. All methods may raise HistoryFault.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _open_lock(path)
        try:
            with _history_faults(path):
                self._sql = sqlite3.connect(
                    path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False
                )
                if self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    self._sql.executescript(_SCHEMA_SQL)
                _check(path, self._sql)
                # A commit survives the end of the process, but not a power cut.
                self._sql.execute("PRAGMA synchronous = NORMAL")
                self._sql.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
                self._inode = path.stat().st_ino
        except HistoryFault:
            self.close()
            raise

    @property
    def is_gone(self) -> bool:
        """Return whether the file was removed or replaced."""
        try:
            return self.path.stat().st_ino != self._inode
        except OSError:
            return True

    def close(self) -> None:
        with suppress(sqlite3.Error, AttributeError):
            self._sql.close()
        self._lock.close()

    def open_records(self) -> tuple[list[AnyRecord], float]:
        """Return the records without an end, and the time of the last write; 0 if there was no write."""
        with _history_faults(self.path):
            (last_write,) = self._sql.execute("SELECT max(last) FROM span").fetchone()
            return list(_read(self._sql, "over IS NULL")), last_write or 0.0

    def write(self, records: Iterable[AnyRecord], last_write: float) -> None:
        """Write all of the records, or none after an error."""
        with _history_faults(self.path), _transaction(self._sql):
            for record in records:
                row = record.key, record.end, msgspec.json.encode(record).decode()
                self._sql.execute(f"{_PUT_SQL}NOTHING" if record.is_final else _CHANGE_SQL, row)
            self._sql.execute(_SEEN_SQL, (last_write,))

    def end_all_but(self, keys: Collection[str]) -> None:
        """End all records without an end, except `keys`, at the time of the last write."""
        records, last_write = self.open_records()
        self.write((record.with_end(last_write) for record in records if record.key not in keys), last_write)

    def forget(self, before: float, max_bytes: int) -> bool:
        """Delete a batch of records that ended before a time; return whether more may remain.

        While the file has more than `max_bytes` bytes, records that ended later are deleted, too. The oldest
        records are deleted first.
        """
        with _history_faults(self.path):
            pages, free_pages, size = (
                self._sql.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            ended_before = before if (pages - free_pages) * size <= max_bytes else float("inf")
            with _transaction(self._sql):
                delete = f"DELETE FROM record WHERE number IN ({_OLDEST_SQL})"
                deleted = self._sql.execute(delete, (ended_before, _BATCH_SIZE)).rowcount
            self._sql.execute(f"PRAGMA incremental_vacuum({_BATCH_SIZE})").fetchall()
        return deleted == _BATCH_SIZE


class HistoryReader:
    """Reader of a history file, which may be written at the same time. May raise HistoryFault."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _history_faults(path):
            if not path.is_file():
                raise HistoryFault(f"{path}: there is no such file")
            self._sql = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_LOCK_TIMEOUT)
        try:
            with _history_faults(path):
                _check(path, self._sql)
                (first,) = self._sql.execute("SELECT min(first) FROM span").fetchone()
        except HistoryFault:
            self.close()
            raise
        self.recorded_since: float | None = first  # start of the recorded period; None if nothing is recorded

    def records(self, since: float) -> Iterator[AnyRecord]:
        """Yield the records without an end, and the records that ended at the time `since` or later."""
        with _history_faults(self.path):
            yield from _read(self._sql, "over IS NULL OR over >= ?", since)

    def close(self) -> None:
        self._sql.close()


Records = Iterator[AnyRecord]


def report_of_file(path: Path, period: Period, transform: Callable[[Records], Records] = iter) -> Report:
    """Return the report on the records of a file. First, `transform` wraps the iterator of the records.

    Raises:
        HistoryFault: The file cannot be read.
    """
    with closing(HistoryReader(path)) as reader:
        note = missing_part_text(reader.recorded_since or period.until, period)
        return report(transform(reader.records(period.since)), period, note)


def _check(path: Path, sql: sqlite3.Connection) -> None:
    """Check that a file is a history of Muster in the supported version.

    Raises:
        HistoryFault: The file is something else.
    """
    (application,), (version,) = (
        sql.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application != _APPLICATION:
        raise HistoryFault(f"{path}: is not a history of Muster")
    if version != _VERSION:
        raise HistoryFault(f"{path}: has format version {version}: must be {_VERSION}")


def _read(sql: sqlite3.Connection, where: str, *values: float) -> Iterator[AnyRecord]:
    """Yield the records that satisfy a condition."""
    for key, body in sql.execute(f"SELECT key, body FROM record WHERE {where}", values):
        try:
            yield _decoder.decode(body)
        except msgspec.MsgspecError as fault:
            raise HistoryFault(f"the record {key!r:.200} cannot be read: {fault}") from fault


@contextmanager
def _transaction(sql: sqlite3.Connection) -> Iterator[None]:
    """Commit the statements of the block, or roll them back after an exception."""
    sql.execute("BEGIN IMMEDIATE")
    try:
        yield
        sql.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            sql.execute("ROLLBACK")
        raise


def _open_lock(path: Path) -> IO[str]:
    """Lock a file next to `path`, so that only one process records the history; return the open file."""
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        lock_file = lock_path.open("a")
    except OSError as fault:
        raise HistoryFault(f"{lock_path}: cannot be written: {fault.strerror}") from fault
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        lock_file.close()
        raise HistoryFault(f"{path}: another Muster writes to it") from fault
    return lock_file


@contextmanager
def _history_faults(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of files as HistoryFault."""
    try:
        yield
    except (sqlite3.Error, OSError) as fault:
        raise HistoryFault(f"{path}: {fault}") from fault
