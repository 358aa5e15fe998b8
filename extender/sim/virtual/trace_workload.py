"""A workload made from the rows of a trace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from extender.api import keys
from extender.api.durations import as_duration
from extender.api.objects.base import Meta
from extender.api.objects.groups import PodGroup, PodGroupSpec
from extender.api.objects.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from extender.api.objects.queues import Queue, QueueSpec
from extender.sim.virtual.trace import Row
from extender.sim.virtual.workload import GroupArrival, PodArrival, VirtualWorkload, stamp

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
    meta = Meta(
        first.group, first.namespace, uid=f"group {key}", creation_timestamp=stamp(at), annotations=notes
    )
    return GroupArrival(
        at, PodGroup(meta, PodGroupSpec(sum(row.min_member for row in rows), queue=first.queue))
    )


def _members(key: str, rows: Iterable[Row]) -> Iterator[PodArrival]:
    """Numbered through; those of one row share all that they have in common."""
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
