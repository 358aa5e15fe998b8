"""Commands for Volcano Jobs: AbortJob, ResumeJob, RestartJob, TerminateJob and CompleteJob.

Each Command is executed once. It is recorded on its job before it is removed:

    Command ──► annotation kube-muster.io/last-command: UID/ACTION/VERSION ──► status of the job

VERSION is the status.version of the job at that time. An action that ends pods raises status.version in the
write of the new phase. If the version in a record is older than that of the job, the action was therefore
carried out, even if Muster ended between two of these writes.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from extender.api.keys import LAST_COMMAND
from extender.api.objects.base import Reference
from extender.api.objects.queues import Command
from extender.api.objects.volcano import VolcanoJob
from extender.api.workloads.operators import VOLCANO_JOB
from extender.controllers.controller import ControllerContext, RecordingController
from extender.controllers.events import WARNING, EventRecorder
from extender.controllers.volcano_copies import VolcanoCopies
from extender.domain.model.reasons import EventReason
from extender.domain.model.records import Uid
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import NotFound
from extender.kube.reflector import Removed
from extender.kube.resources import VOLCANO_JOBS
from extender.telemetry.logs import logger
from extender.volcano.states import Action

log = logger(__name__)

ACTIONS = (Action.ABORT, Action.RESUME, Action.RESTART, Action.TERMINATE, Action.COMPLETE)
_RETRY_PAUSE = 3.0  # seconds after which a step without visible effect is repeated


class PendingAction(NamedTuple):
    """Action of a Command that its job has not carried out yet."""

    command: str  # UID of the Command
    action: Action


def pending_action(job: VolcanoJob) -> PendingAction | None:
    """Return the action of the last Command on a job; None if the job has carried it out."""
    record = (job.metadata.annotations or {}).get(LAST_COMMAND, "")
    command, _, action_and_version = record.partition("/")
    action, _, version = action_and_version.partition("/")
    if action not in ACTIONS or version != str(job.status.version):
        return None
    return PendingAction(command, Action(action))


def volcano_job_reference(job: VolcanoJob) -> Reference:
    meta = job.metadata
    return Reference(*VOLCANO_JOB.key, meta.name, meta.namespace, meta.uid)


class VolcanoCommandsController(RecordingController[str]):
    """Controller of Commands, keyed by UID, and the sink of the watch on Commands.

    `is_left_to_volcano` returns whether Volcano executes the Commands.
    """

    name = "volcano-commands"

    def __init__(
        self,
        context: ControllerContext,
        recorder: EventRecorder,
        copies: VolcanoCopies,
        is_left_to_volcano: Callable[[], bool],
    ) -> None:
        super().__init__(context, recorder)
        self._copies, self._is_left_to_volcano = copies, is_left_to_volcano

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._commands: dict[str, Command] = {}
        self._oldest_commands: list[str] | None = None  # oldest Command of each job; None after a change

    def upsert(self, command: Command) -> None:
        if (target := command.target) and (target.api_version, target.kind) == VOLCANO_JOB.key:
            with self._lock:
                self._commands[command.metadata.uid] = command
                self._oldest_commands = None

    def remove(self, removed: Removed) -> None:
        with self._lock:
            self._commands.pop(removed.uid, None)
            self._oldest_commands = None

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield the oldest Command of each job. Later Commands of the job have to wait."""
        if self._is_left_to_volcano():
            return
        with self._lock:
            if self._oldest_commands is None:
                first_uids: dict[str, str] = {}
                for command in sorted(self._commands.values(), key=_sort_key):
                    first_uids.setdefault(command.target.uid if command.target else "", command.metadata.uid)
                self._oldest_commands = list(first_uids.values())
            oldest_commands = self._oldest_commands
        yield from (uid for uid in oldest_commands if uid not in self._queue)

    def reconcile(self, uid: str) -> None:
        command = self._commands.get(uid)
        if command is not None and command.target is not None and not self._is_left_to_volcano():
            self._queue.add(uid, _RETRY_PAUSE)
            self._carry_out(command, Uid(command.target.uid))

    def _carry_out(self, command: Command, target: Uid) -> None:
        """Record a valid Command on its job, once the job has carried out the last Command.

        Commands that are not valid are refused.
        """
        uid, job = command.metadata.uid, self._copies.get(target)
        if job is not None and job.metadata.namespace != command.metadata.namespace:
            job = None  # Commands do not apply to jobs of other namespaces
        if command.action not in ACTIONS:
            why = f"invalid action {command.action!r:.50}: must be one of {', '.join(ACTIONS)}"
            self.write(uid, partial(self._refuse, command, job, why))
        elif job is None:
            self.write(uid, partial(self._look_for_job, command))
        elif (job.metadata.annotations or {}).get(LAST_COMMAND, "").startswith(f"{uid}/"):
            self.write(uid, partial(self._remove, command))
        elif (last := pending_action(job)) is None or self._copies.obeyed_uids.get(target) == last.command:
            self.write(uid, partial(self._record, command, job))

    def _record(self, command: Command, job: VolcanoJob) -> None:
        """Record a Command on its job, and remove it."""
        meta, uid = job.metadata, command.metadata.uid
        record = {LAST_COMMAND: f"{uid}/{command.action}/{job.status.version}"}
        preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**preconditions, "annotations": record}}
        self._cluster.merge_job(VOLCANO_JOBS, meta.namespace, meta.name, patch)
        log.info("a Command was recorded", job=f"{meta.namespace}/{meta.name}", action=command.action)
        self._remove(command)

    def _remove(self, command: Command) -> None:
        meta = command.metadata
        self._cluster.delete_command(meta.namespace, meta.name, meta.uid)

    def _look_for_job(self, command: Command) -> None:
        """Read a job that the watch has not shown; refuse the Command if the job does not exist."""
        target = command.target
        assert target is not None
        try:
            found = self._cluster.job(VOLCANO_JOBS, command.metadata.namespace, target.name)
            if found["metadata"]["uid"] == target.uid:
                return
        except NotFound:
            pass
        self._refuse(command, None, f"there is no job {target.name} with UID {target.uid}")

    def _refuse(self, command: Command, job: VolcanoJob | None, why: str) -> None:
        """Remove a Command without executing it, and record the reason as an Event on the job."""
        self._remove(command)
        name = f"{command.metadata.namespace}/{command.metadata.name}"
        log.warning("a Command was refused and removed", command=name, why=why)
        if job is not None:
            message = f"Command {name}: {why}"
            self._recorder.record(volcano_job_reference(job), WARNING, EventReason.COMMAND_REFUSED, message)


def _sort_key(command: Command) -> tuple[str, int]:
    """Return the sort key of a Command: the time of its creation, then its resourceVersion."""
    meta = command.metadata
    version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
    return meta.creation_timestamp or "", version
