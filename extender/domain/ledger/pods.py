"""Pods of the watch: their records and claims, the scheduler's reports on them, and stuck deletions.

A deletion is stuck if the pod's node cannot be reached and the grace period of the pod has ended.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.keys import ENDED_PHASES
from extender.api.objects.pods import Pod, PodClaim
from extender.api.units import BadQuantity, as_datetime
from extender.domain.ledger.affinity import MAX_WEIGHT, WIDE_WEIGHT
from extender.domain.ledger.groups import Group
from extender.domain.ledger.registry import Registry
from extender.domain.ledger.state import Core
from extender.domain.model.device_requests import (
    ClaimKey,
    DeviceUsers,
    LogicalResources,
    SharedClaims,
    claims_of,
    requests_devices,
)
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.shapes import Shape, Shapes
from extender.domain.model.wire_records import PodRecordReader, foreign_record
from extender.domain.snapshot.nodes import NodeRecord
from extender.domain.snapshot.snapshot import OtherPods

_UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"  # taint that the node lifecycle controller sets
_CHECK_STEP = 64  # number of awaited grace periods between two checks for pods that are gone
_CLOCK_SKEW = 5.0  # possible difference of clocks, in seconds


class _TerminatingPod(NamedTuple):
    """Pod that is being deleted, with the end of its grace period."""

    pod: PodRecord
    grace_ends_at: float  # end of its grace period, on the ledger's clock


class StuckPods:
    """UIDs of pods whose deletion is stuck.

    The wall clock is read once per deletion, to convert the end of the grace period to the ledger's clock.
    Later steps of the wall clock have no effect.
    """

    def __init__(
        self, registry: Registry, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.uids: set[Uid] = set()
        self._registry, self._clock, self._wall_clock = registry, clock, wall_clock
        self._leaving: defaultdict[str, dict[Uid, _TerminatingPod]] = defaultdict(dict)  # pods by node
        self._unreachable_nodes: set[str] = set()  # unreachable nodes, and deleted nodes with pods
        self._deleted_nodes: set[str] = set()  # deleted nodes among the unreachable nodes
        # Ends of grace periods, with pods and nodes, as a heap and as a set.
        self._ends: list[tuple[float, Uid, str]] = []
        self._known_ends: set[tuple[float, Uid, str]] = set()

    @property
    def next_stuck_at(self) -> float | None:
        """Return when the next terminating pod counts as stuck; None without such a pod."""
        return self._ends[0][0] if self._ends else None

    def record_change(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Process a change of a member pod. No new record means that the pod is gone."""
        if new is not None and new.deleting and new.holds_capacity:
            terminating_pod = self._leaving[new.node].get(new.uid)
            if terminating_pod is None or terminating_pod.pod.deletion_deadline != new.deletion_deadline:
                self._leaving[new.node][new.uid] = _TerminatingPod(new, self._grace_ends_at(new))
            if new.node in self._unreachable_nodes:
                self._await_end(self._leaving[new.node][new.uid])
        elif old is not None and old.node in self._leaving:
            self._leaving[old.node].pop(old.uid, None)
            if not self._leaving[old.node]:
                del self._leaving[old.node]
                self._unreachable_nodes -= {old.node} & self._deleted_nodes
                self._deleted_nodes.discard(old.node)
            self.uids.discard(old.uid)

    def record_node(self, node: NodeRecord) -> None:
        """Record whether a node can be reached, by its taints."""
        self._deleted_nodes.discard(node.name)
        self._record(node.name, is_unreachable=any(taint.key == _UNREACHABLE_TAINT for taint in node.taints))

    def record_deleted(self, node: str) -> None:
        """Record a deleted node. Pods that are left on it cannot be reached."""
        if node in self._leaving:
            self._deleted_nodes.add(node)
        self._record(node, is_unreachable=node in self._leaving)

    def _record(self, node: str, is_unreachable: bool) -> None:
        """Record whether a node can be reached, which decides whether terminating pods on it get stuck."""
        if is_unreachable is (node in self._unreachable_nodes):
            return
        self._unreachable_nodes ^= {node}  # add or remove the node
        for uid, leaving_pod in self._leaving.get(node, {}).items():
            if is_unreachable:
                self._await_end(leaving_pod)
            elif uid in self.uids:
                self.uids.discard(uid)
                self._registry.mark_dirty(leaving_pod.pod.group)

    def record_expired(self) -> None:
        """Count terminating pods on unreachable nodes as stuck once their grace period has ended."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            _, uid, node = end = heappop(self._ends)
            self._known_ends.discard(end)
            leaving_pod = self._leaving.get(node, {}).get(uid)
            if leaving_pod is not None and node in self._unreachable_nodes and uid not in self.uids:
                self.uids.add(uid)
                self._registry.mark_dirty(leaving_pod.pod.group)

    def _grace_ends_at(self, pod: PodRecord) -> float:
        """Return the end of a pod's grace period, on the ledger's clock.

        The end is inf if the timestamp cannot be read.
        """
        try:
            seconds = as_datetime(pod.deletion_deadline).timestamp() - self._wall_clock()
        except (ValueError, OverflowError):  # the timestamp may be any text
            return inf
        return self._clock() + seconds + _CLOCK_SKEW

    def _await_end(self, leaving_pod: _TerminatingPod) -> None:
        """Wait for the end of a pod's grace period, after which the pod is stuck."""
        end = leaving_pod.grace_ends_at, leaving_pod.pod.uid, leaving_pod.pod.node
        if leaving_pod.grace_ends_at < inf and end not in self._known_ends:
            self._known_ends.add(end)
            heappush(self._ends, end)
            self._forget_gone_pods()

    def _forget_gone_pods(self) -> None:
        """Forget the grace periods of pods that are already gone.

        Users may choose very long grace periods.
        """
        if len(self._ends) % _CHECK_STEP == 0 and len(self._ends) > 2 * sum(map(len, self._leaving.values())):
            self._ends = [end for end in self._ends if end[1] in self._leaving.get(end[2], ())]
            heapify(self._ends)
            self._known_ends = set(self._ends)


_MAX_RETRIES = 8  # number of pods that are tried again when another pod is gone
_CROWDED_MESSAGE = (
    f"(anti-)affinity terms that are too many together with those of others in its namespace: {MAX_WEIGHT:,}"
    f" are followed, and one that looks into other namespaces or requires no label counts as {WIDE_WEIGHT}"
)


class Pods:
    """Pods of the watch.

    Look-ups need no lock.

    Attributes:
        unmanaged_schedulers: Scheduler names of Muster whose pods are left to another scheduler.
    """

    def __init__(
        self, core: Core, ownership: Ownership, stuck_pods: StuckPods, logical: LogicalResources | None = None
    ) -> None:
        self.by_uid: dict[Uid, PodRecord] = {}
        self.unmanaged_schedulers: frozenset[str] = frozenset()
        self._moved_groups: dict[GroupKey, GroupKey] = {}  # by PodGroup: group of its composite
        self.ownership = ownership
        self.shapes = Shapes(logical)
        self._records = PodRecordReader(self.shapes, ownership.auto_groups)
        self._registry, self._claims, self._transitions = core.registry, core.claims, core.transitions
        self._releases, self._changes = core.releases, core.changes
        self._clock, self._lock = core.clock, core.lock
        self._stuck_pods = stuck_pods
        self._pods_with_devices = DeviceUsers[Uid, Pod]()  # pods without a node that request devices
        self.on_use_of_claim: Callable[[ClaimKey], None] = lambda _: None  # set by the intake
        self._shared_claims = SharedClaims(lambda claim: self.on_use_of_claim(claim))
        self._crowded_pods: dict[Uid, PodRecord] = {}  # original records of pods over the limit of terms
        self._other_pods = OtherPods()
        self._other_changes: dict[Uid, PodRecord | None] = {}  # not yet in `_other_pods`

    def get(self, uid: Uid) -> PodRecord | None:
        return self.by_uid.get(uid)

    def find(self, namespace: str, name: str) -> PodRecord | None:
        """Return a pod by name, for the debug pages only. All other code looks up pods by UID."""
        with self._lock:
            pods = self.by_uid.values()
            return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def owns(self, pod: Pod) -> bool:
        """Return whether Muster schedules a pod."""
        if self.is_unmanaged(pod.spec.scheduler_name):
            return False
        return self.ownership.owns(pod, self._registry.routes.namespace_queue(pod.metadata.namespace))

    def is_unmanaged(self, scheduler: str) -> bool:
        """Return whether Muster leaves pods with this scheduler name to another scheduler."""
        return scheduler in self.unmanaged_schedulers

    def gated_unmanaged_pods(self) -> list[PodRecord]:
        """Return pods of other schedulers that still have Muster's gate, and thus stay unscheduled."""
        with self._lock:
            pods = self.by_uid.values() if self.unmanaged_schedulers else ()
            return [p for p in pods if p.is_gated and p.is_waiting and self.is_unmanaged(p.scheduler)]

    def other_pods(self) -> OtherPods:
        """Return the pods of other schedulers on nodes.

        The result is the same object until such a pod changes.
        """
        if self._other_changes:
            self._other_pods, self._other_changes = self._other_pods.with_changes(self._other_changes), {}
        return self._other_pods

    def set_pod(self, pod: Pod) -> None:
        """Record a pod.

        Raises:
            BadQuantity: A request cannot be read.
        """
        with self._lock:
            uid, original_pod = Uid(pod.metadata.uid), pod
            has_ended = pod.status.phase in ENDED_PHASES
            new_carriers = self._shared_claims.drop(uid) if has_ended else ()
            pod = pod if has_ended else self._shared_claims.put(pod)
            self._pods_with_devices.drop(uid)
            if not pod.spec.node_name and requests_devices(pod.spec):
                self._pods_with_devices.put(uid, original_pod, claims_of(pod))
            old_pod, is_unmanaged = self.by_uid.get(uid), self.is_unmanaged(pod.spec.scheduler_name)
            member = old_pod if old_pod is not None and old_pod.group and old_pod.holds_capacity else None
            is_ours = not is_unmanaged and (member is not None or self.owns(pod))
            if is_ours or is_unmanaged:
                record = self._in_composite(self._records.record_of(pod, is_ours))
                if is_ours and member is not None:  # a pod with capacity keeps its group
                    record = replace(
                        record,
                        group=member.group,
                        own_group=member.group,
                        role=member.role,
                        is_auto=member.is_auto,
                    )
                self._put_record(self._within_bounds(record))
            else:
                self._put_record(foreign_record(pod, self.shapes))
            self._set_carriers(new_carriers)

    def _set_carriers(self, pods: Iterable[Pod]) -> None:
        """Record pods again, because shared claims count for these pods from now on."""
        for pod in pods:
            with suppress(BadQuantity):  # the pod's own event has reported it
                self.set_pod(pod)

    def reread(self, claim: ClaimKey | None = None) -> None:
        """Read again all pods without a node that use a claim or template, named `claim`.

        If `claim` is None, all pods that request devices are read again. The lock is taken for one pod at a
        time, because there may be many pods.
        """
        with self._lock:
            uids = self._pods_with_devices.users_of(claim)
        for uid in uids:
            with self._lock, suppress(BadQuantity):  # the pod's own event has reported it
                if (pod := self._pods_with_devices.get(uid)) is not None:
                    self.set_pod(pod)

    def set_group_claims(self, group: ClaimKey, claims: Mapping[PodClaim, str]) -> None:
        """Record the claims that a PodGroup has for templates, with the names of their objects."""
        with self._lock:
            is_changed = self._shared_claims.set_group(group, claims)
        if is_changed:
            self.reread(group)

    def is_claim_used(self, claim: ClaimKey) -> bool:
        """Return whether any pod that has not ended uses a claim."""
        return self._shared_claims.is_used(claim)

    def end_starts(self, claim: ClaimKey, why: str) -> None:
        """End the starts of groups with pods that use a claim and have no node. Callers hold the lock."""
        for uid in self._pods_with_devices.users_of(claim):
            pod = self.by_uid.get(uid)
            group = self._registry.groups.get(pod.group) if pod is not None else None
            if group and (group.start.admitted_at is not None or self._claims.get(uid) is not None):
                group.record_binding_refused(uid, why)
                self._registry.mark_dirty(group.key)
                self._changes.notify()

    def put(self, record: PodRecord) -> None:
        with self._lock:
            self._put_record(self._within_bounds(record))

    def drop(self, uid: Uid) -> None:
        with self._lock:
            self._pods_with_devices.drop(uid)
            self._remove(uid)
            self._set_carriers(self._shared_claims.drop(uid))

    def _remove(self, uid: Uid) -> None:
        """Remove a pod from all sums and groups."""
        with self._lock:
            record = self.by_uid.pop(uid, None)
            if record is None:
                return
            self._transitions.drop(record)
            self._count_among_others(record, is_other=False)
            self._claims.capacity.terms.unfollow(uid)
            if record.group:
                self._stuck_pods.record_change(record, None)
                self._registry.group(record.group).record_departed(record)
                self.leave_group(record)
            if record.group or record.node:
                self._changes.notify()
            self._crowded_pods.pop(uid, None)
            if record.shape.terms:  # waiting pods may now be within the limit of terms
                for crowded_pod in list(islice(self._crowded_pods.values(), _MAX_RETRIES)):
                    self._put_record(self._within_bounds(crowded_pod))

    def set_unmanaged(self, schedulers: frozenset[str]) -> None:
        """Leave pods with these scheduler names to another scheduler, and manage all other pods again.

        A pod that is left to another scheduler keeps its capacity on a node, but a plan for the pod ends.
        """
        with self._lock:
            changed_schedulers = (self.unmanaged_schedulers ^ schedulers) & self.ownership.schedulers
            self.unmanaged_schedulers = schedulers
            for pod in [pod for pod in self.by_uid.values() if pod.scheduler in changed_schedulers]:
                if self.is_unmanaged(pod.scheduler):
                    self.drop(pod.uid)
                    self._put_record(replace(pod, group=GroupKey("")))
                else:
                    self._put_record(self._in_composite(replace(pod, group=pod.own_group)))

    # Callers of the methods below hold the lock.

    def move_group(self, pod_group: GroupKey, target: GroupKey) -> None:
        """Move the pods of a PodGroup to the group of a composite, or back to their own group.

        Pods on nodes stay in the group in which they started. The plans for all other pods end.
        """
        old_group = self._moved_groups.pop(pod_group, pod_group)
        if target != pod_group:
            self._moved_groups[pod_group] = target
        group = self._registry.groups.get(old_group) if old_group != target else None
        for pod in list(group.pods.values()) if group is not None else ():
            if pod.is_expected or pod.own_group != pod_group or (pod.node and old_group != pod_group):
                continue
            if not pod.node:
                self._remove(pod.uid)
            self._put_record(self._within_bounds(self._in_composite(replace(pod, group=pod_group))))

    def _in_composite(self, pod: PodRecord) -> PodRecord:
        """Return a pod as a member of the composite above its PodGroup.

        If the pods of this PodGroup belong to no composite, the pod is returned unchanged.
        """
        group = self._moved_groups.get(pod.own_group) if self._moved_groups and pod.group else None
        return replace(pod, group=group, role=pod.own_group.rpartition("/")[2]) if group else pod

    def _within_bounds(self, pod: PodRecord) -> PodRecord:
        """Return the pod, unless its namespace has too many (anti-)affinity terms.

        In this case, the pod is returned with a shape that fits on no node, so that the pod has to wait.
        """
        self._crowded_pods.pop(pod.uid, None)
        if not pod.group or not pod.shape.terms or self._claims.capacity.terms.is_within_limit(pod):
            return pod
        self._crowded_pods[pod.uid] = pod
        return replace(pod, shape=self.shapes.unevaluated_shape(pod.shape, _CROWDED_MESSAGE))

    def leave_group(self, pod: PodRecord) -> None:
        """Remove a member from its group."""
        group = self._registry.group(pod.group)
        group.forget(pod.uid)
        if group.record is None and not group.pods:
            group.forget_history()
            group.last_record = None
        self._registry.mark_dirty(pod.group)

    def _put_record(self, record: PodRecord) -> None:
        """Record a pod. A pod that cannot be recorded is dropped."""
        old = self.by_uid.get(record.uid)
        if record == old:
            return
        # Muster writes thousands of conditions, which must not cause a single decision. No decision depends
        # on a resourceVersion, or on a condition that the scheduler did not write.
        same_record = old and replace(old, version=record.version, unscheduled=record.unscheduled)
        if old is not None and same_record == record and old.unschedulable == record.unschedulable:
            self.by_uid[record.uid] = record
            if record.group:
                self._registry.group(record.group).pods[record.uid] = record
            return
        try:
            self._store_record(record, old)
        except Exception:  # drop the pod rather than record it partly: the watch delivers it again
            self.drop(record.uid)
            raise

    def _store_record(self, record: PodRecord, old_record: PodRecord | None) -> None:
        """Store a new or changed pod, and update all sums and groups that depend on it."""
        if old_record is not None and old_record.group and old_record.group != record.group:
            self.leave_group(old_record)
        self.by_uid[record.uid] = record
        is_other = record.holds_capacity and not record.group
        if is_other or old_record is not None:
            self._count_among_others(record, is_other)
        self._claims.capacity.follow_terms(record, old_record)
        self._transitions.update_claim(record)
        if record.group:
            self._stuck_pods.record_change(old_record, record)
            group = self._registry.group(record.group)
            group.pods[record.uid] = record
            group.min_member_of_pods = record.min_member or group.min_member_of_pods
            if old_record is not None and not record.holds_capacity:
                group.record_departed(old_record)
            group.record_started(record)
            group.record_bound(record, self._clock())
            self._record_refusal(group, record, old_record)
            claim = self._claims.get(record.uid)
            if record.node or not record.is_waiting:
                group.attempts.pop(record.uid, None)
            elif self._releases.scheduler_retries(record) and claim is not None:
                group.record_shown(record.uid, claim.node, self._clock())
            self._transitions.update_standing(group, record)
            self._registry.mark_dirty(record.group)
        elif record.scheduler in self.ownership.schedulers and not record.node:
            self._releases.record_foreign_pod(record.uid, is_unmanaged=self.is_unmanaged(record.scheduler))
        if record.group or _changes_capacity(record, old_record):  # for other pods, only capacity matters
            self._changes.notify()

    def _count_among_others(self, pod: PodRecord, is_other: bool) -> None:
        """Record whether a pod counts among the pods of other schedulers on nodes."""
        if is_other:
            self._other_changes[pod.uid] = pod
        elif pod.uid in self._other_changes or pod.uid in self._other_pods:
            self._other_changes[pod.uid] = None

    def _record_refusal(self, group: Group, pod: PodRecord, old_record: PodRecord | None) -> None:
        """Record a new refusal of a pod by the scheduler.

        After the refusal, an answered claim of the pod may move to another node. Two sorts of messages are no
        refusals: messages that quote a refusal by Muster, and messages about pods without a planned node.
        """
        text = pod.unschedulable
        if not text or old_record is None or text == old_record.unschedulable or REFUSAL_PREFIX in text:
            return
        if self._changes.record_scheduler_call():
            self._changes.notify()
        if self._claims.get(pod.uid) is not None:
            self._transitions.refuse(pod)
            self.record_refused(pod, text, self._clock())

    def record_refused(
        self, pod: PodRecord, message: str, refused_at: float | None, asked_twice: bool = False
    ) -> None:
        """Record that the scheduler found no node for a pod.

        Args:
            pod: The pod.
            message: The scheduler's message.
            refused_at: The time of the refusal; None if the pod is tried again.
            asked_twice: Whether the scheduler was asked again after an earlier refusal.
        """
        self._registry.group(pod.group).record_refused(pod.uid, message, refused_at, asked_twice)
        if refused_at is not None:
            self.separate_shape(pod)

    def separate_shape(self, pod: PodRecord) -> Shape:
        """Return the separate shape that a pod shares only with equal pods of its namespace.

        From now on, the scheduler's refusals of the pod concern only these equal pods.
        """
        shape = self.shapes.separate(pod.namespace, pod.shape)
        if shape is not pod.shape:
            members = self._registry.group(pod.group).pods.values()
            for member in [member for member in members if member.shape is pod.shape]:
                self._put_record(replace(member, shape=shape))
        return shape


def _changes_capacity(pod: PodRecord, old: PodRecord | None) -> bool:
    """Return whether a change of a pod allocates or frees capacity."""
    held_capacity = old is not None and old.holds_capacity
    old_placement = (old.node, old.holds_capacity, old.shape) if old else ("", False, None)
    return old_placement != (pod.node, pod.holds_capacity, pod.shape) and (pod.node != "" or held_capacity)
