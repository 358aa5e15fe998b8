"""Expectations of the smaller kinds that differ from Muster."""

from extender.domain.model.resources import offered, requested_amounts, total
from tests.conformance.cases import Case

_DEFAULT_FACTOR = 1.2  # of Volcano's overcommit plugin, also in place of a factor below 1


def compares_with_infinity(case: Case) -> bool:
    return case.kind == "resource.op" and (case.input["op"], case.input.get("missing")) == (
        "lessEqual",
        "infinity",
    )


def counts_absent_as_zero(case: Case) -> bool:
    """Return whether an absent cpu or memory of the right side is to count as 0.

    That holds although an absent value counts as infinite: there is such a rule for other resources only.
    """
    if case.kind != "resource.op" or case.input["op"] != "minPerDimension":
        return False
    if case.input.get("missing") != "infinity":
        return False
    left, right = case.input["left"], case.input["right"]
    return any(left.get(name, 0) > 0 and not right.get(name) for name in ("cpuMilli", "memoryBytes"))


def shares_nothing(case: Case) -> bool:
    """Return whether nothing is deserved and nothing held."""
    if case.kind != "queue.share":
        return False
    deserved, held = offered(case.input["deserved"]), requested_amounts(case.input["allocated"])
    return not any(deserved.values()) and not any(held.values())


def oversells(case: Case) -> bool:
    """Return whether the requests exceed the nodes' capacity, but not the capacity times the factor."""
    if case.kind != "overcommit" or not case.input.get("minResources"):
        return False
    capacity = total(offered(node["allocatable"]) for node in case.input["nodes"])
    requested = requested_amounts(case.input["minResources"])
    reserved = total(requested_amounts(vector) for vector in case.input["alreadyReserved"])
    free = {name: capacity.get(name, 0) - reserved.get(name, 0) for name in requested}
    surplus = {name: capacity.get(name, 0) * (_factor(case) - 1) for name in requested}
    is_short = any(requested[name] > free[name] for name in requested)
    return is_short and all(requested[name] <= free[name] + surplus[name] for name in requested)


def _factor(case: Case) -> float:
    data = float(case.input.get("factorArgument") or 0)
    return data if data >= 1 else _DEFAULT_FACTOR


def shows_absent_fields_as_empty(case: Case) -> bool:
    """Return whether a row is to show nothing, or 0, for an absent weight, parent or state of a queue."""
    if (case.kind, case.input.get("command")) != ("cli", "list"):
        return False
    return any(not {"weight", "state", "parent"} <= queue.keys() for queue in case.input["queues"])


def blocks_its_owner(case: Case) -> bool:
    """Return whether a PodGroup that is made for pods is to block the deletion of its owner."""
    if case.kind != "podgroup.build":
        return False
    return any(reference.get("blockOwnerDeletion") for reference in case.expect.get("ownerReferences") or ())
