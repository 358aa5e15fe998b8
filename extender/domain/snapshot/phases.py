"""Phase and state of a group, the numbers of its members by state, and its outcome."""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum, StrEnum, auto

import msgspec
from msgspec.structs import replace

from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.snapshot.group_info import GroupInfo, computed_once
from extender.domain.snapshot.wholeness import is_whole_with, missing


class Phase(StrEnum):
    """Phase of a group, for the status of its PodGroup.

    The phases follow Volcano, except where Volcano's phases mislead:

    - A group of minMember 0 without members is not Completed.
    - A group whose failed members are being replaced has not ended.
    - A group that has fully run and lost members is Unknown only while replacements have no node.
    - A group is never Pending while any of its members lives.
    - A group that lacks only members is Inqueue, because Kubeflow's training operator and Volcano's job
      controller create no pods for a Pending group.
    """

    PENDING = "Pending"  # the group waits
    INQUEUE = "Inqueue"  # its members may be created, or its start was admitted
    RUNNING = "Running"  # the members that the group needs are or were on nodes
    UNKNOWN = "Unknown"  # some members run, and other needed members have no node
    COMPLETED = "Completed"  # the group has ended, successfully or not


class Life(msgspec.Struct, frozen=True, gc=False):
    """Phase of a group, with its member counts and its outcome."""

    phase: Phase = Phase.PENDING
    running: int = 0  # members in pod phase Running that are not being deleted
    succeeded: int = 0  # members in pod phase Succeeded
    failed: int = 0  # members in pod phase Failed
    outcome: Outcome | None = None  # how the group ended; None: not ended
    in_queue: bool = True  # whether its queue counts the group
    local_queue: str = ""  # LocalQueue that also counts the group, as namespace/name; empty: no LocalQueue


_PHASE_BY_VERDICT = {Verdict.WAITING: Phase.PENDING, Verdict.STARTING: Phase.INQUEUE}
_VERDICT_BY_PHASE: Mapping[str, Verdict] = {
    **{phase: verdict for verdict, phase in _PHASE_BY_VERDICT.items()},
    **dict.fromkeys((Phase.RUNNING, Phase.UNKNOWN), Verdict.RUNNING),
    **dict.fromkeys((Phase.COMPLETED, Outcome.FAILED, Outcome.ABORTED), Verdict.ENDED),
}
# Shared values for the many groups without members on nodes: counted by their queue, or not.
_COUNTED_LIVES = {phase: Life(phase) for phase in _PHASE_BY_VERDICT.values()}
_UNCOUNTED_LIVES = {phase: Life(phase, in_queue=False) for phase in _PHASE_BY_VERDICT.values()}


def reported_verdict(phase: str, reason: str) -> Verdict:
    """Return the verdict that the status of a PodGroup stands for.

    A phase that another controller has invented counts as Unknown.

    Args:
        phase: The phase in the status.
        reason: The reason of the condition Scheduled in the status.
    """
    if phase == Phase.INQUEUE and reason == Reason.NOT_ENOUGH_MEMBERS:
        return Verdict.WAITING
    return _VERDICT_BY_PHASE.get(phase, Verdict.UNKNOWN)


def life_of(
    group: GroupInfo, verdict: Verdict, plan: Collection[Uid] = (), reason: Reason | None = None
) -> Life:
    """Return the phase and member counts of a group, by the verdict, plan and reason of its decision."""
    lacks_members = verdict is Verdict.WAITING and reason is Reason.NOT_ENOUGH_MEMBERS
    # A group is Inqueue until all members exist: some operators create no members for a Pending group.
    is_inqueue = lacks_members and (not group.has_pods or group.spec.reported_phase in ("", Phase.INQUEUE))
    fallback = Phase.INQUEUE if is_inqueue and group.min_member > 0 else _PHASE_BY_VERDICT.get(verdict)
    has_counts = group.placed_pods or group.leaving_count or group.failed
    if not (has_counts or group.is_aborted) and fallback is not None:
        life = (_COUNTED_LIVES if group.is_in_queue else _UNCOUNTED_LIVES)[fallback]
        return life if group.local_queue is None else replace(life, local_queue=_counting_local_queue(group))
    outcome = None if plan else outcome_of(group)
    phase = _phase(group, fallback, plan, outcome)
    member_counts = group.running, group.succeeded, group.failed
    return Life(phase, *member_counts, outcome, group.is_in_queue, _counting_local_queue(group))


def _counting_local_queue(group: GroupInfo) -> str:
    """Return the LocalQueue that counts the group; empty if none does."""
    return group.local_queue.key if group.local_queue is not None and group.is_in_queue else ""


def outcome_of(group: GroupInfo) -> Outcome | None:
    """Return how a group ended; None if it has not ended.

    A group with members on nodes, or on the way to nodes, has not ended. A group has ended once enough
    members succeeded, even if further members wait that the group does not need.
    """
    if group.has_live_members or group.assumed_pods:
        return None
    roles = Counter(pod.role for pod in group.placed_pods) if group.succeeded else Counter()
    if group.succeeded and is_whole_with(group.needs, roles, group.succeeded):
        return Outcome.COMPLETED
    if group.waiting_pods or group.held_back_count:
        return None
    if group.job.outcome is not None:
        return group.job.outcome
    if group.is_aborted:
        return Outcome.ABORTED
    return Outcome.FAILED if group.failed else None


def final_outcome(group: GroupInfo) -> Outcome | None:
    """Return how the group ended; None if it has not ended, or if any member still waits to start."""
    return None if group.waiting_pods or group.held_back_count else outcome_of(group)


def ending_text(life: Life) -> str:
    """Return how a group ended, for users; empty if it has not."""
    if life.outcome is None or not (life.succeeded or life.failed):
        return ""
    return f"{life.succeeded} members succeeded, {life.failed} failed"


def is_ending(group: GroupInfo) -> bool:
    """Return whether a whole group is ending: some members are being deleted, and no member replaces them."""
    has_replacements = group.waiting_pods or group.assumed_pods or group.held_back_count
    member_count = len(group.placed_pods) + group.leaving_count
    return group.leaving_count > 0 and not has_replacements and member_count >= group.min_member


def _phase(group: GroupInfo, fallback: Phase | None, plan: Collection[Uid], outcome: Outcome | None) -> Phase:
    """Return the phase of a group.

    Args:
        group: The group.
        fallback: The phase by the verdict, for a group with too few members on nodes. None means that the
            plan decides.
        plan: The members with a planned node.
        outcome: How the group ended, if it has ended.
    """
    if outcome is not None and (group.succeeded or group.failed or group.job.outcome):
        return Phase.COMPLETED
    if group.running and _has_lost_members(group, plan):
        return Phase.UNKNOWN
    if group.has_live_members and _count_placed(group) >= group.min_member:
        return Phase.RUNNING
    if fallback is not None:
        return fallback
    has_planned_members = bool(plan or group.assumed_pods)
    if group.has_live_members or (has_planned_members and group.placed_pods):
        return Phase.RUNNING
    return Phase.INQUEUE if has_planned_members else Phase.PENDING


def _count_placed(group: GroupInfo) -> int:
    """Return the number of members that are or were on nodes; departing and failed members count."""
    return len(group.placed_pods) + group.leaving_count + group.failed


def _has_lost_members(group: GroupInfo, plan: Collection[Uid]) -> bool:
    """Return whether needed members are neither placed, nor on the way to a node, nor finished."""
    if group.is_whole or is_ending(group):
        return False
    missing_members = [pod for pod in missing(group).members if not pod.reserved_for]
    assumed_uids = {pod.uid for pod, _ in group.assumed_pods}
    lacks_nodes = any(pod.uid not in plan and pod.uid not in assumed_uids for pod in missing_members)
    return lacks_nodes or _count_placed(group) + len(missing_members) < group.min_member


class State(Enum):
    """State of a group, by which cycles, phases and plans decide. The first state that applies counts."""

    ENDED = auto()  # no member is left on a node or on the way to a node
    ENDING = auto()  # it was whole, and members are being deleted without replacement
    FULLY_RUNNING = auto()  # it has fully run, and no member waits to join
    NEWLY_RUNNING = auto()  # all needed members are on nodes, but for too short a time to count as fully run
    EMPTY = auto()  # it needs no members, and has no members
    GROWING = auto()  # its members on nodes suffice, or did before its needs grew; more may join
    REPLACING = auto()  # it has fully run, and has lost members
    STARTING = auto()  # Muster admitted its start, but it is not whole yet
    WAITING = auto()  # its missing members still have to be evaluated


_RUNNING_STATES = (State.FULLY_RUNNING, State.NEWLY_RUNNING, State.GROWING, State.REPLACING)


def has_run(group: GroupInfo) -> bool:
    """Return whether a group is fully running, or replaces members after it has fully run."""
    return state_of(group) in _RUNNING_STATES


@computed_once
def state_of(group: GroupInfo) -> State:
    """Return the state of a group, by which the cycle decides on the group."""
    if final_outcome(group) is not None:
        return State.ENDED
    if is_ending(group):
        return State.ENDING
    if group.is_whole and not (group.waiting_pods or group.assumed_pods):
        if group.has_fully_run:
            return State.FULLY_RUNNING
        if group.placed_pods and group.exists:
            return State.NEWLY_RUNNING
    has_members = group.placed_pods or group.assumed_pods or group.waiting_pods or group.leaving_count
    if not (group.min_member or has_members):
        return State.EMPTY
    if group.is_whole or group.is_whole_as_before:
        return State.GROWING
    if group.has_fully_run:
        return State.REPLACING
    # Only an admission by Muster counts as a start. A pod that was created with a node name does not count:
    # otherwise all other members could bypass the queue's state, order, share and ceiling. After a crash, the
    # record on the PodGroup proves the admission, unless the group has waited again since.
    is_resuming = group.history.resumes and (group.placed_pods or group.job.is_unsuspended)
    return State.STARTING if group.start.was_admitted or group.assumed_pods or is_resuming else State.WAITING
