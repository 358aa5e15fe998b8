"""The budget of a round: room, shares of queues, limits on what they run, places in the window. Whatever is
taken is taken here.

What one group takes the next one lacks; what a group took whose judging failed is given back.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.domain.flavors.flavor_amounts import FlavorAmounts
from extender.domain.model.journal import Journal
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import requests_of
from extender.domain.placement.kept_totals import KeptTotals
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.kept_shares import KeptShares
from extender.domain.scheduling.queue_shares import QueueShares
from extender.domain.scheduling.running_counts import RunningCounts
from extender.domain.scheduling.window import Window
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot


class Budget:
    def __init__(
        self, snapshot: Snapshot, totals: KeptTotals | None = None, shares: KeptShares | None = None
    ) -> None:
        self.journal = Journal()
        """Of all that is taken: a group whose judging fails takes nothing."""
        self.planner = Planner.of(snapshot, totals, self.journal)
        self.totals = self.planner.capacity.kept
        self.shares = QueueShares(snapshot, shares, self.journal)
        self.flavors = FlavorAmounts(snapshot, self.journal)
        self.running = RunningCounts(snapshot, self.journal)
        self.window = Window(snapshot.limits.window, self.journal)
        self.takings = 0
        """How often room was taken; while the number is unchanged, so is everything else."""

    # ---- taking

    def place(
        self, group: GroupView, pods: Iterable[PodRecord], partly: bool = False
    ) -> dict[Uid, str] | None:
        """Start `pods` of a group: room, share and places for all of them at once; None where the room does
        not suffice, unless `partly`, which takes for as many as it does."""
        pods = list(pods)
        plan = self.planner.place(pods, partly)
        if plan:
            self.count(group, plan)
        return plan

    def reserve(self, group: GroupView, pods: Iterable[PodRecord]) -> dict[Uid, str]:
        """Room and share for as many of `pods` as find it, and no places yet: those come after the gangs."""
        plan = self.planner.place(pods, partly=True) or {}
        if plan:
            self.takings += 1
            self.shares.take(group.queue, _requests(group, plan))
            self.flavors.take(group, plan)
            self.running.take(group, len(plan))
        return plan

    def count(self, group: GroupView, plan: Mapping[Uid, str], asked: Resources | None = None) -> None:
        """Count members to share and window whose room is taken already. `asked`: what they ask for, where
        that is known."""
        if plan:
            self.takings += 1
            self.shares.take(group.queue, _requests(group, plan) if asked is None else asked)
            self.flavors.take(group, plan)
            self.running.take(group, len(plan))
            self.window.take(len(plan))

    def release(self, group: GroupView, plan: Mapping[Uid, str]) -> None:
        """Give back what was taken for members."""
        self.planner.give_back(group.waiting, plan)
        self.shares.take(group.queue, _requests(group, plan), -1)
        self.flavors.take(group, plan, -1)
        self.running.take(group, -len(plan))
        self.window.take(-len(plan))

    def hold(self, group: GroupView, plan: Mapping[Uid, str]) -> None:
        """Room and share for members that start once the room is free."""
        self.takings += 1
        self.planner.hold((pod, plan[pod.uid]) for pod in group.waiting if pod.uid in plan)
        self.shares.take(group.queue, _requests(group, plan))
        self.flavors.take(group, plan)

    def let_go(self, group: GroupView, plan: Mapping[Uid, str]) -> None:
        """Undo a hold."""
        self.planner.give_back(group.waiting, plan)
        self.shares.take(group.queue, _requests(group, plan), -1)
        self.flavors.take(group, plan, -1)


def _requests(group: GroupView, plan: Mapping[Uid, str]) -> Resources:
    return requests_of(Counter(pod.shape for pod in group.waiting if pod.uid in plan))
