"""The statuses of workloads, from what they own: the fields that kubectl shows, waits for and follows."""

from collections.abc import Callable

from extender.sim.apiserver.conditions import condition, now, set_condition
from extender.sim.apiserver.kinds import Json
from extender.sim.controllers.job_status import count_ready, finished

_REVISION = "controller-revision-hash"


def status_of(workload: Json, owned: list[Json]) -> Json:
    """`owned`: what it made and is still there."""
    status = {**(workload.get("status") or {})}
    status |= _STATUSES[workload["kind"]](workload, owned)
    return status


def _replica_set(workload: Json, pods: list[Json]) -> Json:
    count, ready = len(pods), count_ready(pods)
    seen = {"observedGeneration": workload["metadata"]["generation"]}
    return {**seen, "replicas": count, "fullyLabeledReplicas": count, **_counted(ready)}


def _counted(ready: int) -> Json:
    return {"readyReplicas": ready, "availableReplicas": ready}


def _stateful_set(workload: Json, pods: list[Json]) -> Json:
    count, ready = len(pods), count_ready(pods)
    revisions = [(pod["metadata"].get("labels") or {}).get(_REVISION, "") for pod in pods]
    revision = max(revisions, default="")
    return {
        "observedGeneration": workload["metadata"]["generation"],
        "replicas": count,
        "currentReplicas": count,
        "updatedReplicas": count,
        "currentRevision": revision,
        "updateRevision": revision,
        **_counted(ready),
    }


def _deployment(workload: Json, replica_sets: list[Json]) -> Json:
    """What its ReplicaSets have in all; the newest, which alone should have any, is the updated one."""
    newest = max(replica_sets, key=_age_in_store, default={})
    ready = sum(_number(each, "readyReplicas") for each in replica_sets)
    wanted = workload["spec"].get("replicas", 1)
    made: Json = {
        "observedGeneration": workload["metadata"]["generation"],
        "replicas": sum(_number(each, "replicas") for each in replica_sets),
        "updatedReplicas": _number(newest, "replicas"),
        **_counted(ready),
        "unavailableReplicas": max(wanted - ready, 0),
        "conditions": list((workload.get("status") or {}).get("conditions") or ()),
    }
    enough = ready >= wanted
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    set_condition(made, condition("Available", str(enough), reason, message))
    return made


def _age_in_store(replica_set: Json) -> tuple[int, str]:
    """Those without pods are old ones."""
    meta = replica_set["metadata"]
    return replica_set["spec"].get("replicas", 1), meta["creationTimestamp"]


def _number(obj: Json, field: str) -> int:
    number: int = (obj.get("status") or {}).get(field, 0)
    return number


def _cron_job(workload: Json, jobs: list[Json]) -> Json:
    last = (workload.get("status") or {}).get("lastScheduleTime")
    active = [{"kind": "Job", "name": job["metadata"]["name"]} for job in jobs if not finished(job)]
    return {"active": active, **({"lastScheduleTime": last or now()} if jobs or last else {})}


_STATUSES: dict[str, Callable[[Json, list[Json]], Json]] = {
    "CronJob": _cron_job,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
}
