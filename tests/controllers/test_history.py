"""History in memory and in a file, also when either is lost or damaged."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.api import keys
from extender.controllers import history as module
from extender.controllers.history import History
from extender.domain.explain.history import AnyRecord, By, GroupRun, Period, QueueHour, Wait
from extender.telemetry.history_file import HistoryFault, HistoryFile, HistoryReader, report_of_file
from tests.domain.builders import node, queue
from tests.domain.world import EPOCH, World, gang, timestamp

HOUR, DAY = 3600.0, 86400.0


_opened: list[History] = []


class HistoryBench:
    """A world, and those who keep its history one after the other."""

    def __init__(self, path: Path | None, *objects: Any, retention: float = 30 * DAY) -> None:
        self.world, self.path, self.retention = World(node("a", cpu="8"), *objects).settle(), path, retention
        self.leading = True
        self.history = self.another()

    def another(self) -> History:
        history = History(
            self.world.ledger, lambda: self.leading, self.path, self.retention, lambda: self.now
        )
        _opened.append(history)
        return history

    @property
    def now(self) -> float:
        return EPOCH + self.world.now + self.world.wall_steps

    def look(self) -> "HistoryBench":
        """Look twice, as the cycle and the thread do: at first the file may not have been read yet."""
        for _ in range(2):
            self.history.on_decisions(self.world.settle().decisions)
            self.history.write()
        return self

    def after(self, seconds: float, *objects: Any) -> "HistoryBench":
        self.world.advance(seconds)
        self.world.add(*objects)
        return self.look()

    def start(self, *groups: str) -> "HistoryBench":
        self.world.start(*groups)
        return self.look()

    def cpu_hours(self) -> float:
        return self.history.report(Period(By.QUEUE, 0.0, self.now)).total.cpu_hours

    def starts(self) -> int:
        return self.history.report(Period(By.QUEUE, 0.0, self.now)).total.starts

    def killed(self) -> "HistoryBench":
        """Kill the process as with SIGKILL: it loses uncommitted data, and the system releases the lock."""
        if self.history._file is not None and self.history._file._opened_file is not None:
            self.history._file._opened_file.close()
        self.history = self.another()
        return self


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().stop()


def test_without_a_file_the_latest_records_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_RECORDS", 4)
    bench = HistoryBench(None, gang("a", 1)).look().start("a").after(HOUR)
    assert (bench.starts(), bench.cpu_hours()) == (1, 1.0)
    for n in range(5):
        bench.after(60, gang(f"g{n}", 1)).start(f"g{n}")
        bench.world.finish(f"g{n}-0")
        bench.look()
    found = bench.history.report(Period(By.QUEUE, 0.0, bench.now))
    assert found.total.starts == 2  # each has a wait and a run
    assert found.note == "records before 2026-01-01T01:20:40Z are missing"
    assert bench.history.text() == "kept in memory: --history is not set"


def test_what_is_written_can_be_read_by_others_meanwhile(path: Path) -> None:
    bench = HistoryBench(path, queue("q"), gang("a", 2, queue="q")).look().start("a").after(HOUR)
    seen = bench.history.report(Period(By.QUEUE, 0.0, bench.now))
    assert [(row.name, row.starts, row.cpu_hours) for row in seen.rows] == [("q", 1, 2.0)]
    assert seen == report_of_file(path, Period(By.QUEUE, 0.0, bench.now))
    assert bench.history.text() == f"written to {path}"
    assert "2026-01-01T00:16:40Z" in seen.note
    assert not bench.history.report(Period(By.QUEUE, bench.now - 60, bench.now)).note


@pytest.mark.parametrize("committed", [True, False])
def test_after_a_restart_nothing_is_missing_and_nothing_counts_twice(path: Path, committed: bool) -> None:
    """Restore the last second, which is not committed, from the objects."""
    bench = HistoryBench(path, gang("a", 2), gang("b", 1)).look().start("b").after(HOUR)
    bench.world.start("a")
    bench.history.on_decisions(bench.world.decisions)
    if committed:
        bench.history.write()
    bench.killed().look().after(HOUR)
    assert bench.cpu_hours() == pytest.approx(2 * 1 + 2)
    assert bench.starts() == 2
    bench.killed().look().killed().look()
    assert bench.cpu_hours() == pytest.approx(4)
    assert bench.starts() == 2


def test_a_follower_records_no_history(path: Path) -> None:
    bench = HistoryBench(path, gang("a", 1)).look().start("a").after(HOUR)
    bench.leading = False
    bench.after(HOUR, gang("b", 1, created=timestamp(bench.world.now))).start("b").after(HOUR)
    assert bench.starts() == 1
    bench.leading = True
    bench.look()
    assert (bench.starts(), bench.cpu_hours()) == (2, 4.0)


def test_one_process_writes_to_the_file_and_its_successor_continues(path: Path) -> None:
    bench = HistoryBench(path, gang("a", 1)).look().start("a").after(HOUR)
    first, bench.history = bench.history, bench.another()
    bench.look()
    assert bench.history.text() == f"{path}: another Muster writes to it"
    assert bench.cpu_hours() == 1.0  # the objects say so
    first.stop()
    bench.after(60).after(HOUR - 60)
    assert (bench.cpu_hours(), bench.starts(), bench.history.text()) == (2.0, 1, f"written to {path}")


def test_old_records_are_removed_in_small_pieces_and_open_ones_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.telemetry.history_file._BATCH_SIZE", 3)
    bench = HistoryBench(path, gang("stays", 1), retention=DAY).look().start("stays")
    for n in range(5):
        bench.after(1, gang(f"g{n}", 1)).start(f"g{n}")
        bench.world.finish(f"g{n}-0")
        bench.look()
    assert rows(path) == 12
    bench.world.advance(DAY + 100)
    left = list[int]()
    while not left or left[-1] > 1:
        bench.history.write()
        left.append(rows(path))
    assert left == [9, 6, 3, 1]
    assert bench.cpu_hours() == pytest.approx((DAY + 110) / HOUR, abs=0.01)


def test_a_file_that_is_too_large_loses_the_records_that_ended_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 0)
    bench = HistoryBench(path, gang("a", 1), gang("b", 1)).look().start("a", "b")
    for name in ("a", "b"):
        bench.world.finish(f"{name}-0")
        bench.after(100)
    assert rows(path) == 0


def rows(path: Path | None) -> int:
    with closing(sqlite3.connect(path or "")) as sql:
        found: int = sql.execute("SELECT count(*) FROM record").fetchone()[0]
        return found


# ---- files that are of no use


def damaged(path: Path) -> None:
    path.write_bytes(b"\0junk" * 1000)


def broken_inside(path: Path) -> None:
    bench = HistoryBench(path).look()
    for n in range(40):
        bench.after(1, gang(f"g{n}", 9))
    bench.history.stop()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))


def of_another(path: Path) -> None:
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("CREATE TABLE accounts (name TEXT)")


def newer(path: Path) -> None:
    HistoryFile(path).close()
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("PRAGMA user_version = 2")


def unreadable(path: Path) -> None:
    HistoryFile(path).close()
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("INSERT INTO record VALUES (1, 'x', NULL, '{\"kind\": \"Run\"}')")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (damaged, "file is not a database"),
        (broken_inside, "malformed"),
        (of_another, "is not a history of Muster"),
        (newer, "has format version 2: must be 1"),
        (unreadable, "the record 'x' cannot be read: Object missing required field `queue`"),
        (folder, "unable to open database file"),
    ],
)
def test_an_unusable_file_is_reported_once_left_unchanged_and_stops_nothing(
    path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with capture_logs() as logs:
        bench = HistoryBench(path, gang("a", 1)).look().start("a").after(HOUR).after(HOUR)
        assert (bench.starts(), bench.cpu_hours()) == (1, 2.0)
    (line,) = [line for line in logs if line["event"].startswith("history")]
    assert says in line["fault"]
    assert says in bench.history.text()
    assert says in bench.history.report(Period(By.QUEUE, 0.0, bench.now)).note
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_file_that_is_moved_away_is_created_again(path: Path) -> None:
    damaged(path)
    bench = HistoryBench(path, gang("a", 1, created=timestamp(500))).look().start("a").after(HOUR)
    path.rename(path.with_name("damaged"))
    bench.after(HOUR)
    assert (bench.history.text(), bench.cpu_hours()) == (f"written to {path}", 2.0)
    path.unlink()
    bench.after(HOUR)
    assert (bench.history.text(), bench.cpu_hours(), rows(path)) == (f"written to {path}", 3.0, 2)


def test_a_clock_that_is_set_back_delays_no_record(path: Path) -> None:
    bench = HistoryBench(path, gang("a", 1)).look().start("a")
    bench.history._write_if_due()
    path.unlink()
    folder(path)
    bench.look()
    assert "unable to open" in bench.history.text()
    path.rmdir()
    bench.world.wall_steps -= HOUR
    for _ in range(3):
        bench.after(module._SAMPLE_PERIOD).history._write_if_due()
    assert bench.history.text() == f"written to {path}"
    assert any(isinstance(record, QueueHour) for record in records(path))


def test_a_folder_without_write_permission_is_reported(tmp_path: Path) -> None:
    bench = HistoryBench(tmp_path / "none" / "history.db", gang("a", 1)).look().start("a").after(HOUR)
    assert bench.history.text().startswith(f"{tmp_path}/none/history.db.lock: ")
    assert bench.cpu_hours() == 1.0


def test_a_disk_that_hangs_does_not_delay_the_stop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, hangs = HistoryBench(path, gang("a", 1)).look(), Event()
    monkeypatch.setattr(module, "_STOP_TIMEOUT", 0.01)
    monkeypatch.setattr(HistoryFile, "write", lambda *_: hangs.wait())
    bench.world.start("a")
    bench.history.on_decisions(bench.world.decisions)
    bench.history.stop()
    assert not hangs.is_set()
    hangs.set()


def test_names_are_recorded_unchanged_up_to_a_length(path: Path) -> None:
    user = "<script>alert('🦀')</script>\x00" + "x" * 200_000
    bench = HistoryBench(path, gang("a", 1, notes={keys.SUBMITTER: user})).look().start("a").after(HOUR)
    (row,) = bench.history.report(Period(By.USER, 0.0, bench.now)).rows
    assert row.name == user[:253]
    assert path.stat().st_size < 100_000


# ---- a process that is killed, and a disk that is full

WRITER = """
import resource, sys, time
from pathlib import Path
from tests.controllers.test_history import HistoryBench
from tests.domain.world import gang

path, most = Path(sys.argv[1]), int(sys.argv[2])
if most:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
bench = HistoryBench(path)
for n in range(1000):
    bench.after(20, gang(f"g{n}", 1)).start(f"g{n}")
    bench.world.finish(f"g{n}-0")
    bench.look()
    print(n, bench.history.text(), flush=True)
    if most and n == 15:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if most and n == 18:
        break
"""


@pytest.fixture
def writing(path: Path) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(most: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(path), str(most)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_that_is_killed_loses_nothing_that_it_had_written(
    path: Path, writing: Callable[..., subprocess.Popen[str]]
) -> None:
    process = writing()
    assert process.stdout is not None
    written = [process.stdout.readline() for _ in range(8)]
    os.kill(process.pid, signal.SIGKILL)
    written += process.stdout.readlines()
    found = records(path)
    ran = {each.group for each in found if isinstance(each, GroupRun) and each.end is not None}
    waited = {each.group for each in found if isinstance(each, Wait) and each.has_started}
    assert ran >= {f"team/g{n}" for n in range(len(written) - 1)}
    assert waited >= ran
    HistoryFile(path).close()  # and the next one may go on


def test_a_full_disk_is_reported_and_the_records_are_written_once_it_has_space(
    path: Path, writing: Callable[..., subprocess.Popen[str]]
) -> None:
    process = writing(72 * 1024)
    out, _ = process.communicate(timeout=60)
    fields = dict(line.split(" ", 1) for line in out.splitlines())
    assert fields["0"] == fields["18"] == f"written to {path}"
    assert fields["15"] in (f"{path}: database or disk is full", f"{path}: disk I/O error")
    runs = [record for record in records(path) if isinstance(record, GroupRun)]
    assert len(runs) == len({each.group for each in runs}) == 19
    assert all(each.end is not None for each in runs)


def records(path: Path) -> list[AnyRecord]:
    reader = HistoryReader(path)
    try:
        return list(reader.records(0.0))
    finally:
        reader.close()


def test_records_lost_while_the_file_could_not_be_written_do_not_stay_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = HistoryBench(path, gang("a", 1), gang("b", 1)).look().start("a", "b").after(HOUR)
    monkeypatch.setattr(module, "_MAX_PENDING", 3)
    write = HistoryFile.write

    def fail(*_: Any) -> None:
        raise HistoryFault("it is full") from sqlite3.OperationalError()

    monkeypatch.setattr(HistoryFile, "write", fail)
    bench.after(10)
    bench.world.finish("a-0")
    for n in range(3):
        bench.after(10, gang(f"g{n}", 1)).start(f"g{n}")
    assert bench.history.text() == "it is full"
    monkeypatch.setattr(HistoryFile, "write", write)
    bench.after(60)
    runs = {record.name: record for record in records(path) if isinstance(record, GroupRun)}
    assert runs["team/b"].end is None
    assert runs["team/a"].end == pytest.approx(EPOCH + 1000 + HOUR)  # when somebody recorded last


def test_a_replica_that_does_not_lead_says_so() -> None:
    bench = HistoryBench(None)
    assert "does not lead" not in bench.look().history.report(Period(By.QUEUE, 0.0, bench.now)).note
    bench.leading = False
    assert "does not lead" in bench.look().history.report(Period(By.QUEUE, 0.0, bench.now)).note
