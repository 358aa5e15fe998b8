"""Workload of a simulation: the cluster, the arrivals of pods, groups and jobs, and run times."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.objects.base import Meta, Wire
from extender.api.objects.cluster import ClusterTopology, Namespace, Node, PriorityClass, Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, PodGroup, Queue, ResourceFlavor
from extender.api.workloads.pod_sets import annotation_paths
from extender.api.workloads.shape import RuntimeName
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.kinds import Json
from extender.apimachinery.patches import apply_json_patch
from extender.domain.model.ownership import group_of
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources, offered
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.job_start_and_suspension import unsuspend
from extender.domain.snapshot.jobs import AnyJob, JobKind
from extender.domain.snapshot.snapshot import Snapshot
from extender.files.unmanaged_objects import UnmanagedObject

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_MAX_SECONDS = 2.5e11  # seconds after BEGIN; timestamps cannot express later dates


class InvalidWorkload(ValueError):
    """Error: a workload has faults. The message has a line for each fault."""


class PodArrival(NamedTuple):
    """Arrival of a pod. It runs for `run_seconds` seconds (None means forever), then it succeeds or fails."""

    at: float
    pod: Pod
    run_seconds: float | None
    fails: bool = False


class GroupArrival(NamedTuple):
    """Arrival of a PodGroup."""

    at: float
    group: PodGroup

    @property
    def key(self) -> GroupKey:
        return GroupKey(f"{self.group.metadata.namespace}/{self.group.metadata.name}")


class JobArrival(NamedTuple):
    """Arrival of a suspended job with its PodGroup.

    Attributes:
        pods: The job's pods after a full start.
        runtime: The runtime with its templates, if the job has no templates itself.
    """

    object: Json
    podgroup: GroupArrival
    pods: tuple[PodArrival, ...]
    runtime: tuple[RuntimeName, Json] | None = None

    @property
    def kind(self) -> JobKind:
        return JobKind(self.object["apiVersion"], self.object["kind"])

    @property
    def waiting(self) -> AnyJob:
        return msgspec.convert(self.object, AnyJob)

    def unsuspended(self, timestamp: str, reduced_to: int | None) -> AnyJob:
        """Return the job after Muster has unsuspended it.

        `reduced_to` is the number of pods; None means all.
        """
        obj, row = self.object, WORKLOADS[self.kind]
        paths, name = annotation_paths(row, obj), self.podgroup.group.metadata.name
        operations = unsuspend(obj, row, paths, name, timestamp, reduced_to)
        return msgspec.convert(apply_json_patch(obj, operations), AnyJob)


class DumpedState(NamedTuple):
    """Snapshot of a dump.

    `run_seconds` is the run time of pods that declare none; None means that they do not end.
    """

    snapshot: Snapshot
    run_seconds: float | None

    @property
    def groups(self) -> list[GroupInfo]:
        """Return the groups that have not ended."""
        groups = self.snapshot.groups.values()
        return [
            g
            for g in groups
            if g.is_on_nodes or g.assumed_pods or g.waiting_pods or not (g.succeeded or g.failed)
        ]

    def with_strategy(self, strategy: str) -> "DumpedState":
        queues = {
            name: replace(queue, record=replace(queue.record, strategy=strategy))
            for name, queue in self.snapshot.queues.items()
        }
        return self._replace(snapshot=replace(self.snapshot, queues=queues))

    def total_seconds(self, group: GroupInfo) -> float | None:
        """Return the whole run time of a pod of a group; None if it has no end."""
        return self.run_seconds if group.spec.run_time is None else group.spec.run_time

    def remaining_seconds(self, group: GroupInfo) -> float | None:
        """Return the remaining run time of the running pods of a group; None if they have no end."""
        declared = group.spec.run_time
        if declared is None or not group.running_since:
            return self.total_seconds(group)
        return max(declared - (self.snapshot.now - self.snapshot.instant(group.running_since)), 1.0)


class VirtualWorkload(msgspec.Struct, frozen=True):
    """Workload in virtual time.

    Attributes:
        quotas: ResourceQuotas without their usage.
        quota_namespaces: Pairs of a namespace and the queue that its quota makes.
        owners: ReplicaSets and StatefulSets, which own pods.
        controllers: Objects of other kinds for which Muster makes a group, each with its kind.
        ancestors: Direct and indirect owners of pods, each with its kind.
        unmanaged_objects: Objects that Muster is not asked to start.
        notes: Notes about the files, for users.
    """

    nodes: tuple[Node, ...] = ()
    flavors: tuple[ResourceFlavor, ...] = ()
    topologies: tuple[ClusterTopology, ...] = ()
    devices: tuple[Wire, ...] = ()  # DeviceClasses, ResourceSlices, claims and their templates
    queues: tuple[Queue, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    quotas: tuple[Json, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    quota_namespaces: tuple[tuple[str, str], ...] = ()
    owners: tuple[Workload, ...] = ()
    controllers: tuple[tuple[JobKind, AnyJob], ...] = ()
    ancestors: tuple[tuple[str, Meta], ...] = ()
    groups: tuple[GroupArrival, ...] = ()
    members: tuple[PodArrival, ...] = ()
    jobs: tuple[JobArrival, ...] = ()
    unmanaged_objects: tuple[UnmanagedObject, ...] = ()
    notes: tuple[str, ...] = ()
    state: tuple[DumpedState, ...] = ()  # the state of a dump, if any

    @property
    def dumped(self) -> DumpedState | None:
        return self.state[0] if self.state else None

    @property
    def allocatable(self) -> list[Resources]:
        """Return the amounts that each node offers."""
        dumped = self.dumped.snapshot.nodes.nodes if self.dumped else ()
        new_nodes = (offered(node.status.allocatable) for node in self.nodes)
        return [*new_nodes, *(node.allocatable for node in dumped if node is not None)]

    @property
    def queue_names(self) -> list[str]:
        dumped = self.dumped.snapshot.queues if self.dumped else {}
        return [
            *(queue.metadata.name for queue in self.queues),
            *(queue.record.name for queue in dumped.values() if queue.exists),
        ]

    def with_new(self, other: "VirtualWorkload") -> "VirtualWorkload":
        """Return both workloads as one.

        If two queues have the same name, the queue of this workload stays.
        """
        names = self.queue_names
        new_queues = tuple(queue for queue in other.queues if queue.metadata.name not in names)
        return self + replace(other, queues=new_queues)

    @property
    def pod_count(self) -> int:
        """Return the number of pods, including pods that jobs create later."""
        dumped = self.dumped
        groups = dumped.groups if dumped else ()
        of_dump = sum(len(g.placed_pods) + len(g.assumed_pods) + len(g.waiting_pods) for g in groups)
        return of_dump + sum(1 for _ in self.all_members) + (len(dumped.snapshot.other_pods) if dumped else 0)

    def with_strategy(self, strategy: str) -> "VirtualWorkload":
        """Return the same workload with another dequeue strategy for all queues."""
        new = (replace(queue, spec=replace(queue.spec, dequeue_strategy=strategy)) for queue in self.queues)
        state = (dumped.with_strategy(strategy) for dumped in self.state)
        return replace(self, queues=tuple(new), state=tuple(state))

    @property
    def all_members(self) -> Iterator[PodArrival]:
        """Yield the arrivals of all pods, including pods that jobs create later."""
        return chain(self.members, *(job.pods for job in self.jobs))

    def __add__(self, other: "VirtualWorkload") -> "VirtualWorkload":
        fields = self.__struct_fields__
        return VirtualWorkload(*(getattr(self, field) + getattr(other, field) for field in fields))


def key_of_group(pod: Pod) -> GroupKey:
    return GroupKey(f"{pod.metadata.namespace}/{group_of(pod, auto_groups=True)[0]}")


def stamp(second: float) -> str:
    """Return the timestamp of a second of the simulation, or the last possible timestamp.

    A simulation of a dump begins at the time of the dump, and cannot use this function.
    """
    return (BEGIN + timedelta(seconds=min(second, _MAX_SECONDS))).strftime("%Y-%m-%dT%H:%M:%SZ")
