"""What queues may give for one group: never what brings them below what they deserve, or their guarantee."""

from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.resources import PODS, Resources
from extender.domain.scheduling.queue_shares import QueueShares
from extender.domain.scheduling.round import Round
from extender.domain.shares.comparisons import EPSILON, Portions
from extender.domain.snapshot.group_view import GroupView

_NEARER = 1e-9  # of a share: less than any difference that counts


class Giving:
    """The round's shares, as a search for victims sees them. `scarce`: the resources that the group lacks.
    `from_others`: other queues give, so the group may not bring its own above what that deserves."""

    def __init__(
        self, round_: Round, group: GroupView, wanted: Missing, scarce: frozenset[str], from_others: bool
    ) -> None:
        self._queues = round_.snapshot.queues
        self._shares = round_.budget.shares
        self._own, self._asked, self._scarce = group.queue, wanted.requests, scarce
        self._parts: dict[str, float] = {}  # what `share` said, until the queue gives
        self._from_others = from_others

    def may_give(self, queue: str, amounts: Resources) -> bool:
        """In its own queue, a group takes the place of others: that is no question of shares."""
        view = self._queues.get(queue)
        return queue == self._own or (
            view is not None and may_give(self._shares, queue, amounts, self._scarce, self._own)
        )

    def give(self, queue: str, amounts: Resources, times: int = 1) -> None:
        if queue:
            self._shares.take(queue, amounts, -times)
            self._parts.pop(queue, None)

    def share(self, queue: str) -> float:
        """Of queues equally far above their share, the nearest one in the tree has the largest."""
        if not queue:
            return 0.0
        if queue not in self._parts:
            levels = sum(1 for _ in self._shares.levels(queue, self._own))
            self._parts[queue] = self._shares.of_own_groups(queue) - _NEARER * levels
        return self._parts[queue]

    def suffices(self) -> bool:
        if self._shares.above_ceiling(self._own, self._asked):
            return False
        return not self._from_others or not self._shares.is_above_share(self._own, self._asked)


def may_give(
    shares: QueueShares, queue: str, amounts: Resources, scarce: frozenset[str], to: str = ""
) -> bool:
    """Whether a queue, and each one above it that is not above the queue `to`, keeps what it deserves of the
    resources that are scarce, and what is kept for it, without `amounts`. Where nothing is scarce but in
    pieces, what counts is what it holds too much of: one that has all the GPUs may be short of memory, which
    it cannot use without them."""
    asked = {each: n for each, n in amounts.items() if n > 0 and each != PODS}
    return all(_keeps_enough(asked, scarce, *level) for level in shares.levels(queue, to))


def _keeps_enough(
    asked: Resources, scarce: frozenset[str], held: Resources, due: Portions, kept: Resources
) -> bool:
    above = {each for each in asked if held.get(each, 0) > due.get(each, 0.0) + EPSILON}
    counted = (scarce & asked.keys()) or above
    if not counted or any(held.get(each, 0) - n < kept[each] for each, n in asked.items() if each in kept):
        return False
    return all(held.get(each, 0) - asked[each] >= due.get(each, 0.0) - EPSILON for each in counted)
