"""Nodes of the scheduler, the pods on them, and the scheduler's own filters.

The filters have the same order as the messages of the stock scheduler. They use functions of Muster's planner
for selectors, taints, requests and (anti-)affinity. A filter counts the pods that are bound to a node or
assumed there. It also counts the pods that are nominated to the node and have at least the same priority.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from extender.api.objects.cluster import Node, Taint
from extender.api.objects.pods import Pod
from extender.apimachinery.kinds import Json
from extender.apimachinery.objects import typed
from extender.domain.model.resources import CPU, MEMORY, PODS, offered, total
from extender.domain.model.shapes import Shape, Shapes, Term, is_any_port_used, node_taints

PREEMPTION_REASON = "PreemptionByScheduler"


class PodInfo(NamedTuple):
    """Pod on a node, for filters and preemption. `is_leaving` says whether it was preempted."""

    uid: str
    namespace: str
    labels: Mapping[str, str]
    shape: Shape
    priority: int
    started_at: str
    is_leaving: bool


class Nodes:
    """Nodes and their pods. Not thread-safe: callers hold a lock."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self.capacity: dict[str, dict[str, int]] = {}  # allocatable amounts, by node
        self._pods_by_node: dict[str, dict[str, PodInfo]] = {}  # bound and assumed pods, by node and UID
        self._node_by_uid: dict[str, str] = {}  # node of each such pod, by UID
        self._nominations: dict[str, tuple[str, PodInfo]] = {}  # nominated node and pod, by UID
        self._shapes = Shapes()

    # ---- changes

    def set_node(self, obj: Json) -> None:
        node = typed(obj, Node)
        name = node.metadata.name
        self._nodes[name] = node
        self._taints[name] = node_taints(node.spec.taints, node.spec.unschedulable)
        self.capacity[name] = offered(node.status.allocatable)

    def drop_node(self, name: str) -> None:
        for by_name in (self._nodes, self._taints, self.capacity):
            by_name.pop(name, None)

    def place(self, pod: Json, node: str) -> None:
        """Place a pod on its node, or assume it there."""
        pod_info = self.pod_info(pod)
        self.remove(pod_info.uid)
        self.put(pod_info, node)

    def put(self, pod_info: PodInfo, node: str) -> None:
        self._pods_by_node.setdefault(node, {})[pod_info.uid] = pod_info
        self._node_by_uid[pod_info.uid] = node

    def remove(self, uid: str) -> bool:
        """Remove a pod. Return False if the pod was neither on a node nor nominated to a node."""
        nominated = self._nominations.pop(uid, None)
        if node := self._node_by_uid.pop(uid, None):
            del self._pods_by_node[node][uid]
        return bool(node or nominated)

    def nominate(self, pod: Json, node: str = "") -> None:
        """Record the nominated node of a pod, if it has one."""
        node, pod_info = node or pod["status"].get("nominatedNodeName", ""), self.pod_info(pod)
        self._nominations.pop(pod_info.uid, None)
        if node and pod_info.uid not in self._node_by_uid:
            self._nominations[pod_info.uid] = (node, pod_info)

    def pod_info(self, obj: Json) -> PodInfo:
        pod = typed(obj, Pod)
        meta = pod.metadata
        reasons = [condition.get("reason") for condition in obj["status"].get("conditions") or []]
        return PodInfo(
            uid=meta.uid,
            namespace=meta.namespace,
            labels=meta.labels or {},
            shape=self._shapes.shape_of(pod.spec, meta.namespace),
            priority=pod.spec.priority or 0,
            started_at=obj["status"].get("startTime") or "~",  # sorts after every timestamp
            is_leaving="deletionTimestamp" in obj["metadata"] and PREEMPTION_REASON in reasons,
        )

    # ---- queries

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def names(self) -> list[str]:
        return list(self._nodes)

    def admits(self, shape: Shape, name: str) -> bool:
        """Return whether a node's labels and taints admit a shape."""
        return shape.suits(name, self._labels(name), self._taints[name])

    def pods_on(self, name: str) -> list[PodInfo]:
        """Return the pods that are bound to a node or assumed there."""
        return list(self._pods_by_node.get(name, {}).values())

    def pods(self) -> Iterator[tuple[str, PodInfo]]:
        return ((name, pod) for name, on_node in self._pods_by_node.items() for pod in on_node.values())

    def nominated_pods(self, pod: PodInfo, name: str) -> Iterator[PodInfo]:
        """Yield the pods that are nominated to a node and have at least the priority of `pod`."""
        for node, other in self._nominations.values():
            if node == name and other.uid != pod.uid and other.priority >= pod.priority:
                yield other

    def lower_nominated_uids(self, pod: PodInfo, name: str) -> list[str]:
        """Return the UIDs of the pods that are nominated to a node and have a lower priority than `pod`."""
        of_node = [other for node, other in self._nominations.values() if node == name]
        return [other.uid for other in of_node if other.priority < pod.priority]

    def load(self, pod: PodInfo, name: str) -> float:
        """Return how full a node would be with the pod: the mean over cpu and memory, from 0 to 1."""
        used = total(other.shape.requests for other in (*self.pods_on(name), pod))
        capacity = self.capacity[name]
        return sum(used.get(resource, 0) / (capacity.get(resource) or 1) for resource in (CPU, MEMORY)) / 2

    def selected_pods(self, term: Term, names: Iterable[str] | None = None) -> Iterator[PodInfo]:
        """Yield the pods that a term selects on some nodes; None means all nodes."""
        for name in self._nodes if names is None else names:
            yield from (pod for pod in self.pods_on(name) if term.matches(pod.namespace, pod.labels))

    def nodes_of_domain(self, term: Term, name: str) -> list[str]:
        """Return the nodes in the same domain as `name`; empty if that node lacks the topology label."""
        value = self._labels(name).get(term.topology_key)
        if value is None:
            return []
        return [node for node in self._nodes if self._labels(node).get(term.topology_key) == value]

    def _labels(self, name: str) -> Mapping[str, str]:
        return self._nodes[name].metadata.labels or {}


class Rejection(NamedTuple):
    """Reasons why a node does not fit. `is_unresolvable` means that preemption would not help."""

    reasons: tuple[str, ...] = ()
    is_unresolvable: bool = False


_MISMATCH = "node(s) didn't match Pod's node affinity/selector or had untolerated taint(s)"
UNSUITABLE = Rejection((_MISMATCH,), is_unresolvable=True)
PORTS_TAKEN = Rejection(("node(s) didn't have free ports for the requested pod ports",))
AFFINITY_UNMET = Rejection(("node(s) didn't match pod affinity rules",), is_unresolvable=True)
ANTI_AFFINITY = Rejection(("node(s) didn't match pod anti-affinity rules",))
EXISTING_ANTI_AFFINITY = Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",))


def feasible(nodes: Nodes, pod: PodInfo, names: Iterable[str]) -> tuple[list[str], dict[str, Rejection]]:
    """Return the nodes that fit, and the rejections of the others. Deleted nodes are in neither result."""
    rejections = {name: rejection_of(nodes, pod, name) for name in names if name in nodes}
    fit = [name for name, fault in rejections.items() if fault is None]
    return fit, {name: fault for name, fault in rejections.items() if fault is not None}


def rejection_of(nodes: Nodes, pod: PodInfo, name: str) -> Rejection | None:
    """Return the rejection of a pod by a node; None if the pod fits."""
    if not nodes.admits(pod.shape, name):
        return UNSUITABLE
    other_pods = [*nodes.pods_on(name), *nodes.nominated_pods(pod, name)]
    taken_ports = (port for other in other_pods for port in other.shape.constraints.ports)
    if is_any_port_used(pod.shape.constraints.ports, taken_ports):
        return PORTS_TAKEN
    requests, capacity = pod.shape.requests, nodes.capacity[name]
    used = total(other.shape.requests for other in (*other_pods, pod))
    if short := [resource for resource in requests if used[resource] > capacity.get(resource, 0)]:
        reasons = ("Too many pods" if resource == PODS else f"Insufficient {resource}" for resource in short)
        unresolvable = any(requests[resource] > capacity.get(resource, 0) for resource in short)
        return Rejection(tuple(reasons), unresolvable)
    for term in pod.shape.constraints.affinity:
        domain = nodes.nodes_of_domain(term, name)
        is_first = term.matches(pod.namespace, pod.labels) and not any(nodes.selected_pods(term))
        if not domain or not (is_first or any(nodes.selected_pods(term, domain))):
            return AFFINITY_UNMET
    terms = pod.shape.constraints.anti_affinity
    if any(any(nodes.selected_pods(term, nodes.nodes_of_domain(term, name))) for term in terms):
        return ANTI_AFFINITY
    placed = ((node, other.shape.constraints.anti_affinity) for node, other in nodes.pods())
    existing = ((node, term) for node, terms in placed for term in terms)
    repelling = ((node, term) for node, term in existing if term.matches(pod.namespace, pod.labels))
    is_repelled = any(node in nodes.nodes_of_domain(term, name) for node, term in repelling)
    return EXISTING_ANTI_AFFINITY if is_repelled else None


def fit_error(node_count: int, reasons: Counter[str]) -> str:
    """Return the stock scheduler's message, with the number of nodes for each reason."""
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
    return f"0/{node_count} nodes are available:" + (f" {text}." if text else "")


# ---- preemption for a pod that fits no node: the victims

_NO_VICTIMS = Rejection(("No preemption victims found for incoming pod",))

Victims = list[PodInfo]


class PostFilterResult(NamedTuple):
    node: str | None  # nominated node; empty removes the nomination, None keeps it
    victims: Victims = []
    message: str = ""  # reason for the condition

    @classmethod
    def refusal(cls, reason: str, node: str | None = None) -> "PostFilterResult":
        return cls(node, message=f"preemption: {reason}")


def ineligibility(nodes: Nodes, pod: Json, pod_info: PodInfo, rejections: Mapping[str, Rejection]) -> str:
    """Return the reason why a pod may not preempt other pods; empty if it may preempt."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    node = pod["status"].get("nominatedNodeName", "")
    if not node or (node in rejections and rejections[node].is_unresolvable):
        return ""
    lower = [other for other in nodes.pods_on(node) if other.priority < pod_info.priority]
    leaving = any(other.is_leaving for other in lower)
    return "not eligible due to a terminating pod on the nominated node." if leaving else ""


def victims_by_candidate(
    nodes: Nodes, pod: PodInfo, rejections: Mapping[str, Rejection]
) -> tuple[dict[str, Victims], dict[str, Rejection]]:
    """Return the victims by node, and the rejections of nodes where preemption does not help."""
    victims_by_node: dict[str, Victims] = {}
    refusals: dict[str, Rejection] = {}
    for name in [node for node, fault in rejections.items() if not fault.is_unresolvable]:
        result = _victims(nodes, pod, name)
        if isinstance(result, Rejection):
            refusals[name] = result
        else:
            victims_by_node[name] = result
    return victims_by_node, refusals


def _victims(nodes: Nodes, pod: PodInfo, name: str) -> Victims | Rejection:
    """Return the pods of lower priority to preempt, or the rejection if preemption does not help."""
    lower_pods = [other for other in nodes.pods_on(name) if other.priority < pod.priority]
    if not lower_pods:
        return _NO_VICTIMS
    try:
        for other in lower_pods:
            nodes.remove(other.uid)
        if rejection := rejection_of(nodes, pod, name):
            return rejection
        victims: Victims = []
        most_important_first = sorted(lower_pods, key=lambda other: (-other.priority, other.started_at))
        for other in most_important_first:  # each pod that cannot stay is a victim
            nodes.put(other, name)
            if rejection_of(nodes, pod, name):
                nodes.remove(other.uid)
                victims.append(other)
        return victims or Rejection((f'expected at least one victim pod on node "{name}"',))
    finally:
        for other in lower_pods:
            nodes.put(other, name)


def no_candidate(node_count: int, refusals: Mapping[str, Rejection]) -> PostFilterResult:
    """Return the result if preemption helps on none of the nodes.

    `node_count` is the number of all nodes. `refusals` are the rejections by node; nodes on which preemption
    cannot help have no rejection.
    """
    reasons = Counter(reason for refusal in refusals.values() for reason in refusal.reasons)
    reasons["Preemption is not helpful for scheduling"] += node_count - len(refusals)
    return PostFilterResult.refusal(fit_error(node_count, reasons), node="")


def best_candidate(candidates: Mapping[str, Victims]) -> PostFilterResult:
    if not candidates:
        return PostFilterResult.refusal("no candidate node for preemption")
    node = min(candidates, key=lambda name: _cost(candidates[name]))
    return PostFilterResult(node, candidates[node])


def _cost(victims: Victims) -> tuple[int, int, int, tuple[int, ...]]:
    """Return the sort key of victims: highest priority, sum of priorities, number, and a late start first."""
    max_priority = max(pod.priority for pod in victims)
    first_start = min(pod.started_at for pod in victims if pod.priority == max_priority)
    latest_first = tuple(-ord(letter) for letter in first_start)
    return max_priority, sum(pod.priority + 2**31 for pod in victims), len(victims), latest_first
