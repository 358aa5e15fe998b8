"""Kind `podgroup.phase`: phases of a group with members on nodes.

Waiting members have capacity only if the case has admitted their group and does not call them unschedulable.
A running group has run fully.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import CPU
from extender.domain.model.wire_records import whole_condition
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import CaseData, group, node, pod
from tests.domain.world import World

_GROUP = GroupKey("ns/g")
_NOW = "2026-01-01T00:00:00Z"
_FREE_NODE = "a-node-for-those-that-wait"
_PHASES = {"Running": "Running", "Succeeded": "Succeeded", "Failed": "Failed"}
_ALLOCATED_STATES = ("Running", "Bound", "Releasing")
_IN_FLIGHT = ("Binding", "Allocated")


def check_phase(case: Case) -> Iterator[str]:
    tasks = case.input["tasks"]
    node_names = {task["node"] for task in tasks if task.get("node")}
    size = str(len(tasks))
    nodes = [node({"name": name, "allocatable": {CPU: size}}) for name in sorted(node_names)]
    nodes.append(node({"name": _FREE_NODE, "allocatable": {CPU: str(_capacity(case))}}))
    filling_pods = [_filling_pod(name, len(tasks), tasks) for name in sorted(node_names)]
    world = World(
        nodes, filling_pods, _group(case), [_member(n, task) for n, task in enumerate(tasks)]
    ).settle()
    for number, task in enumerate(tasks):
        if task["status"] in _IN_FLIGHT:
            world.answer(f"g-{number}", [_FREE_NODE])
            world.hold(f"g-{number}", _FREE_NODE)
    world.settle()
    yield from unequal("phase", case.expect["phase"], str(world.decisions.groups[_GROUP].life.phase))


def _waits(task: CaseData) -> bool:
    return task["status"] in ("Pending", "Pipelined", *_IN_FLIGHT)


def _capacity(case: Case) -> int:
    tasks, phase = case.input["tasks"], case.input["currentPhase"]
    if phase == "Pending" or case.input["unschedulableThisCycle"]:
        return 0
    return sum(task["status"] in _IN_FLIGHT or (phase == "Inqueue" and _waits(task)) for task in tasks)


def _filling_pod(name: str, size: int, tasks: list[dict[str, Any]]) -> Pod:
    """Return a pod that fills a node with members, so that no other pod fits."""
    held = sum(task.get("node") == name and task["status"] in _ALLOCATED_STATES for task in tasks)
    requests = {CPU: str(size - held)}
    running = {"phase": "Running", "node": name}
    return pod(
        {
            "namespace": "ns",
            "name": f"fill-{name}",
            "podgroup": f"fill-{name}",
            "requests": requests,
            **running,
        }
    )


def _group(case: Case) -> PodGroup:
    phase, minimum = case.input["currentPhase"], case.input["minMember"]
    podgroup = group(
        {"namespace": "ns", "name": "g", "minMember": minimum, "queue": "default", "phase": phase}
    )
    conditions = [whole_condition(podgroup.metadata.uid, minimum)] if phase == "Running" else None
    return replace(podgroup, status=replace(podgroup.status, conditions=conditions))


def _member(number: int, task: CaseData) -> Pod:
    status = task["status"]
    placed = bool(task.get("node")) and not _waits(task)
    phase = "Running" if status == "Releasing" and placed else _PHASES.get(status, "Pending")
    member = pod(
        {
            "namespace": "ns",
            "name": f"g-{number}",
            "podgroup": "g",
            "phase": phase,
            "node": task["node"] if placed else None,
            "requests": {CPU: "1"},
        }
    )
    leaving = status == "Releasing"
    return replace(member, metadata=replace(member.metadata, deletion_timestamp=_NOW)) if leaving else member
