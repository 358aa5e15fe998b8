"""Admitting gangs that wait: by share of their queue, whole, or with the one reason that holds them.

First all groups at or below their queue's deserved share. Then lending: what remains goes to groups above it,
but not the room that a group of the first pass has a claim on.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.flavors.choice import flavored
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.heads import Heads
from extender.domain.scheduling.judging import Judge
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import waits
from extender.domain.scheduling.order import TurnOrder, in_lines
from extender.domain.scheduling.partial_starts import start_with_most, with_members
from extender.domain.scheduling.reserving import Reserving
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.running_counts import Scope
from extender.domain.scheduling.strategies import Strategies
from extender.domain.snapshot.group_view import GroupView

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
