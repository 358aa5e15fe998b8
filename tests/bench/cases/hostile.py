"""Cost that the objects of a hostile tenant cause for other tenants. The API allows all these objects.

The case runs in this process, without a cluster. Milliseconds are CPU time, so that other load on the machine
matters less.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from extender.api.objects.pods import Affinity, LabelSelector, Pod, PodAffinity, PodAffinityTerm, Requirement
from extender.domain.model.records import Uid
from extender.domain.scheduling.decide import decide
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.domain import builders
from tests.domain.world import World

_ANTI_AFFINE_PODS, _TERMS_PER_POD = 100, 300  # number of pods with anti-affinity, and of terms in each pod
_PODS_WITH_SELECTOR = (2500, 7000)  # numbers of pods, for two rows
_FOREIGN_PODS = 120_000  # number of pods of other schedulers
# number of pods with large affinities, and of values in each pod, which then has 1.2 MB
_LARGE_PODS, _VALUES_PER_POD = 100, 25_000
_LONG_NAMES, _NAME_LENGTH = (
    300,
    250_000,
)  # number of pods with a long group name, and of characters in each name
_REPEATS = 5


def hostile(bench: Bench) -> Iterator[Row]:
    """Yield a row for each kind of hostile objects."""
    scale, nodes = min(1.0, bench.sizes.pods / 10_000), bench.sizes.most_nodes
    yield anti_affinity(round(_ANTI_AFFINE_PODS * scale), nodes, everywhere=False)
    yield anti_affinity(round(_ANTI_AFFINE_PODS * scale), nodes, everywhere=True)
    for pods in _PODS_WITH_SELECTOR:
        yield node_selectors(round(pods * scale), nodes)
    yield pods_of_others(round(_FOREIGN_PODS * scale), nodes)
    yield large_affinities(round(_LARGE_PODS * scale))
    yield long_names(round(_LONG_NAMES * scale))


def anti_affinity(pods: int, nodes: int, everywhere: bool, terms: int = _TERMS_PER_POD) -> Row:
    """Measure pods with different anti-affinity terms.

    With `everywhere`, each term selects all pods of all namespaces.
    """
    title = f"{terms} anti-affinity terms each{' in all namespaces' if everywhere else ''}"
    show(f"hostile: {pods} pods, {title}")
    world = World(*(builders.node(f"n{n}", cpu="32") for n in range(nodes)))
    world.add(*(builders.foreign_pod(f"s{n}", on=f"n{n}", labels={"app": "x"}) for n in range(nodes)))
    measurements = _Measurements(
        title, pods, lambda: world.add(*(_anti_affine_pod(n, terms, everywhere) for n in range(pods)))
    )
    return measurements.row(
        world, lambda n: builders.foreign_pod(f"event{n}", on=f"n{n}", cpu="0.1", labels={"app": "x"})
    )


def _anti_affine_pod(number: int, terms: int, everywhere: bool) -> Pod:
    selectors = [
        LabelSelector(None, [Requirement("app", "NotIn", [f"{number}-{n}"])])
        if everywhere
        else LabelSelector({"app": f"{number}-{n}"})
        for n in range(terms)
    ]
    namespaces = LabelSelector() if everywhere else None
    affinity_terms = [
        PodAffinityTerm(builders.HOSTNAME, selector, namespace_selector=namespaces) for selector in selectors
    ]
    affinity = Affinity(pod_anti_affinity=PodAffinity(affinity_terms))
    return builders.pod(f"p{number}", labels={"app": "y"}, affinity=affinity)


def node_selectors(pods: int, nodes: int) -> Row:
    """Measure pods with different node selectors."""
    title = "a node selector each"
    show(f"hostile: {pods} pods, {title}")
    world = World(*(builders.node(f"n{n}", cpu="32") for n in range(nodes)))
    selecting_pods = (builders.pod(f"p{n}", selector={"own": f"{n}"}) for n in range(pods))
    measurements = _Measurements(title, pods, lambda: world.add(*selecting_pods))
    return measurements.row(world, lambda n: builders.node(f"n{n}", cpu="32", labels={"changed": f"{n}"}))


def pods_of_others(pods: int, nodes: int) -> Row:
    """Measure bound pods of other schedulers."""
    title = "of other schedulers"
    show(f"hostile: {pods} pods, {title}")
    world = World(*(builders.node(f"n{n}", cpu="64") for n in range(nodes)))
    foreign_pods = (builders.foreign_pod(f"s{n}", on=f"n{n % nodes}", cpu="0.1") for n in range(pods))
    measurements = _Measurements(title, pods, lambda: world.add(*foreign_pods))
    return measurements.row(world, lambda n: builders.foreign_pod(f"more{n}", on="n0", cpu="0.1"))


def large_affinities(pods: int) -> Row:
    """Measure the memory for pods with large affinities, while the pods exist and after their deletion."""
    texts = [_encoded_large_pod(number) for number in range(pods)]
    size, title = len(texts[0]), "1.2 MB of node affinity each"
    show(f"hostile: {pods} pods, {title}")
    world = World(builders.node("n0"))
    tracemalloc.start()
    bytes_before = _traced_bytes()
    for text in texts:
        world.ledger.pods.set_pod(msgspec.json.decode(text, type=Pod))
    used_bytes = _traced_bytes() - bytes_before
    world.settle()
    for number in range(pods):
        world.ledger.pods.drop(Uid(f"uid-p{number}"))
    for number in range(2):  # Caches keep the last two decisions.
        world.settle().add(builders.foreign_pod(f"event{number}", on="n0", cpu="10m"))
    world.settle()
    remaining_bytes = _traced_bytes() - bytes_before
    tracemalloc.stop()
    return {
        "what": title,
        "pods": pods,
        "kept/size": used_bytes / pods / size,
        "left/size": remaining_bytes / pods / size,
    }


def _encoded_large_pod(number: int) -> bytes:
    values = (f"{number}-{n}-{'x' * 40}" for n in range(_VALUES_PER_POD))
    return msgspec.json.encode(builders.pod(f"p{number}", affinity=builders.on_nodes("own", "In", *values)))


def long_names(pods: int) -> Row:
    """Measure pods that refer to groups with invalid long names. Muster logs messages about such names."""
    title = "250 KB of a group's name each"
    show(f"hostile: {pods} pods, {title}")
    world = World(builders.node("n0"))
    for number in range(pods):
        world.ledger.pods.set_pod(builders.pod(f"p{number}", f"{number}-{'x' * _NAME_LENGTH}"))
    decisions = world.settle().decisions.groups.values()
    message_bytes = sum(len(decision.key) + len(decision.detail) for decision in decisions)
    return {"what": title, "pods": pods, "said MB": message_bytes / 1e6}


def _traced_bytes() -> int:
    """Return the bytes that Python objects use, after a garbage collection."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


class _Measurements:
    """Measurements of a row: the events of the hostile pods, the first decision, and later decisions."""

    def __init__(self, title: str, pods: int, add_pods: Callable[[], Any]) -> None:
        self._row: dict[str, Any] = {"what": title, "pods": pods, "events ms": _cpu_milliseconds(add_pods)}

    def row(self, world: World, event: Callable[[int], Any]) -> Row:
        """Measure the first decision and the decisions after further events. Return the complete row.

        `event` returns the object of the event with a number.
        """
        self._row |= _decision_times(world)
        world.settle()
        times_after_events = []
        for number in range(_REPEATS):
            world.add(event(number))
            times_after_events.append(_decision_times(world))
            world.settle()
        for key in times_after_events[0]:
            self._row[f"after an event {key}"] = min(row[key] for row in times_after_events)
        return self._row


def _decision_times(world: World) -> dict[str, float]:
    """Return the CPU milliseconds of a snapshot and of a decision."""
    gc.collect()
    previous, snapshots = world.ledger.decisions, []
    snapshot_time = _cpu_milliseconds(lambda: snapshots.append(world.ledger.snapshot()))
    decision_time = _cpu_milliseconds(lambda: decide(snapshots[0], previous))
    return {"snapshot ms": snapshot_time, "decide ms": decision_time}


def _cpu_milliseconds(action: Callable[[], Any]) -> float:
    """Call `action`, and return the milliseconds of CPU time that the call took."""
    started_at = time.process_time()
    action()
    return 1000 * (time.process_time() - started_at)
