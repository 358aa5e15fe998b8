"""What a session needs of reclaim that Muster does otherwise, read off its input and what it expects."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import PODS
from extender.domain.queues.guarantees_and_ceilings import share
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import key, objects
from tests.conformance.volcano.picture import queue_of, requests
from tests.domain.world import World
from tests.sharing import within

Given = Mapping[str, Any]
_BUT_PODS = frozenset({PODS})


def takes_what_is_deserved(case: Case) -> bool:
    """Whether the victims that the case expects bring their queue below what it deserves."""
    victims = set(case.expect.get("evicted") or ())
    if not victims or "reclaim" not in case.input["actions"]:
        return False
    world, by_queue = World(*objects(case.input)).settle(), dict[str, list[Given]]()
    for each in case.input["pods"]:
        if key(each) in victims:
            by_queue.setdefault(queue_of(case, each), []).append(each)
    return any(_is_below(world, queue, pods) for queue, pods in by_queue.items())


def _is_below(world: World, queue: str, pods: list[Given]) -> bool:
    now, given = world.queue(queue), requests(pods)
    left = {name: held - given.get(name, 0) for name, held in now.allocated.items()}
    return bool(now.deserved) and share(left, now.deserved) < 1.0 - 1e-6


def goes_above_its_share(case: Case) -> bool:
    """Whether who takes the room back would hold more than its queue deserves of something it asks for."""
    if not case.expect.get("evicted") or "reclaim" not in case.input["actions"]:
        return False
    world = World(*objects(case.input)).settle()
    return any(
        not within(requests([each]), world.queue(queue).allocated, world.queue(queue).deserved, _BUT_PODS)
        for queue, each in _claimants(case)
    )


def _claimants(case: Case) -> Iterator[tuple[str, Given]]:
    """Pods that wait in queues that lose none."""
    victims = set(case.expect.get("evicted") or ())
    losers = {queue_of(case, each) for each in case.input["pods"] if key(each) in victims}
    for each in case.input["pods"]:
        queue = queue_of(case, each)
        if not each.get("node") and queue not in losers:
            yield queue, each


def has_a_member_that_never_preempts(case: Case) -> bool:
    """Whether a group takes room back of which some members say that they take none."""
    never = {each["podgroup"] for each in case.input["pods"] if each.get("preemptionPolicy") == "Never"}
    return bool(never) and bool(case.expect.get("evicted"))


def keeps_parents_empty(case: Case) -> bool:
    """Whether pods of a queue with children wait just for that."""
    parents = {each.get("parent") for each in case.input["queues"]}
    waits = [each for each in case.input["pods"] if not each.get("node")]
    return not case.expect.get("binds") and any(queue_of(case, wait) in parents for wait in waits)
