"""Read model of API objects: queues, groups and nodes, from Muster's statuses and the objects themselves.

These summaries are also available while Muster is down. `dashboard/overviews` makes the same records from
decisions.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from extender.api.keys import ENDED_PHASES, HOLD, QUOTA_SOURCE, ROOT_QUEUE, SCHEDULED, STOP_NONE, SUBMITTER
from extender.api.objects.base import Condition, OwnerReference, Quantities, condition
from extender.api.objects.cluster import Node
from extender.api.objects.pods import Pod, PodSpec
from extender.api.objects.queues import LocalQueue, PodGroup, Queue, WaitingStatus
from extender.api.summaries import (
    Amounts,
    EventSummary,
    EvictionSummary,
    GroupSummary,
    LocalQueueSummary,
    NodeSummary,
    QueueSummary,
    WaitSummary,
    node_health,
    share_summaries,
)
from extender.api.units import BadQuantity
from extender.domain.model.ownership import group_name, represented_owner
from extender.domain.model.reasons import EVICTION_REASONS, STATES_WITHOUT_WAIT, Outcome, Verdict, sentence
from extender.domain.model.resources import add, in_units, offered, pod_requests
from extender.domain.queues.flavors import Pools
from extender.domain.queues.quota_records import entering_namespaces
from extender.domain.queues.tree import in_tree_order
from extender.domain.snapshot.phases import reported_verdict

_COLUMNS = ("pending", "inqueue", "running", "unknown", "completed", "failed", "aborted")
_MAX_NAMED_GROUPS = 16  # number of groups that are named for one node
_CORDON_TAINTS = ("node.kubernetes.io/unschedulable",)  # the taint that follows from spec.unschedulable


class ObservedQueue(Queue, frozen=True):
    """Queue of the API server, with the status that Muster wrote."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def state(self) -> str:
        """Return the state in the status, or the state in the specification before there is a status."""
        return self.status.state or self.spec.state or "Open"

    @property
    def quota(self) -> str:
        """Return the quota that the queue is made from; empty if there is none."""
        return (self.metadata.annotations or {}).get(QUOTA_SOURCE, "")

    @property
    def entering_namespaces(self) -> list[str]:
        """Return the namespaces whose groups enter the queue because of its quota."""
        return entering_namespaces(self.metadata.annotations)

    @property
    def share(self) -> float:
        return self.status.share or 0.0

    @property
    def is_stopped(self) -> bool:
        """Return whether the queue admits no groups because of its stop policy."""
        return self.spec.stop_policy not in ("", STOP_NONE)

    @property
    def has_fault(self) -> bool:
        """Return whether the queue's own specification is invalid."""
        valid_condition = condition(self.status.conditions, "Valid")
        return valid_condition is not None and valid_condition.status == "False"

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of groups by phase. A number that is not in the status yet is 0."""
        return {column: getattr(self.status, column) or 0 for column in _COLUMNS}


class ObservedGroup(PodGroup, frozen=True):
    """PodGroup of the API server, with the status that Muster wrote."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner of a group that Muster created for pods without a group name."""
        return represented_owner(self.name, self.metadata.owner_references)

    @property
    def display_reference(self) -> OwnerReference:
        """Return the kind and name that users know: of the group, or of its owner."""
        return self.controller or OwnerReference(kind="PodGroup", name=self.name)

    @property
    def display_name(self) -> str:
        """Return the name for users, such as `pytorchjob/train` for a group that Muster created."""
        return self.controller.display_name if self.controller else self.name

    @property
    def scheduled(self) -> Condition | None:
        """Return the condition Scheduled of the group."""
        return condition(self.status.conditions, SCHEDULED)

    @property
    def reason(self) -> str:
        """Return why the group or further members of it wait; empty if no member waits."""
        scheduled = self.scheduled
        return scheduled.reason if scheduled and scheduled.reason not in STATES_WITHOUT_WAIT else ""

    @property
    def message(self) -> str:
        """Return the message of the condition Scheduled; empty before the condition is written."""
        return self.scheduled.message if self.scheduled else ""

    @property
    def waiting(self) -> WaitingStatus:
        """Return the details of the wait; empty if the group does not wait, or before they are written."""
        return self.status.waiting or WaitingStatus()

    @property
    def verdict(self) -> Verdict:
        """Return the verdict that the status follows from; Unknown until Muster has written a condition."""
        scheduled = self.scheduled
        return reported_verdict(self.status.phase, scheduled.reason) if scheduled else Verdict.UNKNOWN

    @property
    def is_admitted(self) -> bool:
        """Return whether the group runs or starts."""
        return self.verdict in (Verdict.RUNNING, Verdict.STARTING)


def queue_summaries(queues: Iterable[ObservedQueue]) -> Iterator[QueueSummary]:
    """Yield a summary of each queue, in the order of the queue tree."""
    queue_by_name = {queue.name: queue for queue in queues}
    parents = {name: _parent(queue) for name, queue in queue_by_name.items()}
    for name, depth in in_tree_order(parents):
        yield _queue_summary(queue_by_name[name], parents[name], depth)


def last_eviction(events: Sequence[EventSummary]) -> EvictionSummary | None:
    """Return the last eviction among `events` of a group and its pods, which are ordered from the oldest."""
    evictions = (event for event in reversed(events) if event.reason in EVICTION_REASONS)
    return next((EvictionSummary(event.at, event.reason, event.message) for event in evictions), None)


def local_queue_summaries(local_queues: Iterable[LocalQueue]) -> Iterator[LocalQueueSummary]:
    for local_queue in sorted(local_queues, key=lambda item: (item.metadata.namespace, item.metadata.name)):
        yield _local_queue_summary(local_queue)


def _local_queue_summary(local_queue: LocalQueue) -> LocalQueueSummary:
    meta, status = local_queue.metadata, local_queue.status
    activity = condition(status.conditions, "Active")
    problem = activity.message or activity.reason if activity and activity.status == "False" else ""
    return LocalQueueSummary(
        meta.namespace,
        meta.name,
        local_queue.spec.queue,
        status.waiting or 0,
        status.admitted or 0,
        _readable_amounts(status.reserved),
        problem,
    )


def _parent(queue: ObservedQueue) -> str:
    return queue.spec.parent or (ROOT_QUEUE if queue.name != ROOT_QUEUE else "")


def _queue_summary(queue: ObservedQueue, parent: str, depth: int) -> QueueSummary:
    """Return the summary of a queue with its place in the queue tree."""
    spec, status, counts = queue.spec, queue.status, queue.counts
    guarantee = _readable_amounts(spec.guarantee.resource) if spec.guarantee else {}
    ceiling = {**dict.fromkeys(spec.capability or (), 0.0), **_readable_amounts(spec.capability)}
    allocated, deserved = _readable_amounts(status.allocated), _readable_amounts(status.deserved)
    shares = [*share_summaries("", allocated, deserved, guarantee, ceiling, _readable_amounts(spec.deserved))]
    for flavor in status.flavors or ():
        shares += share_summaries(
            flavor.name, _readable_amounts(flavor.allocated), _readable_amounts(flavor.deserved)
        )
    return QueueSummary(
        name=queue.name,
        parent=parent,
        depth=depth,
        state=queue.state,
        stop_policy="" if spec.stop_policy == STOP_NONE else spec.stop_policy,
        weight=spec.weight,
        share=status.share,
        shares=shares,
        waiting=counts["pending"],
        starting=counts["inqueue"],
        running=counts["running"],
        fault="its specification is invalid" if queue.has_fault else "",
    )


def _readable_amounts(quantities: Quantities | None) -> dict[str, float]:
    """Return the amounts that are valid."""
    amounts: dict[str, float] = {}
    for name, quantity in (quantities or {}).items():
        with suppress(BadQuantity):
            amounts |= in_units(offered({name: quantity}))
    return amounts


class RequestSums:
    """Sums of the requests of pods. Each pod is parsed only once, since 50,000 pods take two seconds."""

    def __init__(self) -> None:
        self._entry_by_uid: dict[str, tuple[PodSpec, Mapping[str, int]]] = {}

    def of_pods(self, pods: Iterable[Pod]) -> Amounts:
        sums: dict[str, int] = {}
        for pod in pods:
            add(sums, self._requests_of(pod))
        return in_units(sums)

    def forget_all_but(self, pods: Iterable[Pod]) -> None:
        """Remove all other pods from the cache."""
        uids = {pod.metadata.uid for pod in pods}
        self._entry_by_uid = {uid: entry for uid, entry in self._entry_by_uid.items() if uid in uids}

    def _requests_of(self, pod: Pod) -> Mapping[str, int]:
        """Return the requests of a pod; empty if an amount is invalid."""
        uid = pod.metadata.uid
        if (entry := self._entry_by_uid.get(uid)) is None or entry[0] is not pod.spec:
            amounts: Mapping[str, int] = {}
            with suppress(BadQuantity):
                amounts = pod_requests(pod.spec)
            entry = self._entry_by_uid[uid] = (pod.spec, amounts)
        return entry[1]


def group_summary(
    group: ObservedGroup, queue: str, pods: Sequence[Pod], count: int, requests: RequestSums, is_job: bool
) -> GroupSummary:
    """Return the summary of a group.

    Args:
        group: The group.
        queue: The name of its queue.
        pods: Its members, as far as the user may read them.
        count: The number of waiting groups of its queue.
        requests: The sums of requests, with their cache.
        is_job: Whether the group represents a job.
    """
    live_pods = [pod for pod in pods if pod.status.phase not in ENDED_PHASES]
    placed_pods = [pod for pod in live_pods if pod.spec.node_name]
    status, annotations = group.status, group.metadata.annotations or {}
    wait = WaitSummary.from_status(group.reason, sentence(group.reason), group.message, group.waiting, count)
    return GroupSummary(
        namespace=group.namespace,
        name=group.name,
        called=group.display_name,
        queue=queue,
        user=annotations.get(SUBMITTER, ""),
        priority=max((pod.spec.priority or 0 for pod in live_pods), default=0),
        verdict=group.verdict,
        needed=group.spec.min_member,
        members=len(live_pods),
        placed=len(placed_pods) if pods else status.running,
        failed=status.failed,
        succeeded=status.succeeded,
        asks=_waiting_requests(group, live_pods, requests),
        holds=requests.of_pods(placed_pods),
        created=group.metadata.creation_timestamp or "",
        started=min(filter(None, (pod.status.start_time for pod in placed_pods)), default=""),
        wait=wait if group.reason else None,
        held=annotations.get(HOLD) == "true",
        stopped=is_job and group.scheduled is not None and group.scheduled.reason == Outcome.ABORTED,
        is_job=is_job,
    )


def _waiting_requests(group: ObservedGroup, pods: Sequence[Pod], requests: RequestSums) -> Amounts:
    """Return the requests of pods without a node, or the minResources of a job that waits without pods."""
    if not pods and group.verdict == Verdict.WAITING:
        return _readable_amounts(group.spec.min_resources)
    return requests.of_pods(pod for pod in pods if not pod.spec.node_name)


def node_summaries(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    requests: RequestSums,
    pools: Pools,
    topologies: Sequence[Sequence[str]] = (),
) -> Iterator[NodeSummary]:
    """Yield a summary of each node, by name.

    Args:
        nodes: The nodes.
        pods: All pods. Pods that have ended hold nothing.
        requests: The sums of requests, with the cached requests of each pod.
        pools: The flavors of all queues.
        topologies: The levels of each topology.
    """
    bound_pods: defaultdict[str, list[Pod]] = defaultdict(list)
    nominated_pods: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.status.phase not in ENDED_PHASES:
            if pod.spec.node_name:
                bound_pods[pod.spec.node_name].append(pod)
            elif node_name := pod.status.nominated_node_name:
                nominated_pods[node_name].append(pod)
    levels = {level for topology in topologies for level in topology}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        name, labels = node.metadata.name, node.metadata.labels or {}
        pods_on_node = (*bound_pods[name], *nominated_pods[name])
        groups = {f"{pod.metadata.namespace}/{group}" for pod in pods_on_node if (group := group_name(pod))}
        yield NodeSummary(
            name,
            _readable_amounts(node.status.allocatable),
            requests.of_pods(bound_pods[name]),
            requests.of_pods(nominated_pods[name]),
            groups=sorted(groups)[:_MAX_NAMED_GROUPS],
            flavors=[pool.name for pool in pools.pools_of_node(labels)],
            domains={level: labels[level] for level in levels & labels.keys()},
            taken=not node.spec.unschedulable,
            health=node_health(
                [*_CORDON_TAINTS[: node.spec.unschedulable], *(taint.key for taint in node.spec.taints or ())]
            ),
        )
