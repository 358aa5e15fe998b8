"""Lists as kubectl prints them: a Table with the columns that the real API server gives these kinds."""

from collections.abc import Callable
from typing import Any, NamedTuple

from extender.api.durations import age
from extender.api.keys import SCHEDULED
from extender.sim.apiserver.conditions import find_stored_condition
from extender.sim.apiserver.kinds import (
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Json,
    ResourceKind,
)

_ASKED = "as=Table"


class TableColumn(NamedTuple):
    """`wide`: shown with -o wide only."""

    name: str
    value: Callable[[Json], Any]
    wide: bool = False


def wanted(accept: str) -> bool:
    """Whether the client would rather have a Table."""
    return _ASKED in accept.partition(",")[0]


def table(kind: ResourceKind, answer: Json) -> Json:
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


def _columns(kind: ResourceKind) -> list[TableColumn]:
    if kind is EVENTS:
        return list(_OF_EVENTS)
    known = _COLUMNS.get(kind, ())
    narrow, wide = ([column for column in known if column.wide is is_wide] for is_wide in (False, True))
    return [TableColumn("Name", _meta("name")), *narrow, TableColumn("Age", _age), *wide]


def _definition(column: TableColumn) -> Json:
    form = "name" if column.name == "Name" else ""
    described = {"name": column.name, "type": "string", "format": form, "description": ""}
    return {**described, "priority": int(column.wide)}


def _row(item: Json, columns: list[TableColumn]) -> Json:
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
    return age(obj["metadata"]["creationTimestamp"])


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
    ready = find_stored_condition(node, "Ready").get("status") == "True"
    cordoned = ",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _reason(group: Json) -> str:
    return str(find_stored_condition(group, SCHEDULED).get("reason", ""))


# ---- events


def _since(event: Json, *fields: str) -> str:
    """How long ago: by the first of these times that the event has."""
    found = next((event[field] for field in fields if event.get(field)), None)
    return age(found) if found else "<unknown>"


def _last_seen(event: Json) -> str:
    if series := event.get("series"):
        return _since(series, "lastObservedTime")
    return _since(event, "lastTimestamp", "firstTimestamp", "eventTime")


def _count(event: Json) -> str:
    return str((event.get("series") or {}).get("count") or event.get("count") or 1)


def _object(event: Json) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _source(event: Json) -> str:
    source = event.get("source") or {}
    named = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return ", ".join(filter(None, (named, host)))


_OF_EVENTS = (
    TableColumn("Last Seen", _last_seen),
    TableColumn("Type", _at("type")),
    TableColumn("Reason", _at("reason")),
    TableColumn("Object", _object),
    TableColumn("Subobject", _at("involvedObject", "fieldPath"), wide=True),
    TableColumn("Source", _source, wide=True),
    TableColumn("Message", lambda event: str(event.get("message") or "").strip()),
    TableColumn("First Seen", lambda event: _since(event, "firstTimestamp", "eventTime"), wide=True),
    TableColumn("Count", _count, wide=True),
    TableColumn("Name", _meta("name"), wide=True),
)

_COLUMNS: dict[ResourceKind, tuple[TableColumn, ...]] = {
    PODS: (
        TableColumn("Ready", _ready),
        TableColumn("Status", _pod_status),
        TableColumn("Restarts", lambda _: "0"),
        TableColumn("Node", _at("spec", "nodeName", default="<none>"), wide=True),
        TableColumn("Nominated Node", _at("status", "nominatedNodeName", default="<none>"), wide=True),
    ),
    NODES: (
        TableColumn("Status", _node_status),
        TableColumn("Cpu", _at("status", "allocatable", "cpu"), wide=True),
        TableColumn("Memory", _at("status", "allocatable", "memory"), wide=True),
    ),
    PRIORITY_CLASSES: (
        TableColumn("Value", _at("value")),
        TableColumn("Global-Default", _at("globalDefault", default=False)),
    ),
    QUEUES: (
        TableColumn("State", _at("status", "state")),
        TableColumn("Weight", _at("spec", "weight", default=1)),
        TableColumn("Pending", _at("status", "pending")),
        TableColumn("Inqueue", _at("status", "inqueue")),
        TableColumn("Running", _at("status", "running")),
        TableColumn("Share", _at("status", "share"), wide=True),
        TableColumn("Used-CPU", _at("status", "allocated", "cpu"), wide=True),
        TableColumn("Deserved-CPU", _at("status", "deserved", "cpu"), wide=True),
    ),
    POD_GROUPS: (
        TableColumn("Status", _at("status", "phase")),
        TableColumn("minMember", _at("spec", "minMember")),
        TableColumn("Queue", _at("spec", "queue", default="default"), wide=True),
        TableColumn("Reason", _reason, wide=True),
    ),
}
