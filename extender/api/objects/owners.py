"""What makes pods: ReplicaSets, StatefulSets, DaemonSets and Jobs."""

from extender.api.objects.base import Meta, Wire


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    suspend: bool | None = None
    active_deadline_seconds: int | None = None


class Workload(Wire, frozen=True):
    """A ReplicaSet, StatefulSet, DaemonSet or Job."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
