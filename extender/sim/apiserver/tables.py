"""Tables of objects for kubectl, with the columns of a real API server."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from extender.api.keys import POD_SCHEDULED, SCHEDULING_GATED
from extender.api.units import age, duration_between
from extender.apimachinery import kinds
from extender.apimachinery.field_schemas import printer_columns
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.objects import find_stored_condition
from extender.sim.apiserver.requests import selector_text

_ROLE = "node-role.kubernetes.io/"
_NODE_INFO = ("status", "nodeInfo")
_RUNTIME = (*_NODE_INFO, "containerRuntimeVersion")


class TableColumn(NamedTuple):
    """Column of a Table. A `wide` column is shown with -o wide only."""

    name: str
    value: Callable[[Json], Any]
    wide: bool = False


def getter(*path: str, default: Any = "") -> Callable[[Json], Any]:
    """Return a function that returns the value at a path of its argument."""

    def value(obj: Json) -> Any:
        part: Any = obj
        for name in path:
            part = (part or {}).get(name)
        return default if part is None else part

    return value


def _ready(pod: Json) -> str:
    containers = pod["status"].get("containerStatuses") or []
    return f"{sum(bool(container.get('ready')) for container in containers)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Json) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    if find_stored_condition(pod, POD_SCHEDULED).get("reason") == SCHEDULING_GATED:
        return SCHEDULING_GATED
    phase = str(pod["status"]["phase"])
    return {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase)


def _node_status(node: Json) -> str:
    ready = find_stored_condition(node, "Ready").get("status")
    status = {None: "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return status + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _roles(node: Json) -> str:
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    return ",".join(sorted({*roles, labels.get("kubernetes.io/role", "")} - {""})) or "<none>"


def _address(type_: str) -> Callable[[Json], str]:
    def address_of(node: Json) -> str:
        addresses = node["status"].get("addresses") or ()
        return next((address["address"] for address in addresses if address.get("type") == type_), "<none>")

    return address_of


def _kernel(node: Json) -> str:
    info = node["status"].get("nodeInfo") or {}
    built_for = f" ({info['architecture']})" if info.get("architecture") else ""
    return (info.get("kernelVersion") or "<unknown>") + built_for


def _usage_text(quota: Json, shows_limits: bool) -> str:
    hard, used = getter("status", "hard", default={})(quota), getter("status", "used", default={})(quota)
    names = (name for name in sorted(hard) if name.startswith("limits.") is shows_limits)
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


NAME = TableColumn("Name", getter("metadata", "name"))
AGE = TableColumn("Age", lambda obj: age(obj["metadata"]["creationTimestamp"]))


# ---- events


def _since(event: Json, *fields: str) -> str:
    """Return the time since an Event, by the first of these fields that the Event has."""
    timestamp = next((event[field] for field in fields if event.get(field)), None)
    return age(timestamp) if timestamp else "<unknown>"


def _last_seen(event: Json) -> str:
    if series := event.get("series"):
        return _since(series, "lastObservedTime")
    return _since(event, "lastTimestamp", "firstTimestamp", "eventTime")


def _object(event: Json) -> str:
    subject = event.get("involvedObject") or {}
    return f"{subject.get('kind', '').lower()}/{subject.get('name', '')}"


def _source(event: Json) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return ", ".join(filter(None, (component, host)))


EVENT_COLUMNS = (
    TableColumn("Last Seen", _last_seen),
    TableColumn("Type", getter("type")),
    TableColumn("Reason", getter("reason")),
    TableColumn("Object", _object),
    TableColumn("Subobject", getter("involvedObject", "fieldPath"), wide=True),
    TableColumn("Source", _source, wide=True),
    TableColumn("Message", lambda event: str(event.get("message") or "").strip()),
    TableColumn("First Seen", lambda event: _since(event, "firstTimestamp", "eventTime"), wide=True),
    TableColumn("Count", lambda row: str(getter("series", "count")(row) or row.get("count") or 1), wide=True),
    NAME._replace(wide=True),
)


# ---- Kubernetes' own workloads


def _ready_pods(workload: Json) -> str:
    ready = getter("status", "readyReplicas", default=0)(workload)
    return f"{ready}/{workload['spec'].get('replicas', 1)}"


def _job_state(job: Json) -> str:
    types = ("Complete", "Failed", "Suspended")
    true_types = (type_ for type_ in types if find_stored_condition(job, type_).get("status") == "True")
    return next(true_types, "Running")


def _completions(job: Json) -> str:
    succeeded, spec = getter("status", "succeeded", default=0)(job), job["spec"]
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallel = spec.get("parallelism", 0)
    return f"{succeeded}/1" + (f" of {parallel}" if parallel > 1 else "")


def _duration(job: Json) -> str:
    status = job.get("status") or {}
    if "completionTime" in status:
        return duration_between(status["startTime"], status["completionTime"])
    return age(status["startTime"]) if "startTime" in status else ""


def _last_run(cron_job: Json) -> str:
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    return age(last) if last else "<none>"


def _template(*path: str) -> list[TableColumn]:
    """Return the columns about a pod template. `path` leads to the object that has the template."""
    containers = getter(*path, "spec", "template", "spec", "containers", default=())

    def joined(field: str) -> Callable[[Json], str]:
        return lambda obj: ",".join(container.get(field, "") for container in containers(obj))

    fields = {"Containers": "name", "Images": "image"}
    return [TableColumn(title, joined(field), wide=True) for title, field in fields.items()]


_SELECTOR = TableColumn("Selector", lambda obj: selector_text(obj) or "<none>", wide=True)

COLUMNS_BY_KIND: dict[ResourceKind, tuple[TableColumn, ...]] = {
    kinds.PODS: (
        TableColumn("Ready", _ready),
        TableColumn("Status", _pod_status),
        TableColumn("Restarts", lambda _: "0"),
        TableColumn("IP", getter("status", "podIP", default="<none>"), wide=True),
        TableColumn("Node", getter("spec", "nodeName", default="<none>"), wide=True),
        TableColumn("Nominated Node", getter("status", "nominatedNodeName", default="<none>"), wide=True),
        TableColumn("Readiness Gates", lambda _: "<none>", wide=True),
    ),
    kinds.NAMESPACES: (TableColumn("Status", getter("status", "phase", default="Active")),),
    kinds.NODES: (
        TableColumn("Status", _node_status),
        TableColumn("Roles", _roles),
        AGE,
        TableColumn("Version", getter(*_NODE_INFO, "kubeletVersion")),
        TableColumn("Internal-IP", _address("InternalIP"), wide=True),
        TableColumn("External-IP", _address("ExternalIP"), wide=True),
        TableColumn("OS-Image", getter(*_NODE_INFO, "osImage", default="<unknown>"), wide=True),
        TableColumn("Kernel-Version", _kernel, wide=True),
        TableColumn("Container-Runtime", getter(*_RUNTIME, default="<unknown>"), wide=True),
    ),
    kinds.PRIORITY_CLASSES: (
        TableColumn("Value", getter("value")),
        TableColumn("Global-Default", getter("globalDefault", default=False)),
        AGE,
        TableColumn("PreemptionPolicy", getter("preemptionPolicy")),
    ),
    kinds.RESOURCE_QUOTAS: (
        TableColumn("Request", lambda quota: _usage_text(quota, shows_limits=False)),
        TableColumn("Limit", lambda quota: _usage_text(quota, shows_limits=True)),
    ),
    kinds.LEASES: (TableColumn("Holder", getter("spec", "holderIdentity")),),
    kinds.DEPLOYMENTS: (
        TableColumn("Ready", _ready_pods),
        TableColumn("Up-to-date", getter("status", "updatedReplicas", default=0)),
        TableColumn("Available", getter("status", "availableReplicas", default=0)),
        *_template(),
        _SELECTOR,
    ),
    kinds.REPLICA_SETS: (
        TableColumn("Desired", getter("spec", "replicas", default=0)),
        TableColumn("Current", getter("status", "replicas", default=0)),
        TableColumn("Ready", getter("status", "readyReplicas", default=0)),
        *_template(),
        _SELECTOR,
    ),
    kinds.STATEFUL_SETS: (TableColumn("Ready", _ready_pods), *_template()),
    kinds.JOBS: (
        TableColumn("Status", _job_state),
        TableColumn("Completions", _completions),
        TableColumn("Duration", _duration),
        *_template(),
        _SELECTOR,
    ),
    kinds.CRON_JOBS: (
        TableColumn("Schedule", getter("spec", "schedule")),
        TableColumn("Timezone", getter("spec", "timeZone", default="<none>")),
        TableColumn("Suspend", lambda obj: str(bool(obj["spec"].get("suspend")))),
        TableColumn("Active", lambda cron_job: len(getter("status", "active")(cron_job))),
        TableColumn("Last Schedule", _last_run),
        *_template("spec", "jobTemplate"),
        TableColumn("Selector", lambda _: "<none>", wide=True),
    ),
}


# ---- Tables

_FIRST_OWNER = ".metadata.ownerReferences[0]."
_CONDITION_PATH = re.compile(r'\.status\.conditions\[\?\(@\.type=="(\w+)"\)\]\.(\w+)')
_TEXTS = {"type": "string", "description": ""}  # common fields of all columns


def accepts_table(accept: str) -> bool:
    """Return whether the client prefers a Table to an object."""
    return "as=Table" in accept.partition(",")[0]


def table(kind: ResourceKind, answer: Json, included_part: str = "") -> Json:
    """Return an object or a list of `kind` as a Table.

    `included_part` is the option includeObject of the request. Each row has this part of its object: None,
    Metadata (the default), or Object, which `kubectl get --sort-by` needs.
    """
    items = answer["items"] if answer["kind"].endswith("List") else [answer]
    metadata = answer["metadata"]
    list_fields = {name: metadata[name] for name in ("resourceVersion", "continue") if name in metadata}
    columns, rows = columns_of(kind), list[Json]()
    for item in items:
        head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
        object_part = {"None": {}, "Object": {"object": item}}.get(included_part, {"object": head})
        rows.append({"cells": [column.value(item) for column in columns], **object_part})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_fields,
        "columnDefinitions": [
            {**_TEXTS, "name": name, "format": "name" if name == "Name" else "", "priority": int(wide)}
            for name, _, wide in columns
        ],
        "rows": rows,
    }


def columns_of(kind: ResourceKind) -> list[TableColumn]:
    if kind is kinds.EVENTS:
        return list(EVENT_COLUMNS)
    columns = COLUMNS_BY_KIND.get(kind) or list(map(_column_of, printer_columns(kind)))
    narrow, wide = ([column for column in columns if column.wide is wide] for wide in (False, True))
    narrow_with_age = narrow if AGE in narrow else [*narrow, AGE]
    return [NAME, *narrow_with_age, *wide]


def _column_of(column: Json) -> TableColumn:
    """Return a column of a CRD. Its path leads to a field, to a condition, or to the first owner."""
    if column["type"] == "date":
        return AGE
    name, path, wide = column["name"], column["jsonPath"], column.get("priority", 0) > 0
    if match := _CONDITION_PATH.fullmatch(path):
        type_, field = match.groups()
        return TableColumn(name, lambda obj: str(find_stored_condition(obj, type_).get(field, "")), wide)
    if path.startswith(_FIRST_OWNER):
        owners, field = getter("metadata", "ownerReferences", default=()), path.removeprefix(_FIRST_OWNER)
        return TableColumn(name, lambda obj: next((owner[field] for owner in owners(obj)), ""), wide)
    return TableColumn(name, getter(*path.split(".")[1:]), wide)
