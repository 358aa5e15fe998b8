"""What helps a group that waits: a remedy for each reason. docs/reasons.md has the same, a test compares.

Backticks mark what is typed or written in YAML; they are shown in the page and left out on a terminal.
"""

from collections.abc import Mapping

from extender.domain.model.reasons import REFUSAL_PREFIX, Reason, refusal

REMEDIES: Mapping[Reason, str] = {
    Reason.GROUP_NOT_FOUND: (
        "Create the PodGroup in the pod's namespace, or correct the name that the pod gives in its "
        "annotation `scheduling.k8s.io/group-name`."
    ),
    Reason.QUEUE_NOT_FOUND: "Create the queue, or name another in `spec.queue`.",
    Reason.INVALID_SPEC: "Correct that field of the PodGroup or, where it says so, of the queue.",
    Reason.QUEUE_NOT_OPEN: "Its owner opens the queue (`spec.state: Open`), or you name another.",
    Reason.NOT_ENOUGH_MEMBERS: (
        "Create the missing pods, or lower `minMember`. Pods count that name the group in the same "
        "namespace and have the right `schedulerName`."
    ),
    Reason.NEVER_FITS: (
        "Ask for less, loosen selectors, add larger nodes, or raise the queue's capability. The group is "
        "judged again whenever the cluster changes."
    ),
    Reason.QUEUE_CEILING: (
        "Wait for groups of the same queue, or raise its `spec.capability`. What other queues are "
        "guaranteed lowers the ceiling too. A ceiling as high as the cluster counts as none: then it is "
        "`NoRoom`."
    ),
    Reason.QUEUE_SHARE: (
        "Wait: the room is lent when they do not want it. A larger `spec.weight` moves the share."
    ),
    Reason.BEHIND_OTHERS: (
        "That group must start or go: the queue is `fifo`. Another `dequeueStrategy` lets yours pass."
    ),
    Reason.NO_ROOM: (
        "Wait for running pods to end, or ask for less. The administrator sees in the debug pages who "
        "holds which node."
    ),
    Reason.FRAGMENTED: "Smaller members fit into more places; or wait for a whole node to become free.",
    Reason.RESERVED: "Wait.",
    Reason.RECLAIMING: "Wait.",
    Reason.BACKING_OFF: (
        "It tries again by itself, after 5 s, then 10 s and so on, up to five minutes (`--start-backoff`,"
        " `--start-backoff-max`)."
    ),
    Reason.WINDOW_FULL: (
        "Wait; it takes as long as others need to start. The administrator may raise `--window`."
    ),
    Reason.TOO_LARGE_FOR_WINDOW: "The administrator raises `--window` above the group's size.",
    Reason.REFUSED_BY_SCHEDULER: (
        "Read what the scheduler says: volumes and spread constraints are the usual ones. What was learnt"
        " is forgotten after a minute or when the node changes."
    ),
    Reason.NOT_READY: (
        "Wait for `/readyz`. A pod that stays so could not be read (`/debug/bad-objects`), or its "
        "`schedulerName` is not among `--scheduler-name`."
    ),
}


def remedy(reason: str) -> str:
    """Empty for what is none of our reasons."""
    return REMEDIES[Reason(reason)].replace("`", "") if reason in REMEDIES else ""


def sentence(reason: str) -> str:
    """A reason as a person says it; what is none of ours as it was written."""
    if reason not in REMEDIES:
        return reason
    words = refusal(Reason(reason)).removeprefix(f"{REFUSAL_PREFIX}{reason}: ")
    return f"{words[0].upper()}{words[1:]}."
