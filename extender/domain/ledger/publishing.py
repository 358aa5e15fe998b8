"""Snapshots out for decide(), and its decisions in: their plans become claims."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from extender.domain.ledger.claims import ClaimEvent, ClaimStage
from extender.domain.ledger.expected_members import ExpectedMembers
from extender.domain.ledger.group_views import GroupViews
from extender.domain.ledger.groups import Group
from extender.domain.ledger.intake import DisruptionBudgets
from extender.domain.ledger.nodes import NodeCapacity
from extender.domain.ledger.registry import Registry
from extender.domain.ledger.state import Parts
from extender.domain.model.evictions import Reclaim
from extender.domain.model.reasons import Outcome, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.run_history import RunHistory
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_view import Start, kind_of
from extender.domain.snapshot.quorum import running_since
from extender.domain.snapshot.snapshot import Limits, Snapshot

# ---- Room that is being taken back, kept from everybody but those who have it planned already.
#
# Its members have no claims yet: what they will claim is still in use. So it is counted beside the
# claims.


class ReclaimedRoom:
    """Callers hold the ledger's lock."""

    def __init__(self, registry: Registry, capacity: NodeCapacity) -> None:
        self._registry = registry
        self._capacity = capacity
        self._kept: dict[GroupKey, tuple[Reclaim, list[tuple[str, Resources]]]] = {}

    def put(self, key: GroupKey, reclaim: Reclaim | None) -> None:
        """What is being taken back for a group now; None: nothing."""
        before, parts = self._kept.get(key, (None, []))
        if before is reclaim:
            return
        for node, amounts in parts:
            self._capacity.keep(node, amounts, -1)
        self._kept.pop(key, None)
        group = self._registry.groups.get(key)
        if reclaim is None or group is None:
            return
        now = [
            (node, group.pods[uid].shape.requests) for uid, node in reclaim.plan.items() if uid in group.pods
        ]
        self._kept[key] = (reclaim, now)
        for node, amounts in now:
            self._capacity.keep(node, amounts)


# ---- Snapshots out for decide(), and its decisions in: their plans become claims.
#
# Claims that filter has pinned since a snapshot was taken are newer than any decision made on it, and
# stay.


class Publishing:
    """`snapshot`, then decide(), then `publish`; the cost of each is proportional to what changed.
    `decisions`: those published last. Callers hold the ledger's lock."""

    def __init__(
        self,
        parts: Parts,
        limits: Limits,
        views: GroupViews,
        expected: ExpectedMembers,
        budgets: DisruptionBudgets,
        wall_clock: Callable[[], float],
        others: Callable[[], Mapping[Uid, PodRecord]],
    ) -> None:
        self.decisions = Decisions()
        self._registry, self._claims, self._moves = parts.registry, parts.claims, parts.moves
        self._releases, self._changes = parts.releases, parts.changes
        self._attendance, self._refusals = parts.attendance, parts.refusals
        self._clock = clock = parts.clock
        self._wall_clock = wall_clock
        self._limits = limits
        self._views = views
        self._expected = expected
        self._others = others
        self._spared: dict[Uid, float] = {}  # until when
        self._kept = ReclaimedRoom(parts.registry, parts.claims.capacity)
        self._budgets = budgets
        self._history = RunHistory()
        self.moment: Callable[[str], float] = lambda _: clock()  # reads timestamps, as the last snapshot did
        self._unpublished: set[GroupKey] = set()  # touched since decisions were last published

    def snapshot(self) -> Snapshot:
        self._end_answers()
        self._spared = {uid: until for uid, until in self._spared.items() if until > self._clock()}
        self._expected.settle()
        touched, groups, queues = self._views.refresh()
        refused = self._refusals.rows(self._clock())
        self._unpublished.update(touched)
        snapshot = Snapshot(
            version=self._changes.version,
            now=self._clock(),
            epoch=self._wall_clock() - self._clock(),
            limits=self._limits,
            dimensions=self._claims.capacity.columns.names,
            nodes=self._claims.capacity.table(),
            room=self._claims.capacity.columns.room.copy(),
            allocatable=self._claims.capacity.columns.allocatable.copy(),
            occupancy=self._claims.capacity.occupancy(),
            refused=refused,
            queues=queues,
            groups=groups,
            expires_at=min(self._expiries(), default=None),
            orphans=self._registry.orphans(),
            touched=frozenset(self._unpublished),
            others=self._others(),
            spared=dict(self._spared),
            disruption_budgets=self._budgets.view(),
            attention=self._attendance.attention,
            history=self._history,
            freed=self._moves.freed,
            changed_at=self._changes.changed_at,
        )
        self.moment = snapshot.moment
        return snapshot

    def spare(self, uid: Uid) -> None:
        """The eviction of a pod was refused: for a while it is no victim."""
        self._spared[uid] = self._clock() + self._limits.spared
        self._changes.mark()

    def give_up_start(self, key: GroupKey, why: str) -> None:
        """The start of a group has failed, whatever decisions say; if they do, too, it is counted once."""
        group = self._registry.groups.get(key)
        if group is None or group.start.retry_at > self._clock():
            return
        failures = group.start.failures
        retry_at = self._clock() + self._limits.retry_after(failures)
        group.start = Start(failures=failures + 1, retry_at=retry_at, failure=why, lap=group.start.lap)
        group.waited = True
        self._registry.touch(key)
        self._changes.mark()

    def publish(self, decisions: Decisions) -> None:
        """Turn plans into claims. Claims that filter has pinned since the snapshot was taken stay as they
        are."""
        before, self.decisions = self.decisions, decisions
        version, moved = decisions.version, self._moves.moved_since(decisions.version)
        self._unpublished.difference_update(decisions.turned)
        for key in dict.fromkeys((*decisions.turned_since(before), *moved)):
            decision = decisions.groups.get(key)
            self._kept.put(key, decision.reclaim if decision is not None else None)
            if decision is not None:
                self._follow(before.groups.get(key), decision, version, key in moved)

    # ---- inside

    def _end_answers(self) -> None:
        """End answers of filter that no bind call followed within the longest time that a start may take
        (volumes are bound before bind is called). They would hold their room indefinitely."""
        oldest = self._clock() - self._limits.start_deadline
        for claim in [each for each in self._claims.at(ClaimStage.ANSWERED) if each.since <= oldest]:
            self._moves.end(claim.pod, ClaimEvent.EXPIRE)
            self._changes.mark()

    def _expiries(self) -> Iterator[float]:
        if (until := self._refusals.until()) is not None:
            yield until
        yield from self._spared.values()
        yield from self._expected.later.expiries()
        for claim in self._claims.at(ClaimStage.ANSWERED):
            yield claim.since + self._limits.start_deadline

    def _follow(
        self, was: GroupDecision | None, decision: GroupDecision, version: int, has_moved: bool
    ) -> None:
        if was is not decision:
            self._note_run(was, decision)
            self._apply(decision)
        if has_moved or not _plan_alike(was, decision):
            self._replan(decision, version)

    def _note_run(self, was: GroupDecision | None, decision: GroupDecision) -> None:
        """Remember how long a group ran that has just completed."""
        group = self._registry.groups.get(decision.key)
        if was is None or was.verdict is Verdict.ENDED or decision.life.outcome is not Outcome.COMPLETED:
            return
        if group is None or (view := group.view) is None:
            return
        since = running_since(view, self.moment)
        if since is not None:
            ran = max(self._clock() - since, 0.0)
            self._history = self._history.with_run(kind_of(view), ran, view.run_time)

    def _apply(self, decision: GroupDecision) -> None:
        group = self._registry.groups.get(decision.key)
        if group is None:
            return
        self._learn(group, decision)
        self._note_victims(group, decision)
        self._note_reduction(group, decision)
        group.waited |= decision.verdict is Verdict.WAITING and not decision.undo
        if decision.stood_whole and not group.stood_whole:
            group.stood_with = group.view.needs if group.view else group.needs
            self._registry.touch(group.key)
            self._changes.mark()
        start = self._started(group, decision)
        if start != group.start:
            group.start = start
            self._registry.touch(group.key)
            self._changes.mark()

    def _note_reduction(self, group: Group, decision: GroupDecision) -> None:
        """With how many members a job starts is remembered until it waits again, or makes so many."""
        keeps = decision.reduced_to is None and decision.verdict is Verdict.STARTING
        if not keeps and group.reduced_to != decision.reduced_to:
            group.reduced_to = decision.reduced_to
            self._registry.touch(group.key)
            self._changes.mark()

    def _started(self, group: Group, decision: GroupDecision) -> Start:
        start = group.start
        lap = start.lap if decision.lap is None else decision.lap
        if decision.failed:
            admitted = start.admitted and bool(decision.undo)
            return Start(
                failures=start.failures + 1,
                retry_at=decision.retry_at,
                failure=decision.failed,
                admitted=admitted,
                lap=lap,
                claims_since=start.claims_since,
            )
        match decision.verdict:
            case Verdict.STARTING if start.admitted_at is None:
                now = self._clock()
                return msgspec.structs.replace(
                    start, admitted_at=now, admitted=True, lap=lap, reservation=None, reclaim=None
                )
            case Verdict.RUNNING if group.stood_whole and not decision.retry_at:
                return Start()
            case Verdict.ENDED:
                return Start()
            case Verdict.RUNNING:
                resumed = group.view is not None and group.view.resumes
                admitted = start.admitted or resumed
                return msgspec.structs.replace(
                    start, admitted_at=None, admitted=admitted, reservation=None, reclaim=None
                )
            case Verdict.WAITING if not decision.undo:
                since = start.claims_since
                if decision.claims_room and since is None:
                    since = self._clock()
                return msgspec.structs.replace(
                    start,
                    admitted_at=None,
                    admitted=False,
                    lap=lap,
                    claims_since=since,
                    reservation=decision.reservation,
                    reclaim=decision.reclaim,
                )
        return start

    def _note_victims(self, group: Group, decision: GroupDecision) -> None:
        """Remember for a while from whom a group took room: each gives back to the same group once."""
        if decision.reclaim is None or decision.reclaim == group.start.reclaim:
            return
        now = self._clock()
        kept = {key: at for key, at in group.took_from.items() if at + self._limits.reclaim_memory > now}
        group.took_from = kept | {each.group: now for each in decision.reclaim.victims if each.group}
        self._registry.touch(group.key)

    def _replan(self, decision: GroupDecision, version: int) -> None:
        group = self._registry.groups.get(decision.key)
        if group is None:
            return
        for pod in group.pods.values():
            self._replan_pod(group, pod, decision, version)

    def _replan_pod(self, group: Group, pod: PodRecord, decision: GroupDecision, version: int) -> None:
        """Bring a waiting member's claim in line with its group's decision, made on `version`. A claim that a
        bind call holds ends with that call; the scheduler is to forget the pod before the call fails."""
        claim, node = self._claims.get(pod.uid), decision.plan.get(pod.uid)
        if claim is not None and claim.stage >= ClaimStage.HELD:
            if claim.stage is ClaimStage.HELD and decision.verdict is Verdict.WAITING:
                self._releases.take_back(pod.uid, was_called=True)
            return
        is_newer = claim is not None and claim.version > version
        if claim is not None and claim.stage.pinned and (is_newer or decision.verdict is not Verdict.WAITING):
            return
        if node is None and claim is not None:
            self._moves.end(pod, ClaimEvent.WITHDRAW)
            self._changes.mark()
        elif node is not None and (claim is None or claim.node != node):
            self._moves.put(pod, ClaimEvent.PLAN, node)
            group.refusals.pop(pod.uid, None)
            group.expected_since.pop(pod.uid, None)
            if self._releases.sees(pod):
                group.expected_since[pod.uid] = self._clock()
            self._changes.mark()

    def _learn(self, group: Group, decision: GroupDecision) -> None:
        """Remember for a while where the scheduler refuses a shape."""
        expires = self._clock() + self._limits.refusal_memory
        for uid, node in decision.moved.items():
            pod = group.pods.get(uid)
            if pod is not None:
                self._refusals.learn(pod.shape, node, expires)


def _plan_alike(was: GroupDecision | None, decision: GroupDecision) -> bool:
    """Whether claims in line with `was` are in line with `decision` too: both are the same, or neither lets
    any member start."""
    waits = decision.verdict is Verdict.WAITING and not decision.plan
    return was is decision or (waits and was is not None and was.verdict is Verdict.WAITING and not was.plan)
