"""Creation of Volcano Jobs at the times of CronJobs of batch.volcano.sh, and deletion of old Volcano Jobs.

    watches, time ──► cron_plan ──► Jobs deleted, a Job created, status

The name of a Job contains its time, so a Job that was created just before Muster stopped is found again. If a
Job of another owner has that name, the time is skipped, with an Event.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import msgspec

from extender.api.objects.base import Reference
from extender.api.objects.volcano import CronJob, Json, VolcanoJob
from extender.controllers.controller import ControllerContext, RecordingController
from extender.controllers.events import WARNING, EventRecorder
from extender.controllers.volcano_objects import difference
from extender.domain.model.ownership import controller_of
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict, Forbidden, Invalid, NotFound
from extender.kube.reflector import Removed
from extender.kube.resources import VOLCANO_JOBS
from extender.volcano.cron import JOB_VERSION, CronPlan, cron_plan


class VolcanoCronJobsController(RecordingController[Uid]):
    """Controller of CronJobs, and the sink of their watch. It also gets all Volcano Jobs.

    `is_left_to_volcano` returns whether Volcano's controllers run the CronJobs, or the Jobs are not read yet.
    """

    name = "volcano-cron-jobs"
    pause = 1.0

    def __init__(
        self,
        context: ControllerContext,
        recorder: EventRecorder,
        is_left_to_volcano: Callable[[], bool],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(context, recorder)
        self._is_left_to_volcano, self._wall_clock = is_left_to_volcano, wall_clock

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._crons: dict[Uid, CronJob] = {}
        self._jobs: dict[Uid, dict[Uid, VolcanoJob]] = {}  # Jobs by UID of their CronJob
        self._cron_by_job: dict[Uid, Uid] = {}  # CronJobs of the Jobs, by UID of the Job
        self._busy_crons: set[Uid] = set()  # CronJobs with a write in progress
        self._reported_faults: dict[Uid, str] = {}  # reported faults of each CronJob, as a text
        self._has_listed_all = False  # whether all have been due since this replica began to run them

    def on_stopped_leading(self) -> None:
        self._has_listed_all = False
        self._busy_crons.clear()

    def upsert(self, cron: CronJob) -> None:
        uid = Uid(cron.metadata.uid)
        with self._lock:
            self._crons[uid] = cron
        self._queue.add(uid)

    def remove(self, removed: Removed) -> None:
        with self._lock:
            self._crons.pop(Uid(removed.uid), None)
            self._reported_faults.pop(Uid(removed.uid), None)
        self._queue.forget(Uid(removed.uid))

    def on_job(self, job: VolcanoJob) -> None:
        """Store a new or changed Volcano Job if a CronJob owns it."""
        owner, uid = controller_of(job.metadata.owner_references), Uid(job.metadata.uid)
        if owner is None or (owner.api_version, owner.kind) != (JOB_VERSION, "CronJob"):
            return
        with self._lock:
            self._cron_by_job[uid] = Uid(owner.uid)
            self._jobs.setdefault(Uid(owner.uid), {})[uid] = job
        self._queue.add(Uid(owner.uid))

    def forget(self, job: Uid) -> None:
        with self._lock:
            owner = self._cron_by_job.pop(job, None)
            if owner is None:
                return
            del self._jobs[owner][job]
            if not self._jobs[owner]:
                del self._jobs[owner]
        self._queue.add(owner)

    def due_keys(self, decisions: Decisions) -> Iterator[Uid]:
        if self._is_left_to_volcano():
            self.on_stopped_leading()
        elif not self._has_listed_all:
            self._has_listed_all = True
            with self._lock:
                yield from list(self._crons)

    def reconcile(self, uid: Uid) -> None:
        """Carry out the plan of a CronJob, unless a write for it is in progress."""
        with self._lock:
            cron, known_jobs = self._crons.get(uid), list(self._jobs.get(uid, {}).values())
        if cron is None or not self._has_listed_all or uid in self._busy_crons:
            return
        # Any user can write any UID as the owner of a Job, so Jobs of other namespaces do not count.
        jobs = [job for job in known_jobs if job.metadata.namespace == cron.metadata.namespace]
        now = self._wall_clock()
        plan = cron_plan(cron, jobs, now)
        self._report(cron, plan)
        if plan.due_at is not None:
            self._queue.add(uid, plan.due_at - now)
        changes = difference(msgspec.to_builtins(cron.status), msgspec.to_builtins(plan.status))
        if changes or plan.jobs_to_delete or plan.job_to_create:
            self._busy_crons.add(uid)
            self.write(uid, partial(self._carry_out, cron, plan, changes), on_failure=partial(self._end, uid))

    def _report(self, cron: CronJob, plan: CronPlan) -> None:
        """Record Events about the faults of a CronJob, if they have changed."""
        text = "; ".join(remark.message for remark in plan.remarks)
        if text and text != self._reported_faults.get(Uid(cron.metadata.uid)):
            for remark in plan.remarks:
                self._recorder.record(_cron_job_reference(cron), *remark)
        self._reported_faults[Uid(cron.metadata.uid)] = text

    def _end(self, uid: Uid) -> None:
        self._busy_crons.discard(uid)

    def _carry_out(self, cron: CronJob, plan: CronPlan, changes: Json) -> None:
        """Delete old Jobs, create the due Job, and write the status."""
        meta = cron.metadata
        for job in plan.jobs_to_delete:
            with suppress(NotFound, Conflict):  # the Job is gone, or another Job has its name
                self._cluster.delete_volcano_job(meta.namespace, job.metadata.name, job.metadata.uid)
            self.forget(Uid(job.metadata.uid))  # do not wait for the watch, which may lag
        if plan.job_to_create is not None:
            self._create(cron, plan.job_to_create)
        if changes:
            preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            patch = {"metadata": preconditions, "status": changes}
            answer = self._cluster.patch_cron_job_status(meta.namespace, meta.name, patch)
            with self._lock:
                if self._crons.get(Uid(meta.uid)) is cron:
                    self._crons[Uid(meta.uid)] = answer
        self._end(Uid(meta.uid))
        self._queue.add(Uid(meta.uid))

    def _create(self, cron: CronJob, job: Json) -> None:
        """Create a Job. If its name belongs to another owner, skip this time."""
        meta = cron.metadata
        try:
            self._cluster.create_owned(VOLCANO_JOBS, meta.namespace, job, meta.uid)
        except Conflict:
            self._record_event(cron, f"Job {job['metadata']['name']} is not its own: this time is left out")
        except (Forbidden, Invalid) as fault:
            self._record_event(cron, f"Error creating: {fault.message}")
            raise

    def _record_event(self, cron: CronJob, message: str) -> None:
        self._recorder.record(_cron_job_reference(cron), WARNING, EventReason.FAILED_CREATE, message)


def _cron_job_reference(cron: CronJob) -> Reference:
    meta = cron.metadata
    return Reference(JOB_VERSION, "CronJob", meta.name, meta.namespace, meta.uid)
