"""What the API server makes of objects before it stores them: defaults, admission, what may not change.

The scheduling gate of our pods is put on here, as the policy in manifests/gates/admission-policy.yaml does.
What a real cluster would give a pod and this one cannot is refused rather than ignored.
"""

from collections.abc import Iterable, Iterator

from extender.api.keys import ENDED_PHASES, GATE, POD_SCHEDULED, SCHEDULING_GATED
from extender.api.objects.cluster import Node
from extender.api.objects.pods import Pod
from extender.api.objects.queues import PodGroup, Queue
from extender.api.workloads.children import MALFORMED, count_pods
from extender.domain.model.resources import asked, offered, pod_requests
from extender.sim.apiserver.errors import FieldError, forbidden, forbidden_field, invalid, wrong_as_stated
from extender.sim.apiserver.field_schemas import schema_of
from extender.sim.apiserver.kinds import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    STATEFUL_SETS,
    WORKLOAD_KINDS,
    Json,
    ResourceKind,
)
from extender.sim.apiserver.objects import UNREADABLE, condition, set_condition, typed
from extender.sim.apiserver.store import Store
from extender.sim.apiserver.validation.objects import change_errors, creation_errors
from extender.sim.apiserver.validation.schemas import defaulted


def with_defaults(kind: ResourceKind, spec: Json) -> Json:
    if kind is JOBS:  # one pod, unless it says how many: one number alone says nothing of the other
        once = {} if {"completions", "parallelism"} & spec.keys() else {"completions": 1}
        return {**once, "parallelism": 1, "backoffLimit": 6, **spec}
    rolling = {"type": "RollingUpdate"}
    strategy = {DEPLOYMENTS: {"strategy": rolling}, STATEFUL_SETS: {"updateStrategy": rolling}}.get(kind, {})
    given = {name: value for name, value in spec.items() if value != {} or name == "selector"}
    return {"replicas": 1, **strategy, **given}


def label_as_its_pods(job: Json) -> None:
    """A Job without labels gets those of its pod template."""
    template = job["spec"].get("template") or {}
    if labels := (template.get("metadata") or {}).get("labels"):
        job["metadata"]["labels"] = job["metadata"].get("labels") or {**labels}


HARD = "DoNotSchedule"
MOST_PODS = 10_000  # that are made of one workload, or of all workloads of a user's files


def too_many_pods(workload: Json) -> str:
    """Why a workload is refused for its size; empty if it is not, or its pods cannot be counted."""
    try:
        pods = count_pods(workload)
    except MALFORMED:
        return ""
    return f"the embedded cluster makes at most {MOST_PODS} pods, not {pods}" if pods > MOST_PODS else ""


def unsupported(spec: Json) -> Iterator[tuple[str, str]]:
    """The fields of a pod's spec that the embedded cluster cannot honour, and what in them."""
    constraints = spec.get("topologySpreadConstraints") or []
    if any(constraint.get("whenUnsatisfiable", HARD) == HARD for constraint in constraints):
        yield "topologySpreadConstraints", f"{HARD}; ScheduleAnyway is allowed"
    for volume in spec.get("volumes") or []:
        for kind in ("persistentVolumeClaim", "ephemeral"):
            if kind in volume:
                yield "volumes", f"{kind}, as it has no storage"
    if spec.get("resourceClaims"):
        yield "resourceClaims", "anything in them, as it has no devices"


GATED_SCHEDULERS = ("muster", "volcano")
_UNGATED_NAMESPACES = ("kube-system", "kube-muster")
_GRACE = 30
_FREE = ("schedulingGates", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
_FREE_WHILE_GATED = ("nodeSelector", "affinity")


# ---- create


def prepare_for_create(kind: ResourceKind, obj: Json, store: Store, gating: bool) -> None:
    """Default, admit and validate a new object, in place. Raises StatusError."""
    if kind.status and kind is not NODES:
        obj.pop("status", None)
    if kind.custom:
        obj |= defaulted(obj, schema_of(kind))
    obj["metadata"].pop("generation", None)
    if _has_generations(kind):
        obj["metadata"]["generation"] = 1
    match kind.plural:
        case "pods":
            _prepare_pod(obj, store, gating)
        case "jobs" | "deployments" | "replicasets" | "statefulsets":
            obj["spec"] = with_defaults(kind, obj.get("spec") or {})
            if kind is JOBS:
                label_as_its_pods(obj)
        case "namespaces":
            _label(obj, "kubernetes.io/metadata.name")
            obj["status"] = {"phase": "Active"}
        case "nodes":
            _label(obj, "kubernetes.io/hostname")
            if (status := obj.get("status") or {}).get("capacity"):
                status.setdefault("allocatable", status["capacity"])
    validate(kind, obj, creation_errors(kind, obj))


def _has_generations(kind: ResourceKind) -> bool:
    return kind.custom or kind in WORKLOAD_KINDS


def _label(obj: Json, key: str) -> None:
    """Label an object with its own name."""
    meta = obj["metadata"]
    meta["labels"] = {key: meta.get("name", ""), **(meta.get("labels") or {})}


def _prepare_pod(pod: Json, store: Store, gating: bool) -> None:
    spec = pod["spec"] = pod.get("spec") or {}
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", _GRACE)
    _prioritize(pod, store)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
    if gating:
        _gate(pod)
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        set_condition(pod["status"], condition(POD_SCHEDULED, "False", SCHEDULING_GATED, message))


def _gate(pod: Json) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    daemon = any(owner.get("kind") == "DaemonSet" for owner in meta.get("ownerReferences") or ())
    ours = spec["schedulerName"] in GATED_SCHEDULERS and meta["namespace"] not in _UNGATED_NAMESPACES
    gates = spec.get("schedulingGates") or []
    if ours and not spec.get("nodeName") and not daemon and {"name": GATE} not in gates:
        spec["schedulingGates"] = [*gates, {"name": GATE}]


def _prioritize(pod: Json, store: Store) -> None:
    """Set the priority that the pod's class stands for, or the default class. Raises StatusError."""
    spec, classes = pod["spec"], store.all(PRIORITY_CLASSES)
    if not (name := spec.get("priorityClassName")):
        name = next(
            (
                priority_class["metadata"]["name"]
                for priority_class in classes
                if priority_class.get("globalDefault")
            ),
            "",
        )
    found = next(
        (priority_class for priority_class in classes if priority_class["metadata"]["name"] == name), None
    )
    if name and found is None:
        raise forbidden(PODS, pod["metadata"].get("name", ""), f"no PriorityClass with name {name} was found")
    if found is not None:
        spec["priorityClassName"] = name
    computed = int(found.get("value", 0)) if found else 0
    if spec.get("priority", computed) != computed:
        fault = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        why = f"{fault}; priority admission controller computed {computed} from the given PriorityClass name"
        raise forbidden(PODS, pod["metadata"].get("name", ""), why)
    spec["priority"] = computed
    spec["preemptionPolicy"] = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")


def validate(kind: ResourceKind, obj: Json, errors: Iterable[FieldError]) -> None:
    """Raises StatusError for `errors`, and for what the embedded cluster does not play or cannot read."""
    name = obj["metadata"].get("name", "")
    if found := list(dict.fromkeys(errors)):
        raise invalid(kind, name, found)
    if kind is PODS:
        for field, what in unsupported(obj.get("spec") or {}):
            message = f"the embedded cluster does not play {field} with {what}"
            raise invalid(kind, name, [forbidden_field(f"spec.{field}", message)])
    if kind in WORKLOAD_KINDS and (message := too_many_pods(obj)):
        raise invalid(kind, name, [forbidden_field("spec", message)])
    try:
        match kind.name:  # read as the scheduler will
            case "Pod":
                pod_requests(typed(obj, Pod).spec)
            case "Node":
                offered(typed(obj, Node).status.allocatable)
            case "Queue":
                asked(typed(obj, Queue).spec.capability)
            case "PodGroup":
                typed(obj, PodGroup)
    except UNREADABLE as fault:
        raise invalid(kind, name, [wrong_as_stated("spec", str(fault))]) from fault


def prepare_for_update(kind: ResourceKind, before: Json, obj: Json, checked: bool) -> Json:
    """`obj`, completed. Raises StatusError for a change that is not allowed, if it is to be `checked`."""
    if kind.custom:
        obj = defaulted(obj, schema_of(kind))
    if _has_generations(kind) and before.get("spec") != obj.get("spec"):
        obj["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
    if checked:
        validate(kind, obj, change_errors(kind, before, obj))
    if kind is PODS:
        old, new, name = before["spec"], obj["spec"], obj["metadata"]["name"]
        gates, kept = old.get("schedulingGates") or [], new.get("schedulingGates") or []
        if any(gate not in gates for gate in kept):
            raise invalid(PODS, name, [forbidden_field("spec.schedulingGates", "only deletion is allowed")])
        free = (*_FREE, *(_FREE_WHILE_GATED if gates else ()))
        if _rest(old, free) != _rest(new, free):
            message = f"pod updates may not change fields other than {', '.join(free)} and images"
            raise invalid(PODS, name, [forbidden_field("spec", message)])
    return obj


def _rest(spec: Json, free: Iterable[str]) -> Json:
    """The part of a pod's spec that may not change. Images may, so they are left out."""
    rest = {name: value for name, value in spec.items() if name not in free and value}
    for name in ("containers", "initContainers"):
        rest[name] = [{**container, "image": ""} for container in spec.get(name) or []]
    return rest


def grace(kind: ResourceKind, obj: Json, asked: int | None) -> int:
    """How many seconds an object has between its deletion and its end. Only pods on a node have any."""
    if kind is not PODS or not obj["spec"].get("nodeName") or obj["status"].get("phase") in ENDED_PHASES:
        return 0
    return obj["spec"].get("terminationGracePeriodSeconds", _GRACE) if asked is None else asked


FIRST_OBJECTS: tuple[tuple[ResourceKind, Json], ...] = (
    *((NAMESPACES, {"metadata": {"name": name}}) for name in ("default", "kube-system", "kube-public")),
    (PRIORITY_CLASSES, {"metadata": {"name": "system-cluster-critical"}, "value": 2_000_000_000}),
    (PRIORITY_CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
)
