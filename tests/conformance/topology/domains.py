"""Kind `topology.domains`: the pod sets of one workload, and the domains that they get.

The check compares what Muster promises: whether all pods are placed, and how many domains of the requested
levels they get. Hosts of one domain are equal.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import ClusterTopology, ClusterTopologySpec, Node, TopologyLevel
from extender.api.objects.pods import Pod, Toleration
from extender.api.objects.queues import PodGroup
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.verdicts import NoCounterpart
from tests.domain.builders import foreign_pod, group, pod
from tests.domain.world import World

CaseData = Mapping[str, Any]
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}  # as the node controller writes


def check_domains(case: Case) -> Iterator[str]:
    data = case.input
    if any(len(pod_set["slices"]) > 1 for pod_set in data["podSets"]):
        raise NoCounterpart("slices of several levels")
    world = World(_topology(data["levels"]), _group(data["podSets"]))
    world.add(list(map(_node, _each_node(data["nodes"]))))
    world.add([_foreign_pod(pod, number) for number, pod in enumerate(data["pods"])])
    for pod_set in data["podSets"]:
        world.add(*_pods(pod_set, data["nodeLabels"]))
    world.settle()
    nodes = {name: pod.spec.node_name for name, pod in world.pods.items()} | world.plan("g")
    is_placed = all(case.expect["podSets"].get(pod_set["name"]) is not None for pod_set in data["podSets"])
    for pod_set in data["podSets"]:
        name, expected = pod_set["name"], case.expect["podSets"].get(pod_set["name"])
        nodes_of_set = [nodes[f"{name}-{number}"] for number in range(pod_set["count"])]
        yield from unequal(f"{name} placed", is_placed, all(nodes_of_set))
        if expected is not None and all(nodes_of_set):
            labels = (world.nodes[node].metadata.labels or {} for node in nodes_of_set)
            paths = [[node_labels[level] for level in data["levels"]] for node_labels in labels]
            yield from _domain_differences(case, pod_set, expected, paths)


def _domain_differences(
    case: Case, pod_set: CaseData, expected: Iterable[CaseData], paths: Iterable[list[str]]
) -> Iterator[str]:
    """Yield the levels, down to the lowest requested one, on which pods have more domains than expected.

    `paths`: the path of each pod.
    """
    levels = case.input["levels"]
    requested_levels = [
        pod_set["required"],
        pod_set["preferred"],
        *(slice_["level"] for slice_ in pod_set["slices"]),
    ]
    lowest = max((levels.index(level) for level in requested_levels if level), default=-1)
    for depth, level in enumerate(levels[: lowest + 1], start=1):
        expected_counts, actual = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for domain in expected:
            expected_counts[tuple(domain["path"][:depth])] += domain["pods"]
        actual.update(tuple(path[:depth]) for path in paths)
        if len(actual) > len(expected_counts):
            counts_text = f"expected {len(expected_counts)}, got {len(actual)}"
            yield f"domains of {pod_set['name']} by {level}: {counts_text}"
        elif (
            "balanced" in case.tags and level == pod_set["preferred"] and len(actual) == len(expected_counts)
        ):
            yield from unequal(f"pods by {level}", sorted(expected_counts.values()), sorted(actual.values()))
    yield from _split_slices(pod_set, levels, list(paths))


def _split_slices(pod_set: CaseData, levels: list[str], paths: list[list[str]]) -> Iterator[str]:
    """Yield the slices that are in more than one domain."""
    for level, size in ((slice_["level"], slice_["size"]) for slice_ in pod_set["slices"] if slice_["level"]):
        depth = levels.index(level) + 1
        for start in range(0, len(paths), size or len(paths)):
            if len({tuple(path[:depth]) for path in paths[start : start + size]}) > 1:
                yield f"slice {start // size} of {pod_set['name']} is in several domains of {level}"


def _topology(levels: Iterable[str]) -> ClusterTopology:
    return ClusterTopology(Meta("topology"), ClusterTopologySpec([TopologyLevel(level) for level in levels]))


def _group(pod_sets: list[CaseData]) -> PodGroup:
    """Return the PodGroup. The topology of a pod set group applies to all its sets together."""
    shared = next((pod_set for pod_set in pod_sets if pod_set["group"]), None)
    return group(
        "g",
        sum(pod_set["count"] for pod_set in pod_sets),
        annotations=shared and _topology_annotations(shared),
    )


def _topology_annotations(pod_set: CaseData) -> dict[str, str]:
    annotations = {keys.REQUIRED_TOPOLOGY: pod_set["required"], keys.PREFERRED_TOPOLOGY: pod_set["preferred"]}
    return {key: level for key, level in annotations.items() if level}


def _pods(pod_set: CaseData, node_labels: Mapping[str, str]) -> Iterator[Pod]:
    annotations = {} if pod_set["group"] else _topology_annotations(pod_set)
    for slice_ in pod_set["slices"]:
        annotations |= {keys.SLICE_TOPOLOGY: slice_["level"], keys.SLICE_SIZE: str(slice_["size"])}
    requests = pod_set["requests"]
    for number in range(pod_set["count"]):
        yield pod(
            f"{pod_set['name']}-{number}",
            "g",
            requests.get("cpu", "0"),
            role=pod_set["name"],
            on=pod_set["on"][number] if pod_set["on"] else "",
            selector={**node_labels, **pod_set["nodeSelector"]},
            tolerations=[msgspec.convert(toleration, Toleration) for toleration in pod_set["tolerations"]],
            annotations=annotations,
            more={name: amount for name, amount in requests.items() if name != "cpu"},
        )


def _foreign_pod(data: CaseData, number: int) -> Pod:
    cpu = data.get("requests", {}).get("cpu", "0")
    return foreign_pod(f"x{number}", data.get("node", ""), cpu, phase=data.get("phase", ""))


def _each_node(data: Iterable[CaseData]) -> Iterator[CaseData]:
    for node in data:
        for number in range(node["copies"]):
            suffix = f"-{number}" if node["copies"] > 1 else ""
            yield {**node, "name": f"{node['name']}{suffix}"}


def _node(data: CaseData) -> Node:
    taints = [*data["taints"], *([_NOT_READY] if data["notReady"] else [])]
    obj = {
        "metadata": {"name": data["name"], "uid": data["name"], "labels": data["labels"]},
        "spec": {"taints": taints, "unschedulable": data["unschedulable"]},
        "status": {"allocatable": data["allocatable"]},
    }
    return msgspec.convert(obj, Node)
