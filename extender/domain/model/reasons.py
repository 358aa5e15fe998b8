"""Verdicts and reasons: the closed list of codes, with meanings and remedies.

A code is added when a rule is added, and is never reworded.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum

from extender.api.units import texts_by_name


class Verdict(StrEnum):
    """State of a group by a decision. `snapshot/phases` maps verdicts to Volcano's phases and back."""

    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    ENDED = "Ended"
    UNKNOWN = "Unknown"  # Muster has not evaluated the group yet; no decision has this verdict


class Outcome(StrEnum):
    """Outcome of a group that has ended."""

    COMPLETED = "Completed"  # enough members succeeded
    FAILED = "Failed"  # the group ended, and too few members succeeded
    ABORTED = "Aborted"  # the group's owner was suspended, or its queue was deleted


class Reason(StrEnum):
    """Reason why a group waits: the one rule that blocks its start. The decision's detail has the numbers."""

    meaning: str  # sentence without numbers, for users

    def __new__(cls, code: str, meaning: str = "") -> "Reason":
        reason = str.__new__(cls, code)
        reason._value_, reason.meaning = code, meaning
        return reason

    GROUP_NOT_FOUND = "GroupNotFound", "the PodGroup that the pod names does not exist"
    QUEUE_NOT_FOUND = "QueueNotFound", "the queue does not exist"
    INVALID_SPEC = "InvalidSpec", "the group's specification is invalid"
    TOO_COMPLEX = "TooComplex", "placing the group needs more work than one group may cause"
    QUEUE_NOT_OPEN = "QueueNotOpen", "the group was created after its queue was closed"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed", "the queue accepts no groups of this namespace"
    QUEUE_NOT_ALLOWED = ("QueueNotAllowed", "no record shows the right to use the queue")
    QUEUE_STOPPED = "QueueStopped", "the queue admits no groups until it is resumed"
    HELD = "Held", "the group is held by its owner"
    START_TIMED_OUT = "StartTimedOut", "its pods did not run before the start timeout, several times in a row"
    NOT_ENOUGH_MEMBERS = "NotEnoughMembers", "fewer pods exist than the group needs to start"
    NEVER_FITS = "NeverFits", "the group is too large for this cluster or its queue"
    QUEUE_CEILING = "QueueCeiling", "the queue has reached its capability, or a limit on what may run"
    QUEUE_SHARE = (
        "QueueShare",
        "the queue has used its deserved share, and other queues have a claim on the rest",
    )
    BEHIND_OTHERS = "BehindOthers", "the queue's order puts other groups first"
    NO_ROOM = "NoRoom", "the suitable nodes lack free capacity now"
    FRAGMENTED = "Fragmented", "total free capacity suffices, but no placement fits"
    NO_DOMAIN = "NoDomain", "no domain of the group's topology has enough free capacity now"
    RESERVED = "Reserved", "the free capacity is reserved for another group"
    RECLAIMING = "Reclaiming", "capacity is being reclaimed for the group"
    BACKING_OFF = "BackingOff", "a start of the group failed; it is backing off"
    WINDOW_FULL = "WindowFull", "as many members as the window allows are already starting"
    TOO_LARGE_FOR_WINDOW = "TooLargeForWindow", "the group is larger than the starting window"
    REFUSED_BY_SCHEDULER = "RefusedByScheduler", "the scheduler's own rules reject a member"
    NOT_READY = "NotReady", "Muster has not finished reading the cluster"


class EventReason(StrEnum):
    """Reason of an Event about an occurrence. Reasons of states are in `Reason`."""

    UNDONE = "Undone"
    EVICTION_REFUSED = "EvictionRefused"
    RECLAIMED = "Reclaimed"
    PREEMPTED = "Preempted"
    CONSOLIDATED = "Consolidated"
    DRAINED = "Drained"
    RESTARTED = "Restarted"
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
    ACTION_TAKEN = "ExecuteAction"
    CLAIM_MISSING = "PVCError"
    JOB_FAULTY = "InvalidJob"
    POD_NAME_TAKEN = "PodNameTaken"
    FAILED_CREATE = "FailedCreate"
    QUOTA_NOT_APPLIED = "QuotaNotApplied"
    INVALID_SCHEDULE = "InvalidSchedule"


EVICTION_REASONS = (
    *(EventReason.RECLAIMED, EventReason.PREEMPTED, EventReason.CONSOLIDATED),
    *(EventReason.DRAINED, EventReason.RESTARTED),
)
CAPACITY_REASONS = (Reason.NO_ROOM, Reason.FRAGMENTED, Reason.NO_DOMAIN)
# Reasons that may end if a node is added. A refused pod may need a node in another zone, near its volume.
REASONS_FOR_NODES = frozenset({*CAPACITY_REASONS, Reason.REFUSED_BY_SCHEDULER})
# Reasons that may end because other groups end or start.
REASONS_ENDED_BY_OTHERS = (
    *CAPACITY_REASONS,
    Reason.QUEUE_CEILING,
    Reason.QUEUE_SHARE,
    Reason.BEHIND_OTHERS,
    Reason.RESERVED,
    Reason.RECLAIMING,
    Reason.WINDOW_FULL,
    Reason.REFUSED_BY_SCHEDULER,
    Reason.BACKING_OFF,
)

# Reasons in the condition of a PodGroup that does not wait.
STATES_WITHOUT_WAIT = frozenset(map(str, (*Verdict, *Outcome)))

REFUSAL_PREFIX = "muster: "


def refusal(reason: Reason) -> str:
    """Return the message of a refused filter call. The message is always the same for a reason.

    If the message changed, the scheduler would patch the pod. The patch makes the scheduler try the pod
    again, about 100 times a second.
    """
    return f"{REFUSAL_PREFIX}{reason}: {reason.meaning}"


_PART = re.compile(r"(?:^|, )\d+ ")  # "4 Insufficient cpu, 1 Too many pods": `FitError` in framework/types.go
_NODE_RULE_TEXTS = ("node(s) had untolerated taint", "node(s) didn't match Pod's node affinity/selector")


def lacks_only_capacity(message: str, resources: Collection[str]) -> bool:
    """Return whether the scheduler refuses a pod only for reasons that Muster evaluates as well.

    These reasons are insufficient `resources`, too many pods, taints and labels. If Muster nevertheless finds
    a node for the pod, Muster's data is newer than the scheduler's.
    """
    text = message.partition(" nodes are available: ")[2].partition(" preemption: ")[0].removesuffix(".")
    text_before, *parts = _PART.split(text)
    names = ("Too many pods", *(f"Insufficient {name}" for name in resources))
    return (
        not text_before
        and bool(parts)
        and all(part in names or part.startswith((REFUSAL_PREFIX, *_NODE_RULE_TEXTS)) for part in parts)
    )


# Remedies of reasons, also in docs/reference/reasons.md. Backticks enclose text that a user types or writes.

_TEXTS = texts_by_name("""
GroupNotFound: Create the PodGroup in the pod's namespace, or correct the name in the pod's annotation
  `scheduling.k8s.io/group-name`.
QueueNotFound: Create the queue, or the LocalQueue that the message names; or name another.
InvalidSpec: Correct the field or annotation that the message names, or create the ResourceFlavor.
TooComplex: Demand less: a pod may have 64 required pod (anti-)affinity terms, 256 host ports, 256 resources,
  128 KiB of selectors, affinity, tolerations and volumes, and 255 KiB of annotations; the pods of a namespace
  10,000 different terms, where one that looks into other namespaces or requires no label counts as 200. A
  group that only takes too long is tried again after a minute or more, with more time.
QueueNotOpen: Open the queue (`spec.state: Open`), or name another.
NamespaceNotAllowed: Name another queue, or add the labels of the queue's `spec.namespaceSelector` to the
  namespace.
QueueNotAllowed: Name another queue, or ask a user with the right to use this one to annotate the object that
  names it: `kubectl annotate KIND NAME kube-muster.io/may-use=QUEUE/KIND`.
QueueStopped: Wait until the queue or LocalQueue is resumed (`spec.stopPolicy: None`), or name another.
Held: Resume the group: remove the annotation `kube-muster.io/hold` from its PodGroup.
StartTimedOut: Find out why its pods did not run (images, volumes), or why members were not bound, then resume
  it: `muster job resume NAME`, or `muster resume NAME` for a PodGroup.
NotEnoughMembers: Create the missing pods or claims, or lower `minMember`. A pod counts if it names the group,
  is in the same namespace and has the right `schedulerName`.
NeverFits: Request less, loosen node selectors, raise the queue's capability, or add nodes: larger ones if no
  node holds one member.
QueueCeiling: Wait for other groups of the queue to end, or raise what the message names: the `capability` or
  `borrowingLimit` of the queue or its flavor or, if it counts groups or pods, `spec.limits`. Guarantees of
  other queues lower the ceiling, too.
QueueShare: Wait: capacity that other queues do not claim is lent. A higher `spec.weight` gives a larger
  share.
BehindOthers: Wait until that group starts or is deleted. Groups that fit may overtake it if the queue's
  `dequeueStrategy` is neither `fifo` nor `mixed`.
NoRoom: Wait for running pods to end, or request less. Administrators can see on the debug pages what holds
  each node.
Fragmented: Use smaller members, or wait for a whole node to become free; or let Muster move pods
  (`spec.preemption.consolidation` of the queues).
NoDomain: Wait for running pods of a domain to end, ask for a larger domain (annotation
  `kube-muster.io/required-topology`), or use fewer or smaller members.
Reserved: Wait, or declare a run time (annotation `kube-muster.io/run-time`): groups that end in time may go
  first.
Reclaiming: Wait: pods are being evicted for it, and their capacity is reserved until it starts.
BackingOff: Muster retries by itself, after 5 s, then 10 s and so on, up to five minutes (`--start-backoff`,
  `--start-backoff-max`). If its pods are refused, raise the quota that it names, or ask the owner of the
  webhook.
WindowFull: Wait until members that are starting have started. An administrator may raise `--window`.
TooLargeForWindow: An administrator has to raise `--window` to at least the group's size.
RefusedByScheduler: Read the scheduler's message; volumes and spread constraints are the usual causes. A
  refusal is forgotten after a minute, or when the node changes.
NotReady: Wait for `/readyz`. If a pod stays like this, either it could not be read (`/debug/bad-objects`) or
  its `schedulerName` is not among `--scheduler-name`.
""")
REMEDIES: Mapping[Reason, str] = {Reason(code): text for code, text in _TEXTS.items()}

# Remedy for pods that Muster has put into one group, but starts one by one.
START_WHOLE_HINT = "They need not start together (the annotation kube-muster.io/min-member: all makes them)."

# End of a sentence on why no capacity is reclaimed for a group.
NOT_RECLAIMED_TEXT = "so nothing is reclaimed for it"

# Reasons why a group waits until other groups free capacity: groups of any queue, or of its own queue.
CAPACITY_WAITS = (*CAPACITY_REASONS, Reason.RECLAIMING)
QUEUE_WAITS = (Reason.QUEUE_CEILING, Reason.QUEUE_SHARE)


def remedy(reason: str) -> str:
    """Return the remedy for a reason; empty for a reason of another component."""
    return REMEDIES[Reason(reason)].replace("`", "") if reason in REMEDIES else ""


def sentence(reason: str) -> str:
    """Return the meaning of a reason as a sentence. A reason of another component is returned unchanged."""
    if reason not in REMEDIES:
        return reason
    meaning = Reason(reason).meaning
    return f"{meaning[0].upper()}{meaning[1:]}."


def with_numbers(reason: str, detail: str) -> str:
    """Return a reason with its numbers, such as `NoRoom: ... (cpu: 8 needed, 2 left)`."""
    text = f"{reason}: {Reason(reason).meaning}" if reason in REMEDIES else reason
    return f"{text} ({detail})." if detail else f"{text}."
