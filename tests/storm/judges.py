"""Checks of the API server's objects, once all faults are repaired and nothing changes any more.

Each check takes a state of the cluster and yields a line for each violation. The checks do not know how
Muster decides: whether a group fits follows from `placing` and the ceilings of its queues.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.api.keys import REQUIRED_TOPOLOGY
from tests.e2e.harness.amounts import MILLI, Amounts, amounts, requests
from tests.e2e.harness.objects import GROUP_NAME
from tests.storm.gang_specs import QUEUE
from tests.storm.placing import FreeCapacity, capacities, place, size
from tests.storm.view import Eviction, holds_capacity, is_complete_member, is_terminating, is_unbound

Json = dict[str, Any]
OURS = ("muster", "volcano")
TASK = "volcano.sh/task-spec"
COMPARED_RESOURCES = ("cpu", "memory", "pods")


@dataclass(frozen=True)
class ClusterState:
    """State of the cluster; `claimed` is Muster's page /debug/nodes, `decided` is /debug/podgroups."""

    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    groups: list[Json] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)
    claimed: list[Json] = field(default_factory=list)
    decided: list[Json] = field(default_factory=list)

    def our_pods(self) -> list[Json]:
        return [pod for pod in self.pods if pod["spec"]["schedulerName"] in OURS]

    def queue(self, name: str) -> Json:
        """Return a queue; a missing one is closed."""
        missing: Json = {"spec": {}, "status": {"state": "missing"}}
        return next((queue for queue in self.queues if queue["metadata"]["name"] == name), missing)

    def group(self, key: str) -> Json | None:
        """Return the PodGroup of this `namespace/name`."""
        named = (
            (f"{group['metadata']['namespace']}/{group['metadata']['name']}", group) for group in self.groups
        )
        return next((group for name, group in named if name == key), None)

    def reserved(self) -> set[str]:
        """Return the nodes that are reserved for a group, by the statuses of queues."""
        reservations = [queue.get("status", {}).get("reservation") or {} for queue in self.queues]
        return {node for reservation in reservations for node in reservation.get("nodes") or ()}

    def path(self, name: str) -> list[str]:
        """Return a queue and those above it."""
        path = [name]
        parent = self.queue(name)["spec"].get("parent", "")
        while parent and parent not in path:
            path.append(parent)
            parent = self.queue(parent)["spec"].get("parent", "")
        return path

    def members(self) -> dict[str, list[Json]]:
        """Return the pods by the name of their group."""
        by_group = defaultdict[str, list[Json]](list)
        for pod in self.our_pods():
            if name := pod["metadata"].get("annotations", {}).get(GROUP_NAME):
                by_group[name].append(pod)
        return by_group


@dataclass(frozen=True)
class Waiter:
    """Pods that have to start together: the missing members of a group, or a single pod."""

    name: str
    queue: str
    pods: list[Json]


def violations(state: ClusterState) -> list[str]:
    return [*idle_capacity(state), *invalid_claims(state), *wrong_idle_amounts(state), *stale_statuses(state)]


# ---- pending pods that fit


def idle_capacity(state: ClusterState) -> Iterator[str]:
    """Yield waiters that fit. Each is tried alone: if any fits, at least one should not wait."""
    free = [
        capacity for capacity in capacities(state.nodes, state.pods) if capacity.node not in state.reserved()
    ]
    all_waiters = list(waiters(state))
    claiming_queues = {waiter.queue for waiter in all_waiters if _has_claim(waiter, state, free)}
    for waiter in all_waiters:
        if not _below_ceiling(waiter, state):
            continue
        if claiming_queues - {waiter.queue} and not _within_share(waiter, state):
            continue  # it would borrow, and borrowers wait for groups that are within their share
        for domain in _domains(waiter, state, free):
            placements = [
                place(waiter.pods, free_of_flavor)
                for free_of_flavor in _free_by_flavor(waiter, state, domain)
            ]
            placed = placements[0]
            if placed is not None and None not in placements:
                places = ", ".join(f"{pod} on {node}" for pod, node in sorted(placed.items()))
                yield f"{waiter.name} of queue {waiter.queue} fits and does not run: {places}"
                break


def _domains(waiter: Waiter, state: ClusterState, free: list[FreeCapacity]) -> list[list[FreeCapacity]]:
    """Return the nodes by domain that a waiter may use: only the domain of running members, if any run."""
    annotations = waiter.pods[0]["metadata"].get("annotations", {})
    if not (level := annotations.get(REQUIRED_TOPOLOGY)):
        return [free]
    labels = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in state.nodes}
    members = state.members().get(annotations.get(GROUP_NAME, ""), [])
    remaining = [pod for pod in members if holds_capacity(pod) and not is_terminating(pod)]
    domains = {labels.get(pod["spec"]["nodeName"], {}).get(level) for pod in remaining}
    if domains:
        return [[capacity for capacity in free if capacity.labels.get(level) in domains - {None}]]
    names = {capacity.labels[level] for capacity in free if level in capacity.labels}
    return [[node for node in free if node.labels.get(level) == name] for name in sorted(names)]


def _free_by_flavor(
    waiter: Waiter, state: ClusterState, free: list[FreeCapacity]
) -> list[list[FreeCapacity]]:
    """Return the nodes of each flavor of a waiter's queue.

    The flavor of its running members is not looked up: only a waiter that fits on every flavor is reported.
    """
    flavors = state.queue(waiter.queue)["spec"].get("flavors") or [{"nodeLabels": {}}]
    labels = [flavor["nodeLabels"].items() for flavor in flavors]
    return [
        [capacity for capacity in free if flavor_labels <= capacity.labels.items()]
        for flavor_labels in labels
    ]


def waiters(state: ClusterState) -> Iterator[Waiter]:
    members = state.members()
    for group in state.groups:
        name, spec = group["metadata"]["name"], group["spec"]
        pods = members.get(name, [])
        needed_pods = _needed(spec, pods) if pods else []
        if needed_pods:
            yield Waiter(f"group {name}", spec.get("queue", "default"), needed_pods)
    grouped = {pod["metadata"]["uid"] for pods in members.values() for pod in pods}
    for pod in state.our_pods():
        if is_unbound(pod) and pod["metadata"]["uid"] not in grouped:
            queue = pod["metadata"].get("labels", {}).get(QUEUE, "default")
            yield Waiter(f"pod {pod['metadata']['name']}", queue, [pod])


def _needed(spec: Json, pods: list[Json]) -> list[Json]:
    """Return the largest pods that would complete a group, or one more pod of a complete group.

    The result is empty if too few pods exist.
    """
    waiting = sorted(filter(is_unbound, pods), key=size, reverse=True)
    standing = [pod for pod in pods if is_complete_member(pod)]
    if _is_complete(spec, standing):
        return waiting[:1]
    needed = list[Json]()
    for task, minimum in spec.get("minTaskMember", {}).items():
        missing = minimum - sum(_task(pod) == task for pod in standing)
        needed += [pod for pod in waiting if _task(pod) == task][: max(missing, 0)]
    others = [pod for pod in waiting if pod not in needed]
    needed += others[: max(spec.get("minMember", 1) - len(standing) - len(needed), 0)]
    return needed if _is_complete(spec, [*standing, *needed]) else []


def _is_complete(spec: Json, pods: list[Json]) -> bool:
    tasks = Counter(map(_task, pods))
    roles = spec.get("minTaskMember", {})
    return len(pods) >= spec.get("minMember", 1) and all(
        tasks[task] >= minimum for task, minimum in roles.items()
    )


def _task(pod: Json) -> str:
    return str(pod["metadata"].get("annotations", {}).get(TASK, ""))


def _below_ceiling(waiter: Waiter, state: ClusterState) -> bool:
    """Return whether a waiter's queue is open, and would stay within all capabilities on its path."""
    queue = state.queue(waiter.queue)
    if queue.get("status", {}).get("state", "Open") != "Open":
        return False
    for ancestor in state.path(waiter.queue):
        held = _held_with(waiter, state, ancestor)
        ceiling = amounts(state.queue(ancestor)["spec"].get("capability"))
        if any(held[name] > maximum for name, maximum in ceiling.items()):
            return False
    return True


def _within_share(waiter: Waiter, state: ClusterState) -> bool:
    """Return whether a waiter's queue would stay within its deserved amount, if that is known."""
    deserved = amounts(state.queue(waiter.queue).get("status", {}).get("deserved"))
    held = _held_with(waiter, state, waiter.queue)
    return not deserved or all(held[name] <= deserved[name] for name in deserved)


def _has_claim(waiter: Waiter, state: ClusterState, free: list[FreeCapacity]) -> bool:
    """Return whether a waiter is within its share, does not fit now, and would fit on empty nodes."""
    if not (_below_ceiling(waiter, state) and _within_share(waiter, state)):
        return False
    now, when_alone = (_free_by_flavor(waiter, state, nodes) for nodes in (free, capacities(state.nodes, [])))
    fits_now = any(place(waiter.pods, nodes) is not None for nodes in now)
    return not fits_now and any(place(waiter.pods, nodes) is not None for nodes in when_alone)


def _held_with(waiter: Waiter, state: ClusterState, queue: str) -> Amounts:
    """Return the amount that a queue would hold if the waiter started."""
    held = Amounts()
    for pod in state.our_pods():
        queue_name = pod["metadata"].get("labels", {}).get(QUEUE)
        if holds_capacity(pod) and queue_name is not None and queue in state.path(queue_name):
            held += requests(pod)
    for pod in waiter.pods:
        held += requests(pod)
    return held


# ---- claims


def invalid_claims(state: ClusterState) -> Iterator[str]:
    """Yield claims on nodes that belong to no existing pod, or to a pod in another state."""
    pods = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in state.pods}
    for node in state.claimed:
        for claim in node["claims"]:
            if fault := _claim_fault(claim, pods.get(claim["pod"])):
                yield f"claim {claim['stage']} of {claim['pod']} on {claim['node']}: {fault}"


def _claim_fault(claim: Json, pod: Json | None) -> str:
    if pod is None:
        return "there is no such pod"
    if claim["stage"] != "BOUND":
        return "it is bound" if pod["spec"].get("nodeName") else "it is still planned"
    if pod["spec"].get("nodeName") != claim["node"]:
        return f"it is on {pod['spec'].get('nodeName')}"
    return "" if holds_capacity(pod) else "it has ended"


def wrong_idle_amounts(state: ClusterState) -> Iterator[str]:
    """Yield nodes whose idle capacity on Muster's page differs from that of the API server's objects.

    The page has cpu in millicores, and 0 for overcommitted nodes.
    """
    expected_idle = {node["metadata"]["name"]: amounts(node["status"]["allocatable"]) for node in state.nodes}
    for pod in state.pods:
        if holds_capacity(pod) and pod["spec"]["nodeName"] in expected_idle:
            expected_idle[pod["spec"]["nodeName"]].subtract(requests(pod))
    claimed = {node["name"]: node["idle"] for node in state.claimed}
    if state.claimed:
        for name, remaining in expected_idle.items():
            if (idle := claimed.get(name)) is None:
                yield f"node {name}: Muster does not know it"
                continue
            for resource in COMPARED_RESOURCES:
                expected = max(remaining[resource] // (1 if resource == "cpu" else MILLI), 0)
                if max(idle.get(resource, 0), 0) != expected:
                    yield f"node {name}: Muster says {resource} {idle.get(resource)} idle, it is {expected}"


# ---- statuses


def stale_statuses(state: ClusterState) -> Iterator[str]:
    """Yield waiting groups whose status has another reason than their last decision."""
    for decision in state.decided:
        group = state.group(decision["podGroup"])
        if group is not None and decision["verdict"] == "Waiting":
            reported, decided = _reason(group), decision["reason"]
            if reported != decided:
                name = group["metadata"]["name"]
                yield f"group {name} says {reported or 'nothing'}, Muster decided {decided}"


def _reason(group: Json) -> str:
    conditions = group.get("status", {}).get("conditions") or []
    return next(
        (str(condition["reason"]) for condition in conditions if condition["type"] == "Scheduled"), ""
    )


# ---- fully running gangs


def evicted_gangs(
    evictions: Iterable[Eviction], settled: Mapping[str, float]
) -> Iterator[tuple[float, str, str]]:
    """Yield time, name and message of gangs that lost a member by eviction after they had settled.

    `settled`: by gang, the time from which on it must not lose members.
    """
    reported = set[str]()
    for at, gang, pod in evictions:
        if gang not in reported and settled.get(gang, at) < at:
            reported.add(gang)
            yield at, gang, f"gang {gang} had run fully, and {pod} was evicted"
