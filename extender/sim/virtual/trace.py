"""Traces: CSV files (docs/how-to/simulate.md), or generated ones. A row stands for equal members of a group.

Several rows may describe one group, with roles of different sizes. All faults of files are reported, each as
FILE:LINE. Equal seeds generate equal traces.
"""

import csv
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from extender.api import keys
from extender.api.keys import GPU
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from extender.api.objects.queues import PodGroup, PodGroupSpec, Queue, QueueSpec
from extender.api.units import BadQuantity, and_more, as_duration, rounded_up
from extender.sim.virtual.workload import GroupArrival, InvalidWorkload, PodArrival, VirtualWorkload

_MAX_FAULTS = 20


class Row(NamedTuple):
    """Row of a trace.

    `min_member` counts only the row's part of the group's minimum. `declared` is the run time that users
    state. `seconds` is the real run time; None means no end.
    """

    arrival: float
    group: str
    members: int
    min_member: int
    seconds: float | None = None
    requests: Mapping[str, str] = {}
    queue: str = "default"
    namespace: str = "default"
    priority: int = 0
    declared: float | None = None


class TraceColumn(NamedTuple):
    """Column of a trace. `parse` returns the value of a text.

    `is_valid` returns whether a text is valid. For an invalid text, it can also raise ValueError.
    """

    allowed_values: str
    is_valid: Callable[[str], object]
    parse: Callable[[str], Any] = str


_SECONDS = TraceColumn("seconds, 0 or more", lambda text: 0 <= float(text) < math.inf, float)
_NAME = TraceColumn(
    "a name of letters, digits, '-', '_' and '.'",
    re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII).fullmatch,
)
_COUNT = TraceColumn(
    "a whole number of at least 1", lambda text: re.fullmatch(r"[0-9]{1,7}", text) and int(text) >= 1, int
)
_QUANTITY = TraceColumn("a quantity such as 500m, 2 or 16Gi", lambda text: rounded_up(text) >= 0)
COLUMNS = {
    "arrival": _SECONDS,
    "group": _NAME,
    "queue": _NAME,
    "namespace": _NAME,
    "members": _COUNT,
    "minMember": _COUNT,
    "seconds": _SECONDS,
    "declared": _SECONDS,
    "priority": TraceColumn("a whole number", lambda _: True, int),
    "cpu": _QUANTITY,
    "memory": _QUANTITY,
    "gpu": _QUANTITY,
}
_REQUIRED_COLUMNS = ("arrival", "group")
_RESOURCE_COLUMNS = ("cpu", "memory", "gpu")


def read(path: Path) -> list[Row]:
    """Return the rows of a trace.

    Raises:
        InvalidWorkload: The file cannot be read, or a row is invalid.
    """
    faults: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path, file, faults))
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        cause = getattr(fault, "strerror", None) or fault
        raise InvalidWorkload(f"{path}: cannot be read: {cause}") from fault
    if not faults and not rows:
        faults = [f"{path}: no rows in there"]
    if faults:
        raise InvalidWorkload("\n".join(faults[:_MAX_FAULTS] + and_more(len(faults) - _MAX_FAULTS)))
    return rows


def _rows(path: Path, file: Iterable[str], faults: list[str]) -> Iterator[Row]:
    reader = csv.reader(file, skipinitialspace=True)
    stripped = (list(map(str.strip, cells_of_row)) for cells_of_row in reader)
    content = (cells for cells in stripped if any(cells) and not cells[0].startswith("#"))
    head = next(content, [])
    line = reader.line_num if head else 1
    faults += [f"{path}:{line}: {fault}" for fault in _header_faults(head)]
    queues: dict[tuple[str, str], str] = {}
    for cells in content if not faults else ():
        row_faults: list[str] = []
        row = _row(head, cells, row_faults)
        if row is not None:
            first_queue = queues.setdefault((row.namespace, row.group), row.queue)
            if first_queue != row.queue:
                reason = f"group {row.group} is in {first_queue!r}"
                row_faults.append(f"queue: invalid value {row.queue!r}: {reason}")
            yield row
        faults += [f"{path}:{reader.line_num}: {fault}" for fault in row_faults]


def _header_faults(header: Sequence[str]) -> Iterator[str]:
    allowed = ", ".join(COLUMNS)
    for name in header:
        if name not in COLUMNS and "/" not in name:
            yield f"column {name!r}: unknown: must be {allowed} or the name of a resource with a '/'"
        if header.count(name) > 1:
            yield f"column {name!r}: there is more than one"
    yield from (f"column {name!r}: missing" for name in _REQUIRED_COLUMNS if name not in header)


def _row(header: Sequence[str], cells: Sequence[str], faults: list[str]) -> Row | None:
    if len(cells) != len(header):
        faults.append(f"{len(cells)} cells; the header has {len(header)}")
        return None
    values: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        column = COLUMNS.get(name, _QUANTITY)
        if cell or name in _REQUIRED_COLUMNS:
            try:
                fits = column.is_valid(cell)
                values[name] = column.parse(cell)
            except (ValueError, BadQuantity):
                fits = False
            if not fits:
                faults.append(f"{name}: invalid value {cell[:60]!r}: must be {column.allowed_values}")
    if faults:
        return None
    members = values.get("members", 1)
    needed = values.get("minMember", members)
    if needed > members:
        faults.append(f"minMember: invalid value {needed}: must be at most the {members} members of the row")
        return None
    resources = [name for name in values if name in _RESOURCE_COLUMNS or "/" in name]
    requests = {GPU if name == "gpu" else name: values[name] for name in resources}
    fields = {name: value for name, value in values.items() if name in Row._fields}
    return Row(**{**fields, "members": members, "min_member": needed, "requests": requests})


def from_rows(rows: Sequence[Row], queues: Iterable[Queue], weights: Mapping[str, int]) -> VirtualWorkload:
    """Return the workload of rows.

    Each queue that the rows name exists in `queues`, or is created. The weight of a new queue is in
    `weights`; else it is 1. The members of a group are numbered. Members of one row share their spec and
    annotations.
    """
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        groups[f"{row.namespace}/{row.group}"].append(row)
    arrivals: list[GroupArrival] = []
    pending_status = PodStatus("Pending")
    members: list[PodArrival] = []
    for key, group_rows in groups.items():
        at, first, numbers = min(row.arrival for row in group_rows), group_rows[0], count()
        declared = [row.declared for row in group_rows if row.declared is not None]
        group_annotations = {keys.RUN_TIME: as_duration(max(declared))} if declared else None
        meta = Meta(first.group, first.namespace, f"group {key}", annotations=group_annotations)
        spec = PodGroupSpec(sum(row.min_member for row in group_rows), queue=first.queue)
        arrivals.append(GroupArrival(at, PodGroup(meta, spec)))
        owners = [OwnerReference("batch/v1", "Job", first.group, f"job {key}", controller=True)]
        for row in group_rows:
            container = Container(ResourceRequirements(dict(row.requests)))
            pod_spec = PodSpec([container], scheduler_name="muster", priority=row.priority)
            annotations = {keys.GROUP_ANNOTATION: row.group}
            for number in islice(numbers, row.members):
                name, uid = f"{row.group}-{number}", f"{key}-{number}"
                pod_meta = Meta(name, row.namespace, uid, annotations=annotations, owner_references=owners)
                members.append(PodArrival(row.arrival, Pod(pod_meta, pod_spec, pending_status), row.seconds))
    existing_names = {queue.metadata.name for queue in queues}
    missing_names = [name for name in dict.fromkeys(row.queue for row in rows) if name not in existing_names]
    return VirtualWorkload(
        queues=tuple(Queue(Meta(name), QueueSpec(weights.get(name, 1))) for name in missing_names),
        groups=tuple(arrivals),
        members=tuple(members),
    )


# ---- synthetic traces: gangs for five queues, or jobs of 20 teams, five in each of four departments
#
# The load is slightly above the capacity, so there is contention nearly all the time. Sizes and run times of
# jobs are heavy-tailed, as in real clusters: most jobs are small and short, and a few hold most of the
# capacity. Two of three owners declare a run time, some of them a wrong one.


WEIGHTS = {"research": 5, "training": 4, "serving": 3, "reports": 2, "adhoc": 1}
_MIN_SECONDS, _MAX_SECONDS = 60, 1800
_MIN_GANGS = 8  # a gang takes at most an eighth of the cluster


class ClusterSize(NamedTuple):
    """Size of a cluster of equal nodes, in whole cpus."""

    nodes: int
    cpus: int

    @property
    def total(self) -> int:
        return self.nodes * self.cpus


def gang_rows(pods: int, capacity: ClusterSize, seed: int) -> list[Row]:
    """Return rows of gangs with `pods` pods in all, in order of arrival."""
    rng, remaining = random.Random(seed), pods
    rows: list[Row] = []
    while remaining:
        cpus = rng.choice([count for count in (1, 2, 4) if count <= capacity.cpus] or [1])
        max_size = max(1, min(remaining, capacity.total // cpus // _MIN_GANGS))
        size = min(rng.choice((1, 2, 4, 8, 16, 32, 64, 128)), max_size)
        seconds = _MIN_SECONDS * (_MAX_SECONDS / _MIN_SECONDS) ** rng.random()  # log-uniform
        requests = {"cpu": str(cpus), "memory": f"{cpus * rng.choice((1, 2, 3))}Gi"}
        queue = rng.choice(list(WEIGHTS))
        rows.append(Row(0.0, f"gang-{len(rows)}", size, size, float(round(seconds)), requests, queue))
        remaining -= size
    return _spread_arrivals(rows, capacity, load=1.25, step=1.0, rng=rng)


def _spread_arrivals(
    rows: list[Row], capacity: ClusterSize, load: float, step: float, rng: random.Random
) -> list[Row]:
    """Return the rows with arrivals at multiples of `step` seconds.

    The arrivals span a time in which the rows request `load` times the work that the cluster can do.
    """
    work = sum(row.members * int(row.requests["cpu"]) * (row.seconds or 0.0) for row in rows)
    span = work / capacity.total / load
    arrivals = sorted(rng.uniform(0, span) // step * step for _ in rows)
    return [row._replace(arrival=at) for row, at in zip(rows, arrivals, strict=True)]


_DEPARTMENTS = {"research": 4, "products": 3, "platform": 2, "labs": 1}
_TEAMS = {"a": 3, "b": 2, "c": 1, "d": 1, "e": 1}
_SIZE_TAIL, _TIME_TAIL = 1.1, 1.2  # exponents of Pareto distributions
_MIN_JOB_SECONDS, _MAX_JOB_SECONDS = 60.0, 14_400.0  # seconds
_STEP = 10.0  # seconds; jobs arrive and end only at its multiples, which makes few events
_DECLARED_FACTORS = (None, None, 1.0, 1.0, 2.0, 0.5)  # declared run time, as a multiple of the real run time


def team_queues() -> list[Queue]:
    """Return the queues of teams, parents first."""
    queues = [Queue(Meta(name), QueueSpec(weight)) for name, weight in _DEPARTMENTS.items()]
    for parent in _DEPARTMENTS:
        for team, weight in _TEAMS.items():
            queues.append(Queue(Meta(f"{parent}-{team}"), QueueSpec(weight, parent=parent)))
    return queues


def job_rows(jobs: int, capacity: ClusterSize, seed: int) -> list[Row]:
    """Return the rows of `jobs` generated jobs, in order of arrival."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for number in range(jobs):
        cpus = min(rng.choice((1, 1, 2, 4)), capacity.cpus)
        max_size = max(1, capacity.total // cpus // _MIN_GANGS)
        size = min(int(rng.paretovariate(_SIZE_TAIL)), max_size)
        seconds = min(_MIN_JOB_SECONDS * rng.paretovariate(_TIME_TAIL), _MAX_JOB_SECONDS) // _STEP * _STEP
        factor = rng.choice(_DECLARED_FACTORS)
        requests = {"cpu": str(cpus), "memory": f"{2 * cpus}Gi"}
        queue = rng.choice([f"{parent}-{team}" for parent in _DEPARTMENTS for team in _TEAMS])
        priority = rng.choice((0, 0, 0, 0, 0, 0, 0, 10, 10, 100))
        declared = None if factor is None else seconds * factor
        row = Row(0.0, f"job-{number}", size, size, seconds, requests, queue)
        rows.append(row._replace(priority=priority, declared=declared))
    return _spread_arrivals(rows, capacity, load=1.1, step=_STEP, rng=rng)
