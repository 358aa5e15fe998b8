"""Tables of the kinds of topologies.json with their checks, and of the skipped cases."""

from collections.abc import Callable

from tests.conformance.cases import Case
from tests.conformance.topology.domains import CaseData, check_domains
from tests.conformance.topology.hyper_nodes import check_hyper_nodes
from tests.conformance.verdicts import Check, Skip

_DOMAINS, _HYPER_NODES = "topology.domains", "topology.hyperNodes"
CHECKS: dict[str, Check] = {_DOMAINS: check_domains, _HYPER_NODES: check_hyper_nodes}


def _any_set(needs_it: Callable[[Case, CaseData], bool]) -> Callable[[Case], bool]:
    """Return a check of cases with a pod set that meets a condition."""
    return lambda case: (
        case.kind == _DOMAINS and any(needs_it(case, pod_set) for pod_set in case.input["podSets"])
    )


def _balances_hosts(case: Case, pod_set: CaseData) -> bool:
    return "balanced" in case.tags and pod_set["preferred"] == case.input["levels"][-1]


def _has_larger_slices(case: Case, pod_set: CaseData) -> bool:
    levels, required = case.input["levels"], pod_set["required"]
    slice_levels = [slice_["level"] for slice_ in pod_set["slices"] if slice_["level"] in levels]
    return bool(required) and any(levels.index(level) < levels.index(required) for level in slice_levels)


def _has_slices_without_size(case: Case, pod_set: CaseData) -> bool:
    return not pod_set["group"] and any(
        slice_["level"] and not slice_["size"] for slice_ in pod_set["slices"]
    )


def _lacks_labels_below(case: Case, pod_set: CaseData) -> bool:
    levels, nodes = case.input["levels"], case.input["nodes"]
    return pod_set["required"] != levels[-1] and any(levels[-1] not in node["labels"] for node in nodes)


def _runs_on_unknown_nodes(case: Case) -> bool:
    if not _is_hard(case):
        return False
    names = {"", *(node["name"] for node in case.input["nodes"])}
    return any(pod.get("node", "") not in names for pod in case.input["pods"])


def _names_an_unknown_tier(case: Case) -> bool:
    if not _is_hard(case):
        return False
    tier_names = {hyper_node["tierName"] for hyper_node in case.input["hyperNodes"]}
    requested = {request.get("highestTierName") for request in _requests(case)} - {None, ""}
    return not requested <= tier_names


def _is_hard(case: Case) -> bool:
    return case.kind == _HYPER_NODES and any(request.get("mode") == "hard" for request in _requests(case))


def _requests(case: Case) -> list[CaseData]:
    return [group.get("networkTopology", {}) for group in case.input["podGroups"]]


def _leaves_surplus_waiting(case: Case) -> bool:
    """Return whether a group has more pods than it needs, and none runs although it needs no sub-group."""
    if case.kind != _HYPER_NODES or case.expect["bound"] or any(map(_runs, case.input["pods"])):
        return False
    policies = [policy for group in case.input["podGroups"] for policy in group.get("subGroupPolicy", ())]
    minimum = sum(group["minMember"] for group in case.input["podGroups"])
    is_any_needed = any(policy.get("minSubGroups") for policy in policies)
    return bool(policies) and len(case.input["pods"]) > minimum and not is_any_needed


def _runs(pod: CaseData) -> bool:
    return bool(pod.get("node"))


SKIPS: tuple[Skip, ...] = (
    Skip("slices are of one level", _any_set(lambda _, pod_set: len(pod_set["slices"]) > 1)),
    Skip("a slice without a size is of all pods of its set", _any_set(_has_slices_without_size)),
    Skip("a set in a small domain is in one of each larger level, too", _any_set(_has_larger_slices)),
    Skip("the tightest rack comes first, even if others balance its hosts better", _any_set(_balances_hosts)),
    Skip("a node needs the labels down to the requested level, and no others", _any_set(_lacks_labels_below)),
    Skip("members on nodes that do not exist share a domain with no other", _runs_on_unknown_nodes),
    Skip("a tier with an unknown name is refused, and not ignored", _names_an_unknown_tier),
    Skip("members beyond minMember and subGroupSize delay no start", _leaves_surplus_waiting),
)
