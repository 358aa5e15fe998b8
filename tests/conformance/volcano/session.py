"""Kind `session`: one cycle of a scheduler over nodes, queues, groups and pods.

Muster decides on all groups at once. Volcano's action `enqueue` is the first decision, with the phases that
it writes to the PodGroups; `allocate` is the stock scheduler's part, the binding of planned pods.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup
from extender.domain.model.records import Uid
from tests.conformance.amounts import amounts, differing, unequal
from tests.conformance.cases import Case
from tests.conformance.verdicts import NoCounterpart
from tests.conformance.volcano.objects import key, objects
from tests.conformance.volcano.phases import phases
from tests.conformance.volcano.scheduler import Binds, schedule
from tests.domain.world import World

DECIDED_ACTIONS, SCHEDULER_ACTION = ("enqueue", "backfill", "reclaim", "preempt"), "allocate"
PERFORMED_ACTIONS = frozenset({*DECIDED_ACTIONS, SCHEDULER_ACTION})


def check_session(case: Case) -> Iterator[str]:
    _require_performed(case.input["actions"])
    data = list(objects(case.input))
    world = World(*data).settle()
    yield from _decision_differences(case, world, data)
    pods = [obj for obj in data if isinstance(obj, Pod)]
    binds = schedule(world, pods) if SCHEDULER_ACTION in case.input["actions"] else {}
    yield from _binding_differences(case, binds)
    yield from _reclaim_differences(case, world)


def _reclaim_differences(case: Case, world: World) -> Iterator[str]:
    """Yield differences in the evicted pods and in the capacity reserved on nodes for groups."""
    victims = [eviction.victim for eviction in world.decisions.evictions.values()]
    decisions = world.decisions.groups.items()
    reclaims = {str(key): decision.reclaim for key, decision in decisions if decision.reclaim}
    actual: dict[str, Any] = {
        "evictedPerGroup": dict(Counter(victim.group for victim in victims)),
        "pipelined": {group: sorted(reclaim.plan.values()) for group, reclaim in reclaims.items()},
        "pipelinedPerGroup": {group: len(reclaim.plan) for group, reclaim in reclaims.items()},
    }
    yield from _eviction_differences(case, sorted(f"{victim.namespace}/{victim.name}" for victim in victims))
    for field, value in actual.items():
        if field in case.expect:
            yield from unequal(field, case.expect[field], value)


def _eviction_differences(case: Case, evicted: list[str]) -> Iterator[str]:
    expected, similar = sorted(case.expect.get("evicted", evicted)), _key_of_equal_victims(case)
    if sorted(map(similar, expected)) != sorted(map(similar, evicted)):
        yield from unequal("evicted", expected, evicted)


def _key_of_equal_victims(case: Case) -> Callable[[str], str]:
    """Return a key of equal victims: Volcano takes them at random, Muster by UID."""
    queues = {group["name"]: group["queue"] for group in case.input["podGroups"]}
    similar = {
        f"{pod['namespace']}/{pod['name']}": json.dumps(
            [queues.get(pod.get("podgroup")), pod.get("node"), pod.get("priority"), pod.get("requests")],
            sort_keys=True,
        )
        for pod in case.input["pods"]
    }
    return lambda name: similar.get(name, name)


def check_cycles(case: Case) -> Iterator[str]:
    """Check kind `session.multi`: several cycles in turn, each with the result of the previous ones."""
    world, pods = World(*objects(case.input)), list[Pod]()
    for number, (cycle, expect) in enumerate(zip(case.input["cycles"], case.expect["cycles"], strict=True)):
        _require_performed(cycle.get("actions", ()))
        arrivals = list(objects({"podGroups": cycle.get("addPodGroups"), "pods": cycle.get("addPods")}))
        pods += [arrival for arrival in arrivals if isinstance(arrival, Pod)]
        world.add(*arrivals)
        binds = schedule(world, pods) if SCHEDULER_ACTION in cycle.get("actions", ()) else {}
        yield from unequal(f"binds of cycle {number}", expect["binds"], binds)


def _require_performed(actions: Iterable[str]) -> None:
    missing = sorted(set(actions) - PERFORMED_ACTIONS)
    if missing:
        raise NoCounterpart(f"action {', '.join(missing)}")


def _decision_differences(case: Case, world: World, data: list[Any]) -> Iterator[str]:
    for name, vector in (case.expect.get("deserved") or {}).items():
        deserved = world.queue(name).deserved if name in world.decisions.queues else {}
        yield from differing(f"deserved of {name}", amounts(vector), deserved)
    if case.expect.get("podGroupPhases"):
        actual = phases(world, [obj for obj in data if isinstance(obj, PodGroup)])
        for group, phase in case.expect["podGroupPhases"].items():
            yield from unequal(f"phase of {group}", phase, actual.get(group))


def _binding_differences(case: Case, binds: Binds) -> Iterator[str]:
    if "binds" in case.expect:
        yield from unequal("binds", case.expect["binds"], dict(binds))
    else:
        yield from unequal("bound per group", case.expect["boundPerGroup"], bound_by_group(case, binds))


def bound_by_group(case: Case, binds: Mapping[Uid, str]) -> dict[str, int]:
    """Return how many pods of each group are bound."""
    groups = {key(pod): f"{pod['namespace']}/{pod['podgroup']}" for pod in case.input["pods"]}
    return dict(Counter(groups[uid] for uid in binds))
