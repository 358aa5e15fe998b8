"""Scheduling cycle: the snapshot, the budget that is used up, and the decisions so far."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import filterfalse
from operator import attrgetter
from pathlib import PurePath
from traceback import extract_tb
from zlib import crc32

from msgspec.structs import replace

from extender.api.objects.queues import QueueTaken
from extender.domain.model.evictions import Eviction, Reclaim
from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.placement.affinity import OverBudget
from extender.domain.placement.planner import Planner
from extender.domain.queues.records import Reclaimed, ReclaimKey
from extender.domain.scheduling.budget import Budget
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.phases import outcome_of
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Missing, running_since

_NOTHING: Mapping[Uid, str] = {}
_NONE: Mapping[GroupKey, GroupDecision] = {}
NO_GROUP = GroupKey("")
# Effort of the evaluations of one cycle, in looks at a node for a term: about 4 million a second.
_MOST_OF_A_GROUP, _MOST_OF_A_NAMESPACE, _MOST_OF_A_RETRY = 5e5, 1e6, 1e6
_MOST_IN_COMMON, _LEAST_OF_A_NAMESPACE = 1e6, 2e4
_RETRY_PERIOD, _RETRY_SPREAD = 60.0, 32  # seconds between tries of a group over budget
OVER_BUDGET = (
    "comparing its members with the pods on all nodes takes too long; it is tried alone, now and then, "
    "with more time"
)


class Efforts:
    """Efforts: how much work evaluations of the groups of each namespace may take in a cycle.

    Each namespace has an amount of its own, independent of others, and may use the rest of a common amount.
    `namespaces`: the number of namespaces with affinity terms; each beyond 50 makes a cycle longer.
    """

    def __init__(self, namespaces: int) -> None:
        self.spent = defaultdict[str, float](float)  # by namespace, in looks at a node for a term
        self._own = max(_MOST_IN_COMMON / max(namespaces, 1), _LEAST_OF_A_NAMESPACE)
        self._in_common = _MOST_IN_COMMON

    def remaining(self, group: GroupKey, is_over_budget: bool) -> float:
        """Return the effort for one group. `is_over_budget`: an earlier evaluation was over budget."""
        spent = self.spent.get(_namespace_of(group), 0.0) if self.spent else 0.0
        left = max(self._own - spent, 0.0) + self._in_common
        if is_over_budget:
            return min(left, _MOST_OF_A_RETRY - spent)
        return min(left, _MOST_OF_A_GROUP, _MOST_OF_A_NAMESPACE - spent)

    def spend(self, group: GroupKey, looks: float) -> None:
        namespace = _namespace_of(group)
        before = self.spent[namespace]
        self.spent[namespace] += looks
        self._in_common -= max(before + looks - self._own, 0.0) - max(before - self._own, 0.0)


def _namespace_of(group: GroupKey) -> str:
    return group.partition("/")[0]


class Cycle:
    def __init__(
        self,
        snapshot: Snapshot,
        groups: Mapping[GroupKey, GroupInfo] | None = None,
        inadmissible: Mapping[GroupKey, GroupDecision] = _NONE,
        before: Budget | None = None,
    ) -> None:
        """Begin a cycle.

        Args:
            snapshot: The state to decide on.
            groups: The groups to evaluate; None: all of the snapshot.
            inadmissible: The valid decisions on all other groups.
            before: The budget of an earlier cycle, to reuse work from.
        """
        self.snapshot = snapshot
        self.groups = snapshot.groups if groups is None else groups
        self.limits = snapshot.limits
        self.budget = Budget(snapshot, before)
        self.journal = self.budget.journal
        self.effort = self.budget.planner.affinity.effort
        self.efforts = Efforts(snapshot.occupancy.namespaces)
        self.costly: set[GroupKey] = set()  # groups whose evaluation used the common effort
        self.reads = self.journal.reads
        self.decided: dict[GroupKey, GroupDecision] = {}
        self._inadmissible = inadmissible
        self._fits_without_refusals: dict[frozenset[object], bool] = {}
        self.evictions: dict[Uid, Eviction] = {}
        self.has_begun_reclaim = False  # whether capacity is being reclaimed for one more group
        self.reclaimed: dict[str, dict[ReclaimKey, Reclaimed]] = {}  # cached reclaims by queue
        # Next time at which time alone could change a decision, by group or `NO_GROUP`.
        self.instants: dict[GroupKey, float] = {}
        self.evaluated = NO_GROUP  # the group that is evaluated now
        if snapshot.expires_at is not None:
            self.request_cycle_at(snapshot.expires_at)

    @property
    def effort_spent(self) -> float:
        """Return the cost of evaluating its groups, in looks at a node for a term."""
        return sum(self.efforts.spent.values())

    def decision_on(self, group: GroupKey) -> GroupDecision | None:
        """Return the current decision; for a group that this cycle does not evaluate, the earlier one."""
        found = self.decided.get(group)
        return found if found is not None or group in self.groups else self._inadmissible.get(group)

    def settle(self, decision: GroupDecision) -> None:
        self.decided[decision.key] = decision

    def reclaimed_by(self, queue: str) -> dict[ReclaimKey, Reclaimed]:
        """Return the last reclaims of a queue within an hour; callers add those of this cycle.

        They come from memory, or from the status that an earlier process wrote.
        """
        if queue not in self.reclaimed:
            found = dict(self.snapshot.queues[queue].record.reclaimed)
            for losing, last in self.snapshot.reclaimed.get(queue, {}).items():
                found[losing] = max(last, found.get(losing, last), key=attrgetter("at"))
            until = self.snapshot.now - self.limits.reclaim_memory
            recent = ((key, last) for key, last in found.items() if self.snapshot.instant(last.at) > until)
            unused = ((key, last, filterfalse(self._is_used, last.unused)) for key, last in recent)
            self.reclaimed[queue] = {key: replace(last, unused=tuple(left)) for key, last, left in unused}
        return self.reclaimed[queue]

    def _is_used(self, taken: QueueTaken) -> bool:
        """Return whether a group has used its reclaimed capacity.

        True if the group has run for the agreed time, or has completed.
        """
        if (group := self.find_taker(taken)) is None:
            return False
        if outcome_of(group) is Outcome.COMPLETED:
            return True
        since = running_since(group, self.snapshot.instant) if group.stood_whole and group.is_whole else None
        if since is None:
            return False
        used_at = max(since, self.snapshot.instant(taken.at)) + taken.seconds
        if used_at > self.snapshot.now:
            self.instants[NO_GROUP] = min(used_at, self.instants.get(NO_GROUP, used_at))
        return used_at <= self.snapshot.now

    def find_taker(self, taken: QueueTaken) -> GroupInfo | None:
        """Return the group; None if it is gone, even if a new group has its name."""
        group = self.snapshot.groups.get(GroupKey(taken.group))
        return group if group is not None and group.created <= taken.at else None

    def settle_all(
        self, groups: Iterable[GroupInfo], decide: Callable[[GroupInfo], GroupDecision | None]
    ) -> list[GroupInfo]:
        """Settle the groups that `decide` has a decision on; return the others."""
        undecided: list[GroupInfo] = []
        for group in groups:
            with Guard(self, group):
                if (decision := decide(group)) is None:
                    undecided.append(group)
                else:
                    self.settle(decision)
        return undecided

    def is_due(self, instant: float) -> bool:
        """Return whether a time has come; otherwise request the evaluation of the group at that time."""
        if self.snapshot.now >= instant:
            return True
        self.request_cycle_at(instant)
        return False

    def request_cycle_at(self, instant: float) -> None:
        """Request a cycle at this instant, for the group that is being evaluated if there is one."""
        self.instants[self.evaluated] = min(instant, self.instants.get(self.evaluated, instant))

    def is_broken(self, group: GroupInfo) -> bool:
        """Return whether the evaluation of a group raised in this cycle."""
        return group.key in self.decided and bool(self.decided[group.key].fault)

    @cached_property
    def reclaims(self) -> Mapping[GroupKey, Reclaim]:
        """Return the reclaims that earlier cycles began, keyed by the group that gets the capacity."""
        # The start of a group may be broken: only the evaluation of that group may fail.
        reclaims = ((key, getattr(group.start, "reclaim", None)) for key, group in self.groups.items())
        return {key: reclaim for key, reclaim in reclaims if reclaim is not None}

    @cached_property
    def being_reclaimed(self) -> Mapping[Uid, GroupKey]:
        """Return the pods whose capacity is being reclaimed, with the group that gets the capacity."""
        return {victim.uid: key for key, reclaim in self.reclaims.items() for victim in reclaim.victims}

    @property
    def evicts_groups(self) -> bool:
        """Return whether running groups are evicted by a reclaim or a drained queue."""
        return bool(self.has_begun_reclaim or self.reclaims or self.draining)

    @cached_property
    def draining(self) -> Mapping[GroupKey, GroupInfo]:
        """Return the groups that their queue or LocalQueue evicts."""
        drained = self.budget.rules.drained
        return {
            key: group
            for key, group in self.groups.items()
            if group.queue in drained or (group.local_queue is not None and group.is_drained)
        }

    @cached_property
    def in_flight(self) -> int:
        """Return the number of member pods that the scheduler has, or will have soon."""
        return sum(len(group.planned) + len(group.assumed) for group in self.groups.values())

    @cached_property
    def largest_offers(self) -> Mapping[str, int]:
        """Return the largest allocatable amount of a single node, by resource; empty without nodes."""
        snapshot = self.snapshot
        most = (int(column.max()) for column in snapshot.allocatable.T if len(column))
        return dict(zip(snapshot.dimensions, most, strict=False))

    @cached_property
    def empty(self) -> Planner:
        """Return the capacity of the nodes without any pods."""
        return Planner.empty(self.snapshot, self.budget.planner.affinity)

    @cached_property
    def _empty_but_for_refusals(self) -> Planner:
        return Planner.empty(self.snapshot, self.budget.planner.affinity, keeps_refusals=True)

    def fits_empty_cluster(self, wanted: Missing, keeps_refusals: bool = False) -> bool:
        """Return whether members would all fit if nothing ran, cached while the nodes are the same.

        With `keeps_refusals`, the nodes that the scheduler refuses are left out, in this cycle.
        """
        is_refused = keeps_refusals and bool(self.snapshot.refused)
        planner = self._empty_but_for_refusals if is_refused else self.empty
        if planner.affinity.any_interdependent(wanted):
            return planner.could_place(wanted)
        known = self._fits_without_refusals if is_refused else self.snapshot.nodes.fits_when_empty()
        numbers = frozenset(
            ((kind[0].number, kind[1]) if isinstance(kind, tuple) else kind.number, count)
            for kind, count in wanted.signature
        )
        if numbers not in known:
            known[numbers] = planner.could_place(wanted)
        return known[numbers]


class Guard:
    """Guard: `with Guard(cycle, group):` around the evaluation of one group.

    If the evaluation raises, the group waits, its allocations and what was `held` for it before are undone,
    and other groups are not affected.

    An evaluation that exceeds its effort (counted as work, not time, so that the same is decided everywhere)
    makes the group back off as after a failed start, with the reason TooComplex; its next evaluation may take
    more.
    """

    __slots__ = (
        "_allowed",
        "_checkpoint",
        "_cycle",
        "_group",
        "_held",
        "_outer",
        "_outer_effort",
        "_outer_read",
    )

    def __init__(self, cycle: Cycle, group: GroupInfo, held: Mapping[Uid, str] = _NOTHING) -> None:
        self._cycle, self._group, self._held = cycle, group, held

    def __enter__(self) -> None:
        cycle, key = self._cycle, self._group.key
        self._checkpoint, self._outer = cycle.journal.checkpoint(), cycle.evaluated
        cycle.evaluated, self._outer_read = key, cycle.reads.now
        cycle.reads.begin_group(key)
        is_over_budget = getattr(self._group.start, "failure", "") == OVER_BUDGET  # any error of the group
        self._allowed = cycle.efforts.remaining(key, is_over_budget)
        self._outer_effort = cycle.effort.allow(self._allowed)

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> bool:
        cycle, group, journal = self._cycle, self._group, self._cycle.journal
        if spent := self._allowed - cycle.effort.allow(self._outer_effort):
            cycle.efforts.spend(group.key, spent)
            cycle.costly.add(group.key)
        is_over_budget = isinstance(fault, OverBudget)
        if is_over_budget:
            cycle.request_cycle_at(next_try_at(cycle, group))
        cycle.evaluated, cycle.reads.now = self._outer, self._outer_read
        if not isinstance(fault, Exception):  # no error of one group stops the others
            return False
        journal.roll_back(self._checkpoint)
        cycle.settle(over_budget(cycle, group) if is_over_budget else error_decision(group, fault))
        checkpoint = journal.checkpoint()
        try:
            cycle.budget.release(group, self._held)
        except Exception:  # a group that cannot be counted is left out
            journal.roll_back(checkpoint)
        return True


def next_try_at(cycle: Cycle, group: GroupInfo) -> float:
    """Return when a group over budget is tried again; the times of several groups are spread."""
    pause = max(_RETRY_PERIOD, cycle.limits.retry_after(group.start.failures))
    return cycle.snapshot.now + pause + crc32(group.key.encode()) % _RETRY_SPREAD


def over_budget(cycle: Cycle, group: GroupInfo) -> GroupDecision:
    """Return the decision on a group whose evaluation took too long: it is tried again after a pause."""
    decision = GroupDecision(group.key, group.queue, Verdict.WAITING, Reason.TOO_COMPLEX, OVER_BUDGET)
    return replace(decision, failed=OVER_BUDGET, retry_at=next_try_at(cycle, group))


def error_decision(group: GroupInfo, fault: Exception) -> GroupDecision:
    """Return the decision on a group whose evaluation raised an unforeseen error."""
    name, where = type(fault).__name__, extract_tb(fault.__traceback__)[-1:]
    place = "".join(f" at {PurePath(frame.filename).name}:{frame.lineno}" for frame in where)
    detail = f"evaluation failed: {name}"
    return GroupDecision(
        group.key, group.queue, Verdict.WAITING, Reason.INVALID_SPEC, detail, fault=f"{name}: {fault}{place}"
    )
