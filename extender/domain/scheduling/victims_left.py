"""What has become of the victims of reclaims: which are still there, and which gangs are in part without the
others."""

from collections import Counter
from collections.abc import Collection, Iterator
from operator import attrgetter

from extender.domain.lifecycle.quorum import whole
from extender.domain.model.evictions import Reclaim, ReclaimVictim
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView


def left(round_: Round, victim: ReclaimVictim) -> PodRecord | None:
    """The pod, if it is still there and not on its way out."""
    if not victim.group:
        pod = round_.snapshot.others.get(victim.uid)
        return pod if pod is not None and not pod.deleting else None
    group = round_.snapshot.groups.get(victim.group)
    return group.once(_by_uid).get(victim.uid) if group is not None else None


def _by_uid(group: GroupView) -> dict[Uid, PodRecord]:
    return {pod.uid: pod for pod in group.placed if pod.holds_room}


def departing(round_: Round) -> Iterator[PodRecord]:
    """Pods on nodes that are being deleted."""
    for group in round_.snapshot.groups.values():
        yield from group.departing
    yield from filter(attrgetter("deleting"), round_.snapshot.others.values())


def leaving_of(round_: Round, queue: str) -> Iterator[PodRecord]:
    """Pods of a queue's groups that are being deleted, or give their room to others."""
    groups = round_.snapshot.groups.values()
    for group in filter(lambda each: each.queue == queue, groups):
        yield from group.departing
        yield from (pod for pod in group.placed if pod.uid in round_.promised and pod.holds_room)


def to_be_evicted(round_: Round) -> Iterator[PodRecord]:
    """The pods of this round's evictions so far; none of them is being deleted yet."""
    pods = (left(round_, each.victim) for each in round_.evictions.values())
    return (pod for pod in pods if pod is not None)


def would_be_split(round_: Round, key: GroupKey) -> bool:
    """Whether a group that gives back some of its members is no longer whole without them: it has lost others
    since."""
    group = round_.snapshot.groups.get(key)
    if group is None:
        return False
    pods = [pod for pod in group.placed if pod.uid not in round_.promised]
    return len(pods) < len(group.placed) and _is_in_part(group, pods)


def is_any_in_part(round_: Round, reclaim: Reclaim) -> bool:
    """Whether some victims of a gang have gone, so that it is not whole, and others have not. These have to
    follow, even if evictions of them are refused."""
    remaining: set[GroupKey] = set()
    begun: set[GroupKey] = set()
    for victim in reclaim.victims:
        (begun if left(round_, victim) is None else remaining).add(victim.group)
    views = (round_.snapshot.groups.get(key) for key in remaining & begun)
    return any(group is not None and _is_in_part(group, group.placed) for group in views)


def _is_in_part(group: GroupView, pods: Collection[PodRecord]) -> bool:
    if not any(pod.holds_room for pod in pods):
        return False
    roles = Counter(pod.role for pod in pods)
    return not whole(group.min_member, group.min_task_member, roles, len(pods))
