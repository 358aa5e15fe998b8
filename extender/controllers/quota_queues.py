"""Creation, change and deletion of the queues that quotas ask for. Other queues stay as they are.

An annotation of a queue names its quota. No queue is closed before all quotas of the kind of its quota have
been read.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from extender.api import keys
from extender.api.objects.base import Reference
from extender.api.objects.cluster import ElasticQuota, ElasticQuotaTree, QuotaKind, ResourceQuota
from extender.api.objects.queues import Queue
from extender.api.units import and_more
from extender.controllers.controller import ControllerContext, RecordingController
from extender.controllers.cycle import FaultGuard
from extender.controllers.events import WARNING, EventRecorder
from extender.controllers.objects import ObjectStore, QueueCopy
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import EventReason
from extender.domain.queues import quota_records as steps
from extender.domain.queues.quota_records import (
    QuotaFault,
    QuotaPlan,
    QuotaQueue,
    QuotaSource,
    QuotaStep,
    quota_source,
)
from extender.domain.queues.quotas import Quotas, plan_of
from extender.domain.snapshot.decisions import Decisions
from extender.kube.errors import Conflict, Forbidden, Invalid
from extender.kube.reflector import Removed
from extender.telemetry.logs import logger

log = logger(__name__)

_PAUSE = 1.0  # seconds until a queue that has to wait is tried again
_MAX_FAULTS = 3  # most faults of a quota that its Event names
_NAME_TAKEN = (
    "it exists and is not made from a quota, so it stays as it is: delete it, or name the quota differently"
)

AnyQuota = ElasticQuotaTree | ElasticQuota | ResourceQuota


class _QuotaSink:
    """Sink of the watch of one kind of quota. Stored objects are replaced, never changed."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], AnyQuota] = {}

    def upsert(self, quota: AnyQuota) -> None:
        """Store a quota. Changes of the status are ignored, as other controllers write the status often."""
        key = quota.metadata.namespace, quota.metadata.name
        with self._lock:
            before, self._objects[key] = self._objects.get(key), quota
        if before is None or _relevant_fields(before) != _relevant_fields(quota):
            self._on_change()

    def remove(self, removed: Removed) -> None:
        with self._lock:
            self._objects.pop((removed.namespace, removed.name), None)
        self._on_change()

    def all(self) -> list[Any]:
        with self._lock:
            return list(self._objects.values())


def _relevant_fields(quota: AnyQuota) -> tuple[object, ...]:
    return quota.metadata.uid, msgspec.json.encode(quota.spec)


class QuotaObjects:
    """Quotas from the watches, and the plan of all queues that these quotas ask for.

    A change only marks the plan as stale, since thousands of objects may come at once; the next `refresh`
    makes the plan. `max_depth` is the maximum number of levels below the root queue.
    """

    def __init__(self, ledger: Ledger, max_depth: int) -> None:
        self._ledger = ledger
        self._max_depth = max_depth
        self._is_stale = False
        self._guard = FaultGuard("quotas")
        self._lock = threading.Lock()
        self.plan = QuotaPlan()
        self.sinks = {kind: _QuotaSink(self._record_change) for kind in QuotaKind}

    def _record_change(self) -> None:
        self._is_stale = True

    def on_decisions(self, _: Decisions) -> None:
        """Refresh the plan, also on replicas that do not lead: webhooks need the queues of namespaces."""
        self.refresh()

    def refresh(self) -> None:
        """Make a new plan if a quota has changed, and pass the queues of namespaces to the ledger."""
        with self._lock:
            if not self._is_stale:
                return
            self._is_stale = False
            quotas = Quotas(
                trees=self.sinks[QuotaKind.ELASTIC_QUOTA_TREE].all(),
                elastic_quotas=self.sinks[QuotaKind.ELASTIC_QUOTA].all(),
                resource_quotas=self.sinks[QuotaKind.RESOURCE_QUOTA].all(),
            )
            self.plan = plan_of(quotas, self._max_depth, self._guard.run)
            self._ledger.intake.set_quota_namespaces(self.plan.namespaces)


class QuotaQueuesController(RecordingController[str]):
    """Controller of the queues that quotas ask for, keyed by the name of the queue.

    `is_read` returns whether all quotas of a kind have been read.
    """

    name = "quota-queues"

    def __init__(
        self,
        context: ControllerContext,
        recorder: EventRecorder,
        quotas: QuotaObjects,
        queues: ObjectStore[str, QueueCopy],
        is_read: Callable[[str], bool],
    ) -> None:
        self._quotas, self._queues, self._is_read = quotas, queues, is_read
        super().__init__(context, recorder)
        queues.listen(self._on_change)

    def prepare(self) -> None:
        self._own_queues: set[str] = set()  # names of queues that are made from a quota
        self._dirty_queues: set[str] = set()  # names of changed queues that are not reviewed yet
        self._refusals: dict[str, QuotaFault] = {}  # refused writes, by queue
        self._change_times: dict[str, float] = {}  # time of the last correction, by queue
        self.on_stopped_leading()

    def on_stopped_leading(self) -> None:
        self._listed_plan: QuotaPlan | None = None
        self._reported_for: tuple[QuotaPlan | None, tuple[QuotaFault, ...]] = (None, ())
        self._reported_faults: dict[QuotaSource, str] = {}
        self._parents: set[str] = set()

    @property
    def plan(self) -> QuotaPlan:
        return self._quotas.plan

    def faults(self) -> list[QuotaFault]:
        """Return the faults that users have to correct: faults in quotas, and queues with the same names."""
        return [*self._quotas.plan.faults, *self._refusals.copy().values()]

    def _on_change(self, name: str) -> None:
        """Record a changed queue, and whether it is made from a quota."""
        copy = self._queues.get(name)
        if copy is not None and quota_source(copy.queue):
            self._own_queues.add(name)
        else:
            self._own_queues.discard(name)
        self._dirty_queues.add(name)

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield the queues that may need a step.

        These are all queues of a new plan, changed queues that differ from the plan, and queues whose quota
        is gone. Before the first decision, the existing queues are unknown, so no queue is yielded.
        """
        if decisions.version < 0:
            return
        plan = self._quotas.plan
        if self._listed_plan is not plan:
            self._listed_plan = plan
            self._refusals = {name: fault for name, fault in self._refusals.items() if name in plan.queues}
            self._change_times = {name: at for name, at in self._change_times.items() if name in plan.queues}
            yield from plan.queues
        while self._dirty_queues:
            name = self._dirty_queues.pop()
            if name in plan.queues and self._step(name) is not QuotaStep.NOTHING:
                yield name
        unwanted = [name for name in sorted(self._own_queues - plan.queues.keys()) if self._is_unwanted(name)]
        self._parents = self._ledger.queues.parents() if unwanted else set()
        yield from (name for name in unwanted if name not in self._queue)
        self._report()

    def _is_unwanted(self, name: str) -> bool:
        """Return whether a queue was made from a quota that no longer asks for the queue."""
        copy, plan = self._queues.get(name), self._quotas.plan
        source = quota_source(copy.queue) if copy else ""
        if not source or name in plan.queues or source in plan.unsure_quotas:
            return False
        return self._is_read(source.partition("/")[0])

    def _step(self, name: str) -> QuotaStep:
        """Return the next step for a queue."""
        copy, wanted = self._queues.get(name), self._quotas.plan.queues.get(name)
        if copy is None:
            return steps.step_of(wanted, None, is_empty=False)
        has_groups = self._ledger.queues.has_groups(name, copy.queue.metadata.uid)
        return steps.step_of(wanted, copy.queue, is_empty=not (wanted or name in self._parents or has_groups))

    def reconcile(self, name: str) -> None:
        """Bring a queue in line with its quota; close and then delete a queue without a quota."""
        copy, wanted = self._queues.get(name), self._quotas.plan.queues.get(name)
        if wanted is not None:
            self._bring_in_line(wanted, copy.queue if copy else None)
        elif copy is not None and self._is_unwanted(name):
            self._queue.add(name, _PAUSE)
            match self._step(name):
                case QuotaStep.CLOSE:
                    self.write(name, partial(self._close, copy.queue))
                case QuotaStep.DELETE:
                    self.write(name, partial(self._delete, copy.queue))

    def _bring_in_line(self, wanted: QuotaQueue, queue: Queue | None) -> None:
        """Create or change a queue as planned.

        The step waits while the parent queue is missing or is not made from a quota, and for a moment after
        an earlier change of the queue.
        """
        name, step = wanted.name, self._step(wanted.name)
        is_parent_missing = wanted.parent != keys.ROOT_QUEUE and wanted.parent not in self._own_queues
        has_to_wait = is_parent_missing or self._clock() - self._change_times.get(name, -_PAUSE) < _PAUSE
        if step in (QuotaStep.CREATE, QuotaStep.CHANGE) and has_to_wait:
            self._queue.add(name, _PAUSE)
        elif step is QuotaStep.CREATE:
            self.write(name, partial(self._put, wanted, None))
        elif step is QuotaStep.CHANGE and queue:
            self._change_times[name] = self._clock()
            self.write(name, partial(self._put, wanted, queue))
        elif step is QuotaStep.LEAVE:
            self._refusals[name] = QuotaFault(wanted.source, f"queue {name!r}", _NAME_TAKEN)
        else:
            self._refusals.pop(name, None)

    def _put(self, wanted: QuotaQueue, queue: Queue | None) -> None:
        """Create or change a queue, and record a refusal by the API server."""
        name, quota = wanted.name, str(wanted.source)
        try:
            if queue is not None:
                self._cluster.patch_queue(name, queue.metadata.uid, steps.queue_patch(wanted, queue))
                log.info("a queue was changed to what its quota says", queue=name, quota=quota)
            else:
                with suppress(Conflict):  # another writer has created the queue; the watch will show it
                    self._cluster.create_queue(name, steps.spec_of(wanted), steps.annotations_of(wanted))
                    log.info("a queue was made from a quota", queue=name, quota=quota)
        except (Forbidden, Invalid) as fault:
            why = fault.message or str(fault)
            self._refusals[name] = QuotaFault(wanted.source, f"queue {name!r}", why)
            raise
        self._refusals.pop(name, None)

    def _close(self, queue: Queue) -> None:
        """Close a queue. If the CRD drops spec.state, as Volcano's own CRD does, close it by its status."""
        name, uid = queue.metadata.name, queue.metadata.uid
        if not self._cluster.keeps_queue_state(name, uid, "Closed"):
            self._cluster.set_queue_status_state(name, uid, "Closing")
        ended_record = {"annotations": {keys.QUOTA_ENDED: "true"}}
        self._cluster.patch_queue(name, uid, {"metadata": ended_record, "spec": {"state": "Closed"}})
        log.info("a queue is closed, because its quota is gone", queue=name, quota=quota_source(queue))

    def _delete(self, queue: Queue) -> None:
        self._cluster.delete_queue(queue.metadata.name, queue.metadata.uid)
        log.info("a queue is deleted, because its quota is gone", queue=queue.metadata.name)

    def _report(self) -> None:
        """Record one Event for each quota with faults, and a further Event when the faults change."""
        plan, refused_writes = self._quotas.plan, tuple(self._refusals.copy().values())
        if self._reported_for[0] is plan and self._reported_for[1] == refused_writes:
            return
        self._reported_for = plan, refused_writes
        faults_by_source: dict[QuotaSource, list[QuotaFault]] = {}
        for fault in self.faults():
            faults_by_source.setdefault(fault.source, []).append(fault)
        before = self._reported_faults
        self._reported_faults = {source: faults_text(faults) for source, faults in faults_by_source.items()}
        for source, text in self._reported_faults.items():
            if before.get(source) != text:
                about = Reference(source.version, source.kind, source.name, source.namespace, source.uid)
                self._recorder.record(about, WARNING, EventReason.QUOTA_NOT_APPLIED, text)


def faults_text(faults: Iterable[QuotaFault]) -> str:
    texts = [str(fault) for fault in faults]
    return "; ".join(texts[:_MAX_FAULTS] + and_more(len(texts) - _MAX_FAULTS, ": see /debug/quotas"))
