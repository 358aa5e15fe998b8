"""Reader of the files and folders of -f, which sorts their objects in the order of their creation.

Faults, and differences from a real cluster, are reported as FILE:LINE with the allowed values.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from extender.api.admission import AnyObject
from extender.api.configuration import Configuration
from extender.api.objects.cluster import ClusterTopology
from extender.api.objects.queues import Queue, ResourceFlavor
from extender.api.objects.volcano import VolcanoJob
from extender.api.workloads.children import SHAPE_ERRORS, count_pods, is_job_suspended, kind_of
from extender.api.workloads.shape import KindName, value_at
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.admission import FIRST_OBJECTS, MAX_PODS
from extender.apimachinery.kinds import (
    EXPANDED_KINDS,
    KIND_BY_NAME,
    KINDS,
    NAMESPACES,
    QUEUES,
    RESOURCE_FLAVORS,
    RESOURCE_QUOTAS,
    TOPOLOGIES,
    VOLCANO_JOBS,
    Json,
    ResourceKind,
)
from extender.apimachinery.objects import READ_ERRORS, typed
from extender.apimachinery.quotas import is_counted
from extender.domain.admission.faults import Code, review_on_lost_domain, workload_warnings
from extender.domain.admission.queues import flavor_warnings, review_flavor, review_queue
from extender.domain.admission.submission import annotation_warnings
from extender.domain.ledger.topologies import BadTopology, levels_of
from extender.domain.queues.flavors import shared_flavor
from extender.domain.queues.records import queue_record
from extender.domain.queues.tree import Queues, QueueTree
from extender.files.fields import fields_of, find_faults, form_of
from extender.files.offspring import find_among, with_runtime_of
from extender.files.reading import Document, documents, path_text, value_of
from extender.terminal.text import did_you_mean, near_misses
from extender.volcano.admission import job_warnings, review_new

_AMOUNTS = frozenset(
    "allocatable capability capacity deserved limits minResources overhead requests resource".split()  # noqa: SIM905
)


def amounts_as_texts(value: Any) -> Any:
    """Return a copy of an object, or of a part of an object, in which amounts with a fraction are texts."""
    if isinstance(value, list):
        return [amounts_as_texts(item) for item in value]
    if not isinstance(value, dict):
        return value
    copy = {}
    for name, part in value.items():
        if name in _AMOUNTS and isinstance(part, dict):
            copy[name] = {key: str(item) if isinstance(item, float) else item for key, item in part.items()}
        else:
            copy[name] = amounts_as_texts(part)
    return copy


_PODLESS_KINDS = frozenset({
    "APIService", "Certificate", "ClusterIssuer", "ClusterRole", "ClusterRoleBinding", "ConfigMap",
    "CustomResourceDefinition", "EndpointSlice", "Endpoints", "Gateway", "HTTPRoute",
    "HorizontalPodAutoscaler", "Ingress", "IngressClass", "Issuer", "LimitRange", "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "NetworkPolicy", "PersistentVolume",
    "PersistentVolumeClaim", "PodDisruptionBudget", "PodMonitor", "PrometheusRule",
    "Role", "RoleBinding", "RuntimeClass", "Secret", "Service",
    "ServiceAccount", "ServiceMonitor", "StorageClass", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VerticalPodAutoscaler"
})  # fmt: skip
_LEFT_OUT_REASONS = {
    "DaemonSet": "its pods belong to nodes and wait in no queue",
    "PodTemplate": "a template alone makes no pods",
    "WorkflowTemplate": "a template alone makes no pods",
    "ClusterWorkflowTemplate": "a template alone makes no pods",
    "CronWorkflow": "nothing runs at set times here; write the Workflow",
    "ScheduledSparkApplication": "nothing runs at set times here; write the SparkApplication",
}


def omission_text(document: Document) -> str:
    """Return a message why a document is left out."""
    api_version, kind = _kind_name(document.object)
    line = document.where(value_of(document.node, "kind"))
    object_name = (document.object.get("metadata") or {}).get("name") or ""
    title = f'{kind} "{object_name}"' if object_name else kind
    if api_version.partition("/")[0] == "kueue.x-k8s.io":
        remedy = f"muster migrate kueue -f {document.file} prints Muster's counterpart"
        return f"{line}: {title}: skipped, it is Kueue's; {remedy}"
    if kind in _PODLESS_KINDS:
        return f"{line}: {title}: skipped, no pods follow from it"
    if kind in _LEFT_OUT_REASONS:
        return f"{line}: {title}: skipped, {_LEFT_OUT_REASONS[kind]}"
    known = [*KIND_BY_NAME, *WORKLOADS]  # the kind may be known in another version, or by a similar name
    if versions := [api_version for api_version, of_kind in known if of_kind == kind]:
        hint = f"; known is {kind} of {', '.join(versions)}"
    else:
        near = near_misses(kind, (of_kind for _, of_kind in known), 1)
        hint = f"; {did_you_mean(near)}" if near else ""
    return f"{line}: {title}: skipped, nothing is known of kind {kind} ({api_version}){hint}"


def namespace_of(obj: Json) -> str:
    """Return the namespace of an object; empty for kinds without namespaces."""
    kind = KIND_BY_NAME.get((obj["apiVersion"], obj["kind"]))
    if kind is not None and not kind.namespaced:
        return ""
    return obj["metadata"].get("namespace") or "default"


# ---- objects


class InvalidManifests(ValueError):
    """Error: faults that the user has to correct, one per line."""


_EXPANDED_ONCE = (None, *EXPANDED_KINDS)  # kinds whose pods are created once, without a controller


class Manifest(NamedTuple):
    """Object with its place in a file.

    `kind` is None if the kind is not served; only the pods of such an object are created.
    """

    kind: ResourceKind | None
    object: Json
    where: str

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name") or self.object["metadata"].get("generateName"))


class Manifests(NamedTuple):
    """Objects to create, with notes about them."""

    objects: list[Manifest]
    notes: list[str]


def load(paths: Sequence[Path], create_namespaces: bool = False) -> Manifests:
    """Return the objects in files and folders: namespaces and queues first, workloads last.

    Raises:
        InvalidManifests: The files have faults.
    """
    faults: list[str] = []
    notes: list[str] = []
    all_documents = [document for path in paths for document in documents(path, faults)]
    loaded = [manifest for document in all_documents for manifest in _manifest(document, faults, notes)]
    faults += [*_duplicates(loaded), *_count_faults(loaded, notes), *_webhook_refusals(loaded, notes)]
    missing = _missing_namespaces(loaded)
    if not create_namespaces:
        reason = "not found; --create-namespaces makes those that are missing"
        faults += [f'{at}: namespaces "{name}" {reason}' for name, at in missing.items()]
    if not loaded and not faults:
        faults += [*notes, f"{', '.join(map(path_text, paths))}: no objects in there that run or wait"]
    if faults:
        raise InvalidManifests("\n".join(faults))
    head = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.name}
    loaded += [Manifest(NAMESPACES, {**head, "metadata": {"name": name}}, at) for name, at in missing.items()]
    return Manifests(sorted(loaded, key=_sort_key), notes)


def _missing_namespaces(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the missing namespaces, each with the FILE:LINE where it is first used."""
    existing = {obj["metadata"]["name"] for kind, obj in FIRST_OBJECTS if kind is NAMESPACES}
    first_mention: dict[str, str] = {}
    for kind, obj, where in manifests:
        if kind is NAMESPACES:
            existing.add(obj["metadata"].get("name"))
        elif name := namespace_of(obj):
            first_mention.setdefault(name, where)
    return {name: where for name, where in first_mention.items() if name not in existing}


def _sort_key(manifest: Manifest) -> int:
    """Return the sort key of an object. Workloads come after all other objects."""
    if manifest.kind is None or kind_of(manifest.object) is not None:
        return len(KINDS)
    return KINDS.index(manifest.kind)


def _manifest(document: Document, faults: list[str], notes: list[str]) -> Iterator[Manifest]:
    """Yield the object of a document, unless it is invalid or left out."""
    missing = [field for field in ("apiVersion", "kind") if not isinstance(document.object.get(field), str)]
    reason = "missing; every object has an apiVersion and a kind"
    own_faults, form = [f"{document.where()}: {field}: {reason}" for field in missing], None
    kind_name = _kind_name(document.object)
    if kind_name in WORKLOADS and not own_faults:
        form = form_of(kind_name)
    elif kind_name in KIND_BY_NAME and not own_faults:
        form = fields_of(KIND_BY_NAME[kind_name])
    if form is not None:
        own_faults = list(find_faults(document, form))
    elif not own_faults:
        notes.append(omission_text(document))
    faults.extend(own_faults)
    if form is None or own_faults:
        return
    kind, object_name = KIND_BY_NAME.get(kind_name), document.object["metadata"].get("name")
    preset_names = [obj["metadata"]["name"] for of_kind, obj in FIRST_OBJECTS if of_kind is kind]
    if object_name not in preset_names:  # every cluster has preset objects, for example the namespace default
        yield Manifest(kind, amounts_as_texts(document.object), document.where())


def _kind_name(obj: Json) -> KindName:
    return str(obj.get("apiVersion")), str(obj.get("kind"))


def _duplicates(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield the faults of objects with the same kind, namespace and name."""
    places: dict[tuple[str, ...], str] = {}
    for manifest in manifests:
        obj = manifest.object
        key = (*_kind_name(obj), namespace_of(obj), obj["metadata"].get("name") or manifest.where)
        if key in places:
            kind = obj["kind"]
            yield f'{manifest.where}: {kind} "{manifest.name}" already exists: it is at {places[key]}, too'
        places.setdefault(key, manifest.where)


def _count_faults(manifests: Sequence[Manifest], notes: list[str]) -> Iterator[str]:
    """Yield faults about the numbers of pods, and note facts about workloads."""
    remaining, find = MAX_PODS, find_among(manifest.object for manifest in manifests)
    for manifest in manifests:
        workload = kind_of(manifest.object)
        if manifest.kind is RESOURCE_QUOTAS:
            names = value_at(manifest.object, ("spec", "hard")) or ()
            left_out = [name for name in names if not is_counted(name)]
            quota = f'{manifest.where}: ResourceQuota "{manifest.name}"'
            notes += [f"{quota}: only pods are counted, not {', '.join(left_out)}"] if left_out else []
        if workload is None:
            continue
        subject = f'{manifest.where}: {workload.kind} "{manifest.name}"'
        try:
            obj = with_runtime_of(manifest.object, find)
            count, remark = count_pods(obj), workload.remark(obj)
        except SHAPE_ERRORS as fault:
            yield f"{subject}: its pods are not known: {fault_text(fault)}"
            continue
        if count > remaining:
            yield f"{subject}: asks for {count} pods; of all workloads together at most {MAX_PODS} are made"
        remaining -= min(count, remaining)
        if is_job_suspended(manifest.object):
            remark = "suspended: no pods are made" if manifest.kind in _EXPANDED_ONCE else ""
        elif count == 0:
            remark = remark or "asks for no pods"
        if remark:
            notes.append(f"{subject}: {remark}")


def _webhook_refusals(manifests: Sequence[Manifest], notes: list[str]) -> Iterator[str]:
    """Yield the faults for which Muster's webhooks would refuse objects, and note the webhooks' warnings.

    A missing parent of a queue is only a warning: it may be created later, or from a quota.
    """
    queues = {item.name: typed(item.object, Queue) for item in manifests if item.kind is QUEUES}
    flavor_manifests = [item for item in manifests if item.kind is RESOURCE_FLAVORS]
    flavors = {item.name: typed(item.object, ResourceFlavor) for item in flavor_manifests}
    known_queues = Queues()
    for name, flavor in flavors.items():
        known_queues.put_flavor(name, shared_flavor(flavor))
    for queue in queues.values():
        known_queues.put(queue_record(queue))
    tree = QueueTree(known_queues.records, lambda _: None, known_queues.shared_flavors)
    for manifest in manifests:
        subject = f'{manifest.where}: {manifest.object["kind"]} "{manifest.name}"'
        warnings = [*annotation_warnings(typed(manifest.object, AnyObject).metadata)]
        warnings += workload_warnings(manifest.object, Configuration().scheduler_names)
        if manifest.kind is QUEUES:
            queue = queues[manifest.name]
            for fault in review_queue(queue, None, tree, Configuration().max_queue_depth):
                if fault.code is Code.PARENT_NOT_FOUND:
                    warnings.append(str(fault))
                else:
                    yield f"{subject}: {fault}"
            warnings += flavor_warnings(queue, None, tree)
        yield from (f"{subject}: {fault}" for fault in review_on_lost_domain(manifest.object))
        yield from (f"{subject}: {fault}" for fault in _faults_about_nodes(manifest))
        if manifest.kind is VOLCANO_JOBS:
            try:
                job = typed(manifest.object, VolcanoJob)
            except READ_ERRORS as fault:
                yield f"{subject}: {fault}"
                continue
            yield from (f"{subject}: {fault}" for fault in review_new(job))
            warnings += job_warnings(job)
        notes += [f"{subject}: {warning}" for warning in warnings]


def _faults_about_nodes(manifest: Manifest) -> Iterator[str]:
    """Yield the faults of a ResourceFlavor or a Topology."""
    if manifest.kind is RESOURCE_FLAVORS:
        yield from map(str, review_flavor(typed(manifest.object, ResourceFlavor)))
    if manifest.kind is TOPOLOGIES:
        try:
            levels_of(typed(manifest.object, ClusterTopology))
        except BadTopology as fault:
            yield str(fault)


def fault_text(fault: Exception) -> str:
    """Return a message for users about an exception.

    Python's messages about wrong types would not help users.
    """
    return str(fault) if type(fault) is ValueError else "a field has a form that this kind does not know"
