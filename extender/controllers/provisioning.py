"""Requests to an autoscaler for the nodes of a group (ProvisioningRequests), if the queue asks for them.

A request is created once the group has lacked capacity for some seconds, and deleted when the group needs no
more nodes. A failed request stays, and the status of the group reports the failure. If a user deletes the
failed request, Muster creates a new request.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from extender.api.objects.base import Condition, OwnerReference, condition
from extender.api.objects.cluster import ProvisioningRequest
from extender.api.objects.queues import Provisioning
from extender.controllers.controller import ControllerContext, PacedController
from extender.controllers.objects import (
    COMPOSITE_KIND,
    POD_GROUP_KIND,
    ObjectStore,
    QueueCopy,
    group_reference,
)
from extender.domain.model.ownership import controller_of
from extender.domain.model.records import GroupKey, GroupRecord, PodRecord, composite_key
from extender.domain.model.shapes import Shape
from extender.domain.snapshot.decisions import ConditionPolicy, Decisions
from extender.kube.reflector import Removed
from extender.kube.resources import POD_TEMPLATES, PROVISIONING_REQUESTS
from extender.kube.writers import TokenBucket

MANAGED_BY = ("app.kubernetes.io/managed-by", "muster")
_LABELS = dict([MANAGED_BY])
_KIND = {"apiVersion": PROVISIONING_REQUESTS.version, "kind": "ProvisioningRequest"}
_POD_ONLY_FIELDS = ("nodeName", "schedulingGates", "ephemeralContainers")
MIN_NEED_SECONDS = 5.0  # the needs of a group stay the same for so long before a request is created
_RETRY_PAUSE = 1.0  # seconds until a group is tried again for which the budget had no token
_DELETION_RATE, _DELETION_BURST = 20.0, 50  # deletions per second, and at once
MAX_POD_SETS = 32  # most pod sets of a request, a limit of the API server
_MAX_PREFIX_LENGTH = 40  # so that a name with its digest fits into the 63 characters of a label
_MAX_MESSAGE_LENGTH = 256
_FAILED_CONDITION, _SPENT_CONDITIONS = "Failed", ("BookingExpired", "CapacityRevoked")


class PodSet(msgspec.Struct, frozen=True):
    """Members of a group with equal needs."""

    member: PodRecord  # member whose specification becomes the template
    count: int  # number of these members, at least 1


class DesiredRequest(msgspec.Struct, frozen=True):
    """Desired ProvisioningRequest."""

    name: str  # name of the object, in the namespace of the group
    class_name: str  # provisioning class of the autoscaler
    parameters: Mapping[str, str]  # parameters of the class
    pod_sets: tuple[PodSet, ...]  # 1 to MAX_POD_SETS


class ProvisioningRequests:
    """ProvisioningRequests that belong to PodGroups, keyed by group. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests_by_group: dict[GroupKey, dict[str, ProvisioningRequest]] = {}
        self._listeners: list[Callable[[GroupKey, bool], None]] = []

    def listen(self, listener: Callable[[GroupKey, bool], None]) -> None:
        """Register a listener for changes of requests.

        The listener gets the group of each changed request, and True if the request is gone.
        """
        self._listeners.append(listener)

    def requests_of(self, key: GroupKey) -> list[ProvisioningRequest]:
        with self._lock:
            return list(self._requests_by_group.get(key, {}).values())

    def failure(self, key: GroupKey) -> str:
        """Return a message why the autoscaler adds no nodes for a group; empty if no request has failed."""
        failures = (
            (request.metadata.name, failure(request.status.conditions)) for request in self.requests_of(key)
        )
        return next((f"ProvisioningRequest {name} failed: {why}" for name, why in failures if why), "")

    def upsert(self, request: ProvisioningRequest) -> None:
        """Store a request under the group that owns it. Requests of other owners are ignored."""
        meta = request.metadata
        owner = controller_of(meta.owner_references)
        if owner is not None and owner.kind in (POD_GROUP_KIND, COMPOSITE_KIND):
            key = GroupKey(f"{meta.namespace}/{owner.name}")
            if owner.kind == COMPOSITE_KIND:
                key = composite_key(meta.namespace, owner.name)
            with self._lock:
                self._requests_by_group.setdefault(key, {})[meta.name] = request
            self._notify(key, is_removed=False)

    def remove(self, removed: Removed) -> None:
        keys = []
        with self._lock:
            for key, requests in list(self._requests_by_group.items()):
                request = requests.get(removed.name)
                if request is not None and request.metadata.uid == removed.uid:
                    keys.append(key)
                    del requests[removed.name]
                    if not requests:
                        del self._requests_by_group[key]
        for key in keys:
            self._notify(key, is_removed=True)

    def _notify(self, key: GroupKey, is_removed: bool) -> None:
        for listener in self._listeners:
            listener(key, is_removed)


class ProvisioningQueues:
    """Queues whose nodes are requested by ProvisioningRequests instead of pods' conditions.

    Safe to use from any thread.

    Args:
        queues: Copies of the queues.
        is_served: Returns whether the cluster has ProvisioningRequests and Muster may watch them.
    """

    def __init__(self, queues: ObjectStore[str, QueueCopy], is_served: Callable[[], bool]) -> None:
        self.queues = queues
        self.is_served = is_served

    def get(self, queue: str) -> Provisioning | None:
        """Return the setting of a queue; None if it has none, or the cluster has no ProvisioningRequests."""
        return self.setting_in_spec(queue) if self.is_served() else None

    def setting_in_spec(self, queue: str) -> Provisioning | None:
        """Return the setting in the spec of a queue; None if it names no provisioning class."""
        copy = self.queues.get(queue)
        setting = copy.queue.spec.provisioning if copy else None
        return setting if setting and setting.class_name else None


class ProvisioningChanges:
    """Groups whose queue has changed its setting for ProvisioningRequests.

    Each controller has its own instance.
    """

    def __init__(self, queues: ProvisioningQueues) -> None:
        self._queues = queues
        self._reported_queues: set[str] = set()  # queues that the watch has shown since the last call
        self._seen_settings: dict[str, Provisioning] = {}
        self._was_served = False
        queues.queues.listen(self._reported_queues.add)

    def groups(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Yield the groups of queues whose setting has changed since the last call."""
        changed_queues = set()
        while self._reported_queues:
            queue = self._reported_queues.pop()
            old_setting, setting = self._seen_settings.pop(queue, None), self._queues.setting_in_spec(queue)
            if setting is not None:
                self._seen_settings[queue] = setting
            if old_setting != setting:
                changed_queues.add(queue)
        if self._was_served is not (is_served := self._queues.is_served()):
            self._was_served = is_served
            changed_queues |= self._seen_settings.keys()
        if changed_queues:
            yield from (key for key, decision in decisions.groups.items() if decision.queue in changed_queues)


class ProvisioningController(PacedController[GroupKey]):
    """Controller of ProvisioningRequests. The rate is low, since each request takes three writes or more."""

    name = "provisioning-requests"
    rate, burst = 5.0, 20

    def __init__(
        self,
        context: ControllerContext,
        queues: ProvisioningQueues,
        requests: ProvisioningRequests,
        policy: ConditionPolicy,
    ) -> None:
        self._queues = queues
        self._requests = requests
        self._policy = policy
        self._setting_changes = ProvisioningChanges(queues)
        super().__init__(context)
        requests.listen(self._on_change)

    def prepare(self) -> None:
        super().prepare()
        self._deletion_budget = TokenBucket(_DELETION_RATE, _DELETION_BURST, self._clock())
        self._needed_requests: dict[GroupKey, tuple[str, float]] = {}  # names, each with its time
        self._created_names: dict[GroupKey, str] = {}  # request that this process creates or has created

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._needed_requests.clear()
        self._created_names.clear()

    def _on_change(self, key: GroupKey, is_removed: bool) -> None:
        if is_removed:
            self._created_names.pop(key, None)
        self._queue.add(key)

    def due_keys(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Yield changed groups that have or need requests, and groups of queues whose setting has changed."""
        for key in self._changed_groups.since_last_call(decisions):
            decision = decisions.groups.get(key)
            if (
                key in self._needed_requests
                or self._requests.requests_of(key)
                or (decision and self._queues.get(decision.queue))
            ):
                yield key
        yield from self._setting_changes.groups(decisions)

    def reconcile(self, key: GroupKey) -> None:
        """Delete the requests that a group does not need, and then create the request that it needs."""
        is_reviewed = key in self._decisions.groups or self._ledger.groups.record(key) is None
        if not (self._queues.is_served() and is_reviewed):  # existing requests may still be needed
            return self._queue.move(key, _RETRY_PAUSE)
        wanted = self._desired_request(key)
        # Requests with another name, and requests that bring no more nodes, are deleted as the budget
        # allows. A request that is already being deleted needs no token.
        name = None if wanted is None else wanted.name
        unneeded = [
            request.metadata
            for request in self._requests.requests_of(key)
            if not request.metadata.deletion_timestamp
            and (request.metadata.name != name or is_spent(request.status.conditions))
        ]
        allowed_count = self._deletion_budget.take_up_to(self._clock(), len(unneeded))
        for meta in unneeded[:allowed_count]:
            delete = partial(self._cluster.delete_provisioning_request, meta.namespace, meta.name, meta.uid)
            self.write(key, delete, target=meta.uid)
        if allowed_count != len(unneeded):
            self._queue.move(key, _RETRY_PAUSE)
        elif wanted is None:
            self._needed_requests.pop(key, None)
            self._created_names.pop(key, None)
            self._parked.pop(key, None)
            self._queue.forget(key)
        elif self._created_names.get(key) != wanted.name:
            self._make_in_turn(key, wanted)

    def _desired_request(self, key: GroupKey) -> DesiredRequest | None:
        """Return the request for nodes for a group.

        None means that nodes would not help the group, or that its queue asks for no ProvisioningRequests.
        """
        decision, group = self._decisions.groups.get(key), self._ledger.groups.record(key)
        if decision is None or group is None or not self._policy.nodes_help(decision):
            return None
        provisioning = self._queues.get(decision.queue)
        members = (pod for pod in self._ledger.groups.members(key) if self._policy.wants_nodes(decision, pod))
        return wanted_request(group, provisioning, members) if provisioning else None

    def _make_in_turn(self, key: GroupKey, wanted: DesiredRequest) -> None:
        """Submit the creation of a request once the needs have lasted and the budget allows.

        An earlier leader may have left the request without some of its templates, so all are created again.
        """
        now = self._clock()
        name, since = self._needed_requests.get(key, ("", now))
        if name != wanted.name:
            since = now
            self._needed_requests[key] = wanted.name, since
        remaining = since + MIN_NEED_SECONDS - now
        if remaining > 0.0:
            self._park(key, wanted.name, remaining)
        elif not self._budget.take(now):
            self._park(key, wanted.name, _RETRY_PAUSE)
        else:
            self._created_names[key] = wanted.name
            forget_request = partial(self._created_names.pop, key, None)
            self.write(key, partial(self._create_request, key, wanted), on_failure=forget_request)

    def _create_request(self, key: GroupKey, wanted: DesiredRequest) -> None:
        """Create the request, and then its templates, which the request owns.

        While templates of an earlier request with the same name exist, the creation fails and is tried again.
        Nothing is created if the group needs another request by now.
        """
        group = self._ledger.groups.record(key)
        if group is None or self._created_names.get(key) != wanted.name:
            return
        cluster, namespace = self._cluster, group.namespace
        pods = [cluster.pod_as_json(namespace, pod_set.member.name) for pod_set in wanted.pod_sets]
        pod_sets = [
            {"podTemplateRef": {"name": f"{wanted.name}-{number}"}, "count": pod_set.count}
            for number, pod_set in enumerate(wanted.pod_sets)
        ]
        parameters = {"parameters": dict(wanted.parameters)} if wanted.parameters else {}
        # The request is deleted with the PodGroup. It cannot block that deletion without a further right.
        reference = group_reference(group)
        owner = OwnerReference(reference.api_version, reference.kind, group.name, group.uid, True)
        owners = [msgspec.to_builtins(owner)]
        meta = {"name": wanted.name, "namespace": namespace, "labels": _LABELS, "ownerReferences": owners}
        spec = {"provisioningClassName": wanted.class_name, "podSets": pod_sets, **parameters}
        uid = cluster.create_provisioning_request(namespace, {**_KIND, "metadata": meta, "spec": spec})
        for number, pod in enumerate(pods):
            cluster.create_owned(POD_TEMPLATES, namespace, template_body(wanted, number, uid, pod), uid)


def template_body(wanted: DesiredRequest, number: int, uid: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the PodTemplate of the pod set with this number, made from `pod`, an object of the API server.

    The template lacks the node and the gates of `pod`. It is deleted with the request, whose UID is `uid`.
    """
    owner = {**_KIND, "name": wanted.name, "uid": uid, "controller": True}
    meta_copy = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key not in _POD_ONLY_FIELDS}
    meta = {"name": f"{wanted.name}-{number}", "labels": _LABELS, "ownerReferences": [owner]}
    template = {"metadata": meta_copy, "spec": spec}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template}


def wanted_request(
    group: GroupRecord, provisioning: Provisioning, members: Iterable[PodRecord]
) -> DesiredRequest | None:
    """Return the request for all pending members that have no gates of others.

    None means that no such member exists, or that the members need too many different pod sets.
    """
    pods = [pod for pod in members if pod.is_waiting and not pod.has_foreign_gates]
    pods.sort(key=attrgetter("order"))
    counts, first_pods = Counter(pod.shape for pod in pods), {pod.shape: pod for pod in reversed(pods)}
    if not 0 < len(counts) <= MAX_POD_SETS:
        return None
    parameters = provisioning.parameters or {}
    request = (group.uid, provisioning.class_name, sorted(parameters.items()))
    shapes = sorted((_shape_text(shape), count) for shape, count in counts.items())
    digest = hashlib.sha256(repr((request, shapes)).encode()).hexdigest()[:16]
    return DesiredRequest(
        name=f"{group.name[:_MAX_PREFIX_LENGTH].rstrip('.-')}-{digest}",
        class_name=provisioning.class_name,
        parameters=parameters,
        pod_sets=tuple(PodSet(first_pods[shape], count) for shape, count in counts.items()),
    )


def _shape_text(shape: Shape) -> str:
    """Return a text that is the same for pods with equal needs in every process."""
    rules, terms = shape.constraints, shape.terms
    selected = [(term.topology_key, sorted(term.namespaces or ()), term.selector) for term in terms]
    needs = (rules.node_labels, rules.node_terms, rules.tolerations, rules.ports, rules.scheduler_rules)
    return repr((sorted(shape.requests.items()), needs, selected))


def failure(conditions: list[Condition] | None) -> str:
    """Return a message why the autoscaler has given up a request; empty if the request has not failed."""
    failed_condition = condition(conditions, _FAILED_CONDITION)
    if failed_condition is None or failed_condition.status != "True":
        return ""
    return (failed_condition.message or failed_condition.reason or _FAILED_CONDITION)[:_MAX_MESSAGE_LENGTH]


def is_spent(conditions: list[Condition] | None) -> bool:
    """Return whether the nodes of a request are no longer reserved, so that a new request is needed."""
    spent = [condition(conditions, kind) for kind in _SPENT_CONDITIONS]
    return any(each is not None and each.status == "True" for each in spent)
