"""One round of decisions: the snapshot, the budget that is used up, and what has been decided so far."""

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
from extender.domain.placement.affinity import TooDear
from extender.domain.placement.planner import Planner
from extender.domain.queues.records import LosingTo, Reclaimed
from extender.domain.scheduling.budget import Budget
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.phases import outcome_of
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Missing, running_since

_NOTHING: Mapping[Uid, str] = {}
_NOBODY: Mapping[GroupKey, GroupDecision] = {}
NOBODY = GroupKey("")
# What judging may cost in one round, in looks at a node for a term: about 4 million a second.
_MOST, _MOST_OF_A_NAMESPACE, _MOST_ALONE = 5e5, 1e6, 1e6
_MOST_IN_COMMON, _LEAST = 1e6, 2e4
_SELDOM, _APART = 60.0, 32  # seconds between tries of a group that is too dear, and how far tries are spread
TOO_DEAR = (
    "comparing its members with the pods on all nodes takes too long; it is tried alone, now and then, "
    "with more time"
)


class Efforts:
    """Efforts: what evaluations may cost the groups of each namespace in a cycle.

    Each has an amount of its own, so that none waits for what others spend, and what is left of a common
    one. `namespaces`: how many have terms; beyond `_MOST_IN_COMMON / _LEAST`, each makes a cycle longer.
    """

    def __init__(self, namespaces: int) -> None:
        self.spent = defaultdict[str, float](float)  # by namespace, in looks at a node for a term
        self._own = max(_MOST_IN_COMMON / max(namespaces, 1), _LEAST)
        self._in_common = _MOST_IN_COMMON

    def left(self, group: GroupKey, is_dear: bool) -> float:
        """For one group. `is_dear`: it was too dear before."""
        spent = self.spent.get(_namespace_of(group), 0.0) if self.spent else 0.0
        left = max(self._own - spent, 0.0) + self._in_common
        return min(left, _MOST_ALONE - spent if is_dear else min(_MOST, _MOST_OF_A_NAMESPACE - spent))

    def spend(self, group: GroupKey, looks: float) -> None:
        namespace = _namespace_of(group)
        before = self.spent[namespace]
        self.spent[namespace] += looks
        self._in_common -= max(before + looks - self._own, 0.0) - max(before - self._own, 0.0)


def _namespace_of(group: GroupKey) -> str:
    return group.partition("/")[0]


class Round:
    def __init__(
        self,
        snapshot: Snapshot,
        groups: Mapping[GroupKey, GroupView] | None = None,
        asleep: Mapping[GroupKey, GroupDecision] = _NOBODY,
        before: Budget | None = None,
    ) -> None:
        """Begin a cycle.

        Args:
            groups: Those that take part, if not all; the decisions on the others are in `asleep`.
            before: Cycle to reuse work from.
        """
        self.snapshot = snapshot
        self.groups = snapshot.groups if groups is None else groups
        self.limits = snapshot.limits
        self.budget = Budget(snapshot, before)
        self.journal = self.budget.journal
        self.effort = self.budget.planner.affinity.effort
        self.efforts = Efforts(snapshot.occupancy.namespaces)
        self.costly: set[GroupKey] = set()  # groups whose judging cost any of that
        self.reads = self.journal.reads
        self.decided: dict[GroupKey, GroupDecision] = {}
        self._asleep = asleep
        self._alone_but_for_refusals: dict[frozenset[tuple[int, int]], bool] = {}
        self.evictions: dict[Uid, Eviction] = {}
        self.has_begun_reclaim = False  # whether room is being taken back for one more group
        self.reclaimed: dict[str, dict[LosingTo, Reclaimed]] = {}  # by queue, once it was asked for
        # By group, or `NOBODY`, when time alone could next change what is decided.
        self.moments: dict[GroupKey, float] = {}
        self.judged = NOBODY  # the group that is judged now
        if snapshot.expires_at is not None:
            self.look_again_at(snapshot.expires_at)

    @property
    def effort_spent(self) -> float:
        """Return the cost of evaluating its groups, in looks at a node for a term."""
        return sum(self.efforts.spent.values())

    def decision_on(self, group: GroupKey) -> GroupDecision | None:
        """Return the current decision; that on a group which does not take part is known from before."""
        found = self.decided.get(group)
        return found if found is not None or group in self.groups else self._asleep.get(group)

    def settle(self, decision: GroupDecision) -> None:
        self.decided[decision.key] = decision

    def reclaimed_by(self, queue: str) -> dict[LosingTo, Reclaimed]:
        """Return when a queue last reclaimed within an hour.

        It is remembered, or an earlier process wrote it.

        The reclaims of this cycle are added there, too.
        """
        if queue not in self.reclaimed:
            found = dict(self.snapshot.queues[queue].record.reclaimed)
            for losing, last in self.snapshot.reclaimed.get(queue, {}).items():
                found[losing] = max(last, found.get(losing, last), key=attrgetter("at"))
            until = self.snapshot.now - self.limits.reclaim_memory
            recent = ((it, last) for it, last in found.items() if self.snapshot.moment(last.at) > until)
            unused = ((it, last, filterfalse(self._is_used, last.unused)) for it, last in recent)
            self.reclaimed[queue] = {it: replace(last, unused=tuple(left)) for it, last, left in unused}
        return self.reclaimed[queue]

    def _is_used(self, taken: QueueTaken) -> bool:
        """Return whether a group has used its reclaimed capacity.

        It has if it has run for as long as was agreed, or has completed.
        """
        group = self.taker(taken)
        if group is None or outcome_of(group) is Outcome.COMPLETED:
            return group is not None
        since = running_since(group, self.snapshot.moment) if group.stood_whole and group.stands else None
        if since is None:
            return False
        used_at = max(since, self.snapshot.moment(taken.at)) + taken.seconds
        if used_at > self.snapshot.now:
            self.moments[NOBODY] = min(used_at, self.moments.get(NOBODY, used_at))
        return used_at <= self.snapshot.now

    def taker(self, taken: QueueTaken) -> GroupView | None:
        """Return the group, unless it has gone: another one may have its name by now."""
        group = self.snapshot.groups.get(GroupKey(taken.group))
        return group if group is not None and group.created <= taken.at else None

    def unsettled(
        self, groups: Iterable[GroupView], decide: Callable[[GroupView], GroupDecision | None]
    ) -> list[GroupView]:
        """Return the groups without a decision; the others are settled."""
        left: list[GroupView] = []
        for group in groups:
            with Guard(self, group):
                if (decision := decide(group)) is None:
                    left.append(group)
                else:
                    self.settle(decision)
        return left

    def is_due(self, moment: float) -> bool:
        """Return whether a time has come; if not, the group is looked at again when it does."""
        if self.snapshot.now >= moment:
            return True
        self.look_again_at(moment)
        return False

    def look_again_at(self, moment: float) -> None:
        """Time alone could change something then: of the group that is judged now, if one is."""
        self.moments[self.judged] = min(moment, self.moments.get(self.judged, moment))

    def is_broken(self, group: GroupView) -> bool:
        """Return whether its evaluation raised in this cycle."""
        return group.key in self.decided and bool(self.decided[group.key].fault)

    @cached_property
    def reclaims(self) -> Mapping[GroupKey, Reclaim]:
        """Room that is being taken back since an earlier round, by the group that it is for."""
        found = ((key, getattr(group.start, "reclaim", None)) for key, group in self.groups.items())
        return {key: reclaim for key, reclaim in found if reclaim is not None}

    @cached_property
    def promised(self) -> Mapping[Uid, GroupKey]:
        """The pods that give this room back, and for whom."""
        return {victim.uid: key for key, reclaim in self.reclaims.items() for victim in reclaim.victims}

    @property
    def takes_back(self) -> bool:
        """Return whether whole groups have to go: any running group may be among them."""
        return bool(self.has_begun_reclaim or self.reclaims or self.draining)

    @cached_property
    def draining(self) -> Mapping[GroupKey, GroupView]:
        """The groups whose queue or LocalQueue has them evicted."""
        drained = self.budget.rules.drained
        return {
            key: group
            for key, group in self.groups.items()
            if group.queue in drained or (group.local_queue is not None and group.is_drained)
        }

    @cached_property
    def in_flight(self) -> int:
        """Pods that the scheduler has, or soon will have, on its hands for us."""
        return sum(len(group.planned) + len(group.pinned) for group in self.groups.values())

    @cached_property
    def largest_offers(self) -> Mapping[str, int]:
        """The most that any one node offers, by resource; empty without nodes."""
        snapshot = self.snapshot
        most = (int(column.max()) for column in snapshot.allocatable.T if len(column))
        return dict(zip(snapshot.dimensions, most, strict=False))

    @cached_property
    def empty(self) -> Planner:
        """The room if nothing ran at all."""
        return Planner.empty(self.snapshot, self.budget.planner.affinity)

    @cached_property
    def _empty_but_for_refusals(self) -> Planner:
        return Planner.empty(self.snapshot, self.budget.planner.affinity, keeps_refusals=True)

    def could_stand_alone(self, wanted: Missing, keeps_refusals: bool = False) -> bool:
        """Return whether members would all fit if nothing ran, cached while the nodes are the same.

        With `keeps_refusals`, the nodes that the scheduler refuses are left out, in this cycle.
        """
        is_refused = keeps_refusals and bool(self.snapshot.refused)
        planner = self._empty_but_for_refusals if is_refused else self.empty
        if planner.affinity.any_particular(wanted.members, wanted.shapes):
            return planner.could_place(wanted.members, wanted.shapes)
        known = self._alone_but_for_refusals if is_refused else self.snapshot.nodes.standing_alone()
        numbers = frozenset((shape.number, count) for shape, count in wanted.shapes.items())
        if numbers not in known:
            known[numbers] = planner.could_place(wanted.members, wanted.shapes)
        return known[numbers]


class Guard:
    """Guard: `with Guard(round_, group):` around the evaluation of one group.

    If that raises, the group waits, what it took meanwhile and what was `held` for it before is given
    back, and the others do not notice.

    Where the evaluation exceeds its budget of work (not of time, since the same must be decided
    everywhere), the group backs off as after a failed start, with the reason TooComplex, and has more
    when its turn comes.
    """

    __slots__ = ("_allowed", "_group", "_held", "_left", "_mark", "_outer", "_read", "_round")

    def __init__(self, round_: Round, group: GroupView, held: Mapping[Uid, str] = _NOTHING) -> None:
        self._round, self._group, self._held = round_, group, held

    def __enter__(self) -> None:
        round_, key = self._round, self._group.key
        self._mark, self._outer = round_.journal.mark(), round_.judged
        round_.judged, self._read = key, round_.reads.now
        round_.reads.begin(key)
        is_dear = getattr(self._group.start, "failure", "") == TOO_DEAR  # whatever is wrong with the group
        self._allowed = round_.efforts.left(key, is_dear)
        self._left = round_.effort.allow(self._allowed)

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> bool:
        if spent := self._allowed - self._round.effort.allow(self._left):
            self._round.efforts.spend(self._group.key, spent)
            self._round.costly.add(self._group.key)
        if isinstance(fault, TooDear):
            self._round.look_again_at(seldom(self._round, self._group))
        self._round.judged, self._round.reads.now = self._outer, self._read
        if not isinstance(fault, Exception):  # whatever it is: one group never stops the rest
            return False
        round_, group, journal = self._round, self._group, self._round.journal
        journal.roll_back(self._mark)
        is_dear = isinstance(fault, TooDear)
        round_.settle(too_dear(round_, group) if is_dear else broken(group, fault))
        mark = journal.mark()
        try:
            round_.budget.release(group, self._held)
        except Exception:  # the round is poorer by what cannot be counted
            journal.roll_back(mark)
        return True


def seldom(round_: Round, group: GroupView) -> float:
    """Return when a group over budget is tried again: not together with others."""
    pause = max(_SELDOM, round_.limits.retry_after(group.start.failures))
    return round_.snapshot.now + pause + crc32(group.key.encode()) % _APART


def too_dear(round_: Round, group: GroupView) -> GroupDecision:
    retry_at = seldom(round_, group)
    waits, why = Verdict.WAITING, Reason.TOO_COMPLEX
    return GroupDecision(group.key, group.queue, waits, why, TOO_DEAR, failed=TOO_DEAR, retry_at=retry_at)


def broken(group: GroupView, fault: Exception) -> GroupDecision:
    """Return the decision on a group whose evaluation raised an unforeseen error."""
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
