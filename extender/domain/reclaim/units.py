"""Units of eviction: what is evicted together, so that no gang is left in part.

Of a group that runs, members beyond its minMember go one by one; what is left after that goes as a whole, or
stays. A managed job only goes as a whole, since it is suspended. A group of one is a whole group, and a pod
that is not ours a unit of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from extender.domain.lifecycle.quorum import binding_roles
from extender.domain.model.evictions import EvictionCause, ReclaimVictim
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import requests_of
from extender.domain.snapshot.group_view import GroupView


class Unit(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Pods that are evicted together."""

    pods: tuple[PodRecord, ...]
    cause: EvictionCause
    queue: str
    """The queue that gives the room back; empty for a pod that is not ours."""
    tier: int
    """Units of a lower tier go first: surplus members before whole groups, other queues before the own."""
    rank: str
    """Among units that cost the same, the highest goes first: the least important, then what ran shortest."""
    group: GroupKey = GroupKey("")

    @cached_property
    def last_first(self) -> tuple[int, ...]:
        """Sorts what ranks highest first."""
        return inverted(self.rank)

    @cached_property
    def order(self) -> tuple[int, tuple[int, ...], Uid]:
        return (self.tier, self.last_first, self.pods[0].uid)

    @cached_property
    def requests(self) -> Resources:
        """What all its pods ask for together."""
        return requests_of(Counter(pod.shape for pod in self.pods))

    @cached_property
    def by_node(self) -> dict[str, list[PodRecord]]:
        nodes: dict[str, list[PodRecord]] = {}
        for pod in self.pods:
            nodes.setdefault(pod.node, []).append(pod)
        return nodes

    def victims(self, pods: Iterable[PodRecord]) -> Iterator[ReclaimVictim]:
        """Those of its pods, as victims."""
        return (ReclaimVictim(p.uid, p.namespace, p.name, self.group, self.queue, self.cause) for p in pods)


_TIERS = {EvictionCause.RECLAIM: 0, EvictionCause.PREEMPT: 2, EvictionCause.UNMANAGED: 4}


def units_of(group: GroupView, cause: EvictionCause) -> list[Unit]:
    """The surplus members one by one, the least important first, then the group as a whole. Worked out once:
    a view never changes."""
    return group.once(_for_others if cause is EvictionCause.RECLAIM else _for_the_queue)


def _for_others(group: GroupView) -> list[Unit]:
    return _units(group, EvictionCause.RECLAIM)


def _for_the_queue(group: GroupView) -> list[Unit]:
    return _units(group, EvictionCause.PREEMPT)


def _units(group: GroupView, cause: EvictionCause) -> list[Unit]:
    spare = () if group.has_job else group.once(surplus)
    tier, rank = _TIERS[cause], group.once(_rank)
    units = [Unit((pod,), cause, group.queue, tier, rank, group.key) for pod in spare]
    if group.once(may_go_whole):
        units.append(Unit(group.once(standing), cause, group.queue, tier + 1, rank, group.key))
    return units


def unit_of(pod: PodRecord) -> Unit:
    """A pod that is not ours."""
    return Unit(
        (pod,), EvictionCause.UNMANAGED, "", _TIERS[EvictionCause.UNMANAGED], _unimportance(pod.priority)
    )


def _rank(group: GroupView) -> str:
    """The least important, then what ran shortest, then the newest."""
    return f"{_unimportance(group.priority)} {group.running_since} {group.created}"


def _unimportance(priority: int) -> str:
    """The higher, the lower the priority, which has 32 bits."""
    return f"{2**31 - priority:010d}"


def standing(group: GroupView) -> tuple[PodRecord, ...]:
    """Members on nodes that have not ended."""
    return tuple(pod for pod in group.placed if pod.holds_room)


def may_go_whole(group: GroupView) -> bool:
    """Whether all its members can be evicted: none of them is on its way to a node."""
    pods = group.once(standing)
    on_the_way = group.pinned or group.planned
    return bool(pods) and not on_the_way and all(pod.may_be_evicted for pod in pods)


def surplus(group: GroupView) -> tuple[PodRecord, ...]:
    """Members that the group can spare, the least important first."""
    left = len(group.placed) - group.min_member
    if left <= 0:
        return ()
    roles = Counter(pod.role for pod in group.placed)
    spare: list[PodRecord] = []
    needed = binding_roles(group.min_member, group.min_task_member)
    for pod in sorted(group.once(standing), key=_last_first):
        if len(spare) < left and pod.may_be_evicted and roles[pod.role] > needed.get(pod.role, 0):
            roles[pod.role] -= 1
            spare.append(pod)
    return tuple(spare)


def _last_first(pod: PodRecord) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Lowest priority first, then the newest, then the last name."""
    return (pod.priority, inverted(pod.created), inverted(pod.name))


def inverted(text: str) -> tuple[int, ...]:
    """Sorts the last text first."""
    return tuple(-ord(letter) for letter in text)
