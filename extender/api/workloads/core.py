"""The kinds of Kubernetes itself."""

from extender.api.workloads.shape import Count, Json, Offspring, Sign, WorkloadRow, at

POD, JOB = ("v1", "Pod"), ("batch/v1", "Job")
REPLICA_SET, STATEFUL_SET = ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")
TEMPLATE = ("spec", "template")
_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICAS = Count(path=("spec", "replicas"))
_PARALLEL = Count(path=("spec", "parallelism"), at_most=("spec", "completions"))
_OF_JOB = {
    "batch.kubernetes.io/controller-uid": "{uid}",
    "batch.kubernetes.io/job-name": "{owner}",
    "controller-uid": "{uid}",
    "job-name": "{owner}",
}


def _with_claimed_volumes(stateful_set: Json) -> Json:
    """Its controller gives each pod the volumes that are claimed for it: here empty ones, as no claims are
    made."""
    claims = at(stateful_set, ("spec", "volumeClaimTemplates")) or []
    template = at(stateful_set, TEMPLATE)
    if not claims or not isinstance(template, dict):
        return stateful_set
    names = [each["metadata"]["name"] for each in claims]
    given = template.get("spec") or {}
    kept = [each for each in given.get("volumes") or [] if each.get("name") not in names]
    spec = {**given, "volumes": [*kept, *({"name": name, "emptyDir": {}} for name in names)]}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": {**template, "spec": spec}}}


def _what_is_left(job: Json) -> Json:
    """Of a Job that ran before and was suspended: pods, or indexes, that ended are not made again."""
    completions, status = at(job, ("spec", "completions")), job.get("status")
    if completions is None or not isinstance(status, dict):
        return job
    ended = Count(path=("succeeded",), default=0).of(status) + _number_of(status.get("failedIndexes") or "")
    return {**job, "spec": {**job["spec"], "completions": max(completions - ended, 0)}}


def _number_of(indexes: str) -> int:
    """As in 1,3-5,7: these are five."""
    parts = [each.split("-") for each in indexes.split(",") if each]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def _in_order(stateful_set: Json) -> str:
    """A gang of such pods never completes in a real cluster."""
    ordered = at(stateful_set, ("spec", "podManagementPolicy")) != "Parallel"
    if not ordered or _REPLICAS.of(stateful_set) < 2:
        return ""
    return "its pods are made at once; a real cluster makes each when the one before is ready (OrderedReady)"


def _same_pods(api_version: str, kind: str, *short: str) -> WorkloadRow:
    """Replicas that differ in nothing but their random letters."""
    pods = Offspring(made=POD, name="{owner}-", template=TEMPLATE, count=_REPLICAS)
    return WorkloadRow(api_version=api_version, kind=kind, short=short, offspring=(pods,))


def _cron_remark(_: Json) -> str:
    return "one run of it is made, as if it were due now"


CORE = (
    WorkloadRow(
        api_version="batch/v1",
        kind="Job",
        offspring=(
            Offspring(
                made=POD,
                name="{owner}-",
                when={("spec", "completionMode"): (None, "NonIndexed")},
                template=TEMPLATE,
                count=_PARALLEL,
                labels=_OF_JOB,
            ),
            Offspring(
                made=POD,
                name="{owner}-{index}-",
                when={("spec", "completionMode"): ("Indexed",)},
                template=TEMPLATE,
                count=_PARALLEL,
                labels=_OF_JOB | {_INDEX: "{index}"},
                annotations={_INDEX: "{index}"},
            ),
        ),
        manageable=True,
        parallelism=("spec", "parallelism"),
        completions=("spec", "completions"),
        succeeded=(Sign(condition="Complete"),),
        failed=(Sign(condition="Failed"),),
        counted=_what_is_left,
    ),
    WorkloadRow(
        api_version="batch/v1",
        kind="CronJob",
        short=("cj",),
        offspring=(Offspring(made=JOB, name="{owner}-{hash}", template=("spec", "jobTemplate")),),
        remark=_cron_remark,
    ),
    WorkloadRow(
        api_version="apps/v1",
        kind="Deployment",
        short=("deploy",),
        offspring=(
            Offspring(
                made=REPLICA_SET,
                name="{owner}-{hash}",
                spec={name: ("spec", name) for name in ("replicas", "selector", "template")},
                labels={"pod-template-hash": "{hash}"},
                inherits=True,
                on_pods=True,
            ),
        ),
        suspend=(),
    ),
    _same_pods(*REPLICA_SET, "rs"),
    _same_pods("v1", "ReplicationController"),
    WorkloadRow(
        api_version="apps/v1",
        kind="StatefulSet",
        short=("sts",),
        offspring=(
            Offspring(
                made=POD,
                name="{owner}-{index}",
                prefix="{owner}-",
                template=TEMPLATE,
                count=_REPLICAS,
                first=("spec", "ordinals", "start"),
                labels={
                    "apps.kubernetes.io/pod-index": "{index}",
                    "controller-revision-hash": "{owner}-{hash}",
                    "statefulset.kubernetes.io/pod-name": "{owner}-{index}",
                },
            ),
        ),
        suspend=(),
        complete=_with_claimed_volumes,
        remark=_in_order,
    ),
)
