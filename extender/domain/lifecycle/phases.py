"""Where a group is in its life: its phase, how many of its members do what, and how it ended.

The phases are Volcano's, worked out from what decide() says and where the members are. What misleads there is
mended: a group of minMember 0 without members is not Completed; one whose failed members are being replaced
has not ended; one that stood whole and lost members is Unknown only while the lost ones have no place, and
never Pending again while others of it live. A group that lacks nothing but members is Inqueue: there are
operators that make no pods for one that is Pending (Kubeflow's training operator, Volcano's job controller).
"""

from collections import Counter
from collections.abc import Collection

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
    """`verdict`, `plan` and `reason` are what was decided for the group."""
    unplaced = _unplaced(group, verdict, reason)
    if not (group.placed or group.leaving or group.failed or group.aborted) and unplaced is not None:
        return (_UNBORN if group.is_in_queue else _OUTSIDE)[unplaced]
    outcome = None if plan else outcome_of(group)
    phase = _phase(group, unplaced, plan, outcome)
    return Life(phase, group.running, group.succeeded, group.failed, outcome, group.is_in_queue)


def _unplaced(group: GroupView, verdict: Verdict, reason: Reason | None) -> Phase | None:
    """The phase of a group that waits or starts, as far as the decision alone says it."""
    lacks_members = verdict is Verdict.WAITING and reason is Reason.NOT_ENOUGH_MEMBERS
    return Phase.INQUEUE if lacks_members and _may_have_them_made(group) else _PHASES.get(verdict)


def _may_have_them_made(group: GroupView) -> bool:
    """Whether its operator is to make members: while none is there, and until all are. Some make none for a
    group that is Pending."""
    nobody = not (group.placed or group.pinned or group.waiting or group.held_back or group.leaving)
    return group.min_member > 0 and (nobody or group.told_phase in ("", Phase.INQUEUE))


def outcome_of(group: GroupView) -> Outcome | None:
    """How a group ended of which nobody is left on a node or on the way to one; None while it goes on.

    Enough members that succeeded are an end, also while members wait that it can do without.
    """
    if group.lives or group.pinned:
        return None
    if group.succeeded and _succeeded(group):
        return Outcome.COMPLETED
    if group.waiting or group.held_back:
        return None
    if group.aborted:
        return Outcome.ABORTED
    return Outcome.FAILED if group.failed else None


def ended(group: GroupView) -> Outcome | None:
    """How the group ended; None while it goes on, or has members left to start."""
    return None if group.waiting or group.held_back else outcome_of(group)


def ending(life: Life) -> str:
    """How a group ended, in words; empty while it goes on."""
    if life.outcome is None:
        return ""
    return f"{life.succeeded} members succeeded, {life.failed} failed"


def is_ending(group: GroupView) -> bool:
    """Whether a group that was whole is on its way out: members go, and nobody waits to replace them."""
    replaced = group.waiting or group.pinned or group.held_back
    return bool(group.leaving) and not replaced and len(group.placed) + group.leaving >= group.min_member


def _succeeded(group: GroupView) -> bool:
    roles = Counter(pod.role for pod in group.placed)
    return whole(group.min_member, group.min_task_member, roles, group.succeeded)


def _phase(group: GroupView, unplaced: Phase | None, plan: Collection[Uid], outcome: Outcome | None) -> Phase:
    if outcome is not None and (group.succeeded or group.failed):
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
    """Whether what the group needs neither stands, nor is on its way, nor has had its run."""
    if group.stands or is_ending(group):
        return False
    wanted = missing(group)
    pinned = {pod.uid for pod, _ in group.pinned}
    unplaced = any(pod.uid not in plan and pod.uid not in pinned for pod in wanted.members)
    return unplaced or _were_placed(group) + len(wanted.members) < group.min_member
