"""Keeping plans: which planned nodes of a group still hold, and which the scheduler would not use.

Most groups that are on their way did not change since the round before. What their plans hold is worked out
once and kept on their view; a round then takes the room of all of them in one step.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.placement.holding import Holding, Silence, silence_of
from extender.domain.placement.holding import holding as holding_of
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

_UNHEARD = 4  # times the grace of silence, where nothing shows whether the scheduler is there


class Kept(msgspec.Struct, frozen=True):
    """`plan`: nodes that hold, their room taken. `moved`: refused ones. `unplanned`: the rest."""

    group: GroupView
    plan: dict[Uid, str]
    moved: dict[Uid, str]
    unplanned: Sequence[PodRecord]

    def give_back(self, round_: Round) -> None:
        round_.space.give_back(self.group.waiting, self.plan)

    def take_part(self, round_: Round, more: Mapping[Uid, str]) -> dict[Uid, str]:
        """The plan with `more`, counted. One that did not change stays the same object, and is not summed up
        again."""
        holding, plan = holding_of(self.group), {**self.plan, **more} if more else self.plan
        known = holding.requests if plan is holding.plan else None
        take_part(round_, self.group, plan, known)
        return plan


def keep_all(round_: Round, groups: Iterable[GroupView]) -> list[Kept]:
    """What still holds of the plans of `groups`. Where not all of them fit any more, the first come first."""
    wishes = [_still_wanted(round_, group) for group in groups]
    if round_.space.take_holdings([holding for _, holding, _ in wishes]):
        return [Kept(group, holding.plan, moved, holding.unplanned) for group, holding, moved in wishes]
    return [_keep(round_, group, holding, moved) for group, holding, moved in wishes]


def _keep(round_: Round, group: GroupView, holding: Holding, moved: dict[Uid, str]) -> Kept:
    plan = round_.space.take_nodes(holding.pods)
    lost = [pod for pod, _ in holding.pods if pod.uid not in plan]
    return Kept(group, plan, moved, [*lost, *holding.unplanned])


def _still_wanted(round_: Round, group: GroupView) -> tuple[GroupView, Holding, dict[Uid, str]]:
    """The holding of a group, without the nodes that the scheduler would not use."""
    holding = holding_of(group)
    if not holding.silences or not _is_due(round_, holding):
        return group, holding, {}
    moved = {pod.uid: node for pod, node in holding.pods if _unused(round_, group, pod)}
    if not moved:
        return group, holding, {}
    for pod, node in holding.pods:
        if pod.uid in moved:
            round_.space.forbid(pod.shape, node)
    return group, holding.without(moved), moved


def _is_due(round_: Round, holding: Holding) -> bool:
    """Whether the scheduler had its time to use any of the planned nodes."""
    return any(_has_lasted(round_, silence) for silence in holding.silences)


def _unused(round_: Round, group: GroupView, pod: PodRecord) -> bool:
    silence = silence_of(group, pod)
    return silence is not None and _has_lasted(round_, silence)


def _has_lasted(round_: Round, silence: Silence) -> bool:
    due = _due(round_, silence)
    return due is not None and round_.is_due(due)


def _due(round_: Round, silence: Silence) -> float | None:
    """When the scheduler had its time to use a planned node, and did not; None: nobody can tell yet.

    Its own refusal has a short grace (its view may lag ours); silence a longer one, and the longer the more
    pods it has before it. Silence counts while the scheduler asks for others. It patches no condition that
    did not change, so a pod that it refused before may be unplaceable without any sign: that one's silence
    counts in the end even if nobody else wants anything.
    """
    limits, attention = round_.limits, round_.snapshot.attention
    if attention.leading_since is None:
        return None
    begun = max(silence.since, attention.leading_since)
    if silence.refused:
        return begun + limits.refusal_grace
    grace = limits.arrival_grace + limits.arrival_grace_per_pod * round_.in_flight
    asked = attention.since(begun)
    if asked is not None:
        return asked + grace
    return begun + _UNHEARD * grace if silence.known else None


def take_part(
    round_: Round, group: GroupView, plan: Mapping[Uid, str], asked: Resources | None = None
) -> None:
    """Count planned members to their queue, and everything that is on its way to the window. `asked` is what
    they ask for, where that is known already."""
    if asked is None:
        round_.charge(group, (pod for pod in group.waiting if pod.uid in plan))
    else:
        round_.charge_for(group, asked)
    round_.window_left -= len(plan) + len(group.pinned)
