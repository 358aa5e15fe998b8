"""PodGroups of all APIs."""

from extender.api.objects.base import Condition, Meta, Quantities, Wire


class PodGroupSpec(Wire, frozen=True):
    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Quantities | None = None


class PodGroupStatus(Wire, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Wire, frozen=True):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class PluginsPodGroup(Wire, frozen=True):
    """A PodGroup of scheduler-plugins (scheduling.x-k8s.io/v1alpha1)."""

    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()


class GangPolicy(Wire, frozen=True):
    min_count: int = 0


class SchedulingPolicy(Wire, frozen=True):
    gang: GangPolicy | None = None


class NativePodGroupSpec(Wire, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    priority_class_name: str = ""


class NativePodGroup(Wire, frozen=True):
    """A PodGroup of Kubernetes itself (scheduling.k8s.io/v1alpha2)."""

    metadata: Meta
    spec: NativePodGroupSpec = NativePodGroupSpec()
