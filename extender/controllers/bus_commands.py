"""Executes Commands: spec.state of the queue is set, and only then the Command is removed.

This is also the sink of the watch on Commands, which is empty if the cluster has no such kind.
"""

import threading
from collections.abc import Iterator
from functools import partial

from extender.api.objects.queues import Command
from extender.controllers.controller import RecordingController
from extender.controllers.event_recorder import WARNING
from extender.controllers.references import of_queue
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.reasons import EventReason
from extender.domain.queues.bus_commands import (
    CommandRecord,
    CommandStep,
    Judgement,
    command_record,
    first_of_each_queue,
    judge,
    lost_target,
)
from extender.kube.errors import NotFound
from extender.kube.inventory import Removed
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 3.0  # seconds after which a step without visible effect is tried again

_NamespacedName = tuple[str, str]


class BusCommandsController(RecordingController[str]):
    """Its keys are the names of queues with Commands."""

    name = "bus-commands"

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[_NamespacedName, CommandRecord] = {}
        self._tried: dict[str, CommandStep] = {}  # by UID: the step that was taken last

    def upsert(self, command: Command) -> None:
        record, meta = command_record(command), command.metadata
        with self._lock:
            if record is not None:
                self._waiting[meta.namespace, meta.name] = record

    def remove(self, gone: Removed) -> None:
        with self._lock:
            self._waiting.pop((gone.namespace, gone.name), None)
            self._tried.pop(gone.uid, None)

    def rest(self) -> None:
        self._tried.clear()

    def due(self, decisions: Decisions) -> Iterator[str]:
        """Queues whose first Command needs a different step than the one that was taken last."""
        for command in self._heads():
            if self._tried.get(command.uid) is not self._judge(command).step:
                yield command.queue

    def reconcile(self, name: str) -> None:
        for command in self._heads(name):
            self._follow(command)

    def _heads(self, queue: str | None = None) -> list[CommandRecord]:
        """The first Command of `queue`; None: of each queue."""
        with self._lock:
            waiting = [each for each in self._waiting.values() if queue in (None, each.queue)]
        return first_of_each_queue(waiting)

    def _judge(self, command: CommandRecord) -> Judgement:
        return judge(command, self._ledger.queue(command.queue))

    def _follow(self, command: CommandRecord) -> None:
        judged = self._judge(command)
        self._tried[command.uid] = judged.step
        self._queue.add(command.queue, _AGAIN)
        match judged.step:
            case CommandStep.EXECUTE:
                step = partial(self._execute, command, judged.state)
            case CommandStep.REMOVE:
                step = partial(self._remove, command)
            case CommandStep.REFUSE:
                step = partial(self._refuse, command, judged.why)
            case CommandStep.LOOK_FOR_QUEUE:
                step = partial(self._look_for_queue, command)
        self.write(command.queue, step)

    def _execute(self, command: CommandRecord, state: str) -> None:
        self._cluster.set_queue_state(command.queue, command.queue_uid, state, command.uid)
        metrics.queue_commands.labels("obeyed").inc()
        log.info("a Command was executed", queue=command.queue, action=command.action, command=command.name)

    def _refuse(self, command: CommandRecord, why: str) -> None:
        self._remove(command)
        metrics.queue_commands.labels("refused").inc()
        name = f"{command.namespace}/{command.name}"
        log.warning("a Command was refused and removed", command=name, queue=command.queue, why=why)
        queue = self._ledger.queue(command.queue)
        if queue is not None:
            about = of_queue(queue.name, queue.uid)
            self._recorder.record(about, WARNING, EventReason.COMMAND_REFUSED, f"Command {name}: {why}")

    def _look_for_queue(self, command: CommandRecord) -> None:
        """The ledger's queues may be older than the Command, so the queue is read from the API server."""
        try:
            exists = self._cluster.queue_uid(command.queue) == command.queue_uid
        except NotFound:
            exists = False
        if not exists:
            self._refuse(command, lost_target(command))

    def _remove(self, command: CommandRecord) -> None:
        self._cluster.delete_command(command.namespace, command.name, command.uid)
