"""Suspended jobs in virtual time: those that Muster would manage wait as one group, and start when all pods
that they make at once have room. Their pods are there from the beginning; nobody sees the difference.
"""

from collections.abc import Iterator, Mapping

import msgspec

from extender.api.configuration import Configuration
from extender.api.keys import QUEUE
from extender.api.workloads.children import MALFORMED, count_pods, suspended
from extender.api.workloads.pod_sets import annotation_paths, changes_its_count
from extender.api.workloads.shape import Json, at
from extender.api.workloads.table import WORKLOADS
from extender.domain.model.shapes import Shapes
from extender.domain.snapshot import job_suspension
from extender.domain.snapshot.job_suspension import unit
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRecord, JobRules, job_record
from extender.sim.apiserver.errors import StatusError
from extender.sim.apiserver.kinds import BY_NAME, JOBS, NAMESPACES
from extender.sim.apiserver.patches import json_patched
from extender.sim.controllers.offspring import children_of
from extender.sim.files.creation import Created, Creation
from extender.sim.virtual.workload import stamp

_IN_TIME = "sim.kube-muster.io/"  # what annotations begin with that say when something comes and ends


def let_go(creation: Creation, by_quota: Mapping[str, str]) -> None:
    """Make the groups and the pods of the suspended jobs that Muster manages unless it is told otherwise.
    `by_quota`: the queues that quotas give to namespaces."""
    schedulers = Configuration().scheduler_names
    queues = _queues_of_namespaces(creation)
    for place, (obj, where) in enumerate([*creation.objects]):
        if not (suspended(obj) and (obj["apiVersion"], obj["kind"]) in BY_NAME):
            continue
        try:
            record = _record(obj, schedulers)
            queue = record.queue or queues.get(record.namespace) or by_quota.get(record.namespace, "")
            if JobRules().manage(record, queue) and not record.fault:
                _let_one_go(creation, place, record, queue)
        except (*MALFORMED, msgspec.ValidationError, StatusError) as fault:
            creation.faults.append(f"{where}: its pods are not known: {fault}")


def not_played(creation: Creation) -> Iterator[str]:
    """What controllers would make of jobs later: nobody is there for that in virtual time."""
    for obj, where in creation.objects:
        subject = f'{where}: {obj["kind"]} "{obj["metadata"]["name"]}"'
        if suspended(obj) and (obj["apiVersion"], obj["kind"]) in BY_NAME:
            yield f"{subject}: suspended: no pods are made"
        elif (
            obj["kind"] == JOBS.name
            and (rest := (at(obj, ("spec", "completions")) or 0) - count_pods(obj)) > 0
        ):
            yield f"{subject}: only its first pods are made; {rest} more, made as those succeed, are not"
        if (row := WORKLOADS.get((obj["apiVersion"], obj["kind"]))) and changes_its_count(row, obj):
            yield f"{subject}: starts with all its pods or not at all; with fewer it does in a cluster"


def _queues_of_namespaces(creation: Creation) -> dict[str, str]:
    return {
        obj["metadata"]["name"]: (obj["metadata"].get("annotations") or {}).get(QUEUE, "")
        for obj, _ in creation.objects
        if obj["kind"] == NAMESPACES.name
    }


def _record(obj: Json, schedulers: tuple[str, ...]) -> JobRecord:
    kind, job = JobKind(obj["apiVersion"], obj["kind"]), msgspec.convert(obj, AnyJob)
    return job_record(kind, job, WORKLOADS, Shapes(), schedulers, auto_groups=True)


def _let_one_go(creation: Creation, place: int, record: JobRecord, queue: str) -> None:
    """As the controller of jobs does it, and then the job's own one."""
    obj, where = creation.objects[place]
    row, group = WORKLOADS[record.kind], unit(record, queue)
    given = (obj["metadata"].get("annotations") or {}).items()
    annotations = {name: text for name, text in given if name.startswith(_IN_TIME)}
    creation.add({**group, "metadata": {**group["metadata"], "annotations": annotations}}, where)
    name = group["metadata"]["name"]
    operations = job_suspension.let_go(obj, row, annotation_paths(row, obj), name, stamp(0))
    creation.objects[place] = Created(json_patched(obj, operations), where)
    for child in children_of(creation.objects[place].object):
        creation.add(child, where)
