"""The order of victims, the reservations of a blocked head, and the limits of reclaiming."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.reasons import Verdict
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.kueue_world import KueueWorld
from tests.conformance.queueing.needs import in_family
from tests.conformance.verdicts import Check, NoCounterpart, Skip
from tests.domain.builders import node, queue
from tests.domain.world import World, gang

CaseData = Mapping[str, Any]
_FLAVOR, _RESOURCE = "f", "units"
_UNITS = "x.io/units"
_STAYS = "stays"
_MOST_CYCLES = 20


# ---- the order of victims


def check_order(case: Case) -> Iterator[str]:
    """Check the order of candidates: a newcomer needs the capacity of one, then of two, and so on.

    Candidates that are leaving come first: their capacity is counted before any pod is evicted.
    """
    yield from unequal("order", case.expect["order"], _eviction_order(case.input))


def _eviction_order(data: CaseData) -> list[str]:
    order = [candidate["id"] for candidate in data["candidates"] if candidate.get("evicted")]
    for number in range(len(order) + 1, len(data["candidates"]) + 1):
        evicted = _world_of_newcomer(data, number).evicted()
        order += sorted(evicted.keys() - {*order})
    return order


def _world_of_newcomer(data: CaseData, number: int) -> KueueWorld:
    """Return a world with a newcomer whose queue deserves all capacity and asks for it.

    Other queues deserve nothing. Half of the capacity is held by a workload that stays: the newcomer is
    within its queue's share next to all candidates.
    """
    newcomer_queue, candidates = data["preemptor_queue"], data["candidates"]
    capacity = 2 * len(candidates)
    top = max((candidate["priority"] for candidate in candidates), default=0) + 1
    names = sorted({newcomer_queue, _STAYS, *(candidate["queue"] for candidate in candidates)})
    queues = [_queue_in_cohort(name, capacity if name == newcomer_queue else 0) for name in names]
    permanent = {"id": _STAYS, "queue": _STAYS, "priority": top, "reserved_at": 0}
    held = [(permanent, len(candidates)), *((candidate, 1) for candidate in candidates)]
    admitted = [
        {**workload, "created": workload["reserved_at"], "usage": [_usage(n)]} for workload, n in held
    ]
    pending = [
        _pending_workload("newcomer", newcomer_queue, top, number),
        _pending_workload("never-fits", newcomer_queue, top - 10**6, capacity),
    ]
    return KueueWorld({"queues": queues, "cohorts": [], "admitted": admitted}, pending)


def _pending_workload(name: str, queue: str, priority: int, amount: int) -> CaseData:
    part = {"name": "p", "count": 1, "request": {_RESOURCE: amount}}
    flavors = {"p": {_RESOURCE: {"flavor": _FLAVOR}}}
    fields = {"id": name, "queue": queue, "priority": priority, "created": 0}
    return {**fields, "podsets": [part], "assignment": flavors}


def _queue_in_cohort(name: str, nominal: int) -> CaseData:
    quota = [[{"flavor": _FLAVOR, "resources": {_RESOURCE: {"nominal": nominal}}}]]
    policy = {"within_queue": "LowerPriority", "reclaim_in_cohort": "LowerPriority"}
    return {"name": name, "cohort": "all", "preemption": policy, "resource_groups": quota}


def _usage(amount: int) -> CaseData:
    return {"name": "p", "count": 1, "usage": {_RESOURCE: {"flavor": _FLAVOR, "amount": amount}}}


def _looks_at_submitters(case: Case) -> bool:
    """Return whether the usage of submitters changes the order inside a queue by priority and run time."""
    candidates = {candidate["id"]: candidate for candidate in case.input["candidates"]}
    order = [candidates[name] for name in case.expect["order"] if name in candidates]
    same_queue = [candidate for candidate in order if candidate["queue"] == case.input["preemptor_queue"]]
    sort_keys = [
        (not candidate.get("evicted"), candidate["priority"], -candidate["reserved_at"])
        for candidate in same_queue
    ]
    return (
        sort_keys != sorted(sort_keys)
        and len({candidate.get("submitter_usage") for candidate in same_queue}) > 1
    )


# ---- reservations of a blocked head


def check_blocked(case: Case) -> Iterator[str]:
    """Check that a head that fits starts, and takes its requests."""
    if _waits_for_evictions(case):
        raise NoCounterpart("quota that is kept for a group that waits for evictions")
    requested, expected = _amounts_by_name(case.input["wanted"]), _amounts_by_name(case.expect["reserved"])
    more = {name: str(amount) for name, amount in requested.items()}
    world = World(node("n", more=more), queue("q"), gang("head", 1, queue="q", cpu="0", more=more))
    held = world.start("head").queue("q").allocated
    yield from unequal("taken", expected, {name: held.get(name, 0) for name in requested})


def _amounts_by_name(amounts: list[CaseData]) -> dict[str, int]:
    return {f"x.io/{amount['flavor']}.{amount['resource']}": amount["amount"] for amount in amounts}


def _waits_for_evictions(case: Case) -> bool:
    return bool(case.input["mode"] != "Fit")


# ---- limits of reclaiming


def check_guaranteed(case: Case) -> Iterator[str]:
    """Check groups of one, until nothing changes any more."""
    world = _running_world(case.input)
    for _ in range(_MOST_CYCLES):
        decided = world.settle().decisions
        victims = [eviction.victim.name for eviction in decided.evictions.values()]
        starting = [key for key, decision in decided.groups.items() if decision.verdict is Verdict.STARTING]
        if not victims and not starting:
            break
        world.delete(*victims).start(*(key.partition("/")[2] for key in starting))
    for name, amount in case.expect["after"].items():
        held = decided.queues[name].allocated if name in decided.queues else {}
        yield from unequal(name, amount, held.get(_UNITS, 0))


def _running_world(data: CaseData) -> World:
    """Return a world with the running groups and the additional requests."""
    capacity = max((queue_data.get("max", 0) for queue_data in data["queues"]), default=0)
    only_node = node("n", pods="10000", more={_UNITS: str(capacity)})
    world = World(
        only_node,
        *(_guaranteed_queue(queue_data) for queue_data in data["queues"] if queue_data["name"] != "root"),
    )
    inner = {queue_data.get("parent") for queue_data in data["queues"]} | {"root"}
    for queue_data in data["queues"]:
        if queue_data["name"] not in inner:
            world.add(_groups(queue_data, "before", queue_data.get("before", 0), on="n"))
            world.add(_groups(queue_data, "more", queue_data.get("demand", 0)))
    return world


def _guaranteed_queue(data: CaseData) -> Any:
    maximum, reserved = data.get("max"), data.get("guaranteed")
    return queue(
        data["name"],
        parent=data.get("parent", "root"),
        capability=None if maximum is None else {_UNITS: str(maximum)},
        guarantee=None if reserved is None else {_UNITS: str(reserved)},
        deserved=None if reserved is None else {_UNITS: str(reserved)},
    )


def _groups(data: CaseData, name: str, amount: int, on: str = "") -> list[Any]:
    """Return gangs of one pod each, which request the amount together."""
    size = data.get("pod_size", 1)
    names = [f"{data['name']}-{name}-{number}" for number in range(amount // size)]
    more = {_UNITS: str(size)}
    return [gang(name, 1, queue=data["name"], cpu="0", more=more, on=on) for name in names]


def _deserves_more(case: Case) -> bool:
    """Return whether a queue with requests deserves more than it has at the end of the case."""
    queues = _running_world(case.input).settle().decisions.queues
    names = {queue["name"] for queue in case.input["queues"] if queue.get("demand")}
    after = case.expect["after"]
    return any(queues[name].deserved.get(_UNITS, 0.0) > after[name] for name in names & after.keys())


CHECKS: dict[str, Check] = {
    "candidate_order": check_order,
    "blocked_capacity": check_blocked,
    "guaranteed_reclaim_doc": check_guaranteed,
}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "what its submitter uses does not count for a group, only its priority and how long it ran",
        in_family("candidate_order", where=_looks_at_submitters),
    ),
    Skip(
        "a group without enough victims reserves no quota of its queue: only nodes, and within its share",
        in_family("blocked_capacity", where=_waits_for_evictions),
    ),
    Skip(
        "the rest after guarantees is deserved by weight as well, so more is reclaimed",
        in_family("guaranteed_reclaim_doc", where=_deserves_more),
    ),
)
