"""The watches that feed the ledger, one reflector for each resource.

Pods come last: which are ours, and in which queue they wait, depends on namespaces and groups.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from extender.api.objects import Command, Namespace, Node, Pod, PodGroup, PriorityClass, Queue
from extender.controllers.commanding import Commander
from extender.controllers.queue_reporting import QueueReporter
from extender.controllers.reporting import Reporter
from extender.domain.ledger import Ledger
from extender.domain.records import GroupKey, Uid
from extender.kube.connection import Connection
from extender.kube.inventory import Removed
from extender.kube.reflector import Reflector
from extender.kube.resources import (
    COMMANDS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
)
from extender.verbs.newcomers import Newcomers

T = TypeVar("T")
_PATIENCE = 0.02
_FAREWELL = 1.0  # seconds that all watches together have to end
_OLDEST = 180.0  # seconds without a word from a watch that sends bookmarks every minute


class _Sink(Generic[T]):
    def __init__(self, upsert: Callable[[T], None], remove: Callable[[Removed], None]) -> None:
        self.upsert = upsert
        self.remove = remove


class Feed:
    """`reflectors` are all watches. Those of kinds that a cluster may lack are waited for by nobody."""

    def __init__(
        self,
        connection: Connection,
        ledger: Ledger,
        newcomers: Newcomers,
        reporter: Reporter,
        queue_reporter: QueueReporter,
        commander: Commander,
    ) -> None:
        self._ledger = ledger
        self._newcomers = newcomers
        self._reporter = reporter
        self._queue_reporter = queue_reporter
        self._stopping = Event()
        watch = partial(Reflector[Any], connection)
        self._needed: tuple[Reflector[Any], ...] = (
            watch(
                NAMESPACES,
                Namespace,
                _Sink(ledger.set_namespace, lambda gone: ledger.drop_namespace(gone.name)),
            ),
            watch(
                PRIORITY_CLASSES,
                PriorityClass,
                _Sink(ledger.set_priority_class, lambda gone: ledger.drop_priority_class(gone.name)),
            ),
            watch(QUEUES, Queue, _Sink(self._set_queue, self._drop_queue)),
            watch(NODES, Node, _Sink(ledger.set_node, lambda gone: ledger.drop_node(gone.name))),
            watch(POD_GROUPS, PodGroup, _Sink(self._set_group, self._drop_group)),
            watch(PODS, Pod, _Sink(self._set_pod, self._drop_pod)),
        )
        self._optional: tuple[Reflector[Any], ...] = (watch(COMMANDS, Command, commander),)
        self.reflectors = (*self._needed, *self._optional)

    def start(self) -> None:
        *others, pods = self._needed
        for reflector in (*others, *self._optional):
            reflector.start()
        Thread(target=self._start_after, args=[pods, others], name="feed", daemon=True).start()

    def _start_after(self, last: Reflector[Any], others: Sequence[Reflector[Any]]) -> None:
        while not all(reflector.synced for reflector in others):
            if self._stopping.wait(_PATIENCE):
                return
        last.start()

    def stop(self) -> None:
        """All at the same time: with an API server out of reach each takes what patience there is."""
        self._stopping.set()
        for reflector in self.reflectors:
            reflector.halt()
        deadline = time.monotonic() + _FAREWELL
        for reflector in self.reflectors:
            reflector.stop(max(0.0, deadline - time.monotonic()))

    def synced(self) -> bool:
        return all(reflector.synced for reflector in self._needed)

    def checks(self) -> dict[str, Callable[[], str | None]]:
        """For /readyz: what has not been read yet, or not been heard of for long."""
        return {f"{each.resource.plural}-synced": partial(_state, each) for each in self._needed}

    def _set_queue(self, queue: Queue) -> None:
        self._ledger.set_queue(queue)
        self._queue_reporter.see(queue)

    def _drop_queue(self, gone: Removed) -> None:
        self._queue_reporter.forget(gone.name)
        self._ledger.drop_queue(gone.name)

    def _set_group(self, group: PodGroup) -> None:
        self._reporter.see(group)
        self._ledger.set_group(group)

    def _drop_group(self, gone: Removed) -> None:
        key = GroupKey(f"{gone.namespace}/{gone.name}")
        self._reporter.forget(key)
        self._ledger.drop_group(key)

    def _set_pod(self, pod: Pod) -> None:
        self._ledger.set_pod(pod)
        self._newcomers.seen(Uid(pod.metadata.uid))

    def _drop_pod(self, gone: Removed) -> None:
        self._ledger.drop_pod(Uid(gone.uid))


def _state(reflector: Reflector[Any]) -> str | None:
    if not reflector.synced:
        return "not read yet"
    silent = time.monotonic() - (reflector.last_heard or 0.0)
    return f"not heard of for {silent:.0f} s" if silent > _OLDEST else None
