"""Draining queues and LocalQueues whose stopPolicy is HoldAndDrain: their groups are evicted whole, a few at
a time."""

from collections.abc import Sequence

from extender.domain.lifecycle.state import runs
from extender.domain.model.evictions import Eviction, EvictionCause, ReclaimVictim
from extender.domain.model.records import PodRecord
from extender.domain.reclaim.units import inverted, standing
from extender.domain.scheduling.giving_back import drained_by
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView


def drain(round_: Round) -> None:
    """Evict groups of drained queues, as long as not too many pods of a queue are on their way out."""
    by_queue: dict[str, list[GroupView]] = {}
    for group in round_.draining.values():
        by_queue.setdefault(group.queue, []).append(group)
    round_.shortages.are_all = round_.shortages.are_all and not by_queue  # the next ones go in another round
    for groups in by_queue.values():
        _drain_queue(round_, groups)


def _drain_queue(round_: Round, groups: Sequence[GroupView]) -> None:
    left = round_.limits.drain - sum(group.leaving for group in groups)
    for group in sorted(groups, key=_first_to_go):
        pods = round_.judge(_to_evict, group)
        if not pods:
            continue
        if left <= 0:
            return
        left -= len(pods)
        for pod in pods:
            victim = ReclaimVictim(
                pod.uid, pod.namespace, pod.name, group.key, group.queue, EvictionCause.DRAIN
            )
            round_.evictions[pod.uid] = Eviction(victim, f"{drained_by(round_, group)} is drained")


def _to_evict(_: Round, group: GroupView) -> Sequence[PodRecord]:
    """All its members, once none of them is on its way to a node."""
    return group.once(standing) if runs(group) and not group.pinned else ()


def _first_to_go(group: GroupView) -> tuple[bool, int, tuple[int, ...], str]:
    """A group that has begun to go is finished first; then the least important, then what ran shortest."""
    return (not group.leaving, group.priority, inverted(group.running_since), group.key)
