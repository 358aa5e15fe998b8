"""Waiting workloads of a case, as PodGroups and pods.

Times are seconds relative to the time of the case.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from extender.api import keys
from extender.api.objects.cluster import Node, PriorityClass
from extender.api.objects.pods import LabelSelector, Pod, Requirement
from extender.api.objects.queues import PodGroup
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.order import lines_by_queue
from tests.conformance.volcano.objects import group, node, pod, priority_class
from tests.domain.world import World

CaseData = Mapping[str, Any]
QUEUE = "q"  # of cases that have only one
_NAMESPACE = "ns"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def instant(seconds: float) -> str:
    """Return a time as the API server writes it, but to the microsecond."""
    return (_NOW + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def waiting(
    workloads: Iterable[CaseData], queue: str = QUEUE, is_held: bool = False
) -> Iterator[PodGroup | PriorityClass]:
    """Yield a PodGroup for each workload, named by its id, with a class of its priority."""
    for workload in workloads:
        priority = int(workload.get("priority", 0))
        class_name = f"p{priority}"
        yield priority_class({"name": class_name, "value": priority})
        metadata = {"namespace": _NAMESPACE, "name": workload["id"], "queue": workload.get("queue", queue)}
        annotations = {keys.HOLD: "true"} if is_held else {}
        annotations |= {keys.SUBMITTER: workload["submitter"]} if "submitter" in workload else {}
        metadata |= {"annotations": annotations} if annotations else {}
        yield group({**metadata, "priorityClassName": class_name}, created=instant(workload["created"]))


def members(workloads: Iterable[CaseData]) -> Iterator[Pod | Node]:
    """Yield a small pod of each workload, and a node with capacity for all."""
    yield node({"name": "n", "allocatable": {"cpu": "1000"}})
    for workload in workloads:
        requests = {"requests": {"cpu": "1m"}}
        yield pod(
            {"namespace": _NAMESPACE, "name": f"{workload['id']}-0", "podgroup": workload["id"], **requests}
        )


def key_of(name: str) -> GroupKey:
    return GroupKey(f"{_NAMESPACE}/{name}")


def waiting_ids(world: World, queue: str = QUEUE) -> list[str]:
    """Return the ids of a queue's waiting workloads, in its order."""
    lines = lines_by_queue(world.ledger.snapshot().groups.values(), lambda info: info)
    return [info.key.partition("/")[2] for info in lines.get(queue, ())]


def selector(data: CaseData | None) -> LabelSelector | None:
    """Return the selector of a case; None if it has none."""
    if data is None:
        return None
    requirements = [
        Requirement(requirement["key"], requirement["op"], requirement["values"])
        for requirement in data.get("match", ())
    ]
    return LabelSelector(match_expressions=requirements)
