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
from extender.domain.snapshot.snapshot import OF_OTHERS, Attention, Freed, Snapshot, clock_time_of


class Changes:
    """Changes: the ledger's version, which grows with every change that a decision may depend on.

    `on_change` is called then, under the lock. `clock` is monotonic, in seconds. `pause` is how many
    seconds without a call make the scheduler count as restarted.
    """

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float], pause: float) -> None:
        self.version = 0
        self.changed_at = clock()
        self.attention = Attention()
        self.freed = Freed()
        self._clock = clock
        self._on_change = on_change
        self._pause = pause

    @property
    def next_version(self) -> int:
        """Return the version that the change under way will have."""
        return self.version + 1

    def notify(self) -> None:
        """Request a decision: a change may affect one."""
        self.record()
        self._on_change()

    def record(self) -> None:
        """Record a change that can wait for the next decision."""
        self.version += 1
        self.changed_at = self._clock()

    def record_freed(self, by: GroupKey = OF_OTHERS) -> None:
        """Record that capacity of a group, or of other pods, is free now."""
        self.freed = self.freed.recorded(self._clock(), by)

    def recall(self, snapshot: Snapshot) -> None:
        """Restore from a snapshot of another ledger."""
        self.version = max(self.version, snapshot.version) + 1
        self.changed_at, self.attention, self.freed = snapshot.changed_at, snapshot.attention, snapshot.freed

    def record_scheduler_call(self) -> bool:
        """Record a call or report of the scheduler about a pod. Return whether the scheduler had paused."""
        before = self.attention
        self.attention = before.after_call(self._clock(), self._pause)
        return self.attention.asked_since != before.asked_since

    def set_leading(self, leading: bool) -> bool:
        """Record whether decisions of this replica take effect; return whether that is a change."""
        before = self.attention
        self.attention = before.with_leading(self._clock(), leading)
        return self.attention is not before


class Refusals:
    """Refusals of the scheduler, by shape and node, kept for a while.

    Otherwise the same plan would be tried endlessly. A refusal is forgotten when its node changes, or after a
    time.
    """

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._known: dict[str, dict[Shape, tuple[int, float]]] = {}  # by node: its epoch, and the expiry

    def add(self, shape: Shape, node: str, expires: float) -> None:
        epoch = self._claims.capacity.epochs.get(node, 0)
        self._known.setdefault(node, {})[shape] = (epoch, expires)

    def rows(self, now: float) -> dict[Shape, frozenset[int]]:
        """Return by shape the rows of nodes that still refuse it, and forget expired refusals."""
        rows: dict[Shape, set[int]] = {}
        for node, shapes in list(self._known.items()):
            epoch, row = self._claims.capacity.epochs.get(node, 0), self._claims.capacity.row(node)
            left = {shape: known for shape, known in shapes.items() if known[0] == epoch and known[1] > now}
            if not left:
                del self._known[node]
                continue
            self._known[node] = left
            if row is not None:
                for shape in left:
                    rows.setdefault(shape, set()).add(row)
        return {shape: frozenset(of_shape) for shape, of_shape in rows.items()}

    def forget(self, node: str) -> bool:
        """Forget the refusals on a node; return whether there were any."""
        return self._known.pop(node, None) is not None

    def next_expiry(self) -> float | None:
        """Return when the next refusal expires; None: there is none."""
        return min((end for shapes in self._known.values() for _, end in shapes.values()), default=None)


_FEW_INSTANTS = 10_000


class Instants:
    """Times of groups and their members on the ledger's clock.

    Each timestamp is read once, when it is first seen, so that a step of the wall clock does not shift known
    times. A timestamp in the future counts as now, except timestamps that tenants write, such as checkpoints:
    these are read again each time.
    """

    def __init__(self, registry: Registry) -> None:
        self.known: dict[str, float] = {}  # times by timestamp; never changed, only replaced
        self._registry = registry
        self._most = _FEW_INSTANTS

    def record(self, dirty: Iterable[GroupKey], epoch: float, now: float) -> None:
        """Record changed groups. `epoch`: the difference between the wall clock and the ledger's clock."""
        groups = [group for key in dirty if (group := self._registry.groups.get(key)) is not None]
        for timestamp in (each for each in self._timestamps(groups) if each and each not in self.known):
            instant = clock_time_of(timestamp, epoch)
            if instant < inf:
                self.known[timestamp] = min(instant, now)
        for timestamp in (each for each in self._checkpoints(groups) if each and each not in self.known):
            instant = clock_time_of(timestamp, epoch)
            if instant <= now:
                self.known[timestamp] = instant
        if len(self.known) > self._most:
            groups = list(self._registry.groups.values())
            used = {*self._timestamps(groups), *self._checkpoints(groups)}
            self.known = {timestamp: at for timestamp, at in self.known.items() if timestamp in used}
            self._most = 2 * len(self.known) + _FEW_INSTANTS

    def _timestamps(self, groups: Iterable[Group]) -> Iterator[str]:
        """Yield the timestamps by which groups are ordered or their runs are measured."""
        for group in groups:
            yield group.ready_at
            if group.record is not None:
                yield group.record.created
            if group.job is not None:
                yield group.job.started_at
            for pod in group.pods.values():
                yield pod.created
                yield pod.running_since

    def _checkpoints(self, groups: Iterable[Group]) -> Iterator[str]:
        for group in groups:
            objects = (group.record, group.job, group.owner)
            yield from (each.checkpoint.at for each in objects if each is not None)
            yield from (pod.checkpoint.at for pod in group.pods.values())


class ClaimMoves:
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
        self._moved: dict[GroupKey, int] = {}  # by group: the version at which one of its claims last moved

    def put(
        self, pod: PodRecord, event: ClaimEvent, node: str, token: int = 0, posting: tuple[Posting, ...] = ()
    ) -> None:
        """Put the claim of a member pod on `node`, or advance it. Raises KeyError for a wrong event."""
        before = self._claims.get(pod.uid)
        stage = next_stage(event, self._stage(pod.uid))
        assert stage is not None, event
        self._claims.put(pod, node, stage, self._clock(), self._changes.next_version, token, posting)
        self._record(pod, before)

    def end(self, pod: PodRecord, event: ClaimEvent) -> None:
        """End the claim of a member pod without a binding. Raises KeyError as `put` does."""
        stage = next_stage(event, self._stage(pod.uid))
        assert stage is None, event
        before = self._claims.drop(pod.uid)
        self._changes.record_freed(pod.group)
        self._registry.group(pod.group).record_withdrawn(pod.uid)
        self._record(pod, before)

    def refuse(self, pod: PodRecord) -> None:
        """Record that the scheduler found no node for a pod, and free a claim that filter had answered."""
        claim = self._claims.get(pod.uid)
        if claim is not None and claim.stage is ClaimStage.ANSWERED:
            self._claims.put(pod, claim.node, ClaimStage.PLANNED, self._clock())
            self._releases.record_claim(pod, claim, self._claims.get(pod.uid))

    def show(self, pod: PodRecord) -> None:
        """Record a pod of the watch.

        A pod on a node holds capacity, an ended pod holds none, and a waiting pod keeps its claim.
        """
        before = now = self._claims.get(pod.uid)
        if pod.holds_capacity:
            now = self._claims.put(pod, pod.node, ClaimStage.BOUND)
        elif pod.node or not pod.waiting:
            now = None
            self._claims.drop(pod.uid)
        elif before is not None:
            now = self._claims.put(
                pod, before.node, before.stage, before.since, before.version, before.token, before.posting
            )
        if before is not None and (now is None or now.stage is not before.stage):  # capacity or place changed
            self._changes.record_freed(pod.group)
        if pod.group:
            self._releases.record_claim(pod, before, now)

    def drop(self, pod: PodRecord) -> None:
        if self._claims.drop(pod.uid) is not None:
            self._changes.record_freed(pod.group)
        self._releases.forget(pod)

    def count_running(self, group: Group, pod: PodRecord) -> None:
        """Count a member as standing, or stop counting it."""
        if pod.placed or (pod.waiting and (self._stage(pod.uid) or 0) >= ClaimStage.HELD):
            group.standing[pod.uid] = pod.role
        else:
            group.standing.pop(pod.uid, None)

    def moved_since(self, version: int) -> dict[GroupKey, int]:
        """Return groups whose claims moved since the last call; those after `version` are returned again."""
        moved, self._moved = self._moved, {key: at for key, at in self._moved.items() if at > version}
        return moved

    def _stage(self, uid: Uid) -> ClaimStage | None:
        claim = self._claims.get(uid)
        return claim.stage if claim else None

    def _record(self, pod: PodRecord, before: Claim | None) -> None:
        """Record that the claim of a pod has changed from `before`."""
        now = self._claims.get(pod.uid)
        self._moved[pod.group] = self._changes.next_version
        self.count_running(self._registry.group(pod.group), pod)
        if not (before and now and before.is_fixed and now.is_fixed and before.node == now.node):
            self._registry.mark_moved(pod.group)  # other changes do not affect decisions
        if not pod.expected:
            self._releases.record_claim(pod, before, now)


class Parts(NamedTuple):
    """Common base of the parts of the ledger.

    Every public method that changes anything, or reads more than one thing, takes `lock`, which is reentrant.
    """

    registry: Registry
    claims: Claims
    moves: ClaimMoves
    releases: Releases
    changes: Changes
    refusals: Refusals
    clock: Callable[[], float]
    lock: AbstractContextManager[object]
