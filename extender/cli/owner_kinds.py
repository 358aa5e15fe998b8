"""The kinds of objects that own pods, by all names that kubectl knows them by.

Which version of them a cluster serves, it says itself: operators are of many releases.
"""

from typing import NamedTuple

from extender.api.objects import OwnerReference, Wire


class OwnerKind(NamedTuple):
    """`name`: the kind, as owner references have it."""

    name: str
    plural: str
    group: str
    short: tuple[str, ...] = ()

    def is_called(self, name: str) -> bool:
        """`job`, `jobs`, `deploy`; or with its API group, as `kubectl get -o name` writes it: `job.batch`."""
        bare, _, group = name.lower().partition(".")
        return bare in (self.name.lower(), self.plural, *self.short) and group in ("", self.group)

    def is_kind_of(self, owner: OwnerReference) -> bool:
        return (owner.kind, owner.api_version.partition("/")[0]) == (self.name, self.group)


class ServedVersion(Wire, frozen=True):
    version: str = ""


class ServedGroup(Wire, frozen=True):
    name: str
    preferred_version: ServedVersion = ServedVersion()


class ServedGroups(Wire, frozen=True):
    """What the API server answers to /apis."""

    groups: list[ServedGroup] = []

    @property
    def versions(self) -> dict[str, str]:
        """The version of each API group that the cluster prefers."""
        return {each.name: each.preferred_version.version for each in self.groups}


_KUBEFLOW = "kubeflow.org"

# `job/x` is the first of that name.
OWNER_KINDS = (
    OwnerKind("Job", "jobs", "batch"),
    OwnerKind("CronJob", "cronjobs", "batch", ("cj",)),
    OwnerKind("Deployment", "deployments", "apps", ("deploy",)),
    OwnerKind("StatefulSet", "statefulsets", "apps", ("sts",)),
    OwnerKind("ReplicaSet", "replicasets", "apps", ("rs",)),
    OwnerKind("DaemonSet", "daemonsets", "apps", ("ds",)),
    OwnerKind("JobSet", "jobsets", "jobset.x-k8s.io"),
    OwnerKind("LeaderWorkerSet", "leaderworkersets", "leaderworkerset.x-k8s.io", ("lws",)),
    OwnerKind("PyTorchJob", "pytorchjobs", _KUBEFLOW),
    OwnerKind("TFJob", "tfjobs", _KUBEFLOW),
    OwnerKind("MPIJob", "mpijobs", _KUBEFLOW),
    OwnerKind("XGBoostJob", "xgboostjobs", _KUBEFLOW),
    OwnerKind("PaddleJob", "paddlejobs", _KUBEFLOW),
    OwnerKind("JAXJob", "jaxjobs", _KUBEFLOW),
    OwnerKind("TrainJob", "trainjobs", "trainer.kubeflow.org"),
    OwnerKind("RayCluster", "rayclusters", "ray.io"),
    OwnerKind("RayJob", "rayjobs", "ray.io"),
    OwnerKind("RayService", "rayservices", "ray.io"),
    OwnerKind("SparkApplication", "sparkapplications", "sparkoperator.k8s.io", ("sparkapp",)),
    OwnerKind("Workflow", "workflows", "argoproj.io", ("wf",)),
    OwnerKind("Job", "jobs", "batch.volcano.sh", ("vcjob", "vj")),
)


def owner_kind(name: str) -> OwnerKind | None:
    """None for a name that none of them has."""
    return next((each for each in OWNER_KINDS if each.is_called(name)), None)


def kind_of_owner(owner: OwnerReference) -> OwnerKind | None:
    return next((each for each in OWNER_KINDS if each.is_kind_of(owner)), None)
