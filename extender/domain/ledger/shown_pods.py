"""Pods that the scheduler proxy shows: releases of planned pods, and the scheduler's reports."""

from collections.abc import Sequence

from extender.domain.ledger.claims import ClaimEvent, ClaimStage
from extender.domain.ledger.groups import Group
from extender.domain.ledger.pods import Pods
from extender.domain.ledger.releases import Bypasses, ReleaseCounts
from extender.domain.ledger.state import Core
from extender.domain.model.reasons import REFUSAL_PREFIX, lacks_only_capacity
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.versioned_pod_watch import AS_STORED, Appearance, Appearances, Change

_BINDING_FAILED = "attempts to bind the pod failed"
_MAX_TRIES = 4  # number of refusals for lack of capacity until one counts: the scheduler's cache may lag
_MAX_LAG_COUNT = 20  # limit of the lags that the scheduler waits after a refusal


class ShownPods(Appearances):
    """Appearances of pods for the scheduler proxy, and releases of planned pods."""

    def __init__(self, core: Core, pods: Pods) -> None:
        self._registry, self._claims, self._transitions = core.registry, core.claims, core.transitions
        self._releases, self._changes = core.releases, core.changes
        self._refusals = core.refusals
        self._clock, self._lock = core.clock, core.lock
        self._pods = pods
        self._has_unknown_claims = False  # whether gangs have claims that the scheduler does not know

    @property
    def is_on(self) -> bool:
        """Return whether the scheduler reads its pods through Muster."""
        return self._releases.is_on

    def release_counts(self) -> ReleaseCounts:
        with self._lock:
            return self._releases.release_counts

    def bypasses(self) -> Bypasses:
        """Return the number of calls about pods that were not shown, since the start."""
        with self._lock:
            return self._releases.bypasses

    def appearance_of(self, uid: Uid) -> Appearance | None:
        pod = self._pods.get(uid)
        if pod is None or self._pods.is_unmanaged(pod.scheduler):
            return None
        return self._releases.appearances.get(uid) if pod.group else AS_STORED

    def is_in_flight(self, uid: Uid) -> bool:
        claim = self._claims.get(uid)
        return claim is not None and claim.stage >= ClaimStage.HELD and uid in self._releases.appearances

    def take_changes(self) -> Sequence[Change]:
        with self._lock:
            return self._releases.take_changes()

    def record_departure(self, node: str) -> None:
        """Forget the refusals on a node that a pod has left, because the scheduler still counted that pod.

        Members that were refused there are shown again.
        """
        with self._lock:
            is_changed = self._refusals.forget(node)
            for claim in self._claims.on_node(node):
                if claim.stage is not ClaimStage.PLANNED:
                    continue
                group = self._registry.group(claim.pod.group)
                if group.attempt(claim.pod.uid).refused_at is not None:
                    group.record_withdrawn(claim.pod.uid)
                    self._releases.record_planned(group.key)
                    self._registry.mark_dirty(group.key)
                    is_changed = True
            if is_changed:
                self._changes.notify()

    def record_fresh_start(self) -> None:
        with self._lock:
            self._releases.record_fresh_start()

    def record_status(self, namespace: str, name: str, refusal_text: str) -> Uid | None:
        """Record the scheduler's report on an attempt that ended without a binding."""
        with self._lock:
            uid = self._releases.find_by_name(f"{namespace}/{name}")
            pod = self._pods.get(uid) if uid else None
            if pod is None or not pod.group:
                return None
            self._changes.record_scheduler_call()
            self._releases.record_ended(pod.uid)
            self._record_refusal(pod, refusal_text)
            self._changes.notify()
            return pod.uid

    def due_groups(self) -> set[GroupKey]:
        """Return the groups that may have members to release now."""
        with self._lock:
            groups = self._releases.take_planned()
            self._has_unknown_claims = bool(groups) and any(
                claim.pod.is_for_min_resources or not self._registry.group(claim.pod.group).needs_no_barrier
                for stage in (ClaimStage.PLANNED, ClaimStage.ANSWERED)
                for claim in self._claims.in_stage(stage)
            )
            return groups

    def postpone(self, key: GroupKey) -> None:
        """Make a group due again, because it could not be released."""
        with self._lock:
            self._releases.record_planned(key)

    def release(self, key: GroupKey) -> None:
        """Show planned pods of a group, as many per node as the scheduler handles well.

        Other pods stay due.
        """
        with self._lock:
            if (group := self._registry.groups.get(key)) and not self._release_group(group):
                self._releases.record_planned(key)

    def take_all_back(self) -> None:
        """Hide all pods that the scheduler has not tried to bind, because another replica leads."""
        with self._lock:
            for uid in list(self._releases.appearances):
                if (claim := self._claims.get(uid)) and claim.stage is ClaimStage.ANSWERED:
                    self._transitions.end(claim.pod, ClaimEvent.WITHDRAW)
                    self._changes.notify()

    def _release_group(self, group: Group) -> bool:
        """Show planned members of a group. Return whether all planned members are shown now.

        Expected pods of a job cannot be shown, because no event would make the scheduler subtract them from
        their node again. If several members share a device claim, only one member is shown until the device
        claim is allocated, because the scheduler would refuse the others.
        """
        unbound_uids = (uid for uid, pod in group.pods.items() if pod.is_waiting and not pod.is_expected)
        claims = map(self._claims.get, unbound_uids)
        planned_claims = [claim for claim in claims if claim and claim.stage is ClaimStage.PLANNED]
        picks_itself = self._leaves_nodes_to_scheduler(group)
        awaited_claims = {
            name
            for uid in self._releases.appearances.keys() & group.pods
            for name in group.pods[uid].awaited_claims
        }
        for claim in planned_claims:
            if not awaited_claims.isdisjoint(claim.pod.awaited_claims):
                continue
            attempt = group.attempt(claim.pod.uid)
            if attempt.refused_at is None and self._releases.may_show(claim.pod, claim.node):
                appearance = self._appearance_for(claim.node, attempt.refusals > 0, picks_itself)
                group.record_shown(claim.pod.uid, claim.node, self._clock())
                self._transitions.put(claim.pod, ClaimEvent.ANSWER, claim.node)
                self._releases.show(claim.pod, appearance)
                self._changes.record()
                awaited_claims.update(claim.pod.awaited_claims)
        return all(claim.pod.uid in self._releases.appearances for claim in planned_claims)

    def _leaves_nodes_to_scheduler(self, group: Group) -> bool:
        """Return whether the scheduler's own scoring picks the nodes of a group.

        The scheduler picks the node of a group that needs at most one pod, under two conditions: the queue
        has no `placement`, and no placeholders reserve capacity for the group.
        """
        queue = self._registry.queues.get(self._registry.routes.queue_of(group))
        has_no_policy = group.needs_no_barrier and not (queue and queue.placement)
        return has_no_policy and not any(pod.is_for_min_resources for pod in group.pods.values())

    def _appearance_for(self, node: str, was_refused: bool, picks_itself: bool) -> Appearance:
        """Return the appearance of a planned member for the scheduler.

        The planned node is nominated, unless the scheduler picks a node itself, as it does after a refusal.
        In two cases, the scheduler has to call filter: for a pod that it refused, and for a pod without a
        nominated node while gangs have claims that the scheduler does not know.
        """
        if was_refused or (picks_itself and self._has_unknown_claims):
            return Appearance(has_marker=True)
        return Appearance() if picks_itself else Appearance(node=node)

    def _record_refusal(self, pod: PodRecord, text: str) -> None:
        """Hide a pod whose attempt has ended, unless a bind call holds its claim.

        After the first refusal, the pod is shown again soon, and the scheduler calls filter. The reason is
        that a restart may have disturbed the attempt, or that the scheduler may not know of freed capacity
        yet. After further refusals, the pod counts as refused.

        If the planned node has capacity, the scheduler may try a few more times, at growing intervals,
        because the scheduler may assume other pods on this node until their bindings are refused. A group of
        one pod whose binding failed is also tried a few more times, because another pod may have used the
        capacity between filter and bind.
        """
        claim = self._claims.get(pod.uid)
        if claim is None or claim.stage is not ClaimStage.ANSWERED:
            return
        group = self._registry.group(pod.group)
        refusal_count = group.attempt(pod.uid).refusals
        may_have_raced = not text and group.needs_no_barrier
        lacks_capacity = may_have_raced or lacks_only_capacity(text, pod.shape.requests)
        has_capacity = lacks_capacity and self._claims.fits(pod, claim.node)
        may_try_again = refusal_count < (_MAX_TRIES if has_capacity else 1)
        message, refused_at = (text, None) if may_try_again else (text or _BINDING_FAILED, self._clock())
        self._transitions.refuse(pod)
        self._pods.record_refused(pod, message, refused_at, asked_twice=not may_try_again)
        quotes_muster = not text or REFUSAL_PREFIX in text
        lag_count = min(refusal_count, _MAX_LAG_COUNT) if has_capacity else 0
        self._releases.retry(pod.uid, max(lag_count, 0 if quotes_muster else 1))
        self._registry.mark_dirty(pod.group)
