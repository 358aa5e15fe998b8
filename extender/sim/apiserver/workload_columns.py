"""The columns that the real API server gives Kubernetes' own workloads."""

from collections.abc import Callable

from extender.api.durations import age, between
from extender.sim.apiserver.columns import TableColumn, at
from extender.sim.apiserver.conditions import find_stored_condition
from extender.sim.apiserver.kinds import (
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Json,
    ResourceKind,
)
from extender.sim.apiserver.scaling import selector_text

_JOB_STATES = ("Complete", "Failed", "Suspended")


def _number(*path: str) -> Callable[[Json], int]:
    return at(*path, default=0)


def _ready(workload: Json) -> str:
    return f"{_number('status', 'readyReplicas')(workload)}/{workload['spec'].get('replicas', 1)}"


def _state(job: Json) -> str:
    held = (type_ for type_ in _JOB_STATES if find_stored_condition(job, type_).get("status") == "True")
    return next(held, "Running")


def _completions(job: Json) -> str:
    succeeded, spec = _number("status", "succeeded")(job), job["spec"]
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallel = spec.get("parallelism", 0)
    return f"{succeeded}/1" + (f" of {parallel}" if parallel > 1 else "")


def _duration(job: Json) -> str:
    status = job.get("status") or {}
    if "completionTime" in status:
        return between(status["startTime"], status["completionTime"])
    return age(status["startTime"]) if "startTime" in status else ""


def _last_run(cron_job: Json) -> str:
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    return age(last) if last else "<none>"


def _active(cron_job: Json) -> int:
    return len((cron_job.get("status") or {}).get("active") or ())


def _containers(field: str, *path: str) -> Callable[[Json], str]:
    containers = at(*path, "spec", "template", "spec", "containers", default=())
    return lambda obj: ",".join(each.get(field, "") for each in containers(obj))


def _template(*path: str) -> tuple[TableColumn, ...]:
    """Of the pods; `path` leads to the object with the template."""
    return (
        TableColumn("Containers", _containers("name", *path), wide=True),
        TableColumn("Images", _containers("image", *path), wide=True),
    )


_SELECTOR = TableColumn("Selector", lambda obj: selector_text(obj) or "<none>", wide=True)

OF_WORKLOADS: dict[ResourceKind, tuple[TableColumn, ...]] = {
    DEPLOYMENTS: (
        TableColumn("Ready", _ready),
        TableColumn("Up-to-date", _number("status", "updatedReplicas")),
        TableColumn("Available", _number("status", "availableReplicas")),
        *_template(),
        _SELECTOR,
    ),
    REPLICA_SETS: (
        TableColumn("Desired", _number("spec", "replicas")),
        TableColumn("Current", _number("status", "replicas")),
        TableColumn("Ready", _number("status", "readyReplicas")),
        *_template(),
        _SELECTOR,
    ),
    STATEFUL_SETS: (TableColumn("Ready", _ready), *_template()),
    JOBS: (
        TableColumn("Status", _state),
        TableColumn("Completions", _completions),
        TableColumn("Duration", _duration),
        *_template(),
        _SELECTOR,
    ),
    CRON_JOBS: (
        TableColumn("Schedule", at("spec", "schedule")),
        TableColumn("Timezone", at("spec", "timeZone", default="<none>")),
        TableColumn("Suspend", lambda obj: str(bool(obj["spec"].get("suspend")))),
        TableColumn("Active", _active),
        TableColumn("Last Schedule", _last_run),
        *_template("spec", "jobTemplate"),
        TableColumn("Selector", lambda _: "<none>", wide=True),
    ),
}
