"""Draining queues whose stopPolicy is HoldAndDrain: their groups are evicted whole, a few at a time."""

from collections.abc import Iterable

from extender.domain.lifecycle.state import State, state_of
from extender.domain.model.evictions import Eviction, EvictionCause, ReclaimVictim
from extender.domain.reclaim.units import running_since, standing
from extender.domain.scheduling.giving_back import is_drained
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

_ON_NODES = (State.RESTING, State.STANDING, State.REPLACING)


def drain(round_: Round) -> None:
    """Evict groups of drained queues, as long as not too many pods of a queue are on their way out."""
    by_queue: dict[str, list[GroupView]] = {}
    for group in round_.snapshot.groups.values() if round_.drained else ():
        if round_.judge(_is_to_go, group):
            by_queue.setdefault(group.queue, []).append(group)
    round_.shortages.are_all = round_.shortages.are_all and not by_queue  # the next ones go in another round
    for groups in by_queue.values():
        _drain_queue(round_, groups)


def _drain_queue(round_: Round, groups: Iterable[GroupView]) -> None:
    groups = list(groups)
    left = round_.limits.drain - sum(group.leaving for group in groups)
    for group in sorted(groups, key=_first_to_go):
        pods = group.once(standing)
        if not pods or group.pinned or state_of(group) not in _ON_NODES:
            continue
        if left <= 0:
            return
        left -= len(pods)
        for pod in pods:
            victim = ReclaimVictim(
                pod.uid, pod.namespace, pod.name, group.key, group.queue, EvictionCause.DRAIN
            )
            round_.evictions[pod.uid] = Eviction(victim, f"queue {group.queue} is drained")


def _is_to_go(round_: Round, group: GroupView) -> bool:
    return is_drained(round_, group) and _first_to_go(group) is not None


def _first_to_go(group: GroupView) -> tuple[bool, int, tuple[int, ...], str]:
    """A group that has begun to go is finished first; then the least important, then what ran shortest."""
    newest_first = tuple(-ord(letter) for letter in group.once(running_since))
    return (not group.leaving, group.priority, newest_first, group.key)
