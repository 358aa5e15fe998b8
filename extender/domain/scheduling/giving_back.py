"""Groups that give all their room back: nothing of them is replaced, and nothing joins them, until the last
member is gone. What their owners make in their place starts as a gang again."""

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.state import runs
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.reclaim.units import standing
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView


def giving_back(round_: Round, group: GroupView) -> GroupDecision | None:
    """What is decided on a group that gives all its room back; None for others."""
    if not (round_.draining or round_.promised):
        return None
    why = why_it_gives_back(round_, group) if runs(group) else ""
    if not why:
        return None
    blocking = Reason.QUEUE_STOPPED if is_drained(round_, group) else Reason.BEHIND_OTHERS
    reason = blocking if group.waiting else None
    return GroupDecision(group.key, group.queue, Verdict.RUNNING, reason, why, stood_whole=group.stood_whole)


def why_it_gives_back(round_: Round, group: GroupView) -> str:
    """For people; empty where it does not give all its room back."""
    if is_drained(round_, group):
        return f"all its members are being evicted: {drained_by(round_, group)} is drained"
    pods = group.once(standing) if round_.promised and group.placed else ()
    claimants = {round_.promised.get(pod.uid) for pod in pods}
    if not claimants or None in claimants:
        return ""
    return f"all its members are being evicted: their room is for {', '.join(sorted(map(str, claimants)))}"


def is_drained(round_: Round, group: GroupView) -> bool:
    return group.key in round_.draining


def drained_by(round_: Round, group: GroupView) -> str:
    """Which queue or LocalQueue gives its room back, for people."""
    local = group.local_queue
    if local is None or group.queue in round_.drained:
        return f"queue {group.queue}"
    return f"LocalQueue {local.key}"
