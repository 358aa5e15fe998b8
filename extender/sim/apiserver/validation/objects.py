"""All that is wrong with one object, when it is created and when it changes.

Of a Job most of the pod template may not change, unless it is suspended and has no active pods.
"""

from copy import deepcopy

from extender.sim.apiserver import kinds
from extender.sim.apiserver.errors import FieldErrors, forbidden_field, not_supported, wrong
from extender.sim.apiserver.field_schemas import schema_of
from extender.sim.apiserver.objects import find_stored_condition
from extender.sim.apiserver.validation.metadata import metadata_errors
from extender.sim.apiserver.validation.pods import node_errors, pod_errors, taint_errors
from extender.sim.apiserver.validation.schemas import queue_errors, schema_errors

_FIXED = (
    *("selector", "completionMode", "podFailurePolicy"),
    *("backoffLimitPerIndex", "managedBy", "successPolicy"),
)
_FREE = ("nodeSelector", "tolerations", "schedulingGates")  # of the template of a Job that is at rest
_IMMUTABLE = "field is immutable"


def job_change_errors(before: kinds.Json, job: kinds.Json) -> FieldErrors:
    old, new = before.get("spec") or {}, job.get("spec") or {}
    yield from _completions(old, new)
    for name in _FIXED:
        if old.get(name) != new.get(name):
            yield wrong(f"spec.{name}", new.get(name), _IMMUTABLE)
    kept, wanted = old.get("template") or {}, new.get("template") or {}
    status, reported = before.get("status") or {}, find_stored_condition(before, "Suspended").get("status")
    at_rest = reported == "True" or "startTime" not in status  # its controller knows, or never started it
    if old.get("suspend") and at_rest and not status.get("active"):
        kept, wanted = _without_free_parts(kept), _without_free_parts(wanted)
    if kept != wanted:
        yield wrong("spec.template", new.get("template"), _IMMUTABLE)


def _completions(old: kinds.Json, new: kinds.Json) -> FieldErrors:
    """Those of an indexed Job may change together with its parallelism."""
    given = new.get("completions")
    if given == old.get("completions"):
        return
    if new.get("completionMode") != "Indexed":
        yield wrong("spec.completions", given, _IMMUTABLE)
    elif given is not None and given != new.get("parallelism"):
        yield wrong("spec.completions", given, "can only be modified in tandem with spec.parallelism")


def _without_free_parts(template: kinds.Json) -> kinds.Json:
    """Where its pods may go, what they ask for and what is written on them are free then."""
    spec = {key: value for key, value in deepcopy(template.get("spec") or {}).items() if key not in _FREE}
    affinity = {key: value for key, value in (spec.pop("affinity", None) or {}).items() if value}
    affinity.pop("nodeAffinity", None)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        container.pop("resources", None)
    return {**spec, **({"affinity": affinity} if affinity else {})}


# ---- all kinds

_WITH_TEMPLATE = (
    kinds.JOBS,
    kinds.DEPLOYMENTS,
    kinds.REPLICA_SETS,
)  # volumes of StatefulSets come from claims, too
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM = "system-"
SYSTEM_CLASSES = (f"{_SYSTEM}cluster-critical", f"{_SYSTEM}node-critical")


def creation_errors(kind: kinds.ResourceKind, obj: kinds.Json) -> FieldErrors:
    yield from metadata_errors(kind, obj["metadata"])
    if kind is kinds.PODS:
        yield from pod_errors(obj)
    else:
        yield from _own_errors(kind, obj)
    if kind in _WITH_TEMPLATE:
        template = (obj.get("spec") or {}).get("template") or {}
        for error in pod_errors({"metadata": {}, "spec": {}, **template}):
            yield error._replace(field=f"spec.template.{error.field}")


def change_errors(kind: kinds.ResourceKind, before: kinds.Json, obj: kinds.Json) -> FieldErrors:
    yield from metadata_errors(kind, obj["metadata"])
    yield from _own_errors(kind, obj)
    if kind is kinds.PRIORITY_CLASSES and before.get("value") != obj.get("value"):
        yield forbidden_field("value", "may not be changed in an update.")
    if kind is kinds.JOBS:
        yield from job_change_errors(before, obj)


def _own_errors(kind: kinds.ResourceKind, obj: kinds.Json) -> FieldErrors:
    if kind.custom:  # the metadata of every kind is judged in the same way, not by its schema
        schema = schema_of(kind)
        for name in sorted(set(obj) - {"metadata", "apiVersion", "kind"}):
            yield from schema_errors(obj[name], schema.field(name), name)
        if kind is kinds.QUEUES and isinstance(obj.get("spec"), dict):
            yield from queue_errors(obj, schema)
    if kind is kinds.NODES:
        yield from taint_errors(obj)
        yield from node_errors(obj)
    if kind is kinds.PRIORITY_CLASSES:
        yield from _class_errors(obj)


def _class_errors(priority: kinds.Json) -> FieldErrors:
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
