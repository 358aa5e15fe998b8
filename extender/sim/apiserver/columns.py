"""The columns that the real API server gives the kinds served here, in its Tables."""

from collections.abc import Callable
from typing import Any, NamedTuple

from extender.api.durations import age
from extender.api.keys import POD_SCHEDULED, SCHEDULED, SCHEDULING_GATED
from extender.sim.apiserver.conditions import find_stored_condition
from extender.sim.apiserver.kinds import (
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Json,
    ResourceKind,
)


class TableColumn(NamedTuple):
    """`wide`: shown with -o wide only."""

    name: str
    value: Callable[[Json], Any]
    wide: bool = False


def at(*path: str, default: Any = "") -> Callable[[Json], Any]:
    def value(obj: Json) -> Any:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return default if found is None else found

    return value


def meta(name: str) -> Callable[[Json], Any]:
    return at("metadata", name)


def age_of(obj: Json) -> str:
    return age(obj["metadata"]["creationTimestamp"])


def _ready(pod: Json) -> str:
    containers = pod["status"].get("containerStatuses") or []
    return f"{sum(bool(each.get('ready')) for each in containers)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Json) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    if find_stored_condition(pod, POD_SCHEDULED).get("reason") == SCHEDULING_GATED:
        return SCHEDULING_GATED
    phase = str(pod["status"]["phase"])
    return {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase)


def _node_status(node: Json) -> str:
    ready = find_stored_condition(node, "Ready").get("status") == "True"
    cordoned = ",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _reason(group: Json) -> str:
    return str(find_stored_condition(group, SCHEDULED).get("reason", ""))


BETWEEN_NAME_AND_AGE: dict[ResourceKind, tuple[TableColumn, ...]] = {
    PODS: (
        TableColumn("Ready", _ready),
        TableColumn("Status", _pod_status),
        TableColumn("Restarts", lambda _: "0"),
        TableColumn("IP", at("status", "podIP", default="<none>"), wide=True),
        TableColumn("Node", at("spec", "nodeName", default="<none>"), wide=True),
        TableColumn("Nominated Node", at("status", "nominatedNodeName", default="<none>"), wide=True),
        TableColumn("Readiness Gates", lambda _: "<none>", wide=True),
    ),
    NAMESPACES: (TableColumn("Status", at("status", "phase", default="Active")),),
    NODES: (
        TableColumn("Status", _node_status),
        TableColumn("Cpu", at("status", "allocatable", "cpu"), wide=True),
        TableColumn("Memory", at("status", "allocatable", "memory"), wide=True),
    ),
    PRIORITY_CLASSES: (
        TableColumn("Value", at("value")),
        TableColumn("Global-Default", at("globalDefault", default=False)),
    ),
    QUEUES: (
        TableColumn("State", at("status", "state")),
        TableColumn("Weight", at("spec", "weight", default=1)),
        TableColumn("Pending", at("status", "pending")),
        TableColumn("Inqueue", at("status", "inqueue")),
        TableColumn("Running", at("status", "running")),
        TableColumn("Parent", at("spec", "parent"), wide=True),
        TableColumn("Share", at("status", "share"), wide=True),
        TableColumn("Used-CPU", at("status", "allocated", "cpu"), wide=True),
        TableColumn("Deserved-CPU", at("status", "deserved", "cpu"), wide=True),
    ),
    POD_GROUPS: (
        TableColumn("Status", at("status", "phase")),
        TableColumn("minMember", at("spec", "minMember")),
        TableColumn("Runnings", at("status", "running")),
        TableColumn("Queue", at("spec", "queue", default="default"), wide=True),
        TableColumn("Reason", _reason, wide=True),
    ),
}
