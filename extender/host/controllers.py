"""Assembly of the controllers, and their order in each scheduling cycle."""

from collections.abc import Callable

from extender.api.keys import VOLCANO_CONTROLLERS, VOLCANO_CONTROLLERS_LEASE
from extender.api.objects.queues import PodGroup
from extender.api.workloads.shape import Kinds
from extender.controllers.auto_podgroups import AutoPodGroupsController
from extender.controllers.coexistence import (
    AuthorTrust,
    KueuePresence,
    MarkerTrust,
    PolledFact,
    UseTrust,
    VolcanoCoexistence,
    VolcanoProgram,
)
from extender.controllers.controller import ControllerContext
from extender.controllers.cycle import DecisionLog, Listener, QueueWaits
from extender.controllers.estimates import Estimates
from extender.controllers.events import EventRecorder, GroupEvents, StartChanges
from extender.controllers.evictions import EvictionsController
from extender.controllers.jobs import JobsController
from extender.controllers.objects import Objects, ObjectStore
from extender.controllers.pod_conditions import PodConditionsController
from extender.controllers.podgroup_status import PodGroupStatusController
from extender.controllers.provisioning import ProvisioningController, ProvisioningQueues, ProvisioningRequests
from extender.controllers.queue_lifecycle import (
    BusCommandsController,
    DefaultQueuesController,
    OrphanedPodGroupsController,
)
from extender.controllers.queue_status import LocalQueueStatusController, QueueStatusController
from extender.controllers.quota_queues import QuotaObjects, QuotaQueuesController
from extender.controllers.scheduling_gates import Releaser, SchedulingGatesController
from extender.controllers.volcano_commands import VolcanoCommandsController
from extender.controllers.volcano_cron_jobs import VolcanoCronJobsController
from extender.controllers.volcano_jobs import VolcanoJobsController
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.auto_podgroups import PlainPods
from extender.domain.snapshot.decisions import ConditionPolicy
from extender.kube.calls import ApiClient
from extender.kube.writers import Writers

STATUS_WRITER_COUNT = 4  # separate threads, so that writes of statuses never delay the removal of gates
VOLCANO_WRITER_COUNT = 8  # separate threads, since a job that keeps restarting writes hundreds of pods


class VolcanoJobControllers:
    """Controllers of Volcano Jobs.

    They run the jobs once jobs and pods have been read. While Volcano's scheduler (`scheduler`) or Volcano's
    controllers work, jobs are left to Volcano.
    """

    def __init__(
        self,
        context: ControllerContext,
        recorder: EventRecorder,
        groups: ObjectStore[GroupKey, PodGroup],
        volcano_namespace: str,
        scheduler: VolcanoProgram,
    ) -> None:
        cluster, clock = context.cluster, context.clock
        self.program = VolcanoProgram(
            cluster, volcano_namespace, VOLCANO_CONTROLLERS, VOLCANO_CONTROLLERS_LEASE, clock
        )
        self._programs = (scheduler, self.program)  # programs of Volcano
        self.are_read: Callable[[], bool] = lambda: False  # replaced by the feed
        self.read_fault: Callable[[], str] = lambda: ""  # replaced by the feed
        is_left_to_volcano = self._is_left_to_volcano
        self.jobs = VolcanoJobsController(context, recorder, groups, is_left_to_volcano)
        self.commands = VolcanoCommandsController(context, recorder, self.jobs.copies, is_left_to_volcano)
        self.cron_jobs = VolcanoCronJobsController(context, recorder, is_left_to_volcano)
        self.listeners: tuple[Listener, ...] = (
            self.jobs.on_decisions,
            self.commands.on_decisions,
            self.cron_jobs.on_decisions,
        )

    def __str__(self) -> str:
        """Return a status line: who runs the jobs, and for what reason."""
        if not self.are_read():
            reason = self.read_fault() or "the component volcano-jobs is missing"
            return f"not run by Muster, which cannot read them yet: {reason}"
        program_text = next((program.text for program in self._programs if program.is_working), "")
        return f"left to Volcano ({program_text})" if program_text else "run by Muster"

    def _is_left_to_volcano(self) -> bool:
        return not self.are_read() or any(program.is_working for program in self._programs)


class Controllers:
    """All controllers, with their writers.

    Controllers that start pods and jobs write through `writers`; most others write through separate writers.
    All write only while this replica leads.

    Args:
        conditions: Policy of the conditions of pending pods.
        job_table: All known kinds of jobs.
        plain_pods: Policy of the PodGroups of plain pods.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: ApiClient,
        writers: Writers,
        leads: Callable[[], bool],
        volcano_namespace: str,
        conditions: ConditionPolicy,
        job_table: Kinds,
        max_queue_depth: int,
        runs_volcano_jobs: bool = False,
        plain_pods: PlainPods = PlainPods.WAITING,
    ) -> None:
        patient_writers = Writers(STATUS_WRITER_COUNT, "patient", may_write=leads)
        self.all_writers: tuple[Writers, ...] = (writers, patient_writers)
        urgent_context = ControllerContext(ledger, cluster, writers, leads)
        patient = urgent_context._replace(writers=patient_writers)
        recorder = EventRecorder(cluster, patient_writers, leads)
        self.objects = Objects()
        self.provisioning_requests = ProvisioningRequests()
        provisioning = ProvisioningQueues(self.objects.queues, lambda: self.provisioning_is_served())
        self.start_changes, self.estimates = StartChanges(), Estimates(ledger, leads)
        podgroup_status = PodGroupStatusController(
            patient, self.objects.podgroups, self.provisioning_requests, self.start_changes, self.estimates
        )
        self.bus_commands = BusCommandsController(patient, recorder)
        self.quotas = QuotaObjects(ledger, max_queue_depth)
        self.quota_queues = QuotaQueuesController(
            patient, recorder, self.quotas, self.objects.queues, lambda kind: self.quota_is_read(kind)
        )
        self.auto_podgroups = AutoPodGroupsController(patient, plain_pods)
        self.jobs = JobsController(urgent_context, recorder, job_table)
        self.volcano = VolcanoCoexistence(urgent_context, volcano_namespace)
        self.volcano_jobs: VolcanoJobControllers | None = None
        if runs_volcano_jobs:
            groups = self.objects.podgroups
            volcano_writers = Writers(VOLCANO_WRITER_COUNT, "volcano", may_write=leads)
            self.all_writers = (*self.all_writers, volcano_writers)
            context = urgent_context._replace(writers=volcano_writers)
            self.volcano_jobs = VolcanoJobControllers(
                context, recorder, groups, volcano_namespace, self.volcano.scheduler
            )
        self.mark_trust = MarkerTrust(ledger, cluster)
        trust_facts = self.mark_trust, UseTrust(ledger, cluster), AuthorTrust(ledger, cluster)
        volcano_programs = (self.volcano, self.volcano_jobs.program) if self.volcano_jobs else (self.volcano,)
        self._facts: tuple[VolcanoCoexistence | VolcanoProgram | PolledFact, ...] = (
            *volcano_programs,
            *trust_facts,
            KueuePresence(ledger, cluster),
        )
        self.decision_log = DecisionLog(lambda: ledger.version)
        self.provisioning_is_served: Callable[[], bool] = lambda: False  # replaced by the feed
        self.quota_is_read: Callable[[str], bool] = lambda kind: False  # replaced by the feed
        self.listeners: tuple[Listener, ...] = (
            Releaser(ledger, leads).on_decisions,
            self.jobs.on_decisions,
            SchedulingGatesController(urgent_context).on_decisions,
            EvictionsController(patient, recorder).on_decisions,
            podgroup_status.on_decisions,
            PodConditionsController(patient, conditions, provisioning).on_decisions,
            ProvisioningController(
                patient, provisioning, self.provisioning_requests, conditions
            ).on_decisions,
            self.auto_podgroups.on_decisions,
            DefaultQueuesController(patient).on_decisions,
            self.quotas.on_decisions,
            self.quota_queues.on_decisions,
            QueueStatusController(patient, recorder, self.objects.queues).on_decisions,
            LocalQueueStatusController(patient, self.objects.local_queues).on_decisions,
            self.bus_commands.on_decisions,
            OrphanedPodGroupsController(patient).on_decisions,
            self.volcano.on_decisions,
            *(self.volcano_jobs.listeners if self.volcano_jobs else ()),
            GroupEvents(ledger, recorder, leads, self.start_changes).on_decisions,
            self.decision_log.on_decisions,
            QueueWaits().on_decisions,
            self.estimates.on_decisions,
        )

    def runs_volcano_jobs(self) -> bool:
        return self.volcano_jobs is not None and self.volcano_jobs.jobs.runs_jobs

    def volcano_jobs_text(self) -> str:
        """Return a status line."""
        return str(self.volcano_jobs or "not run by Muster: --volcano-jobs is off")

    def start(self) -> None:
        for writer in self.all_writers:
            writer.start()
        for fact in self._facts:
            fact.start()
        self.estimates.start()

    def stop(self) -> None:
        self.estimates.stop()
        for fact in self._facts:
            fact.stop()
        for writer in self.all_writers:
            writer.stop()
