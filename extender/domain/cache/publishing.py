"""The part of the ledger that decisions come from and go to: snapshots out, plans in as claims.

What filter has pinned since a snapshot was taken is newer than any decision made on it, and stays.
"""

from collections.abc import Iterator

import msgspec

from extender.domain.cache.books import Books
from extender.domain.cache.claims import Stage
from extender.domain.cache.groups import Group
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import PodRecord
from extender.domain.snapshot.group_view import Start
from extender.domain.snapshot.snapshot import Snapshot


class Publishing(Books):
    """`snapshot`, then decide(), then `publish`; each costs in proportion to what changed."""

    @property
    def version(self) -> int:
        return self._version

    @property
    def decisions(self) -> Decisions:
        """The newest published ones."""
        return self._decisions

    def snapshot(self) -> Snapshot:
        with self._lock:
            self._end_answers()
            touched, groups, queues = self._registry.refresh(self._claims)
            refused = self._refusals.rows(self._clock())
            self._unpublished.update(touched)
            return Snapshot(
                version=self._version,
                now=self._clock(),
                limits=self.limits,
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
                attention=self._attention,
            )

    def publish(self, decisions: Decisions) -> None:
        """Turn plans into claims. What filter has pinned since the snapshot was taken stays as it is."""
        with self._lock:
            before, self._decisions = self._decisions, decisions
            moved, version = self._moved_claims, decisions.version
            self._moved_claims = {key: at for key, at in moved.items() if at > version}
            self._unpublished.difference_update(decisions.turned)
            for key in dict.fromkeys((*decisions.turned_since(before), *moved)):
                if (decision := decisions.groups.get(key)) is not None:
                    self._follow(before.groups.get(key), decision, version, key in moved)

    # ---- inside

    def _end_answers(self) -> None:
        """An answer of filter that no bind call followed in the longest time that a start may take (volumes
        are bound before bind is called) ends here: it would hold its room for good."""
        oldest = self._clock() - self.limits.start_deadline
        for claim in [each for each in self._claims.at(Stage.ANSWERED) if each.since <= oldest]:
            self._release(claim.pod)
            self._changed()

    def _expiries(self) -> Iterator[float]:
        if (until := self._refusals.until()) is not None:
            yield until
        for claim in self._claims.at(Stage.ANSWERED):
            yield claim.since + self.limits.start_deadline

    def _follow(
        self, was: GroupDecision | None, decision: GroupDecision, version: int, has_moved: bool
    ) -> None:
        if was is not decision:
            self._apply(decision)
        if has_moved or not _plan_alike(was, decision):
            self._replan(decision, version)

    def _apply(self, decision: GroupDecision) -> None:
        group = self._registry.groups.get(decision.key)
        if group is None:
            return
        self._learn(group, decision)
        if decision.stood_whole and not group.stood_whole:
            group.stood_whole = True
            self._registry.touch(group.key)
            self._changed()
        start = self._started(group, decision)
        if start != group.start:
            group.start = start
            self._registry.touch(group.key)
            self._changed()

    def _started(self, group: Group, decision: GroupDecision) -> Start:
        start = group.start
        if decision.failed:
            return Start(None, start.failures + 1, decision.retry_at, decision.failed)
        match decision.verdict:
            case Verdict.STARTING if start.admitted_at is None:
                return msgspec.structs.replace(start, admitted_at=self._clock())
            case Verdict.RUNNING if group.stood_whole:
                return Start()
            case Verdict.ENDED:
                return Start()
            case Verdict.RUNNING | Verdict.WAITING:
                return msgspec.structs.replace(start, admitted_at=None)
        return start

    def _replan(self, decision: GroupDecision, version: int) -> None:
        group = self._registry.groups.get(decision.key)
        if group is None:
            return
        for pod in group.pods.values():
            self._replan_pod(group, pod, decision, version)

    def _replan_pod(self, group: Group, pod: PodRecord, decision: GroupDecision, version: int) -> None:
        """Bring a waiting member's claim in line with its group's decision, made on `version`. One that a
        bind call holds ends with the call."""
        claim, node = self._claims.get(pod.uid), decision.plan.get(pod.uid)
        if claim is not None and claim.stage >= Stage.HELD:
            return
        is_newer = claim is not None and claim.version > version
        if claim is not None and claim.stage.pinned and (is_newer or decision.verdict is not Verdict.WAITING):
            return
        if node is None and claim is not None:
            self._release(pod)
            self._changed()
        elif node is not None and (claim is None or claim.node != node):
            self._put(pod, node, Stage.PLANNED)
            group.refusals.pop(pod.uid, None)
            group.expected_since.pop(pod.uid, None)
            if not pod.gated:
                group.expected_since[pod.uid] = self._clock()
            self._changed()

    def _learn(self, group: Group, decision: GroupDecision) -> None:
        """Remember for a while where the scheduler refuses a shape."""
        expires = self._clock() + self.limits.refusal_memory
        for uid, node in decision.moved.items():
            pod = group.pods.get(uid)
            if pod is not None:
                self._refusals.learn(pod.shape, node, expires)


def _plan_alike(was: GroupDecision | None, decision: GroupDecision) -> bool:
    """Whether claims that follow `was` follow `decision` as well: they are one, or let nobody start."""
    waits = decision.verdict is Verdict.WAITING and not decision.plan
    return was is decision or (waits and was is not None and was.verdict is Verdict.WAITING and not was.plan)
