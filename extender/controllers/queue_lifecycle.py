"""Lifecycle of queues: default queues, Commands to open and close queues, and PodGroups of deleted queues."""

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

_DEFAULT_SPECS: dict[str, dict[str, Any]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True, "parent": ROOT_QUEUE},
}
# Seconds after which a step without effect is repeated.
_CREATION_PAUSE = 5.0  # until a queue that is still missing is created again
_STEP_PAUSE = 3.0  # until a step of a Command without visible effect is repeated
_DELETION_PAUSE = 5.0  # until a PodGroup that still exists is reconciled again


class DefaultQueuesController(Controller[str]):
    """Controller of the queues of every cluster: `root`, and `default` for groups that name no queue."""

    name = "default-queues"

    def due_keys(self, decisions: Decisions) -> Iterable[str]:
        """Return the default queues that are missing.

        Before the first decision, the existing queues are unknown, so no queue counts as missing.
        """
        missing = _DEFAULT_SPECS.keys() - self._ledger.queues.names() if decisions.version >= 0 else ()
        return (name for name in missing if name not in self._queue)

    def reconcile(self, name: str) -> None:
        if name not in self._ledger.queues.names():
            self._queue.add(name, _CREATION_PAUSE)
            self.write(name, partial(self._create, name))

    def _create(self, name: str) -> None:
        with suppress(Conflict):  # another replica or user has created it
            self._cluster.create_queue(name, _DEFAULT_SPECS[name])
            log.info("a missing queue was created", queue=name)


class BusCommandsController(RecordingController[str]):
    """Controller of Commands, which sets spec.state of the queue and then removes the Command.

    The keys are names of queues. The controller is also the sink of the watch on Commands; in a cluster
    without Commands, the sink stays empty.
    """

    name = "bus-commands"

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._commands: dict[tuple[str, str], CommandRecord] = {}
        self._last_steps: dict[str, CommandStep] = {}  # last step of each Command, by UID

    def upsert(self, command: Command) -> None:
        if (record := states.command_record(command)) is not None:
            with self._lock:
                self._commands[command.metadata.namespace, command.metadata.name] = record

    def remove(self, removed: Removed) -> None:
        with self._lock:
            self._commands.pop((removed.namespace, removed.name), None)
            self._last_steps.pop(removed.uid, None)

    def on_stopped_leading(self) -> None:
        self._last_steps.clear()

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield the queues whose first Command needs another step than the last step."""
        for command in self._first_commands():
            step = states.review(command, self._ledger.queues.get(command.queue))
            if self._last_steps.get(command.uid) is not step.step:
                yield command.queue

    def _first_commands(self, queue: str | None = None) -> list[CommandRecord]:
        """Return the first Command of `queue`; for None, the first Command of each queue."""
        with self._lock:
            matching = [command for command in self._commands.values() if queue in (None, command.queue)]
        return states.first_of_each_queue(matching)

    def reconcile(self, name: str) -> None:
        """Take the next step of the first Command of a queue."""
        for command in self._first_commands(name):
            step = states.review(command, self._ledger.queues.get(name))
            self._last_steps[command.uid] = step.step
            self._queue.add(name, _STEP_PAUSE)
            self.write(name, partial(self._take_step, command, step))

    def _take_step(self, command: CommandRecord, review: CommandReview) -> None:
        """Take a step of a Command: execute, remove or refuse it, or check whether its queue exists."""
        queue = command.queue
        match review.step:
            case CommandStep.EXECUTE:
                self._cluster.set_queue_state(queue, command.queue_uid, review.state, command.uid)
                metrics.queue_commands.labels("obeyed").inc()
                log.info("a Command was executed", queue=queue, action=command.action, command=command.name)
            case CommandStep.REMOVE:
                self._cluster.delete_command(command.namespace, command.name, command.uid)
            case CommandStep.REFUSE:
                self._refuse(command, review.why)
            case CommandStep.LOOK_FOR_QUEUE:  # the ledger's queues may be older than the Command
                with suppress(NotFound):
                    if self._cluster.queue_uid(queue) == command.queue_uid:
                        return
                self._refuse(command, states.lost_target_text(command))

    def _refuse(self, command: CommandRecord, why: str) -> None:
        """Remove a Command without executing it, and record the reason as an Event on the queue."""
        self._cluster.delete_command(command.namespace, command.name, command.uid)
        metrics.queue_commands.labels("refused").inc()
        name = f"{command.namespace}/{command.name}"
        log.warning("a Command was refused and removed", command=name, queue=command.queue, why=why)
        if (queue := self._ledger.queues.get(command.queue)) is not None:
            about = queue_reference(queue.name, queue.uid)
            self._recorder.record(about, WARNING, EventReason.COMMAND_REFUSED, f"Command {name}: {why}")


class OrphanedPodGroupsController(Controller[str]):
    """Controller that deletes the PodGroups of a deleted queue. The pods stay. Keys are UIDs of PodGroups.

    The ledger's queues may be older than its groups, above all after a start. Before a deletion, the
    controller therefore reads the queues from the API server. A UID that is missing there never comes back.
    """

    name = "orphaned-podgroups"

    def prepare(self) -> None:
        self._orphans: dict[str, Orphan] = {}
        self._deleted_queues: frozenset[str] = frozenset()  # UIDs of queues that the API server does not have

    def on_stopped_leading(self) -> None:
        self._orphans = {}

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield the PodGroups that are newly orphaned."""
        if not decisions.orphans and not self._orphans:
            return
        before, self._orphans = self._orphans, {orphan.uid: orphan for orphan in decisions.orphans}
        self._deleted_queues &= {orphan.queue_uid for orphan in decisions.orphans}
        yield from self._orphans.keys() - before.keys()

    def reconcile(self, uid: str) -> None:
        """Delete an orphaned PodGroup once the API server has confirmed that its queue is deleted."""
        orphan = self._orphans.get(uid)
        if orphan is None:
            return
        if orphan.queue_uid in self._deleted_queues:
            self.write(uid, partial(self._delete, orphan))
        else:
            self.write(uid, self._confirm, target="queues that are gone")
        self._queue.add(uid, _DELETION_PAUSE)

    def _confirm(self) -> None:
        """Ask the API server which queues of orphaned PodGroups are deleted; make these PodGroups due."""
        orphans = self._orphans
        existing = self._cluster.queue_uids()
        self._deleted_queues |= {orphan.queue_uid for orphan in orphans.values()} - existing
        for uid, orphan in orphans.items():
            if orphan.queue_uid in self._deleted_queues:
                self._queue.add(uid)

    def _delete(self, orphan: Orphan) -> None:
        with suppress(NotFound):
            self._cluster.delete_group(orphan.namespace, orphan.name, orphan.uid)
            metrics.groups_cleared.inc()
            group = f"{orphan.namespace}/{orphan.name}"
            log.warning("a group is deleted because its queue was deleted", group=group, queue=orphan.queue)
