"""History of this replica while it led: the latest records in memory and, optionally, all in a file.

Decisions do not depend on the file. The cycle's thread makes records and waits for no disk; a thread of its
own writes them, once a second.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from threading import Lock, Thread

from msgspec.structs import replace

from extender.controllers.cycle import FaultGuard
from extender.domain.explain.history import AnyRecord, Evicted, Period, Report, gap, report
from extender.domain.explain.recorder import QueueHours, Recorder
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import Uid
from extender.domain.scheduling.memory import carried_facts_of
from extender.domain.snapshot.decisions import Decisions
from extender.kube.writers import Poller
from extender.telemetry import metrics
from extender.telemetry.history_file import HistoryFault, HistoryFile, report_of_file
from extender.telemetry.logs import logger

log = logger(__name__)

_MOST_RECORDS = 10_000  # records in memory
_PACE = 1.0  # seconds from one commit to the next
_PATIENCE = 2.0  # seconds for the last commit
_SAMPLES = 30.0  # seconds from one sample of queues to the next
_AT_ONCE, _PAUSE = 100, 0.0005  # records of a file that are read at once, and seconds between

_UNWRITTEN = 20_000  # records that wait for a file that cannot be written
_AGAIN = 10.0  # seconds from a fault of the file to the next try
_TIDY = 60.0  # seconds between two deletions of old records
_LARGEST = 2**30  # bytes of the file
_FOLLOWS = "this replica does not lead and records nothing: the one that leads knows more"

Known = tuple[list[AnyRecord], float]  # records without an end, and the end of the recording


class History:
    """History in memory and in a file. `path`: of the file, None without one; `retention` in seconds."""

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
        self._lock = Lock()  # guards the fields below; no I/O under it
        self._latest: dict[str, AnyRecord] = {}  # finished records
        self._recorder: Recorder | None = None  # none while this replica does not lead
        self._to_continue: Known | None = None if path else ([], 0.0)  # what the next recorder continues
        self._hours, self._sampled = QueueHours(), 0.0
        self._first, self._seen = 0.0, 0.0  # first and last time of the recording
        self._file = None if path is None else _File(path, retention, self._restart)
        self._poller = Poller("history", _PACE, self._write_if_due)

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> None:
        """Write the remaining records, without waiting for a disk that hangs."""
        self._poller.stop()
        last = Thread(target=self._finish, name="last of history", daemon=True)
        last.start()
        last.join(_PATIENCE)

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
        with self._lock:
            if not self._leads():
                if self._recorder is not None:
                    self._to_continue, self._recorder = (self._recorder.open, self._seen), None
                return
            if self._to_continue is not None:
                self._recorder = Recorder(*self._to_continue, self._is_leaving, self._guard.run)
                self._to_continue = None
            if self._recorder is not None and (carried := carried_facts_of(decisions)) is not None:
                self._seen = self._clock()
                self._first = self._first or self._seen
                self._store(self._recorder.observe(decisions, carried.snapshot))

    def _is_leaving(self, uid: Uid) -> bool:
        pod = self._ledger.pods.get(uid)
        return pod is None or pod.deleting

    def _store(self, records: Iterable[AnyRecord]) -> None:
        """Store records that changed. Of each record, the last state counts."""
        for record in records:
            if self._file is not None:
                self._file.put(record)
            if record.end is not None and not (record.is_final and record.key in self._latest):
                self._latest[record.key] = record
                if len(self._latest) > _MOST_RECORDS:
                    del self._latest[next(iter(self._latest))]

    def _restart(self, known: Known | None) -> None:
        """Continue from the records of the file; None: it cannot be opened, and memory is used instead."""
        with self._lock:
            if known is not None and self._file is not None:
                self._file.forget_all_but_evictions()
                self._recorder, self._to_continue, self._hours = None, known, QueueHours(known[0])
            elif self._recorder is None and self._to_continue is None:
                self._to_continue = [], 0.0

    def _write_if_due(self) -> None:
        """Take a sample of the queues if due, and write what was recorded."""
        now = self._clock()
        if self._recorder is not None and _is_over(_SAMPLES, self._sampled, now):
            self._sampled = now
            records = list(self._hours.sample(self._ledger.decisions.queues, now, 2 * _SAMPLES))
            with self._lock:
                self._store(records)
        self.write()

    def write(self) -> None:
        """Write the new records to the file."""
        if self._file is not None:
            self._file.write(self._clock(), self._seen, self._open_records)

    def _open_records(self) -> list[AnyRecord]:
        """Return the records without an end."""
        with self._lock:
            begun = self._recorder.open if self._recorder is not None else (self._to_continue or ([], 0.0))[0]
            return [*begun, *self._hours.open]

    def report(self, period: Period) -> Report:
        """Return a report of the file up to now, or of memory if the file cannot be read."""
        found, follows = self._reported(period), "" if self._leads() else _FOLLOWS
        return replace(found, note="; ".join(filter(None, (follows, found.note))))

    def _reported(self, period: Period) -> Report:
        """Return the report of a period, from the file or, without one, from memory."""
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
            records, first = [*self._latest.values()], self._first
        if len(records) == _MOST_RECORDS:
            first = records[0].end or first
        note = "; ".join(filter(None, (note, gap(first, period))))
        return report((*records, *self._open_records()), period, note)


def _with_pauses(records: Iterator[AnyRecord]) -> Iterator[AnyRecord]:
    """Yield records with pauses, so that the thread that decides need not wait for the interpreter lock."""
    for number, record in enumerate(records):
        if number % _AT_ONCE == 0:
            time.sleep(_PAUSE)
        yield record


def _is_over(seconds: float, begun: float, now: float) -> bool:
    """Return whether a period is over. A clock that is put back starts it again."""
    return not begun <= now < begun + seconds


class _File:
    """File of records, with those still to be written.

    `on_open` gets its content each time it is opened, or None if it cannot be.
    """

    def __init__(self, path: Path, retention: float, on_open: Callable[[Known | None], None]) -> None:
        self.path, self._retention, self._on_open = path, retention, on_open
        self.fault = "not opened yet"  # for users; empty: there is none
        self._pending: dict[str, AnyRecord] = {}
        self._lost = 0
        self._lock, self._write_lock = Lock(), Lock()
        self._opened: HistoryFile | None = None
        self._failed = self._tidied = -inf
        self._written, self._is_closed = 0.0, False

    def put(self, record: AnyRecord) -> None:
        """Record a change to write; beyond a limit, the oldest ones are lost."""
        with self._lock:
            if not (record.is_final and record.key in self._pending):
                self._pending[record.key] = record
            while len(self._pending) > _UNWRITTEN:
                del self._pending[next(iter(self._pending))]
                self._lost += 1

    def forget_all_but_evictions(self) -> None:
        with self._lock:
            evictions = (record for record in self._pending.values() if isinstance(record, Evicted))
            self._pending = {record.key: record for record in evictions}

    def write(self, now: float, seen: float, known: Callable[[], Iterable[AnyRecord]]) -> None:
        """Write all records; failed writes are retried later. `known`: records without an end."""
        with self._write_lock:
            if self._is_closed or not _is_over(_AGAIN, self._failed, now):
                return
            try:
                self._write(now, seen, known)
            except HistoryFault as fault:
                self._failed = now
                self._record(fault)
            else:
                if self.fault:
                    log.info("history is written", file=str(self.path))
                self.fault = ""

    def _record(self, fault: HistoryFault) -> None:
        """Record that the file could not be written."""
        if self._opened is not None and fault.is_lasting:
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._on_open(None)
        if self.fault != str(fault):
            metrics.faults.labels("history").inc()
            log.warning("history cannot be written", fault=str(fault))
        self.fault = str(fault)

    def _write(self, now: float, seen: float, known: Callable[[], Iterable[AnyRecord]]) -> None:
        """Write all pending records to the file, which is opened again if it is gone.

        Args:
            now: The time.
            seen: The end of what is recorded.
            known: Returns the open records: if others were lost, these end in the file.
        """
        if self._opened is not None and self._opened.is_gone:
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._opened = self._open()
        with self._lock:
            batch, self._pending = self._pending, {}
        try:
            if batch or seen != self._written:  # also write the time of the recording's end
                self._opened.write(batch.values(), seen)
                self._written = seen
        except HistoryFault:
            with self._lock:
                self._pending = {**batch, **self._pending}
            raise
        if self._lost:
            self._opened.end_all_but({record.key for record in known()})
            self._lost = 0
        if _is_over(_TIDY, self._tidied, now):
            has_more = self._opened.forget(now - self._retention, _LARGEST)
            self._tidied = -inf if has_more else now

    def _open(self) -> HistoryFile:
        """Open the file, and report the records that it has without an end."""
        opened = HistoryFile(self.path)
        try:
            self._on_open(opened.open_records())
        except HistoryFault:
            opened.close()
            raise
        return opened

    def close(self) -> None:
        with self._write_lock:
            if self._opened is not None:
                self._opened.close()
            self._is_closed = True
