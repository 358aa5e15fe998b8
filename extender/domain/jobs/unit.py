"""The unit of queueing: the PodGroup of a job, made before its pods are."""

from collections import Counter
from typing import Any

from extender.domain.jobs.job_record import JobRecord
from extender.domain.model.resources import PODS, quantities
from extender.domain.model.shapes import requests_of


def unit_queue(job: JobRecord, queue: str) -> str:
    """What its PodGroup says of `queue`, which it enters: nothing where a LocalQueue leads there."""
    return "" if job.local_queue is not None and not job.queue else queue


def min_resources(job: JobRecord) -> dict[str, str]:
    """What all pods that it makes at once request."""
    asked = requests_of(Counter({each.pod.shape: each.count for each in job.pods}))
    return quantities({name: amount for name, amount in asked.items() if name != PODS})


def unit(job: JobRecord, queue: str) -> dict[str, Any]:
    """As it is created. It belongs to the job, and ends with it."""
    spec = {
        "minMember": job.needed,
        "queue": unit_queue(job, queue),
        "priorityClassName": job.priority_class,
        "minResources": min_resources(job),
    }
    owner = {
        "apiVersion": job.kind.api_version,
        "kind": job.kind.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": job.unit,
            "namespace": job.namespace,
            "ownerReferences": [owner],
            **({"labels": {job.local_queue.key: job.local_queue.name}} if job.local_queue else {}),
        },
        "spec": {name: value for name, value in spec.items() if value or name == "minMember"},
        "status": {"phase": "Pending"},
    }
