"""The form of an answer: what `muster why` prints with -o json or yaml, and what it makes its text from."""

import re
from collections.abc import Iterable

from extender.api.configuration import Configuration
from extender.api.keys import ENDED_PHASES, GATE, MARKS, POD_SCHEDULED, UNSCHEDULABLE
from extender.api.objects.base import Condition, Quantities, Wire, condition
from extender.api.objects.pods import Pod
from extender.api.objects.queues import Estimate
from extender.api.summaries import CommandSummary, HolderSummary
from extender.api.units import BadQuantity
from extender.api.workloads.shape import spoken_kind
from extender.domain.explain.observed import ObservedGroup, ObservedQueue
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason
from extender.domain.model.resources import PODS, pod_requests, quantities, total

# Answers about pods and workloads that no Verdict of a group says.
PLACED, ENDING, FOREIGN, EMPTY = "Placed", "Ending", "NotOurs", "NoPods"


class MemberCounts(Wire, frozen=True, omit_defaults=False):
    """How many pods of a group exist that have not ended, and how many of them are on nodes."""

    needed: int
    there: int
    placed: int
    gated: int
    succeeded: int
    failed: int


class QueueFigures(Wire, frozen=True, omit_defaults=False):
    """`share`: the used part of what it deserves, 1 is all of it; null while its status says nothing."""

    name: str
    state: str
    weight: int
    share: float | None
    allocated: Quantities
    deserved: Quantities
    capability: Quantities
    pending: int
    inqueue: int
    running: int


class Uncounted(Wire, frozen=True):
    """Pods that were meant for a group and do not count, for one `cause`. `misnamed`: an annotation helps."""

    pods: list[str]
    namespace: str
    cause: str
    remedy: str
    misnamed: bool = False


class Explanation(Wire, frozen=True):
    """`api_version`: of a workload, as kinds of several projects have one name."""

    kind: str
    name: str
    verdict: str
    sentence: str
    namespace: str = ""
    group: str = ""
    reason: str = ""
    detail: str = ""
    since: str | None = None
    estimate: Estimate | None = None
    members: MemberCounts | None = None
    queue: QueueFigures | None = None
    uncounted: list[Uncounted] = []
    waiting: list[HolderSummary] = []
    holders: list[HolderSummary] = []
    remedies: list[str] = []
    commands: list[CommandSummary] = []
    notes: list[str] = []
    api_version: str = ""

    @property
    def spoken_name(self) -> str:
        """`vcjob/train`."""
        return f"{spoken_kind(self.api_version, self.kind)}/{self.name}"


def in_the_way(
    group: ObservedGroup, does: str, pods: int = 0, holds: Quantities | None = None
) -> HolderSummary:
    """By the kind and name that people know it by."""
    kind, name, of = group.called.kind, group.called.name, group.called.api_version
    return HolderSummary(kind, group.namespace, name, pods=pods, holds=holds or {}, does=does, api_version=of)


def member_counts(needed: int, pods: Iterable[Pod]) -> MemberCounts:
    pods = list(pods)
    phases = [pod.status.phase for pod in pods]
    left = [pod for pod in pods if pod.status.phase not in ENDED_PHASES]
    return MemberCounts(
        needed=needed,
        there=len(left),
        placed=sum(bool(pod.spec.node_name) for pod in left),
        gated=sum(map(is_gated, left)),
        succeeded=phases.count("Succeeded"),
        failed=phases.count("Failed"),
    )


def is_gated(pod: Pod) -> bool:
    return any(gate.name == GATE for gate in pod.spec.scheduling_gates or ())


def queue_figures_of(queue: ObservedQueue) -> QueueFigures:
    spec, status, counts = queue.spec, queue.status, queue.counts
    return QueueFigures(
        name=queue.name,
        state=queue.state,
        weight=spec.weight,
        share=status.share,
        allocated=status.allocated or {},
        deserved=status.deserved or {},
        capability=spec.capability or {},
        pending=counts["pending"],
        inqueue=counts["inqueue"],
        running=counts["running"],
    )


def held_by(pods: Iterable[Pod]) -> Quantities:
    """What those of these pods hold that are on nodes."""
    holding = [pod for pod in pods if pod.spec.node_name and pod.status.phase not in ENDED_PHASES]
    try:
        sums = total(pod_requests(pod.spec) for pod in holding)
    except BadQuantity:
        return {}
    return {name: quantity for name, quantity in quantities(sums).items() if name != PODS}


# ---- what a pod's object shows of the scheduler that is to place it
#
# Which pods are Muster's is for its configuration to say, which only its administrator sees. What Muster left
# on a pod (its gate, its mark, its message in a condition) says it, too, and else the names that it has by
# default.

SCHEDULERS = Configuration().scheduler_names
_OURS = re.compile(rf"{REFUSAL_PREFIX}([A-Z]\w+)")


def ours(pod: Pod) -> bool:
    if pod.spec.scheduler_name in SCHEDULERS or is_gated(pod) or _our_reason(pod):
        return True
    return any(not MARKS.isdisjoint(container.resources.requests or ()) for container in pod.spec.containers)


def foreign_gates(pod: Pod) -> list[str]:
    return [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != GATE]


def scheduled(pod: Pod) -> Condition:
    """Its condition PodScheduled; one that says nothing while there is none."""
    return condition(pod.status.conditions, POD_SCHEDULED) or Condition(POD_SCHEDULED, "Unknown")


def _our_reason(pod: Pod) -> str:
    """The reason that Muster gave the scheduler, which wrote it on the pod; empty if there is none."""
    found = _OURS.search(scheduled(pod).message)
    return found[1] if found else ""


def reason_of(pod: Pod) -> tuple[str, str]:
    """The reason that the pod's condition gives, and its message; empty where it gives none."""
    if reason := _our_reason(pod):
        return reason, ""
    condition = scheduled(pod)
    return (Reason.REFUSED_BY_SCHEDULER, condition.message) if condition.reason == UNSCHEDULABLE else ("", "")
