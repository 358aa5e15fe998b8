"""Judging one gang: limits, ceiling, window, share and room, and the one rule that keeps it from starting.

Groups of one queue that want the same are judged once, until one of them takes something.
"""

from functools import partial

from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.flavors.choice import choose
from extender.domain.flavors.roles import Alike, by_role, roles_of
from extender.domain.lifecycle.quorum import Missing, Signature, missing, missing_of
from extender.domain.model.reasons import LACKS_ROOM, Reason, Verdict
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.kept_room import KeptRoom
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import exceeds_queue, waits
from extender.domain.scheduling.reserving import Reserving
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.unschedulable import explain
from extender.domain.snapshot.group_view import GroupView

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
