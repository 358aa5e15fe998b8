"""Submission of pods, Jobs and groups: their queue, its state, and their defaults.

A pod of an existing group enters the group's queue in any state of the queue, since the group was admitted
before. A pod is not reviewed if it names no queue and its group does not exist yet: the group will be
reviewed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.admission import NewOtherGroup, NewPod
from extender.api.keys import MAX_UNAVAILABLE, MIN_AVAILABLE
from extender.api.objects.base import Meta, Operation, OwnerReference, addition
from extender.api.objects.pods import Pod
from extender.api.objects.queues import NetworkTopology, PodGroup
from extender.api.units import BadQuantity
from extender.api.workloads.gangs import ALL, Defaults, gang_size_of
from extender.domain.admission.faults import Code, Fault
from extender.domain.model.ownership import auto_group_name, controller_of, group_name, group_name_of
from extender.domain.model.queue_of_group import (
    NO_QUEUE_OF_OWNER,
    LocalQueueLabel,
    QueueOfOwner,
    explicit_queue,
    local_queue_label,
)
from extender.domain.model.resources import Resources, pod_requests, show
from extender.domain.model.run_history import NO_CHECKPOINT, checkpoint_of
from extender.domain.queues.local_queues import LocalQueueRecord
from extender.domain.queues.records import duration_of
from extender.domain.queues.tree import Ceiling, QueueInfo, QueueTree

_DAEMON_USERS = ("system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager")
_BY_NAMESPACE = f"the namespace's annotation {keys.QUEUE} or its quota"


class QueueLookup(Protocol):
    """Look-up of the queues that these rules need, in the ledger or at the API server."""

    def info(self, name: str) -> QueueInfo | None:
        """Return a queue with its usage; None if the queue does not exist."""

    def queue_of_namespace(self, namespace: str) -> str:
        """Return the queue that the namespace's annotation or quota names, or an empty name."""

    def queue_of_podgroup(self, namespace: str, name: str) -> str | None:
        """Return the queue of a PodGroup; None if the PodGroup does not exist."""

    def queue_of_owner(self, namespace: str, controller: OwnerReference) -> QueueOfOwner:
        """Return the names of queues on the controller of an object, or on the controllers above it."""

    def local_queue_named_by(self, namespace: str, label: LocalQueueLabel | None) -> LocalQueueRecord | None:
        """Return the LocalQueue that a label names, even if it does not exist.

        None means that there is no label.
        """

    def accepts_namespace(self, queue: str, namespace: str) -> bool:
        """Return whether a queue accepts groups of a namespace."""


class Destination(msgspec.Struct, frozen=True):
    """Queue that an object enters."""

    queue: str  # name of the queue, which may not exist
    field: str  # field that names the queue
    is_joining: bool = False  # whether the object joins an existing group of the queue
    is_named: bool = True  # whether any field names the queue; otherwise it is `default`
    namespace: str = ""  # namespace of the object; empty if it does not matter
    is_by_owner: bool = False  # whether only an owner names the queue
    leads_nowhere: bool = False  # whether its LocalQueue is missing or unknown, so that the group waits


def destination_of_pod(
    pod: NewPod, queues: QueueLookup, path: str = "", job: Meta | None = None
) -> Destination | None:
    """Return the destination of a pod, or of the pods of a job. None means that the object is not reviewed.

    Args:
        pod: The pod, or the template of the job.
        queues: The queues.
        path: The path of the template, which is put before the names of its fields.
        job: The metadata of the job.
    """
    meta = pod.metadata
    if group := group_name(pod):
        queue = queues.queue_of_podgroup(meta.namespace, group)
        if queue is not None:
            return Destination(queue, f"{path}metadata.annotations[{keys.GROUP_ANNOTATION}]", is_joining=True)
        return _named_in_object(meta, meta.namespace, queues, path)
    destination = _named_in_object(pod.metadata, meta.namespace, queues, path)
    if destination is None and job is not None:
        destination = _named_in_object(job, meta.namespace, queues)
    controller = pod.controller if job is None else controller_of(job.owner_references)
    if destination is None and controller is not None:
        destination = _destination_by_owner(controller, meta.namespace, queues)
    joined_queue = queues.queue_of_podgroup(meta.namespace, auto_group_name(pod)) if pod.controller else None
    if joined_queue is not None and (destination is None or destination.queue == joined_queue):
        return Destination(joined_queue, "metadata.ownerReferences", is_joining=True)
    return destination or destination_by_namespace(meta.namespace, queues)


def _named_in_object(meta: Meta, namespace: str, queues: QueueLookup, path: str = "") -> Destination | None:
    """Return the queue that the object's own annotation or label names; None if there is none."""
    named = queue_named_in(meta, path)
    return (
        replace(named, namespace=namespace) if named else _destination_by_label(meta, namespace, queues, path)
    )


def _destination_by_owner(owner: OwnerReference, namespace: str, queues: QueueLookup) -> Destination | None:
    """Return the queue that an owner names. If the owner has not been read yet, the group waits for it."""
    names = queues.queue_of_owner(namespace, owner)
    destination = Destination(names.queue, "metadata.ownerReferences", namespace=namespace, is_by_owner=True)
    if names.queue:
        return destination
    if (local_queue := queues.local_queue_named_by(namespace, names.local_queue)) is not None:
        return replace(destination, queue=local_queue.target, leads_nowhere=not local_queue.exists)
    return None if names.is_known else replace(destination, leads_nowhere=True)


def queue_named_in(meta: Meta, path: str = "") -> Destination | None:
    """Return the queue that an annotation or label of Muster names; None if there is none."""
    for place in ("annotations", "labels"):
        if queue := (getattr(meta, place) or {}).get(keys.QUEUE):
            return Destination(queue, f"{path}metadata.{place}[{keys.QUEUE}]", namespace=meta.namespace)
    return None


def _destination_by_label(
    meta: Meta, namespace: str, queues: QueueLookup, path: str = ""
) -> Destination | None:
    """Return the queue of the LocalQueue that a label names; None if there is no such label."""
    label = local_queue_label(meta)
    local_queue = queues.local_queue_named_by(namespace, label)
    if local_queue is None or label is None:
        return None
    field = f"{path}metadata.labels[{label.key}]"
    return Destination(local_queue.target, field, namespace=namespace, leads_nowhere=not local_queue.exists)


def destination_by_namespace(namespace: str, queues: QueueLookup) -> Destination:
    """Return the queue that the namespace names, or `default`."""
    queue = queues.queue_of_namespace(namespace)
    if queue:
        return Destination(queue, _BY_NAMESPACE, namespace=namespace)
    return Destination(keys.DEFAULT_QUEUE, "spec.queue", is_named=False, namespace=namespace)


def destination_of_other_group(
    group: NewOtherGroup, namespace: str, queues: QueueLookup
) -> Destination | None:
    """Return the destination of a group of another API.

    None means that neither the group nor its namespace names a queue. The scheduler of the group may have no
    queues.
    """
    meta = group.metadata
    own = queue_named_in(meta) or _destination_by_label(meta, namespace, queues)
    target = replace(own, namespace=namespace) if own else destination_by_namespace(namespace, queues)
    return target if target.is_named else None


def destination_of_group(meta: Meta, namespace: str, queue: str, queues: QueueLookup) -> Destination:
    """Return the queue of a PodGroup or a Volcano Job. `queue` is the queue in its spec."""
    if explicit_queue(queue):
        return Destination(queue, "spec.queue", namespace=namespace)
    target = _destination_by_label(meta, namespace, queues) or destination_by_namespace(namespace, queues)
    return replace(target, is_named=target.is_named or bool(queue))


def review_entry(target: Destination, queues: QueueLookup) -> list[Fault]:
    """Return faults unless the queue admits new work of the namespace.

    A missing LocalQueue is no fault.
    """
    if target.leads_nowhere:
        return []
    info = queues.info(target.queue)
    if info is None:
        text = f"there is no queue {target.queue!r}: create it, or name an existing one"
        return [Fault(Code.QUEUE_NOT_FOUND, target.field, text)]
    if target.is_joining:
        return []
    if info.state != "Open":
        text = f"queue {target.queue!r} is {info.state} and takes no new work: "
        text += f"name another queue, or set spec.state of {info.queue_to_open} to Open"
        if info.record.is_deleting:
            text = f"queue {target.queue!r} is being deleted and takes no new work: name another queue"
        return [Fault(Code.QUEUE_NOT_OPEN, target.field, text)]
    if target.namespace and not queues.accepts_namespace(target.queue, target.namespace):
        text = f"queue {target.queue!r} takes no work of namespace {target.namespace!r}: name another queue, "
        text += "or label the namespace as spec.namespaceSelector of the queue asks"
        return [Fault(Code.NAMESPACE_NOT_ALLOWED, target.field, text)]
    return []


def review_move(target: Destination, start_queue: str) -> list[Fault]:
    """Return faults if a group that starts, or has started, in one queue is sent to another queue.

    Args:
        target: The queue to which the group is sent.
        start_queue: The queue in which the group started; empty if it has not started.
    """
    if start_queue in ("", target.queue):
        return []
    text = f"invalid value {target.queue!r}, but the group started in queue {start_queue!r}: leave it, or "
    return [Fault(Code.GROUP_HAS_STARTED, target.field, f"{text}wait until none of its pods is on a node")]


def review_job_entry(
    target: Destination, queues: QueueLookup, read_tree: Callable[[], QueueTree]
) -> list[Fault]:
    """Return the faults of a Job that enters a queue. A queue with children is a fault, too.

    A Job that names no queue is always accepted, by Volcano's design of queue states. Its pods wait until the
    queue `default` is open.
    """
    queue, faults = target.queue, review_entry(target, queues) if target.is_named else []
    if faults or target.is_joining or not target.is_named:
        return faults
    if queue == keys.ROOT_QUEUE:
        text = f"queue {queue!r} accepts no groups: name a queue below it"
        return [Fault(Code.QUEUE_IS_ROOT, target.field, text)]
    if children := ", ".join(sorted(read_tree().children(queue))):
        text = f"queue {queue!r} has other queues below it and accepts no groups: name one of {children}"
        return [Fault(Code.QUEUE_NOT_LEAF, target.field, text)]
    return []


_BUDGET_PATTERN = re.compile(r"0*[1-9][0-9]{0,8}|0*[1-9][0-9]?%")


def review_budgets(pod: Pod) -> Iterator[Fault]:
    """Yield the faults in the disruption budget that a pod's annotations set for its Job."""
    annotations = pod.metadata.annotations or {}
    budget_keys = [key for key in (MIN_AVAILABLE, MAX_UNAVAILABLE) if key in annotations]
    for key in budget_keys:
        if _BUDGET_PATTERN.fullmatch(annotations[key]) is None:
            text = f"invalid value {annotations[key]!r}: must be a whole number above 0, or 1% to 99%"
            yield Fault(Code.BUDGET_NOT_VALID, f"metadata.annotations[{key}]", text)
    if len(budget_keys) > 1:
        text = f"set only one of this and {MIN_AVAILABLE}"
        yield Fault(Code.BUDGET_TWICE, f"metadata.annotations[{MAX_UNAVAILABLE}]", text)


def review_topologies(group: PodGroup) -> Iterator[Fault]:
    """Yield the faults in the network topologies of a PodGroup."""
    yield from _review_topology("spec.networkTopology", group.spec.network_topology)
    for number, policy in enumerate(group.spec.sub_group_policy or ()):
        yield from _review_topology(f"spec.subGroupPolicy[{number}].networkTopology", policy.network_topology)


def _review_topology(field: str, topology: NetworkTopology | None) -> Iterator[Fault]:
    if topology and topology.highest_tier_allowed is not None and topology.highest_tier_name:
        text = f"set only one of highestTierAllowed, {topology.highest_tier_allowed}, and highestTierName, "
        text += repr(topology.highest_tier_name)
        yield Fault(Code.TOPOLOGY_BOTH_TIERS, field, text)


def annotation_warnings(meta: Meta, template: Pod | None = None) -> Iterator[str]:
    """Yield the faults in Muster's annotations of an object, as texts for users.

    `template` is the template of a job.
    """
    annotations = meta.annotations or {}
    size = annotations.get(keys.MIN_MEMBER, ALL)
    fault = "" if size == ALL else gang_size_of(None, size, Defaults(), waits=False).fault
    if fault:
        yield fault
    allowed_by_key = {}
    if annotations.get(keys.CHECKPOINT) and checkpoint_of(meta) == NO_CHECKPOINT:
        advice = "when work was last saved, such as 2026-01-31T08:00:00Z, or how often it is, such as 10m"
        allowed_by_key[keys.CHECKPOINT] = advice
    if annotations.get(keys.RUN_TIME) and duration_of(annotations[keys.RUN_TIME], None) is None:
        allowed_by_key[keys.RUN_TIME] = "how long the group runs, such as 1h30m"
    for key, text in allowed_by_key.items():
        value_text = f"invalid value {annotations[key][:60]!r}, which counts as absent"
        yield f"metadata.annotations[{key}]: {value_text}: must be {text}"
    group = group_name(template) if template is not None else ""
    for key in (keys.CHECKPOINT, keys.RUN_TIME):
        if group not in ("", group_name_of(meta.uid)) and annotations.get(key):
            text = f"metadata.annotations[{key}]: pods of PodGroup {group} do not have it from their job"
            yield f"{text}; put it on the PodGroup, or into spec.template.metadata"


# In-place resizes of pods are reviewed here, since growth uses a queue's amounts without a start.

_REQUESTS_FIELD = "spec.containers[*].resources.requests"


def request_growth(old_pod: Pod, new_pod: Pod) -> Resources:
    """Return the increase of a pod's request.

    The result is empty for unreadable amounts, which the API server refuses.
    """
    try:
        old_requests, requests = pod_requests(old_pod.spec), pod_requests(new_pod.spec)
    except BadQuantity:
        return {}
    increase = {name: amount - old_requests.get(name, 0) for name, amount in requests.items()}
    return {name: amount for name, amount in increase.items() if amount > 0}


def review_growth(
    increase: Resources, destination: Destination, queues: QueueLookup, ceilings: Iterable[Ceiling]
) -> list[Fault]:
    """Return a fault if a group that grows by `increase` would exceed a capability or a ceiling.

    The present allocation of the queue is compared with its capability. `ceilings` are the ceilings of the
    queue and of all queues above it. Only the first excess is reported.
    """
    if (info := queues.info(destination.queue)) is None:
        return []
    own_ceiling = Ceiling(info.record.name, info.allocated, info.record.capability or {})
    texts = (
        f"the group takes {show(name, amount)} {name} more, and queue {ceiling.queue!r} "
        f"holds {show(name, ceiling.held_amounts.get(name, 0))} of {show(name, ceiling.max_amounts[name])} "
        "at most: free capacity, or raise its limit"
        for name, amount in increase.items()
        for ceiling in (own_ceiling, *ceilings)
        if ceiling.held_amounts.get(name, 0) + amount > ceiling.max_amounts.get(name, inf)
    )
    text = next(texts, "")
    return [Fault(Code.RESIZE_ABOVE_CEILING, _REQUESTS_FIELD, text)] if text else []


# The next functions return defaults as JSON patches. An empty list changes nothing.


def group_defaults(group: PodGroup, namespace: str, user: str | None, queues: QueueLookup) -> list[Operation]:
    """Return the operations that fill in a new PodGroup.

    The operations set the user who creates the group, in place of any other user that the group names. They
    also set the namespace's own queue in place of a `default` that a schema filled in. A group with a
    LocalQueue keeps `default`, since the LocalQueue may name another queue later.

    Args:
        group: The new PodGroup.
        namespace: The namespace of the group.
        user: The user who creates the group. It is empty if the author of the group's owner counts as its
            user, and None if the group itself names its user.
        queues: The queues.
    """
    named_user = (group.metadata.annotations or {}).get(keys.SUBMITTER, "")
    patch = annotate(group.metadata, {keys.SUBMITTER: user}) if user not in (None, named_user) else []
    return [*patch, *_namespace_default(group.metadata, namespace, group.spec.queue, queues)]


def job_queue_default(meta: Meta, namespace: str, queue: str, queues: QueueLookup) -> list[Operation]:
    """Return the operations that name the queue of a Volcano Job.

    A job that names no queue is always accepted. Its queue is `default`, unless `default` accepts no work.
    """
    patch, info = _namespace_default(meta, namespace, queue, queues), queues.info(keys.DEFAULT_QUEUE)
    is_open = info is not None and info.state == "Open"
    if queue or patch or not is_open or _is_routed(meta, namespace, queues):
        return patch
    return [addition(("spec", "queue"), keys.DEFAULT_QUEUE)]


def _namespace_default(meta: Meta, namespace: str, queue: str, queues: QueueLookup) -> list[Operation]:
    """Return the operations that set the namespace's queue, unless the object or its owner names a queue."""
    namespace_queue = queues.queue_of_namespace(namespace)
    is_filled_in = namespace_queue and not explicit_queue(queue) and not _is_routed(meta, namespace, queues)
    return [addition(("spec", "queue"), namespace_queue)] if is_filled_in else []


def _is_routed(meta: Meta, namespace: str, queues: QueueLookup) -> bool:
    """Return whether the label of an object, or an owner, may lead it into a queue."""
    if queues.local_queue_named_by(namespace, local_queue_label(meta)) is not None:
        return True
    controller = controller_of(meta.owner_references)
    return controller is not None and queues.queue_of_owner(namespace, controller) != NO_QUEUE_OF_OWNER


def annotate(meta: Meta, annotations: Mapping[str, str]) -> list[Operation]:
    """Return the operations that set annotations, except annotations that already have the value."""
    path, current = ("metadata", "annotations"), meta.annotations
    if current is None:
        return [addition(path, {**annotations})] if annotations else []
    return [addition((*path, key), text) for key, text in annotations.items() if current.get(key) != text]


def pod_defaults(
    pod: dict[str, Any], user: str, scheduler: str = "", is_gated: bool = True, adds_markers: bool = False
) -> list[Operation]:
    """Return the operations that fill in a new pod, as the admission policies do.

    Two kinds of pods stay as they are: a pod with a node bypasses the scheduler, and pods that the controller
    of a DaemonSet creates do not wait for each other.

    Args:
        pod: The object as submitted.
        user: The user who creates it.
        scheduler: The name of the scheduler that adopts the pod. If it is empty, the pod keeps its scheduler.
        is_gated: Whether the pod gets Muster's gate.
        adds_markers: Whether the pod gets the marker resources, by which the scheduler sends it to Muster.
    """
    spec, owners = pod.get("spec") or {}, pod.get("metadata", {}).get("ownerReferences") or []
    is_of_daemonset = any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
    is_of_daemonset &= user in _DAEMON_USERS
    if spec.get("nodeName") or is_of_daemonset:
        return []
    gate, gates = {"name": keys.GATE}, spec.get("schedulingGates")
    patch = [addition(("spec", "schedulerName"), scheduler)] if scheduler else []
    if is_gated and not gates:
        patch.append(addition(("spec", "schedulingGates"), [gate]))
    elif is_gated and gates and gate not in gates:
        patch.append(addition(("spec", "schedulingGates", "-"), gate))
    containers = spec.get("containers") if adds_markers else None
    if containers:  # the first container gets the markers, in addition to its requests
        markers = dict.fromkeys(sorted(keys.MARKERS), "1")
        resources = containers[0].get("resources") or {}
        new_resources = {kind: {**(resources.get(kind) or {}), **markers} for kind in ("requests", "limits")}
        patch.append(addition(("spec", "containers", "0", "resources"), {**resources, **new_resources}))
    return patch
