"""State that all parts of the ledger share: version, lock, clock, claims, and refusals."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from math import inf
from typing import NamedTuple

from extender.domain.ledger.claims import Claim, ClaimEvent, Claims, ClaimStage, Posting, next_stage
from extender.domain.ledger.groups import Group
from extender.domain.ledger.registry import Registry
from extender.domain.ledger.releases import Releases
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.shapes import Shape
from extender.domain.snapshot.snapshot import OTHERS_KEY, Attention, Freed, Snapshot, clock_time_of


class Changes:
    """Version of the ledger, which grows with every change that a decision may depend on.

    Args:
        on_change: Called under the lock to request a decision.
        clock: The monotonic clock, in seconds.
        pause: The seconds without a call after which the scheduler counts as restarted.
    """

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float], pause: float) -> None:
        self.version = 0
        self.changed_at = clock()
        self.attention = Attention()
        self.last_freed = Freed()
        self._clock = clock
        self._on_change = on_change
        self._pause_seconds = pause

    @property
    def next_version(self) -> int:
        """Return the version that the ledger gets by the current change."""
        return self.version + 1

    def notify(self) -> None:
        """Record a change, and request a decision that considers it."""
        self.record()
        self._on_change()

    def record(self) -> None:
        """Record a change that can wait for the next decision."""
        self.version += 1
        self.changed_at = self._clock()

    def record_freed(self, by: GroupKey = OTHERS_KEY) -> None:
        """Record that a group, or other pods or nodes, freed capacity."""
        self.last_freed = self.last_freed.recorded(self._clock(), by)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore versions and times from a snapshot of another ledger."""
        self.version = max(self.version, snapshot.version) + 1
        self.changed_at, self.attention = snapshot.changed_at, snapshot.attention
        self.last_freed = snapshot.last_freed

    def record_scheduler_call(self) -> bool:
        """Record a call or report of the scheduler. Return whether the scheduler had paused before."""
        old_attention = self.attention
        self.attention = old_attention.after_call(self._clock(), self._pause_seconds)
        return self.attention.asked_since != old_attention.asked_since

    def set_leading(self, is_leading: bool) -> bool:
        """Record whether decisions of this replica take effect. Return whether this has changed."""
        old_attention = self.attention
        self.attention = old_attention.with_leading(self._clock(), is_leading)
        return self.attention is not old_attention


class Refusals:
    """Refusals of the scheduler, by shape and node.

    Without this record, the same plan would be tried endlessly. A refusal is forgotten when its node changes,
    or after a time.
    """

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._refusals_by_node: dict[str, dict[Shape, tuple[int, float]]] = {}  # epoch, and expiry

    def add(self, shape: Shape, node: str, expires_at: float) -> None:
        epoch = self._claims.capacity.epochs.get(node, 0)
        self._refusals_by_node.setdefault(node, {})[shape] = (epoch, expires_at)

    def refused_rows(self, now: float) -> dict[Shape, frozenset[int]]:
        """Return by shape the rows of nodes that the scheduler still refuses.

        Expired refusals are forgotten.
        """
        rows: dict[Shape, set[int]] = {}
        for node, shapes in list(self._refusals_by_node.items()):
            epoch, row = self._claims.capacity.epochs.get(node, 0), self._claims.capacity.row(node)
            valid = {shape: entry for shape, entry in shapes.items() if entry[0] == epoch and entry[1] > now}
            if not valid:
                del self._refusals_by_node[node]
                continue
            self._refusals_by_node[node] = valid
            if row is not None:
                for shape in valid:
                    rows.setdefault(shape, set()).add(row)
        return {shape: frozenset(shape_rows) for shape, shape_rows in rows.items()}

    def forget(self, node: str) -> bool:
        """Forget the refusals on a node. Return whether there were any."""
        return self._refusals_by_node.pop(node, None) is not None

    def next_expiry(self) -> float | None:
        """Return when the next refusal expires; None without refusals."""
        refusals = self._refusals_by_node.values()
        return min((end for shapes in refusals for _, end in shapes.values()), default=None)


_MIN_COUNT = 10_000


class Instants:
    """Times of groups and their members on the ledger's clock.

    Each timestamp is converted once, when it is first seen, so that steps of the wall clock do not shift
    known times. A timestamp in the future counts as the current time. Timestamps that tenants write, such as
    checkpoints, are an exception: a checkpoint in the future is not recorded, and is converted again each
    time.
    """

    def __init__(self, registry: Registry) -> None:
        self.by_timestamp: dict[str, float] = {}  # times by timestamp; existing times never change
        self._registry = registry
        self._max_count = _MIN_COUNT

    def record(self, changed_keys: Iterable[GroupKey], epoch: float, now: float) -> None:
        """Record the timestamps of changed groups.

        Args:
            changed_keys: The changed groups.
            epoch: The wall clock at the zero of the ledger's clock.
            now: The time on the ledger's clock.
        """
        groups = [group for key in changed_keys if (group := self._registry.groups.get(key)) is not None]
        times = self.by_timestamp
        for timestamp in (each for each in self._timestamps(groups) if each and each not in times):
            instant = clock_time_of(timestamp, epoch)
            if instant < inf:
                times[timestamp] = min(instant, now)
        for timestamp in (each for each in self._checkpoints(groups) if each and each not in times):
            instant = clock_time_of(timestamp, epoch)
            if instant <= now:
                times[timestamp] = instant
        if len(self.by_timestamp) > self._max_count:
            groups = list(self._registry.groups.values())
            texts = {*self._timestamps(groups), *self._checkpoints(groups)}
            self.by_timestamp = {text: at for text, at in self.by_timestamp.items() if text in texts}
            self._max_count = 2 * len(self.by_timestamp) + _MIN_COUNT

    def _timestamps(self, groups: Iterable[Group]) -> Iterator[str]:
        """Yield the timestamps that order groups or measure their runs."""
        for group in groups:
            yield group.ready_at
            if group.record is not None:
                yield group.record.created_at
            if group.job is not None:
                yield group.job.started_at
            for pod in group.pods.values():
                yield pod.created_at
                yield pod.running_since

    def _checkpoints(self, groups: Iterable[Group]) -> Iterator[str]:
        for group in groups:
            objects = (group.record, group.job, group.owner)
            yield from (each.checkpoint.saved_at for each in objects if each is not None)
            yield from (pod.checkpoint.saved_at for pod in group.pods.values())


class ClaimTransitions:
    """Transitions of claims, with their effects on sums, running members and groups."""

    def __init__(
        self,
        claims: Claims,
        registry: Registry,
        releases: Releases,
        changes: Changes,
        clock: Callable[[], float],
    ) -> None:
        self._claims = claims
        self._registry = registry
        self._releases = releases
        self._changes = changes
        self._clock = clock
        self._version_by_group: dict[GroupKey, int] = {}  # by group: version of the last change of a claim

    def put(
        self, pod: PodRecord, event: ClaimEvent, node: str, token: int = 0, postings: tuple[Posting, ...] = ()
    ) -> None:
        """Put the claim of a member on a node, or advance the claim.

        Raises:
            KeyError: The event is not allowed at the claim's stage.
        """
        old_claim = self._claims.get(pod.uid)
        stage = next_stage(event, self._stage_of(pod.uid))
        assert stage is not None, event
        self._claims.put(pod, node, stage, self._clock(), self._changes.next_version, token, postings)
        self._record(pod, old_claim)

    def end(self, pod: PodRecord, event: ClaimEvent) -> None:
        """End the claim of a member without a binding.

        Raises:
            KeyError: The event is not allowed at the claim's stage.
        """
        stage = next_stage(event, self._stage_of(pod.uid))
        assert stage is None, event
        old_claim = self._claims.drop(pod.uid)
        self._changes.record_freed(pod.group)
        self._registry.group(pod.group).record_withdrawn(pod.uid)
        self._record(pod, old_claim)

    def refuse(self, pod: PodRecord) -> None:
        """Record that the scheduler found no node for a pod.

        An answered claim becomes a planned claim, which decisions may move.
        """
        claim = self._claims.get(pod.uid)
        if claim is not None and claim.stage is ClaimStage.ANSWERED:
            self._claims.put(pod, claim.node, ClaimStage.PLANNED, self._clock())
            self._releases.record_claim(pod, claim, self._claims.get(pod.uid))

    def update_claim(self, pod: PodRecord) -> None:
        """Update the claim of a pod that the watch shows.

        A pod on a node holds capacity, an ended pod holds no capacity, and a waiting pod keeps its claim.
        """
        old = new = self._claims.get(pod.uid)
        if pod.holds_capacity:
            new = self._claims.put(pod, pod.node, ClaimStage.BOUND)
        elif pod.node or not pod.is_waiting:
            new = None
            self._claims.drop(pod.uid)
        elif old is not None:
            since, call = old.stage_since, (old.token, old.postings)
            new = self._claims.put(pod, old.node, old.stage, since, old.version, *call)
        if old is not None and (new is None or new.stage is not old.stage):  # capacity is freed
            self._changes.record_freed(pod.group)
        if pod.group:
            self._releases.record_claim(pod, old, new)

    def drop(self, pod: PodRecord) -> None:
        """Remove the claim of a pod that is gone."""
        if self._claims.drop(pod.uid) is not None:
            self._changes.record_freed(pod.group)
        self._releases.forget(pod)

    def update_standing(self, group: Group, pod: PodRecord) -> None:
        """Update whether a member counts as standing: it is on a node, or about to be bound."""
        if pod.is_placed or (pod.is_waiting and (self._stage_of(pod.uid) or 0) >= ClaimStage.HELD):
            group.standing_roles[pod.uid] = pod.role
        else:
            group.standing_roles.pop(pod.uid, None)

    def changed_since(self, version: int) -> dict[GroupKey, int]:
        """Return the groups whose claims have changed, with the version of the change.

        All changes since the last call are returned. Changes after `version` are returned again by the next
        call.
        """
        changed_groups = self._version_by_group
        self._version_by_group = {key: at for key, at in changed_groups.items() if at > version}
        return changed_groups

    def _stage_of(self, uid: Uid) -> ClaimStage | None:
        claim = self._claims.get(uid)
        return claim.stage if claim else None

    def _record(self, pod: PodRecord, old: Claim | None) -> None:
        """Record that the claim of a pod has changed from `old` to its current claim."""
        claim = self._claims.get(pod.uid)
        self._version_by_group[pod.group] = self._changes.next_version
        self.update_standing(self._registry.group(pod.group), pod)
        if not (old and claim and old.is_fixed and claim.is_fixed and old.node == claim.node):
            self._registry.mark_claims_changed(pod.group)  # other changes do not affect decisions
        if not pod.is_expected:
            self._releases.record_claim(pod, old, claim)


class Core(NamedTuple):
    """Objects that all parts of the ledger share.

    Every public method that changes anything, or reads more than one fact, takes `lock`, which is reentrant.
    """

    registry: Registry
    claims: Claims
    transitions: ClaimTransitions
    releases: Releases
    changes: Changes
    refusals: Refusals
    clock: Callable[[], float]
    lock: AbstractContextManager[object]
