"""What `muster run -o json` prints: the outcome by group, queue, pod and node."""

import msgspec

from extender.api.quantities import Quantity

Written = dict[str, Quantity]


class QueueSummary(msgspec.Struct, frozen=True):
    name: str
    state: str
    weight: int
    deserved: Written
    allocated: Written
    share: float


class GroupSummary(msgspec.Struct, frozen=True, rename="camel"):
    """`reason`: why it waits, or why members of it do; empty: none of them waits.
    `bound`: members on nodes."""

    namespace: str
    name: str
    queue: str
    phase: str
    reason: str
    min_member: int
    bound: int


class PodSummary(msgspec.Struct, frozen=True, rename="camel"):
    """`pod_group`: the group that it names, whether it exists or not. `reason`: why it has no node."""

    namespace: str
    name: str
    pod_group: str
    phase: str
    reason: str
    node: str


class NodeSummary(msgspec.Struct, frozen=True):
    name: str
    allocatable: Written
    used: Written


class ClusterReport(msgspec.Struct, frozen=True, rename="camel"):
    pod_groups: list[GroupSummary]
    queues: list[QueueSummary]
    pods: list[PodSummary]
    nodes: list[NodeSummary]
