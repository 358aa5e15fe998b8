"""Choice of victims for a group: by priority, up a tree, by fairness."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from extender.domain.model.evictions import EvictionCause
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.kueue_world import KueueWorld
from tests.conformance.queueing.needs import in_family
from tests.conformance.verdicts import Check, Skip

CaseData = Mapping[str, Any]
_FAMILIES = ("preempt_classic", "preempt_hierarchical", "preempt_fair")
_GONE = "AlreadyEvicted"


def check_victims(case: Case) -> Iterator[str]:
    """Check the victims; a group that is already leaving is not evicted again."""
    yield from unequal("evicted", expected(case), _world(case).evicted())


@lru_cache(maxsize=8)
def _world(case: Case) -> KueueWorld:
    """Return the same world for all readers."""
    return KueueWorld(case.input, case.input["pending"])


def expected(case: Case) -> dict[str, EvictionCause]:
    victims = [victim for victim in case.expect.get("preempted", ()) if victim["reason"] != _GONE]
    return {victim["id"]: _cause(victim["reason"]) for victim in victims}


def victims_of(case: Case, cause: EvictionCause) -> list[str]:
    """Return the workloads that the case evicts for this cause."""
    return [name for name, expected_cause in expected(case).items() if expected_cause is cause]


def _cause(reason: str) -> EvictionCause:
    if reason == "InCohortReclaimWhileBorrowing":
        return EvictionCause.BORROW
    return EvictionCause.PREEMPT if reason == "InClusterQueue" else EvictionCause.RECLAIM


# ---- differences of Muster


def _takes_from_equals(case: Case) -> bool:
    """Return whether a victim in the newcomer's own queue has no lower priority."""
    (newcomer,) = case.input["pending"]
    victims = expected(case)
    return any(
        victims.get(workload["id"]) is EvictionCause.PREEMPT and workload["priority"] >= newcomer["priority"]
        for workload in case.input["admitted"]
    )


def _takes_beyond_its_share(case: Case) -> bool:
    """Return whether others are evicted although the newcomer brings its queue above its deserved share.

    That holds also without the victims of its queue.
    """
    (newcomer,), same_queue_victims = case.input["pending"], victims_of(case, EvictionCause.PREEMPT)
    takes = bool(victims_of(case, EvictionCause.RECLAIM))
    return takes and _world(case).is_above_share(newcomer["id"], without=same_queue_victims)


def _takes_what_is_deserved(case: Case) -> bool:
    """Return whether an evicted group was of a queue, or below one, within its deserved share."""
    others = [name for name, cause in expected(case).items() if cause is not EvictionCause.PREEMPT]
    (newcomer,) = case.input["pending"]
    return bool(others) and _world(case).lose_deserved_capacity(others, newcomer["id"])


def _spares_its_own(case: Case) -> bool:
    """Return whether others lose capacity to a newcomer within its share, to spare its own queue."""
    victims, world = expected(case), _world(case)
    (newcomer,), evicted = case.input["pending"], world.evicted()
    same_queue_victims = {*victims_of(case, EvictionCause.PREEMPT)}
    others = {name for name, cause in evicted.items() if cause is EvictionCause.RECLAIM}
    return bool(same_queue_victims - evicted.keys() and others - victims.keys()) and not world.is_above_share(
        newcomer["id"]
    )


def _loses_more_work(case: Case) -> bool:
    """Return whether Muster's victims hold less of a resource than the expected ones, and no more of any.

    All victims ran for the same time.
    """
    own_losses, expected_losses = (
        _held_amounts(case, names) for names in (_world(case).evicted(), expected(case))
    )
    return (
        bool(own_losses)
        and all(own_losses[name] <= expected_losses[name] for name in own_losses | expected_losses)
        and own_losses != expected_losses
    )


def _held_amounts(case: Case, names: Collection[str]) -> Counter[str]:
    held = Counter[str]()
    for workload in case.input["admitted"]:
        if workload["id"] in names:
            for pods in workload["usage"]:
                held.update({name: use["amount"] for name, use in pods["usage"].items()})
    return held


CHECKS: dict[str, Check] = dict.fromkeys(_FAMILIES, check_victims)
SKIPS: tuple[Skip, ...] = (
    Skip(
        "inside a queue only groups of a lower priority give way, no equals",
        in_family(*_FAMILIES, where=_takes_from_equals),
    ),
    Skip(
        "a queue reclaims only what it deserves; no pod is evicted for borrowed capacity",
        in_family(*_FAMILIES, where=_takes_beyond_its_share),
    ),
    Skip(
        "a queue gives only while it holds more than it deserves",
        in_family(*_FAMILIES, where=_takes_what_is_deserved),
    ),
    Skip(
        "what queues do not ask for is deserved by the others, so others give before the own queue does",
        in_family(*_FAMILIES, where=_spares_its_own),
    ),
    Skip(
        "of all sets of victims the one goes that loses the least work, whatever its priority",
        in_family(*_FAMILIES, where=_loses_more_work),
    ),
)
