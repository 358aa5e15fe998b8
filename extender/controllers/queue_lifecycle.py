"""Lifecycle of queues: default queues, Commands, and PodGroups of deleted queues."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.api.objects.queues import Command
from extender.controllers.controller import Controller, RecordingController
from extender.controllers.events import WARNING
from extender.controllers.objects import queue_reference
from extender.domain.model.reasons import EventReason
from extender.domain.queues import states
from extender.domain.queues.states import CommandRecord, CommandReview, CommandStep
from extender.domain.queues.tree import Orphan
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict, NotFound
from extender.kube.reflector import Removed
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_SPECS: dict[str, dict[str, Any]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True, "parent": ROOT_QUEUE},
}
# Seconds after which a step is repeated.
_CREATE_AGAIN = 5.0  # a queue that is still missing is created again
_EXECUTE_AGAIN = 3.0  # a step of a Command without visible effect is tried again
_DELETE_AGAIN = 5.0  # a group that is still there is reconciled again


class DefaultQueuesController(Controller[str]):
    """Controller of the queues that every cluster has: `root`, and `default` for work without a queue."""

    name = "default-queues"

    def due_keys(self, decisions: Decisions) -> Iterable[str]:
        """Return the missing queues; none before the first decision, when the existing ones are unknown."""
        missing = _SPECS.keys() - self._ledger.queues.names() if decisions.version >= 0 else ()
        return (name for name in missing if name not in self._queue)

    def reconcile(self, name: str) -> None:
        if name not in self._ledger.queues.names():
            self._queue.add(name, _CREATE_AGAIN)
            self.write(name, partial(self._create, name))

    def _create(self, name: str) -> None:
        with suppress(Conflict):  # another replica or user has created it
            self._cluster.create_queue(name, _SPECS[name])
            log.info("a missing queue was created", queue=name)


class BusCommandsController(RecordingController[str]):
    """Controller of Commands: spec.state of the queue is set, and only then the Command is removed.

    Its keys are names of queues. It is also the sink of the watch on Commands, which is empty without
    that kind.
    """

    name = "bus-commands"

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], CommandRecord] = {}
        self._tried: dict[str, CommandStep] = {}  # last step, by UID of the Command

    def upsert(self, command: Command) -> None:
        if (record := states.command_record(command)) is not None:
            with self._lock:
                self._waiting[command.metadata.namespace, command.metadata.name] = record

    def remove(self, gone: Removed) -> None:
        with self._lock:
            self._waiting.pop((gone.namespace, gone.name), None)
            self._tried.pop(gone.uid, None)

    def on_stopped_leading(self) -> None:
        self._tried.clear()

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield queues whose first Command needs another step than the last one."""
        for command in self._heads():
            step = states.review(command, self._ledger.queues.get(command.queue))
            if self._tried.get(command.uid) is not step.step:
                yield command.queue

    def _heads(self, queue: str | None = None) -> list[CommandRecord]:
        """Return the first Command of `queue`; None: of each queue."""
        with self._lock:
            waiting = [command for command in self._waiting.values() if queue in (None, command.queue)]
        return states.first_of_each_queue(waiting)

    def reconcile(self, name: str) -> None:
        for command in self._heads(name):
            step = states.review(command, self._ledger.queues.get(name))
            self._tried[command.uid] = step.step
            self._queue.add(name, _EXECUTE_AGAIN)
            self.write(name, partial(self._take_step, command, step))

    def _take_step(self, command: CommandRecord, step: CommandReview) -> None:
        """Execute a Command, remove or refuse it, or look first whether its queue exists."""
        queue = command.queue
        match step.step:
            case CommandStep.EXECUTE:
                self._cluster.set_queue_state(queue, command.queue_uid, step.state, command.uid)
                metrics.queue_commands.labels("obeyed").inc()
                log.info("a Command was executed", queue=queue, action=command.action, command=command.name)
            case CommandStep.REMOVE:
                self._cluster.delete_command(command.namespace, command.name, command.uid)
            case CommandStep.REFUSE:
                self._refuse(command, step.why)
            case CommandStep.LOOK_FOR_QUEUE:  # the ledger's queues may be older than the Command
                with suppress(NotFound):
                    if self._cluster.queue_uid(queue) == command.queue_uid:
                        return
                self._refuse(command, states.lost_target(command))

    def _refuse(self, command: CommandRecord, why: str) -> None:
        """Remove a Command that is not executed, and record why."""
        self._cluster.delete_command(command.namespace, command.name, command.uid)
        metrics.queue_commands.labels("refused").inc()
        name = f"{command.namespace}/{command.name}"
        log.warning("a Command was refused and removed", command=name, queue=command.queue, why=why)
        if (queue := self._ledger.queues.get(command.queue)) is not None:
            about = queue_reference(queue.name, queue.uid)
            self._recorder.record(about, WARNING, EventReason.COMMAND_REFUSED, f"Command {name}: {why}")


class OrphanedPodGroupsController(Controller[str]):
    """Controller that deletes the PodGroups, by UID, of a deleted queue; their pods stay.

    The ledger's queues may be older than its groups, above all after a start. So before anything is deleted,
    the queues are read from the API server; a UID that is missing there never comes back.
    """

    name = "orphaned-podgroups"

    def prepare(self) -> None:
        self._orphans: dict[str, Orphan] = {}
        self._gone: frozenset[str] = frozenset()  # UIDs of queues that the API server does not have

    def on_stopped_leading(self) -> None:
        self._orphans = {}

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        if not decisions.orphans and not self._orphans:
            return
        before, self._orphans = self._orphans, {orphan.uid: orphan for orphan in decisions.orphans}
        self._gone &= {orphan.queue_uid for orphan in decisions.orphans}
        yield from self._orphans.keys() - before.keys()

    def reconcile(self, uid: str) -> None:
        orphan = self._orphans.get(uid)
        if orphan is None:
            return
        if orphan.queue_uid in self._gone:
            self.write(uid, partial(self._delete, orphan))
        else:
            self.write(uid, self._confirm, target="queues that are gone")
        self._queue.add(uid, _DELETE_AGAIN)

    def _confirm(self) -> None:
        """Ask the API server which queues of orphans are gone."""
        orphans = self._orphans
        existing = self._cluster.queue_uids()
        self._gone |= {orphan.queue_uid for orphan in orphans.values()} - existing
        for uid, orphan in orphans.items():
            if orphan.queue_uid in self._gone:
                self._queue.add(uid)

    def _delete(self, orphan: Orphan) -> None:
        with suppress(NotFound):
            self._cluster.delete_group(orphan.namespace, orphan.name, orphan.uid)
            metrics.groups_cleared.inc()
            group = f"{orphan.namespace}/{orphan.name}"
            log.warning("a group is deleted because its queue was deleted", group=group, queue=orphan.queue)
