"""Phase and state of a group, the numbers of its members by state, and its outcome."""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum, StrEnum, auto

import msgspec
from msgspec.structs import replace

from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.snapshot.group_info import GroupInfo, computed_once
from extender.domain.snapshot.wholeness import missing, whole


class Phase(StrEnum):
    """Phase of a group: Volcano's phases, and numbers of members."""

    PENDING = "Pending"  # it waits
    INQUEUE = "Inqueue"  # its members may be created, or it was admitted and is starting
    RUNNING = "Running"  # the members that it needs are on nodes, or have been
    UNKNOWN = "Unknown"  # some members run, and the rest have no node
    COMPLETED = "Completed"  # it has ended, successfully or not


class Life(msgspec.Struct, frozen=True, gc=False):
    phase: Phase = Phase.PENDING
    running: int = 0  # members in pod phase Running that are not being deleted
    succeeded: int = 0  # members in pod phase Succeeded
    failed: int = 0  # members in pod phase Failed
    outcome: Outcome | None = None  # how it ended; None while it has not
    in_queue: bool = True  # whether its queue counts it
    local_queue: str = ""  # the LocalQueue that counts it, too: namespace/name; empty: none does


# Phases are Volcano's, except where these mislead: a group of minMember 0 without members is not Completed;
# one whose failed members are being replaced has not ended; one that has fully run and lost members is
# Unknown only while the lost ones have no node, and never Pending while other members live. A group that
# lacks only members is Inqueue, because some operators create no pods for a Pending one (Kubeflow's training
# operator, Volcano's job controller).

_PHASES = {Verdict.WAITING: Phase.PENDING, Verdict.STARTING: Phase.INQUEUE}
_VERDICTS: Mapping[str, Verdict] = {
    **{phase: verdict for verdict, phase in _PHASES.items()},
    **dict.fromkeys((Phase.RUNNING, Phase.UNKNOWN), Verdict.RUNNING),
    **dict.fromkeys((Phase.COMPLETED, Outcome.FAILED, Outcome.ABORTED), Verdict.ENDED),
}
# Lives of groups without any member on a node, which are most: counted by their queue, and others.
_UNPLACED = {phase: Life(phase) for phase in _PHASES.values()}
_UNCOUNTED = {phase: Life(phase, in_queue=False) for phase in _PHASES.values()}


def reported_verdict(phase: str, reason: str) -> Verdict:
    """Return the verdict behind the status of a PodGroup.

    `reason`: that of its condition Scheduled. A phase of another controller's invention is Unknown.
    """
    if phase == Phase.INQUEUE and reason == Reason.NOT_ENOUGH_MEMBERS:
        return Verdict.WAITING
    return _VERDICTS.get(phase, Verdict.UNKNOWN)


def life_of(
    group: GroupInfo, verdict: Verdict, plan: Collection[Uid] = (), reason: Reason | None = None
) -> Life:
    """Return the phase and counts of a group, by the verdict, plan and reason of its decision."""
    lacks_members = verdict is Verdict.WAITING and reason is Reason.NOT_ENOUGH_MEMBERS
    # Inqueue without members, and until all exist: some operators create no members for a Pending group.
    are_made = lacks_members and (not group.has_pods or group.spec.reported_phase in ("", Phase.INQUEUE))
    unplaced = Phase.INQUEUE if are_made and group.min_member > 0 else _PHASES.get(verdict)
    if not (group.placed or group.leaving or group.failed or group.aborted) and unplaced is not None:
        life = (_UNPLACED if group.is_in_queue else _UNCOUNTED)[unplaced]
        return life if group.local_queue is None else replace(life, local_queue=_counted_in(group))
    outcome = None if plan else outcome_of(group)
    phase = _phase(group, unplaced, plan, outcome)
    numbers = group.running, group.succeeded, group.failed
    return Life(phase, *numbers, outcome, group.is_in_queue, _counted_in(group))


def _counted_in(group: GroupInfo) -> str:
    """Return the LocalQueue that counts the group; empty if none does."""
    return group.local_queue.key if group.local_queue is not None and group.is_in_queue else ""


def outcome_of(group: GroupInfo) -> Outcome | None:
    """Return how a group without members on nodes or on the way to one ended; None if it has not.

    A group has ended once enough members succeeded, even while members that it can do without wait.
    """
    if group.has_live_members or group.assumed:
        return None
    roles = Counter(pod.role for pod in group.placed) if group.succeeded else Counter()
    if group.succeeded and whole(group.needs, roles, group.succeeded):
        return Outcome.COMPLETED
    if group.waiting or group.held_back:
        return None
    if group.job.outcome is not None:
        return group.job.outcome
    if group.aborted:
        return Outcome.ABORTED
    return Outcome.FAILED if group.failed else None


def ended(group: GroupInfo) -> Outcome | None:
    """Return how the group ended; None if it has not, or has members left to start."""
    return None if group.waiting or group.held_back else outcome_of(group)


def ending_text(life: Life) -> str:
    """Return how a group ended, for users; empty if it has not."""
    if life.outcome is None or not (life.succeeded or life.failed):
        return ""
    return f"{life.succeeded} members succeeded, {life.failed} failed"


def is_ending(group: GroupInfo) -> bool:
    """Return whether a group that was whole is ending: members are being deleted and not replaced."""
    replaced = group.waiting or group.assumed or group.held_back
    return bool(group.leaving) and not replaced and len(group.placed) + group.leaving >= group.min_member


def _phase(group: GroupInfo, unplaced: Phase | None, plan: Collection[Uid], outcome: Outcome | None) -> Phase:
    """Return the phase of a group.

    Args:
        group: The group.
        unplaced: The phase, by the verdict, while too few members have been on nodes; None: by the plan.
        plan: The members with a planned node.
        outcome: How the group ended, if it has.
    """
    if outcome is not None and (group.succeeded or group.failed or group.job.outcome):
        return Phase.COMPLETED
    if group.running and _has_lost_members(group, plan):
        return Phase.UNKNOWN
    if group.has_live_members and _count_placed(group) >= group.min_member:
        return Phase.RUNNING
    if unplaced is not None:
        return unplaced
    is_coming = bool(plan or group.assumed)
    if group.has_live_members or (is_coming and group.placed):
        return Phase.RUNNING
    return Phase.INQUEUE if is_coming else Phase.PENDING


def _count_placed(group: GroupInfo) -> int:
    return len(group.placed) + group.leaving + group.failed


def _has_lost_members(group: GroupInfo, plan: Collection[Uid]) -> bool:
    """Return whether needed members are neither placed, nor on their way to a node, nor finished."""
    if group.is_whole or is_ending(group):
        return False
    wanted = [pod for pod in missing(group).members if not pod.reserved_for]
    assumed = {pod.uid for pod, _ in group.assumed}
    unplaced = any(pod.uid not in plan and pod.uid not in assumed for pod in wanted)
    return unplaced or _count_placed(group) + len(wanted) < group.min_member


class State(Enum):
    """State of a group, on which cycles, phases and plans are based: the first that applies counts."""

    ENDED = auto()  # no member is left on a node or on the way to one
    ENDING = auto()  # it was whole, members are being deleted, and none waits to replace them
    RESTING = auto()  # it fully runs, and no member waits to join it
    SETTLING = auto()  # fully running for too short a time to count as having fully run
    EMPTY = auto()  # it needs no members and has none
    STANDING = auto()  # members on nodes make it whole, or did before its needs grew; more members may join
    REPLACING = auto()  # it has fully run and lost members
    STARTING = auto()  # Muster admitted its start, and it is not whole yet
    WAITING = auto()  # all members that it lacks still have to be evaluated


_RUNS = (State.RESTING, State.SETTLING, State.STANDING, State.REPLACING)


def has_run(group: GroupInfo) -> bool:
    """Return whether a group is fully running, or was and replaces members."""
    return state_of(group) in _RUNS


@computed_once
def state_of(group: GroupInfo) -> State:
    """Return the state of a group, by which the cycle decides on it."""
    if ended(group) is not None:
        return State.ENDED
    if is_ending(group):
        return State.ENDING
    if group.is_whole and not (group.waiting or group.assumed):
        if group.stood_whole:
            return State.RESTING
        if group.placed and group.exists:
            return State.SETTLING
    if not (group.min_member or group.placed or group.assumed or group.waiting or group.leaving):
        return State.EMPTY
    if group.is_whole or group.is_whole_as_before:
        return State.STANDING
    if group.stood_whole:
        return State.REPLACING
    # Only an admission by Muster counts as a start. A pod that was created with a node name does not: all
    # other members could bypass the queue's state, order, share and ceiling. After a crash, the record on the
    # PodGroup proves the admission, unless the group has waited again since.
    resumes = group.history.resumes and (group.placed or group.job.is_unsuspended)
    return State.STARTING if group.start.admitted or group.assumed or resumes else State.WAITING
