"""Rules for pods and groups that do not concern their queue."""

import re
from collections.abc import Iterator

from extender.api.keys import MAX_UNAVAILABLE, MIN_AVAILABLE
from extender.api.objects.pods import Pod
from extender.api.reviewed import NewPodGroup, Topology
from extender.domain.admission.faults import Code, Fault

_BUDGET = re.compile(r"0*[1-9][0-9]{0,8}|0*[1-9][0-9]?%")


def judge_budgets(pod: Pod) -> Iterator[Fault]:
    """The disruption budget of a pod's Job."""
    annotations = pod.metadata.annotations or {}
    given = [key for key in (MIN_AVAILABLE, MAX_UNAVAILABLE) if key in annotations]
    for key in given:
        if _BUDGET.fullmatch(annotations[key]) is None:
            text = f"got {annotations[key]!r}; allowed is a whole number above 0, or 1% to 99%"
            yield Fault(Code.BUDGET_NOT_VALID, f"metadata.annotations[{key}]", text)
    if len(given) > 1:
        text = f"given together with {MIN_AVAILABLE}; allowed is only one of the two"
        yield Fault(Code.BUDGET_TWICE, f"metadata.annotations[{MAX_UNAVAILABLE}]", text)


def judge_topologies(group: NewPodGroup) -> Iterator[Fault]:
    yield from _judge_topology("spec.networkTopology", group.spec.network_topology)
    for number, each in enumerate(group.spec.sub_group_policy or ()):
        yield from _judge_topology(f"spec.subGroupPolicy[{number}].networkTopology", each.network_topology)


def _judge_topology(field: str, topology: Topology | None) -> Iterator[Fault]:
    if topology and topology.highest_tier_allowed is not None and topology.highest_tier_name:
        text = f"got highestTierAllowed {topology.highest_tier_allowed} and highestTierName "
        text += f"{topology.highest_tier_name!r}; allowed is only one of the two"
        yield Fault(Code.TOPOLOGY_BOTH_TIERS, field, text)
