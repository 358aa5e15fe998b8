"""Lists as kubectl prints them: a Table."""

from extender.sim.apiserver.columns import AFTER_NAME, AGE, TableColumn, meta
from extender.sim.apiserver.event_columns import OF_EVENTS
from extender.sim.apiserver.kinds import EVENTS, Json, ResourceKind
from extender.sim.apiserver.workload_columns import OF_WORKLOADS

_ASKED = "as=Table"


def wanted(accept: str) -> bool:
    """Whether the client would rather have a Table."""
    return _ASKED in accept.partition(",")[0]


def table(kind: ResourceKind, answer: Json, include: str = "") -> Json:
    """An object or a list of `kind` as a Table. `include`: the option includeObject, what each row has of its
    object: None, Metadata (also without it) or Object, by which `kubectl get --sort-by` sorts."""
    items = answer["items"] if answer["kind"].endswith("List") else [answer]
    metadata = answer["metadata"]
    kept = {name: metadata[name] for name in ("resourceVersion", "continue") if name in metadata}
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": kept,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(item, columns, include) for item in items],
    }


def columns_of(kind: ResourceKind) -> list[TableColumn]:
    if kind is EVENTS:
        return list(OF_EVENTS)
    known = AFTER_NAME.get(kind) or OF_WORKLOADS.get(kind, ())
    narrow, wide = ([column for column in known if column.wide is is_wide] for is_wide in (False, True))
    aged = narrow if AGE in narrow else [*narrow, AGE]
    return [TableColumn("Name", meta("name")), *aged, *wide]


def _definition(column: TableColumn) -> Json:
    form = "name" if column.name == "Name" else ""
    described = {"name": column.name, "type": "string", "format": form, "description": ""}
    return {**described, "priority": int(column.wide)}


def _row(item: Json, columns: list[TableColumn], include: str) -> Json:
    cells = {"cells": [column.value(item) for column in columns]}
    match include:
        case "None":
            return cells
        case "Object":
            return {**cells, "object": item}
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {**cells, "object": head}
