"""Which members make a group whole.

A group is whole with minMember members and each role's minTaskMember. If the roles add up to more than
minMember, they do not bind, as in Volcano.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from operator import attrgetter

import msgspec

from extender.domain.model.needs import Needs
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.snapshot.group_view import GroupView

Signature = frozenset[tuple[Shape, int]]


class Missing(msgspec.Struct, frozen=True, dict=True):
    """The members that must still start."""

    members: tuple[PodRecord, ...]
    absent: str = ""  # for people: what does not exist yet; empty if all needed members do

    @cached_property
    def shapes(self) -> Counter[Shape]:
        return Counter(map(attrgetter("shape"), self.members))

    @cached_property
    def signature(self) -> Signature:
        """Equal for groups that lack as many members of the same shapes."""
        return frozenset(self.shapes.items())

    @cached_property
    def requests(self) -> Resources:
        """What the members ask for together."""
        return requests_of(self.shapes)


def binding_roles(min_member: int, min_task_member: Mapping[str, int]) -> Mapping[str, int]:
    return min_task_member if sum(min_task_member.values()) <= min_member else {}


def whole(min_member: int, min_task_member: Mapping[str, int], roles: Counter[str], members: int) -> bool:
    """Whether `members` members, counted by role in `roles`, make a group whole."""
    needed = binding_roles(min_member, min_task_member)
    return members >= min_member and all(roles[role] >= n for role, n in needed.items())


def missing(group: GroupView) -> Missing:
    """The members to start next so that the group is whole: pinned ones first, then those with a plan.

    A view never changes, so this is computed once and kept there.
    """
    return group.once(missing_of)


def missing_of(group: GroupView, fitting: Collection[Uid] = ()) -> Missing:
    """The same, but members known to be `fitting` come before the others."""
    return _missing(group, group.needs, fitting)


def lost(group: GroupView) -> Missing:
    """The members to start next so that the group has as many as when it stood whole."""
    return group.once(_lost)


def _lost(group: GroupView) -> Missing:
    return _missing(group, group.stood_with or Needs(0, {}), ())


def _missing(group: GroupView, needs: Needs, fitting: Collection[Uid]) -> Missing:
    candidates = [pod for pod, _ in group.pinned] + _by_preference(group, fitting)
    needed = dict(binding_roles(*needs))
    for pod in group.placed:
        needed[pod.role] = needed.get(pod.role, 0) - 1
    chosen, spare = _for_roles(candidates, needed)
    still = max(needs.min_member - len(group.placed) - len(chosen), 0)
    members = (*chosen, *spare[:still])
    return Missing(members, _absent(group, needed, still - len(spare)))


def _by_preference(group: GroupView, fitting: Collection[Uid]) -> list[PodRecord]:
    """Planned ones first, then those that fit; then by priority, highest first, and name."""
    pods = sorted(group.waiting, key=attrgetter("name"))
    pods.sort(key=attrgetter("priority"), reverse=True)  # which keeps the order of equals
    if group.planned or fitting:
        pods.sort(key=lambda pod: (pod.uid not in group.planned, pod.uid not in fitting))
    return pods


def _for_roles(
    candidates: Iterable[PodRecord], needed: dict[str, int]
) -> tuple[list[PodRecord], list[PodRecord]]:
    """Split into members that a role still needs (counted down in `needed`) and the others."""
    if not any(n > 0 for n in needed.values()):
        return [], list(candidates)
    chosen, spare = [], []
    for pod in candidates:
        if needed.get(pod.role, 0) > 0:
            needed[pod.role] -= 1
            chosen.append(pod)
        else:
            spare.append(pod)
    return chosen, spare


def _absent(group: GroupView, needed: Mapping[str, int], lacking: int) -> str:
    roles = [f"{n} of role {role}" for role, n in sorted(needed.items()) if n > 0]
    if not roles and lacking <= 0:
        return ""
    there = len(group.placed) + len(group.pinned) + len(group.waiting)
    held_back = f"; {group.held_back} held back by other scheduling gates" if group.held_back else ""
    missing_roles = f", missing {' and '.join(roles)}" if roles else ""
    return f"{there} of {group.min_member} members exist{missing_roles}{held_back}"
