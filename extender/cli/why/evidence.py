"""Objects of the API server that show why an object waits.

Each kind is read once, when it is first needed. If a read is refused, the answer has a note about that.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from extender.api import keys
from extender.api.configuration import Configuration
from extender.api.objects.base import Condition, Meta, OwnerReference, Quantities, condition
from extender.api.objects.cluster import Event, Namespace
from extender.api.objects.pods import Pod
from extender.api.objects.queues import AlphaPodGroup, LocalQueue, NativePodGroup, PluginsPodGroup
from extender.api.units import BadQuantity
from extender.cli.access import ClusterAccess
from extender.cli.installation import Installation
from extender.cli.kinds import OwnerKind, kind_of_owner
from extender.cli.lookup import ListedObject
from extender.cli.why.explanation import Statement, numbers
from extender.domain.explain.observed_objects import ObservedGroup, ObservedQueue
from extender.domain.model import queue_of_group as rules
from extender.domain.model.ownership import controller_of, group_name, is_adopted, queue_named_by
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.domain.model.records import GroupRecord, Origin
from extender.domain.model.resources import PODS, pod_requests, quantities, total
from extender.domain.model.wire_records import any_group_record
from extender.domain.queues.local_queues import LocalQueueRecord, QueueRoutes, records_by_key
from extender.domain.snapshot.job_start_and_suspension import refusal_of_pods
from extender.kube import resources as kube
from extender.kube.access import AccessApi, Right
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.resources import Resource

T = TypeVar("T")

_REASON_CODES = frozenset(map(str, Reason))
MAX_HEIGHT = 8  # maximum depth of owners; owner references may form a circle
_CLUSTER_KINDS = (kube.QUEUES, kube.API_GROUPS)
_OTHER_GROUP_KINDS: tuple[tuple[str, Resource, type[PluginsPodGroup | NativePodGroup]], ...] = (
    ("scheduler-plugins", kube.PLUGINS_POD_GROUPS, PluginsPodGroup),
    ("Kubernetes itself", kube.NATIVE_POD_GROUPS, NativePodGroup),
    ("Kubernetes itself", kube.ALPHA_POD_GROUPS, AlphaPodGroup),
)


class OtherGroup(NamedTuple):
    """PodGroup of an API other than Volcano's. `minimum_path` is the path of the minimum in its spec."""

    project: str
    resource: Resource
    record: GroupRecord

    @property
    def minimum_path(self) -> tuple[str, ...]:
        is_plugins = self.record.origin is Origin.PLUGINS
        return ("minMember",) if is_plugins else ("schedulingPolicy", "gang", "minCount")


class Evidence:
    """Objects that a user may read about one namespace; an empty namespace means all."""

    def __init__(self, access: ClusterAccess, namespace: str) -> None:
        self._access, self._reader = access, access.reader
        self.namespace = namespace
        self.notes: list[Statement] = []
        self.unread_kinds: list[str] = []  # plural names of kinds with an object that may not be read
        self._rights: dict[Right, bool] = {}
        self._listed_owners: dict[OwnerKind | str, dict[str, Meta]] = {}  # owners by kind, then by UID
        # Direct and indirect owners of an object, by the UID of the object.
        self._owners: dict[str, frozenset[tuple[OwnerKind | None, str]]] = {}

    # ---- rights

    def may(self, right: Right) -> bool:
        """Return whether the user has a right.

        The result is True if the API server cannot answer, as in the embedded cluster.
        """
        if right not in self._rights:
            try:
                self._rights[right] = AccessApi(self._access.connection).has_own_right(right)
            except ApiError:
                self._rights[right] = True
        return self._rights[right]

    def muster_may(self, right: Right) -> bool:
        """Return whether Muster's service account has a right. True if the right cannot be checked."""
        site = Installation(self._access._replace(namespace=""))
        try:
            return not site.workloads or site.may(right)
        except ApiError:
            return True

    # ---- objects

    def find(self, resource: Resource, name: str, kind: type[T], *, of_cluster: bool = False) -> T | None:
        """Return an object of the namespace or the cluster; None if it does not exist or may not be read."""
        namespace = "" if of_cluster or resource in _CLUSTER_KINDS else self.namespace
        try:
            return self._reader.get(resource, namespace, name, kind)
        except NotFound:
            return None
        except Forbidden:
            if (kind_name := resource.plural or resource.root) not in self.unread_kinds:
                self.unread_kinds.append(kind_name)
            return None

    def _objects_of(
        self, resource: Resource, namespace: str, kind: type[T], note: str = "", fields: str = ""
    ) -> list[T] | None:
        """Return all objects of a kind; None, with a note, if the kind may not be read or is not served."""
        try:
            return self._reader.list(resource, namespace, kind, fields)
        except (Forbidden, NotFound):
            if note:
                self.notes.append(Statement(note))
            return None

    def _objects_everywhere(self, resource: Resource, kind: type[T], note: str = "") -> list[T]:
        """Return the objects of all namespaces if the user may list them there, else of this namespace."""
        objects = self._objects_of(resource, "", kind, note)
        if objects is None and self.namespace:
            objects = self._objects_of(resource, self.namespace, kind)
        return objects or []

    @cached_property
    def queues(self) -> dict[str, ObservedQueue] | None:
        """Return the queues by name; None if they may not be read."""
        queues = self._objects_of(kube.QUEUES, "", ObservedQueue, "QueuesNotShown")
        return None if queues is None else {queue.name: queue for queue in queues}

    @cached_property
    def _queues_by_uid(self) -> dict[str, str]:
        return {queue.metadata.uid: name for name, queue in (self.queues or {}).items()}

    def queue(self, name: str) -> ObservedQueue | None:
        return (self.queues or {}).get(name)

    @cached_property
    def groups(self) -> list[ObservedGroup]:
        """Return the groups of all namespaces if the user may list them there, else of this namespace.

        The oldest group is first.
        """
        groups = self._objects_everywhere(kube.POD_GROUPS, ObservedGroup, "OtherGroupsNotShown")
        return sorted(groups, key=lambda group: (group.metadata.creation_timestamp or "", group.key))

    @property
    def groups_here(self) -> list[ObservedGroup]:
        return [group for group in self.groups if group.namespace == self.namespace]

    def groups_in(self, queue: str) -> list[ObservedGroup]:
        return [group for group in self.groups if self.queue_of(group) == queue]

    def group(self, name: str) -> ObservedGroup | None:
        """Return the PodGroup with this name; None if it does not exist.

        Raises:
            Forbidden: The user may not read the PodGroup.
        """
        with suppress(NotFound):
            return self._reader.get(kube.POD_GROUPS, self.namespace, name, ObservedGroup)
        return None

    def other_group(self, name: str) -> OtherGroup | None:
        """Return the PodGroup with this name in an API other than Volcano's; None if none can be read."""
        for project, resource, kind in _OTHER_GROUP_KINDS:
            if group := self.find(resource, name, kind):
                return OtherGroup(project, resource, any_group_record(group))
        return None

    @cached_property
    def pods(self) -> list[Pod] | None:
        """Return the pods of this namespace; None if they may not be read."""
        return self._objects_of(kube.PODS, self.namespace, Pod, "PodsNotShown")

    @cached_property
    def waiting_pods(self) -> list[Pod]:
        """Return the pods of all namespaces that have no node yet; empty if they may not be read."""
        pending_pods = self._objects_of(kube.PODS, "", Pod, fields="status.phase=Pending")
        return [pod for pod in pending_pods or () if not pod.spec.node_name]

    def members(self, group: ObservedGroup) -> list[Pod] | None:
        """Return the pods that name a group; None if its namespace is another, or pods may not be read."""
        if group.namespace != self.namespace or self.pods is None:
            return None
        return [pod for pod in self.pods if group_name(pod) == group.name]

    # ---- events

    def reason_in_events(self, kind: str, name: str) -> tuple[str, Statement | None]:
        """Return the reason and numbers of Muster's latest event about an object; empty without an event."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        events = self._objects_of(kube.EVENTS, self.namespace, Event, fields=selector)
        decisions = [event for event in events or () if event.reason in _REASON_CODES]
        latest = max(decisions, key=lambda event: event.at, default=None)
        return (latest.reason, numbers(latest.message.partition(": ")[2])) if latest else ("", None)

    def creation_refusal(self, controller: OwnerReference) -> str:
        """Return why an owner or one of its parts could not create a pod; empty without such an event.

        The newest event counts.
        """
        events = self._objects_of(kube.EVENTS, self.namespace, Event, fields="reason=FailedCreate") or ()
        subjects = ((event, event.about) for event in events)
        matches = [event for event, obj in subjects if obj.uid == controller.uid or _is_part(obj, controller)]
        newest = max(matches, key=lambda event: event.at, default=None)
        return refusal_of_pods(newest.message) if newest else ""

    # ---- owners of pods, in the kinds and versions that the cluster serves

    @cached_property
    def served_versions(self) -> dict[str, str]:
        """Return the API groups of the cluster, each with its preferred version."""
        document = self.find(kube.API_GROUPS, "", dict[str, Any]) or {}
        groups = document.get("groups") or ()
        preferred_versions = ((group["name"], group.get("preferredVersion") or {}) for group in groups)
        return {name: version.get("version", "") for name, version in preferred_versions}

    def resource_of_kind(self, kind: OwnerKind) -> Resource | None:
        """Return the resource of a kind; None if the cluster does not serve its API group."""
        version = self.served_versions.get(kind.group)
        return Resource(f"/apis/{kind.group}/{version}", kind.plural) if version else None

    def all_owners(self, kind: OwnerKind) -> list[ListedObject]:
        """Return the objects of a kind in this namespace; empty if they may not be read."""
        resource = self.resource_of_kind(kind)
        return (self._objects_of(resource, self.namespace, ListedObject) if resource else None) or []

    def find_owner(self, kind: OwnerKind, name: str, form: type[T]) -> T | None:
        resource = self.resource_of_kind(kind)
        return self.find(resource, name, form) if resource else None

    def pods_of(self, kind: OwnerKind, name: str) -> list[Pod]:
        return [pod for pod in self.pods or () if self.belongs(pod.metadata, kind, name)]

    def belongs(self, meta: Meta, kind: OwnerKind, name: str) -> bool:
        """Return whether a workload of this namespace owns an object directly or indirectly."""
        if meta.uid not in self._owners:
            above = self._owners_above(meta)
            self._owners[meta.uid] = frozenset((kind_of_owner(owner), owner.name) for owner in above)
        return (kind, name) in self._owners[meta.uid]

    def _owners_above(self, meta: Meta, height: int = 0) -> Iterator[OwnerReference]:
        """Yield the direct and indirect owners of an object.

        For example, a Job of a JobSet owns a pod, and a Spark driver owns an executor.
        """
        for owner in meta.owner_references or ():
            yield owner
            meta_of_owner = self._possible_owners(kind_of_owner(owner) or owner.kind).get(owner.uid)
            if meta_of_owner is not None and height < MAX_HEIGHT:
                yield from self._owners_above(meta_of_owner, height + 1)

    def _possible_owners(self, kind: OwnerKind | str) -> dict[str, Meta]:
        """Return the objects of a kind by UID; empty if the kind is neither a known workload nor Pod."""
        if kind not in self._listed_owners:
            objects: Iterable[ListedObject | Pod] = (self.pods or ()) if kind == "Pod" else ()
            if isinstance(kind, OwnerKind):
                objects = self.all_owners(kind)
            self._listed_owners[kind] = {obj.metadata.uid: obj.metadata for obj in objects}
        return self._listed_owners[kind]

    # ---- queues of groups and pods

    def queue_of(self, group: ObservedGroup) -> str:
        """Return the queue in which a group counts. After its start, this is the recorded queue."""
        recorded_uid = rules.recorded_queue_uid(group.metadata) if group.is_admitted else ""
        return self._queues_by_uid.get(recorded_uid) or self.requested_queue(group)

    def requested_queue(self, group: ObservedGroup) -> str:
        """Return the queue that a group, its owner or its namespace names."""
        return self.queue_of_object(group.metadata, rules.explicit_queue(group.spec.queue))

    def queue_of_pod(self, pod: Pod) -> str:
        """Return the queue of a pod without a group."""
        return self.queue_of_object(pod.metadata, queue_named_by(pod.metadata))

    def queue_of_object(self, meta: Meta, queue_name: str) -> str:
        """Return the queue that an object names, else the queue that its nearest owner names."""
        label, current_meta = rules.local_queue_label(meta), meta
        for _ in range(MAX_HEIGHT):
            controller = controller_of(current_meta.owner_references)
            kind = kind_of_owner(controller) if controller else None
            owner = self.find_owner(kind, controller.name, ListedObject) if kind and controller else None
            if queue_name or label or owner is None:
                break
            current_meta = owner.metadata
            queue_name, label = queue_named_by(current_meta), rules.local_queue_label(current_meta)
        return self.queue_of_pods(meta.namespace, queue_name, label)

    def queue_of_pods(self, namespace: str, queue_name: str, label: rules.LocalQueueLabel | None) -> str:
        """Return the queue of pods that name a queue, or a LocalQueue by a label.

        LocalQueues are only read if there is a label.
        """
        routes = self._routes if label else QueueRoutes(self.queue_of_namespace, {})
        return routes.queue_of(namespace, queue_name, label) or keys.DEFAULT_QUEUE

    def queue_refusal(self, name: str) -> tuple[str, Statement | None]:
        """Return the reason and detail if a queue accepts no groups; empty if it accepts groups."""
        queue = self.queue(name)
        if queue is not None and queue.state != "Open":
            code = "QueueIsDeleted" if queue.metadata.deletion_timestamp else "QueueIsNotOpen"
            return Reason.QUEUE_NOT_OPEN, Statement(code, queue=name, state=queue.state)
        if queue is not None or self.queues is None or name == keys.DEFAULT_QUEUE:
            return "", None
        return Reason.QUEUE_NOT_FOUND, Statement("QueueIsMissing", queue=name)

    def closed_above(self, name: str) -> str:
        """Return the topmost queue above `name` that is itself closed; empty if none is known."""
        closed_name, path = "", {name}
        queue = self.queue(name)
        parent = self.queue(queue.spec.parent) if queue else None
        while parent and parent.name not in path:
            path.add(parent.name)
            open_condition = condition(parent.status.conditions, "Open")
            if parent.state != "Open" and not (open_condition and open_condition.reason == "ParentClosed"):
                closed_name = parent.name
            parent = self.queue(parent.spec.parent)
        return closed_name

    # ---- LocalQueues and namespaces

    @cached_property
    def local_queues(self) -> dict[str, LocalQueue]:
        """Return the LocalQueues by `namespace/name`.

        The LocalQueues are from all namespaces if the user may list them there, else from this namespace.
        """
        objects = self._objects_everywhere(kube.LOCAL_QUEUES, LocalQueue)
        return {f"{local.metadata.namespace}/{local.metadata.name}": local for local in objects}

    def stopped_local_queue(self, group: ObservedGroup) -> LocalQueueRecord | None:
        """Return the LocalQueue of a group if it is stopped, else None."""
        local = self._local_queue(group.metadata)
        return local if local is not None and local.stop_policy else None

    def is_kueue_label(self, meta: Meta) -> bool:
        """Return whether the label of an object names a LocalQueue of Kueue."""
        return rules.local_queue_label(meta) is not None and self._local_queue(meta) is None

    @cached_property
    def _routes(self) -> QueueRoutes:
        has_kueue = kube.KUEUE_LOCAL_QUEUES[0].group in self.served_versions
        return QueueRoutes(self.queue_of_namespace, records_by_key(self.local_queues.values()), has_kueue)

    def _local_queue(self, meta: Meta) -> LocalQueueRecord | None:
        """Return the LocalQueue that an object names by a label; None if there is none."""
        label = rules.local_queue_label(meta)
        return self._routes.local_queue(meta.namespace, label) if label is not None else None

    def queue_of_namespace(self, name: str) -> str:
        """Return the queue that a namespace or its quota names; empty if it is unknown."""
        namespace = self._namespaces.get(name)
        return (rules.namespace_queue(namespace) if namespace else "") or self._quota_queues.get(name, "")

    def is_adopted(self, namespace: str) -> bool:
        """Return whether new pods in a namespace get Muster's scheduler if they name none."""
        record = self._namespaces.get(namespace)
        return record is not None and is_adopted(namespace, record.metadata.labels or {})

    @cached_property
    def _quota_queues(self) -> dict[str, str]:
        """Return the queues that were made from quotas, by namespace of the quota."""
        namespaces_of = {queue.name: queue.entering_namespaces for queue in (self.queues or {}).values()}
        return {namespace: queue for queue, namespaces in namespaces_of.items() for namespace in namespaces}

    @cached_property
    def _namespaces(self) -> dict[str, Namespace]:
        namespaces = self._objects_of(kube.NAMESPACES, "", Namespace)
        if namespaces is None:
            with suppress(Forbidden, NotFound):
                namespaces = [self._reader.get(kube.NAMESPACES, "", self.namespace, Namespace)]
        return {namespace.metadata.name: namespace for namespace in namespaces or ()}


def _is_part(subject: OwnerReference, controller: OwnerReference) -> bool:
    """Return whether an object seems to be a part of a controller, as Job set-workers-0 of JobSet set."""
    return subject.kind != controller.kind and subject.name.startswith(f"{controller.name}-")


# ---- readings of pods
#
# Only administrators can read Muster's configuration, which names its schedulers. A pod is Muster's if it
# has a gate, a marker resource or a message of Muster, or names a scheduler that is Muster's by default.

SCHEDULERS = Configuration().scheduler_names
_REFUSAL = re.compile(rf"{REFUSAL_PREFIX}([A-Z]\w+)")


def is_ours(pod: Pod) -> bool:
    """Return whether a pod is Muster's, as far as the pod itself shows."""
    if pod.spec.scheduler_name in SCHEDULERS or is_gated(pod) or _REFUSAL.search(pod_scheduled(pod).message):
        return True
    requests = (container.resources.requests or () for container in pod.spec.containers)
    return any(not keys.MARKERS.isdisjoint(resources) for resources in requests)


def scheduler_of(pod: Pod) -> str:
    return pod.spec.scheduler_name or keys.DEFAULT_SCHEDULER


def is_gated(pod: Pod) -> bool:
    return any(gate.name == keys.GATE for gate in pod.spec.scheduling_gates or ())


def foreign_gates(pod: Pod) -> list[str]:
    return [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != keys.GATE]


def pod_scheduled(pod: Pod) -> Condition:
    """Return the condition PodScheduled of a pod; an empty condition if the pod has none."""
    return condition(pod.status.conditions, keys.POD_SCHEDULED) or Condition(keys.POD_SCHEDULED, "Unknown")


def reason_of(pod: Pod) -> tuple[str, Statement | None]:
    """Return the reason and the message of a pod's condition; empty if the pod has no condition."""
    condition = pod_scheduled(pod)
    if match := _REFUSAL.search(condition.message):
        return match[1], None
    if condition.reason == keys.UNSCHEDULABLE:
        return Reason.REFUSED_BY_SCHEDULER, numbers(condition.message)
    return "", None


def held_amounts(pods: Iterable[Pod]) -> Quantities:
    """Return the sum of the requests of the pods that are on nodes."""
    placed_pods = [pod for pod in pods if pod.spec.node_name and pod.status.phase not in keys.ENDED_PHASES]
    try:
        sums = total(pod_requests(pod.spec) for pod in placed_pods)
    except BadQuantity:
        return {}
    return {name: quantity for name, quantity in quantities(sums).items() if name != PODS}
