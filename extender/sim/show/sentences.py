"""What gangs and other pods do, in sentences, and what stands in their way."""

from collections.abc import Callable, Mapping, Sequence

from extender.domain.model.reasons import REFUSAL_PREFIX, Reason, refusal
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang
from extender.sim.show.loose_pods import LoosePod
from extender.terminal.counts import many
from extender.terminal.near_misses import pods_that_name


def state_sentence(gang: Gang, cluster: ClusterState) -> str:
    """A gang's state in a sentence without its subject."""
    match gang.state:
        case "ended":
            return f"has ended: {ending(gang)}"
        case "runs":
            return f"runs: {gang.running} of {many(gang.pods, 'pod')} on {listed(gang.nodes)}{left_out(gang)}"
        case "starts":
            return f"starts: admitted whole, with {many(gang.size, 'pod')}"
        case "pending":
            return "is pending. Muster has not decided about it yet."
    return f"waits. {waiting_for(gang)}{ahead(gang, cluster)}"


def ending(gang: Gang) -> str:
    """How a gang ended: what its pods did."""
    if not gang.pods:
        return "its pods are deleted"
    if gang.failed:
        return f"{gang.failed} of {many(gang.pods, 'pod')} failed"
    return "its pod succeeded" if gang.pods == 1 else f"all {many(gang.pods, 'pod')} succeeded"


def left_out(gang: Gang) -> str:
    """`; 2 more wait. NoRoom: ...`, or nothing."""
    if not gang.left_out:
        return ""
    return f"; {gang.left_out} more {'waits' if gang.left_out == 1 else 'wait'}. {waiting_for(gang)}"


def waiting_for(gang: Gang) -> str:
    """The reason of a gang that waits, with the numbers of its condition, and what was probably meant."""
    if not gang.summary.reason:
        return "Muster has not decided about it yet."
    return _reason(gang.summary.reason, gang.detail, gang.hint)


def _reason(reason: str, detail: str, hint: str) -> str:
    known = reason in [str(each) for each in Reason]
    text = refusal(Reason(reason)).removeprefix(REFUSAL_PREFIX) if known else reason
    text = f"{text} ({detail})." if detail else f"{text}."
    return f"{text} {hint}" if hint else text


# ---- pods of no group


def pods_sentence(pods: Sequence[LoosePod]) -> str:
    """What pods that are alike do, in a sentence without its subject."""
    first, one = pods[0], len(pods) == 1
    match first.state:
        case "ended":
            return "succeeded"
        case "failed":
            return "failed"
        case "runs":
            nodes = sorted({pod.node for pod in pods})
            return f"{'runs' if one else 'run'} on {listed(nodes)}"
        case "pending":
            return f"{'has' if one else 'have'} not started; why is not known yet"
    return f"{'waits' if one else 'wait'}. {why_pods_wait(pods)}"


def why_pods_wait(pods: Sequence[LoosePod]) -> str:
    why, missing = pods[0].why, pods[0].missing_group
    if why.reason == Reason.GROUP_NOT_FOUND and why.hint:
        return _reason(why.reason, why.detail, f"{pods_that_name(len(pods))} {missing}: {why.hint}")
    return _reason(why.reason, why.detail.rstrip("."), why.hint[:1].upper() + why.hint[1:])


# ---- what is in the way


def ahead(gang: Gang, cluster: ClusterState) -> str:
    """The gangs that hold what a gang waits for, by what their status says. Empty where only the gang itself
    could change it, or where the numbers of its own condition name the gang it waits for."""
    holds = _IN_THE_WAY.get(gang.summary.reason)
    others = [each for each in cluster.holding if holds and each.key != gang.key and holds(each, gang)]
    names = [each.title for each in others]
    return f" Ahead of it: {listed(names)}." if names else ""


def _any(_other: Gang, _gang: Gang) -> bool:
    return True


def _of_its_queue(other: Gang, gang: Gang) -> bool:
    return other.summary.queue == gang.summary.queue


_IN_THE_WAY: Mapping[str, Callable[[Gang, Gang], bool]] = {
    **dict.fromkeys((Reason.NO_ROOM, Reason.FRAGMENTED, Reason.RESERVED, Reason.RECLAIMING), _any),
    **dict.fromkeys((Reason.QUEUE_CEILING, Reason.QUEUE_SHARE), _of_its_queue),
    Reason.WINDOW_FULL: lambda other, _gang: other.state == "starts",
}


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names for a sentence: a few, and how many more."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
