"""Admission of objects: defaults, scheduling gates, and immutable fields.

The scheduling gate of Muster's pods is added here, as by the policy in manifests/gates/admission-policy.yaml.
Fields that a real cluster honours and the embedded cluster does not are refused, not ignored.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from extender.api.keys import ENDED_PHASES, GATE, MANAGED, NEVER_ADOPTED, POD_SCHEDULED, SCHEDULING_GATED
from extender.api.objects.cluster import Node
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup, Queue
from extender.api.objects.volcano import VolcanoJob
from extender.api.workloads.children import SHAPE_ERRORS, count_pods
from extender.api.workloads.shape import value_at
from extender.apimachinery import kinds
from extender.apimachinery.errors import FieldError, forbidden, forbidden_field, invalid, invalid_whole_value
from extender.apimachinery.field_schemas import schema_of
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.objects import READ_ERRORS, condition, set_condition, typed
from extender.apimachinery.patches import apply_json_patch
from extender.apimachinery.store import Store
from extender.apimachinery.validation.objects import change_errors, creation_errors
from extender.apimachinery.validation.schemas import with_defaults
from extender.domain.model.resources import offered, pod_requests, requested_amounts
from extender.volcano.admission import job_defaults

HARD_SPREAD = "DoNotSchedule"
MAX_PODS = 10_000  # maximum of pods of a workload, or of all workloads in a user's files


def unsupported_fields(spec: Json) -> Iterator[tuple[str, str]]:
    """Yield the fields of a pod spec that the embedded cluster does not support, each with a description."""
    constraints = spec.get("topologySpreadConstraints") or []
    if any(constraint.get("whenUnsatisfiable", HARD_SPREAD) == HARD_SPREAD for constraint in constraints):
        yield "topologySpreadConstraints", f"{HARD_SPREAD}; ScheduleAnyway is allowed"
    for volume in spec.get("volumes") or []:
        for kind in ("persistentVolumeClaim", "ephemeral"):
            if kind in volume:
                yield "volumes", f"{kind}, as it has no storage"


_GRACE = 30  # seconds of the default grace period
_KINDS_WITH_GENERATION = frozenset((*(kind for kind in kinds.KINDS if kind.custom), *kinds.WORKLOAD_KINDS))


def prepare_for_create(kind: ResourceKind, obj: Json, store: Store, adds_gates: bool) -> None:
    """Set the defaults of a new object, run its admission, and validate it, all in place.

    Raises:
        StatusError: The object is invalid.
    """
    if kind.status and kind is not kinds.NODES:
        obj.pop("status", None)
    if kind.custom:
        obj |= with_defaults(obj, schema_of(kind))
    obj["metadata"].pop("generation", None)
    if kind in _KINDS_WITH_GENERATION:
        obj["metadata"]["generation"] = 1
    match kind.plural:
        case "pods":
            _prepare_pod(obj, store, adds_gates)
        case "jobs":
            _prepare_job(kind, obj)
        case "deployments" | "replicasets" | "statefulsets":
            field = {kinds.DEPLOYMENTS: "strategy", kinds.STATEFUL_SETS: "updateStrategy"}.get(kind)
            rolling = {field: {"type": "RollingUpdate"}} if field else {}
            spec = (obj.get("spec") or {}).items()
            set_fields = {name: value for name, value in spec if value != {} or name == "selector"}
            obj["spec"] = {"replicas": 1, **rolling, **set_fields}
        case "namespaces":
            _label(obj, "kubernetes.io/metadata.name")
            obj["status"] = {"phase": "Active"}
        case "nodes":
            _label(obj, "kubernetes.io/hostname")
            status = obj.get("status") or {}
            if status.get("capacity"):
                status.setdefault("allocatable", status["capacity"])
    validate(kind, obj, creation_errors(kind, obj))


def _prepare_job(kind: ResourceKind, obj: Json) -> None:
    """Set the defaults of a job. A Volcano Job gets the defaults of Muster's webhook."""
    if kind is kinds.VOLCANO_JOBS:
        with suppress(*READ_ERRORS):  # `validate` refuses unreadable objects
            job = typed(obj, VolcanoJob)
            if job.spec.tasks:
                obj |= apply_json_patch(obj, job_defaults(job, "volcano"))
        return
    spec = obj.get("spec") or {}
    completions = {} if {"completions", "parallelism"} & spec.keys() else {"completions": 1}
    obj["spec"] = {**completions, "parallelism": 1, "backoffLimit": 6, **spec}
    labels = value_at(obj, ("spec", "template", "metadata", "labels"))
    if labels and not obj["metadata"].get("labels"):  # by default, a Job has the labels of its pods
        obj["metadata"]["labels"] = {**labels}


def _label(obj: Json, key: str) -> None:
    """Add a label to an object; its value is the name of the object."""
    meta = obj["metadata"]
    meta["labels"] = {key: meta.get("name", ""), **(meta.get("labels") or {})}


def _prepare_pod(pod: Json, store: Store, adds_gates: bool) -> None:
    """Set the defaults, the priority, the scheduler, the gate and the status of a new pod."""
    spec = pod["spec"] = pod.get("spec") or {}
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", _GRACE)
    _set_priority(pod, store)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
    meta, gates = pod["metadata"], spec.get("schedulingGates") or []
    is_of_daemon_set = any(owner.get("kind") == "DaemonSet" for owner in meta.get("ownerReferences") or ())
    is_exempt = meta["namespace"] in NEVER_ADOPTED or spec.get("nodeName") or is_of_daemon_set
    is_adoptable = spec["schedulerName"] == "default-scheduler" and not is_exempt
    has_opted_out = value_at(meta, ("annotations", MANAGED)) == "false"
    namespace = store.get(kinds.NAMESPACES, "", meta["namespace"]) or {}
    if is_adoptable and not has_opted_out and value_at(namespace, ("metadata", "labels", MANAGED)) == "true":
        spec["schedulerName"] = "muster"
    is_musters = spec["schedulerName"] in ("muster", "volcano") and not is_exempt
    if adds_gates and is_musters and {"name": GATE} not in gates:
        spec["schedulingGates"] = [*gates, {"name": GATE}]
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        set_condition(pod["status"], condition(POD_SCHEDULED, "False", SCHEDULING_GATED, message))


def _set_priority(pod: Json, store: Store) -> None:
    """Set the pod's priority from its priority class, or from the default class.

    Raises:
        StatusError: The class does not exist, or the pod states another priority.
    """
    spec, pod_name = pod["spec"], pod["metadata"].get("name", "")
    class_by_name = {obj["metadata"]["name"]: obj for obj in store.all(kinds.PRIORITY_CLASSES)}
    default = next((name for name, obj in class_by_name.items() if obj.get("globalDefault")), "")
    if name := spec.get("priorityClassName") or default:
        if name not in class_by_name:
            raise forbidden(kinds.PODS, pod_name, f"no PriorityClass with name {name} was found")
        spec["priorityClassName"] = name
    priority_class = class_by_name.get(name, {})
    expected = int(priority_class.get("value", 0))
    if spec.get("priority", expected) != expected:
        fault = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        text = f"{fault}; priority admission controller computed {expected} from the given PriorityClass name"
        raise forbidden(kinds.PODS, pod_name, text)
    spec["priority"] = expected
    spec["preemptionPolicy"] = priority_class.get("preemptionPolicy", "PreemptLowerPriority")


def validate(kind: ResourceKind, obj: Json, errors: Iterable[FieldError]) -> None:
    """Check an object of a kind.

    Raises:
        StatusError: There are `errors`, or the embedded cluster cannot read the object or does not support
            it.
    """
    name = obj["metadata"].get("name", "")
    if distinct_errors := list(dict.fromkeys(errors)):
        raise invalid(kind, name, distinct_errors)
    if kind is kinds.PODS:
        for field, value in unsupported_fields(obj.get("spec") or {}):
            message = f"the embedded cluster does not play {field} with {value}"
            raise invalid(kind, name, [forbidden_field(f"spec.{field}", message)])
    with suppress(*SHAPE_ERRORS):  # the pods of some invalid objects cannot be counted
        pods = count_pods(obj) if kind in kinds.WORKLOAD_KINDS else 0
        if pods > MAX_PODS:
            message = f"the embedded cluster makes at most {MAX_PODS} pods, not {pods}"
            raise invalid(kind, name, [forbidden_field("spec", message)])
    try:
        match kind.name:  # refuse values that the scheduler could not parse
            case "Pod":
                pod_requests(typed(obj, Pod).spec)
            case "Node":
                offered(typed(obj, Node).status.allocatable)
            case "Queue":
                requested_amounts(typed(obj, Queue).spec.capability)
            case "PodGroup":
                typed(obj, PodGroup)
    except READ_ERRORS as fault:
        raise invalid(kind, name, [invalid_whole_value("spec", str(fault))]) from fault


def prepare_for_update(kind: ResourceKind, before: Json, obj: Json, is_checked: bool) -> Json:
    """Return a changed object with its defaults.

    Raises:
        StatusError: `is_checked` is true, and the change is invalid.
    """
    if kind.custom:
        obj = with_defaults(obj, schema_of(kind))
    if kind in _KINDS_WITH_GENERATION and before.get("spec") != obj.get("spec"):
        obj["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
    if is_checked:
        validate(kind, obj, change_errors(kind, before, obj))
    if kind is kinds.PODS:
        old_spec, new_spec, name = before["spec"], obj["spec"], obj["metadata"]["name"]
        old_gates, new_gates = old_spec.get("schedulingGates") or [], new_spec.get("schedulingGates") or []
        if any(gate not in old_gates for gate in new_gates):
            error = forbidden_field("spec.schedulingGates", "only deletion is allowed")
            raise invalid(kinds.PODS, name, [error])
        times = "activeDeadlineSeconds", "terminationGracePeriodSeconds"
        constraints = ("nodeSelector", "affinity") if old_gates else ()
        mutable = ("schedulingGates", "tolerations", *times, *constraints)
        if _immutable_part(old_spec, mutable) != _immutable_part(new_spec, mutable):
            message = f"pod updates may not change fields other than {', '.join(mutable)} and images"
            raise invalid(kinds.PODS, name, [forbidden_field("spec", message)])
    return obj


def _immutable_part(spec: Json, mutable: Iterable[str]) -> Json:
    """Return a pod's spec without its `mutable` fields and without images."""
    immutable = {name: value for name, value in spec.items() if name not in mutable and value}
    for name in ("containers", "initContainers"):
        immutable[name] = [{**container, "image": ""} for container in spec.get(name) or []]
    return immutable


def grace_of(kind: ResourceKind, obj: Json, requested: int | None) -> int:
    """Return the grace period of an object in seconds; 0 unless it is an active pod on a node."""
    is_on_node = kind is kinds.PODS and bool(obj["spec"].get("nodeName"))
    if not is_on_node or obj["status"].get("phase") in ENDED_PHASES:
        return 0
    return obj["spec"].get("terminationGracePeriodSeconds", _GRACE) if requested is None else requested


FIRST_OBJECTS: tuple[tuple[ResourceKind, Json], ...] = (
    *((kinds.NAMESPACES, {"metadata": {"name": name}}) for name in ("default", "kube-system", "kube-public")),
    (kinds.PRIORITY_CLASSES, {"metadata": {"name": "system-cluster-critical"}, "value": 2_000_000_000}),
    (kinds.PRIORITY_CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
)
