"""Groups that stood whole and lost members: nothing is undone, replacements start one by one.

They have the first claim on room, before all groups that wait. For places in the window they come after the
gangs: a replacement that the scheduler refuses again and again would shut all of them out. Replacements that
are refused back off.

What a group needs beyond what it stood whole with, since its minMember was raised, is no replacement: those
members come as elastic ones do, once the lost are replaced.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.flavors.roles import flavors_in_use
from extender.domain.lifecycle.quorum import lost
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.scheduling.backoff import Retry, retry_of
from extender.domain.scheduling.joining import as_many_as_join
from extender.domain.scheduling.kept_plans import KeptPlan, keep_all
from extender.domain.scheduling.obstacles import not_replaced
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView


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
