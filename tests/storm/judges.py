"""Checks of the cluster once all faults are over and nothing changes any more, on the API server's objects.

Each check takes a picture of the cluster and yields its violations, a line for each. They know nothing of how
Muster decides; a group that they report as fitting is placed by `placing`, and below the ceiling of its
queue.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.api.keys import REQUIRED_TOPOLOGY
from tests.e2e.harness.amounts import MILLI, Amounts, amounts, requests
from tests.e2e.harness.objects import GROUP_NAME
from tests.storm.placing import FreeCapacity, capacities, place, size
from tests.storm.view import Eviction, going, holds, stands, unbound
from tests.storm.wishes import QUEUE

Json = dict[str, Any]
OURS = ("muster", "volcano")
TASK = "volcano.sh/task-spec"
COUNTED = ("cpu", "memory", "pods")


@dataclass(frozen=True)
class Picture:
    """State of the cluster; `claimed` is Muster's page /debug/nodes, `decided` is /debug/podgroups."""

    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    groups: list[Json] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)
    claimed: list[Json] = field(default_factory=list)
    decided: list[Json] = field(default_factory=list)

    def ours(self) -> list[Json]:
        return [pod for pod in self.pods if pod["spec"]["schedulerName"] in OURS]

    def queue(self, name: str) -> Json:
        """Return a queue; an absent one takes nothing."""
        missing: Json = {"spec": {}, "status": {"state": "missing"}}
        return next((queue for queue in self.queues if queue["metadata"]["name"] == name), missing)

    def group(self, key: str) -> Json | None:
        """Return the PodGroup of this `namespace/name`."""
        keyed = (
            (f"{group['metadata']['namespace']}/{group['metadata']['name']}", group) for group in self.groups
        )
        return next((group for name, group in keyed if name == key), None)

    def reserved(self) -> set[str]:
        """Return the nodes that queues report as reserved for a group of theirs."""
        reserved = [queue.get("status", {}).get("reservation") or {} for queue in self.queues]
        return {node for each in reserved for node in each.get("nodes") or ()}

    def line(self, name: str) -> list[str]:
        """Return a queue and those above it."""
        line = [name]
        while (parent := self.queue(line[-1])["spec"].get("parent", "")) and parent not in line:
            line.append(parent)
        return line

    def members(self) -> dict[str, list[Json]]:
        """Return the pods by the name of their group."""
        by_group = defaultdict[str, list[Json]](list)
        for pod in self.ours():
            if name := pod["metadata"].get("annotations", {}).get(GROUP_NAME):
                by_group[name].append(pod)
        return by_group


@dataclass(frozen=True)
class Waiter:
    """Pods of a group that could start at once, or a pod alone."""

    name: str
    queue: str
    pods: list[Json]


def complaints(picture: Picture) -> list[str]:
    return [*idle_capacity(picture), *ownerless(picture), *wrong_sums(picture), *stale(picture)]


# ---- what fits and does not run


def idle_capacity(picture: Picture) -> Iterator[str]:
    """Yield waiters that fit, each for itself: of several that fit, at least one should not wait."""
    space = [
        capacity
        for capacity in capacities(picture.nodes, picture.pods)
        if capacity.node not in picture.reserved()
    ]
    all_waiters = list(waiters(picture))
    claimed = {waiter.queue for waiter in all_waiters if _has_claim(waiter, picture, space)}
    for waiter in all_waiters:
        if not _below_ceiling(waiter, picture):
            continue
        if claimed - {waiter.queue} and not _within_share(waiter, picture):
            continue  # it would borrow capacity that is reserved for a group within its share
        for inside in _domains(waiter, picture, space):
            placements = [place(waiter.pods, capacities) for capacities in _spaces(waiter, picture, inside)]
            if (placed := placements[0]) is not None and None not in placements:
                places = ", ".join(f"{pod} on {node}" for pod, node in sorted(placed.items()))
                yield f"{waiter.name} of queue {waiter.queue} fits and does not run: {places}"
                break


def _domains(waiter: Waiter, picture: Picture, space: list[FreeCapacity]) -> list[list[FreeCapacity]]:
    """Return the nodes of each domain that a waiter may use: those of its group's members, if it has any."""
    notes = waiter.pods[0]["metadata"].get("annotations", {})
    if not (level := notes.get(REQUIRED_TOPOLOGY)):
        return [space]
    labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in picture.nodes}
    members = picture.members().get(notes.get(GROUP_NAME, ""), [])
    stay = [pod for pod in members if holds(pod) and not going(pod)]
    domains = {labels.get(pod["spec"]["nodeName"], {}).get(level) for pod in stay}
    if domains:
        return [[capacity for capacity in space if capacity.labels.get(level) in domains - {None}]]
    names = {capacity.labels[level] for capacity in space if level in capacity.labels}
    return [[each for each in space if each.labels.get(level) == name] for name in sorted(names)]


def _spaces(waiter: Waiter, picture: Picture, space: list[FreeCapacity]) -> list[list[FreeCapacity]]:
    """Return the nodes of each flavor of its queue.

    A waiter that fits on all of them fits on those that it may use, whichever its other members have.
    """
    flavors = picture.queue(waiter.queue)["spec"].get("flavors") or [{"nodeLabels": {}}]
    labels = [flavor["nodeLabels"].items() for flavor in flavors]
    return [
        [capacity for capacity in space if flavor_labels <= capacity.labels.items()]
        for flavor_labels in labels
    ]


def waiters(picture: Picture) -> Iterator[Waiter]:
    members = picture.members()
    for group in picture.groups:
        name, spec = group["metadata"]["name"], group["spec"]
        pods = members.get(name, [])
        if pods and (needed_pods := _needed(spec, pods)):
            yield Waiter(f"group {name}", spec.get("queue", "default"), needed_pods)
    grouped = {pod["metadata"]["uid"] for pods in members.values() for pod in pods}
    for pod in picture.ours():
        if unbound(pod) and pod["metadata"]["uid"] not in grouped:
            queue = pod["metadata"].get("labels", {}).get(QUEUE, "default")
            yield Waiter(f"pod {pod['metadata']['name']}", queue, [pod])


def _needed(spec: Json, pods: list[Json]) -> list[Json]:
    """Return the largest pods that would complete the group.

    Of a complete group one more, none if impossible.
    """
    waiting = sorted(filter(unbound, pods), key=size, reverse=True)
    standing = [pod for pod in pods if stands(pod)]
    if _whole(spec, standing):
        return waiting[:1]
    chosen = list[Json]()
    for task, minimum in spec.get("minTaskMember", {}).items():
        missing = minimum - sum(_task(pod) == task for pod in standing)
        chosen += [pod for pod in waiting if _task(pod) == task][: max(missing, 0)]
    others = [pod for pod in waiting if pod not in chosen]
    chosen += others[: max(spec.get("minMember", 1) - len(standing) - len(chosen), 0)]
    return chosen if _whole(spec, [*standing, *chosen]) else []


def _whole(spec: Json, pods: list[Json]) -> bool:
    tasks = Counter(map(_task, pods))
    roles = spec.get("minTaskMember", {})
    return len(pods) >= spec.get("minMember", 1) and all(
        tasks[task] >= minimum for task, minimum in roles.items()
    )


def _task(pod: Json) -> str:
    return str(pod["metadata"].get("annotations", {}).get(TASK, ""))


def _below_ceiling(waiter: Waiter, picture: Picture) -> bool:
    """Return whether the queue is below its ceiling; only existing open queues can start groups."""
    queue = picture.queue(waiter.queue)
    if queue.get("status", {}).get("state", "Open") != "Open":
        return False
    for above in picture.line(waiter.queue):
        held, ceiling = (
            _held_with(waiter, picture, above),
            amounts(picture.queue(above)["spec"].get("capability")),
        )
        if any(held[name] > maximum for name, maximum in ceiling.items()):
            return False
    return True


def _within_share(waiter: Waiter, picture: Picture) -> bool:
    """Return whether the group is within its queue's deserved amount.

    Without one it is not known to borrow.
    """
    deserved = amounts(picture.queue(waiter.queue).get("status", {}).get("deserved"))
    held = _held_with(waiter, picture, waiter.queue)
    return not deserved or all(held[name] <= deserved[name] for name in deserved)


def _has_claim(waiter: Waiter, picture: Picture, space: list[FreeCapacity]) -> bool:
    """Return whether it is within its share, has no capacity now, and would start if it were alone."""
    if not (_below_ceiling(waiter, picture) and _within_share(waiter, picture)):
        return False
    now, when_alone = (_spaces(waiter, picture, each) for each in (space, capacities(picture.nodes, [])))
    fits_now = any(place(waiter.pods, each) is not None for each in now)
    return not fits_now and any(place(waiter.pods, each) is not None for each in when_alone)


def _held_with(waiter: Waiter, picture: Picture, queue: str) -> Amounts:
    """Return the amount that this queue, its own or one above it, would hold with it."""
    held = Amounts()
    for pod in picture.ours():
        queue_name = pod["metadata"].get("labels", {}).get(QUEUE)
        if holds(pod) and queue_name is not None and queue in picture.line(queue_name):
            held += requests(pod)
    for pod in waiter.pods:
        held += requests(pod)
    return held


# ---- claims


def ownerless(picture: Picture) -> Iterator[str]:
    """Yield claims without an owner.

    A claim belongs to a pod that exists: bound there, or, while it is not bound, about to be.
    """
    pods = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in picture.pods}
    for node in picture.claimed:
        for claim in node["claims"]:
            if fault := _wrong_claim(claim, pods.get(claim["pod"])):
                yield f"claim {claim['stage']} of {claim['pod']} on {claim['node']}: {fault}"


def _wrong_claim(claim: Json, pod: Json | None) -> str:
    if pod is None:
        return "there is no such pod"
    if claim["stage"] != "BOUND":
        return "it is bound" if pod["spec"].get("nodeName") else "nothing moves, and still it waits"
    if pod["spec"].get("nodeName") != claim["node"]:
        return f"it is on {pod['spec'].get('nodeName')}"
    return "" if holds(pod) else "it is over"


def wrong_sums(picture: Picture) -> Iterator[str]:
    """Yield differences between Muster's idle capacity and the API server's.

    An overcommitted node has none. The page counts cpu in thousandths, everything else in its own unit.
    """
    truth = {node["metadata"]["name"]: amounts(node["status"]["allocatable"]) for node in picture.nodes}
    for pod in picture.pods:
        if holds(pod) and pod["spec"]["nodeName"] in truth:
            truth[pod["spec"]["nodeName"]].subtract(requests(pod))
    claimed = {each["name"]: each["idle"] for each in picture.claimed}
    for name, remaining in truth.items() if picture.claimed else ():
        if (idle := claimed.get(name)) is None:
            yield f"node {name}: Muster does not know it"
            continue
        for resource in COUNTED:
            right = max(remaining[resource] // (1 if resource == "cpu" else MILLI), 0)
            if max(idle.get(resource, 0), 0) != right:
                yield f"node {name}: Muster says {resource} {idle.get(resource)} idle, it is {right}"


# ---- what is said


def stale(picture: Picture) -> Iterator[str]:
    """Yield waiting groups whose reason is not that of the last decision on them."""
    for decision in picture.decided:
        group = picture.group(decision["podGroup"])
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


def undone(evictions: Iterable[Eviction], settled: Mapping[str, float]) -> Iterator[tuple[float, str, str]]:
    """Yield complete gangs that lose a member to Muster, whatever else they lost.

    Each gang once, with the time and the name; `settled` has the times from which on this is checked.
    """
    reported = set[str]()
    for at, gang, pod in evictions:
        if gang not in reported and settled.get(gang, at) < at:
            reported.add(gang)
            yield at, gang, f"gang {gang} had run fully, and {pod} was evicted"
