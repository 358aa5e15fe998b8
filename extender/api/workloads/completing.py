"""What admission of some kinds puts in, as far as their pods follow from it."""

from extender.api.workloads.shape import Json, at

_MOST_LEADERS = 100_000  # far more than anybody makes: a slip costs no memory


def _with_spec(obj: Json, **fields: object) -> Json:
    return {**obj, "spec": {**(obj.get("spec") or {}), **fields}}


def _items(obj: Json, name: str) -> list[Json]:
    found = at(obj, ("spec", name))
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def indexed_jobs(job_set: Json) -> Json:
    """JobSet's webhook: its Jobs are indexed, and failed containers restart, unless they say otherwise."""
    jobs = []
    for each in _items(job_set, "replicatedJobs"):
        template = each.get("template") or {}
        spec = {"completionMode": "Indexed", **(template.get("spec") or {})}
        pods = spec.get("template") or {}
        pod_spec = {"restartPolicy": "OnFailure", **(pods.get("spec") or {})}
        spec["template"] = {**pods, "spec": pod_spec}
        jobs.append({**each, "template": {**template, "spec": spec}})
    return _with_spec(job_set, replicatedJobs=jobs)


def in_order(job_set: Json) -> str:
    """A JobSet may make Jobs only once earlier ones are ready or complete."""
    ordered = at(job_set, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder"
    waiting = any(each.get("dependsOn") for each in _items(job_set, "replicatedJobs"))
    return "all its Jobs are made at once, whatever they depend on" if ordered or waiting else ""


def workers_of_each_leader(lws: Json) -> Json:
    """A part for each leader, by its index: all pods of its group but itself. Leaders default to workers."""
    given = at(lws, ("spec", "leaderWorkerTemplate")) or {}
    leaders, size = at(lws, ("spec", "replicas")), given.get("size")
    workers = {"template": given.get("workerTemplate"), "replicas": max((1 if size is None else size) - 1, 0)}
    groups = range(min(1 if leaders is None else leaders, _MOST_LEADERS))
    template = {"leaderTemplate": given.get("workerTemplate"), **given}
    return _with_spec(lws, leaderWorkerTemplate=template, workers={str(group): workers for group in groups})


def volcano_tasks(job: Json) -> Json:
    """Volcano's webhook: names for tasks, and all of them are needed unless the Job says how many; its
    scheduler, queue and priority are those of its pods."""
    spec = job.get("spec") or {}
    tasks = [
        {
            **each,
            "name": each.get("name") or f"default{number}",
            "template": _of_job(each.get("template"), spec),
        }
        for number, each in enumerate(_items(job, "tasks"))
    ]
    total = sum(1 if each.get("replicas") is None else each["replicas"] for each in tasks)
    needed = spec.get("minAvailable")
    return _with_spec(
        job, tasks=tasks, minAvailable=total if needed is None else needed, minTaskMember=_least(tasks)
    )


def _of_job(template: Json | None, spec: Json) -> Json:
    inherited = {"schedulerName": spec.get("schedulerName") or "volcano"}
    if spec.get("priorityClassName"):
        inherited["priorityClassName"] = spec["priorityClassName"]
    given = template or {}
    return {**given, "spec": {**inherited, **(given.get("spec") or {})}}


def _least(tasks: list[Json]) -> Json | None:
    """By task, where any says a number."""
    least = {each["name"]: each["minAvailable"] for each in tasks if each.get("minAvailable") is not None}
    return least or None
