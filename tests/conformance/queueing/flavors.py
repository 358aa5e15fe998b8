"""Checks of flavor assignments: the flavors of a queue, in order."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.reasons import Reason
from extender.domain.scheduling.gang_admission import largest_fitting
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.first_kueue import queue_in_current_format
from tests.conformance.queueing.kueue_world import KueueWorld
from tests.conformance.queueing.needs import in_family
from tests.conformance.verdicts import Check, Skip

CaseData = Mapping[str, Any]


def check_assignment(case: Case) -> Iterator[str]:
    """Check the mode of an assignment.

    Fit: the workload starts. Preempt: it waits, and could start after evictions. NoFit: it waits, and could
    not start after evictions, unless the case forbids them.
    """
    (pending,) = case.input["pending"]
    world = KueueWorld(case.input, [pending])
    fits = case.expect["mode"] == "Fit"
    yield from unequal("starts", fits, world.starts(pending["id"]))
    decision = world.decision(pending["id"])
    if fits:
        yield from differing_flavors(pending, case.expect["podsets"], world.flavors(pending["id"]))
    elif case.expect["mode"] == "Preempt" or not _no_pod_may_be_evicted(case):
        could = decision.reason is not Reason.NEVER_FITS
        yield from unequal("could start", case.expect["mode"] == "Preempt", could)


def differing_flavors(
    pending: CaseData, expected: list[CaseData], used: Mapping[str, set[str]]
) -> Iterator[str]:
    for part in expected:
        flavors = {flavor["flavor"] for flavor in part["flavors"].values()}
        yield from unequal(f"flavors of {part['podset']}", flavors, used.get(part["podset"], set()))


def check_first_assignment(case: Case) -> Iterator[str]:
    """Check an assignment of Kueue v0.1. The borrowed amounts follow from the flavors."""
    pending = {"id": "w", "queue": "q", "priority": 0, "created": 0, "podsets": case.input["podsets"]}
    data = queue_in_current_format(case.input)
    world = KueueWorld(data, [pending])
    yield from unequal("fits", case.expect["fits"], world.starts("w"))
    used = world.flavors("w")
    for part, flavors in case.expect["flavors"].items():
        yield from unequal(f"flavors of {part}", set(flavors.values()), used.get(part, set()))


def check_shrinking(case: Case) -> Iterator[str]:
    parts, limit = case.input["podsets"], case.input["total_limit"]
    counts = {part["name"]: part["count"] for part in parts}
    minimums = {part["name"]: part.get("min_count", part["count"]) for part in parts}
    reduced = largest_fitting(counts, minimums, lambda members: sum(members.values()) <= limit)
    yield from unequal("found", case.expect["found"], reduced is not None)
    yield from unequal("total", case.expect["total"], sum((reduced or {}).values()))


def _no_pod_may_be_evicted(case: Case) -> bool:
    return any(stub["result"] == "NoCandidates" for stub in case.input["preempt_stub"])


def _divides_resources(case: Case) -> bool:
    """Return whether a part of the workload gets several flavors."""
    parts = case.expect.get("podsets")
    if isinstance(parts, list):
        return any(len({flavor["flavor"] for flavor in part["flavors"].values()}) > 1 for part in parts)
    return any(len(set(flavors.values())) > 1 for flavors in case.expect["flavors"].values())


def _tolerates_for_pods(case: Case) -> bool:
    return any(flavor.get("tolerations") for flavor in case.input["flavors"])


def _evicts_before_the_next_flavor(case: Case) -> bool:
    """Return whether the search stops at a flavor that needs evictions although another has capacity."""
    queues, (pending,) = case.input["queues"], case.input["pending"]
    policies = [queue.get("flavor_fungibility", {}) for queue in queues]
    stops = any(policy.get("when_can_preempt") == "MayStopSearch" for policy in policies)
    evicts = stops and case.expect["mode"] == "Preempt"
    return evicts and KueueWorld(case.input, [pending]).starts(pending["id"])


def _borrows_first(case: Case) -> bool:
    """Return whether an earlier flavor is borrowed although the queue has quota of a later one."""
    (pending,) = case.input["pending"]
    world = KueueWorld(case.input, [pending])
    used = {name for flavors in world.flavors(pending["id"]).values() for name in flavors}
    parts = case.expect["podsets"] if case.expect["mode"] == "Fit" else []
    expected_flavors = {flavor["flavor"] for part in parts for flavor in part["flavors"].values()}
    later, earlier = used - expected_flavors, expected_flavors - used
    is_within = [world.is_within_quota(pending["id"], name) for name in later]
    return (
        bool(is_within)
        and all(is_within)
        and not any(world.is_within_quota(pending["id"], name) for name in earlier)
    )


CHECKS: dict[str, Check] = {
    "assign_flavors": check_assignment,
    "assign_flavors_v01": check_first_assignment,
    "partial_admission_search": check_shrinking,
}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "what a queue deserves of a later flavor comes before what it borrows of an earlier one",
        in_family("assign_flavors", where=_borrows_first),
    ),
    Skip(
        "a role uses one flavor for all its resources",
        in_family("assign_flavors", "assign_flavors_v01", where=_divides_resources),
    ),
    Skip(
        "a flavor gives pods no tolerations: Muster changes no pods",
        in_family("assign_flavors", "assign_flavors_v01", where=_tolerates_for_pods),
    ),
    Skip(
        "a flavor with free capacity comes before one that has it only after evictions",
        in_family("assign_flavors", where=_evicts_before_the_next_flavor),
    ),
)
