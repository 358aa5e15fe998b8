"""Runner of Volcano Jobs, which reconciles each job with its plan.

    watches, Commands ──► plan(view) ──► status ──► claims, plugins' objects ──► pods created and deleted

Each job takes one step at a time; many jobs take steps in parallel. The input of a plan is the job, its pods
and its annotations. A status that announces a step, such as a restart, is written before the step. A status
with only new counts waits a second for further changes.

The names of pods are fixed. If a pod with the name exists and belongs to the job, Muster has created the pod
before. A pod of another owner is left alone.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from extender.api.objects.queues import PodGroup
from extender.api.objects.volcano import Json, VolcanoJob, VolcanoJobSpec
from extender.api.workloads.operators import VOLCANO_COMMANDED, VOLCANO_JOB
from extender.controllers.controller import ControllerContext, RecordingController
from extender.controllers.events import EventRecorder
from extender.controllers.objects import ObjectStore
from extender.controllers.volcano_commands import pending_action, volcano_job_reference
from extender.controllers.volcano_copies import LostPod, VolcanoCopies
from extender.controllers.volcano_objects import JobObjects, difference
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import GroupKey, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict, NotFound, Refused
from extender.kube.resources import PODS
from extender.kube.writers import WriteJob
from extender.telemetry.logs import logger
from extender.volcano.admission import with_defaults
from extender.volcano.plan import JobView, Plan, PodToCreate, Remark, plan
from extender.volcano.plugins import SECRET_RECORD, secret_name
from extender.volcano.pods import JobPod, group_name
from extender.volcano.policies import JobRequest, outdated_requests, request_for_lost_pod
from extender.volcano.states import ACTIVE_PHASES, phase_of

log = logger(__name__)

_MIN_PACE, _MAX_PACE = 1.0, 8.0  # seconds between two writes of counts, doubled after each write
_MAX_JOBS_PER_CYCLE = 200  # jobs that are due in one cycle: each takes 0.2 ms
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 60.0  # seconds without creations after a refused creation
_NAME_RETRY = 30.0  # seconds after which a pod name is tried again that another pod had
_CLAIM_RETRY = 5.0  # seconds after which a missing claim is looked up again
_NO_PODS_REASONS = (EventReason.CLAIM_MISSING, EventReason.POD_NAME_TAKEN)
# Fields of the status that are written before the step which they announce.
_STEP_FIELDS = ("state", "version", "retryCount", "controlledResources", "minAvailable")


class _Pause(NamedTuple):
    until: float  # monotonic time in seconds
    seconds: float


class _JobMemory:
    """State of one job that a replica keeps while it leads."""

    def __init__(self) -> None:
        self.is_writing = False  # whether a write is in progress, during which no step is planned
        self.next_counts_at: float | None = None  # when the counts of the job are to be written
        self.pace_seconds = _MIN_PACE
        self.reported_remarks: tuple[Remark, ...] = ()
        self.has_group = False  # whether the PodGroup was created, even if the watch has not shown it
        self.lost_requests: dict[str, JobRequest] = {}  # requests of policies, by name of the lost pod
        self.used_names: dict[str, float] = {}  # pod names that other owners use, and when this was seen
        self.claims: dict[str, bool] = {}  # names of existing claims, and whether the job owns them
        self.next_lookup_at: float | None = None  # when missing claims are to be looked up again
        self.objects_spec: VolcanoJobSpec | None = None  # spec of the last write of the plugins' objects
        self.secret = ""  # name of the job's Secret
        self.pause: _Pause | None = None


class VolcanoJobsController(RecordingController[Uid]):
    """Controller of Volcano Jobs.

    `groups` has the PodGroups that the watch has shown. `is_left_to_volcano` returns whether Volcano's own
    controllers run the jobs. The attribute `copies` is a sink of pods.
    """

    name = "volcano-jobs"
    pause = 1.0

    def __init__(
        self,
        context: ControllerContext,
        recorder: EventRecorder,
        groups: ObjectStore[GroupKey, PodGroup],
        is_left_to_volcano: Callable[[], bool],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(context, recorder)
        self._groups, self._is_left_to_volcano, self._wall_clock = groups, is_left_to_volcano, wall_clock
        self._objects = JobObjects(self._cluster, recorder)
        self.copies = VolcanoCopies(self._queue.add, self._record_loss, context.clock)

    def prepare(self) -> None:
        self._memories: dict[Uid, _JobMemory] = {}
        self._is_running_jobs = False
        self._has_listed_all = False  # whether all jobs were listed since this replica began to run them
        self._not_due: list[Uid] = []  # listed jobs that were not made due yet

    def on_stopped_leading(self) -> None:
        self._has_listed_all, self._not_due = False, []
        self._memories.clear()
        self.copies.forget_writes()

    def on_job(self, job: VolcanoJob) -> None:
        """Process a new or changed job after the ledger has stored it."""
        self.copies.put(job)
        self._queue.add(Uid(job.metadata.uid))

    def forget(self, uid: Uid) -> None:
        self.copies.drop(uid)
        self._memories.pop(uid, None)
        self._queue.forget(uid)

    @property
    def runs_jobs(self) -> bool:
        """Return whether Muster runs the jobs, in this replica or in the replica that leads."""
        return not self._is_left_to_volcano()

    def due_keys(self, decisions: Decisions) -> Iterator[Uid]:
        """Yield all jobs, some in each cycle, once this replica begins to run them."""
        is_running_jobs = decisions.version >= 0 and self.runs_jobs
        if is_running_jobs is not self._is_running_jobs:
            self._is_running_jobs = is_running_jobs
            self._ledger.intake.leave_jobs(() if is_running_jobs else (VOLCANO_JOB.key,))
            log.info("Volcano Jobs are run by Muster" if is_running_jobs else "Volcano Jobs are left alone")
            self.on_stopped_leading()
        if is_running_jobs and not self._has_listed_all:
            self._has_listed_all, self._not_due = True, self.copies.uids()
        due_jobs, self._not_due = self._not_due[:_MAX_JOBS_PER_CYCLE], self._not_due[_MAX_JOBS_PER_CYCLE:]
        yield from due_jobs

    def reconcile(self, uid: Uid) -> None:
        """Take the next step of a job, unless a write for the job is in progress."""
        job = self.copies.get(uid)
        if job is None or job.metadata.deletion_timestamp is not None or not self._has_listed_all:
            return
        memory, now = self._memories.setdefault(uid, _JobMemory()), self._wall_clock()
        may_have_pods = not _is_waiting(job) or not self._is_queued(job)
        if memory.is_writing or (may_have_pods and self._begin_claim_lookup(job, memory)):
            return
        if may_have_pods and self._lacks_group(job, memory):
            return self._write_first(uid, memory, partial(self._make_group, job, memory))
        pods = self.copies.pods_of(uid)
        request = self._request(job, memory, pods, now)
        job_plan = plan(self._view(job, memory, pods, may_have_pods, request, now))
        self._carry_out(uid, job, memory, job_plan, request)
        if job_plan.due_at is not None:
            self._queue.add(uid, max(job_plan.due_at - now, 0.0))

    def _is_queued(self, job: VolcanoJob) -> bool:
        """Return whether the queue of a job admits the job, instead of Volcano."""
        return self._ledger.manages(_group_key(job))

    def _lacks_group(self, job: VolcanoJob, memory: _JobMemory) -> bool:
        """Return whether a job that is not queued lacks its PodGroup."""
        is_missing = self._groups.get(_group_key(job)) is None and not memory.has_group
        return is_missing and phase_of(job.status.state.phase) in ACTIVE_PHASES and not self._is_queued(job)

    def _view(
        self,
        job: VolcanoJob,
        memory: _JobMemory,
        pods: list[JobPod],
        may_have_pods: bool,
        request: JobRequest | None,
        now: float,
    ) -> JobView:
        """Return the input of the job's plan."""
        group, oldest = self._groups.get(_group_key(job)), self._clock() - _NAME_RETRY
        memory.used_names = {name: at for name, at in memory.used_names.copy().items() if at > oldest}
        if memory.used_names:
            self._queue.add(Uid(job.metadata.uid), min(memory.used_names.values()) - oldest)
        phase = group.status.phase if group is not None else ""
        return JobView(job, pods, may_have_pods, now, request, memory.used_names.keys(), memory.claims, phase)

    def _request(
        self, job: VolcanoJob, memory: _JobMemory, pods: list[JobPod], now: float
    ) -> JobRequest | None:
        """Return the request of a pending Command, or else of a lost pod that was not replaced in time."""
        pending = pending_action(job)
        if pending is not None and self.copies.obeyed_uids.get(Uid(job.metadata.uid)) != pending.command:
            text = f"a Command asked for {pending.action}"
            return JobRequest(pending.action, reason="CommandIssued", message=text)
        for lost in outdated_requests(memory.lost_requests.copy().values(), pods, now):
            del memory.lost_requests[lost.pod]
        return min(memory.lost_requests.copy().values(), key=lambda lost: lost.at, default=None)

    def _record_loss(self, loss: LostPod) -> None:
        """Record the request that a policy makes because of a lost pod."""
        job = self.copies.get(loss.owner)
        if job is not None and job.metadata.deletion_timestamp is None and self._has_listed_all:
            request = request_for_lost_pod(with_defaults(job), loss.pod, self._wall_clock())
            if request is not None:  # a pod may be lost again before the first request is due
                memory = self._memories.setdefault(loss.owner, _JobMemory())
                memory.lost_requests.setdefault(request.pod, request)

    def _record_obeyed(self, job: VolcanoJob, memory: _JobMemory, request: JobRequest | None) -> None:
        """Forget a request that the job has obeyed, so that it is not obeyed again."""
        if request is not None and request is memory.lost_requests.get(request.pod):
            if request.at <= self._wall_clock():
                del memory.lost_requests[request.pod]
        elif request is not None and (action := pending_action(job)) is not None:
            self.copies.record_obeyed(Uid(job.metadata.uid), action.command)

    def _begin_claim_lookup(self, job: VolcanoJob, memory: _JobMemory) -> bool:
        """Look up the claims that a job names, if necessary; return whether a look-up has begun."""
        names = dict.fromkeys(volume.volume_claim_name for volume in job.spec.volumes or ())
        missing_names = [name for name in names if name and name not in memory.claims]
        if not missing_names or phase_of(job.status.state.phase) not in ACTIVE_PHASES:
            return False
        uid, now = Uid(job.metadata.uid), self._clock()
        if memory.next_lookup_at is not None and now < memory.next_lookup_at:
            self._queue.add(uid, memory.next_lookup_at - now)
            return False
        next_lookup = now + _CLAIM_RETRY

        def look_up() -> None:
            memory.claims |= self._objects.existing_claims(job, missing_names)
            memory.next_lookup_at = next_lookup

        self._write_first(uid, memory, look_up)
        return True

    def _carry_out(
        self, uid: Uid, job: VolcanoJob, memory: _JobMemory, job_plan: Plan, request: JobRequest | None
    ) -> None:
        """Submit the writes of a plan, in the order given in the module's docstring."""
        changes = difference(msgspec.to_builtins(job.status), msgspec.to_builtins(job_plan.status))
        if changes.keys() & _STEP_FIELDS:
            return self._write_status(uid, job, memory, changes, job_plan.remarks, request)
        self._record_obeyed(job, memory, request)
        self._report(job, memory, job_plan.remarks)
        for remark in job_plan.remarks:
            if remark.reason in _NO_PODS_REASONS:  # other groups may use the job's capacity meanwhile
                self._ledger.record_refusal(_group_key(job), remark.message)
        if changes:
            now = self._clock()
            memory.next_counts_at = memory.next_counts_at or now + memory.pace_seconds
            if now >= memory.next_counts_at:
                return self._write_status(uid, job, memory, changes)
            self._queue.add(uid, memory.next_counts_at - now)
        if job_plan.deletes_job:
            meta = job.metadata
            delete = partial(self._cluster.delete_volcano_job, meta.namespace, meta.name, meta.uid)
            return self._write_first(uid, memory, delete)
        self._delete(uid, job, job_plan.pods_to_delete)
        if claims := job_plan.new_claims:
            return self._write_first(uid, memory, partial(self._make_claims, job, memory, claims))
        needs_objects = job.spec.plugins and (job_plan.new_pods or job_plan.pods_to_delete)
        if needs_objects and (job.spec != memory.objects_spec or memory.secret not in ("", secret_name(job))):
            return self._write_first(uid, memory, partial(self._apply_objects, job, memory))
        if job_plan.new_pods:
            self._create_all(uid, job, memory, job_plan.new_pods)

    def _write_first(self, uid: Uid, memory: _JobMemory, write: WriteJob) -> None:
        """Submit a write that precedes the rest of the plan. After the write, the job is reconciled again."""

        def write_and_continue() -> None:
            write()
            memory.is_writing = False
            self._queue.add(uid)

        def end_write() -> None:
            memory.is_writing = False

        memory.is_writing = True
        self.write(uid, write_and_continue, on_failure=end_write)

    def _write_status(
        self,
        uid: Uid,
        job: VolcanoJob,
        memory: _JobMemory,
        changes: Json,
        remarks: tuple[Remark, ...] = (),
        request: JobRequest | None = None,
    ) -> None:
        def put() -> None:
            state = self._put_status(job, changes).status.state
            self._record_obeyed(job, memory, request)
            self._report(job, memory, remarks)
            memory.next_counts_at = None
            memory.pace_seconds = _MIN_PACE if "state" in changes else min(2 * memory.pace_seconds, _MAX_PACE)
            if "state" in changes:
                name = f"{job.metadata.namespace}/{job.metadata.name}"
                log.info("a Volcano Job changed", job=name, phase=state.phase, why=state.reason)

        self._write_first(uid, memory, put)

    def _put_status(self, job: VolcanoJob, changes: Json) -> VolcanoJob:
        """Write the status of a job.

        Raises:
            Conflict: The job has another version now.
        """
        meta = job.metadata
        preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": preconditions, "status": changes}
        answer = self._cluster.patch_volcano_job_status(meta.namespace, meta.name, patch)
        self.copies.record_write(job, answer)
        return answer

    def _report(self, job: VolcanoJob, memory: _JobMemory, remarks: tuple[Remark, ...]) -> None:
        """Record Events about remarks that are new."""
        for remark in remarks:
            if remark not in memory.reported_remarks:
                self._recorder.record(volcano_job_reference(job), *remark)
        memory.reported_remarks = remarks

    def _make_group(self, job: VolcanoJob, memory: _JobMemory) -> None:
        meta = job.metadata
        self._objects.make_group(job, self._ledger.groups.author_of(meta.namespace, meta.uid))
        memory.has_group = True

    def _make_claims(self, job: VolcanoJob, memory: _JobMemory, claims: tuple[Json, ...]) -> None:
        for claim in claims:
            memory.claims[claim["metadata"]["name"]] = self._objects.make_claim(job, claim)

    def _apply_objects(self, job: VolcanoJob, memory: _JobMemory) -> None:
        """Create the objects of the job's plugins. Until these objects exist, the job gets no pods.

        The status gets the name of the Secret before pods exist, because pods read the name there.
        """
        job_with_defaults = with_defaults(job)
        try:
            self._objects.apply(job_with_defaults)
            memory.secret = memory.secret or self._objects.make_secret(job_with_defaults)
        except Refused as fault:
            if not fault.is_transient:
                self._ledger.record_refusal(_group_key(job), fault.message)
            raise
        if memory.secret not in ("", secret_name(job)):
            self._put_status(job, {"controlledResources": {SECRET_RECORD: memory.secret}})
        memory.objects_spec = job.spec

    def _delete(self, uid: Uid, job: VolcanoJob, pods: tuple[JobPod, ...]) -> None:
        for pod in pods:
            self.copies.record_deletion(uid, pod)
            revert = partial(self.copies.record_deletion, uid, pod, has_succeeded=False)
            self.write(uid, partial(self._delete_pod, job, pod), target=(uid, pod.uid), on_failure=revert)

    def _delete_pod(self, job: VolcanoJob, pod: JobPod) -> None:
        with suppress(NotFound, Conflict):  # the pod is gone, or another pod has its name
            self._cluster.delete_pod(job.metadata.namespace, pod.name, pod.uid)

    def _create_all(
        self, uid: Uid, job: VolcanoJob, memory: _JobMemory, pods: tuple[PodToCreate, ...]
    ) -> None:
        """Create the pods whose creation has not begun yet. During a pause, wait for its end."""
        if memory.pause is not None and (remaining := memory.pause.until - self._clock()) > 0.0:
            return self._queue.add(uid, remaining)
        for pod in pods:
            if self.copies.begin_creation(uid, pod.name):
                revert = partial(self.copies.end_creation, uid, pod.name, None)
                create = partial(self._create, job, memory, pod)
                self.write(uid, create, target=(uid, pod.name), on_failure=revert)

    def _create(self, job: VolcanoJob, memory: _JobMemory, pod: PodToCreate) -> None:
        """Create a pod. If the name is in use, or the API server refuses the pod, the job pauses."""
        uid, meta, answer = Uid(job.metadata.uid), job.metadata, None
        try:
            answer = self._cluster.create_owned(PODS, meta.namespace, pod.build(), uid)
            memory.pause = None
        except Conflict:
            memory.used_names[pod.name] = self._clock()
            self._begin_pause(memory)
        except Refused as fault:  # a quota, for example, would refuse the other pods, too
            if fault.is_transient:
                raise
            if self._begin_pause(memory):
                self._objects.report_refusal(job, f"Error creating: {fault.message}")
                self._ledger.record_refusal(_group_key(job), fault.message)
        self.copies.end_creation(uid, pod.name, answer)
        self._queue.add(uid)

    def _begin_pause(self, memory: _JobMemory) -> bool:
        """Begin a pause, unless a pause is running; return whether a pause has begun.

        Each pause is twice as long as the last, because a user may use the names of thousands of pods.
        """
        now, last_pause = self._clock(), memory.pause
        if last_pause is not None and last_pause.until > now:
            return False
        seconds = min(last_pause.seconds * 2, _MAX_PAUSE) if last_pause else _FIRST_PAUSE
        memory.pause = _Pause(now + seconds, seconds)
        return True


def _is_waiting(job: VolcanoJob) -> bool:
    """Return whether the job waits: neither Muster nor Volcano has started it yet."""
    metadata = {"annotations": job.metadata.annotations or {}}
    return VOLCANO_COMMANDED.is_waiting({"metadata": metadata, "status": msgspec.to_builtins(job.status)})


def _group_key(job: VolcanoJob) -> GroupKey:
    return GroupKey(f"{job.metadata.namespace}/{group_name(job)}")
