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
        pod_data["podgroup"] for pod_data in case.input["pods"] if pod_data.get("node")
    )


def goes_above_its_share(case: Case) -> bool:
    """Return whether the reclaiming group would bring its queue above its share of a requested resource."""
    if not case.expect.get("evicted") or "reclaim" not in case.input["actions"]:
        return False
    world = World(*objects(case.input)).settle()
    return any(
        not within(
            requests([pod_data]), world.queue(queue).allocated, world.queue(queue).deserved, _NOT_COMPARED
        )
        for queue, pod_data in _claimants(case)
    )


def _claimants(case: Case) -> Iterator[tuple[str, CaseData]]:
    """Yield the waiting pods of queues without victims, with their queues."""
    victims = set(case.expect.get("evicted") or ())
    queues_with_victims = {
        queue_of(case, pod_data) for pod_data in case.input["pods"] if key(pod_data) in victims
    }
    for pod_data in case.input["pods"]:
        queue = queue_of(case, pod_data)
        if not pod_data.get("node") and queue not in queues_with_victims:
            yield queue, pod_data


def has_a_member_that_never_preempts(case: Case) -> bool:
    """Return whether a group reclaims although some members say that they never preempt."""
    never = {
        pod_data["podgroup"] for pod_data in case.input["pods"] if pod_data.get("preemptionPolicy") == "Never"
    }
    return bool(never) and bool(case.expect.get("evicted"))


def keeps_parents_empty(case: Case) -> bool:
    """Return whether pods wait in the case only because their queue has children."""
    parents = {pod_data.get("parent") for pod_data in case.input["queues"]}
    waiting_pods = [pod_data for pod_data in case.input["pods"] if not pod_data.get("node")]
    return not case.expect.get("binds") and any(
        queue_of(case, pod_data) in parents for pod_data in waiting_pods
    )
