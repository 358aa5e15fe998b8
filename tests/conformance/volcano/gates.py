"""Kinds `gang.releasing` and `overcommit`: the report of a waiting group, and the admission of a group."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from extender.api.objects.cluster import Node
from extender.api.objects.pods import Pod
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import CPU, offered, total
from extender.domain.snapshot.decisions import GroupDecision
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.volcano.objects import group, node, pod
from tests.domain.world import World

_BOUND_STATES = ("Running", "Bound", "Binding", "Allocated", "Succeeded", "Failed")
_PHASES = {"Running": "Running", "Succeeded": "Succeeded", "Failed": "Failed"}
_ALL = "all-nodes"
_GROUP = GroupKey("ns/g")
_NOW = "2026-01-01T00:00:00Z"


def check_releasing(case: Case) -> Iterator[str]:
    """Check members on full nodes, then delete the releasing ones."""
    tasks, expected = case.input["tasks"], case.expect["suppressUnschedulable"]
    names = sorted({task["node"] for task in tasks if task["node"]})
    nodes = [node({"name": name, "allocatable": {"cpu": _held_count(name, tasks)}}) for name in names]
    members = [_member(number, task) for number, task in enumerate(tasks)]
    gang = group({"namespace": "ns", "name": "g", "minMember": case.input["minMember"], "queue": "default"})
    world = World(nodes, gang, members).settle()
    leaving = [member for member, task in zip(members, tasks, strict=True) if task["status"] == "Releasing"]
    world.add(*map(_deleted_pod, leaving)).settle()
    yield from unequal("suppressUnschedulable", expected, _is_without_report(world.decisions.groups[_GROUP]))


def _held_count(name: str, tasks: Iterable[dict[str, Any]]) -> str:
    holding = (*_BOUND_STATES, "Releasing")
    return str(sum(task["node"] == name and task["status"] in holding for task in tasks))


def _member(number: int, task: dict[str, Any]) -> Pod:
    phase = "Running" if task["status"] == "Releasing" and task["node"] else task["status"]
    return pod(
        {
            "namespace": "ns",
            "name": f"g-{number}",
            "podgroup": "g",
            "phase": _PHASES.get(phase, "Pending"),
            "node": task["node"] if phase in _BOUND_STATES else None,
            "requests": {CPU: "1"},
        }
    )


def _deleted_pod(member: Pod) -> Pod:
    return replace(member, metadata=replace(member.metadata, deletion_timestamp=_NOW))


def _is_without_report(decision: GroupDecision) -> bool:
    return decision.verdict is Verdict.RUNNING and decision.reason is None


def check_overcommit(case: Case) -> Iterator[str]:
    """Check a group against the sum of all nodes, on one node of this size, as the plugin does.

    Groups that are reserved in the case run on the node.
    """
    requests = case.input["minResources"]
    reserved = [_running_pod(n, vector) for n, vector in enumerate(case.input["alreadyReserved"])]
    pending_pod = pod({"namespace": "ns", "name": "p", "podgroup": "g", "requests": requests})
    gang = group({"namespace": "ns", "name": "g", "minMember": 1, "queue": "default"})
    world = World(_joined_node(case.input["nodes"]), reserved, gang, pending_pod).settle()
    permit = world.decisions.groups[_GROUP].verdict is Verdict.STARTING
    yield from unequal("permit", case.expect["permit"], permit)


def _joined_node(nodes: Iterable[dict[str, Any]]) -> Node:
    sums = total(offered(node_data["allocatable"]) for node_data in nodes)
    return node({"name": _ALL, "allocatable": {name: _quantity(name, n) for name, n in sums.items()}})


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU else str(amount)


def _running_pod(number: int, vector: dict[str, Any]) -> Pod:
    name = f"reserved-{number}"
    placement = {"phase": "Running", "node": _ALL}
    return pod({"namespace": "ns", "name": name, "podgroup": name, "requests": vector, **placement})
