"""One round of decisions: the snapshot, the budget that is used up, and what has been decided so far."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import PurePath
from traceback import extract_tb
from typing import TypeVar

from extender.api.keys import STOP_DRAIN
from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.evictions import Eviction, Reclaim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.placement.kept_totals import KeptTotals
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.kept_shares import KeptShares
from extender.domain.scheduling.shortages import Shortages
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

T = TypeVar("T")
_NOTHING: Mapping[Uid, str] = {}
NOBODY = GroupKey("")


class Round:
    def __init__(
        self, snapshot: Snapshot, totals: KeptTotals | None = None, shares: KeptShares | None = None
    ) -> None:
        """`totals` and `shares`: of an earlier round, to save work."""
        self.snapshot = snapshot
        self.limits = snapshot.limits
        self.budget = Budget(snapshot, totals, shares)
        self._journal = self.budget.journal
        self.shortages = Shortages()
        self.decided: dict[GroupKey, GroupDecision] = {}
        self.evictions: dict[Uid, Eviction] = {}
        self.has_begun_reclaim = False
        """Whether room is being taken back for one more group."""
        self.moments: dict[GroupKey, float] = {}
        """By group the next moment at which time alone could change what is decided on it; by `NOBODY` that
        of all else."""
        self._judged = NOBODY
        if snapshot.expires_at is not None:
            self.look_again_at(snapshot.expires_at)

    def settle(self, decision: GroupDecision) -> None:
        self.decided[decision.key] = decision

    def is_due(self, moment: float) -> bool:
        """Whether a moment has come; if not, it is looked at again when it does."""
        if self.snapshot.now >= moment:
            return True
        self.look_again_at(moment)
        return False

    def look_again_at(self, moment: float) -> None:
        """Time alone could change something then: of the group that is judged now, if one is."""
        self.moments[self._judged] = min(moment, self.moments.get(self._judged, moment))

    def judge(
        self, work: Callable[..., T], group: GroupView, *more: object, held: Mapping[Uid, str] = _NOTHING
    ) -> T | None:
        """`work(round, group, *more)`. If that raises, the group waits, what it took meanwhile and what was
        `held` for it before is given back, and the others do not notice; None."""
        mark, outer, self._judged = self._journal.mark(), self._judged, group.key
        try:
            return work(self, group, *more)
        except Exception as fault:  # whatever it is: one group never stops the rest
            self._journal.roll_back(mark)
            self.settle(broken(group, fault))
            self._give_back(group, held)
            return None
        finally:
            self._judged = outer

    def is_broken(self, group: GroupView) -> bool:
        """Whether its judging raised in this round."""
        return group.key in self.decided and bool(self.decided[group.key].fault)

    def _give_back(self, group: GroupView, held: Mapping[Uid, str]) -> None:
        mark = self._journal.mark()
        try:
            self.budget.release(group, held)
        except Exception:  # the round is poorer by what cannot be counted
            self._journal.roll_back(mark)

    @cached_property
    def reclaims(self) -> Mapping[GroupKey, Reclaim]:
        """Room that is being taken back since an earlier round, by the group that it is for."""
        found = ((key, getattr(group.start, "reclaim", None)) for key, group in self.snapshot.groups.items())
        return {key: reclaim for key, reclaim in found if reclaim is not None}

    @cached_property
    def promised(self) -> Mapping[Uid, GroupKey]:
        """The pods that give this room back, and for whom."""
        return {victim.uid: key for key, reclaim in self.reclaims.items() for victim in reclaim.victims}

    @cached_property
    def drained(self) -> frozenset[str]:
        """The queues whose groups are evicted."""
        queues = self.snapshot.queues.items()
        return frozenset(
            name for name, queue in queues if queue.exists and queue.record.stop_policy == STOP_DRAIN
        )

    @cached_property
    def draining(self) -> Mapping[GroupKey, GroupView]:
        """The groups whose queue or LocalQueue has them evicted."""
        drained = self.drained
        return {
            key: group
            for key, group in self.snapshot.groups.items()
            if group.queue in drained or (group.local_queue is not None and group.is_drained)
        }

    @cached_property
    def in_flight(self) -> int:
        """Pods that the scheduler has, or soon will have, on its hands for us."""
        return sum(len(group.planned) + len(group.pinned) for group in self.snapshot.groups.values())

    @cached_property
    def empty(self) -> Planner:
        """The room if nothing ran at all."""
        return Planner.empty(self.snapshot)

    def could_stand_alone(self, wanted: Missing) -> bool:
        """Whether members would all find a node if nothing ran. Kept while the nodes are the same."""
        if self.empty.affinity.any_particular(wanted.members, wanted.shapes):
            return self.empty.could_place(wanted.members, wanted.shapes)
        known = self.snapshot.nodes.standing_alone()
        if wanted.signature not in known:
            known[wanted.signature] = self.empty.could_place(wanted.members, wanted.shapes)
        return known[wanted.signature]

    @cached_property
    def empty_but_for_refusals(self) -> Planner:
        """The same, without the nodes that the scheduler refuses."""
        return Planner.empty_but_for_refusals(self.snapshot)


def broken(group: GroupView, fault: Exception) -> GroupDecision:
    """A group that cannot be judged: something in it is beyond what was thought of."""
    name, where = type(fault).__name__, extract_tb(fault.__traceback__)[-1:]
    place = "".join(f" at {PurePath(frame.filename).name}:{frame.lineno}" for frame in where)
    detail = f"judging it failed: {name}"
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.WAITING,
        Reason.INVALID_SPEC,
        detail,
        fault=f"{name}: {fault}{place}",
    )
