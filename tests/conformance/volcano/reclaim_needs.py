"""Expectations of reclaim in sessions that differ from Muster, read from their input and result."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import PODS
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import key, objects
from tests.conformance.volcano.picture import queue_of, requests
from tests.domain.world import World
from tests.sharing import within

CaseData = Mapping[str, Any]
_NOT_COMPARED = frozenset({PODS})


def spares_whole_gangs(case: Case) -> bool:
    """Return whether nothing is evicted although a whole gang would free enough capacity."""
    if case.expect.get("evictedPerGroup") != {} or "reclaim" not in case.input["actions"]:
        return False
    evictions = World(*objects(case.input)).settle().decisions.evictions.values()
    evicted = Counter(eviction.victim.group.partition("/")[2] for eviction in evictions)
    return bool(evicted) and evicted == Counter(
        each["podgroup"] for each in case.input["pods"] if each.get("node")
    )


def goes_above_its_share(case: Case) -> bool:
    """Return whether the reclaiming group would bring its queue above its share of a requested resource."""
    if not case.expect.get("evicted") or "reclaim" not in case.input["actions"]:
        return False
    world = World(*objects(case.input)).settle()
    return any(
        not within(requests([each]), world.queue(queue).allocated, world.queue(queue).deserved, _NOT_COMPARED)
        for queue, each in _claimants(case)
    )


def _claimants(case: Case) -> Iterator[tuple[str, CaseData]]:
    """Yield the waiting pods of queues without victims, with their queues."""
    victims = set(case.expect.get("evicted") or ())
    losers = {queue_of(case, each) for each in case.input["pods"] if key(each) in victims}
    for each in case.input["pods"]:
        queue = queue_of(case, each)
        if not each.get("node") and queue not in losers:
            yield queue, each


def has_a_member_that_never_preempts(case: Case) -> bool:
    """Return whether a group reclaims although some members say that they never preempt."""
    never = {each["podgroup"] for each in case.input["pods"] if each.get("preemptionPolicy") == "Never"}
    return bool(never) and bool(case.expect.get("evicted"))


def keeps_parents_empty(case: Case) -> bool:
    """Return whether pods of a queue with children wait just for that."""
    parents = {each.get("parent") for each in case.input["queues"]}
    waits = [each for each in case.input["pods"] if not each.get("node")]
    return not case.expect.get("binds") and any(queue_of(case, wait) in parents for wait in waits)
