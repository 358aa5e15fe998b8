"""Why a group waits and what helps, in words, by its reason. docs/reasons.md has the same texts.

Backticks mark what a user types or writes in YAML. The page shows them, a terminal does not.
"""

from collections.abc import Mapping

from extender.api.texts import texts
from extender.domain.model.reasons import Reason

_TEXTS = texts("""
GroupNotFound: Create the PodGroup in the pod's namespace, or correct the name in the pod's annotation
  `scheduling.k8s.io/group-name`.
QueueNotFound: Create the queue, or the LocalQueue that the message names; or name another.
InvalidSpec: Correct the field or annotation that the message names.
TooComplex: Demand less: a pod may have 64 required pod (anti-)affinity terms, 256 host ports, and 128 KiB of
  selectors, affinity, tolerations and volumes; the pods of a namespace 10,000 different terms, where one that
  looks into other namespaces or requires no label counts as 200. What merely takes too long is tried again
  after a minute or more, with more time.
QueueNotOpen: Open the queue (`spec.state: Open`), or name another.
NamespaceNotAllowed: Name another queue, or have the namespace labelled as the queue's
  `spec.namespaceSelector` asks.
QueueStopped: Wait until the queue or LocalQueue is resumed (`spec.stopPolicy: None`), or name another.
Held: Resume the group: take the annotation `kube-muster.io/hold` from its PodGroup.
StartTimedOut: Look at why its pods did not run (images, volumes), or why members were not bound, then let it
  try again: `muster job resume NAME`, or `muster resume NAME` for a PodGroup.
NotEnoughMembers: Create the missing pods, or lower `minMember`. A pod counts if it names the group, is in the
  same namespace and has the right `schedulerName`.
NeverFits: Request less, loosen node selectors, raise the queue's capability, or add nodes: larger ones if no
  node holds one member.
QueueCeiling: Wait for other groups of the queue to end, or raise its `spec.capability` or, if the message
  counts groups or pods, its `spec.limits`. Guarantees of other queues lower the ceiling, too.
QueueShare: Wait: room that other queues do not claim is lent. A higher `spec.weight` gives a larger share.
BehindOthers: Wait until that group starts or is deleted. Groups that fit may overtake it if the queue's
  `dequeueStrategy` is neither `fifo` nor `mixed`.
NoRoom: Wait for running pods to end, or request less. Administrators can see on the debug pages what holds
  each node.
Fragmented: Use smaller members, or wait for a whole node to become free.
Reserved: Wait, or declare a run time (annotation `kube-muster.io/run-time`): groups that end in time may go
  first.
Reclaiming: Wait: pods are being evicted for it, and the room is kept until it starts.
BackingOff: Muster retries by itself, after 5 s, then 10 s and so on, up to five minutes (`--start-backoff`,
  `--start-backoff-max`). If its pods are refused, raise the quota that it names, or ask whoever runs
  the webhook.
WindowFull: Wait until members that are starting have started. An administrator may raise `--window`.
TooLargeForWindow: An administrator has to raise `--window` to at least the group's size.
RefusedByScheduler: Read the scheduler's message; volumes and spread constraints are the usual causes. A
  refusal is forgotten after a minute, or when the node changes.
NotReady: Wait for `/readyz`. If a pod stays like this, either it could not be read (`/debug/bad-objects`) or
  its `schedulerName` is not among `--scheduler-name`.
""")
REMEDIES: Mapping[Reason, str] = {Reason(code): text for code, text in _TEXTS.items()}

# Of pods that Muster put into one group, and that start one by one.
TO_START_WHOLE = "They need not start together (the annotation kube-muster.io/min-member: all makes them)."

# Which others stand in the way of a group: all that hold room, or those of its own queue.
FOR_ROOM = (Reason.NO_ROOM, Reason.FRAGMENTED, Reason.RECLAIMING)
IN_ITS_QUEUE = (Reason.QUEUE_CEILING, Reason.QUEUE_SHARE)


def remedy(reason: str) -> str:
    """The remedy for a reason; empty for a reason that is not ours."""
    return REMEDIES[Reason(reason)].replace("`", "") if reason in REMEDIES else ""


def sentence(reason: str) -> str:
    """What a reason means, as a sentence; a reason that is not ours unchanged."""
    if reason not in REMEDIES:
        return reason
    meaning = Reason(reason).meaning
    return f"{meaning[0].upper()}{meaning[1:]}."


def with_numbers(reason: str, detail: str) -> str:
    """`NoRoom: the suitable nodes do not have enough room now (cpu: 8 needed, 2 left).`"""
    text = f"{reason}: {Reason(reason).meaning}" if reason in REMEDIES else reason
    return f"{text} ({detail})." if detail else f"{text}."
