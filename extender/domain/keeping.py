"""Keeping plans: which planned nodes of a group still hold, and which the scheduler would not use."""

from collections.abc import Sequence

import msgspec

from extender.domain.records import PodRecord, Uid
from extender.domain.round import Round
from extender.domain.snapshot import GroupView


class Kept(msgspec.Struct, frozen=True):
    """`plan`: nodes that hold, their room taken. `moved`: refused ones. `unplanned`: the rest."""

    group: GroupView
    plan: dict[Uid, str]
    moved: dict[Uid, str]
    unplanned: list[PodRecord]

    def give_back(self, round_: Round) -> None:
        round_.space.give_back(self.group.waiting, self.plan)


def keep(round_: Round, group: GroupView, members: Sequence[PodRecord]) -> Kept:
    holding: list[tuple[PodRecord, str]] = []
    moved: dict[Uid, str] = {}
    pinned = {pod.uid for pod, _ in group.pinned}
    loose = [pod for pod in members if pod.uid not in pinned]
    for pod in loose:
        node = group.planned.get(pod.uid)
        if node is None:
            continue
        if _unused(round_, group, pod):
            moved[pod.uid] = node
            round_.space.forbid(pod.shape, node)
        else:
            holding.append((pod, node))
    plan = round_.space.take_nodes(holding)
    return Kept(group, plan, moved, [pod for pod in loose if pod.uid not in plan])


def _unused(round_: Round, group: GroupView, pod: PodRecord) -> bool:
    """Whether the scheduler had its time to use the planned node, and did not.

    Its own refusal has a short grace (its view may lag ours); silence a longer one (it patches no condition
    that did not change, so a member can be unplaceable without any sign but its absence), and the longer
    the more pods it has before it.
    """
    since, refusal = group.expected_since.get(pod.uid), group.refusals.get(pod.uid)
    if since is None:
        return False
    if refusal is not None and refusal.at >= since:
        due = refusal.at + round_.limits.refusal_grace
    else:
        due = since + round_.limits.arrival_grace + round_.limits.arrival_grace_per_pod * round_.in_flight
    if round_.snapshot.now >= due:
        return True
    round_.wake_at.append(due)
    return False


def take_part(round_: Round, group: GroupView, plan: dict[Uid, str]) -> None:
    """Count planned members to their queue, and everything that is on its way to the window."""
    round_.charge(group, (pod for pod in group.waiting if pod.uid in plan))
    round_.window_left -= len(plan) + len(group.pinned)
