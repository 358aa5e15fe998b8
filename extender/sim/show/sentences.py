"""Sentences about gangs and other pods, and the transitions from one state to the next."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extender.api.units import listed
from extender.domain.model.reasons import (
    CAPACITY_WAITS,
    QUEUE_WAITS,
    START_WHOLE_HINT,
    Reason,
    Verdict,
    with_numbers,
)
from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang, SinglePod
from extender.terminal.text import counted, pods_that_name


def state_sentence(gang: Gang, cluster: ClusterState) -> str:
    """Return the state of a gang as a sentence without its subject."""
    match gang.state:
        case Verdict.ENDED:
            return f"has ended: {ending_text(gang)}"
        case Verdict.RUNNING:
            pods = counted(len(gang.pods), "pod")
            return f"runs: {gang.running_count} of {pods} on {listed(gang.nodes)}{left_out_text(gang)}"
        case Verdict.STARTING:
            return f"starts: {'its pods start one by one' if gang.starts_one_by_one else gang.admission_text}"
        case Verdict.UNKNOWN:
            return "is pending. Muster has not decided about it yet."
    return f"waits. {wait_text(gang)}{ahead_text(gang, cluster)}"


def ending_text(gang: Gang) -> str:
    """Return how the pods of a gang ended."""
    if not gang.pods:
        return "its pods are deleted"
    if gang.failed_count:
        return f"{gang.failed_count} of {counted(len(gang.pods), 'pod')} failed"
    return "its pod succeeded" if len(gang.pods) == 1 else f"all {counted(len(gang.pods), 'pod')} succeeded"


def left_out_text(gang: Gang) -> str:
    """Return a text such as `; 2 more wait. NoRoom: ...`; empty if no member was left out."""
    if not (count := gang.waiting_count):
        return ""
    hint = f" {START_WHOLE_HINT}" if gang.group.controller and gang.starts_one_by_one else ""
    return f"; {count} more {'waits' if count == 1 else 'wait'}. {wait_text(gang)}{hint}"


def wait_text(gang: Gang) -> str:
    """Return the reason of a pending gang with the numbers of its condition and a hint."""
    if not gang.group.reason:
        return "Muster has not decided about it yet."
    return _reason(gang.group.reason, gang.group.message, gang.hint)


def _reason(reason: str, detail: str, hint: str) -> str:
    text = with_numbers(reason, detail)
    return f"{text} {hint}" if hint else text


def pods_sentence(pods: Sequence[SinglePod]) -> str:
    """Return the state of pods with equal states, as a sentence without its subject."""
    first, is_single = pods[0], len(pods) == 1
    match first.state:
        case Verdict.ENDED:
            return "failed" if first.failed else "succeeded"
        case Verdict.RUNNING:
            nodes = sorted({pod.node for pod in pods})
            return f"{'runs' if is_single else 'run'} on {listed(nodes)}"
        case Verdict.UNKNOWN:
            return f"{'has' if is_single else 'have'} not started; why is not known yet"
    return f"{'waits' if is_single else 'wait'}. {why_pods_wait(pods)}"


def why_pods_wait(pods: Sequence[SinglePod]) -> str:
    reason, missing = pods[0].wait_reason, pods[0].missing_group
    if reason.reason == Reason.GROUP_NOT_FOUND and reason.hint:
        return _reason(reason.reason, reason.detail, f"{pods_that_name(len(pods))} {missing}: {reason.hint}")
    return _reason(reason.reason, reason.detail.rstrip("."), reason.hint[:1].upper() + reason.hint[1:])


def ahead_text(gang: Gang, cluster: ClusterState) -> str:
    """Return a sentence about the gangs that hold the capacity for which a gang waits.

    The sentence is empty if only a change of the gang itself would help.
    """
    others = [other for other in cluster.holding_gangs if other.key != gang.key]
    if gang.group.reason in QUEUE_WAITS:
        others = [other for other in others if other.queue == gang.queue]
    elif gang.group.reason == Reason.WINDOW_FULL:
        others = [other for other in others if other.state is Verdict.STARTING]
    waits_for = listed([other.title for other in others]) if gang.group.reason in _WAITS_FOR_OTHERS else ""
    return f" Ahead of it: {waits_for}." if waits_for else ""


# ---- transitions, found by comparing one state of the cluster with the next

_WAITS_FOR_OTHERS = frozenset({*QUEUE_WAITS, *CAPACITY_WAITS, Reason.RESERVED, Reason.WINDOW_FULL})
_SETTLING = 2.0  # seconds in which the statuses of one decision arrive


class ShownTransition(NamedTuple):
    second: float  # seconds since the start
    subject: str  # title of a gang, or names of pods
    text: str
    brief: str  # short text for a view that also shows the reason


class GangTimes(NamedTuple):
    """Seconds at which a gang was first observed, and at which it ran (None before)."""

    seen_at: float
    has_waited: bool = False
    ran_at: float | None = None

    def wait(self, now: float) -> float:
        """Return the seconds from the first observation until the gang ran, or until now."""
        return (now if self.ran_at is None else self.ran_at) - self.seen_at


class TransitionLog:
    """All transitions so far, in order, and the times of each gang, keyed by NAMESPACE/NAME."""

    def __init__(self) -> None:
        self.transitions: list[ShownTransition] = []
        self.times: dict[str, GangTimes] = {}
        self._gang_states: dict[str, tuple[str, Verdict, str]] = {}  # title, state and reason, by key
        self._pod_states: dict[str, tuple[Verdict, bool, str]] = {}

    def observe(self, cluster: ClusterState, second: float) -> list[ShownTransition]:
        """Record and return the transitions since the last call."""
        transitions, changed_pods = list(self._gang_transitions(cluster, second)), []
        for pod in cluster.single_pods:
            state = (pod.state, pod.failed, pod.wait_reason.reason)
            if pod.state is not Verdict.UNKNOWN and self._pod_states.get(pod.key) != state:
                self._pod_states[pod.key] = state
                changed_pods.append(pod)
        for pods in group_similar(changed_pods):
            text = pods_sentence(pods)
            brief = text.partition(".")[0] if pods[0].state is Verdict.WAITING else text
            transitions.append(ShownTransition(second, listed([pod.key for pod in pods], 3), text, brief))
        self.transitions += transitions
        return transitions

    def _gang_transitions(self, cluster: ClusterState, second: float) -> Iterator[ShownTransition]:
        gang_by_key = {gang.key: gang for gang in cluster.gangs}
        undecided = any(gang.state is Verdict.UNKNOWN for gang in cluster.gangs)
        for key in self._gang_states.keys() - gang_by_key.keys():
            title, *_ = self._gang_states.pop(key)
            yield ShownTransition(second, title, "was deleted", "was deleted")
        for key, gang in gang_by_key.items():
            times = self.times.get(gang.key, GangTimes(second))
            if gang.waits:
                times = times._replace(has_waited=True)
            elif gang.has_started and times.ran_at is None:
                times = times._replace(ran_at=second)
            self.times[gang.key] = times
            if undecided and gang.group.reason in _WAITS_FOR_OTHERS and second - times.seen_at < _SETTLING:
                continue  # further groups may be ahead
            new_state = gang.title, gang.state, gang.group.reason if gang.waits or gang.waiting_count else ""
            if self._gang_states.get(key) != new_state and gang.state is not Verdict.UNKNOWN:
                self._gang_states[key] = new_state
                text = state_sentence(gang, cluster)
                brief = f"waits: {gang.group.reason}" if gang.waits else text.partition(";")[0]
                yield ShownTransition(second, gang.title, text, brief)


def group_similar(pods: Sequence[SinglePod]) -> list[list[SinglePod]]:
    """Return lists of pods with equal state and reason, in the order of the arguments."""
    by_state: dict[tuple[object, ...], list[SinglePod]] = {}
    for pod in pods:
        key = (pod.namespace, pod.state, pod.failed, pod.missing_group, pod.wait_reason)
        by_state.setdefault(key, []).append(pod)
    return list(by_state.values())
