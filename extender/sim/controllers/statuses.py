"""The statuses of workloads, from what they own: the fields that kubectl shows, waits for and follows.

Of operators' jobs no more is written than who waits for them reads, in the fields of which the table of
workloads says how they end.
"""

from collections.abc import Callable

from extender.api.workloads.children import kind_of, suspended
from extender.api.workloads.shape import JobOutcome, Path, WorkloadRow, outcome_of
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.objects import condition, find_stored_condition, now, set_condition
from extender.sim.controllers.jobs import count_ready, finished
from extender.sim.controllers.offspring import ended_as

_SUSPENDED, _RUNNING, _READY, _STARTING = "Suspended", "Running", "ready", ""
_CLUSTER_STATE = "state"  # of a RayCluster, which never ends by itself


def operator_status(workload: Json, owned: list[Json]) -> Json:
    """One that has finished keeps what it says."""
    status: Json = {**(workload.get("status") or {})}
    row = kind_of(workload)
    if row is None or outcome_of(row, workload) is not None:
        return status
    ends = [ended_as(obj) for obj in owned]
    if not row.succeeded:
        ready = bool(owned) and count_ready(owned) == len(owned)
        status[_CLUSTER_STATE] = _SUSPENDED.lower() if suspended(workload) else _READY if ready else _STARTING
    elif ends and None not in ends:
        sign = (row.failed if JobOutcome.FAILED in ends else row.succeeded)[0]
        if sign.condition:
            set_condition(status, condition(sign.condition, "True", sign.condition))
        for (_, *path), values in sign.fields.items():
            _put(status, tuple(path), values[0])
    else:
        _show_suspension(status, row, is_suspended=suspended(workload))
    return status


def _show_suspension(status: Json, row: WorkloadRow, *, is_suspended: bool) -> None:
    """As a condition, which one that was never suspended lacks, or as the stage at which it is."""
    for _, *path in row.succeeded[0].fields:
        _put(status, tuple(path), _SUSPENDED if is_suspended else _RUNNING)
    if row.succeeded[0].condition and (is_suspended or find_stored_condition({"status": status}, _SUSPENDED)):
        set_condition(
            status, condition(_SUSPENDED, str(is_suspended), _SUSPENDED if is_suspended else "Resumed")
        )


def _put(status: Json, path: Path, value: str) -> None:
    first, *rest = path
    if rest:
        status[first] = {**(status.get(first) or {})}
        return _put(status[first], tuple(rest), value)
    status[first] = value
    return None


# ---- Kubernetes' own workloads

REVISION = "controller-revision-hash"


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
    revisions = [(pod["metadata"].get("labels") or {}).get(REVISION, "") for pod in pods]
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
    newest = max(replica_sets, key=_updated_and_young, default={})
    ready = sum(_number(replica_set, "readyReplicas") for replica_set in replica_sets)
    wanted = workload["spec"].get("replicas", 1)
    made: Json = {
        "observedGeneration": workload["metadata"]["generation"],
        "replicas": sum(_number(replica_set, "replicas") for replica_set in replica_sets),
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


def _updated_and_young(replica_set: Json) -> tuple[int, str]:
    """Those without pods are old ones."""
    return replica_set["spec"].get("replicas", 1), replica_set["metadata"]["creationTimestamp"]


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
