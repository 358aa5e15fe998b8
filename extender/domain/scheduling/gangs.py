"""Admitting gangs that wait: limits, ceiling, window, share and room, and the one rule that keeps one from
starting.

A job that says with how few pods it may run is admitted in part where not all find room.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.backfill import KeptRoom
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.budget import Budget, Scope
from extender.domain.scheduling.flavors import Alike, by_role, choose, flavored, roles_of
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.no_room import explain
from extender.domain.scheduling.obstacles import exceeds_queue, waits
from extender.domain.scheduling.order import Heads, Strategies, TurnOrder, in_lines
from extender.domain.scheduling.reservation import Reserving
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.quorum import Missing, Signature, missing, missing_of

# ---- Judging one gang: limits, ceiling, window, share and room, and the one rule that keeps it from
# starting.
#
# Groups of one queue that want the same are judged once, until one of them takes something.

Equals = tuple[Signature | Alike, int, tuple[object, ...]]
"""What members miss, how many reservations they may pass, and which limits apply to them."""


class Judge:
    """All its answers are decisions on one group; None where it is above its share and lending comes
    later."""

    def __init__(self, round_: Round, lending: Lending, reserving: Reserving) -> None:
        self._round = round_
        self._budget = round_.budget
        self._lending = lending
        self._reserving = reserving
        self._unplaceable: dict[Signature | None, tuple[Reason, str]] = {}  # in this pass
        self._equals: dict[Equals, GroupDecision | None] = {}  # what was said of such groups in this turn

    def begin_pass(self) -> None:
        """The groups are gone through again, with other room."""
        self._unplaceable.clear()

    def begin_turn(self) -> None:
        """Another queue has its turn, or one of its groups took something."""
        self._equals.clear()

    def judge(self, group: GroupView) -> GroupDecision | None:
        own, passed = self._reserving.of(group), self._reserving.passed_by(group)
        signature = None if group.once(may_choose) else _signature(self._budget.planner, missing(group))
        if own or signature is None:
            return self._judge_as_reserved(group, own, passed)
        alike = signature if not self._budget.flavors.of(group.queue) else roles_of(group)
        equals = alike, len(passed), self._budget.running.whose(group)
        if equals in self._equals:
            known = self._equals[equals]
            return None if known is None else replace(known, key=group.key)
        decision = self._judge_as_reserved(group, own, passed)
        if decision is None or decision.verdict is not Verdict.STARTING:  # what starts has its own nodes
            self._equals[equals] = decision
        return decision

    # ---- reservations, of the group itself and of others

    def _judge_as_reserved(
        self, group: GroupView, own: list[KeptRoom], passed: list[KeptRoom]
    ) -> GroupDecision | None:
        decision = self._judge_with(group, own) if own else self._judge(group)
        if decision is None or decision.reason not in LACKS_ROOM:
            return decision
        if passed and not own:
            decision = self._judge_with(group, passed)
        if decision is None or decision.reason not in LACKS_ROOM or own:
            return decision
        holding_up = self._reserving.holding_up(self._wanted(group))
        return waits(group, Reason.RESERVED, holding_up) if holding_up else decision

    def _judge_with(self, group: GroupView, given_back: list[KeptRoom]) -> GroupDecision | None:
        """With room that is kept from most others."""
        known, self._unplaceable = self._unplaceable, {}
        with self._reserving.given_back(given_back):
            decision = self._judge(group)
        self._unplaceable = known
        if decision is not None and decision.verdict is Verdict.STARTING:
            self._reserving.end(group)
        return decision

    # ---- limits, ceiling, window, share, room

    def _judge(self, group: GroupView) -> GroupDecision | None:
        wanted = self._wanted(group)
        limit = self._limit(group, wanted) or self._ceiling(group, wanted)
        obstacle = limit or self._window(group, wanted)
        if obstacle is not None:
            return obstacle
        if not self._lending.has_begun and self._budget.shares.is_above_share(group.queue, wanted.requests):
            return None
        if self._budget.flavors.of(group.queue):
            return self._start_on_flavors(group, wanted)
        return self._start(group, wanted)

    def _wanted(self, group: GroupView) -> Missing:
        """Whom to start. A group with more members than it needs starts without those that find no node."""
        wanted, planner = missing(group), self._budget.planner
        if not group.once(may_choose) or planner.could_place(wanted.members, wanted.shapes):
            return wanted
        self._round.shortages.are_all = False
        return missing_of(group, planner.fitting(group.waiting))

    def _limit(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        excess = self._budget.running.excess(group, len(wanted.members))
        if excess is None:
            return None
        if excess.always:
            return exceeds_queue(group, f"too large for a limit: {excess.text}")
        return waits(group, Reason.QUEUE_CEILING, excess.text)

    def _ceiling(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        shares, asked = self._budget.shares, wanted.requests
        above = shares.above_ceiling(group.queue, asked)
        if not above:
            return None
        if shares.is_never_below_ceiling(group.queue, asked):
            return exceeds_queue(group, f"too large for the ceiling of queue {group.queue}: {above}")
        return waits(group, Reason.QUEUE_CEILING, f"queue {group.queue}: {above}")

    def _window(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        size, window = len(wanted.members), self._budget.window
        if size > window.size:
            return waits(group, Reason.TOO_LARGE_FOR_WINDOW, f"{size} members, window {window.size}")
        if window.has_place_for(size):
            return None
        self._equals.clear()
        return waits(group, Reason.WINDOW_FULL, f"{size} members to start, window {window.size}")

    def _start(self, group: GroupView, wanted: Missing) -> GroupDecision:
        planner = self._budget.planner
        signature = _signature(planner, wanted)
        if signature in self._unplaceable:
            return waits(group, *self._unplaceable[signature])
        is_short = planner.capacity.is_short_for(wanted.shapes)
        plan = None if is_short else self._budget.place(group, wanted.members)
        if plan is not None:
            return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        why = self._why_not(group, wanted)
        self._note_shortage(signature, wanted, why, is_short)
        return waits(group, *why)

    def _start_on_flavors(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        flavors, is_lent = self._budget.flavors, self._lending.has_begun
        choice = choose(flavors, group, wanted.members, {}, is_lent, partial(self._lacks_room, group))
        if not choice.tried:
            return self._start(group, choice.wanted)
        if choice.is_above_share:
            return None
        if choice.depends_on_room and len(by_role(group, wanted.members)) > 1:  # roles that did find room
            self._round.shortages.are_all = False
        decision = waits(group, *choice.why())
        return replace(decision, flavors=choice.flavors, exceeds_queue=choice.exceeds_queue)

    def _lacks_room(self, group: GroupView, wanted: Missing) -> tuple[Reason, str] | None:
        """Why members find no room; None if they do."""
        planner = self._budget.planner
        signature = _signature(planner, wanted)
        if signature in self._unplaceable:
            return self._unplaceable[signature]
        is_short = planner.capacity.is_short_for(wanted.shapes)
        if not is_short and planner.could_place(wanted.members, wanted.shapes):
            return None
        why = self._why_not(group, wanted)
        self._note_shortage(signature, wanted, why, is_short, is_quoted=True)
        return why

    def _note_shortage(
        self,
        signature: Signature | None,
        wanted: Missing,
        why: tuple[Reason, str],
        is_short: bool,
        is_quoted: bool = False,
    ) -> None:
        """Members find no room, and so do none of the same signature until the next pass."""
        capacity, takings = self._budget.planner.capacity, self._budget.takings
        is_counted = is_short and not any(capacity.refuses(shape) for shape in wanted.shapes)
        counted = signature if is_counted else None
        self._round.shortages.note(counted, wanted.shapes, why, takings, is_quoted)
        if signature is not None:
            self._unplaceable[signature] = why

    def _why_not(self, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
        unclaimed = self._lending.unclaimed
        if unclaimed is not None and unclaimed.could_place(wanted.members, wanted.shapes):
            return Reason.QUEUE_SHARE, self._lending.text()
        return explain(self._round, unclaimed or self._budget.planner, group, wanted)


def may_choose(group: GroupView) -> bool:
    """Whether a group has more members than it needs, and it matters which of them start."""
    spare = len(missing(group).members) < len(group.waiting)
    return spare and len({pod.shape for pod in group.waiting}) > 1


def _signature(planner: Planner, wanted: Missing) -> Signature | None:
    """Equal for groups that fit or not together; None where a member's labels matter to that."""
    return None if planner.affinity.any_particular(wanted.members, wanted.shapes) else wanted.signature


# ---- Shrinking: how many members of each role start where not all find room, for jobs that may run
# with fewer.
#
# Rule: Kueue's partial admission. All roles give up the same part of what they can spare, rounded down,
# and by binary search no more of it than is needed.

Members = Mapping[str, int]
"""How many members there are of each role."""


def shrunk(wanted: Members, least: Members, fits: Callable[[Members], bool]) -> Members | None:
    """The most members that fit; None if not even `least` do, or if no role may give up any. A role that
    `least` does not name gives up none."""
    spare = {role: max(n - least.get(role, n), 0) for role, n in wanted.items()}
    total = sum(spare.values())

    def without(given_up: int) -> Members:
        return {role: n - spare[role] * given_up // total for role, n in wanted.items()}

    if not total:
        return None
    given_up = bisect_left(range(total + 1), True, key=lambda some: fits(without(some)))
    return without(given_up) if given_up <= total else None


# ---- Partial starts: a job that says with how few pods it may run starts with the most that find room,
# where not all do.
#
# Rule: Kueue's partial admission. The whole job is tried first, also with room that is lent; a smaller
# size is judged like a group that asks for no more.

Judging = Callable[[GroupView], GroupDecision | None]
_PODS = ""  # the one role of a job that may start with fewer


def with_members(group: GroupView, members: int) -> GroupView:
    """The group, as if it asked for so many."""
    return replace(group, min_member=members)


def start_with_most(budget: Budget, judge: Judging, group: GroupView) -> GroupDecision | None:
    """The start of a group that can start at its smallest. `judge` takes what it gives out of the budget.
    Where only the window has no places for more, it waits for these."""

    def can_start(members: Members) -> bool:
        smaller = with_members(group, members[_PODS])
        decision = judge(smaller)
        if decision is not None and decision.verdict is Verdict.STARTING:
            budget.release(smaller, decision.plan)
            return True
        return decision is not None and decision.reason is Reason.WINDOW_FULL

    most = (shrunk({_PODS: group.min_member}, {_PODS: group.least}, can_start) or {_PODS: group.least})[_PODS]
    decision = judge(with_members(group, most))
    starts = decision is not None and decision.verdict is Verdict.STARTING
    return replace(decision, reduced_to=most) if decision is not None and starts else decision


# ---- Admitting gangs that wait: by share of their queue, whole, or with the one reason that holds
# them.
#
# First all groups at or below their queue's deserved share. Then lending: what remains goes to groups
# above it, but not the room that a group of the first pass has a claim on.

_TEMPORARY = (Reason.BACKING_OFF, Reason.WINDOW_FULL)  # no reason to start smaller
_NEVER = (Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW)  # a group that can never start holds up no other


class Admission:
    """What is remembered while gangs are judged one after the other."""

    def __init__(self, round_: Round, lending: Lending, reserving: Reserving, strategies: Strategies) -> None:
        self._round = round_
        self._budget = round_.budget
        self._lending = lending
        self._reserving = reserving
        self._strategies = strategies
        self._heads = Heads()
        self.lines: Mapping[str, Sequence[GroupView]] = {}
        """By queue all groups that were to be judged, in their order."""
        self._judge = Judge(round_, lending, reserving)

    def admit(self, groups: Iterable[GroupView]) -> list[GroupView]:
        """Judge `groups` in their order; returns those above their share (none once room is lent)."""
        queues, lines = self._round.snapshot.queues, in_lines(groups, _itself, self._strategies.rank)
        self.lines = self.lines or {queue: tuple(line) for queue, line in lines.items()}
        self._judge.begin_pass()
        above_share: list[GroupView] = []
        for _, line in TurnOrder(self._budget.shares, queues, lines):
            above_share += self._until_one_takes(line)
        return above_share

    def _until_one_takes(self, line: deque[GroupView]) -> list[GroupView]:
        """Judge the first groups of a queue: it has its turn until one of them takes something. Returns those
        above their share; behind one that lets none pass, the rest waits with it."""
        above_share: list[GroupView] = []
        self._judge.begin_turn()
        takings = self._budget.takings
        while line and self._budget.takings == takings:
            group = line.popleft()
            decision = self._round.judge(self._decide, group)
            if decision is not None:
                self._round.settle(decision)
            elif not self._round.is_broken(group):
                above_share.append(group)
                if self._lets_none_pass(group):
                    above_share += line
                    line.clear()
        return above_share

    def _decide(self, _: Round, group: GroupView) -> GroupDecision | None:
        """The decision on one group; None where it is above its share and lending comes later."""
        if (known := self._round.decided.get(group.key)) is not None:  # room is being taken back for it
            return self._in_line(group, known)
        head = self._heads.before(self._budget.running.scopes_of(group))
        if head is not None:
            return waits(group, Reason.BEHIND_OTHERS, f"{head} goes first in queue {group.queue}")
        decision = self._back_off(group) or self._judge.judge(group)
        if group.least and decision is not None and decision.verdict is Verdict.WAITING:
            group, decision = self._shrink(group, decision)
        if decision is None or decision.verdict is not Verdict.WAITING:
            return decision
        return self._with_claims(group, self._in_line(group, decision))

    def _shrink(self, group: GroupView, whole: GroupDecision) -> tuple[GroupView, GroupDecision | None]:
        """The start with the most members that can start. Where none can, what holds the group as it is, or
        at its smallest if it can never start as it is."""
        if whole.reason in _TEMPORARY:
            return group, whole
        smallest = with_members(group, group.least)
        decision = self._judge.judge(smallest)
        if decision is not None and decision.verdict is Verdict.STARTING:
            self._budget.release(smallest, decision.plan)
            return group, start_with_most(self._budget, self._judge.judge, group)
        return (smallest, decision) if whole.reason in _NEVER else (group, whole)

    def _in_line(self, group: GroupView, decision: GroupDecision) -> GroupDecision:
        """Those behind a group that waits may have to wait with it."""
        waits_in_line = decision.verdict is Verdict.WAITING and decision.reason not in _NEVER
        if waits_in_line and self._lets_none_pass(group):
            self._heads.note(self._scope(group, decision), group.key)
        return decision

    def _with_claims(self, group: GroupView, decision: GroupDecision) -> GroupDecision:
        """Note what a group that waits lacks, and whether room is kept for it."""
        wanted, lacks_room = missing(group), decision.reason in LACKS_ROOM
        if lacks_room and self._budget.flavors.of(group.queue):
            wanted = flavored(self._budget.flavors, group, wanted, decision.flavors)
        elif lacks_room:
            self._round.shortages.add(wanted.signature, group.key)
        has_reservation, reason = self._reserving.has_one(group), decision.reason
        claims_room = not has_reservation and self._lending.has_claim(group, wanted, reason)
        decision = self._reserving.note(group, decision)
        return replace(decision, claims_room=True) if claims_room else decision

    # ---- what the strategy of its queue says of a group

    def _lets_none_pass(self, group: GroupView) -> bool:
        return self._strategies.of(group).lets_none_pass(group)

    def _scope(self, group: GroupView, decision: GroupDecision) -> Scope:
        """Whom a group that lets none pass holds up: all of its queue or, at the limit of a user or a
        namespace, only these."""
        if decision.reason is Reason.QUEUE_CEILING:
            excess = self._budget.running.excess(group, len(missing(group).members))
            if excess is not None:
                return excess.scope
        return Scope(group.queue)

    def _back_off(self, group: GroupView) -> GroupDecision | None:
        backs_off = self._strategies.of(group).backs_off(group)
        return back_off(self._round, group) if backs_off else None


def _itself(group: GroupView) -> GroupView:
    return group
