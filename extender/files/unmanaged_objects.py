"""Objects that Muster is not asked to start: pods of other schedulers, and suspended jobs without a queue.

For each object, there is a list of changes after which Muster would start the object.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from extender.api.configuration import Configuration
from extender.api.keys import DEFAULT_QUEUE, DEFAULT_SCHEDULER, MIN_MEMBER, QUEUE
from extender.api.objects.base import OwnerReference
from extender.api.objects.cluster import ElasticQuota, ElasticQuotaTree
from extender.api.objects.queues import LocalQueue
from extender.api.workloads.children import SHAPE_ERRORS, is_job_suspended, kind_of
from extender.api.workloads.gangs import Defaults
from extender.api.workloads.pod_sets import annotation_paths, pod_sets
from extender.api.workloads.shape import POD, Json, WorkloadRow, kind_prefix
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery import kinds
from extender.apimachinery.objects import typed
from extender.domain.model.ownership import controller_of, is_adopted
from extender.domain.model.shapes import Shapes
from extender.domain.queues.local_queues import QueueRoutes, records_by_key
from extender.domain.queues.quota_records import QuotaPlan
from extender.domain.queues.quotas import Quotas, plan_of
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRecord, JobRules, job_record, queue_of_job
from extender.files.creation import Created
from extender.files.offspring import find_among, with_runtime_of

SCHEDULERS = Configuration().scheduler_names

# ---- queues of suspended jobs


def plan_of_quotas(objects: Sequence[Created]) -> QuotaPlan:
    """Return the plan of the queues that the quotas among the objects ask for."""
    trees = _objects_of_kind(objects, kinds.ELASTIC_QUOTA_TREES, ElasticQuotaTree)
    quotas = _objects_of_kind(objects, kinds.ELASTIC_QUOTAS, ElasticQuota)
    return plan_of(Quotas(trees, quotas), Configuration().max_queue_depth)


class QueuesOfJobs:
    """Queues that the jobs in files enter."""

    def __init__(self, objects: Sequence[Created], quota_queue_by_namespace: Mapping[str, str]) -> None:
        self._annotations = {
            (obj["kind"], obj["metadata"]["name"]): obj["metadata"].get("annotations") or {}
            for obj, _ in objects
            if obj["kind"] in (kinds.NAMESPACES.name, kinds.QUEUES.name)
        }
        queue_by_namespace = {**quota_queue_by_namespace}
        for (kind, name), annotations in self._annotations.items():
            if kind == kinds.NAMESPACES.name and annotations.get(QUEUE):
                queue_by_namespace[name] = annotations[QUEUE]
        namespaces = (obj["metadata"] for obj, _ in objects if obj["kind"] == kinds.NAMESPACES.name)
        labels = {meta["name"]: meta.get("labels") or {} for meta in namespaces}
        self._adopted_namespaces = {name for name in labels if is_adopted(name, labels[name])}
        local_queues = records_by_key(_objects_of_kind(objects, kinds.LOCAL_QUEUES, LocalQueue))
        self._routes = QueueRoutes(lambda namespace: queue_by_namespace.get(namespace, ""), local_queues)

    def queue_of(self, job: JobRecord) -> str:
        """Return the queue of a job; empty if the job names no queue."""
        return queue_of_job(job, self._routes)

    def manages(self, job: JobRecord) -> bool:
        """Return whether Muster manages a job by its default rules."""
        return JobRules().manages(job, self.queue_of(job), self.adopts(job.namespace))

    def adopts(self, namespace: str) -> bool:
        return namespace in self._adopted_namespaces

    def defaults_of(self, job: JobRecord) -> Defaults:
        """Return the default gang sizes that the namespace and the queue of a job set."""
        sources = ((kinds.NAMESPACES.name, job.namespace), (kinds.QUEUES.name, self.queue_of(job)))
        return Defaults(*(self._annotations.get(source, {}).get(MIN_MEMBER, "") for source in sources))


def record_of(obj: Json) -> JobRecord:
    """Return the record of an object, with its runtime if its kind has a runtime.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    kind = JobKind(obj["apiVersion"], obj["kind"])
    return job_record(kind, msgspec.convert(obj, AnyJob), WORKLOADS, Shapes(), SCHEDULERS, auto_groups=True)


def _objects_of_kind(objects: Sequence[Created], kind: kinds.ResourceKind, type_: type[Any]) -> list[Any]:
    name = kind.api_version, kind.name
    return [typed(obj, type_) for obj, _ in objects if (obj["apiVersion"], obj["kind"]) == name]


# ---- objects that no field asks Muster to start


class UnmanagedObject(NamedTuple):
    """Object that Muster does not start."""

    object: Json
    where: str
    suspended: bool  # whether the object is suspended; else another scheduler starts it
    missing: str

    @property
    def title(self) -> str:
        """Return a title such as `default/job/train`, as for gangs."""
        meta = self.object["metadata"]
        prefix = kind_prefix(self.object["apiVersion"], self.object["kind"])
        return f"{meta['namespace']}/{prefix}/{meta['name']}"

    @property
    def sentence(self) -> str:
        suspended = "it is suspended, and " if self.suspended else ""
        return f"{suspended}Muster is not asked to start it: {self.missing}"

    @property
    def note(self) -> str:
        return f'{self.where}: {self.object["kind"]} "{self.object["metadata"]["name"]}": {self.sentence}'


def unmanaged_objects(objects: Sequence[Created], queues: QueuesOfJobs) -> Iterator[UnmanagedObject]:
    """Yield objects that Muster is not asked to start. Objects with a controller are left out."""
    find = find_among(created.object for created in objects)
    for obj, where in objects:
        owners = obj["metadata"].get("ownerReferences") or ()
        if controller_of([msgspec.convert(owner, OwnerReference) for owner in owners]):
            continue
        row = kind_of(obj)
        is_suspended = is_job_suspended(obj)
        try:
            missing = [*_missing(with_runtime_of(obj, find), row, is_suspended, queues)]
        except SHAPE_ERRORS:  # the fault is reported elsewhere
            continue
        if missing:
            yield UnmanagedObject(obj, where, is_suspended, " and ".join(missing))


def _missing(obj: Json, row: WorkloadRow | None, is_suspended: bool, queues: QueuesOfJobs) -> Iterator[str]:
    """Yield the changes after which Muster would start an object."""
    adopted = (DEFAULT_SCHEDULER,) if queues.adopts(obj["metadata"].get("namespace", "")) else ()
    schedulers = _schedulers(obj, row)
    if foreign := [scheduler for scheduler in schedulers if scheduler not in (*SCHEDULERS, *adopted)]:
        instead = "" if foreign[0] == DEFAULT_SCHEDULER else f" instead of {foreign[0]}"
        yield f"add schedulerName: muster{instead} to {_pod_spec_paths(obj, row)}"
    if row is None or not is_suspended:
        return
    if not row.manageable:
        yield "nothing of it runs until spec.suspend is false"
        return
    record = record_of(obj)
    queue = queues.queue_of(record)
    if (obj["apiVersion"], obj["kind"]) not in kinds.KIND_BY_NAME:
        yield "suspended jobs of this version are not played here"
    elif not queue:
        yield f"add the annotation {QUEUE}: {DEFAULT_QUEUE}, or that of another queue, to its metadata"
    elif not foreign and not record.fault and not queues.manages(record):
        yield "its pods name a PodGroup, so they wait in that once spec.suspend is false"


def _schedulers(obj: Json, row: WorkloadRow | None) -> list[str]:
    """Return the schedulers that a pod, or the pods of a workload, name."""
    specs = [obj["spec"]] if (obj["apiVersion"], obj["kind"]) == POD else []
    if row is not None:
        specs = [pod_set.template["spec"] for pod_set in pod_sets(obj)]
    return [spec.get("schedulerName") or DEFAULT_SCHEDULER for spec in specs]


def _pod_spec_paths(obj: Json, row: WorkloadRow | None) -> str:
    """Return the paths of an object's pod specs, or a description if another object has the pod specs."""
    templates = annotation_paths(row, obj) if row else [("metadata", "annotations")]
    paths = [(*path[:-2], "spec") for path in templates if path[-2] == "metadata"]
    description = "the pod templates of its runtime" if row and row.runtime else "the spec of its pods"
    return " and ".join(map(".".join, paths[:3])) or description
