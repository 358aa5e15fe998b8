"""Cost of decide() in this process, for gangs that need one domain of a topology, and for other gangs.

The nodes are in blocks of 500 and racks of 100. All gangs start in the decision of `first ms`. `next ms` is
the decision after a further event. Ratios compare with gangs without a topology. All numbers are medians.
"""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from extender.api import keys
from extender.domain.model.reasons import Verdict
from extender.domain.snapshot.nodes import Topologies
from tests.bench.cases.deciding import decided_once
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.domain import builders
from tests.domain.builders import HOSTNAME
from tests.domain.world import LIMITS, World, gang

BLOCK, RACK = "example.com/block", "example.com/rack"
_GANGS, _MEMBERS, _ROUNDS = 20, 500, 11
_REQUESTS = {
    "none": {},
    "required": {keys.REQUIRED_TOPOLOGY: RACK},
    "preferred": {keys.PREFERRED_TOPOLOGY: RACK},
    "slices": {keys.REQUIRED_TOPOLOGY: BLOCK, keys.SLICE_TOPOLOGY: RACK, keys.SLICE_SIZE: "50"},
}


def topology_case(bench: Bench) -> Iterator[Row]:
    """Yield a row for each kind of topology request."""
    nodes = bench.sizes.most_nodes
    times: dict[str, list[tuple[float, float]]] = {request: [] for request in _REQUESTS}
    for number in range(1, _ROUNDS + 1):
        show(f"topology: {_GANGS} gangs of {_MEMBERS} on {nodes} nodes, round {number} of {_ROUNDS}")
        for request, annotations in _REQUESTS.items():
            times[request].append(_decision_milliseconds(nodes, annotations))
    times_without_topology = np.array(times["none"])
    for request, request_times in times.items():
        (first_ms, next_ms), ratios = (
            np.median(request_times, axis=0),
            np.median(request_times / times_without_topology, axis=0),
        )
        yield {
            "topology": request,
            "nodes": nodes,
            "gangs": _GANGS,
            "members": _MEMBERS,
            "first ms": round(float(first_ms), 1),
            "ratio": round(float(ratios[0]), 2),
            "next ms": round(float(next_ms), 1),
            "next ratio": round(float(ratios[1]), 2),
        }


def _decision_milliseconds(nodes: int, annotations: dict[str, str]) -> tuple[float, float]:
    """Return the milliseconds of the first decision, which starts all gangs, and of the next decision."""
    world = World(limits=replace(LIMITS, window=_GANGS * _MEMBERS))
    world.ledger.claims.capacity.set_topologies(Topologies([(BLOCK, RACK, HOSTNAME)]))
    for number in range(nodes):
        labels = {BLOCK: f"b{number // 500}", RACK: f"r{number // 100}"}
        world.add(builders.node(f"n{number}", cpu="8", labels=labels))
    for number in range(_GANGS):
        world.add(gang(f"g{number}", _MEMBERS, cpu="1", annotations=annotations))
    _, first_ms, decisions = decided_once(world, None)
    assert {group.verdict for group in decisions.groups.values()} == {Verdict.STARTING}
    world.publish_decisions(decisions)
    world.add(builders.foreign_pod("event", on="n0", cpu="0.1"))
    _, next_ms, _ = decided_once(world, decisions)
    return first_ms, next_ms
