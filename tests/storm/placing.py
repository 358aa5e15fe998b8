"""A simple placement check: pods that it places fit; pods that it does not place may still fit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.e2e.harness.amounts import Amounts, amounts, requests
from tests.storm.view import holds_capacity

Json = dict[str, Any]


@dataclass
class FreeCapacity:
    """Free capacity on one node that takes new pods."""

    node: str
    labels: dict[str, str]
    free: Amounts

    def takes(self, pod: Json) -> bool:
        node_selector = pod["spec"].get("nodeSelector", {}).items()
        return node_selector <= self.labels.items() and all(
            requested <= self.free[name] for name, requested in requests(pod).items() if requested
        )


def capacities(nodes: Iterable[Json], pods: Iterable[Json]) -> list[FreeCapacity]:
    """Return the free capacity of nodes without taints that are not cordoned."""
    by_node = {
        node["metadata"]["name"]: FreeCapacity(
            node["metadata"]["name"],
            node["metadata"].get("labels", {}),
            amounts(node["status"]["allocatable"]),
        )
        for node in nodes
        if not node["spec"].get("unschedulable") and not node["spec"].get("taints")
    }
    for pod in pods:
        capacity = by_node.get(pod["spec"]["nodeName"]) if holds_capacity(pod) else None
        if capacity is not None:
            capacity.free.subtract(requests(pod))
    return list(by_node.values())


def place(members: Iterable[Json], into: Iterable[FreeCapacity]) -> dict[str, str] | None:
    """Place the largest member first, each on the first node with capacity; return the nodes, or None."""
    remaining = [FreeCapacity(capacity.node, capacity.labels, Amounts(capacity.free)) for capacity in into]
    placed = dict[str, str]()
    for pod in sorted(members, key=size, reverse=True):
        capacity = next((candidate for candidate in remaining if candidate.takes(pod)), None)
        if capacity is None:
            return None
        capacity.free.subtract(requests(pod))
        placed[pod["metadata"]["name"]] = capacity.node
    return placed


def size(pod: Json) -> int:
    return requests(pod)["cpu"]
