"""The search for units where constraints concern other pods: with more and more of them out of the way, the
planner places all members."""

from collections.abc import Iterable, Mapping

from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.records import Uid
from extender.domain.placement.planner import Planner
from extender.domain.reclaim.giver import Giver
from extender.domain.reclaim.takings import Taking, Takings
from extender.domain.reclaim.units import Unit

_TRIALS = 64  # placements with which it is tried to leave units alone


class TrialSearch:
    """`units`: in the order in which they are taken. `planner` and `takings` are used up."""

    def __init__(self, planner: Planner, giver: Giver, units: Iterable[Unit], takings: Takings) -> None:
        self._planner = planner
        self._giver = giver
        self._units = iter(units)
        self._takings = takings

    def find(self, wanted: Missing) -> Mapping[Uid, str] | None:
        """A node for each member. Twice as many units out of the way each time, until the planner finds a
        place for all: some may be in the way by what they are, such as by a port."""
        plan, step = None, 1
        while plan is None:
            if not self._take(step):
                return None
            step *= 2
            plan = self._placed(wanted)
        return self._without_spare(wanted, plan)

    def _take(self, count: int) -> int:
        """At most that many units; returns how many."""
        taken = 0
        for unit in self._units:
            pods = self._takings.left_of(unit)
            if pods and self._takings.may_give(taking := Taking(unit, pods)):
                self._takings.take([taking])
                taken += 1
            if taken >= count:
                break
        return taken

    def _placed(self, wanted: Missing) -> Mapping[Uid, str] | None:
        return self._planner.place(wanted.members) if self._giver.suffices() else None

    def _without_spare(self, wanted: Missing, plan: Mapping[Uid, str]) -> Mapping[Uid, str]:
        for taking in tuple(reversed(self._takings.all))[:_TRIALS]:
            if self._takings.is_needed_whole(taking):
                continue
            self._planner.give_back(wanted.members, plan)
            self._takings.give_back(taking)
            other = self._placed(wanted)
            if other is None:
                self._takings.take([taking])
                other = self._planner.place(wanted.members)
            plan = plan if other is None else other
        return plan
