"""Kind `topology.hyperNodes`: PodGroups with networkTopology and subGroupPolicy in a cluster with HyperNodes.

The check compares the number of bound pods and, where the table names nodes, their lowest HyperNodes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from extender.api.objects.pods import Pod
from extender.api.objects.volcano import HyperNode
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import objects
from tests.conformance.volcano.scheduler import Binds, schedule
from tests.domain.world import World

CaseData = Mapping[str, Any]


def check_hyper_nodes(case: Case) -> Iterator[str]:
    data = list(objects(case.input))
    world = World(*data, *map(_hyper_node, case.input["hyperNodes"])).settle()
    binds = schedule(world, [obj for obj in data if isinstance(obj, Pod)])
    yield from unequal("bound", case.expect["bound"], len(binds))
    if "binds" in case.expect:
        expected = {uid: _lowest_hyper_node(case, node) for uid, node in case.expect["binds"].items()}
        yield from unequal(
            "HyperNodes", expected, {uid: _lowest_hyper_node(case, binds.get(uid, "")) for uid in expected}
        )
    yield from _spread_differences(case, binds)


def _spread_differences(case: Case, binds: Binds) -> Iterator[str]:
    """Yield differences of the number of pods in each HyperNode."""
    if "boundInHyperNodes" in case.expect:
        pod_counts = Counter(_lowest_hyper_node(case, node) for node in binds.values())
        yield from unequal(
            "bound in HyperNodes", case.expect["boundInHyperNodes"], sorted(pod_counts.values())
        )


def _lowest_hyper_node(case: Case, node: str) -> str:
    """Return the HyperNode of the lowest tier that has a node; the node itself if none has it."""
    tiers = sorted(case.input["hyperNodes"], key=lambda hyper_node: int(hyper_node["tier"]))
    return next((str(hyper_node["name"]) for hyper_node in tiers if node in hyper_node["nodes"]), node)


def _hyper_node(data: CaseData) -> HyperNode:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in data["nodes"]]
    spec = {"tier": data["tier"], "tierName": data["tierName"], "members": members}
    return msgspec.convert({"metadata": {"name": data["name"]}, "spec": spec}, HyperNode)
