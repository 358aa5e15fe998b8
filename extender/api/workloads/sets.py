"""Sets of pods: JobSet (kubernetes-sigs/jobset) and LeaderWorkerSet (kubernetes-sigs/lws)."""

from typing import Any

from extender.api.workloads import shape
from extender.api.workloads.shape import JOB, POD, Count, Counts, Json, Offspring, Sign, WorkloadRow, value_at

_MAX_LEADERS = 100_000  # more than users need; a typing error must not fill the memory
_REPLICAS = Count(path=("replicas",))
_LEADERS, _SIZE = Count(path=("spec", "replicas")), Count(path=("size",))


def indexed_jobs(job_set: Json) -> Json:
    """Return a JobSet with the defaults of its webhook: Indexed Jobs with restartPolicy OnFailure."""
    jobs = []
    for job in shape.items_at(job_set, "spec", "replicatedJobs"):
        template = job.get("template") or {}
        spec = {"completionMode": "Indexed", **(template.get("spec") or {})}
        pods = spec.get("template") or {}
        pod_spec = {"restartPolicy": "OnFailure", **(pods.get("spec") or {})}
        spec["template"] = {**pods, "spec": pod_spec}
        jobs.append({**job, "template": {**template, "spec": spec}})
    return shape.with_spec(job_set, replicatedJobs=jobs)


def unfinished_jobs(job_set: Json) -> Json:
    """Return a JobSet without its succeeded Jobs. `later` is true in Jobs that wait until others complete."""
    job_set = indexed_jobs(job_set)
    succeeded_counts = succeeded_by_name(shape.items_at(job_set, "status", "replicatedJobsStatus"))
    jobs, ended_names, later_names = list[Json](), set[Any](), set[Any]()
    for job in job_set["spec"]["replicatedJobs"]:
        name = job.get("name")
        count = max(_REPLICAS.read_from(job) - succeeded_counts.get(str(name), 0), 0)
        if count == 0:
            ended_names.add(name)
        elif any(
            dependency.get("status") == "Complete" or dependency.get("name") in later_names
            for dependency in job.get("dependsOn") or ()
            if dependency.get("name") not in ended_names
        ):
            later_names.add(name)
        jobs.append({**job, "replicas": count, "later": name in later_names})
    return shape.with_spec(job_set, replicatedJobs=jobs)


def succeeded_by_name(statuses: list[Json]) -> dict[str, int]:
    """Return the number of succeeded Jobs by replicated Job, from the status."""
    return {str(job.get("name")): Count(path=("succeeded",), default=0).read_from(job) for job in statuses}


def dependent_jobs(job_set: Json, counts: Counts) -> set[str]:
    """Return the names of a JobSet's Jobs that are created after other Jobs.

    With the startup policy InOrder, these are all Jobs except the first, else the Jobs with `dependsOn`.
    """
    jobs = shape.items_at(job_set, "spec", "replicatedJobs")
    names = (str(job.get("name")).lower() for job in jobs)
    if value_at(job_set, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder":
        return set([name for name in names if name in counts][1:])
    return {str(job.get("name")).lower() for job in jobs if job.get("dependsOn")}


def order_remark(job_set: Json) -> str:
    """Return the remark about a JobSet whose Jobs a real cluster creates in turn; empty for others."""
    is_ordered = value_at(job_set, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder"
    has_waiting = any(job.get("dependsOn") for job in shape.items_at(job_set, "spec", "replicatedJobs"))
    return "all its Jobs are made at once, whatever they depend on" if is_ordered or has_waiting else ""


def workers_of_each_leader(lws: Json) -> Json:
    """Return a LeaderWorkerSet with the workers of each leader, keyed by the leader's index.

    The template of the leaders defaults to the template of the workers.
    """
    template = value_at(lws, ("spec", "leaderWorkerTemplate")) or {}
    workers = {"template": template.get("workerTemplate"), "replicas": max(_SIZE.read_from(template) - 1, 0)}
    groups = range(min(_LEADERS.read_from(lws), _MAX_LEADERS))
    leader_template = {"leaderTemplate": template.get("workerTemplate"), **template}
    workers_by_leader = {str(group): workers for group in groups}
    return shape.with_spec(lws, leaderWorkerTemplate=leader_template, workers=workers_by_leader)


def workers_of_all_leaders(lws: Json) -> Json:
    """Return a LeaderWorkerSet with the workers of all leaders as one set.

    The set has the labels of the first group.
    """
    one_leader = workers_of_each_leader(shape.with_spec(lws, replicas=1))
    workers = {**one_leader["spec"]["workers"]["0"], "groups": _LEADERS.read_from(lws)}
    return shape.with_spec(one_leader, replicas=_LEADERS.read_from(lws), workers={"0": workers})


def pods_of_one_group(lws: Json, _: Counts) -> int:
    """Return the number of a group's pods that are created at the same time: all, or only the leader."""
    workers_wait = value_at(lws, ("spec", "startupPolicy")) == "LeaderReady"
    return 1 if workers_wait else _SIZE.read_from(value_at(lws, ("spec", "leaderWorkerTemplate")) or {})


_JOBSET = "jobset.sigs.k8s.io"
_JOBSET_LABELS = {
    f"{_JOBSET}/global-replicas": "{total}",
    f"{_JOBSET}/job-global-index": "{place}",
    f"{_JOBSET}/job-index": "{index}",
    f"{_JOBSET}/jobset-name": "{owner}",
    f"{_JOBSET}/jobset-uid": "{uid}",
    f"{_JOBSET}/replicatedjob-name": "{role}",
    f"{_JOBSET}/replicatedjob-replicas": "{count}",
    f"{_JOBSET}/restart-attempt": "0",
}
JOB_SET = WorkloadRow(
    api_version="jobset.x-k8s.io/v1alpha2",
    kind="JobSet",
    offspring=(
        Offspring(
            kind=JOB,
            name="{owner}-{role}-{index}",
            parts=("spec", "replicatedJobs"),
            template=("template",),
            later_path=("later",),
            count=_REPLICAS,
            labels=_JOBSET_LABELS,
            annotations=_JOBSET_LABELS,
            on_pods=True,
        ),
    ),
    together=lambda _: True,
    dependent_roles=dependent_jobs,
    manageable=True,
    success=(Sign(condition="Completed"),),
    failure=(Sign(condition="Failed"),),
    complete=indexed_jobs,
    counting=unfinished_jobs,
    remark=order_remark,
)

_LWS = "leaderworkerset.sigs.k8s.io"

LEADER_WORKER_SET = WorkloadRow(
    api_version="leaderworkerset.x-k8s.io/v1",
    kind="LeaderWorkerSet",
    short_names=("lws",),
    offspring=(
        Offspring(
            kind=POD,
            name="{owner}-{index}",
            prefix="{owner}-",
            template=("spec", "leaderWorkerTemplate", "leaderTemplate"),
            is_optional=True,
            role="leader",
            count=_LEADERS,
            owner=(shape.STATEFUL_SET, "{owner}"),
            labels={
                "apps.kubernetes.io/pod-index": "{index}",
                "statefulset.kubernetes.io/pod-name": "{owner}-{index}",
                f"{_LWS}/group-index": "{index}",
                f"{_LWS}/name": "{owner}",
                f"{_LWS}/worker-index": "0",
            },
        ),
        Offspring(
            kind=POD,
            name="{owner}-{role}-{number}",
            prefix="{owner}-{role}-",
            parts=("spec", "workers"),
            template=("template",),
            role="worker",
            count=Count(path=("replicas",), times=("groups",)),
            owner=(shape.STATEFUL_SET, "{owner}-{role}"),
            labels={
                "apps.kubernetes.io/pod-index": "{number}",
                "statefulset.kubernetes.io/pod-name": "{owner}-{role}-{number}",
                f"{_LWS}/group-index": "{role}",
                f"{_LWS}/name": "{owner}",
                f"{_LWS}/worker-index": "{number}",
            },
            annotations={f"{_LWS}/leader-name": "{owner}-{role}"},
        ),
    ),
    templates=(("spec", "leaderWorkerTemplate", "workerTemplate"),),
    counts=(("spec", "leaderWorkerTemplate", "size"),),
    together=lambda _: True,
    at_once=pods_of_one_group,
    suspend=(),
    complete=workers_of_each_leader,
    counting=workers_of_all_leaders,
)
