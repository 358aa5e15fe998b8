"""Jobs that wait as jobs, in virtual time.

Muster plans the pods that such a job will make as it plans pods that are there, and nothing is lost between
its decision and the first pod. So a job that Muster would let go is played as one that is not suspended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from extender.api.configuration import Configuration
from extender.api.keys import GROUP_ANNOTATION
from extender.api.objects import Namespace
from extender.api.workloads.children import kind_of
from extender.api.workloads.lifecycle import is_suspended
from extender.api.workloads.shape import WorkloadRow
from extender.api.workloads.table import WORKLOADS
from extender.api.workloads.template_paths import annotation_paths
from extender.domain.jobs.job_record import JobKind, JobRecord, JobRules
from extender.domain.jobs.reading import Job, job_record
from extender.domain.jobs.unit import unit
from extender.domain.model.queue_of_group import namespace_queue
from extender.domain.model.shapes import Shapes
from extender.sim.apiserver.kinds import NAMESPACES, POD_GROUPS, Json
from extender.sim.files.manifests import Manifest
from extender.sim.files.namespaces import of
from extender.sim.virtual.workload import ARRIVAL

_SCHEDULERS = Configuration().scheduler_names


def as_let_go(manifests: Sequence[Manifest]) -> list[Manifest]:
    """With a PodGroup for each of those jobs, which all of its pods name."""
    queues = _namespace_queues(manifests)
    return [made for each in manifests for made in _let_go(each, queues)]


def _namespace_queues(manifests: Iterable[Manifest]) -> Mapping[str, str]:
    found = (msgspec.convert(each.object, Namespace) for each in manifests if each.kind is NAMESPACES)
    return {each.metadata.name: namespace_queue(each) for each in found}


def _let_go(manifest: Manifest, queues: Mapping[str, str]) -> Iterator[Manifest]:
    """Without change, if Muster would not let it go, or if it is no job."""
    obj = manifest.object
    row, named = kind_of(obj), queues.get(of(obj), "")
    record = _record(row, obj) if row and row.manageable and is_suspended(row, obj) else None
    if row is None or record is None or record.fault or not JobRules().manage(record, named):
        yield manifest
        return
    group = f"{record.kind.kind.lower()}-{record.name}"
    started = _started(obj, row, group)
    annotations = _annotations(obj, started, row)
    spec = unit(record, record.queue or named)
    meta = {"name": group, "namespace": record.namespace, "annotations": annotations}
    yield Manifest(POD_GROUPS, {**spec, "metadata": meta}, manifest.where)
    yield manifest._replace(object=started)


def _record(row: WorkloadRow, obj: Json) -> JobRecord:
    given = msgspec.convert({**obj, "metadata": {**obj["metadata"], "namespace": of(obj)}}, Job)
    return job_record(JobKind(*row.key), given, WORKLOADS, Shapes(), _SCHEDULERS, auto_groups=True)


def _started(obj: Json, row: WorkloadRow, group: str) -> Json:
    copy = deepcopy(obj)
    _found(copy, row.suspend[:-1])[row.suspend[-1]] = False
    for path in annotation_paths(row, copy):
        _found(copy, path)[GROUP_ANNOTATION] = group
    return copy


def _annotations(obj: Json, started: Json, row: WorkloadRow) -> dict[str, str]:
    """When the group comes: as the job says, or else its first pods."""
    of_pods = (_found(started, path) for path in annotation_paths(row, started))
    places = (obj["metadata"].get("annotations") or {}, *of_pods)
    return next(({ARRIVAL: each[ARRIVAL]} for each in places if ARRIVAL in each), {})


def _found(obj: Any, path: Sequence[str | int]) -> Any:
    """What is there, made where nothing is."""
    for name in path:
        if isinstance(obj, dict) and obj.get(name) is None:
            obj[name] = {}
        obj = obj[name]
    return obj
