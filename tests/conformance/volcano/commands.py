"""Commands of queues, typed as vcctl takes them, against an API server over HTTP.

Tables are compared column by column. The order and the width of the columns are kubectl's, and are not
compared.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.cli.cluster import Cluster
from tests.conformance.cases import Case
from tests.conformance.verdicts import NoCounterpart

_REASONS = {
    "name-required": "NAME: required value",
    "action-required": "--action: required value",
    "action-unknown": "--action: invalid value '",
    "weight-required": "--weight: required value",
}


def check_command(case: Case) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        cluster.server.start()
        try:
            yield from _check(cluster, case)
        finally:
            cluster.server.stop()


def _check(cluster: Cluster, case: Case) -> Iterator[str]:
    match case.input["command"]:
        case "operate" | "get" as command:
            yield from _check_result(cluster, command, case)
        case "list":
            yield from _check_table(cluster, case)
        case other:
            raise NoCounterpart(f"command {other}")


def _check_result(cluster: Cluster, command: str, case: Case) -> Iterator[str]:
    flags: Mapping[str, Any] = case.input["flags"]
    if flags.get("name"):
        cluster.queue(flags["name"])
    result = cluster.muster("queue", command, *(f"--{name}={value}" for name, value in flags.items()))
    if (result.exit_code == 0) != case.expect["ok"]:
        yield f"ended with {result.exit_code}, expected {'success' if case.expect['ok'] else 'a refusal'}"
    if reason := case.expect.get("reason"):
        yield from _check_reason(result, reason)


def _check_reason(result: Result, reason: str) -> Iterator[str]:
    if _REASONS[reason] not in result.stderr:
        yield f"error output {result.stderr!r}, expected {reason}"


def _check_table(cluster: Cluster, case: Case) -> Iterator[str]:
    for data in case.input["queues"]:
        _make_queue(cluster, data, case.input.get("counts", {}).get(data["name"], {}))
    for data in case.input.get("podGroups", ()):
        cluster.group(data["name"], data.get("phase", ""), queue=data["queue"])
    head, *rows = map(_cells, cluster.output("queue", "list", "-o", "wide").splitlines())
    columns = case.expect.get("header") or _HEADER
    actual = [[row[head.index(name.upper())] for name in columns] for row in rows]
    if actual != case.expect["rows"]:
        yield f"{columns}: {actual}, expected {case.expect['rows']}"


_HEADER = ["Name", "Weight", "State", "Parent", "Inqueue", "Pending", "Running", "Unknown", "Completed"]


def _make_queue(cluster: Cluster, data: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    spec = {key: data[key] for key in ("weight", "parent") if key in data}
    status: dict[str, Any] = {phase.lower(): count for phase, count in counts.items()}
    if "state" in data:
        status["state"] = data["state"]
    cluster.queue(data["name"], spec, **status)


def _cells(line: str) -> list[str]:
    return re.split(r" {3,}", line)
