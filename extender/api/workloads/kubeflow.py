"""The kinds of Kubeflow: those of the training operator (kubeflow/trainer, v1), and MPIJob v2beta1 of
kubeflow/mpi-operator."""

from extender.api.workloads.core import JOB, POD
from extender.api.workloads.shape import Count, Offspring, Path, Sign, WorkloadRow

_LABEL = "training.kubeflow.org"
_REPLICAS = Count(path=("replicas",))


def _labels(operator: str, **more: str) -> dict[str, str]:
    return {
        f"{_LABEL}/job-name": "{owner}",
        f"{_LABEL}/operator-name": operator,
        **{f"{_LABEL}/{name.replace('_', '-')}": value for name, value in more.items()},
    }


def _training(kind: str, replica_specs: str, *masters: str) -> WorkloadRow:
    """`masters`: the roles that are labelled as the job's master."""
    labels = _labels(f"{kind.lower()}-controller", replica_type="{role}", replica_index="{index}")

    def pods(roles: tuple[str, ...], job_role: dict[str, str]) -> Offspring:
        return Offspring(
            made=POD,
            name="{owner}-{role}-{index}",
            each=("spec", replica_specs),
            roles=roles,
            template=("template",),
            count=_REPLICAS,
            labels=labels | job_role,
        )

    others = tuple(role for role in _ROLES if role not in masters)
    made = [pods(others, {})]
    if masters:
        made.insert(0, pods(masters, {f"{_LABEL}/job-role": "master"}))
    return _job("v1", kind, *made)


def _job(version: str, kind: str, *offspring: Offspring) -> WorkloadRow:
    """They all say alike that they ended."""
    return WorkloadRow(
        api_version=f"kubeflow.org/{version}",
        kind=kind,
        offspring=offspring,
        suspend=("spec", "runPolicy", "suspend"),
        manageable=True,
        succeeded=(Sign(condition="Succeeded"),),
        failed=(Sign(condition="Failed"),),
    )


_ROLES = ("master", "worker", "chief", "ps", "evaluator")


def _mpi(version: str, launcher: Offspring) -> WorkloadRow:
    """Workers are named alike in both versions."""
    workers = Offspring(
        made=POD,
        name="{owner}-worker-{index}",
        each=_MPI_SPECS,
        roles=("worker",),
        template=("template",),
        count=_REPLICAS,
        labels=_labels("mpi-operator", job_role="worker", replica_index="{index}"),
    )
    return _job(version, "MPIJob", workers, launcher)


_MPI_SPECS: Path = ("spec", "mpiReplicaSpecs")
_LAUNCHER = _labels("mpi-operator", job_role="launcher")
_LAUNCHER_POD = Offspring(
    made=POD,
    name="{owner}-launcher",
    each=_MPI_SPECS,
    roles=("launcher",),
    template=("template",),
    labels=_LAUNCHER,
)
_LAUNCHER_JOB = Offspring(
    made=JOB,
    name="{owner}-launcher",
    each=_MPI_SPECS,
    roles=("launcher",),
    spec={"template": ("template",)},
    labels=_LAUNCHER,
    on_pods=True,
)

KUBEFLOW = (
    _training("PyTorchJob", "pytorchReplicaSpecs", "master"),
    _training("TFJob", "tfReplicaSpecs", "chief", "master"),
    _training("XGBoostJob", "xgbReplicaSpecs", "master"),
    _training("PaddleJob", "paddleReplicaSpecs", "master"),
    _training("JAXJob", "jaxReplicaSpecs"),
    _mpi("v1", _LAUNCHER_POD),
    _mpi("v2beta1", _LAUNCHER_JOB),
)
