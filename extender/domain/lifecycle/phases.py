"""The phase of a group, how many of its members are in which state, and how it ended.

The phases are Volcano's, derived from the decision and from where the members are. They differ where
Volcano's are misleading: a group of minMember 0 without members is not Completed; one whose failed members
are being replaced has not ended; one that stood whole and lost members is Unknown only while the lost ones
have no node, and never Pending again while other members live. A group that lacks nothing but members is
Inqueue, because some operators create no pods for a Pending one (Kubeflow's training operator, Volcano's job
controller).
"""

from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from extender.domain.lifecycle.quorum import missing, whole
from extender.domain.model.life import Life, Phase
from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.snapshot.group_view import GroupView

_PHASES = {Verdict.WAITING: Phase.PENDING, Verdict.STARTING: Phase.INQUEUE}
_UNBORN = {phase: Life(phase) for phase in _PHASES.values()}
_OUTSIDE = {phase: Life(phase, in_queue=False) for phase in _PHASES.values()}


def life_of(
    group: GroupView, verdict: Verdict, plan: Collection[Uid] = (), reason: Reason | None = None
) -> Life:
    """`verdict`, `plan` and `reason` are those of the group's decision."""
    unplaced = _unplaced(group, verdict, reason)
    if not (group.placed or group.leaving or group.failed or group.aborted) and unplaced is not None:
        unborn = (_UNBORN if group.is_in_queue else _OUTSIDE)[unplaced]
        return unborn if group.local_queue is None else replace(unborn, local_queue=_counted_in(group))
    outcome = None if plan else outcome_of(group)
    phase = _phase(group, unplaced, plan, outcome)
    numbers = group.running, group.succeeded, group.failed
    return Life(phase, *numbers, outcome, group.is_in_queue, _counted_in(group))


def _counted_in(group: GroupView) -> str:
    """The LocalQueue that counts it; empty if none does."""
    return group.local_queue.key if group.local_queue is not None and group.is_in_queue else ""


def _unplaced(group: GroupView, verdict: Verdict, reason: Reason | None) -> Phase | None:
    """The phase of a group that waits or starts, by the decision alone; None for other verdicts."""
    lacks_members = verdict is Verdict.WAITING and reason is Reason.NOT_ENOUGH_MEMBERS
    return Phase.INQUEUE if lacks_members and _may_have_them_made(group) else _PHASES.get(verdict)


def _may_have_them_made(group: GroupView) -> bool:
    """Whether the group's operator is to create members, some of which create none for a Pending group: while
    it has none, and then until it has all."""
    return group.min_member > 0 and (not group.has_pods or group.reported_phase in ("", Phase.INQUEUE))


def outcome_of(group: GroupView) -> Outcome | None:
    """How a group without members on nodes or on the way to one ended; None if it has not.

    A group of which enough members succeeded has ended, even while members that it can do without wait.
    """
    if group.lives or group.pinned:
        return None
    if group.succeeded and _succeeded(group):
        return Outcome.COMPLETED
    if group.waiting or group.held_back:
        return None
    if group.job_outcome is not None:
        return group.job_outcome
    if group.aborted:
        return Outcome.ABORTED
    return Outcome.FAILED if group.failed else None


def ended(group: GroupView) -> Outcome | None:
    """How the group ended; None if it has not, or has members left to start."""
    return None if group.waiting or group.held_back else outcome_of(group)


def ending(life: Life) -> str:
    """How a group ended, for people; empty if it has not."""
    if life.outcome is None or not (life.succeeded or life.failed):
        return ""
    return f"{life.succeeded} members succeeded, {life.failed} failed"


def is_ending(group: GroupView) -> bool:
    """Whether a group that was whole is ending: members are being deleted, and none waits to replace them."""
    replaced = group.waiting or group.pinned or group.held_back
    return bool(group.leaving) and not replaced and len(group.placed) + group.leaving >= group.min_member


def _succeeded(group: GroupView) -> bool:
    roles = Counter(pod.role for pod in group.placed)
    return whole(group.min_member, group.min_task_member, roles, group.succeeded)


def _phase(group: GroupView, unplaced: Phase | None, plan: Collection[Uid], outcome: Outcome | None) -> Phase:
    if outcome is not None and (group.succeeded or group.failed or group.job_outcome):
        return Phase.COMPLETED
    if group.running and _lost(group, plan):
        return Phase.UNKNOWN
    if group.lives and _were_placed(group) >= group.min_member:
        return Phase.RUNNING
    if unplaced is not None:
        return unplaced
    coming = bool(plan or group.pinned)
    if group.lives or (coming and group.placed):
        return Phase.RUNNING
    return Phase.INQUEUE if coming else Phase.PENDING


def _were_placed(group: GroupView) -> int:
    return len(group.placed) + group.leaving + group.failed


def _lost(group: GroupView, plan: Collection[Uid]) -> bool:
    """Whether needed members are neither placed, nor on their way to a node, nor finished."""
    if group.stands or is_ending(group):
        return False
    wanted = missing(group)
    pinned = {pod.uid for pod, _ in group.pinned}
    unplaced = any(pod.uid not in plan and pod.uid not in pinned for pod in wanted.members)
    return unplaced or _were_placed(group) + len(wanted.members) < group.min_member
