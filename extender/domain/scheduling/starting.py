"""Groups whose start is under way, and groups that stood whole and lost members: they end whole, or are
undone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.scheduling.backoff import TOO_LATE, Retry, back_off, fail, retry_of, why_no_plan
from extender.domain.scheduling.flavors import flavors_in_use
from extender.domain.scheduling.obstacles import no_group, not_replaced, waits
from extender.domain.scheduling.plans import KeptPlan, all_that_join, as_many_as_join, keep_all
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.quorum import lost, missing, start_begun

# ---- Groups whose start is under way: they keep their plan while it holds, get a new one where it
# broke, and end whole, or undone.
#
# A group that never stood whole is completed first; if that fails within its deadline, its bound
# members are undone by eviction and it backs off.

_TAKEN = "the room planned for the group was taken by others"


def keep_starts(round_: Round, groups: Iterable[GroupView]) -> list[KeptPlan]:
    """What holds of the plans of starts that go on. The others are settled."""
    in_order = sorted(groups, key=_oldest_start_first)
    return keep_all(round_, [group for group in in_order if round_.judge(_goes_on, group)])


def complete(round_: Round, starts: Iterable[KeptPlan]) -> None:
    """Plan what misses."""
    for kept in starts:
        decision = round_.judge(_complete, kept.group, kept, held=kept.plan)
        if decision is not None:
            round_.settle(decision)


def _oldest_start_first(group: GroupView) -> tuple[float, tuple[int, str, str]]:
    return (group.start.admitted_at or 0.0, group.order)


# ---- whether it goes on


def _goes_on(round_: Round, group: GroupView) -> bool:
    """Whether a start may still come to its end; settled if it ends here, or no member can join it."""
    ending = _ending(round_, group)
    if ending is not None:
        round_.settle(ending)
    return ending is None


def _ending(round_: Round, group: GroupView) -> GroupDecision | None:
    if group.start.admitted_at is None and round_.snapshot.now < group.start.retry_at:
        return back_off(round_, group)
    begun = start_begun(group, round_.snapshot)
    if begun is not None and round_.is_due(begun + _patience(round_, group)):
        return fail(round_, group, TOO_LATE)
    if not group.exists:  # no member joins, and at the deadline the start is undone
        reason = Reason.GROUP_NOT_FOUND
        return GroupDecision(group.key, group.queue, Verdict.STARTING, reason, no_group(group))
    return None


def _patience(round_: Round, group: GroupView) -> float:
    """The scheduler may be working on all missing members: their volumes may take until the bind deadline."""
    wanted, pinned = missing(group), {pod.uid for pod, _ in group.pinned}
    all_answered = not wanted.absent and all(pod.uid in pinned for pod in wanted.members)
    return round_.limits.start_deadline if all_answered else round_.limits.deadline(group.min_member)


# ---- completing it


def _complete(round_: Round, group: GroupView, kept: KeptPlan) -> GroupDecision:
    """What cannot be planned ends the start, unless members are bound already (those are worth waiting for
    until the deadline) or the start is young (room may come back at once)."""
    absent = missing(group).absent
    if group.start.admitted_at is None and (above := _above_ceiling(round_, kept)):
        round_.budget.release(group, kept.plan)
        return fail(round_, group, above)
    more = _place_missing(round_, kept) if kept.unplanned else {}
    if (more is None or absent) and not group.placed:
        if not group.pinned:
            round_.budget.release(group, {**kept.plan, **(more or {})})
            return _never_began(round_, kept, absent)
        if _is_stalled(round_, group):
            return fail(round_, group, absent or why_no_plan(kept))
    kept.add(more or {})
    detail = absent or (why_no_plan(kept) if more is None else "")
    plan, moved = kept.plan, kept.moved
    return GroupDecision(group.key, group.queue, Verdict.STARTING, None, detail, plan=plan, moved=moved)


def _place_missing(round_: Round, kept: KeptPlan) -> dict[Uid, str] | None:
    pods = all_that_join(round_.budget, kept.group, kept.unplanned, kept.plan)
    return None if pods is None else round_.budget.place(kept.group, pods)


def _above_ceiling(round_: Round, kept: KeptPlan) -> str:
    """How the rest of an interrupted start would exceed the queue's ceiling or a limit; empty if it does
    not."""
    asked, budget = requests_of(Counter(pod.shape for pod in kept.unplanned)), round_.budget
    if (excess := budget.running.excess(kept.group, len(kept.unplanned))) is not None:
        return excess.text
    above = budget.shares.above_ceiling(kept.group.queue, asked)
    return above and f"queue {kept.group.queue}: {above}"


def _never_began(round_: Round, kept: KeptPlan, absent: str) -> GroupDecision:
    """Nothing is held yet: the group simply waits again, backing off only if the scheduler refused it."""
    if kept.moved:
        return fail(round_, kept.group, why_no_plan(kept), kept.moved)
    if absent:
        return waits(kept.group, Reason.NOT_ENOUGH_MEMBERS, absent)
    return waits(kept.group, Reason.NO_ROOM, _TAKEN)


def _is_stalled(round_: Round, group: GroupView) -> bool:
    begun = start_begun(group, round_.snapshot)
    return begun is not None and round_.is_due(begun + round_.limits.stall_grace)


# ---- Groups that stood whole and lost members: nothing is undone, replacements start one by one.
#
# They have the first claim on room, before all groups that wait. For places in the window they come
# after the gangs: a replacement that the scheduler refuses again and again would shut all of them out.
# Replacements that are refused back off.
#
# What a group needs beyond what it stood whole with, since its minMember was raised, is no replacement:
# those members come as elastic ones do, once the lost are replaced.


def keep_replacements(round_: Round, groups: Iterable[GroupView]) -> list[KeptPlan]:
    return keep_all(round_, sorted(groups, key=lambda group: group.order))


def reserve(round_: Round, replacing: Iterable[KeptPlan]) -> list[tuple[KeptPlan, dict[Uid, str]]]:
    """Take room for replacements that have none yet; they start once the gangs had their turn."""
    reserved = [(kept, round_.judge(_reserve, kept.group, kept, held=kept.plan)) for kept in replacing]
    return [(kept, more) for kept, more in reserved if more is not None]


def replace(round_: Round, reserved: Iterable[tuple[KeptPlan, dict[Uid, str]]]) -> None:
    """Start as many as there are places in the window."""
    for kept, more in reserved:
        decision = round_.judge(_replace, kept.group, kept, more, held=kept.plan)
        if decision is not None:
            round_.settle(decision)


def _reserve(round_: Round, group: GroupView, kept: KeptPlan) -> dict[Uid, str]:
    retry = retry_of(round_, kept)
    if retry.waits or not kept.unplanned or not_replaced(round_, group):
        return {}
    within_ceiling = _as_many_as(round_, group, kept.unplanned)
    in_use = flavors_in_use(round_.budget.flavors, group, kept.plan)
    joining = as_many_as_join(round_.budget, group, within_ceiling, in_use, is_lent=True)
    return round_.budget.reserve(group, joining.pods)


def _replace(round_: Round, group: GroupView, kept: KeptPlan, more: dict[Uid, str]) -> GroupDecision:
    window, retry = round_.budget.window, retry_of(round_, kept)
    started = dict(islice(more.items(), window.places))
    window.take(len(started))
    kept.add(started)
    reason, detail = _why_not_all(round_, kept, len(more) - len(started), retry)
    return GroupDecision(
        group.key,
        group.queue,
        Verdict.RUNNING,
        reason,
        detail,
        plan=kept.plan,
        failed=retry.failed,
        retry_at=retry.at,
        moved=kept.moved,
        stood_whole=True,
    )


def _why_not_all(
    round_: Round, kept: KeptPlan, without_place: int, retry: Retry
) -> tuple[Reason | None, str]:
    """Why members have no node yet, and the detail."""
    absent = lost(kept.group).absent
    if not kept.left():
        return None, absent
    if (kept_back := not_replaced(round_, kept.group)) is not None:
        return kept_back.reason, kept_back.detail
    if retry.waits:
        return Reason.BACKING_OFF, kept.group.start.failure
    return Reason.WINDOW_FULL if without_place else Reason.NO_ROOM, absent


def _as_many_as(round_: Round, group: GroupView, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """The first of `pods` that the queue's limits and ceiling admit."""
    pods = pods[: round_.budget.running.headroom(group)]
    admitted: list[PodRecord] = []
    shapes: Counter[Shape] = Counter()
    for pod in pods:
        shapes[pod.shape] += 1
        if round_.budget.shares.above_ceiling(group.queue, requests_of(shapes)):
            break
        admitted.append(pod)
    return admitted
