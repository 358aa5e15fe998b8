"""Plans of groups under way: which planned nodes still hold, which the scheduler would not use, and which
members join a group that has started.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender.domain.model.reasons import Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.placement.planner import Holding, PlannedPod
from extender.domain.queues.spec import Flavor
from extender.domain.scheduling.budget import Budget
from extender.domain.scheduling.flavors import by_role, choose, on_nodes_of
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.quorum import Missing, lost, missing

# ---- Members that join a group which is on its way, or on its feet: on the flavors of their roles, if
# their queue has any.

_NO_ROOM = (Reason.NO_ROOM, "")


class Joining(NamedTuple):
    """`pods`: those that may join, each bound to the nodes of a flavor. `why_not_all`: what the amounts of
    the flavors say against the others; empty if nothing."""

    pods: list[PodRecord]
    why_not_all: str = ""


def all_that_join(
    budget: Budget, group: GroupView, pods: Sequence[PodRecord], plan: Mapping[Uid, str]
) -> list[PodRecord] | None:
    """All of `pods`; None if some role has no flavor that takes it."""
    if not budget.flavors.of(group.queue):
        return list(pods)

    def lacks_room(wanted: Missing) -> tuple[Reason, str] | None:
        return None if budget.planner.could_place(wanted.members, wanted.shapes) else _NO_ROOM

    choice = choose(budget.flavors, group, pods, plan, True, lacks_room)
    return None if choice.tried else list(choice.wanted.members)


def as_many_as_join(
    budget: Budget, group: GroupView, pods: Iterable[PodRecord], in_use: dict[str, Flavor], is_lent: bool
) -> Joining:
    """The first of `pods`, by role, that the amounts of the flavors admit. `in_use`: by role, the flavors
    that members have; a role that had none gets one, and it is noted there."""
    flavors, queue = budget.flavors, group.queue
    if not flavors.of(queue):
        return Joining(list(pods))
    joining: list[PodRecord] = []
    asked: dict[str, dict[str, int]] = {}
    why = ""
    for role, of_role in by_role(group, pods).items():
        flavor = in_use.get(role) or _first_with_room(budget, queue, of_role[0], is_lent)
        if flavor is None:
            continue
        in_use[role] = flavor
        admitted = flavors.as_many_as(queue, flavor, of_role, asked.setdefault(flavor.name, {}), is_lent)
        joining += on_nodes_of(flavor, admitted)
        if len(admitted) < len(of_role):
            why = f"flavor {flavor.name} of queue {queue} is used up"
    return Joining(joining, why)


def strays(budget: Budget, group: GroupView, planned: Iterable[PlannedPod]) -> set[Uid]:
    """Planned members whose nodes are no flavor's of their queue, if it has any: labels changed meanwhile."""
    flavors, queue = budget.flavors, group.queue
    if not flavors.of(queue):
        return set()
    return {pod.uid for pod, node in planned if flavors.on(queue, node) is None}


def _first_with_room(budget: Budget, queue: str, pod: PodRecord, is_lent: bool) -> Flavor | None:
    for flavor in budget.flavors.of(queue):
        one = on_nodes_of(flavor, [pod])
        admits = budget.flavors.as_many_as(queue, flavor, one, {}, is_lent)
        if admits and budget.planner.could_place(one, {one[0].shape: 1}):
            return flavor
    return None


# ---- Silence of the scheduler: when a planned node counts as one that it would not use.
#
# Its own refusal has a short grace (its view may lag ours); silence a longer one, and the longer the
# more pods it has before it. Silence counts while the scheduler asks for others. It patches no
# condition that did not change, so a pod that it refused before may be unplaceable without any sign:
# that one's silence counts in the end even if no other group wants anything.

_UNHEARD = 4  # times the grace of silence, where nothing shows whether the scheduler is there


class SchedulerSilence(NamedTuple):
    """Since when the scheduler has not used a planned node, and what it said of the pod."""

    since: float
    refused: bool  # it refused the pod since
    known: bool  # it refused the pod before: another refusal in the same words would not be seen


def silence_of(group: GroupView, pod: PodRecord) -> SchedulerSilence | None:
    """Since when the scheduler could have used a member's planned node; None: it could not yet."""
    since, refusal = group.expected_since.get(pod.uid), group.refusals.get(pod.uid)
    if since is None:
        return None
    known = bool(pod.unschedulable)
    if refusal is not None and refusal.at >= since:
        return SchedulerSilence(refusal.at, refused=True, known=known)
    return SchedulerSilence(since, refused=False, known=known)


def has_lasted(round_: Round, silence: SchedulerSilence) -> bool:
    """Whether the scheduler had its time."""
    due = _due(round_, silence)
    if _asked_since(round_, silence) is None:  # it may ask again, which alone is no reason to decide
        round_.look_again_at(round_.snapshot.now + round_.limits.arrival_grace)
    return due is not None and round_.is_due(due)


def _due(round_: Round, silence: SchedulerSilence) -> float | None:
    """When it will have had it; None: not known yet."""
    limits, attention = round_.limits, round_.snapshot.attention
    if attention.leading_since is None:
        return None
    begun = max(silence.since, attention.leading_since)
    if silence.refused:
        return begun + limits.refusal_grace
    grace = limits.arrival_grace + limits.arrival_grace_per_pod * round_.in_flight
    asked = _asked_since(round_, silence)
    if asked is not None:
        return asked + grace
    return begun + _UNHEARD * grace if silence.known else None


def _asked_since(round_: Round, silence: SchedulerSilence) -> float | None:
    """From when on the scheduler asked while it was silent; None: it has not yet."""
    return round_.snapshot.attention.since(silence.since)


# ---- Kept plans: which planned nodes of a group still hold, and which the scheduler would not use.
#
# Most groups that are on their way did not change since the round before. What their plans hold is
# worked out once and kept on their view; a round then takes the room of all of them in one step.


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
