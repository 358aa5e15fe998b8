"""Groups whose start is under way: they keep their plan while it holds, get a new one where it broke, and end
whole, or undone.

A group that never stood whole is completed first; if that fails within its deadline, its bound members are
undone by eviction and it backs off. A group that once stood whole is never undone: it waits for replacements.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.quorum import missing
from extender.domain.lifecycle.start_clock import start_begun
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.scheduling.keeping import Kept, keep_all
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView

_TOO_LATE = "the group did not stand whole within its deadline"


def go_on(round_: Round, under_way: Iterable[GroupView], replacing: Iterable[GroupView]) -> None:
    """First everybody keeps what still holds, then is planned again what broke: nobody's plan is robbed."""
    going_on = [each for each in sorted(under_way, key=_oldest_start_first) if not _ends(round_, each)]
    kept_starts = keep_all(round_, going_on)
    kept_replacements = keep_all(round_, sorted(replacing, key=lambda group: group.order))
    for kept in kept_starts:
        round_.settle(_complete(round_, kept))
    for kept in kept_replacements:
        round_.settle(_replace(round_, kept))


def _oldest_start_first(group: GroupView) -> tuple[float, tuple[int, str, str]]:
    return (group.start.admitted_at or 0.0, group.order)


def _ends(round_: Round, group: GroupView) -> bool:
    """Settle a start that ends here, or that nobody can join any more."""
    now, start = round_.snapshot.now, group.start
    if start.admitted_at is None and now < start.retry_at:
        round_.settle(_undo(round_, group))
        return True
    begun = start_begun(group, round_.snapshot)
    if begun is not None and round_.is_due(begun + _patience(round_, group)):
        round_.settle(_fail(round_, group, _TOO_LATE))
        return True
    if not group.exists:
        round_.settle(_without_its_group(group))
    return not group.exists


def _patience(round_: Round, group: GroupView) -> float:
    limits = round_.limits
    return limits.start_deadline if _all_answered(group) else limits.deadline(group.min_member)


def _all_answered(group: GroupView) -> bool:
    """Whether the scheduler is at work on all members that still miss: their volumes may take until the bind
    deadline."""
    wanted, pinned = missing(group), {pod.uid for pod, _ in group.pinned}
    return not wanted.absent and all(pod.uid in pinned for pod in wanted.members)


def _without_its_group(group: GroupView) -> GroupDecision:
    """The PodGroup went during the start: nobody joins, and at the deadline the start is undone."""
    reason, detail = Reason.GROUP_NOT_FOUND, no_group(group)
    return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, detail)


def no_group(group: GroupView) -> str:
    return f"PodGroup {group.key} does not exist"


def _complete(round_: Round, kept: Kept) -> GroupDecision:
    """Plan what misses. What cannot be planned ends the start, unless members are bound already (those are
    worth waiting for until the deadline) or the start is young (room may come back at once)."""
    group, absent = kept.group, missing(kept.group).absent
    more = round_.space.place(kept.unplanned) if kept.unplanned else {}
    if (more is None or absent) and not group.placed:
        if not group.pinned:
            kept.give_back(round_)
            if more:
                round_.space.give_back(kept.unplanned, more)
            return _never_began(round_, kept, absent)
        if _stalled(round_, group):
            return _fail(round_, group, absent or _why_no_plan(kept))
    plan = kept.take_part(round_, more or {})
    detail = absent or (_why_no_plan(kept) if more is None else "")
    return GroupDecision(group.key, group.queue, Verdict.STARTING, None, detail, plan=plan, moved=kept.moved)


def _never_began(round_: Round, kept: Kept, absent: str) -> GroupDecision:
    """Nothing is held yet: the group simply waits again, backing off only if the scheduler refused it."""
    group = kept.group
    if kept.moved:
        return _fail(round_, group, _why_no_plan(kept), kept.moved)
    if absent:
        return GroupDecision(group.key, group.queue, Verdict.WAITING, Reason.NOT_ENOUGH_MEMBERS, absent)
    taken = "the room planned for the group was taken by others"
    return GroupDecision(group.key, group.queue, Verdict.WAITING, Reason.NO_ROOM, taken)


def _stalled(round_: Round, group: GroupView) -> bool:
    begun = start_begun(group, round_.snapshot)
    return begun is not None and round_.is_due(begun + round_.limits.stall_grace)


def _why_no_plan(kept: Kept) -> str:
    refusals = kept.group.refusals
    words = [refusals[pod.uid].words for pod in kept.unplanned if pod.uid in refusals]
    if words:
        return words[0]
    if kept.moved:
        return "the scheduler did not use the planned nodes in time"
    return "no room for the members that still miss"


def _replace(round_: Round, kept: Kept) -> GroupDecision:
    """Replacements start one by one, as many as find room: the group has stood, nothing is held back."""
    group = kept.group
    within_ceiling = _as_many_as(round_, group, kept.unplanned)
    more = round_.space.place(within_ceiling, partly=True) or {}
    plan = kept.take_part(round_, more)
    reason = Reason.NO_ROOM if len(more) < len(kept.unplanned) else None
    detail = missing(group).absent
    return GroupDecision(group.key, group.queue, Verdict.RUNNING, reason, detail, plan=plan, moved=kept.moved)


def _as_many_as(round_: Round, group: GroupView, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """The first of `pods` that the queue's ceiling admits."""
    admitted: list[PodRecord] = []
    shapes: Counter[Shape] = Counter()
    for pod in pods:
        shapes[pod.shape] += 1
        if round_.over_ceiling(group.queue, requests_of(shapes)):
            break
        admitted.append(pod)
    return admitted


def _fail(round_: Round, group: GroupView, why: str, moved: dict[Uid, str] | None = None) -> GroupDecision:
    """End a start that did not stand whole: its claims are free at once, bound members are undone."""
    retry_at = round_.snapshot.now + round_.limits.retry_after(group.start.failures)
    round_.wake_at.append(retry_at)
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.WAITING,
        Reason.BACKING_OFF,
        why,
        undo=_bound(group),
        failed=why,
        retry_at=retry_at,
        moved=moved or {},
    )


def _undo(round_: Round, group: GroupView) -> GroupDecision:
    round_.wake_at.append(group.start.retry_at)
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.WAITING,
        Reason.BACKING_OFF,
        group.start.failure,
        undo=_bound(group),
        retry_at=group.start.retry_at,
    )


def _bound(group: GroupView) -> tuple[Uid, ...]:
    return tuple(pod.uid for pod in group.placed if pod.node)
