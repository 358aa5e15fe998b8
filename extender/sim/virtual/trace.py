"""Trace files: CSV with a header, one row for members of a group that are alike (docs/simulate.md).

Several rows may add to one group: roles of different sizes. All faults are reported, each as FILE:LINE.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from extender.api import keys
from extender.api.durations import as_duration
from extender.api.keys import GPU
from extender.api.objects.base import Meta
from extender.api.objects.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from extender.api.objects.queues import PodGroup, PodGroupSpec, Queue, QueueSpec
from extender.api.quantities import BadQuantity, at_least
from extender.sim.virtual.workload import GroupArrival, InvalidWorkload, PodArrival, VirtualWorkload, stamp

_MOST_FAULTS = 20


class Row(NamedTuple):
    """`min_member` adds to that of the group; `seconds` None: it never ends; `declared`: by its owner."""

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


class TraceLine(NamedTuple):
    number: int
    cells: list[str]


class TraceColumn(NamedTuple):
    allowed: str
    read: Callable[[str], Any]
    required: bool = False


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,7}", text) is None or int(text) < 1:
        raise ValueError(text)
    return int(text)


def _name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", text, re.ASCII) is None:
        raise ValueError(text)
    return text


def _quantity(text: str) -> str:
    if at_least(text) < 0:
        raise ValueError(text)
    return text


_SECONDS, _NAME = "seconds, 0 or more", "a name of letters, digits, '-', '_' and '.'"
_QUANTITY = TraceColumn("a quantity such as 500m, 2 or 16Gi", _quantity)
COLUMNS = {
    "arrival": TraceColumn(_SECONDS, _seconds, required=True),
    "group": TraceColumn(_NAME, _name, required=True),
    "queue": TraceColumn(_NAME, _name),
    "namespace": TraceColumn(_NAME, _name),
    "members": TraceColumn("a whole number of at least 1", _count),
    "minMember": TraceColumn("a whole number of at least 1", _count),
    "seconds": TraceColumn(_SECONDS, _seconds),
    "declared": TraceColumn(_SECONDS, _seconds),
    "priority": TraceColumn("a whole number", int),
    "cpu": _QUANTITY,
    "memory": _QUANTITY,
    "gpu": _QUANTITY,
}
_RESOURCES = ("cpu", "memory", "gpu")


def read(path: Path) -> list[Row]:
    """Raises InvalidWorkload."""
    faults: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path, _content(file), faults))
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        cause = getattr(fault, "strerror", None) or fault
        raise InvalidWorkload(f"{path}: cannot be read: {cause}") from fault
    if not faults and not rows:
        faults = [f"{path}: no rows in there"]
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise InvalidWorkload("\n".join(faults[:_MOST_FAULTS] + more))
    return rows


def _content(lines: Iterable[str]) -> Iterator[TraceLine]:
    """Lines that are neither empty nor a comment."""
    reader = csv.reader(lines, skipinitialspace=True)
    for given in reader:
        cells = [cell.strip() for cell in given]
        if any(cells) and not cells[0].startswith("#"):
            yield TraceLine(reader.line_num, cells)


def _rows(path: Path, content: Iterator[TraceLine], faults: list[str]) -> Iterator[Row]:
    head = next(content, TraceLine(1, []))
    faults += [f"{path}:{head.number}: {fault}" for fault in _header_faults(head.cells)]
    queues: dict[tuple[str, str], str] = {}
    for line in content if not faults else ():
        new: list[str] = []
        row = _row(head.cells, line.cells, new)
        if row is not None:
            first = queues.setdefault((row.namespace, row.group), row.queue)
            if first != row.queue:
                new.append(f"queue: got {row.queue!r}; group {row.group} is in {first!r}")
            yield row
        faults += [f"{path}:{line.number}: {fault}" for fault in new]


def _header_faults(header: Sequence[str]) -> Iterator[str]:
    allowed = ", ".join(COLUMNS)
    for name in header:
        if name not in COLUMNS and "/" not in name:
            yield f"column {name!r}: unknown; allowed are {allowed} and names of resources with a '/'"
        if header.count(name) > 1:
            yield f"column {name!r}: there is more than one"
    for name, column in COLUMNS.items():
        if column.required and name not in header:
            yield f"column {name!r}: missing"


def _row(header: Sequence[str], cells: Sequence[str], faults: list[str]) -> Row | None:
    if len(cells) != len(header):
        faults.append(f"got {len(cells)} cells; the header has {len(header)}")
        return None
    values: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        column = COLUMNS.get(name, _QUANTITY)
        try:
            if cell or column.required:
                values[name] = column.read(cell)
        except (ValueError, BadQuantity):
            faults.append(f"{name}: got {cell[:60]!r}; allowed is {column.allowed}")
    return None if faults else _made(values, faults)


def _made(values: dict[str, Any], faults: list[str]) -> Row | None:
    members = values.get("members", 1)
    needed = values.get("minMember", members)
    if needed > members:
        faults.append(f"minMember: got {needed}; allowed is at most the {members} members of the row")
        return None
    resources = [name for name in values if name in _RESOURCES or "/" in name]
    return Row(
        arrival=values["arrival"],
        group=values["group"],
        members=members,
        min_member=needed,
        seconds=values.get("seconds"),
        requests={GPU if name == "gpu" else name: values[name] for name in resources},
        queue=values.get("queue", "default"),
        namespace=values.get("namespace", "default"),
        priority=values.get("priority", 0),
        declared=values.get("declared"),
    )


SCHEDULER = "muster"
_PENDING = PodStatus("Pending")


def from_rows(rows: Sequence[Row], known: Iterable[Queue], weights: Mapping[str, int]) -> VirtualWorkload:
    """Queues that are not `known` are made, of weight 1 unless `weights` says otherwise."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.namespace}/{row.group}", []).append(row)
    there = {queue.metadata.name for queue in known}
    new = [name for name in dict.fromkeys(row.queue for row in rows) if name not in there]
    return VirtualWorkload(
        queues=tuple(Queue(Meta(name), QueueSpec(weights.get(name, 1))) for name in new),
        groups=tuple(_group(key, of_group) for key, of_group in groups.items()),
        members=tuple(chain.from_iterable(_members(key, of_group) for key, of_group in groups.items())),
    )


def _group(key: str, rows: Sequence[Row]) -> GroupArrival:
    at, first = min(row.arrival for row in rows), rows[0]
    declared = [row.declared for row in rows if row.declared is not None]
    notes = {keys.RUN_TIME: as_duration(max(declared))} if declared else None
    meta = Meta(first.group, first.namespace, f"group {key}", creation_timestamp=stamp(at), annotations=notes)
    spec = PodGroupSpec(sum(row.min_member for row in rows), queue=first.queue)
    return GroupArrival(at, PodGroup(meta, spec))


def _members(key: str, rows: Iterable[Row]) -> Iterator[PodArrival]:
    """Numbered across rows; those of one row share their spec and annotations."""
    first = 0
    for row in rows:
        container = Container(ResourceRequirements(dict(row.requests)))
        spec = PodSpec([container], scheduler_name=SCHEDULER, priority=row.priority)
        annotations, created = {keys.GROUP_ANNOTATION: row.group}, stamp(row.arrival)
        for number in range(first, first + row.members):
            name, uid = f"{row.group}-{number}", f"{key}-{number}"
            meta = Meta(name, row.namespace, uid, creation_timestamp=created, annotations=annotations)
            yield PodArrival(row.arrival, Pod(meta, spec, _PENDING), row.seconds)
        first += row.members
