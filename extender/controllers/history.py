"""History of this replica while it leads: the latest records in memory and, optionally, all in a file.

Decisions do not depend on the file. The thread of the scheduling cycle makes records and waits for no disk. A
separate thread writes the records to the file once a second.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from threading import Lock, Thread

from msgspec.structs import replace

from extender.controllers.cycle import FaultGuard
from extender.domain.explain.history import AnyRecord, Evicted, Period, Report, missing_part_text, report
from extender.domain.explain.recorder import QueueHours, Recorder
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import Uid
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot.decisions import Decisions
from extender.kube.writers import Poller
from extender.telemetry import metrics
from extender.telemetry.history_file import HistoryFault, HistoryFile, report_of_file
from extender.telemetry.logs import logger

log = logger(__name__)

_MAX_RECORDS = 10_000  # most records in memory
_COMMIT_PERIOD = 1.0  # seconds between two commits to the file
_STOP_TIMEOUT = 2.0  # longest wait for the last commit, in seconds
_SAMPLE_PERIOD = 30.0  # seconds between two samples of the queues
_READ_BATCH, _READ_PAUSE = 100, 0.0005  # records read from the file at once, and the pause in between

_MAX_PENDING = 20_000  # most records that wait while the file cannot be written
_RETRY_PERIOD = 10.0  # seconds from a failed write to the next try
_CLEANUP_PERIOD = 60.0  # seconds between two deletions of old records
_MAX_FILE_BYTES = 2**30  # maximum size of the file
_FOLLOWER_TEXT = "this replica does not lead and records nothing: the one that leads knows more"

OpenRecords = tuple[list[AnyRecord], float]  # records without an end, and when the recording ended


class History:
    """History in memory and in a file.

    `path` is the path of the file; None means that there is no file. `retention` is in seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        leads: Callable[[], bool],
        path: Path | None,
        retention: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger, self._leads, self._clock = ledger, leads, clock
        self._guard = FaultGuard("history")
        self._lock = Lock()  # guards the fields below; never held during I/O
        self._latest_records: dict[str, AnyRecord] = {}  # records with an end, by key
        self._recorder: Recorder | None = None  # None while this replica does not lead
        self._unfinished: OpenRecords | None = None if path else ([], 0.0)  # for the next recorder
        self._usage, self._sampled_at = QueueHours(), 0.0
        self._first_at, self._last_at = 0.0, 0.0  # times of the first and the last observation
        self._file = None if path is None else _File(path, retention, self._restart)
        self._poller = Poller("history", _COMMIT_PERIOD, self._write_if_due)

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> None:
        """Write the remaining records, but do not wait long for a disk that hangs."""
        self._poller.stop()
        last_write = Thread(target=self._finish, name="last of history", daemon=True)
        last_write.start()
        last_write.join(_STOP_TIMEOUT)

    def _finish(self) -> None:
        self.write()
        if self._file is not None:
            self._file.close()

    def text(self) -> str:
        """Return a status line."""
        if self._file is None:
            return "kept in memory: --history is not set"
        return self._file.fault or f"written to {self._file.path}"

    def on_decisions(self, decisions: Decisions) -> None:
        """Record a cycle while this replica leads. Otherwise keep the open records for the next recorder."""
        with self._lock:
            if not self._leads():
                if self._recorder is not None:
                    self._unfinished, self._recorder = (self._recorder.open, self._last_at), None
                return
            if self._unfinished is not None:
                self._recorder = Recorder(*self._unfinished, self._is_leaving, self._guard.run)
                self._unfinished = None
            if self._recorder is not None and (facts := read_facts(decisions)) is not None:
                self._last_at = self._clock()
                self._first_at = self._first_at or self._last_at
                self._store(self._recorder.observe(decisions, facts.snapshot))

    def _is_leaving(self, uid: Uid) -> bool:
        """Return whether a pod is gone or is being deleted."""
        pod = self._ledger.pods.get(uid)
        return pod is None or pod.deleting

    def _store(self, records: Iterable[AnyRecord]) -> None:
        """Store records that changed, in memory and for the file.

        The newest state of a record replaces earlier states.
        """
        for record in records:
            if self._file is not None:
                self._file.put(record)
            if record.end is not None and not (record.is_final and record.key in self._latest_records):
                self._latest_records[record.key] = record
                if len(self._latest_records) > _MAX_RECORDS:
                    del self._latest_records[next(iter(self._latest_records))]

    def _restart(self, unfinished: OpenRecords | None) -> None:
        """Continue the history from the unfinished records of the file.

        `unfinished` is None if the file cannot be opened. Then a history that has not begun is empty, and
        stays in memory.
        """
        with self._lock:
            if unfinished is not None and self._file is not None:
                self._file.forget_all_but_evictions()
                self._recorder, self._unfinished, self._usage = None, unfinished, QueueHours(unfinished[0])
            elif self._recorder is None and self._unfinished is None:
                self._unfinished = [], 0.0

    def _write_if_due(self) -> None:
        """Take a sample of the queues if one is due, and write all new records."""
        now = self._clock()
        if self._recorder is not None and _is_over(_SAMPLE_PERIOD, self._sampled_at, now):
            self._sampled_at = now
            records = list(self._usage.sample(self._ledger.decisions.queues, now, 2 * _SAMPLE_PERIOD))
            with self._lock:
                self._store(records)
        self.write()

    def write(self) -> None:
        """Write the new records to the file."""
        if self._file is not None:
            self._file.write(self._clock(), self._last_at, self._open_records)

    def _open_records(self) -> list[AnyRecord]:
        """Return the records without an end."""
        with self._lock:
            begun = self._recorder.open if self._recorder is not None else (self._unfinished or ([], 0.0))[0]
            return [*begun, *self._usage.open]

    def report(self, period: Period) -> Report:
        """Return a report of a period up to now, from the file or else from memory."""
        result, follower_text = self._basic_report(period), "" if self._leads() else _FOLLOWER_TEXT
        return replace(result, note="; ".join(filter(None, (follower_text, result.note))))

    def _basic_report(self, period: Period) -> Report:
        """Return the report of a period, from the file or from memory, with notes on gaps and faults."""
        self.write()
        if self._file is not None and not self._file.fault:
            try:
                return report_of_file(self._file.path, period, _with_pauses)
            except HistoryFault as fault:
                note = f"the file cannot be read: {fault}"
        elif self._file is not None:
            note = f"the file is not written: {self._file.fault}"
        else:
            note = ""
        with self._lock:
            records, first_at = [*self._latest_records.values()], self._first_at
        if len(records) == _MAX_RECORDS:
            first_at = records[0].end or first_at
        note = "; ".join(filter(None, (note, missing_part_text(first_at, period))))
        return report((*records, *self._open_records()), period, note)


def _with_pauses(records: Iterator[AnyRecord]) -> Iterator[AnyRecord]:
    """Yield records with pauses, so that the deciding thread does not wait long for the interpreter lock."""
    for number, record in enumerate(records):
        if number % _READ_BATCH == 0:
            time.sleep(_READ_PAUSE)
        yield record


def _is_over(seconds: float, begun_at: float, now: float) -> bool:
    """Return whether a period that began at `begun_at` is over; True also if the clock was put back."""
    return not begun_at <= now < begun_at + seconds


class _File:
    """File of records, together with the records that are still to be written.

    Each time the file is opened, `on_open` gets the records without an end. It gets None if the file cannot
    be opened.
    """

    def __init__(self, path: Path, retention: float, on_open: Callable[[OpenRecords | None], None]) -> None:
        self.path, self._retention, self._on_open = path, retention, on_open
        self.fault = "not opened yet"  # reason why the file is not written, for users; else empty
        self._pending_records: dict[str, AnyRecord] = {}
        self._lost_record_count = 0
        self._lock, self._write_lock = Lock(), Lock()
        self._opened_file: HistoryFile | None = None
        self._failed_at = self._cleaned_at = -inf
        self._written_last_at, self._is_closed = 0.0, False

    def put(self, record: AnyRecord) -> None:
        """Keep a changed record until the file is written.

        Beyond _MAX_PENDING, the oldest records are lost.
        """
        with self._lock:
            if not (record.is_final and record.key in self._pending_records):
                self._pending_records[record.key] = record
            while len(self._pending_records) > _MAX_PENDING:
                del self._pending_records[next(iter(self._pending_records))]
                self._lost_record_count += 1

    def forget_all_but_evictions(self) -> None:
        with self._lock:
            evictions = (record for record in self._pending_records.values() if isinstance(record, Evicted))
            self._pending_records = {record.key: record for record in evictions}

    def write(self, now: float, last_at: float, open_records: Callable[[], Iterable[AnyRecord]]) -> None:
        """Write all pending records to the file, unless a retry after a failure is not due yet.

        `open_records` returns the records that have not ended yet.
        """
        with self._write_lock:
            if self._is_closed or not _is_over(_RETRY_PERIOD, self._failed_at, now):
                return
            try:
                self._write(now, last_at, open_records)
            except HistoryFault as fault:
                self._failed_at = now
                self._record(fault)
            else:
                if self.fault:
                    log.info("history is written", file=str(self.path))
                self.fault = ""

    def _record(self, fault: HistoryFault) -> None:
        """Record that the file could not be written, and log a new fault."""
        if self._opened_file is not None and fault.is_lasting:
            self._opened_file.close()
            self._opened_file = None
        if self._opened_file is None:
            self._on_open(None)
        if self.fault != str(fault):
            metrics.faults.labels("history").inc()
            log.warning("history cannot be written", fault=str(fault))
        self.fault = str(fault)

    def _write(self, now: float, last_at: float, open_records: Callable[[], Iterable[AnyRecord]]) -> None:
        """Write all pending records to the file. A file that has disappeared is created again.

        Args:
            now: The current time.
            last_at: The time of the last observation.
            open_records: Returns the records without an end. If pending records were lost, every other record
                in the file gets an end.
        """
        if self._opened_file is not None and self._opened_file.is_gone:
            self._opened_file.close()
            self._opened_file = None
        if self._opened_file is None:
            self._opened_file = self._open()
        with self._lock:
            batch, self._pending_records = self._pending_records, {}
        try:
            if batch or last_at != self._written_last_at:  # the time of the last observation is also written
                self._opened_file.write(batch.values(), last_at)
                self._written_last_at = last_at
        except HistoryFault:
            with self._lock:
                self._pending_records = {**batch, **self._pending_records}
            raise
        if self._lost_record_count:
            self._opened_file.end_all_but({record.key for record in open_records()})
            self._lost_record_count = 0
        if _is_over(_CLEANUP_PERIOD, self._cleaned_at, now):
            has_more = self._opened_file.forget(now - self._retention, _MAX_FILE_BYTES)
            self._cleaned_at = -inf if has_more else now

    def _open(self) -> HistoryFile:
        """Open the file, and pass its unfinished records to `on_open`."""
        opened = HistoryFile(self.path)
        try:
            self._on_open(opened.open_records())
        except HistoryFault:
            opened.close()
            raise
        return opened

    def close(self) -> None:
        with self._write_lock:
            if self._opened_file is not None:
                self._opened_file.close()
            self._is_closed = True
