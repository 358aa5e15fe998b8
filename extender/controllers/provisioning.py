"""Requests to an autoscaler for the nodes of a group (ProvisioningRequests), if its queue asks for them.

A request is made once the group has lacked capacity for a while, and deleted when the group needs it no more.
A failed request stays, and the status of the group says so; if a user deletes it, a new one is made.
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
_NOT_OF_A_TEMPLATE = ("nodeName", "schedulingGates", "ephemeralContainers")
LASTING = 5.0  # seconds for which a group has to need the same before it is asked for
_AGAIN = 1.0  # seconds until a group without a token is tried again
_WITHDRAWN_RATE, _WITHDRAWN_BURST = 20.0, 50  # deletions per second, and at once
MOST_POD_SETS = 32  # pod sets of one request, by the API server's limit
_LONGEST_PREFIX = 40  # with the digest, a name fits into a label's 63 characters
_LONGEST_MESSAGE = 256
_FAILED, _SPENT = "Failed", ("BookingExpired", "CapacityRevoked")


class PodSet(msgspec.Struct, frozen=True):
    """Members of one shape."""

    member: PodRecord  # the member whose specification is the template
    count: int  # how many there are, at least 1


class NodesWanted(msgspec.Struct, frozen=True):
    """Desired ProvisioningRequest."""

    name: str  # of the object, in the group's namespace
    class_name: str  # the autoscaler's class
    parameters: Mapping[str, str]  # parameters of the class
    pod_sets: tuple[PodSet, ...]  # 1 to MOST_POD_SETS


class ProvisioningRequests:
    """ProvisioningRequests of Muster, by the group that owns them. Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_group: dict[GroupKey, dict[str, ProvisioningRequest]] = {}
        self._listeners: list[Callable[[GroupKey, bool], None]] = []

    def listen(self, listener: Callable[[GroupKey, bool], None]) -> None:
        """Call a listener with the group of each request that is new or changed, or gone (True)."""
        self._listeners.append(listener)

    def requests_of(self, key: GroupKey) -> list[ProvisioningRequest]:
        with self._lock:
            return list(self._by_group.get(key, {}).values())

    def failure(self, key: GroupKey) -> str:
        """Return why the autoscaler adds no nodes for a group, by one of its requests, for messages."""
        failures = (
            (found.metadata.name, failure(found.status.conditions)) for found in self.requests_of(key)
        )
        return next((f"ProvisioningRequest {name} failed: {why}" for name, why in failures if why), "")

    def upsert(self, request: ProvisioningRequest) -> None:
        meta = request.metadata
        owner = controller_of(meta.owner_references)
        if owner is not None and owner.kind in (POD_GROUP_KIND, COMPOSITE_KIND):
            key = GroupKey(f"{meta.namespace}/{owner.name}")
            if owner.kind == COMPOSITE_KIND:
                key = composite_key(meta.namespace, owner.name)
            with self._lock:
                self._by_group.setdefault(key, {})[meta.name] = request
            self._notify(key, gone=False)

    def remove(self, gone: Removed) -> None:
        keys = []
        with self._lock:
            for key, requests in list(self._by_group.items()):
                found = requests.get(gone.name)
                if found is not None and found.metadata.uid == gone.uid:
                    keys.append(key)
                    del requests[gone.name]
                    if not requests:
                        del self._by_group[key]
        for key in keys:
            self._notify(key, gone=True)

    def _notify(self, key: GroupKey, gone: bool) -> None:
        for listener in self._listeners:
            listener(key, gone)


class ProvisioningQueues:
    """Queues whose nodes are requested by ProvisioningRequests, not by pods' conditions.

    Safe in any thread.

    Args:
        served: Whether the cluster has that kind, and Muster may watch it.
    """

    def __init__(self, queues: ObjectStore[str, QueueCopy], served: Callable[[], bool]) -> None:
        self.queues = queues
        self.served = served

    def get(self, queue: str) -> Provisioning | None:
        return self.written(queue) if self.served() else None

    def written(self, queue: str) -> Provisioning | None:
        copy = self.queues.get(queue)
        found = copy.queue.spec.provisioning if copy else None
        return found if found and found.class_name else None


class ProvisioningTurns:
    """Groups that are due since the setting of their queue changed. Each consumer has its own."""

    def __init__(self, queues: ProvisioningQueues) -> None:
        self._queues = queues
        self._dirty: set[str] = set()  # queues that the watch has shown since the last call
        self._seen: dict[str, Provisioning] = {}
        self._served = False
        queues.queues.listen(self._dirty.add)

    def groups(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Yield the groups of queues whose setting changed, once for each change."""
        changed = set()
        while self._dirty:
            queue = self._dirty.pop()
            before, now = self._seen.pop(queue, None), self._queues.written(queue)
            if now is not None:
                self._seen[queue] = now
            if before != now:
                changed.add(queue)
        if self._served is not (served := self._queues.served()):
            self._served = served
            changed |= self._seen.keys()
        if changed:
            yield from (key for key, decision in decisions.groups.items() if decision.queue in changed)


class ProvisioningController(PacedController[GroupKey]):
    """Controller of ProvisioningRequests. A request is three writes or more, so few are made at once."""

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
        self._queue_turns = ProvisioningTurns(queues)
        super().__init__(context)
        requests.listen(self._on_change)

    def prepare(self) -> None:
        super().prepare()
        self._withdrawals = TokenBucket(_WITHDRAWN_RATE, _WITHDRAWN_BURST, self._clock())
        self._turns: dict[GroupKey, tuple[str, float]] = {}  # the needed request, and since when, in seconds
        self._made: dict[GroupKey, str] = {}  # the request that is being made, or was, by this process

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._turns.clear()
        self._made.clear()

    def _on_change(self, key: GroupKey, gone: bool) -> None:
        if gone:
            self._made.pop(key, None)
        self._queue.add(key)

    def due_keys(self, decisions: Decisions) -> Iterator[GroupKey]:
        for key in self._changed_groups.since_last_call(decisions):
            decision = decisions.groups.get(key)
            if (
                key in self._turns
                or self._requests.requests_of(key)
                or (decision and self._queues.get(decision.queue))
            ):
                yield key
        yield from self._queue_turns.groups(decisions)

    def reconcile(self, key: GroupKey) -> None:
        is_reviewed = key in self._decisions.groups or self._ledger.groups.record(key) is None
        if not (self._queues.served() and is_reviewed):  # until then, existing requests may be needed
            return self._queue.move(key, _AGAIN)
        wanted = self._desired_request(key)
        # Requests that are not the wanted one, or bring no nodes any more, are deleted as the budget
        # allows. One that is being deleted needs no token.
        name = None if wanted is None else wanted.name
        others = [
            request.metadata
            for request in self._requests.requests_of(key)
            if not request.metadata.deletion_timestamp
            and (request.metadata.name != name or is_spent(request.status.conditions))
        ]
        allowed = self._withdrawals.take_up_to(self._clock(), len(others))
        for meta in others[:allowed]:
            delete = partial(self._cluster.delete_provisioning_request, meta.namespace, meta.name, meta.uid)
            self.write(key, delete, target=meta.uid)
        if allowed != len(others):
            self._queue.move(key, _AGAIN)
        elif wanted is None:
            self._turns.pop(key, None)
            self._made.pop(key, None)
            self._parked.pop(key, None)
            self._queue.forget(key)
        elif self._made.get(key) != wanted.name:
            self._make_in_turn(key, wanted)

    def _desired_request(self, key: GroupKey) -> NodesWanted | None:
        """Return the request for nodes for a group; None: they would not help, or the queue asks for none."""
        decision, group = self._decisions.groups.get(key), self._ledger.groups.record(key)
        if decision is None or group is None or not self._policy.nodes_help(decision):
            return None
        provisioning = self._queues.get(decision.queue)
        members = (pod for pod in self._ledger.groups.members(key) if self._policy.wants_nodes(decision, pod))
        return wanted_request(group, provisioning, members) if provisioning else None

    def _make_in_turn(self, key: GroupKey, wanted: NodesWanted) -> None:
        """Make a request and its templates, which an earlier leader may have left incomplete."""
        now = self._clock()
        name, since = self._turns.get(key, ("", now))
        if name != wanted.name:
            since = now
            self._turns[key] = wanted.name, since
        remaining = since + LASTING - now
        if remaining > 0.0:
            self._park(key, wanted.name, remaining)
        elif not self._budget.take(now):
            self._park(key, wanted.name, _AGAIN)
        else:
            self._made[key] = wanted.name
            self.write(
                key, partial(self._create_request, key, wanted), undone=partial(self._made.pop, key, None)
            )

    def _create_request(self, key: GroupKey, wanted: NodesWanted) -> None:
        """Make the request first: its templates belong to it.

        While templates of an earlier one of this name exist, this fails and is tried again. Nothing
        is made if the group needs something else by now.
        """
        group = self._ledger.groups.record(key)
        if group is None or self._made.get(key) != wanted.name:
            return
        cluster, namespace = self._cluster, group.namespace
        pods = [cluster.pod_as_json(namespace, pod_set.member.name) for pod_set in wanted.pod_sets]
        sets = [
            {"podTemplateRef": {"name": f"{wanted.name}-{number}"}, "count": pod_set.count}
            for number, pod_set in enumerate(wanted.pod_sets)
        ]
        parameters = {"parameters": dict(wanted.parameters)} if wanted.parameters else {}
        # The request is deleted with the PodGroup. Blocking that deletion would take a further right.
        made_for = group_reference(group)
        owner = OwnerReference(made_for.api_version, made_for.kind, group.name, group.uid, True)
        owners = [msgspec.to_builtins(owner)]
        meta = {"name": wanted.name, "namespace": namespace, "labels": _LABELS, "ownerReferences": owners}
        spec = {"provisioningClassName": wanted.class_name, "podSets": sets, **parameters}
        uid = cluster.create_provisioning_request(namespace, {**_KIND, "metadata": meta, "spec": spec})
        for number, pod in enumerate(pods):
            cluster.create_owned(POD_TEMPLATES, namespace, template_body(wanted, number, uid, pod), uid)


def template_body(wanted: NodesWanted, number: int, uid: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the template of the pod set with this number, like `pod`, an object of the API server.

    The template has no node and gates of `pod`. It is deleted with the request, whose UID is `uid`.
    """
    owner = {**_KIND, "name": wanted.name, "uid": uid, "controller": True}
    described = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key not in _NOT_OF_A_TEMPLATE}
    meta = {"name": f"{wanted.name}-{number}", "labels": _LABELS, "ownerReferences": [owner]}
    template = {"metadata": described, "spec": spec}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template}


def wanted_request(
    group: GroupRecord, provisioning: Provisioning, members: Iterable[PodRecord]
) -> NodesWanted | None:
    """Return the request for all pending members without other gates; None without members.

    None also if they have too many shapes.
    """
    waiting = [pod for pod in members if pod.waiting and not pod.foreign_gates]
    waiting.sort(key=attrgetter("order"))
    counts, first = Counter(pod.shape for pod in waiting), {pod.shape: pod for pod in reversed(waiting)}
    if not 0 < len(counts) <= MOST_POD_SETS:
        return None
    parameters = provisioning.parameters or {}
    request = (group.uid, provisioning.class_name, sorted(parameters.items()))
    shapes = sorted((_text_of(shape), count) for shape, count in counts.items())
    digest = hashlib.sha256(repr((request, shapes)).encode()).hexdigest()[:16]
    return NodesWanted(
        name=f"{group.name[:_LONGEST_PREFIX].rstrip('.-')}-{digest}",
        class_name=provisioning.class_name,
        parameters=parameters,
        pod_sets=tuple(PodSet(first[shape], count) for shape, count in counts.items()),
    )


def _text_of(shape: Shape) -> str:
    """Return a text, the same for equal shapes in every process."""
    limits, terms = shape.constraints, shape.terms
    selected = [(term.topology_key, sorted(term.namespaces or ()), term.selector) for term in terms]
    rest = (limits.node_labels, limits.node_terms, limits.tolerations, limits.ports, limits.unplanned)
    return repr((sorted(shape.requests.items()), rest, selected))


def failure(conditions: list[Condition] | None) -> str:
    """Return why the autoscaler has given up a request, for messages; empty if it has not."""
    failed = condition(conditions, _FAILED)
    if failed is None or failed.status != "True":
        return ""
    return (failed.message or failed.reason or _FAILED)[:_LONGEST_MESSAGE]


def is_spent(conditions: list[Condition] | None) -> bool:
    """Return whether a request's nodes are no longer reserved, so that a new request is needed."""
    found = [condition(conditions, kind) for kind in _SPENT]
    return any(each is not None and each.status == "True" for each in found)
