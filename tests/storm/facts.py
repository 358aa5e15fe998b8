"""Facts for the second judge: one for each event of a watch, decoded without code of the first judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Json = dict[str, Any]
Load = dict[str, int]  # in billionths, the precision of quantities
BILLION = 10**9
SCHEDULERS = ("muster", "volcano")
GROUP_ANNOTATION, QUEUE_ANNOTATION = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name"
TASK_ANNOTATION = "volcano.sh/task-spec"
LEVEL_ANNOTATION = "kube-muster.io/required-topology"
ENDED = ("Succeeded", "Failed")
UNITS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@dataclass(frozen=True)
class Fact:
    """State of an object after an event. `version` orders facts of all kinds; `at`: when it arrived."""

    version: int
    at: float
    name: str
    gone: bool


@dataclass(frozen=True)
class PodFact(Fact):
    uid: str
    scheduler: str
    group: str  # `namespace/name`, or empty
    queue: str  # named by the pod itself
    task: str
    node: str
    phase: str
    requests: Load
    evicted: bool  # it has the condition of an eviction, which a deletion by a user does not set
    level: str = ""  # node label with the same value for all pods of its task
    is_terminating: bool = False

    @property
    def is_ours(self) -> bool:
        return self.scheduler in SCHEDULERS

    @property
    def holds_capacity(self) -> bool:
        return bool(self.node) and not self.gone and self.phase not in ENDED

    @property
    def is_pending(self) -> bool:
        return not self.node and not self.gone and self.phase not in ENDED

    @property
    def counts_as_member(self) -> bool:
        return self.holds_capacity or (self.phase == "Succeeded" and not self.gone)

    @property
    def has_run(self) -> bool:
        return self.counts_as_member and self.phase in ("Running", "Succeeded")


@dataclass(frozen=True)
class NodeFact(Fact):
    allocatable: Load
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupFact(Fact):
    min_member: int
    tasks: Mapping[str, int]
    queue: str


@dataclass(frozen=True)
class QueueFact(Fact):
    parent: str
    capability: Load | None
    is_reclaimable: bool  # its spec allows evictions of its groups for other groups


def amount(text: Any) -> int:
    """Return a quantity in billionths."""
    string = str(text)
    if string.endswith("i"):
        return _billionths(string[:-2], 0) << 10 * ("KMGTPE".index(string[-2]) + 1)
    if string[-1:] in UNITS:
        return _billionths(string[:-1], UNITS[string[-1]])
    return _billionths(string, 0)


def _billionths(number: str, power: int) -> int:
    return int(Decimal(number).scaleb(power + 9))


def load(amounts: Json | None) -> Load:
    return {name: amount(value) for name, value in (amounts or {}).items()}


def sum_of(first: Load, second: Load) -> Load:
    return {name: first.get(name, 0) + second.get(name, 0) for name in first | second}


def pod_fact(item: Json, is_deleted: bool, version: int, at: float) -> PodFact:
    """Return the fact of a pod. Pods of storms have neither init containers nor an overhead."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status", {})
    annotations = meta.get("annotations") or {}
    requests: Load = {"pods": BILLION}
    for container in spec["containers"]:
        requests = sum_of(requests, load(container.get("resources", {}).get("requests")))
    return PodFact(
        version,
        at,
        f"{meta['namespace']}/{meta['name']}",
        is_deleted,
        uid=meta["uid"],
        scheduler=spec.get("schedulerName", ""),
        group=f"{meta['namespace']}/{annotations[GROUP_ANNOTATION]}"
        if annotations.get(GROUP_ANNOTATION)
        else "",
        queue=annotations.get(QUEUE_ANNOTATION, ""),
        task=annotations.get(TASK_ANNOTATION, ""),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        requests=requests,
        evicted=any(
            condition["type"] == "DisruptionTarget" and condition["status"] == "True"
            for condition in status.get("conditions") or ()
        ),
        level=annotations.get(LEVEL_ANNOTATION, ""),
        is_terminating="deletionTimestamp" in meta,
    )


def node_fact(item: Json, is_deleted: bool, version: int, at: float) -> NodeFact:
    allocatable = load(item.get("status", {}).get("allocatable"))
    meta = item["metadata"]
    return NodeFact(version, at, meta["name"], is_deleted, allocatable, meta.get("labels") or {})


def group_fact(item: Json, is_deleted: bool, version: int, at: float) -> GroupFact:
    meta, spec = item["metadata"], item.get("spec", {})
    name = f"{meta['namespace']}/{meta['name']}"
    tasks = spec.get("minTaskMember") or {}
    return GroupFact(
        version, at, name, is_deleted, spec.get("minMember", 1), tasks, spec.get("queue") or "default"
    )


def queue_fact(item: Json, is_deleted: bool, version: int, at: float) -> QueueFact:
    spec = item.get("spec", {})
    maximum = load(spec["capability"]) if spec.get("capability") else None
    within_queue = spec.get("preemption", {}).get("withinQueue")
    is_reclaimable = spec.get("reclaimable", True) or within_queue != "Never"
    return QueueFact(
        version, at, item["metadata"]["name"], is_deleted, spec.get("parent", ""), maximum, is_reclaimable
    )
