"""Warnings about a workload: annotations on it that the pods of its controller cannot follow."""

from collections.abc import Collection, Iterator
from contextlib import suppress

from extender.api import keys
from extender.api.workloads.children import MALFORMED
from extender.api.workloads.gangs import IN_TURN, ORDERED_READY, Defaults, scaled_gang, size_of
from extender.api.workloads.pod_sets import JobPodSet, pod_sets
from extender.api.workloads.shape import STATEFUL_SET, Json, at

_ANNOTATIONS = ("metadata", "annotations")


def workload_warnings(workload: Json, schedulers: Collection[str]) -> Iterator[str]:
    """Yield what users should know about an object whose controller makes pods for one of `schedulers`."""
    with suppress(*MALFORMED):  # the API server refuses what it cannot read
        sets = [part for part in pod_sets(workload) if _scheduler_of(part) in schedulers]
        if sets and (workload.get("apiVersion"), workload.get("kind")) == STATEFUL_SET:
            yield from _created_in_turn(workload, sets[0])


def _scheduler_of(part: JobPodSet) -> str:
    return str(at(part.template, ("spec", "schedulerName")) or keys.DEFAULT_SCHEDULER)


def _created_in_turn(stateful_set: Json, part: JobPodSet) -> Iterator[str]:
    policy = at(stateful_set, ("spec", "podManagementPolicy")) or ORDERED_READY
    gang = scaled_gang(at(stateful_set, _ANNOTATIONS) or {}, part.count, policy)
    template = (at(part.template, _ANNOTATIONS) or {}).get(keys.MIN_MEMBER, "")
    fault = size_of(gang, template, Defaults(), waits=False).fault
    if IN_TURN in fault:
        yield fault
