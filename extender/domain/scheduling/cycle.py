"""Scheduling cycle: the snapshot, the budget, from which decisions allocate, and the decisions so far."""

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

_NO_NODES: Mapping[Uid, str] = {}
_NO_DECISIONS: Mapping[GroupKey, GroupDecision] = {}
NO_GROUP = GroupKey("")
# Limits of effort in one cycle, in looks at a node for a term. A second has about 4 million looks.
_MAX_GROUP_LOOKS, _MAX_NAMESPACE_LOOKS, _MAX_RETRY_LOOKS = 5e5, 1e6, 1e6
_COMMON_LOOKS, _MIN_NAMESPACE_LOOKS = 1e6, 2e4
_RETRY_SECONDS, _SPREAD_SECONDS = 60.0, 32  # seconds between evaluations of a group over budget
OVER_BUDGET = (
    "comparing its members with the pods on all nodes takes too long; it is tried alone, now and then, "
    "with more time"
)


class Efforts:
    """Budgets of effort: how much work the evaluation of the groups of each namespace may take in a cycle.

    Effort is counted in looks at a node for a term (see Effort). Each namespace has its own amount. All
    namespaces also share a common amount, which they may use once their own amounts are spent.

    Args:
        namespace_count: The number of namespaces with affinity terms. Each namespace beyond 50 makes a cycle
            longer.
    """

    def __init__(self, namespace_count: int) -> None:
        self.spent_looks = defaultdict[str, float](float)  # by namespace: looks at a node for a term
        self._own_looks = max(_COMMON_LOOKS / max(namespace_count, 1), _MIN_NAMESPACE_LOOKS)
        self._common_looks = _COMMON_LOOKS

    def remaining_effort(self, group: GroupKey, is_over_budget: bool) -> float:
        """Return the effort that remains for one group.

        A group gets more if an earlier evaluation was over budget.
        """
        spent_looks = self.spent_looks.get(_namespace_of(group), 0.0) if self.spent_looks else 0.0
        remaining_looks = max(self._own_looks - spent_looks, 0.0) + self._common_looks
        if is_over_budget:
            return min(remaining_looks, _MAX_RETRY_LOOKS - spent_looks)
        return min(remaining_looks, _MAX_GROUP_LOOKS, _MAX_NAMESPACE_LOOKS - spent_looks)

    def spend(self, group: GroupKey, look_count: float) -> None:
        """Spend effort of the group's namespace first, then of the common amount."""
        namespace, own_looks = _namespace_of(group), self._own_looks
        old_looks = self.spent_looks[namespace]
        self.spent_looks[namespace] += look_count
        self._common_looks -= max(old_looks + look_count - own_looks, 0.0) - max(old_looks - own_looks, 0.0)


def _namespace_of(group: GroupKey) -> str:
    return group.partition("/")[0]


class Cycle:
    """State of one scheduling cycle."""

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Mapping[GroupKey, GroupInfo] | None = None,
        earlier_decisions: Mapping[GroupKey, GroupDecision] = _NO_DECISIONS,
        earlier_budget: Budget | None = None,
    ) -> None:
        """Begin a cycle.

        Args:
            snapshot: The state to decide on.
            groups: The groups to evaluate. None means all groups of the snapshot.
            earlier_decisions: The decisions on all other groups, which are still valid.
            earlier_budget: The budget of an earlier cycle, whose results are reused.
        """
        self.snapshot = snapshot
        self.groups = snapshot.groups if groups is None else groups
        self.limits = snapshot.limits
        self.budget = Budget(snapshot, earlier_budget)
        self.journal = self.budget.journal
        self.effort = self.budget.planner.affinity.effort
        self.efforts = Efforts(snapshot.occupancy.namespace_count)
        self.costly_groups: set[GroupKey] = set()  # groups whose evaluation spent effort
        self.reads = self.journal.reads
        self.decisions: dict[GroupKey, GroupDecision] = {}
        self._old_decisions = earlier_decisions
        self._fits_without_refusals: dict[frozenset[object], bool] = {}
        self.evictions: dict[Uid, Eviction] = {}
        self.has_begun_reclaim = False  # whether this cycle has begun a reclaim or restart
        self.reclaimed: dict[str, dict[ReclaimKey, Reclaimed]] = {}  # recent reclaims by queue, cached
        # Next time at which time alone could change a decision, keyed by group; `NO_GROUP` means any group.
        self.instants: dict[GroupKey, float] = {}
        self.current_group = NO_GROUP  # the group under evaluation
        if snapshot.expires_at is not None:
            self.request_cycle_at(snapshot.expires_at)

    @property
    def spent_effort(self) -> float:
        """Return the effort that the evaluations have spent, in looks at a node for a term."""
        return sum(self.efforts.spent_looks.values())

    def current_decision(self, group: GroupKey) -> GroupDecision | None:
        """Return the current decision on a group.

        If this cycle does not evaluate the group, return the earlier one.
        """
        decision = self.decisions.get(group)
        return decision if decision is not None or group in self.groups else self._old_decisions.get(group)

    def record(self, decision: GroupDecision) -> None:
        """Record the decision on a group of this cycle."""
        self.decisions[decision.key] = decision

    def recent_reclaims(self, queue: str) -> dict[ReclaimKey, Reclaimed]:
        """Return the reclaims of a queue within `reclaim_memory`, keyed by the losing queue.

        The reclaims come from memory, or from the status that an earlier process wrote. Callers add the
        reclaims of this cycle to the result.
        """
        if queue not in self.reclaimed:
            records = dict(self.snapshot.queues[queue].record.reclaimed)
            for loser, last in self.snapshot.last_reclaims.get(queue, {}).items():
                records[loser] = max(last, records.get(loser, last), key=attrgetter("at"))
            oldest = self.snapshot.now - self.limits.reclaim_memory
            recent = ((key, last) for key, last in records.items() if self.snapshot.instant(last.at) > oldest)
            unused = ((key, last, filterfalse(self._is_used, last.unused)) for key, last in recent)
            self.reclaimed[queue] = {key: replace(last, unused=tuple(groups)) for key, last, groups in unused}
        return self.reclaimed[queue]

    def _is_used(self, record: QueueTaken) -> bool:
        """Return whether a group has used its reclaimed capacity.

        A group has used it once the group has completed, or has fully run for the time in `record`. If a
        running group has not reached this time yet, a cycle is requested for the time at which it will.
        """
        if (group := self.find_receiver(record)) is None:
            return False
        if outcome_of(group) is Outcome.COMPLETED:
            return True
        is_running = group.has_fully_run and group.is_whole
        begun_at = running_since(group, self.snapshot.instant) if is_running else None
        if begun_at is None:
            return False
        used_at = max(begun_at, self.snapshot.instant(record.at)) + record.seconds
        if used_at > self.snapshot.now:
            self.instants[NO_GROUP] = min(used_at, self.instants.get(NO_GROUP, used_at))
        return used_at <= self.snapshot.now

    def find_receiver(self, record: QueueTaken) -> GroupInfo | None:
        """Return the group that reclaimed capacity.

        None means that it no longer exists, even if a new group has its name.
        """
        group = self.snapshot.groups.get(GroupKey(record.group))
        return group if group is not None and group.created_at <= record.at else None

    def record_all(
        self, groups: Iterable[GroupInfo], decide: Callable[[GroupInfo], GroupDecision | None]
    ) -> list[GroupInfo]:
        """Record the decisions of `decide` on these groups. Return the groups on which it has no decision."""
        undecided_groups: list[GroupInfo] = []
        for group in groups:
            with Guard(self, group):
                if (decision := decide(group)) is None:
                    undecided_groups.append(group)
                else:
                    self.record(decision)
        return undecided_groups

    def is_due(self, instant: float) -> bool:
        """Return whether a time has come.

        Otherwise, request a cycle at that time for the group under evaluation.
        """
        if self.snapshot.now >= instant:
            return True
        self.request_cycle_at(instant)
        return False

    def request_cycle_at(self, instant: float) -> None:
        """Request a cycle at this instant, for the group under evaluation if there is one."""
        self.instants[self.current_group] = min(instant, self.instants.get(self.current_group, instant))

    def is_broken(self, group: GroupInfo) -> bool:
        """Return whether the evaluation of a group has raised an error in this cycle."""
        return group.key in self.decisions and bool(self.decisions[group.key].fault)

    @cached_property
    def reclaims(self) -> Mapping[GroupKey, Reclaim]:
        """Return the reclaims that earlier cycles began, keyed by the group that gets the capacity.

        If the recorded start of a group is malformed, only the evaluation of that group must fail. Therefore,
        this property leaves the group out.
        """
        reclaims = ((key, getattr(group.start, "reclaim", None)) for key, group in self.groups.items())
        return {key: reclaim for key, reclaim in reclaims if reclaim is not None}

    @cached_property
    def group_by_victim(self) -> Mapping[Uid, GroupKey]:
        """Return the pods whose capacity is being reclaimed, with the group that gets the capacity."""
        return {victim.uid: key for key, reclaim in self.reclaims.items() for victim in reclaim.victims}

    @property
    def evicts_groups(self) -> bool:
        """Return whether a reclaim, a restart or a drained queue evicts running groups."""
        return bool(self.has_begun_reclaim or self.reclaims or self.draining_groups)

    @cached_property
    def draining_groups(self) -> Mapping[GroupKey, GroupInfo]:
        """Return the groups that are evicted because their queue or LocalQueue drains."""
        drained_queues = self.budget.rules.drained_queues
        return {
            key: group
            for key, group in self.groups.items()
            if group.queue in drained_queues or (group.local_queue is not None and group.is_drained)
        }

    @cached_property
    def in_flight_count(self) -> int:
        """Return the number of member pods that are planned, or assumed on a node."""
        return sum(len(group.planned_nodes) + len(group.assumed_pods) for group in self.groups.values())

    @cached_property
    def largest_allocatable(self) -> Mapping[str, int]:
        """Return for each resource the largest allocatable amount of a single node; empty without nodes."""
        snapshot = self.snapshot
        largest_amounts = (int(column.max()) for column in snapshot.allocatable.T if len(column))
        return dict(zip(snapshot.dimensions, largest_amounts, strict=False))

    @cached_property
    def empty_planner(self) -> Planner:
        """Return the capacity that the nodes would have without any pods."""
        return Planner.empty(self.snapshot, self.budget.planner.affinity)

    @cached_property
    def _empty_unrefused_planner(self) -> Planner:
        """Return the capacity of empty nodes, except nodes that the scheduler refuses."""
        return Planner.empty(self.snapshot, self.budget.planner.affinity, keeps_refusals=True)

    def fits_empty_cluster(self, need: Missing, keeps_refusals: bool = False) -> bool:
        """Return whether all members would fit if no pod ran.

        The result is cached while the nodes stay the same. With `keeps_refusals`, nodes that the scheduler
        refuses still count as refused, and the result is cached for this cycle only.
        """
        is_refused = keeps_refusals and bool(self.snapshot.refused_rows)
        planner = self._empty_unrefused_planner if is_refused else self.empty_planner
        if planner.affinity.is_any_interdependent(need):
            return planner.could_place(need)
        cached_results = self._fits_without_refusals if is_refused else self.snapshot.nodes.fits_when_empty()
        need_key = frozenset(
            ((kind[0].number, kind[1]) if isinstance(kind, tuple) else kind.number, count)
            for kind, count in need.signature
        )
        if need_key not in cached_results:
            cached_results[need_key] = planner.could_place(need)
        return cached_results[need_key]


class Guard:
    """Guard around the evaluation of one group: `with Guard(cycle, group):`.

    If the evaluation raises an error, the group waits and other groups are not affected. The guard
    undoes the allocations for the group. It also frees the capacity of `held_nodes`: nodes that were
    planned for the group and allocated before the block.

    If the evaluation exceeds its effort, the group backs off as after a failed start, with the reason
    TooComplex. Its next evaluation may use more effort. Effort counts work, not time, so that each machine
    decides the same.
    """

    __slots__ = (
        "_allowed_looks",
        "_checkpoint",
        "_cycle",
        "_group",
        "_held_nodes",
        "_outer_effort",
        "_outer_group",
        "_outer_read",
    )

    def __init__(self, cycle: Cycle, group: GroupInfo, held_nodes: Mapping[Uid, str] = _NO_NODES) -> None:
        self._cycle, self._group, self._held_nodes = cycle, group, held_nodes

    def __enter__(self) -> None:
        cycle, key = self._cycle, self._group.key
        self._checkpoint, self._outer_group = cycle.journal.checkpoint(), cycle.current_group
        cycle.current_group, self._outer_read = key, cycle.reads.current
        cycle.reads.begin_group(key)
        is_over_budget = getattr(self._group.start, "failure", "") == OVER_BUDGET  # may raise if malformed
        self._allowed_looks = cycle.efforts.remaining_effort(key, is_over_budget)
        self._outer_effort = cycle.effort.allow(self._allowed_looks)

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> bool:
        cycle, group, journal = self._cycle, self._group, self._cycle.journal
        if spent_looks := self._allowed_looks - cycle.effort.allow(self._outer_effort):
            cycle.efforts.spend(group.key, spent_looks)
            cycle.costly_groups.add(group.key)
        is_over_budget = isinstance(fault, OverBudget)
        if is_over_budget:
            cycle.request_cycle_at(next_try_at(cycle, group))
        cycle.current_group, cycle.reads.current = self._outer_group, self._outer_read
        if not isinstance(fault, Exception):  # an error of one group does not stop other groups
            return False
        journal.roll_back(self._checkpoint)
        cycle.record(over_budget_decision(cycle, group) if is_over_budget else error_decision(group, fault))
        checkpoint = journal.checkpoint()
        try:
            cycle.budget.release(group, self._held_nodes)
        except Exception:  # the planned allocation of the group cannot be counted, so it is left as it is
            journal.roll_back(checkpoint)
        return True


def next_try_at(cycle: Cycle, group: GroupInfo) -> float:
    """Return when a group over budget is evaluated again. The times of several groups are spread."""
    pause = max(_RETRY_SECONDS, cycle.limits.retry_after(group.start.failures))
    return cycle.snapshot.now + pause + crc32(group.key.encode()) % _SPREAD_SECONDS


def over_budget_decision(cycle: Cycle, group: GroupInfo) -> GroupDecision:
    """Return the decision on a group whose evaluation exceeded its effort.

    The group is tried again after a pause.
    """
    decision = GroupDecision(group.key, group.queue, Verdict.WAITING, Reason.TOO_COMPLEX, OVER_BUDGET)
    return replace(decision, failed=OVER_BUDGET, retry_at=next_try_at(cycle, group))


def error_decision(group: GroupInfo, fault: Exception) -> GroupDecision:
    """Return the decision on a group whose evaluation raised an unexpected error."""
    name, last_frame = type(fault).__name__, extract_tb(fault.__traceback__)[-1:]
    place = "".join(f" at {PurePath(frame.filename).name}:{frame.lineno}" for frame in last_frame)
    detail = f"evaluation failed: {name}"
    return GroupDecision(
        group.key, group.queue, Verdict.WAITING, Reason.INVALID_SPEC, detail, fault=f"{name}: {fault}{place}"
    )
