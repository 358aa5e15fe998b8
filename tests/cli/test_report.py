"""muster report, from a debug port and from a file."""

import csv
import io
import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli import main
from extender.domain.explain.history import AnyRecord, Evicted, GroupRun, Period, QueueHour, Wait, report
from extender.telemetry.history_file import HistoryFile
from tests.cli.conftest import DebugPort
from tests.rows import each_of

DAY = 1_795_737_600.0  # 2026-11-27T00:00:00Z
HOUR = 3600.0
GPU = "nvidia.com/gpu"


def run(group: str, start: float, end: float, gpus: int, **whose: Any) -> GroupRun:
    spent = {GPU: gpus * (end - start), "cpu": 4000 * (end - start), "memory": 2**30 * (end - start)}
    return GroupRun(group=f"team/{group}", start=start, end=end, until=end, spent=spent, **whose)


def wait(group: str, start: float, seconds: float, **whose: Any) -> Wait:
    end = start + seconds
    waited = {"NoRoom": seconds}
    return Wait(
        group=f"team/{group}", start=start, end=end, until=end, waited=waited, has_started=True, **whose
    )


def records() -> list[AnyRecord]:
    ann = {"queue": "research", "namespace": "team", "user": "ann"}
    bob = {"queue": "batch", "namespace": "team", "user": "=cmd('🦀')"}
    return [
        *(wait(f"a{n}", DAY + n, 60.0 * n, **ann) for n in range(10)),
        run("a0", DAY, DAY + 10 * HOUR, 8, **ann),
        run("b", DAY, DAY + HOUR, 0, **bob),
        wait("b", DAY, 5, **bob),
        Evicted(
            uid="u",
            pod="team/b-0",
            group="team/b",
            cause="Reclaim",
            claimant="team/a0",
            start=DAY + HOUR,
            end=DAY + HOUR,
            lost={"cpu": 2000 * HOUR},
            **bob,
        ),
        QueueHour(
            queue="research", start=DAY, end=DAY + HOUR, deserved={GPU: 16 * HOUR}, wanting=60, share=30
        ),
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    history_file = HistoryFile(tmp_path / "history.db")
    history_file.write(records(), DAY - 30 * 24 * HOUR)
    history_file.close()
    return tmp_path / "history.db"


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)], catch_exceptions=False)


def output_of(*arguments: object) -> str:
    result = muster(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


SINCE = ("--since", "2026-11-27", "--until", "2026-11-27T02:00:00Z")


def test_a_table_has_a_row_for_each_queue_and_all_together(file: Path) -> None:
    assert (
        output_of("--history", file, *SINCE)
        == """\
2026-11-27T00:00:00Z to 2026-11-27T02:00:00Z

QUEUE      STARTS   WAITING   MEDIAN     P90   GPU-HOURS   CPU-HOURS   EVICTED   GPU-LOST   SHARE
research       10         0    4m00s   8m00s        16.0         8.0         0        0.0     50%
batch           1         0       5s      5s         0.0         4.0         1        0.0       -
all            11         0    4m00s   8m00s        16.0        12.0         1        0.0       -
"""
    )
    head, research, batch, _ = output_of("--history", file, *SINCE, "-o", "wide").splitlines()[2:]
    of = [dict(zip(head.split(), line.split(), strict=True)) for line in (research, batch)]
    assert [(row["LONGEST"], row["CPU-LOST"], row["DESERVED"]) for row in of] == [
        ("9m00s", "0.0", "16.0"),
        ("5s", "2.0", "-"),
    ]


def test_rows_are_of_users_or_namespaces(file: Path) -> None:
    lines = output_of("--history", file, *SINCE, "--by", "user").splitlines()[2:]
    assert [line.split()[:3] for line in lines] == [
        ["USER", "STARTS", "WAITING"],
        ["ann", "10", "0"],
        ["=cmd('🦀')", "1", "0"],
        ["all", "11", "0"],
    ]
    assert output_of("--history", file, *SINCE, "--by", "namespace").splitlines()[3].startswith("team")


def test_csv_has_numbers_in_full_and_nothing_that_a_spreadsheet_works_out(file: Path) -> None:
    text = output_of("--history", file, *SINCE, "--by", "user", "-o", "csv")
    ann, bob = csv.DictReader(io.StringIO(text))
    assert (ann["user"], ann["gpu_hours"], ann["wait_p90_seconds"]) == ("ann", "16.0", "480.0")
    assert (bob["user"], bob["lost_cpu_hours"], bob["share"]) == ("'=cmd('🦀')", "2.0", "")
    assert (bob["since"], bob["until"]) == ("2026-11-27T00:00:00Z", "2026-11-27T02:00:00Z")


def test_json_and_yaml_say_the_same(file: Path) -> None:
    found = json.loads(output_of("--history", file, *SINCE, "-o", "json"))
    assert found == yaml.safe_load(output_of("--history", file, *SINCE, "-o", "yaml"))
    assert found["rows"][0]["hours"] == {"cpu": 8.0, "memory": 2**31, GPU: 16.0}
    assert found["total"]["starts"] == 11


def test_a_running_muster_is_asked_for_the_same_period(debug_port: DebugPort) -> None:
    seen = []

    def answer(**query: str) -> Any:
        seen.append(query)
        return report(records(), Period.parse(**query, now=DAY + 24 * HOUR), note="something is missing")

    address = debug_port(history=answer)
    result = muster("--debug-address", address, "--since", "2026-11-26", "--by", "user", "-o", "csv")
    assert seen == [{"by": "user", "since": "2026-11-26", "until": ""}]
    assert result.stderr == "Note: something is missing\n"
    assert [line.split(",")[:2] for line in result.stdout.splitlines()] == [
        ["user", "starts"],
        ["ann", "10"],
        ["'=cmd('🦀')", "1"],
    ]


def test_control_characters_are_escaped(debug_port: DebugPort) -> None:
    nasty = wait("g", DAY, 1, queue="q", user="a\nb\x1b[2J")
    result = report([nasty], Period.parse("user", "2026-11-27", "", DAY + HOUR))
    assert (
        output_of("--debug-address", debug_port(history=lambda **_: result), "--by", "user")
        .splitlines()[3]
        .startswith("a\\nb\\x1b[2J  ")
    )


def nowhere() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


INSTANTS = "must be how long ago, such as 7d, 12h or 30m, or a date or timestamp, such as 2026-11-01"


@each_of(
    (["--since", "yesterday"], f"--since: invalid value 'yesterday': {INSTANTS}"),
    (["--since", "9" * 20 + "d"], f"--since: invalid value '{'9' * 20}d': {INSTANTS}"),
    (["--since", "-7d"], f"--since: invalid value '-7d': {INSTANTS}"),
    (["--until", "1x"], f"--until: invalid value '1x': {INSTANTS}"),
    (["--until", "2999-01-01"], "--until: invalid value '2999-01-01': must be in the past"),
    (["--since", "1h", "--until", "2h"], "--since: invalid value '1h': must be before 2h"),
    (["--by", "pod"], "'pod' is not one of 'queue', 'user', 'namespace'"),
    (["-o", "xml"], "'xml' is not one of 'table', 'wide', 'csv', 'json', 'yaml'"),
    (["--debug-address", "here"], "'here': must be an address"),
)
def test_the_error_for_an_invalid_flag_names_the_allowed_values(arguments: list[str], says: str) -> None:
    result = muster(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    faults = []
    for spoil in (lambda: None, lambda: path.write_bytes(b"junk" * 999), path.unlink, lambda: other(path)):
        spoil()
        result = muster("--history", path)
        assert (result.exit_code, result.stdout) == (2, "")
        faults.append(result.stderr.partition("Error: ")[2].strip())
    none = f"--history: {path}: there is no such file"
    junk = f"--history: {path}: file is not a database"
    assert faults[:3] == [none, junk, none]
    assert faults[3].startswith(f"--history: {path}: ")
    assert faults[3] not in (none, junk)


def other(path: Path) -> None:
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("CREATE TABLE t (x)")


def test_the_error_names_a_missing_port_or_another_program(debug_port: DebugPort) -> None:
    result = muster("--debug-address", nowhere())
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no debug port at 127.0.0.1:" in result.stderr
    result = muster("--debug-address", debug_port(history=lambda **_: {"hello": "world"}))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the answer is not of a debug port of this version" in result.stderr
