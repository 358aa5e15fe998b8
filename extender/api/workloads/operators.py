"""Kinds of batch systems: JobSet, LeaderWorkerSet, Ray, Spark, Volcano, Argo. Names and labels are those that
their controllers give."""

from extender.api.workloads import argo, completing, spark
from extender.api.workloads.core import JOB, POD, STATEFUL_SET
from extender.api.workloads.shape import Count, Offspring, Path, WorkloadRow

POD_GROUP = ("scheduling.volcano.sh/v1beta1", "PodGroup")
_REPLICAS = Count(path=("replicas",))

# ---- JobSet (sigs.k8s.io/jobset)

_JOBSET = "jobset.sigs.k8s.io"
_OF_JOBSET = {
    f"{_JOBSET}/global-replicas": "{total}",
    f"{_JOBSET}/job-global-index": "{place}",
    f"{_JOBSET}/job-index": "{index}",
    f"{_JOBSET}/jobset-name": "{owner}",
    f"{_JOBSET}/jobset-uid": "{uid}",
    f"{_JOBSET}/replicatedjob-name": "{role}",
    f"{_JOBSET}/replicatedjob-replicas": "{count}",
    f"{_JOBSET}/restart-attempt": "0",
}
_JOB_SET = WorkloadRow(
    api_version="jobset.x-k8s.io/v1alpha2",
    kind="JobSet",
    offspring=(
        Offspring(
            made=JOB,
            name="{owner}-{role}-{index}",
            each=("spec", "replicatedJobs"),
            template=("template",),
            count=_REPLICAS,
            labels=_OF_JOBSET,
            annotations=_OF_JOBSET,
            on_pods=True,
        ),
    ),
    complete=completing.indexed_jobs,
    remark=completing.in_order,
)

# ---- LeaderWorkerSet (sigs.k8s.io/lws)

_LWS = "leaderworkerset.sigs.k8s.io"

_LEADER_WORKER_SET = WorkloadRow(
    api_version="leaderworkerset.x-k8s.io/v1",
    kind="LeaderWorkerSet",
    offspring=(
        Offspring(
            made=POD,
            name="{owner}-{index}",
            template=("spec", "leaderWorkerTemplate", "leaderTemplate"),
            optional=True,
            count=Count(path=("spec", "replicas")),
            owner=(STATEFUL_SET, "{owner}"),
            labels={
                "apps.kubernetes.io/pod-index": "{index}",
                "statefulset.kubernetes.io/pod-name": "{owner}-{index}",
                f"{_LWS}/group-index": "{index}",
                f"{_LWS}/name": "{owner}",
                f"{_LWS}/worker-index": "0",
            },
        ),
        Offspring(
            made=POD,
            name="{owner}-{role}-{number}",
            each=("spec", "workers"),
            template=("template",),
            count=_REPLICAS,
            owner=(STATEFUL_SET, "{owner}-{role}"),
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
    suspend=(),
    complete=completing.workers_of_each_leader,
)

# ---- Ray (ray-project/kuberay)

_RAY_GROUPS = ("spec", "workerGroupSpecs")


def _ray_labels(node_type: str, group: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": "{owner}",
        "ray.io/group": group,
        "ray.io/identifier": f"{{owner}}-{node_type}",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": node_type,
    }


def _ray_cluster(version: str) -> WorkloadRow:
    return WorkloadRow(
        api_version=f"ray.io/{version}",
        kind="RayCluster",
        offspring=(
            Offspring(
                made=POD,
                name="{owner}-head",
                template=("spec", "headGroupSpec", "template"),
                labels=_ray_labels("head", "headgroup"),
            ),
            Offspring(
                made=POD,
                name="{owner}-{role}-worker-",
                each=_RAY_GROUPS,
                template=("template",),
                count=Count(
                    path=("replicas",),
                    default=0,
                    at_least=("minReplicas",),
                    at_most=("maxReplicas",),
                    times=("numOfHosts",),
                ),
                labels=_ray_labels("worker", "{role}"),
            ),
        ),
    )


def _ray_owner(version: str, kind: str, spec: Path, remark: str) -> WorkloadRow:
    """What makes a RayCluster."""
    cluster = Offspring(made=(f"ray.io/{version}", "RayCluster"), name="{owner}-", spec=spec)
    return WorkloadRow(
        api_version=f"ray.io/{version}", kind=kind, offspring=(cluster,), remark=lambda _: remark
    )


def _ray_kinds(version: str) -> tuple[WorkloadRow, ...]:
    submitter = "the pods of its cluster are made; the submitter, which comes when they are ready, is not"
    service = "the pods of its cluster are made; its applications are not looked at"
    return (
        _ray_cluster(version),
        _ray_owner(version, "RayJob", ("spec", "rayClusterSpec"), submitter),
        _ray_owner(version, "RayService", ("spec", "rayClusterConfig"), service),
    )


# ---- Spark (kubeflow/spark-operator)


def _spark_labels(role: str) -> dict[str, str]:
    return {
        "spark-app-name": "{owner}",
        "spark-role": role,
        "sparkoperator.k8s.io/app-name": "{owner}",
        "sparkoperator.k8s.io/launched-by-spark-operator": "true",
    }


_SPARK = WorkloadRow(
    api_version="sparkoperator.k8s.io/v1beta2",
    kind="SparkApplication",
    offspring=(
        Offspring(
            made=POD,
            name="{owner}-driver",
            template=spark.DRIVER,
            optional=True,
            labels=_spark_labels("driver"),
        ),
        Offspring(
            made=POD,
            name="{owner}-exec-{number}",
            template=spark.EXECUTOR,
            optional=True,
            count=Count(path=("spec", "executor", "instances")),
            owner=(POD, "{owner}-driver"),
            labels=_spark_labels("executor") | {"spark-exec-id": "{number}"},
        ),
    ),
    complete=spark.with_templates,
    remark=lambda _: (
        "its executors come with its driver; in a real cluster the driver asks for them once it runs"
    ),
)

# ---- Volcano's own Job (volcano.sh/volcano)

_TASK = {
    "volcano.sh/job-name": "{owner}",
    "volcano.sh/task-index": "{index}",
    "volcano.sh/task-spec": "{role}",
}
_VOLCANO_GROUP = "{owner}-{uid}"
_VOLCANO_JOB = WorkloadRow(
    api_version="batch.volcano.sh/v1alpha1",
    kind="Job",
    offspring=(
        Offspring(
            made=POD_GROUP,
            name=_VOLCANO_GROUP,
            spec={
                "minMember": ("spec", "minAvailable"),
                "minTaskMember": ("spec", "minTaskMember"),
                "priorityClassName": ("spec", "priorityClassName"),
                "queue": ("spec", "queue"),
            },
        ),
        Offspring(
            made=POD,
            name="{owner}-{role}-{index}",
            each=("spec", "tasks"),
            template=("template",),
            count=_REPLICAS,
            labels=_TASK,
            annotations=_TASK
            | {"scheduling.k8s.io/group-name": _VOLCANO_GROUP, "volcano.sh/job-version": "0"},
        ),
    ),
    counts=(("spec", "minAvailable"),),
    suspend=(),
    complete=completing.volcano_tasks,
)

# ---- Argo Workflows (argoproj/argo-workflows)

_ARGO = WorkloadRow(
    api_version="argoproj.io/v1alpha1",
    kind="Workflow",
    offspring=(
        Offspring(
            made=POD,
            name="{owner}-{role}-",
            each=argo.FIRST,
            template=("template",),
            count=_REPLICAS,
            labels={
                "workflows.argoproj.io/completed": "false",
                "workflows.argoproj.io/workflow": "{owner}",
            },
        ),
    ),
    complete=argo.with_first_pods,
    remark=argo.remark,
)

OPERATORS = (
    _JOB_SET,
    _LEADER_WORKER_SET,
    *_ray_kinds("v1"),
    *_ray_kinds("v1alpha1"),
    _SPARK,
    _VOLCANO_JOB,
    _ARGO,
)
