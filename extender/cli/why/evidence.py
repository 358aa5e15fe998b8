"""What objects of the API server show of why something waits, each kind read once and only when asked for.
What its user may not read is noted, and the rest is shown all the same."""

from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from extender.api.keys import DEFAULT_QUEUE
from extender.api.objects.base import Meta, OwnerReference, condition
from extender.api.objects.cluster import Event, Namespace
from extender.api.objects.pods import Pod
from extender.api.objects.queues import AlphaPodGroup, LocalQueue, NativePodGroup, PluginsPodGroup
from extender.cli.access import ClusterAccess
from extender.cli.installation import Installation
from extender.cli.kinds import OwnerKind, kind_of_owner
from extender.cli.lookup import ListedObject
from extender.domain.explain.observed import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import controller_of, group_name, queue_named_by
from extender.domain.model.queue_of_group import (
    LocalQueueLabel,
    explicit_queue,
    local_queue_label,
    namespace_queue,
    noted_queue,
)
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupRecord, Origin
from extender.domain.model.wire_records import any_group_record
from extender.domain.queues.local_queues import LocalQueueRecord, QueueWays, records_by_key
from extender.domain.snapshot.job_suspension import refusal_of_pods
from extender.kube import resources as kube
from extender.kube.access import AccessApi, Right
from extender.kube.errors import ApiError, Forbidden, NotFound
from extender.kube.resources import Resource

T = TypeVar("T")

_OF_THE_CLUSTER = (kube.QUEUES, kube.API_GROUPS)
_REASONS = frozenset(map(str, Reason))
HIGHEST = 8  # owners above each other; references may form a circle


class OtherGroup(NamedTuple):
    """A PodGroup of another API than Volcano's."""

    project: str
    resource: Resource
    record: GroupRecord

    @property
    def number(self) -> tuple[str, ...]:
        """The path in its spec of the number of pods that start together."""
        is_plugins = self.record.origin is Origin.PLUGINS
        return ("minMember",) if is_plugins else ("schedulingPolicy", "gang", "minCount")


_OTHER_GROUPS: tuple[tuple[str, Resource, type[PluginsPodGroup | NativePodGroup]], ...] = (
    ("scheduler-plugins", kube.PLUGINS_POD_GROUPS, PluginsPodGroup),
    ("Kubernetes itself", kube.NATIVE_POD_GROUPS, NativePodGroup),
    ("Kubernetes itself", kube.ALPHA_POD_GROUPS, AlphaPodGroup),
)

NO_QUEUES = (
    "Shares and limits of queues are not shown: you may not read queues. Queues belong to no namespace, so it"
    " takes a ClusterRoleBinding to the role kube-muster-view, or to another that may get and list them."
)
NO_OTHER_GROUPS = "Groups of other namespaces are not shown: you may not list podgroups there."
NO_PODS = "Members are not shown: you may not list pods in this namespace."


class Evidence:
    """`namespace` is the one that the question is about; empty means all."""

    def __init__(self, place: ClusterAccess, namespace: str) -> None:
        self._place, self._reader = place, place.reader
        self.namespace = namespace
        self.notes: list[str] = []
        self.unread: list[str] = []  # kinds of which one object may not be read, by their plural names
        self._rights: dict[Right, bool] = {}

    def may(self, right: Right) -> bool:
        """Whether the user has a right. A cluster that cannot be asked (the embedded one) forbids nothing."""
        if right not in self._rights:
            try:
                self._rights[right] = AccessApi(self._place.connection).grants_me(right)
            except ApiError:
                self._rights[right] = True
        return self._rights[right]

    def muster_may(self, right: Right) -> bool:
        """Whether Muster's account has a right; true where the user may not ask that, or finds no Muster."""
        site = Installation(self._place._replace(namespace=""))
        try:
            return not site.workloads or site.may(right)
        except ApiError:
            return True

    @cached_property
    def queues(self) -> dict[str, ObservedQueue] | None:
        """By name; None where they may not be read."""
        found = self._listed(kube.QUEUES, "", ObservedQueue, NO_QUEUES)
        return None if found is None else {queue.name: queue for queue in found}

    @cached_property
    def _queues_by_uid(self) -> dict[str, str]:
        return {queue.metadata.uid: name for name, queue in (self.queues or {}).items()}

    def queue(self, name: str) -> ObservedQueue | None:
        return (self.queues or {}).get(name)

    @cached_property
    def groups(self) -> list[ObservedGroup]:
        """Of all namespaces where that is allowed, else of this one; the older first."""
        found = self._everywhere(kube.POD_GROUPS, ObservedGroup, NO_OTHER_GROUPS)
        return sorted(found, key=lambda group: (group.metadata.creation_timestamp or "", group.key))

    def other_group(self, name: str) -> OtherGroup | None:
        """One of an API that is not Volcano's; None where none has the name, or it may not be read."""
        for project, resource, kind in _OTHER_GROUPS:
            if found := self.find(resource, name, kind):
                return OtherGroup(project, resource, any_group_record(found))
        return None

    @property
    def groups_here(self) -> list[ObservedGroup]:
        return [group for group in self.groups if group.namespace == self.namespace]

    def groups_in(self, queue: str) -> list[ObservedGroup]:
        return [group for group in self.groups if self.queue_of(group) == queue]

    def group(self, name: str) -> ObservedGroup | None:
        """None where there is none of this name."""
        try:
            return self._reader.get(kube.POD_GROUPS, self.namespace, name, ObservedGroup)
        except NotFound:
            return None

    @cached_property
    def pods(self) -> list[Pod] | None:
        """Of this namespace; None where they may not be read."""
        return self._listed(kube.PODS, self.namespace, Pod, NO_PODS)

    @cached_property
    def waiting_pods(self) -> list[Pod]:
        """Those of all namespaces that are not on a node yet; none where they may not be read."""
        found = self._listed(kube.PODS, "", Pod, fields="status.phase=Pending")
        return [pod for pod in found or () if not pod.spec.node_name]

    @cached_property
    def served(self) -> dict[str, str]:
        """The API groups of the cluster, each with the version that it prefers."""
        found = self.find(kube.API_GROUPS, "", dict[str, Any]) or {}
        return {
            group["name"]: (group.get("preferredVersion") or {}).get("version", "")
            for group in found.get("groups") or ()
        }

    def find(self, resource: Resource, name: str, kind: type[T], *, of_cluster: bool = False) -> T | None:
        """One object of this namespace or the cluster; None where there is none, or it may not be read."""
        namespace = "" if of_cluster or resource in _OF_THE_CLUSTER else self.namespace
        try:
            return self._reader.get(resource, namespace, name, kind)
        except NotFound:
            return None
        except Forbidden:
            if resource.plural not in self.unread:
                self.unread.append(resource.plural)
            return None

    def reason_in_events(self, kind: str, name: str) -> tuple[str, str]:
        """The reason for which a pod or a group waits by its latest event, and the numbers; empty where none
        says."""
        about = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = self._listed(kube.EVENTS, self.namespace, Event, fields=about)
        ours = [event for event in found or () if event.reason in _REASONS]
        latest = max(ours, key=lambda event: event.at, default=None)
        return (latest.reason, latest.message.partition(": ")[2]) if latest else ("", "")

    def refusal(self, maker: OwnerReference) -> str:
        """Why the newest pod of a maker, or of what that makes, was not created; empty where none says."""
        found = self._listed(kube.EVENTS, self.namespace, Event, fields="reason=FailedCreate") or ()
        own = [each for each in found if each.about.uid == maker.uid or _is_part(each.about, maker)]
        newest = max(own, key=lambda event: event.at, default=None)
        return refusal_of_pods(newest.message) if newest else ""

    # ---- owners of pods, in the kinds and versions that the cluster serves

    def resource_of_kind(self, kind: OwnerKind) -> Resource | None:
        """None where the cluster does not serve its API group."""
        version = self.served.get(kind.group)
        return Resource(f"/apis/{kind.group}/{version}", kind.plural) if version else None

    def all_owners(self, kind: OwnerKind) -> list[ListedObject]:
        """Those of this namespace; none where they may not be read."""
        resource = self.resource_of_kind(kind)
        if resource is None:
            return []
        return self._listed(resource, self.namespace, ListedObject) or []

    def find_owner(self, kind: OwnerKind, name: str, form: type[T]) -> T | None:
        resource = self.resource_of_kind(kind)
        return self.find(resource, name, form) if resource else None

    # ---- groups and their queues

    def members(self, group: ObservedGroup) -> list[Pod] | None:
        """None where they cannot be known."""
        if group.namespace != self.namespace or self.pods is None:
            return None
        return [pod for pod in self.pods if group_name(pod) == group.name]

    def queue_of(self, group: ObservedGroup) -> str:
        """In which Muster counts it, as far as namespaces and queues may be read: from its start on in that
        in which it started, which is noted on it."""
        noted = noted_queue(group.metadata) if group.is_holding else ""
        return self._queues_by_uid.get(noted) or self.queue_asked_for(group)

    def queue_asked_for(self, group: ObservedGroup) -> str:
        """To which it is sent."""
        named, label = explicit_queue(group.spec.queue), local_queue_label(group.metadata)
        return self.queue_of_pods(group.namespace, named, label)

    def queue_of_pod(self, pod: Pod) -> str:
        """Of a pod without a group."""
        meta = pod.metadata
        return self.queue_of_pods(meta.namespace, queue_named_by(meta), local_queue_label(meta))

    def queue_of_pods(self, namespace: str, named: str, label: LocalQueueLabel | None) -> str:
        """Of pods without a group that name a queue, or a LocalQueue by a label."""
        ways = self._ways if label else QueueWays(self.queue_of_namespace, {})  # reads what it needs
        return ways.queue_of(namespace, named, label) or DEFAULT_QUEUE

    def unheeded(self, maker: Meta, spoken_name: str, queue: str) -> str:
        """A sentence where what makes pods names another queue than `queue`, where they are; else empty."""
        named, label = queue_named_by(maker), local_queue_label(maker)
        if not named and self._local_queue(maker) is None:
            return ""
        if (own := self.queue_of_pods(maker.namespace, named, label)) == queue:
            return ""
        stands = f"{spoken_name} names queue {own} itself, but its pods do not: they are in queue {queue}."
        return f"{stands} Name it in their template."

    def unheeded_by(self, maker: OwnerReference | None, queue: str) -> list[str]:
        """The same of a maker in this namespace and those above it, as far as they may be read."""
        text = ""
        for _ in range(HIGHEST):  # a Deployment hands its annotations to its ReplicaSets: the highest is told
            kind = kind_of_owner(maker) if maker else None
            found = self.find_owner(kind, maker.name, ListedObject) if kind and maker else None
            if found is None or maker is None:
                break
            text = self.unheeded(found.metadata, maker.spoken_name, queue) or text
            maker = controller_of(found.metadata.owner_references)
        return [text] if text else []

    def refusal_of(self, name: str) -> tuple[str, str]:
        """Why a queue takes nothing in, and the numbers of it; empty where it does, or may not be read."""
        queue = self.queue(name)
        if queue is not None and queue.state != "Open":
            deleted = ", because it is being deleted" if queue.metadata.deletion_timestamp else ""
            return Reason.QUEUE_NOT_OPEN, f"queue {name} is {queue.state}{deleted}"
        if queue is not None or self.queues is None or name == DEFAULT_QUEUE:
            return "", ""
        return Reason.QUEUE_NOT_FOUND, f"queue {name} does not exist"

    def stopped_local_queue(self, group: ObservedGroup) -> LocalQueueRecord | None:
        """That by which a group comes into its queue, if it admits none."""
        local = self._local_queue(group.metadata)
        return local if local is not None and local.stop_policy else None

    def closed_above(self, name: str) -> str:
        """The highest queue above `name` that is closed itself; empty if none is, or it may not be read."""
        found, path = "", {name}
        queue = self.queue(name)
        while queue and (queue := self.queue(queue.spec.parent)) and queue.name not in path:
            path.add(queue.name)
            opened = condition(queue.status.conditions, "Open")
            if queue.state != "Open" and not (opened and opened.reason == "ParentClosed"):
                found = queue.name
        return found

    def is_kueues(self, meta: Meta) -> bool:
        """Whether an object's label for a LocalQueue is meant for one of Kueue's own."""
        return local_queue_label(meta) is not None and self._local_queue(meta) is None

    @cached_property
    def _ways(self) -> QueueWays:
        kueue_is_served = kube.KUEUE_LOCAL_QUEUES[0].group in self.served
        return QueueWays(self.queue_of_namespace, records_by_key(self.local_queues.values()), kueue_is_served)

    def _local_queue(self, meta: Meta) -> LocalQueueRecord | None:
        """Return the LocalQueue that an object names by a label."""
        label = local_queue_label(meta)
        return self._ways.local_queue(meta.namespace, label) if label is not None else None

    @cached_property
    def local_queues(self) -> dict[str, LocalQueue]:
        """By `namespace/name`: of all namespaces where that is allowed, else of this one."""
        found = self._everywhere(kube.LOCAL_QUEUES, LocalQueue)
        return {f"{local.metadata.namespace}/{local.metadata.name}": local for local in found}

    def queue_of_namespace(self, name: str) -> str:
        """Empty where neither it nor its quota names one, or where that may not be read."""
        return self._namespace_queues.get(name) or self._quota_queues.get(name, "")

    @cached_property
    def _quota_queues(self) -> dict[str, str]:
        """By namespace: the queue that its quota gives it, as the queues that are made from quotas say."""
        entering = {queue.name: queue.entering for queue in (self.queues or {}).values()}
        return {namespace: queue for queue, several in entering.items() for namespace in several}

    @cached_property
    def _namespace_queues(self) -> dict[str, str]:
        found = self._listed(kube.NAMESPACES, "", Namespace)
        if found is None:
            with suppress(Forbidden, NotFound):
                found = [self._reader.get(kube.NAMESPACES, "", self.namespace, Namespace)]
        return {each.metadata.name: namespace_queue(each) for each in found or ()}

    def _everywhere(self, resource: Resource, kind: type[T], note: str = "") -> list[T]:
        """Of all namespaces where that is allowed, else of this one."""
        found = self._listed(resource, "", kind, note)
        if found is None and self.namespace:
            found = self._listed(resource, self.namespace, kind)
        return found or []

    def _listed(
        self, resource: Resource, namespace: str, kind: type[T], note: str = "", fields: str = ""
    ) -> list[T] | None:
        """None where they may not be read, or the kind or the namespace does not exist: noted by `note`."""
        try:
            return self._reader.list(resource, namespace, kind, fields)
        except (Forbidden, NotFound):
            if note:
                self.notes.append(note)
            return None


def _is_part(about: OwnerReference, maker: OwnerReference) -> bool:
    """By its name, as the Job set-workers-0 of the JobSet set."""
    return about.kind != maker.kind and about.name.startswith(f"{maker.name}-")
