"""Admitting gangs that wait: by share of their queue, whole, or with the one reason that holds them.

First all groups at or below their queue's deserved share. Then lending: what remains goes to groups above it,
but not the room that a group of the first pass has a claim on.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from functools import partial

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.flavors.choice import choose, flavored
from extender.domain.flavors.roles import Alike, roles_of
from extender.domain.lifecycle.quorum import Missing, Signature, missing, missing_of
from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.heads import Heads
from extender.domain.scheduling.kept_room import KeptRoom
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import exceeds_queue, waits
from extender.domain.scheduling.order import TurnOrder, in_lines
from extender.domain.scheduling.reserving import Reserving
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.running_counts import Scope
from extender.domain.scheduling.strategies import Strategies
from extender.domain.scheduling.unschedulable import explain
from extender.domain.snapshot.group_view import GroupView

# A group that can never start holds up no other, and one behind another holds up nobody itself.
_NO_HEAD = (Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW, Reason.BEHIND_OTHERS)
Equals = tuple[Signature | Alike, int, Hashable]
"""What members miss, how many reservations they may pass, and the limits that apply to them."""


class Admission:
    """What is remembered while gangs are judged one after the other."""

    def __init__(self, round_: Round, lending: Lending, reserving: Reserving, strategies: Strategies) -> None:
        self._round = round_
        self._strategies = strategies
        self._budget = round_.budget
        self._lending = lending
        self._reserving = reserving
        self._heads = Heads()
        self._unplaceable: dict[Signature | None, tuple[Reason, str]] = {}
        self._equals: dict[Equals, GroupDecision | None] = {}  # what was said of such groups in this turn

    def admit(self, groups: Iterable[GroupView]) -> list[GroupView]:
        """Judge `groups` in their order; returns those above their share (none once room is lent)."""
        queues, lines = self._round.snapshot.queues, in_lines(groups, _itself, self._strategies.rank)
        self._unplaceable.clear()
        above_share: list[GroupView] = []
        for _, line in TurnOrder(self._budget.shares, queues, lines):
            above_share += self._until_one_takes(line)
        return above_share

    def _until_one_takes(self, line: deque[GroupView]) -> list[GroupView]:
        """Judge the first groups of a queue: it has its turn until one of them takes something. Returns those
        above their share; behind one that lets none pass, the rest waits with it."""
        above_share: list[GroupView] = []
        self._equals.clear()
        takings = self._budget.takings
        while line and self._budget.takings == takings:
            group = line.popleft()
            decision = self._round.judge(self._judge, group)
            if decision is not None:
                self._round.settle(decision)
            elif not self._round.is_broken(group):
                above_share.append(group)
                if self._lets_none_pass(group):
                    above_share += line
                    line.clear()
        return above_share

    def _judge(self, _: Round, group: GroupView) -> GroupDecision | None:
        """The decision on one group; None where it is above its share and lending comes later."""
        settled = self._settled(group)
        decision = settled or self._decide_on_equals(group)
        if decision is None or decision.verdict is not Verdict.WAITING:
            return decision
        if self._lets_none_pass(group) and decision.reason not in _NO_HEAD:
            self._heads.note(self._scope(group, decision), group.key)
        if settled:
            return decision
        wanted = missing(group)
        if self._budget.flavors.of(group.queue):
            wanted = flavored(self._budget.flavors, group, wanted, decision.flavors)
        elif decision.reason in LACKS_ROOM:
            self._round.shortages.add(wanted.signature, group.key)
        has_claim = not self._reserving.of(group) and self._lending.has_claim(group, wanted, decision.reason)
        decision = self._reserving.note(group, decision)
        return replace(decision, claims_room=True) if has_claim else decision

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

    def _settled(self, group: GroupView) -> GroupDecision | None:
        """What is decided on a group whatever room there is: it has its room already, or room is being taken
        back for it; another goes first; or it backs off."""
        if group.key in self._round.decided:
            return self._round.decided[group.key]
        head = self._heads.before(self._budget.running.scopes_of(group))
        if head is not None:
            return waits(group, Reason.BEHIND_OTHERS, f"{head} goes first in queue {group.queue}")
        return back_off(self._round, group) if self._strategies.of(group).backs_off(group) else None

    def _decide_on_equals(self, group: GroupView) -> GroupDecision | None:
        """Groups of one queue that want the same are judged once, until one takes something."""
        own, passed = self._reserving.of(group), self._reserving.passed_by(group)
        signature = None if _may_choose(group) else _signature(self._budget.planner, missing(group))
        if own or signature is None:
            return self._decide_as_reserved(group, own, passed)
        alike = signature if not self._budget.flavors.of(group.queue) else roles_of(group)
        equals = alike, len(passed), self._budget.running.whose(group)
        if equals not in self._equals:
            self._equals[equals] = self._decide_as_reserved(group, own, passed)
        known = self._equals[equals]
        return None if known is None else replace(known, key=group.key)

    # ---- one group: reservations, of itself and of others

    def _decide_as_reserved(
        self, group: GroupView, own: list[KeptRoom], passed: list[KeptRoom]
    ) -> GroupDecision | None:
        decision = self._decide_with(group, own) if own else self._decide(group)
        if decision is None or decision.reason not in LACKS_ROOM:
            return decision
        if passed and not own:
            decision = self._decide_with(group, passed)
        if decision is None or decision.reason not in LACKS_ROOM or own:
            return decision
        holding_up = self._reserving.holding_up(self._wanted(group))
        return waits(group, Reason.RESERVED, holding_up) if holding_up else decision

    def _decide_with(self, group: GroupView, given_back: list[KeptRoom]) -> GroupDecision | None:
        """With room that is kept from most others."""
        known, self._unplaceable = self._unplaceable, {}
        with self._reserving.given_back(given_back):
            decision = self._decide(group)
        self._unplaceable = known
        if decision is not None and decision.verdict is Verdict.STARTING:
            self._reserving.end(group)
        return decision

    # ---- one group: limits, ceiling, window, share, room

    def _decide(self, group: GroupView) -> GroupDecision | None:
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

    def _start_on_flavors(self, group: GroupView, wanted: Missing) -> GroupDecision | None:
        flavors, is_lent = self._budget.flavors, self._lending.has_begun
        choice = choose(flavors, group, wanted.members, {}, is_lent, partial(self._lacks_room, group))
        if not choice.tried:
            return self._start(group, choice.wanted)
        if choice.is_above_share:
            return None
        if choice.depends_on_room:
            self._round.shortages.are_all = False
        decision = waits(group, *choice.why())
        return replace(decision, flavors=choice.flavors, exceeds_queue=choice.exceeds_queue)

    def _lacks_room(self, group: GroupView, wanted: Missing) -> tuple[Reason, str] | None:
        """Why members find no room; None if they do."""
        planner = self._budget.planner
        signature = _signature(planner, wanted)
        if signature in self._unplaceable:
            return self._unplaceable[signature]
        if planner.could_place(wanted.members, wanted.shapes):
            return None
        why = self._why_not(group, wanted)
        if signature is not None:
            self._unplaceable[signature] = why
        return why

    def _wanted(self, group: GroupView) -> Missing:
        """Whom to start. A group with more members than it needs starts without those that find no node."""
        wanted, planner = missing(group), self._budget.planner
        if not _may_choose(group) or planner.could_place(wanted.members, wanted.shapes):
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
        is_counted = is_short and not any(planner.capacity.refuses(shape) for shape in wanted.shapes)
        self._round.shortages.note(
            signature if is_counted else None, wanted.shapes, why, self._budget.takings
        )
        if signature is not None:
            self._unplaceable[signature] = why
        return waits(group, *why)

    def _why_not(self, group: GroupView, wanted: Missing) -> tuple[Reason, str]:
        unclaimed = self._lending.unclaimed
        if unclaimed is not None and unclaimed.could_place(wanted.members, wanted.shapes):
            return Reason.QUEUE_SHARE, self._lending.text()
        return explain(self._round, unclaimed or self._budget.planner, group, wanted)


def _itself(group: GroupView) -> GroupView:
    return group


def _may_choose(group: GroupView) -> bool:
    """Whether a group has more members than it needs, and it matters which of them start."""
    spare = len(missing(group).members) < len(group.waiting)
    return spare and len({pod.shape for pod in group.waiting}) > 1


def _signature(planner: Planner, wanted: Missing) -> Signature | None:
    """Equal for groups that fit or not together; None where a member's labels matter to that."""
    return None if planner.affinity.any_particular(wanted.members, wanted.shapes) else wanted.signature
