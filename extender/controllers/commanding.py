"""Obeying Commands: spec.state of the queue is set, and only then the Command removed.

This is also the sink of the watch on Commands. Where the cluster has no such kind, nothing ever comes.
"""

import threading
from functools import partial

from extender.api.objects import Command
from extender.controllers.actor import Teller
from extender.controllers.recording import WARNING
from extender.controllers.references import of_queue
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.reasons import Happening
from extender.domain.queues.bus_commands import (
    CommandRecord,
    Fate,
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

_AGAIN = 3.0  # seconds after which a step is tried again of which nothing was heard

Key = tuple[str, str]


class Commander(Teller):
    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, CommandRecord] = {}
        self._tried: dict[str, tuple[Fate, float]] = {}  # by UID: the step, and until when it is left alone

    def upsert(self, command: Command) -> None:
        record, meta = command_record(command), command.metadata
        with self._lock:
            if record is not None:
                self._waiting[meta.namespace, meta.name] = record

    def remove(self, gone: Removed) -> None:
        with self._lock:
            self._waiting.pop((gone.namespace, gone.name), None)
            self._tried.pop(gone.uid, None)

    def look(self, _: Decisions) -> None:
        if not self._leads():
            self._tried.clear()
            return
        with self._lock:
            heads = first_of_each_queue(self._waiting.values())
        for command in heads:
            self._follow(command)

    def _follow(self, command: CommandRecord) -> None:
        judged = judge(command, self._ledger.queue(command.queue))
        fate, until = self._tried.get(command.uid, (None, 0.0))
        if fate is judged.fate and self._clock() < until:
            return
        self._tried[command.uid] = (judged.fate, self._clock() + _AGAIN)
        match judged.fate:
            case Fate.OBEY:
                step = partial(self._obey, command, judged.state)
            case Fate.REMOVE:
                step = partial(self._remove, command)
            case Fate.REFUSE:
                step = partial(self._refuse, command, judged.why)
            case Fate.LOOK_FOR_QUEUE:
                step = partial(self._look_for_queue, command)
        self._writers.submit(("command", command.queue), step)

    def _obey(self, command: CommandRecord, state: str) -> None:
        self._cluster.set_queue_state(command.queue, command.queue_uid, state, command.uid)
        metrics.queue_commands.labels("obeyed").inc()
        log.info("a Command was obeyed", queue=command.queue, action=command.action, command=command.name)

    def _refuse(self, command: CommandRecord, why: str) -> None:
        self._remove(command)
        metrics.queue_commands.labels("refused").inc()
        name = f"{command.namespace}/{command.name}"
        log.warning("a Command was refused and removed", command=name, queue=command.queue, why=why)
        queue = self._ledger.queue(command.queue)
        if queue is not None:
            about = of_queue(queue.name, queue.uid)
            self._recorder.tell(about, WARNING, Happening.COMMAND_REFUSED, f"Command {name}: {why}")

    def _look_for_queue(self, command: CommandRecord) -> None:
        """Our picture of the queues may be older than the Command, so the API server is asked."""
        try:
            is_there = self._cluster.queue_uid(command.queue) == command.queue_uid
        except NotFound:
            is_there = False
        if not is_there:
            self._refuse(command, lost_target(command))

    def _remove(self, command: CommandRecord) -> None:
        self._cluster.delete_command(command.namespace, command.name, command.uid)
