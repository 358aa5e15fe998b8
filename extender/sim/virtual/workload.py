"""What a simulation starts from: the cluster, and when pods and groups come and how long they run."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import NamedTuple

import msgspec

from extender.api.objects.cluster import Namespace, Node, PriorityClass, Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, PodGroup, Queue, ResourceFlavor
from extender.api.workloads.pod_sets import annotation_paths
from extender.api.workloads.runtimes import RuntimeName
from extender.api.workloads.table import WORKLOADS
from extender.domain.model.ownership import group_of
from extender.domain.model.records import GroupKey
from extender.domain.snapshot import job_suspension
from extender.domain.snapshot.jobs import AnyJob, JobKind
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.patches import json_patched
from extender.sim.files.unasked import Unasked

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_LAST = 2.5e11  # seconds; no later date can be written


class InvalidWorkload(ValueError):
    """What has to be corrected, a line for each fault."""


class PodArrival(NamedTuple):
    """A pod that comes at a second; it runs for `runs` seconds (None: endless), then succeeds or fails."""

    at: float
    pod: Pod
    runs: float | None
    fails: bool = False


class GroupArrival(NamedTuple):
    """A PodGroup that comes at a second."""

    at: float
    group: PodGroup

    @property
    def key(self) -> GroupKey:
        return GroupKey(f"{self.group.metadata.namespace}/{self.group.metadata.name}")


class JobArrival(NamedTuple):
    """A suspended job, which comes with its PodGroup. `pods`: those that it makes, if it starts with all.
    `runtime`: what has its templates, if it has none itself."""

    object: Json
    unit: GroupArrival
    pods: tuple[PodArrival, ...]
    runtime: tuple[RuntimeName, Json] | None = None

    @property
    def kind(self) -> JobKind:
        return JobKind(self.object["apiVersion"], self.object["kind"])

    @property
    def waiting(self) -> AnyJob:
        return msgspec.convert(self.object, AnyJob)

    def let_go(self, second: float, reduced_to: int | None) -> AnyJob:
        """As Muster changes it to let it start; `reduced_to`: with so many pods, None: with all."""
        obj, row = self.object, WORKLOADS[self.kind]
        paths, name = annotation_paths(row, obj), self.unit.group.metadata.name
        operations = job_suspension.unsuspend(obj, row, paths, name, stamp(second), reduced_to)
        return msgspec.convert(json_patched(obj, operations), AnyJob)


class VirtualWorkload(msgspec.Struct, frozen=True):
    """`quotas`: ResourceQuotas, of which nothing is used; `entering`: namespaces, each with the queue of its
    quota; `owners` and `makers`: the controllers of pods, among them jobs; `unasked`: what Muster is
    not asked to start; `notes`: what is to be told of the files."""

    nodes: tuple[Node, ...] = ()
    flavors: tuple[ResourceFlavor, ...] = ()
    queues: tuple[Queue, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    quotas: tuple[Json, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    entering: tuple[tuple[str, str], ...] = ()
    owners: tuple[Workload, ...] = ()
    makers: tuple[tuple[JobKind, AnyJob], ...] = ()
    groups: tuple[GroupArrival, ...] = ()
    members: tuple[PodArrival, ...] = ()
    jobs: tuple[JobArrival, ...] = ()
    unasked: tuple[Unasked, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def all_members(self) -> Iterator[PodArrival]:
        """Also those that jobs make later."""
        return chain(self.members, *(job.pods for job in self.jobs))

    def __add__(self, other: "VirtualWorkload") -> "VirtualWorkload":
        fields = self.__struct_fields__
        return VirtualWorkload(*(getattr(self, field) + getattr(other, field) for field in fields))


def key_of_group(pod: Pod) -> GroupKey:
    return GroupKey(f"{pod.metadata.namespace}/{group_of(pod, auto_groups=True)[0]}")


def stamp(second: float) -> str:
    """A creation timestamp: policy goes by age, to the second, up to the last that can be written."""
    return (BEGIN + timedelta(seconds=min(second, _LAST))).strftime("%Y-%m-%dT%H:%M:%SZ")
