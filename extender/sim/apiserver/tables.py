"""Lists as kubectl prints them: a Table with the columns that the real API server gives these kinds."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from extender.api.durations import rounded
from extender.api.keys import SCHEDULED
from extender.sim.apiserver.kinds import NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES, Json, Kind

_ASKED = "as=Table"


class Column(NamedTuple):
    """`wide`: shown with -o wide only."""

    name: str
    value: Callable[[Json], Any]
    wide: bool = False


def wanted(accept: str) -> bool:
    """Whether the client would rather have a Table."""
    return _ASKED in accept.partition(",")[0]


def table(kind: Kind, answer: Json) -> Json:
    """An object or a list of `kind` as a Table."""
    items = answer["items"] if answer["kind"].endswith("List") else [answer]
    metadata = answer["metadata"]
    kept = {name: metadata[name] for name in ("resourceVersion", "continue") if name in metadata}
    columns = _columns(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": kept,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(item, columns) for item in items],
    }


def _columns(kind: Kind) -> list[Column]:
    known = _COLUMNS.get(kind, ())
    narrow, wide = ([column for column in known if column.wide is is_wide] for is_wide in (False, True))
    return [Column("Name", _meta("name")), *narrow, Column("Age", _age), *wide]


def _definition(column: Column) -> Json:
    form = "name" if column.name == "Name" else ""
    described = {"name": column.name, "type": "string", "format": form, "description": ""}
    return {**described, "priority": int(column.wide)}


def _row(item: Json, columns: list[Column]) -> Json:
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {"cells": [column.value(item) for column in columns], "object": head}


# ---- the columns


def _at(*path: str, default: Any = "") -> Callable[[Json], Any]:
    def value(obj: Json) -> Any:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return default if found is None else found

    return value


def _meta(name: str) -> Callable[[Json], Any]:
    return _at("metadata", name)


def _age(obj: Json) -> str:
    since = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
    seconds = int((datetime.now(UTC) - since).total_seconds())
    return rounded(seconds)


def _ready(pod: Json) -> str:
    containers = pod["status"].get("containerStatuses") or []
    return f"{sum(bool(each.get('ready')) for each in containers)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Json) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    phase = str(pod["status"]["phase"])
    return {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase)


def _node_status(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    cordoned = ",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _reason(group: Json) -> str:
    conditions = (group.get("status") or {}).get("conditions") or []
    return next((each.get("reason", "") for each in conditions if each["type"] == SCHEDULED), "")


_COLUMNS: dict[Kind, tuple[Column, ...]] = {
    PODS: (
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", lambda _: "0"),
        Column("Node", _at("spec", "nodeName", default="<none>"), wide=True),
        Column("Nominated Node", _at("status", "nominatedNodeName", default="<none>"), wide=True),
    ),
    NODES: (
        Column("Status", _node_status),
        Column("Cpu", _at("status", "allocatable", "cpu"), wide=True),
        Column("Memory", _at("status", "allocatable", "memory"), wide=True),
    ),
    PRIORITY_CLASSES: (
        Column("Value", _at("value")),
        Column("Global-Default", _at("globalDefault", default=False)),
    ),
    QUEUES: (
        Column("State", _at("status", "state")),
        Column("Weight", _at("spec", "weight", default=1)),
        Column("Pending", _at("status", "pending")),
        Column("Inqueue", _at("status", "inqueue")),
        Column("Running", _at("status", "running")),
        Column("Share", _at("status", "share"), wide=True),
        Column("Used-CPU", _at("status", "allocated", "cpu"), wide=True),
        Column("Deserved-CPU", _at("status", "deserved", "cpu"), wide=True),
    ),
    POD_GROUPS: (
        Column("Status", _at("status", "phase")),
        Column("minMember", _at("spec", "minMember")),
        Column("Queue", _at("spec", "queue", default="default"), wide=True),
        Column("Reason", _reason, wide=True),
    ),
}
