"""The kinds of Ray (ray-project/kuberay). Names and labels are those of controllers/ray/common/pod.go, groups
for Volcano those of controllers/ray/batchscheduler/volcano/volcano_scheduler.go."""

from extender.api.workloads.core import POD
from extender.api.workloads.shape import Count, Json, Offspring, Path, Sign, WorkloadRow
from extender.api.workloads.volcano import VOLCANO, group_of_operator, member_of

_QUEUE = "volcano.sh/queue-name"
_MANAGED = "v1"  # clusters that serve v1alpha1, too, show the same objects as either
WORKERS = Count(
    path=("replicas",), default=0, at_least=("minReplicas",), at_most=("maxReplicas",), times=("numOfHosts",)
)
_NEEDED_WORKERS = Count(path=("minReplicas",), default=0, times=("numOfHosts",))


def with_ray_group(cluster: Json) -> Json:
    """The head, and the workers that there are to be; with the autoscaler those that there are at least."""
    meta, spec = cluster.get("metadata") or {}, cluster.get("spec") or {}
    labels = meta.get("labels") or {}
    if labels.get("ray.io/scheduler-name") != VOLCANO:
        return cluster
    counted = _NEEDED_WORKERS if spec.get("enableInTreeAutoscaling") else WORKERS
    groups = spec.get("workerGroupSpecs") or []
    gang = {
        "minMember": 1 + sum(counted.of(each) for each in groups),
        "queue": labels.get(_QUEUE),
        "priorityClassName": labels.get("ray.io/priority-class-name"),
    }
    queue = {_QUEUE: labels[_QUEUE]} if _QUEUE in labels else {}
    name = f"ray-{meta.get('name')}-pg"
    head = spec.get("headGroupSpec") or {}
    made = {
        "headGroupSpec": {**head, "template": member_of(head.get("template"), name, queue)},
        "workerGroupSpecs": [
            {**each, "template": member_of(each.get("template"), name, queue)} for each in groups
        ],
    }
    return {**cluster, "spec": {**spec, **made, "gangs": [gang]}}


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
            group_of_operator("ray-{owner}-pg"),
            Offspring(
                made=POD,
                name="{owner}-head-",
                template=("spec", "headGroupSpec", "template"),
                role="head",
                labels=_ray_labels("head", "headgroup"),
            ),
            Offspring(
                made=POD,
                name="{owner}-{role}-worker-",
                each=_RAY_GROUPS,
                template=("template",),
                count=WORKERS,
                labels=_ray_labels("worker", "{role}"),
            ),
        ),
        manageable=version == _MANAGED,
        complete=with_ray_group,
    )


def _cluster_of(version: str, kind: str, spec: Path) -> Offspring:
    origin = {"ray.io/originated-from-cr-name": "{owner}", "ray.io/originated-from-crd": kind}
    made = (f"ray.io/{version}", "RayCluster")
    return Offspring(made=made, name="{owner}-", spec=spec, labels=origin)


def _ray_job(version: str) -> WorkloadRow:
    """Complete is also what failed or was stopped in the cluster, without a failure of the RayJob."""
    ended, result = ("status", "jobDeploymentStatus"), ("status", "jobStatus")
    return WorkloadRow(
        api_version=f"ray.io/{version}",
        kind="RayJob",
        offspring=(_cluster_of(version, "RayJob", ("spec", "rayClusterSpec")),),
        manageable=version == _MANAGED,
        succeeded=(Sign(fields={ended: ("Complete",)}),),
        failed=(
            Sign(fields={ended: ("Failed",)}),
            Sign(fields={ended: ("Complete",), result: ("FAILED", "STOPPED")}),
        ),
        remark=lambda _: (
            "the pods of its cluster are made; the submitter, which comes when they are ready, is not"
        ),
    )


def _ray_service(version: str) -> WorkloadRow:
    return WorkloadRow(
        api_version=f"ray.io/{version}",
        kind="RayService",
        offspring=(_cluster_of(version, "RayService", ("spec", "rayClusterConfig")),),
        remark=lambda _: "the pods of its cluster are made; its applications are not looked at",
    )


_ROWS = (_ray_cluster, _ray_job, _ray_service)
RAY = tuple(row(version) for version in ("v1", "v1alpha1") for row in _ROWS)
