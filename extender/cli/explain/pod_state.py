"""What a pod's object shows of the scheduler that is to place it, and of what that one said.

Which pods are Muster's is for its configuration to say, which only its administrator sees. What it left on a
pod (its gate, its mark, its message in a condition) says it, too, and else the names that it has by default.
"""

import re

from extender.api.conditions import condition
from extender.api.configuration import Configuration
from extender.api.keys import GATE, MARKS, POD_SCHEDULED, UNSCHEDULABLE
from extender.api.objects.base import Condition
from extender.api.objects.pods import Pod
from extender.cli.explain.explanation import has_gate
from extender.domain.model.reasons import REFUSAL_PREFIX, Reason

SCHEDULERS = Configuration().scheduler_names
_OURS = re.compile(rf"{REFUSAL_PREFIX}([A-Z]\w+)")


def ours(pod: Pod) -> bool:
    if pod.spec.scheduler_name in SCHEDULERS or has_gate(pod, GATE) or _our_reason(pod):
        return True
    return any(not MARKS.isdisjoint(each.resources.requests or ()) for each in pod.spec.containers)


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
