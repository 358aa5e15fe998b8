"""All that is wrong with one object: its metadata, and what its kind asks for."""

from extender.sim.apiserver.field_errors import FieldErrors, forbidden_field, not_supported
from extender.sim.apiserver.kinds import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    Json,
    ResourceKind,
)
from extender.sim.apiserver.schemas.field_schemas import schema_of
from extender.sim.apiserver.validation.amounts import node_errors
from extender.sim.apiserver.validation.crds import schema_errors
from extender.sim.apiserver.validation.jobs import job_change_errors
from extender.sim.apiserver.validation.metadata import metadata_errors
from extender.sim.apiserver.validation.pods import pod_errors, taint_errors
from extender.sim.apiserver.validation.queues import queue_errors

_WITH_TEMPLATE = (JOBS, DEPLOYMENTS, REPLICA_SETS)  # volumes of StatefulSets come from claims, too
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM = "system-"
SYSTEM_CLASSES = (f"{_SYSTEM}cluster-critical", f"{_SYSTEM}node-critical")


def creation_errors(kind: ResourceKind, obj: Json) -> FieldErrors:
    yield from metadata_errors(kind, obj["metadata"])
    if kind is PODS:
        yield from pod_errors(obj)
    else:
        yield from _own_errors(kind, obj)
    if kind in _WITH_TEMPLATE:
        yield from _template_errors(obj)


def _template_errors(workload: Json) -> FieldErrors:
    template = (workload.get("spec") or {}).get("template") or {}
    for error in pod_errors({"metadata": {}, "spec": {}, **template}):
        yield error._replace(field=f"spec.template.{error.field}")


def change_errors(kind: ResourceKind, before: Json, obj: Json) -> FieldErrors:
    yield from metadata_errors(kind, obj["metadata"])
    yield from _own_errors(kind, obj)
    if kind is PRIORITY_CLASSES and before.get("value") != obj.get("value"):
        yield forbidden_field("value", "may not be changed in an update.")
    if kind is JOBS:
        yield from job_change_errors(before, obj)


def _own_errors(kind: ResourceKind, obj: Json) -> FieldErrors:
    if kind.custom:
        yield from _custom_errors(kind, obj)
    if kind is NODES:
        yield from taint_errors(obj)
        yield from node_errors(obj)
    if kind is PRIORITY_CLASSES:
        yield from _class_errors(obj)


def _custom_errors(kind: ResourceKind, obj: Json) -> FieldErrors:
    """The API server looks at the metadata of every kind in the same way, not by the schema."""
    schema = schema_of(kind)
    for name in sorted(set(obj) - {"metadata", "apiVersion", "kind"}):
        yield from schema_errors(obj[name], schema.field(name), name)
    if kind is QUEUES and isinstance(obj.get("spec"), dict):
        yield from queue_errors(obj, schema)


def _class_errors(priority: Json) -> FieldErrors:
    name = priority["metadata"].get("name", "")
    if name in SYSTEM_CLASSES:
        return
    if name.startswith(_SYSTEM):
        rule = f"priority class names with '{_SYSTEM}' prefix are reserved for system use only."
        yield forbidden_field("metadata.name", f"{rule} error: {name} is not a known system priority class")
    elif priority.get("value", 0) > _HIGHEST_PRIORITY:
        message = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        yield forbidden_field("value", message)
    policies = ("PreemptLowerPriority", "Never")
    if priority.get("preemptionPolicy", policies[0]) not in policies:
        yield not_supported("preemptionPolicy", priority["preemptionPolicy"], policies)
