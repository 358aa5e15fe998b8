"""Admitting gangs that wait: by share of their queue, whole, or with the one reason that holds them.

First all groups at or below their queue's deserved share. Then lending: what remains goes to groups above it,
but not the room that a group of the first pass has a claim on.
"""

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.quorum import Missing, Signature, missing, missing_of
from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.heads import Heads
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import exceeds_queue, waits
from extender.domain.scheduling.order import TurnOrder, in_lines
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.running_counts import Scope
from extender.domain.scheduling.strategies import Strategies
from extender.domain.scheduling.unschedulable import explain
from extender.domain.snapshot.group_view import GroupView

_NEVER = (Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW)  # a group that can never start holds up no other


class Admission:
    """What is remembered while gangs are judged one after the other."""

    def __init__(self, round_: Round, lending: Lending, strategies: Strategies) -> None:
        self._round = round_
        self._strategies = strategies
        self._budget = round_.budget
        self._lending = lending
        self._heads = Heads()
        self._unplaceable: dict[Signature | None, tuple[Reason, str]] = {}
        self._equals: dict[object, GroupDecision | None] = {}  # what was said of such groups in this turn

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
        head = self._heads.before(self._budget.running.scopes_of(group))
        if head is not None:
            return waits(group, Reason.BEHIND_OTHERS, f"{head} goes first in queue {group.queue}")
        decision = self._back_off(group) or self._decide_on_equals(group)
        if decision is None or decision.verdict is not Verdict.WAITING:
            return decision
        if self._lets_none_pass(group) and decision.reason not in _NEVER:
            self._heads.note(self._scope(group, decision), group.key)
        if decision.reason in LACKS_ROOM:
            self._round.shortages.add(missing(group).signature, group.key)
        has_claim = self._lending.has_claim(group, decision.reason)
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

    def _back_off(self, group: GroupView) -> GroupDecision | None:
        backs_off = self._strategies.of(group).backs_off(group)
        return back_off(self._round, group) if backs_off else None

    def _decide_on_equals(self, group: GroupView) -> GroupDecision | None:
        """Groups of one queue that want the same are judged once, until one takes something."""
        signature = None if _may_choose(group) else _signature(self._budget.planner, missing(group))
        if signature is None:
            return self._decide(group)
        alike = (signature, self._budget.running.whose(group))
        if alike not in self._equals:
            self._equals[alike] = self._decide(group)
        known = self._equals[alike]
        return None if known is None else replace(known, key=group.key)

    # ---- one group: limits, ceiling, window, share, room

    def _decide(self, group: GroupView) -> GroupDecision | None:
        wanted = self._wanted(group)
        limit = self._limit(group, wanted) or self._ceiling(group, wanted)
        obstacle = limit or self._window(group, wanted)
        if obstacle is not None:
            return obstacle
        if not self._lending.has_begun and self._budget.shares.is_above_share(group.queue, wanted.requests):
            return None
        return self._start(group, wanted)

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
