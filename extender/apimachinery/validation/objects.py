"""Validation of an object when it is created and when it changes.

Most of the pod template of a Job is immutable, unless the Job is suspended and has no active pods.
"""

from copy import deepcopy

from extender.api.objects.volcano import VolcanoJob
from extender.api.workloads.shape import value_at as at_path
from extender.api.workloads.shape import with_spec
from extender.apimachinery import errors, kinds
from extender.apimachinery.errors import FieldErrors
from extender.apimachinery.field_schemas import schema_of
from extender.apimachinery.objects import READ_ERRORS, find_stored_condition, typed
from extender.apimachinery.validation.metadata import labels_errors, metadata_errors
from extender.apimachinery.validation.pods import node_errors, pod_errors, quota_errors, taint_errors
from extender.apimachinery.validation.rules import rule_errors
from extender.apimachinery.validation.schemas import queue_errors, schema_errors
from extender.volcano.admission import review_change, review_new

_MUTABLE = ("nodeSelector", "tolerations", "schedulingGates")  # mutable fields of an inactive Job's template
_IMMUTABLE_FIELDS = (
    *("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"),
    "successPolicy",
)
_IMMUTABLE_TEXT, _UNSELECTED_TEXT = "field is immutable", "`selector` does not match template `labels`"


def job_change_errors(before: kinds.Json, job: kinds.Json) -> FieldErrors:
    """Yield the errors of a changed Job."""
    old_spec, new_spec = before.get("spec") or {}, job.get("spec") or {}
    completions = new_spec.get("completions")
    if completions != old_spec.get("completions"):  # an Indexed Job may change both together
        if new_spec.get("completionMode") != "Indexed":
            yield errors.bad_value("spec.completions", completions, _IMMUTABLE_TEXT)
        elif completions is not None and completions != new_spec.get("parallelism"):
            message = "can only be modified in tandem with spec.parallelism"
            yield errors.bad_value("spec.completions", completions, message)
    for name in _IMMUTABLE_FIELDS:
        if old_spec.get(name) != new_spec.get(name):
            yield errors.bad_value(f"spec.{name}", new_spec.get(name), _IMMUTABLE_TEXT)
    current, desired = old_spec.get("template") or {}, new_spec.get("template") or {}
    status, suspended = before.get("status") or {}, find_stored_condition(before, "Suspended").get("status")
    is_inactive = suspended == "True" or "startTime" not in status  # suspended, or never started
    if old_spec.get("suspend") and is_inactive and not status.get("active"):
        current, desired = _without_mutable_parts(current), _without_mutable_parts(desired)
    if current != desired:
        yield errors.bad_value("spec.template", new_spec.get("template"), _IMMUTABLE_TEXT)


def _without_mutable_parts(template: kinds.Json) -> kinds.Json:
    """Return a pod template without its mutable parts: node constraints, requests and metadata."""
    spec = {key: value for key, value in deepcopy(template.get("spec") or {}).items() if key not in _MUTABLE}
    affinity = {key: value for key, value in (spec.pop("affinity", None) or {}).items() if value}
    affinity.pop("nodeAffinity", None)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        container.pop("resources", None)
    return {**spec, **({"affinity": affinity} if affinity else {})}


def volcano_job_errors(job: kinds.Json, before: kinds.Json | None = None) -> FieldErrors:
    """Yield the faults that Muster's webhook would report. `before` is None for a new job."""
    try:
        new_job = typed(job, VolcanoJob)
        faults = review_new(new_job) if before is None else review_change(typed(before, VolcanoJob), new_job)
    except READ_ERRORS as fault:
        yield errors.invalid_whole_value("spec", str(fault))
        return
    yield from (errors.FieldError(fault.field, "FieldValueInvalid", fault.message) for fault in faults)


_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist"}
_MAX_INDEXED_PODS = 100_000  # maximum parallelism of an Indexed Job
_JOB_POLICIES, _SERVICE_POLICIES = ("OnFailure", "Never"), ("Always",)
_MAX_PRIORITY = 1_000_000_000
_SYSTEM = "system-"
SYSTEM_CLASSES = (f"{_SYSTEM}cluster-critical", f"{_SYSTEM}node-critical")


def _template_errors(spec: kinds.Json, at: str, policies: tuple[str, ...]) -> FieldErrors:
    template, pod = spec.get("template") or {}, at_path(spec, ("template", "spec")) or {}
    yield from labels_errors(f"{at}.template.labels", at_path(template, ("metadata", "labels")))
    policy = pod.get("restartPolicy") or "Always"
    if policy not in policies:
        yield errors.not_supported(f"{at}.template.spec.restartPolicy", policy, policies)


def _selects(selector: kinds.Json | None, labels: kinds.Json) -> bool:
    """Return whether the matchLabels of a selector match the labels."""
    return bool(selector and (selector.get("matchLabels") or {}).items() <= labels.items())


def _replicated_errors(spec: kinds.Json, at: str) -> FieldErrors:
    """Yield the errors of Deployments and similar kinds."""
    yield from _template_errors(spec, at, _SERVICE_POLICIES)
    selector, labels = spec.get("selector"), at_path(spec, ("template", "metadata", "labels")) or {}
    expressions = at_path(spec, ("selector", "matchExpressions")) or ()
    operators = {expression.get("operator") for expression in expressions}
    if selector is not None and not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield errors.bad_value(f"{at}.selector", selector, "empty selector is invalid")
    elif operators - _OPERATORS:
        yield errors.bad_value(f"{at}.selector", selector, "invalid label selector")
    elif not _selects(selector, labels):
        yield errors.bad_value(f"{at}.template.metadata.labels", labels, _UNSELECTED_TEXT)
    if at_path(spec, ("template", "spec", "activeDeadlineSeconds")) is not None:
        yield errors.forbidden_field(f"{at}.template.spec.activeDeadlineSeconds", "not supported here")


def _deployment_errors(spec: kinds.Json, at: str) -> FieldErrors:
    yield from _replicated_errors(spec, at)
    progress = spec.get("progressDeadlineSeconds", 600)
    if progress <= (spec.get("minReadySeconds") or 0):
        yield errors.bad_value(
            f"{at}.progressDeadlineSeconds", progress, "must be greater than minReadySeconds"
        )


def _strategy_errors(value: kinds.Json, at: str) -> FieldErrors:
    rolling = value.get("rollingUpdate")
    if value.get("type") == "Recreate" and rolling is not None:
        message = "may not be specified when strategy `type` is 'Recreate'"
        yield errors.forbidden_field(f"{at}.rollingUpdate", message)
    if rolling and all(rolling.get(name) in (0, "0%") for name in ("maxSurge", "maxUnavailable")):
        yield errors.bad_value(f"{at}.rollingUpdate.maxUnavailable", 0, "may not be 0 when `maxSurge` is 0")


def _job_errors(spec: kinds.Json, at: str) -> FieldErrors:
    yield from _template_errors(spec, at, _JOB_POLICIES)
    yield from _selector_errors(spec, at)
    is_indexed = spec.get("completionMode") == "Indexed"
    if is_indexed and spec.get("completions") is None:
        yield errors.required(f"{at}.completions", "when completion mode is Indexed")
    if is_indexed and (spec.get("parallelism") or 0) > _MAX_INDEXED_PODS:
        message = f"must be less than or equal to {_MAX_INDEXED_PODS} when completion mode is Indexed"
        yield errors.bad_value(f"{at}.parallelism", spec["parallelism"], message)
    for name in ("backoffLimitPerIndex", "successPolicy"):
        if spec.get(name) is not None and not is_indexed:
            yield errors.bad_value(f"{at}.{name}", spec[name], "requires indexed completion mode")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield errors.required(f"{at}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    policy = at_path(spec, ("template", "spec", "restartPolicy"))
    if spec.get("podFailurePolicy") is not None and policy == "OnFailure":
        message = 'only "Never" is supported when podFailurePolicy is specified'
        yield errors.bad_value(f"{at}.template.spec.restartPolicy", policy, message)


def _selector_errors(spec: kinds.Json, at: str) -> FieldErrors:
    """Yield the errors of a Job's selector, which Kubernetes sets unless `manualSelector` is true."""
    labels, selector = at_path(spec, ("template", "metadata", "labels")) or {}, spec.get("selector")
    if not spec.get("manualSelector"):
        if selector is not None:
            yield errors.bad_value(f"{at}.selector", selector, "`selector` not auto-generated")
        return
    if selector is None:
        yield errors.required(f"{at}.selector")
    if not _selects(selector, labels):
        yield errors.bad_value(f"{at}.template.metadata.labels", labels, _UNSELECTED_TEXT)


_RELATIONS = {
    "PodSpec": pod_errors,
    "JobSpec": _job_errors,
    "DeploymentSpec": _deployment_errors,
    "DeploymentStrategy": _strategy_errors,
    "ReplicaSetSpec": _replicated_errors,
    "ResourceQuotaSpec": quota_errors,
    "StatefulSetSpec": _replicated_errors,
}


def creation_errors(kind: kinds.ResourceKind, obj: kinds.Json) -> FieldErrors:
    """Yield the errors of a new object."""
    yield from _errors_of_each_write(kind, obj)
    if not kind.custom:
        checked_object = obj
        if kind is kinds.STATEFUL_SETS:  # pods may mount volumes of the claim templates
            spec = obj.get("spec") or {}
            template, claims = spec.get("template") or {}, spec.get("volumeClaimTemplates") or ()
            pod = template.get("spec") or {}
            claimed_volumes = ({"name": claim["metadata"].get("name")} for claim in claims)
            volumes = [*(pod.get("volumes") or ()), *claimed_volumes]
            checked_object = with_spec(obj, template={**template, "spec": {**pod, "volumes": volumes}})
        yield from rule_errors(checked_object, schema_of(kind), "", _RELATIONS)
    if kind is kinds.VOLCANO_JOBS:
        yield from volcano_job_errors(obj)
    name = obj["metadata"].get("name") or ""
    if kind is kinds.CRON_JOBS and len(name) > 52:  # the names of its Jobs have eleven more
        yield errors.bad_value("metadata.name", name, "must be no more than 52 characters")


def change_errors(kind: kinds.ResourceKind, before: kinds.Json, obj: kinds.Json) -> FieldErrors:
    """Yield the errors of a changed object."""
    yield from _errors_of_each_write(kind, obj)
    if kind is kinds.PRIORITY_CLASSES and before.get("value") != obj.get("value"):
        yield errors.forbidden_field("value", "may not be changed in an update.")
    if kind is kinds.RESOURCE_QUOTAS:
        yield from quota_errors(obj.get("spec") or {}, "spec")
    if kind is kinds.JOBS:
        yield from job_change_errors(before, obj)
    if kind is kinds.VOLCANO_JOBS:
        yield from volcano_job_errors(obj, before)


def _errors_of_each_write(kind: kinds.ResourceKind, obj: kinds.Json) -> FieldErrors:
    """Yield the errors that both a new object and a changed object can have."""
    yield from metadata_errors(kind, obj["metadata"])
    if kind.custom:  # metadata_errors validates metadata, not the schema
        schema = schema_of(kind)
        yield from (errors.required(name) for name in schema.published.get("required", ()) if name not in obj)
        for name in sorted(set(obj) - {"metadata", "apiVersion", "kind"}):
            yield from schema_errors(obj[name], schema.field(name), name)
        if kind is kinds.QUEUES and isinstance(obj.get("spec"), dict):
            yield from queue_errors(obj, schema)
    if kind is kinds.NODES:
        yield from taint_errors(obj)
        yield from node_errors(obj)
    name = obj["metadata"].get("name", "")
    if kind is kinds.PRIORITY_CLASSES and name not in SYSTEM_CLASSES:
        if name.startswith(_SYSTEM):
            rule = f"priority class names with '{_SYSTEM}' prefix are reserved for system use only. error:"
            yield errors.forbidden_field(
                "metadata.name", f"{rule} {name} is not a known system priority class"
            )
        elif obj.get("value", 0) > _MAX_PRIORITY:
            message = f"maximum allowed value of a user defined priority is {_MAX_PRIORITY}"
            yield errors.forbidden_field("value", message)
