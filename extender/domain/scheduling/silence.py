"""Silence of the scheduler: when a planned node counts as one that it would not use.

Its own refusal has a short grace (its view may lag ours); silence a longer one, and the longer the more pods
it has before it. Silence counts while the scheduler asks for others. It patches no condition that did not
change, so a pod that it refused before may be unplaceable without any sign: that one's silence counts in the
end even if no other group wants anything.
"""

from typing import NamedTuple

from extender.domain.model.records import PodRecord
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

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
