"""The closed list of verdicts and reasons. Codes are added when a rule is added, never reworded."""

from enum import StrEnum


class Verdict(StrEnum):
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    ENDED = "Ended"


class Outcome(StrEnum):
    """How a group ended."""

    COMPLETED = "Completed"  # enough members succeeded
    FAILED = "Failed"  # it ended, and too few succeeded
    ABORTED = "Aborted"  # its owner was suspended, or its queue deleted


class Reason(StrEnum):
    """Why a group waits: the one rule that blocks it. The numbers behind it are in its decision's detail."""

    GROUP_NOT_FOUND = "GroupNotFound"
    QUEUE_NOT_FOUND = "QueueNotFound"
    INVALID_SPEC = "InvalidSpec"
    TOO_COMPLEX = "TooComplex"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    QUEUE_STOPPED = "QueueStopped"
    HELD = "Held"
    START_TIMED_OUT = "StartTimedOut"
    NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
    NEVER_FITS = "NeverFits"
    QUEUE_CEILING = "QueueCeiling"
    QUEUE_SHARE = "QueueShare"
    BEHIND_OTHERS = "BehindOthers"
    NO_ROOM = "NoRoom"
    FRAGMENTED = "Fragmented"
    RESERVED = "Reserved"
    RECLAIMING = "Reclaiming"
    BACKING_OFF = "BackingOff"
    WINDOW_FULL = "WindowFull"
    TOO_LARGE_FOR_WINDOW = "TooLargeForWindow"
    REFUSED_BY_SCHEDULER = "RefusedByScheduler"
    NOT_READY = "NotReady"


class EventReason(StrEnum):
    """What is reported once, when it happens, and is not a state of a group."""

    UNDONE = "Undone"
    EVICTION_REFUSED = "EvictionRefused"
    RECLAIMED = "Reclaimed"
    PREEMPTED = "Preempted"
    DRAINED = "Drained"
    RECLAIM_LOOP = "ReclaimLoop"
    QUEUE_OPENED = "QueueOpened"
    QUEUE_CLOSING = "QueueClosing"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_UNKNOWN = "QueueStateUnknown"
    GROUP_REFUSED = "PodGroupRefused"
    JOB_STARTED = "JobStarted"
    JOB_SUSPENDED = "JobSuspended"
    START_GIVEN_UP = "StartGivenUp"
    JOB_STOPPED = "JobStopped"
    COMMAND_REFUSED = "CommandRefused"
    QUOTA_NOT_APPLIED = "QuotaNotApplied"


LACKS_ROOM = (Reason.NO_ROOM, Reason.FRAGMENTED)

# What a PodGroup's condition gives as its reason while the group does not wait.
NOT_WAITING = frozenset(map(str, (*Verdict, *Outcome)))

REFUSAL_PREFIX = "muster: "

_SENTENCES = {
    Reason.GROUP_NOT_FOUND: "the PodGroup that the pod names does not exist",
    Reason.QUEUE_NOT_FOUND: "the queue does not exist",
    Reason.INVALID_SPEC: "the group's specification is invalid",
    Reason.TOO_COMPLEX: "placing the group takes more work than one group may cause",
    Reason.QUEUE_NOT_OPEN: "the group was created after its queue was closed",
    Reason.NAMESPACE_NOT_ALLOWED: "the queue takes no groups of this namespace",
    Reason.QUEUE_STOPPED: "the queue admits nothing until it is resumed",
    Reason.HELD: "its owner keeps the group back",
    Reason.START_TIMED_OUT: "the job did not get going in time, several times in a row",
    Reason.NOT_ENOUGH_MEMBERS: "fewer pods exist than the group needs to start",
    Reason.NEVER_FITS: "the group is too large for this cluster or its queue",
    Reason.QUEUE_CEILING: "the queue has reached its capability, or a limit on what may run",
    Reason.QUEUE_SHARE: "the queue has used its deserved share, and other queues have a claim on the rest",
    Reason.BEHIND_OTHERS: "the queue's order puts other groups first",
    Reason.NO_ROOM: "the suitable nodes do not have room for the whole group",
    Reason.FRAGMENTED: "total free capacity suffices, but no placement fits the whole group",
    Reason.RESERVED: "the room is reserved for another group",
    Reason.RECLAIMING: "room is being reclaimed for the group",
    Reason.BACKING_OFF: "a start of the group failed; it is backing off",
    Reason.WINDOW_FULL: "as many members as the window allows are already starting",
    Reason.TOO_LARGE_FOR_WINDOW: "the group is larger than the starting window",
    Reason.REFUSED_BY_SCHEDULER: "the scheduler's own rules reject a member",
    Reason.NOT_READY: "Muster has not finished reading the cluster",
}


def sentence(reason: Reason) -> str:
    """What a reason means, without numbers."""
    return _SENTENCES[reason]


def refusal(reason: Reason) -> str:
    """The message of a refused filter call: constant for a reason, since a changed one makes the scheduler
    patch the pod, which makes it try the pod again: about 100 times a second.
    """
    return f"{REFUSAL_PREFIX}{reason}: {_SENTENCES[reason]}"
