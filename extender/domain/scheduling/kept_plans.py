"""Kept plans: which planned nodes of a group still hold, and which the scheduler would not use.

Most groups that are on their way did not change since the round before. What their plans hold is worked out
once and kept on their view; a round then takes the room of all of them in one step.
"""

from collections.abc import Iterable, Sequence

import msgspec

from extender.domain.lifecycle.quorum import lost, missing
from extender.domain.model.reasons import Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.placement.holding import Holding
from extender.domain.scheduling.joining import strays
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.silence import SchedulerSilence, has_lasted, silence_of
from extender.domain.snapshot.group_view import GroupView


class KeptPlan(msgspec.Struct):
    """What a group on its way has by now. Rounds add to it."""

    group: GroupView
    plan: dict[Uid, str]
    """Nodes that hold, and those added in this round; their room is taken."""
    moved: dict[Uid, str]
    """Members whose node the scheduler would not use, with that node."""
    unplanned: Sequence[PodRecord]
    """Members that had no node, or lost it, when the round began."""
    reason: Reason | None = None
    """Why the next one of them does not start."""
    detail: str = ""

    def left(self) -> list[PodRecord]:
        """Members that still have no node."""
        return [pod for pod in self.unplanned if pod.uid not in self.plan]

    def add(self, more: dict[Uid, str]) -> None:
        """A plan that nothing is added to stays the same object."""
        if more:
            self.plan = {**self.plan, **more}


def keep_all(round_: Round, groups: Iterable[GroupView]) -> list[KeptPlan]:
    """What still holds of the plans of `groups`, with its room, share and places. Where not all of them fit
    any more, the first come first."""
    wishes = [wish for group in groups if (wish := round_.judge(_wish, group))]
    try:
        fits = round_.budget.planner.take_holdings([holding for _, holding, _ in wishes])
    except Exception:  # one of them: each is looked at alone
        fits = False
    kept = [round_.judge(_keep, wish[0], wish, fits) for wish in wishes]
    return [each for each in kept if each is not None]


def holding_of(group: GroupView) -> Holding:
    """The same object as long as the view is: it is worked out once."""
    return group.once(_holding)


Wish = tuple[GroupView, Holding, dict[Uid, str]]


def _keep(round_: Round, group: GroupView, wish: Wish, is_taken: bool) -> KeptPlan:
    _, holding, moved = wish
    budget, plan, unplanned = round_.budget, holding.plan, holding.unplanned
    if not is_taken:
        plan = budget.planner.take_nodes(holding.pods)
        unplanned = (*(pod for pod, _ in holding.pods if pod.uid not in plan), *unplanned)
    known = holding.requests if plan is holding.plan else None
    budget.count(group, plan, known)
    budget.window.take(len(group.pinned))
    return KeptPlan(group, plan, moved, unplanned)


def _wish(round_: Round, group: GroupView) -> Wish:
    holding, silences = holding_of(group), group.once(_oldest_silences)
    if stray := strays(round_.budget, group, holding.pods):
        holding = holding.without(stray)
    if not any(has_lasted(round_, silence) for silence in silences):
        return group, holding, {}
    moved = {pod.uid: node for pod, node in holding.pods if _is_unused(round_, group, pod)}
    for pod, node in holding.pods:
        if pod.uid in moved:
            round_.budget.planner.forbid(pod.shape, node)
    return group, holding.without(moved), moved


def _is_unused(round_: Round, group: GroupView, pod: PodRecord) -> bool:
    silence = silence_of(group, pod)
    return silence is not None and has_lasted(round_, silence)


def _oldest_silences(group: GroupView) -> tuple[SchedulerSilence, ...]:
    """The oldest of each kind: no other can have lasted before it has."""
    silences = [silence_of(group, pod) for pod, _ in holding_of(group).pods]
    ordered = sorted((silence for silence in silences if silence is not None), reverse=True)
    return tuple({silence[1:]: silence for silence in ordered}.values())


def _holding(group: GroupView) -> Holding:
    """All waiting members of a group that stands; else those that must still start, or replace others."""
    pinned = {pod.uid for pod, _ in group.pinned}
    loose = [pod for pod in _who_may_start(group) if pod.uid not in pinned]
    pods = [(pod, group.planned[pod.uid]) for pod in loose if pod.uid in group.planned]
    return Holding(pods, [pod for pod in loose if pod.uid not in group.planned])


def _who_may_start(group: GroupView) -> Sequence[PodRecord]:
    if group.stands or group.stands_as_before:
        return group.waiting
    return (lost(group) if group.stood_whole else missing(group)).members
