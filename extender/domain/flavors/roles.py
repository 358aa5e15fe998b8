"""The roles of a group: the members of a role all use the same flavor."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from extender.domain.flavors.flavor_amounts import FlavorAmounts
from extender.domain.lifecycle.quorum import Signature, binding_roles, missing
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape
from extender.domain.queues.queue_rules import Flavor
from extender.domain.snapshot.group_view import GroupView

# Equal for groups that miss as many members of the same shapes, and of the same roles where these count.
Alike = Signature | frozenset[tuple[tuple[str, Shape, str], int]]


def role_of(group: GroupView, pod: PodRecord) -> str:
    """A role that minTaskMember counts; all other members are alike, and have none."""
    return pod.role if pod.role in group.once(_counted_roles) else ""


def by_role(group: GroupView, pods: Iterable[PodRecord]) -> dict[str, list[PodRecord]]:
    """In the order of the roles' names."""
    roles: dict[str, list[PodRecord]] = {}
    for pod in pods:
        roles.setdefault(role_of(group, pod), []).append(pod)
    return dict(sorted(roles.items()))


def roles_of(group: GroupView) -> Alike:
    """What a group misses, and where members of the same roles are."""
    return group.once(_roles_of)


def _counted_roles(group: GroupView) -> frozenset[str]:
    return frozenset(binding_roles(*group.needs))


def _roles_of(group: GroupView) -> Alike:
    missed = Counter((role_of(group, pod), pod.shape, "") for pod in missing(group).members)
    placed = Counter((role_of(group, pod), pod.shape, pod.node) for pod in group.placed if pod.holds_room)
    return frozenset((missed + placed).items())


def on_nodes_of(flavor: Flavor, pods: Iterable[PodRecord]) -> list[PodRecord]:
    """The same pods, to be planned on the nodes of a flavor only."""
    return [replace(pod, shape=pod.shape.within(flavor.nodes)) for pod in pods]


def flavors_in_use(amounts: FlavorAmounts, group: GroupView, plan: Mapping[Uid, str]) -> dict[str, Flavor]:
    """By role, the flavor of its members that are on nodes, or in `plan`."""
    if not amounts.of(group.queue):
        return {}
    places = [(pod, pod.node) for pod in group.placed if pod.holds_room]
    places += group.pinned
    places += [(pod, plan[pod.uid]) for pod in group.waiting if pod.uid in plan]
    used: dict[str, Flavor] = {}
    for pod, node in places:
        if (flavor := amounts.on(group.queue, node)) is not None:
            used.setdefault(role_of(group, pod), flavor)
    return used


def where_they_join(
    amounts: FlavorAmounts, group: GroupView, pods: Iterable[PodRecord], plan: Mapping[Uid, str]
) -> list[PodRecord]:
    """The same pods, bound to the nodes of the flavor that members of their role use, if any does."""
    in_use = flavors_in_use(amounts, group, plan)
    return [
        replace(pod, shape=pod.shape.within(flavor.nodes))
        if (flavor := in_use.get(role_of(group, pod))) is not None
        else pod
        for pod in pods
    ]
