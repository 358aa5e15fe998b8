"""Volcano's Jobs and CronJobs (batch.volcano.sh/v1alpha1), and HyperNodes. Pod templates stay undecoded."""

from typing import Any

from extender.api.objects.base import Labels, Meta, Wire, refuse_deep
from extender.api.objects.pods import LabelSelector

Json = dict[str, Any]


class LifecyclePolicy(Wire, frozen=True):
    """Policy of a Volcano Job: the action after an event, or after a container exits with `exit_code`."""

    action: str = ""
    event: str = ""
    events: list[str] | None = None
    exit_code: int | None = None
    timeout: str = ""  # a duration as Go writes it

    @property
    def all_events(self) -> tuple[str, ...]:
        return (*(self.events or ()), *((self.event,) if self.event else ()))


class DependsOn(Wire, frozen=True):
    name: list[str] | None = None
    iteration: str = ""  # any, or all


class PartitionPolicy(Wire, frozen=True):
    """Division of a task into partitions of `partition_size` pods each, in the order of the pods' indices."""

    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: Json | None = None


class TaskSpec(Wire, frozen=True):
    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: Json = {}
    policies: list[LifecyclePolicy] | None = None
    topology_policy: str = ""
    max_retry: int = 0
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None

    def __post_init__(self) -> None:
        refuse_deep(self.template)

    @property
    def min_pods(self) -> int:
        """Return the minimum of the task's pods that must run."""
        return self.replicas if self.min_available is None else self.min_available


class VolumeSpec(Wire, frozen=True):
    """Volume that every container gets: an existing claim by name, or a new claim."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: Json | None = None

    def __post_init__(self) -> None:
        refuse_deep(self.volume_claim)


class VolcanoJobSpec(Wire, frozen=True):
    scheduler_name: str = ""
    min_available: int | None = None
    volumes: list[VolumeSpec] | None = None
    tasks: list[TaskSpec] = []
    policies: list[LifecyclePolicy] | None = None
    plugins: dict[str, list[str] | None] | None = None  # arguments of the plugins, by name of the plugin
    running_estimate: str = ""
    queue: str = ""
    max_retry: int = 0
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = None
    network_topology: Json | None = None

    @property
    def members(self) -> int:
        return sum(task.replicas for task in self.tasks)

    def task(self, name: str) -> TaskSpec | None:
        return next((task for task in self.tasks if task.name == name), None)


class VolcanoJobState(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class TaskState(Wire, frozen=True):
    """Number of a task's pods in each phase."""

    phase: dict[str, int] | None = None


class JobCondition(Wire, frozen=True):
    status: str  # a phase of the job
    last_transition_time: str | None = None


class JobStatus(Wire, frozen=True):
    state: VolcanoJobState = VolcanoJobState()
    min_available: int = 0
    task_status_count: dict[str, TaskState] | None = None
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    version: int = 0
    retry_count: int = 0
    running_duration: str | None = None  # a duration as Go writes it
    controlled_resources: Labels | None = None
    conditions: list[JobCondition] | None = None


class VolcanoJob(Wire, frozen=True):
    metadata: Meta
    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: JobStatus = JobStatus()


class JobTemplate(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: Json = {}  # the spec of a Volcano Job

    def __post_init__(self) -> None:
        refuse_deep(self.spec)


class CronJobSpec(Wire, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool | None = None
    job_template: JobTemplate = JobTemplate()
    successful_jobs_history_limit: int | None = None  # default: 3
    failed_jobs_history_limit: int | None = None  # default: 1


class ActiveJob(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class CronJobStatus(Wire, frozen=True):
    active: list[ActiveJob] | None = None
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Wire, frozen=True):
    metadata: Meta
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


class ExactMatch(Wire, frozen=True):
    name: str = ""


class RegexMatch(Wire, frozen=True):
    pattern: str = ""


class MemberSelector(Wire, frozen=True):
    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(Wire, frozen=True):
    """Member of a HyperNode: nodes by a selector, or another HyperNode by its exact name."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Wire, frozen=True):
    tier: int
    tier_name: str = ""
    members: list[HyperNodeMember] | None = None


class HyperNode(Wire, frozen=True):
    """HyperNode (topology.volcano.sh/v1alpha1): nodes that are close to each other."""

    metadata: Meta
    spec: HyperNodeSpec
