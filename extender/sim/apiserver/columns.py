"""The columns that the real API server gives the kinds served here, in its Tables."""

from collections.abc import Callable
from typing import Any, NamedTuple

from extender.api.durations import age
from extender.api.keys import POD_SCHEDULED, SCHEDULED, SCHEDULING_GATED
from extender.sim.apiserver.conditions import find_stored_condition
from extender.sim.apiserver.kinds import (
    ELASTIC_QUOTA_TREES,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Json,
    ResourceKind,
)

_ROLE = "node-role.kubernetes.io/"
_NODE_INFO = ("status", "nodeInfo")


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
    ready = find_stored_condition(node, "Ready").get("status")
    status = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return status + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _reason(group: Json) -> str:
    return str(find_stored_condition(group, SCHEDULED).get("reason", ""))


def _active(field: str) -> Callable[[Json], str]:
    return lambda local: str(find_stored_condition(local, "Active").get(field, ""))


def _role(key: str, value: str) -> str:
    """What a label says of the roles of its node; empty: nothing."""
    return key.removeprefix(_ROLE) if key.startswith(_ROLE) else value if key == "kubernetes.io/role" else ""


def _roles(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted({_role(*each) for each in labels.items()} - {""})) or "<none>"


def _address(type_: str) -> Callable[[Json], str]:
    def found(node: Json) -> str:
        addresses = node["status"].get("addresses") or ()
        return next((each["address"] for each in addresses if each.get("type") == type_), "<none>")

    return found


def _kernel(node: Json) -> str:
    info = node["status"].get("nodeInfo") or {}
    built_for = f" ({info['architecture']})" if info.get("architecture") else ""
    return (info.get("kernelVersion") or "<unknown>") + built_for


AGE = TableColumn("Age", age_of)
AFTER_NAME: dict[ResourceKind, tuple[TableColumn, ...]] = {
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
        TableColumn("Roles", _roles),
        AGE,
        TableColumn("Version", at(*_NODE_INFO, "kubeletVersion")),
        TableColumn("Internal-IP", _address("InternalIP"), wide=True),
        TableColumn("External-IP", _address("ExternalIP"), wide=True),
        TableColumn("OS-Image", at(*_NODE_INFO, "osImage", default="<unknown>"), wide=True),
        TableColumn("Kernel-Version", _kernel, wide=True),
        TableColumn(
            "Container-Runtime", at(*_NODE_INFO, "containerRuntimeVersion", default="<unknown>"), wide=True
        ),
    ),
    PRIORITY_CLASSES: (
        TableColumn("Value", at("value")),
        TableColumn("Global-Default", at("globalDefault", default=False)),
        AGE,
        TableColumn("PreemptionPolicy", at("preemptionPolicy")),
    ),
    LEASES: (TableColumn("Holder", at("spec", "holderIdentity")),),
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
    LOCAL_QUEUES: (
        TableColumn("Queue", at("spec", "queue")),
        TableColumn("Waiting", at("status", "waiting")),
        TableColumn("Admitted", at("status", "admitted")),
        TableColumn("Active", _active("status")),
        AGE,
        TableColumn("Reason", _active("reason"), wide=True),
    ),
    ELASTIC_QUOTA_TREES: (TableColumn("Root", at("spec", "root", "name")),),
    POD_GROUPS: (
        TableColumn("Status", at("status", "phase")),
        TableColumn("minMember", at("spec", "minMember")),
        TableColumn("Runnings", at("status", "running")),
        TableColumn("Queue", at("spec", "queue", default="default"), wide=True),
        TableColumn("Reason", _reason, wide=True),
    ),
}
