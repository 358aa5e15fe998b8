"""Kind `topology.domains`: the pod sets of one workload, and the domains that they get.

Compared is what Muster promises: whether all pods are placed, and how many domains of the requested levels
they get. Hosts of one domain are equal.
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

Given = Mapping[str, Any]
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}  # as the node controller writes


def check_domains(case: Case) -> Iterator[str]:
    given = case.input
    if any(len(it["slices"]) > 1 for it in given["podSets"]):
        raise NoCounterpart("slices of several levels")
    world = World(_topology(given["levels"]), _group(given["podSets"]))
    world.add(list(map(_node, _each_node(given["nodes"]))))
    world.add([_foreign(each, number) for number, each in enumerate(given["pods"])])
    world.add([each for pod_set in given["podSets"] for each in _pods(pod_set, given["nodeLabels"])]).settle()
    nodes = {name: each.spec.node_name for name, each in world.pods.items()} | world.plan("g")
    is_placed = all(case.expect["podSets"].get(it["name"]) is not None for it in given["podSets"])
    for pod_set in given["podSets"]:
        name, expected = pod_set["name"], case.expect["podSets"].get(pod_set["name"])
        found = [nodes[f"{name}-{number}"] for number in range(pod_set["count"])]
        yield from unequal(f"{name} placed", is_placed, all(found))
        if expected is not None and all(found):
            labels = (world.nodes[node].metadata.labels or {} for node in found)
            paths = [[of[level] for level in given["levels"]] for of in labels]
            yield from _compared(case, pod_set, expected, paths)


def _compared(
    case: Case, pod_set: Given, expected: Iterable[Given], found: Iterable[list[str]]
) -> Iterator[str]:
    """Yield the levels, from the top to the lowest requested one, on which pods have more domains.

    `found`: the path of each pod.
    """
    levels = case.input["levels"]
    asked = [pod_set["required"], pod_set["preferred"], *(it["level"] for it in pod_set["slices"])]
    lowest = max((levels.index(level) for level in asked if level), default=-1)
    for depth, level in enumerate(levels[: lowest + 1], start=1):
        wanted, got = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for each in expected:
            wanted[tuple(each["path"][:depth])] += each["pods"]
        got.update(tuple(path[:depth]) for path in found)
        if len(got) > len(wanted):
            yield f"domains of {pod_set['name']} by {level}: expected {len(wanted)}, got {len(got)}"
        elif "balanced" in case.tags and level == pod_set["preferred"] and len(got) == len(wanted):
            yield from unequal(f"pods by {level}", sorted(wanted.values()), sorted(got.values()))
    yield from _torn(pod_set, levels, list(found))


def _torn(pod_set: Given, levels: list[str], found: list[list[str]]) -> Iterator[str]:
    """Yield the slices that are in more than one domain."""
    for level, size in ((it["level"], it["size"]) for it in pod_set["slices"] if it["level"]):
        depth = levels.index(level) + 1
        for at in range(0, len(found), size or len(found)):
            if len({tuple(path[:depth]) for path in found[at : at + size]}) > 1:
                yield f"slice {at // size} of {pod_set['name']} is in several domains of {level}"


def _topology(levels: Iterable[str]) -> ClusterTopology:
    return ClusterTopology(Meta("topology"), ClusterTopologySpec([TopologyLevel(level) for level in levels]))


def _group(sets: list[Given]) -> PodGroup:
    """Return the PodGroup; what the sets of a pod set group request is for all of them together."""
    shared = next((it for it in sets if it["group"]), None)
    return group("g", sum(it["count"] for it in sets), annotations=shared and _asked(shared))


def _asked(pod_set: Given) -> dict[str, str]:
    asked = {keys.REQUIRED_TOPOLOGY: pod_set["required"], keys.PREFERRED_TOPOLOGY: pod_set["preferred"]}
    return {key: level for key, level in asked.items() if level}


def _pods(pod_set: Given, node_labels: Mapping[str, str]) -> Iterator[Pod]:
    annotations = {} if pod_set["group"] else _asked(pod_set)
    for each in pod_set["slices"]:
        annotations |= {keys.SLICE_TOPOLOGY: each["level"], keys.SLICE_SIZE: str(each["size"])}
    requests = pod_set["requests"]
    for number in range(pod_set["count"]):
        yield pod(
            f"{pod_set['name']}-{number}",
            "g",
            requests.get("cpu", "0"),
            role=pod_set["name"],
            on=pod_set["on"][number] if pod_set["on"] else "",
            selector={**node_labels, **pod_set["nodeSelector"]},
            tolerations=[msgspec.convert(each, Toleration) for each in pod_set["tolerations"]],
            annotations=annotations,
            more={name: amount for name, amount in requests.items() if name != "cpu"},
        )


def _foreign(given: Given, number: int) -> Pod:
    cpu = given.get("requests", {}).get("cpu", "0")
    return foreign_pod(f"x{number}", given.get("node", ""), cpu, phase=given.get("phase", ""))


def _each_node(given: Iterable[Given]) -> Iterator[Given]:
    for each in given:
        for number in range(each["copies"]):
            yield {**each, "name": each["name"] + f"-{number}" * (each["copies"] > 1)}


def _node(given: Given) -> Node:
    taints = [*given["taints"], *([_NOT_READY] if given["notReady"] else [])]
    written = {
        "metadata": {"name": given["name"], "uid": given["name"], "labels": given["labels"]},
        "spec": {"taints": taints, "unschedulable": given["unschedulable"]},
        "status": {"allocatable": given["allocatable"]},
    }
    return msgspec.convert(written, Node)
