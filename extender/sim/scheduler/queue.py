"""Scheduling queue: pending pods, their next attempts, and the events that may make them schedulable.

    gated ──► active ──► in flight ──► unschedulable ──► backoff ──► active
                                  └──► error ──────────────────────► active

A refused pod waits for an event that concerns it, and then for a backoff of 1, 2, 4, 8 or 10 s, which ends
early if no other pod is active. A pod with an error always waits for its backoff. If an event comes during an
attempt and the attempt fails, the pod enters backoff at once, because it need not wait for another event.

A pod that the extender refused is requeued by each change of a node, of an assigned pod, or of the pod. A pod
that the scheduler's own filters refused is requeued only by freed capacity, or by a change of its
requirements.
"""

import heapq
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count

from extender.api.keys import ENDED_PHASES
from extender.apimachinery.kinds import NODES, PODS, Json
from extender.apimachinery.store import Change, Store, StoreFollower
from extender.sim.scheduler.nodes import Nodes

_MIN_BACKOFF, _MAX_BACKOFF = 1.0, 10.0


class SubQueue(Enum):
    GATED = auto()
    ACTIVE = auto()
    IN_FLIGHT = auto()
    UNSCHEDULABLE = auto()
    BACKOFF = auto()
    ERROR = auto()


@dataclass(eq=False)
class QueuedPod:
    pod: Json
    sub_queue: SubQueue = SubQueue.GATED
    refusal_count: int = 0
    error_count: int = 0  # consecutive errors
    by_extender: bool = False  # whether the extender, not the scheduler, refused it last
    ready_at: float = 0.0  # end of its backoff
    has_missed: bool = False  # whether an event for all pods came during the attempt
    missed_if_refused: bool = False  # whether an event came that counts if the extender refuses the pod
    ticket: int = -1  # number of the pod's current heap entry; other entries are stale

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def priority(self) -> int:
        return int(self.pod["spec"].get("priority") or 0)


Heap = list[tuple[float, float, int, QueuedPod]]


class SchedulingQueue:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._pods: dict[str, QueuedPod] = {}
        self._heaps: dict[SubQueue, Heap] = {SubQueue.ACTIVE: [], SubQueue.BACKOFF: [], SubQueue.ERROR: []}
        self._tickets = count()
        self._is_closed = False

    # ---- events of the watch

    def update(self, pod: Json, *, concerns_all: bool = True) -> None:
        """Record a new or changed pod without a node.

        If the extender refused the pod, any change of the pod requeues the pod. Otherwise only a change with
        `concerns_all` requeues the pod.
        """
        with self._condition:
            item = self._pods.setdefault(pod["metadata"]["uid"], QueuedPod(pod))
            item.pod = pod
            if pod["spec"].get("schedulingGates"):
                return
            if item.sub_queue is SubQueue.GATED:
                self._move(item, SubQueue.ACTIVE)
            else:
                self._requeue(item, concerns_all)

    def forget(self, uid: str) -> None:
        with self._condition:
            if item := self._pods.pop(uid, None):
                item.ticket = -1

    def requeue(self, *, concerns_all: bool = True, excluded: QueuedPod | None = None) -> None:
        """Requeue pods after an event: all pods if `concerns_all`, else those that the extender refused."""
        with self._condition:
            for item in list(self._pods.values()):
                if item is not excluded:
                    self._requeue(item, concerns_all)

    def _requeue(self, item: QueuedPod, concerns_all: bool) -> None:
        """Requeue a pod after an event. Without `concerns_all`, the extender must have refused the pod."""
        if item.sub_queue is SubQueue.IN_FLIGHT:
            item.has_missed = item.has_missed or concerns_all
            item.missed_if_refused = True
        elif item.sub_queue is SubQueue.UNSCHEDULABLE and (concerns_all or item.by_extender):
            self._move(item, SubQueue.BACKOFF if self._clock() < item.ready_at else SubQueue.ACTIVE)

    # ---- calls of the scheduling loop

    def pop(self) -> QueuedPod | None:
        """Wait for the next pod to try, and return it; None after `close`."""
        with self._condition:
            while not self._is_closed:
                for sub_queue in (SubQueue.BACKOFF, SubQueue.ERROR):
                    while ready_item := self._pop_first(sub_queue, self._clock()):
                        self._move(ready_item, SubQueue.ACTIVE)
                if item := self._pop_first(SubQueue.ACTIVE) or self._pop_first(SubQueue.BACKOFF):
                    item.sub_queue, item.has_missed, item.missed_if_refused = SubQueue.IN_FLIGHT, False, False
                    return item
                errors = self._heaps[SubQueue.ERROR]
                self._condition.wait(max(0.0, errors[0][0] - self._clock()) if errors else None)
        return None

    def add_unschedulable(self, item: QueuedPod, *, by_extender: bool) -> None:
        """Add a pod that was refused."""
        with self._condition:
            item.refusal_count, item.error_count, item.by_extender = item.refusal_count + 1, 0, by_extender
            item.ready_at = self._backoff_end(item.refusal_count)
            has_missed = item.has_missed or (by_extender and item.missed_if_refused)
            self._move(item, SubQueue.BACKOFF if has_missed else SubQueue.UNSCHEDULABLE)

    def add_failed(self, item: QueuedPod) -> None:
        """Add a pod whose attempt met an error."""
        with self._condition:
            item.error_count += 1
            item.ready_at = self._backoff_end(item.error_count)
            self._move(item, SubQueue.ERROR)

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    @property
    def busy(self) -> bool:
        """Return whether an attempt is running, or will start without another event."""
        with self._condition:
            idle = (SubQueue.GATED, SubQueue.UNSCHEDULABLE)
            return any(item.sub_queue not in idle for item in self._pods.values())

    # ---- internal

    def _move(self, item: QueuedPod, sub_queue: SubQueue) -> None:
        if self._pods.get(item.uid) is not item:
            return  # the pod is deleted or has a node
        item.sub_queue, item.ticket = sub_queue, next(self._tickets)
        if sub_queue in self._heaps:
            sort_key = -item.priority if sub_queue is SubQueue.ACTIVE else item.ready_at
            heapq.heappush(self._heaps[sub_queue], (sort_key, self._clock(), item.ticket, item))
            self._condition.notify_all()

    def _pop_first(self, sub_queue: SubQueue, due: float = math.inf) -> QueuedPod | None:
        heap = self._heaps[sub_queue]
        while heap and heap[0][0] <= due:
            *_, ticket, item = heapq.heappop(heap)
            if item.ticket == ticket:
                return item
        return None

    def _backoff_end(self, failures: int) -> float:
        """Return the end of a backoff, rounded to whole seconds: the stock scheduler checks once a second."""
        backoff: float = min(_MIN_BACKOFF * 2 ** (failures - 1), _MAX_BACKOFF)
        return (self._clock() + backoff) // 1.0 + 1.0


class Informer(StoreFollower):
    def __init__(
        self,
        store: Store,
        nodes: Nodes,
        lock: threading.RLock,
        queue: SchedulingQueue,
        schedulers: Collection[str],
    ) -> None:
        super().__init__(store, "informer")
        self._nodes = nodes
        self._lock = lock
        self._queue = queue
        self._schedulers = schedulers

    def _list_all(self) -> int:
        with self._store:
            nodes, version = self._store.listing(NODES)
            pods, _ = self._store.listing(PODS)
        for kind, objects in ((NODES, nodes), (PODS, pods)):
            self._handle_changes([Change(version, "ADDED", kind, obj, None) for obj in objects])
        return version

    def _handle_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            with self._lock:
                if change.kind is NODES and change.type == "DELETED":
                    self._nodes.drop_node(change.object["metadata"]["name"])
                    self._queue.requeue(concerns_all=False)
                elif change.kind is NODES:
                    node, before = change.object, change.old_object
                    self._nodes.set_node(node)
                    if before is None or _without_heartbeat(node) != _without_heartbeat(before):
                        self._queue.requeue()
                elif change.kind is PODS:
                    self._apply_pod(change)

    def _apply_pod(self, change: Change) -> None:
        pod = change.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if change.type == "DELETED" or pod["status"].get("phase") in ENDED_PHASES:
            self._queue.forget(uid)
            if self._nodes.remove(uid) or node:
                self._queue.requeue()  # the pod had a node, whose capacity is free now
        elif node:
            self._queue.forget(uid)
            self._nodes.place(pod, node)
            self._queue.requeue(concerns_all=False)
        elif pod["spec"]["schedulerName"] in self._schedulers:
            self._nodes.nominate(pod)
            changed = change.old_object is None or _used_fields(pod) != _used_fields(change.old_object)
            self._queue.update(pod, concerns_all=changed)


def _used_fields(pod: Json) -> object:
    """Return the fields of a pod that may make it schedulable when they change."""
    return pod["spec"], pod["metadata"].get("labels")


def _without_heartbeat(node: Json) -> object:
    """Return the fields of a node that do not change with each heartbeat."""
    status, meta = node.get("status") or {}, node["metadata"]
    conditions = status.get("conditions") or []
    stated = [(condition.get("type"), condition.get("status")) for condition in conditions]
    return (meta.get("labels"), meta.get("annotations"), node.get("spec"), status.get("allocatable"), stated)
