"""The status of operators' jobs: no more than who waits for them reads, in the fields of which the table of
workloads says how they end."""

from extender.api.workloads.children import kind_of, suspended
from extender.api.workloads.lifecycle import JobOutcome, outcome_of
from extender.api.workloads.shape import Path, Sign, WorkloadRow
from extender.sim.apiserver.conditions import condition, find_stored_condition, set_condition
from extender.sim.apiserver.kinds import Json
from extender.sim.controllers.job_status import count_ready
from extender.sim.controllers.offspring import ended_as

_SUSPENDED, _RUNNING, _READY, _STARTING = "Suspended", "Running", "ready", ""
_CLUSTER_STATE = "state"  # of a RayCluster, which never ends by itself


def operator_status(workload: Json, owned: list[Json]) -> Json:
    """One that has finished keeps what it says."""
    status: Json = {**(workload.get("status") or {})}
    row = kind_of(workload)
    if row is None or outcome_of(row, workload) is not None:
        return status
    if not row.succeeded:
        status[_CLUSTER_STATE] = _state(workload, owned)
    elif outcome := _outcome(owned):
        _show(status, (row.succeeded if outcome is JobOutcome.SUCCEEDED else row.failed)[0])
    else:
        _show_suspension(status, row, is_suspended=suspended(workload))
    return status


def _state(workload: Json, owned: list[Json]) -> str:
    if suspended(workload):
        return _SUSPENDED.lower()
    return _READY if owned and count_ready(owned) == len(owned) else _STARTING


def _outcome(owned: list[Json]) -> JobOutcome | None:
    """None while something has not ended, or nothing is there."""
    ends = [ended_as(each) for each in owned]
    if not ends or None in ends:
        return None
    return JobOutcome.FAILED if JobOutcome.FAILED in ends else JobOutcome.SUCCEEDED


def _show(status: Json, sign: Sign) -> None:
    if sign.condition:
        set_condition(status, condition(sign.condition, "True", sign.condition))
    for (_, *path), values in sign.fields.items():
        _put(status, tuple(path), values[0])


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
