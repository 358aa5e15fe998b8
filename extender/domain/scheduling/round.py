"""One round of decisions: the snapshot, the budget that is used up, and what has been decided so far."""

from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from functools import cached_property
from pathlib import PurePath
from traceback import extract_tb
from zlib import crc32

import msgspec
from msgspec.structs import replace

from extender.api.keys import STOP_DRAIN
from extender.domain.model.evictions import Eviction, Reclaim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.shapes import Shape
from extender.domain.placement.affinity import TooDear
from extender.domain.placement.capacity import KeptTotals
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.shares import KeptShares
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Missing, Signature

_NOTHING: Mapping[Uid, str] = {}
NOBODY = GroupKey("")
# What judging may cost in one round, in looks at a node for a term: about 15 million a second.
_MOST, _MOST_OF_A_NAMESPACE, _MOST_ALONE = 2e6, 4e6, 10e6
_SELDOM, _APART = 60.0, 32  # seconds between tries of a group that is too dear, and how far tries are spread
TOO_DEAR = (
    "comparing its members with the pods on all nodes takes too long; it is tried alone, now and then, "
    "with more time"
)


class Round:
    def __init__(
        self, snapshot: Snapshot, totals: KeptTotals | None = None, shares: KeptShares | None = None
    ) -> None:
        """`totals` and `shares`: of an earlier round, to save work."""
        self.snapshot = snapshot
        self.limits = snapshot.limits
        self.budget = Budget(snapshot, totals, shares)
        self.journal = self.budget.journal
        self.effort = self.budget.planner.affinity.effort
        self.effort_left: defaultdict[str, float] = defaultdict(lambda: _MOST_OF_A_NAMESPACE)
        """By namespace what judging its groups may still cost in this round."""
        self.shortages = Shortages()
        self.decided: dict[GroupKey, GroupDecision] = {}
        self.evictions: dict[Uid, Eviction] = {}
        self.has_begun_reclaim = False
        """Whether room is being taken back for one more group."""
        self.moments: dict[GroupKey, float] = {}
        """By group the next moment at which time alone could change what is decided on it; by `NOBODY` that
        of all else."""
        self.judged = NOBODY
        """The group that is judged now."""
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
        self.moments[self.judged] = min(moment, self.moments.get(self.judged, moment))

    def is_broken(self, group: GroupView) -> bool:
        """Whether its judging raised in this round."""
        return group.key in self.decided and bool(self.decided[group.key].fault)

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
    def largest_offers(self) -> Mapping[str, int]:
        """The most that any one node offers, by resource; empty without nodes."""
        snapshot = self.snapshot
        most = snapshot.allocatable.max(axis=0).tolist() if len(snapshot.allocatable) else ()
        return dict(zip(snapshot.dimensions, most, strict=False))

    @cached_property
    def empty(self) -> Planner:
        """The room if nothing ran at all."""
        return Planner.empty(self.snapshot, self.effort)

    def could_stand_alone(self, wanted: Missing) -> bool:
        """Whether members would all find a node if nothing ran. Kept while the nodes are the same."""
        if self.empty.affinity.any_particular(wanted.members, wanted.shapes):
            return self.empty.could_place(wanted.members, wanted.shapes)
        known = self.snapshot.nodes.standing_alone()
        numbers = frozenset((shape.number, count) for shape, count in wanted.shapes.items())
        if numbers not in known:
            known[numbers] = self.empty.could_place(wanted.members, wanted.shapes)
        return known[numbers]

    @cached_property
    def empty_but_for_refusals(self) -> Planner:
        """The same, without the nodes that the scheduler refuses."""
        return Planner.empty_but_for_refusals(self.snapshot)


class Guard:
    """`with Guard(round_, group):` around the judging of one group. If that raises, the group waits, what it
    took meanwhile and what was `held` for it before is given back, and the others do not notice.

    Judging has a budget of work, not of time, since the same must be decided everywhere: where that is
    exceeded, the group backs off as after a failed start, with the reason TooComplex, and has more when its
    turn comes. The groups of a namespace share what may be spent in a round."""

    __slots__ = ("_allowed", "_group", "_held", "_left", "_mark", "_outer", "_round")

    def __init__(self, round_: Round, group: GroupView, held: Mapping[Uid, str] = _NOTHING) -> None:
        self._round, self._group, self._held = round_, group, held

    def __enter__(self) -> None:
        round_ = self._round
        self._mark, self._outer = round_.journal.mark(), round_.judged
        round_.judged = self._group.key
        shared = round_.effort_left[self._namespace]
        is_dear = getattr(self._group.start, "failure", "") == TOO_DEAR  # whatever is wrong with the group
        self._allowed = _MOST_ALONE if is_dear else min(_MOST, shared)
        self._left = round_.effort.allow(self._allowed)

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> bool:
        self._round.effort_left[self._namespace] -= self._allowed - self._round.effort.allow(self._left)
        if isinstance(fault, TooDear):
            self._round.look_again_at(seldom(self._round, self._group))
        self._round.judged = self._outer
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

    @property
    def _namespace(self) -> str:
        return self._group.key.partition("/")[0]


def seldom(round_: Round, group: GroupView) -> float:
    """When a group is tried again that is too dear: not together with others."""
    pause = max(_SELDOM, round_.limits.retry_after(group.start.failures))
    return round_.snapshot.now + pause + crc32(group.key.encode()) % _APART


def too_dear(round_: Round, group: GroupView) -> GroupDecision:
    retry_at = seldom(round_, group)
    waits, why = Verdict.WAITING, Reason.TOO_COMPLEX
    return GroupDecision(group.key, group.queue, waits, why, TOO_DEAR, failed=TOO_DEAR, retry_at=retry_at)


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


class Shortage(msgspec.Struct, frozen=True):
    """What gangs that miss the same lack."""

    shapes: Counter[Shape]
    """What they miss."""
    why: tuple[Reason, str]
    """The reason, and the numbers behind it."""
    groups: list[GroupKey]
    """Those that wait with just these words."""
    is_quoted: bool = False
    """Whether others wait, too, whose words contain these: they are those of one flavor of several."""

    def only(self, groups: Container[GroupKey]) -> "Shortage":
        """The same for no others than `groups`."""
        return replace(self, groups=[key for key in self.groups if key in groups])

    def and_of(self, other: "Shortage | None") -> "Shortage":
        """The same for the groups of `other`, too."""
        if other is None:
            return self
        quoted = self.is_quoted or other.is_quoted
        return replace(self, groups=[*other.groups, *self.groups], is_quoted=quoted)


class Shortages:
    """Gangs that wait because all nodes have room for fewer members of some shape than they miss.

    On a full cluster that is nearly all that waits. What is decided on them stands until there is more room
    for these shapes, so that it can be carried over when room comes or goes elsewhere."""

    def __init__(self) -> None:
        self.known: dict[Signature, Shortage] = {}
        self.are_all = True
        """Whether nothing else depended on how much room there is."""
        self.keeps_first_room = False
        """Whether there was no room to keep for groups that have a claim on it: the first that comes would be
        kept, not lent."""
        self.minds_others = False
        """Whether a group that starves may take the room of pods that are not ours."""
        self.minds_disruptions = False
        """Whether a group that starves may take the room of pods that disruption budgets cover."""
        self.seek_in_turn = False
        """Whether more groups look for victims than can in one round: after any change all of them have their
        turn once more."""
        self._takings: int | None = None

    def note(
        self,
        signature: Signature | None,
        shapes: Counter[Shape],
        why: tuple[Reason, str],
        takings: int,
        is_quoted: bool = False,
    ) -> None:
        """Gangs of a signature lack room, after room was taken so often in this round."""
        if signature is None or self._takings not in (None, takings):
            self.are_all = False
            return
        self._takings = takings
        self.known.setdefault(signature, Shortage(shapes, why, [], is_quoted))

    def add(self, signature: Signature, group: GroupKey) -> None:
        """A group waits for room."""
        shortage = self.known.get(signature)
        if shortage is None:
            self.are_all = False
        else:
            shortage.groups.append(group)

    def hold_after(self, takings: int) -> bool:
        """Whether they still stood when the round ended, when room had been taken so often."""
        return self.are_all and self._takings in (None, takings)

    def together_with(self, now: "Shortages", others: Container[GroupKey]) -> "Shortages":
        """Those of a round in which `others` of these groups were not judged, together with theirs."""
        both = {signature: shortage.only(others) for signature, shortage in self.known.items()}
        for signature, shortage in now.known.items():
            both[signature] = shortage.and_of(both.get(signature))
        later = now.with_numbers({key: of for key, of in both.items() if of.groups or of.is_quoted})
        later.keeps_first_room |= self.keeps_first_room
        return later

    def with_numbers(self, known: dict[Signature, Shortage]) -> "Shortages":
        """The same gangs with other numbers."""
        later = Shortages()
        later.known, later.keeps_first_room, later._takings = known, self.keeps_first_room, self._takings
        later.minds_others, later.minds_disruptions = self.minds_others, self.minds_disruptions
        later.seek_in_turn = self.seek_in_turn
        return later
