"""The statuses of workloads, from what they own: the fields that kubectl shows, waits for and follows.

Of operators' jobs no more is written than who waits for them reads, in the fields of which the table of
workloads says how they end.
"""

from extender.api.workloads.children import kind_of, suspended
from extender.api.workloads.shape import JobOutcome, Path, outcome_of
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.objects import condition, find_stored_condition, now, set_condition
from extender.sim.controllers.jobs import count_ready, finished
from extender.sim.controllers.offspring import ended_as

_SUSPENDED, _RUNNING, _READY, _STARTING = "Suspended", "Running", "ready", ""


def operator_status(workload: Json, owned: list[Json]) -> Json:
    """One that has finished keeps what it says."""
    status: Json = {**(workload.get("status") or {})}
    row = kind_of(workload)
    if row is None or outcome_of(row, workload) is not None:
        return status
    ends = [ended_as(obj) for obj in owned]
    if not row.succeeded:  # a RayCluster, which never ends by itself
        ready = bool(owned) and count_ready(owned) == len(owned)
        status["state"] = _SUSPENDED.lower() if suspended(workload) else _READY if ready else _STARTING
    elif ends and None not in ends:
        sign = (row.failed if JobOutcome.FAILED in ends else row.succeeded)[0]
        if sign.condition:
            set_condition(status, condition(sign.condition, "True", sign.condition))
        for (_, *path), values in sign.fields.items():
            _put(status, tuple(path), values[0])
    else:
        # as a condition, which one that was never suspended lacks, or as the stage at which it is
        rests = suspended(workload)
        for _, *path in row.succeeded[0].fields:
            _put(status, tuple(path), _SUSPENDED if rests else _RUNNING)
        if row.succeeded[0].condition and (rests or find_stored_condition({"status": status}, _SUSPENDED)):
            reason = _SUSPENDED if rests else "Resumed"
            set_condition(status, condition(_SUSPENDED, str(rests), reason))
    return status


def _put(status: Json, path: Path, value: str) -> None:
    first, *rest = path
    if rest:
        status[first] = {**(status.get(first) or {})}
        return _put(status[first], tuple(rest), value)
    status[first] = value
    return None


# ---- Kubernetes' own workloads

REVISION = "controller-revision-hash"


def _counted(ready: int) -> Json:
    return {"readyReplicas": ready, "availableReplicas": ready}


def _deployment(workload: Json, replica_sets: list[Json]) -> Json:
    """What its ReplicaSets have in all; the newest, which alone should have any, is the updated one."""
    young_first = sorted(replica_sets, key=lambda each: each["metadata"]["creationTimestamp"], reverse=True)
    # old ones have no pods
    newest = max(young_first, key=lambda each: each["spec"].get("replicas", 1), default={})
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


def _number(obj: Json, field: str) -> int:
    number: int = (obj.get("status") or {}).get(field, 0)
    return number


def status_of(workload: Json, owned: list[Json]) -> Json:
    """`owned`: what it made and is still there."""
    status: Json = {**(workload.get("status") or {})}
    match workload["kind"]:
        case "CronJob":
            active = [{"kind": "Job", "name": job["metadata"]["name"]} for job in owned if not finished(job)]
            last = status.get("lastScheduleTime")
            status |= {"lastScheduleTime": last or now()} if owned or last else {}
            return {**status, "active": active}
        case "Deployment":
            return status | _deployment(workload, owned)
        case "StatefulSet":
            revisions = [(pod["metadata"].get("labels") or {}).get(REVISION, "") for pod in owned]
            status |= dict.fromkeys(("currentRevision", "updateRevision"), max(revisions, default=""))
            status |= dict.fromkeys(("currentReplicas", "updatedReplicas"), len(owned))
        case "ReplicaSet":
            status["fullyLabeledReplicas"] = len(owned)
    seen = {"observedGeneration": workload["metadata"]["generation"], "replicas": len(owned)}
    return {**status, **seen, **_counted(count_ready(owned))}
