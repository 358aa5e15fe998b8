"""What a waiting group probably lacks because of a name: its queue, or pods that name another group."""

from collections import Counter
from collections.abc import Collection, Sequence

from extender.domain.model.reasons import Reason
from extender.sim.show.gangs import Gang
from extender.sim.show.loose_pods import LoosePod
from extender.terminal.near_misses import did_you_mean, names_in, near_miss, near_misses, pods_that_name


def hint_for(gang: Gang, groups: Collection[str], queues: Collection[str], loose: Sequence[LoosePod]) -> str:
    """A sentence; empty where nothing suggests one. `groups`: the keys of all."""
    if gang.summary.reason == Reason.QUEUE_NOT_FOUND:
        meant = did_you_mean(near_misses(gang.summary.queue, queues, 1))
        return meant[:1].upper() + meant[1:]
    if gang.summary.reason == Reason.NOT_ENOUGH_MEMBERS:
        return _of_another_scheduler(gang, loose) or _of_another_name(gang, groups, loose)
    return ""


def _of_another_scheduler(gang: Gang, loose: Sequence[LoosePod]) -> str:
    found = Counter(
        pod.scheduler
        for pod in loose
        if pod.group == gang.summary.name and pod.namespace == gang.summary.namespace
    )
    counted = [f"{pods_that_name(count)} it with schedulerName {name}" for name, count in found.items()]
    return f"{' and '.join(counted)}, which is not Muster's." if counted else ""


def _of_another_name(gang: Gang, groups: Collection[str], loose: Sequence[LoosePod]) -> str:
    """Pods whose group does not exist, and is like this one or has its name in another namespace."""
    namespace, name = gang.summary.namespace, gang.summary.name
    known = names_in(namespace, groups)
    named = Counter(pod.missing_group for pod in loose if pod.missing_group and pod.namespace == namespace)
    for wrong, count in named.items():
        if near_miss(wrong, known) == name:
            return f"{pods_that_name(count)} {wrong}: did you mean {name}?"
    elsewhere = Counter(pod.namespace for pod in loose if pod.missing_group == name)
    for other, count in elsewhere.items():
        return f"{pods_that_name(count)} it in namespace {other}, where there is no such group."
    return ""
