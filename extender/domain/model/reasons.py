"""The closed list of verdicts and reasons. Codes are added when a rule is added, never reworded."""

from enum import StrEnum


class Verdict(StrEnum):
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    ENDED = "Ended"


class Outcome(StrEnum):
    COMPLETED = "Completed"  # enough members succeeded
    FAILED = "Failed"  # it ended, and too few succeeded
    ABORTED = "Aborted"  # its owner was suspended, or its queue deleted


class Reason(StrEnum):
    """Why a group waits: the one rule that blocks it. The numbers behind it are in its decision's detail."""

    meaning: str  # without numbers

    def __new__(cls, code: str, meaning: str = "") -> "Reason":
        reason = str.__new__(cls, code)
        reason._value_, reason.meaning = code, meaning
        return reason

    GROUP_NOT_FOUND = "GroupNotFound", "the PodGroup that the pod names does not exist"
    QUEUE_NOT_FOUND = "QueueNotFound", "the queue does not exist"
    INVALID_SPEC = "InvalidSpec", "the group's specification is invalid"
    TOO_COMPLEX = "TooComplex", "placing the group takes more work than one group may cause"
    QUEUE_NOT_OPEN = "QueueNotOpen", "the group was created after its queue was closed"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed", "the queue takes no groups of this namespace"
    QUEUE_STOPPED = "QueueStopped", "the queue admits nothing until it is resumed"
    HELD = "Held", "its owner keeps the group back"
    START_TIMED_OUT = "StartTimedOut", "it did not get going in time, several times in a row"
    NOT_ENOUGH_MEMBERS = "NotEnoughMembers", "fewer pods exist than the group needs to start"
    NEVER_FITS = "NeverFits", "the group is too large for this cluster or its queue"
    QUEUE_CEILING = "QueueCeiling", "the queue has reached its capability, or a limit on what may run"
    QUEUE_SHARE = (
        "QueueShare",
        "the queue has used its deserved share, and other queues have a claim on the rest",
    )
    BEHIND_OTHERS = "BehindOthers", "the queue's order puts other groups first"
    NO_ROOM = "NoRoom", "the suitable nodes do not have enough room now"
    FRAGMENTED = "Fragmented", "total free capacity suffices, but no placement fits"
    RESERVED = "Reserved", "the room is reserved for another group"
    RECLAIMING = "Reclaiming", "room is being reclaimed for the group"
    BACKING_OFF = "BackingOff", "a start of the group failed; it is backing off"
    WINDOW_FULL = "WindowFull", "as many members as the window allows are already starting"
    TOO_LARGE_FOR_WINDOW = "TooLargeForWindow", "the group is larger than the starting window"
    REFUSED_BY_SCHEDULER = "RefusedByScheduler", "the scheduler's own rules reject a member"
    NOT_READY = "NotReady", "Muster has not finished reading the cluster"


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
    GUARANTEE_UNMET = "GuaranteeUnmet"
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


def refusal(reason: Reason) -> str:
    """The message of a refused filter call: constant for a reason, since a changed one makes the scheduler
    patch the pod, which makes it try the pod again: about 100 times a second.
    """
    return f"{REFUSAL_PREFIX}{reason}: {reason.meaning}"
