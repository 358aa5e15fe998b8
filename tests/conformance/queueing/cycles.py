"""Whole scheduling cycles: starts, evictions and waits."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from extender.domain.model.evictions import EvictionCause
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.first_kueue import in_current_format
from tests.conformance.queueing.kueue_world import KueueWorld, limits
from tests.conformance.queueing.needs import in_family
from tests.conformance.queueing.preemption import expected, victims_of
from tests.conformance.verdicts import Check, Skip

CaseData = Mapping[str, Any]
_FIRST = "admit_cycle_v01"
_FAMILIES = ("admit_cycle", "admit_cycle_fair", _FIRST)


def check_cycle(case: Case) -> Iterator[str]:
    """Check a cycle with the head of each queue. Heads that are not admitted only have to wait."""
    world = _world(case)
    if _evicts(case):
        yield from unequal("evicted", expected(case), world.evicted())
    yield from unequal("admitted", _admitted(case), world.starting())
    for workload, assignment in case.expect["assignments"].items():
        used = world.flavors(workload)
        for part, flavors in _flavors(assignment).items():
            yield from unequal(f"flavors of {part} of {workload}", flavors, used.get(part, set()))
    elastic = _elastic_workloads(case)
    grown = _new_world(case) if elastic else world
    for workload in elastic:
        yield from unequal(f"members of {workload}", _members(case, workload), grown.members(workload))


@lru_cache(maxsize=8)
def _world(case: Case, *only: str) -> KueueWorld:
    """Return a world of the case, which is cached."""
    return _new_world(case, *only)


def _new_world(case: Case, *only: str) -> KueueWorld:
    """Return a world with the heads of all queues, or only with the workloads `only`."""
    data = in_current_format(case.input) if case.kind == _FIRST else case.input
    return KueueWorld(data, [head for head in _heads(case) if not only or head["id"] in only])


def _heads_of_queues(case: Case) -> list[CaseData]:
    """Return the heads without those whose queue does not exist."""
    names = {queue["name"] for queue in case.input["queues"]}
    return [head for head in _heads(case) if head["queue"] in names]


def _first_flavors(case: Case, head: CaseData) -> CaseData:
    data = (*case.input["queues"], *case.input["cohorts"])
    totals = Counter[tuple[str, str]]()
    for pair, limit in chain.from_iterable(map(limits, data)):
        totals[pair] += limit["nominal"]
    queue = next(candidate for candidate in case.input["queues"] if candidate["name"] == head["queue"])
    flavors_by_part: dict[str, dict[str, CaseData]] = {}
    for part in head["podsets"]:
        for (flavor, resource), _ in limits(queue):
            requested = part["request"].get(resource, 0) * part.get("min_count", part["count"])
            if 0 < requested <= totals[flavor, resource]:
                flavors_by_part.setdefault(part["name"], {}).setdefault(resource, {"flavor": flavor})
        flavors_by_part.setdefault(part["name"], {})
    return flavors_by_part


def _heads(case: Case) -> list[CaseData]:
    """Return the first workload of each queue: by priority, then by age."""
    first: dict[str, CaseData] = {}
    pending = case.input["pending"]
    for workload in sorted(pending, key=lambda head: (-head["priority"], head["created"], head["id"])):
        first.setdefault(workload["queue"], workload)
    return list(first.values())


def _admitted(case: Case) -> list[str]:
    return sorted(case.expect["admitted"])


def _flavors(assignment: CaseData) -> dict[str, set[str]]:
    """Return the flavors by part of the workload."""
    if "flavors" in assignment:
        return {part: set(flavors.values()) for part, flavors in assignment["flavors"].items()}
    return {part["name"]: {use["flavor"] for use in part["usage"].values()} for part in assignment["podsets"]}


def _elastic_workloads(case: Case) -> list[str]:
    """Return the admitted workloads with optional members."""
    admitted = [workload for workload in case.input["pending"] if workload["id"] in case.expect["admitted"]]
    return [
        workload["id"] for workload in admitted if any("min_count" in part for part in workload["podsets"])
    ]


def _members(case: Case, workload: str) -> dict[str, int]:
    return {part["name"]: part["count"] for part in case.expect["assignments"][workload]["podsets"]}


# ---- differences of Muster


def _evicts(case: Case) -> bool:
    return bool(case.expect.get("preempted"))


def _borrows_first(case: Case) -> bool:
    """Return whether an earlier flavor is borrowed although the queue has quota of a later one."""
    world, assignments = _world(case), case.expect["assignments"]
    used = {workload: {*chain(*world.flavors(workload).values())} for workload in assignments}
    expected_flavors = {
        workload: {*chain(*_flavors(assignment).values())} for workload, assignment in assignments.items()
    }
    later = [
        (workload, name) for workload, names in used.items() for name in names - expected_flavors[workload]
    ]
    earlier = [
        (workload, name) for workload, names in expected_flavors.items() for name in names - used[workload]
    ]
    later_within_quota = [world.is_within_quota(workload, name) for workload, name in later]
    return (
        bool(later)
        and all(later_within_quota)
        and not any(world.is_within_quota(workload, name) for workload, name in earlier)
    )


def _divides_resources(case: Case) -> bool:
    parts = [_flavors(assignment) for assignment in case.expect["assignments"].values()]
    return any(len(flavors) > 1 for part in parts for flavors in part.values())


def _shrinks_in_proportion(case: Case) -> bool:
    """Return whether the numbers of optional members, which start one by one, differ from the case."""
    for head in _heads(case):
        elastic_parts = [part for part in head["podsets"] if "min_count" in part]
        if head["id"] not in _elastic_workloads(case) or len(elastic_parts) < 2:
            continue
        if _new_world(case).members(head["id"]) != _members(case, head["id"]):
            return True
    return False


def _extra_heads(case: Case) -> list[str]:
    """Return heads that start although they wait in the case, if all its admitted heads start."""
    starting = _world(case).starting()
    return sorted({*starting} - {*_admitted(case)}) if {*_admitted(case)} <= {*starting} else []


def _falls_back_at_once(case: Case) -> bool:
    """Return whether heads get another flavor, since the first one was used up in the same decision."""
    extra_heads, world_of_all = _extra_heads(case), _world(case)
    return bool(extra_heads) and all(
        world_of_all.flavors(head) != _world(case, head).flavors(head) for head in extra_heads
    )


def _lends_at_once(case: Case) -> bool:
    """Return whether each head would get the same flavor alone, so that nothing reserves its capacity."""
    extra_heads, world_of_all = _extra_heads(case), _world(case)
    return bool(extra_heads) and any(
        world_of_all.flavors(head) == _world(case, head).flavors(head) for head in extra_heads
    )


def _orders_queues_otherwise(case: Case) -> bool:
    """Return whether the heads that the case admits would all start alone, but not next to the others."""
    admitted = {*_admitted(case)}
    starting = {*_world(case).starting()}
    return bool(admitted - starting) and {*_world(case, *sorted(admitted)).starting()} == admitted


# ---- differences of Muster in cases with evictions


def _starts_smaller(case: Case) -> bool:
    """Return whether an elastic head starts with fewer members instead."""
    elastic = {head["id"] for head in _heads(case) if any("min_count" in part for part in head["podsets"])}
    return _evicts(case) and bool(elastic & {*_extra_heads(case)})


def _fits_on_another_flavor(case: Case) -> bool:
    return _evicts(case) and bool(_extra_heads(case)) and not _world(case).starting()


def _evicts_on_another_flavor(case: Case) -> bool:
    """Return whether no victim is on the first flavor, although evictions there would help as well."""
    first_flavors = {
        use["flavor"]
        for head in _heads_of_queues(case)
        for uses in _first_flavors(case, head).values()
        for use in uses.values()
    }
    victims = [workload for workload in case.input["admitted"] if workload["id"] in expected(case)]
    flavors_of_victims = {
        use["flavor"] for victim in victims for part in victim["usage"] for use in part["usage"].values()
    }
    return bool(victims) and not first_flavors & flavors_of_victims and bool(_world(case).evicted())


def _evicts_from_within_a_share(case: Case) -> bool:
    others = victims_of(case, EvictionCause.RECLAIM)
    if not others:
        return False
    world = _world(case)
    return any(world.lose_deserved_capacity(others, head["id"]) for head in _waiting_heads(case))


def _evicts_beyond_a_share(case: Case) -> bool:
    """Return whether a head brings its queue above its deserved share, although others are evicted."""
    waiting = _waiting_heads(case)
    if not waiting or not victims_of(case, EvictionCause.RECLAIM):
        return False
    world, same_queue_victims = _world(case), victims_of(case, EvictionCause.PREEMPT)
    queue_of = {workload["id"]: workload["queue"] for workload in case.input["admitted"]}
    for head in waiting:
        own_victims = [name for name in same_queue_victims if queue_of.get(name) == head["queue"]]
        if not world.is_above_share(head["id"], own_victims):
            return False
    return True


def _empties_its_own_queue_first(case: Case) -> bool:
    """Return whether a head above its queue's deserved share finds enough victims in that queue."""
    if not victims_of(case, EvictionCause.RECLAIM):
        return False
    world = _world(case)
    is_own = {*world.evicted().values()} == {EvictionCause.PREEMPT}
    return is_own and all(world.is_above_share(head["id"]) for head in _waiting_heads(case))


def _shares_unrequested_quota(case: Case) -> bool:
    """Return whether a queue without victims deserves more than its quota."""
    if not victims_of(case, EvictionCause.RECLAIM):
        return False
    world = _world(case)
    return world.deserve_more_than_nominal(expected(case).keys() - world.evicted().keys())


def _waiting_heads(case: Case) -> list[CaseData]:
    """Return heads that wait in the case until victims have ended."""
    return [head for head in _heads_of_queues(case) if head["id"] not in _admitted(case)]


CHECKS: dict[str, Check] = dict.fromkeys(_FAMILIES, check_cycle)
SKIPS: tuple[Skip, ...] = (
    Skip(
        "what a queue deserves of a later flavor comes before what it borrows of an earlier one",
        in_family(*_FAMILIES, where=_borrows_first),
    ),
    Skip(
        "a role uses one flavor for all its resources",
        in_family(*_FAMILIES, where=_divides_resources),
    ),
    Skip(
        "a group starts with as many members as fit before any pod is evicted",
        in_family(*_FAMILIES, where=_starts_smaller),
    ),
    Skip(
        "a flavor with free capacity comes before one that has it only after evictions",
        in_family(*_FAMILIES, where=_fits_on_another_flavor),
    ),
    Skip(
        "flavors are tried in their order for evictions, too, for any victims",
        in_family(*_FAMILIES, where=_evicts_on_another_flavor),
    ),
    Skip(
        "a queue reclaims only what it deserves; no pod is evicted for borrowed capacity",
        in_family(*_FAMILIES, where=_evicts_beyond_a_share),
    ),
    Skip(
        "a queue gives only while it holds more than it deserves",
        in_family(*_FAMILIES, where=_evicts_from_within_a_share),
    ),
    Skip(
        "a group that brings its queue above its deserved share first takes capacity of that queue",
        in_family(*_FAMILIES, where=_empties_its_own_queue_first),
    ),
    Skip(
        "what queues do not ask for is deserved by the others, so another one is furthest above its share",
        in_family(*_FAMILIES, where=_shares_unrequested_quota),
    ),
    Skip(
        "members beyond minMember start one by one, by priority and name, not in proportion",
        in_family(*_FAMILIES, where=_shrinks_in_proportion),
    ),
    Skip(
        "flavors are chosen next to what earlier groups of the same decision took, not on a frozen picture",
        in_family(*_FAMILIES, where=_falls_back_at_once),
    ),
    Skip(
        "capacity that no group within its share claims is borrowed at once, by several queues of a cohort",
        in_family(*_FAMILIES, where=_lends_at_once),
    ),
    Skip(
        "between queues their priority, share and recent use count, not the priorities of their heads",
        in_family(*_FAMILIES, where=_orders_queues_otherwise),
    ),
)
