"""Members that join a group which is on its way, or on its feet: on the flavors of their roles, if their
queue has any."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.domain.flavors.choice import choose
from extender.domain.flavors.roles import by_role, on_nodes_of
from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.reasons import Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.placement.holding import PlannedPod
from extender.domain.queues.queue_rules import Flavor
from extender.domain.scheduling.budget import Budget
from extender.domain.snapshot.group_view import GroupView

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
