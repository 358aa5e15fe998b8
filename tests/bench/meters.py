"""Meters of a run: CPU time and memory from /proc, and requests and scheduling times from /metrics."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.api_connection import ApiConnection
from tests.e2e.harness import probes
from tests.e2e.harness.client import Access

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_REQUESTS_METRIC = "apiserver_request_total"
_ENDLESS_VERBS = ("WATCH", "CONNECT")


def family(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    children: dict[int, list[int]] = {}
    for descendant, fields in _process_stats():
        children.setdefault(int(fields[1]), []).append(descendant)
    pids = [pid]
    for descendant in pids:
        pids += children.get(descendant, [])
    return pids


def _process_stats() -> Iterator[tuple[int, list[str]]]:
    """Yield each process id with the fields of its stat file after the program name.

    The program name may contain any characters.
    """
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except OSError:  # The process has just ended.
            continue


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its living descendants."""
    members = set(family(pid))
    return (
        sum(int(fields[11]) + int(fields[12]) for process, fields in _process_stats() if process in members)
        / _TICKS_PER_SECOND
    )


def cpu_microseconds(pid: int) -> float:
    """Return the CPU time of all living threads of a process and its descendants.

    The time has the precision of the kernel, for short measurements.
    """
    threads = (path for process in family(pid) for path in Path(f"/proc/{process}/task").glob("*/schedstat"))
    return sum(int(path.read_text().split()[0]) for path in threads) / 1000


def megabytes(pid: int) -> float:
    """Return the current resident memory of the largest process among a process and its descendants."""
    return max(_memory_megabytes(process, "VmRSS:") for process in family(pid))


def peak_megabytes(pid: int) -> float:
    """Return the largest resident memory that a process or one of its descendants has ever had."""
    return max(_memory_megabytes(process, "VmHWM:") for process in family(pid))


def _memory_megabytes(pid: int, name: str) -> float:
    """Return a memory figure of a process in MB. `name` is a field of its status file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


def api_requests(access: Access) -> Counter[str]:
    """Return the number of requests that the API server has answered, by verb, resource and subresource."""
    counts: Counter[str] = Counter()
    text = ApiConnection.to(access).expect_success("GET", "/metrics").decode()
    lines = "\n".join(line for line in text.splitlines() if line.startswith(_REQUESTS_METRIC))
    for sample, value in probes.samples(lines).items():
        verb, resource, sub = (_label(sample, name) for name in ("verb", "resource", "subresource"))
        if verb not in _ENDLESS_VERBS and resource:
            counts[f"{verb} {resource}{'/' if sub else ''}{sub}"] += int(value)
    return counts


def _label(sample: str, name: str) -> str:
    """Return the value of a label of a sample, or "" without the label."""
    return sample.partition(f'{name}="')[2].partition('"')[0]


@dataclass(frozen=True)
class Reading:
    """Values of all meters at one time. The difference of two readings is the cost of a run."""

    cpu: Mapping[str, float]
    requests: Counter[str]
    algorithm_seconds: float
    attempts: float

    def __sub__(self, before: "Reading") -> "Reading":
        return Reading(
            {name: used - before.cpu[name] for name, used in self.cpu.items()},
            self.requests - before.requests,
            self.algorithm_seconds - before.algorithm_seconds,
            self.attempts - before.attempts,
        )


def read(access: Access, processes: Mapping[str, int], scheduler: Mapping[str, float]) -> Reading:
    """Read all meters.

    `processes` has the process ids by name. `scheduler` has the samples of the scheduler's /metrics.
    """
    name = "scheduler_scheduling_algorithm_duration_seconds"
    return Reading(
        {process: cpu_seconds(pid) for process, pid in processes.items()},
        api_requests(access),
        scheduler.get(f"{name}_sum", 0.0),
        scheduler.get(f"{name}_count", 0.0),
    )
