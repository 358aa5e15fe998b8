"""What the scheduler hears: pods and nodes, and whom an event gives reason to hope.

A pod that the extender refused is woken by everything that happens to a pod on a node or to a node, and by
any change of its own; one that failed the scheduler's own tests only by what makes room, or by wanting
something else.
"""

import threading
from collections.abc import Collection, Sequence

from extender.api.keys import ENDED_PHASES
from extender.sim.apiserver.follower import StoreFollower
from extender.sim.apiserver.kinds import NODES, PODS, Json
from extender.sim.apiserver.store import Change, Store
from extender.sim.scheduler.nodes import Nodes
from extender.sim.scheduler.queue import SchedulingQueue

_WISHES = ("spec", "labels")


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

    def _begin(self) -> int:
        with self._store:
            nodes, version = self._store.listing(NODES)
            pods, _ = self._store.listing(PODS)
        for kind, objects in ((NODES, nodes), (PODS, pods)):
            self._take([Change(version, "ADDED", kind, obj, None) for obj in objects])
        return version

    def _take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            with self._lock:
                if change.kind is NODES:
                    self._take_node(change)
                elif change.kind is PODS:
                    self._take_pod(change)

    # ---- nodes

    def _take_node(self, change: Change) -> None:
        node = change.object
        if change.type == "DELETED":
            self._nodes.drop_node(node["metadata"]["name"])
            return self._queue.wake(concerns_all=False)
        self._nodes.set_node(node)
        if change.before is None or _without_heartbeat(node) != _without_heartbeat(change.before):
            self._queue.wake()

    # ---- pods

    def _take_pod(self, change: Change) -> None:
        pod = change.object
        gone = change.type == "DELETED" or pod["status"].get("phase") in ENDED_PHASES
        if pod["spec"].get("nodeName"):
            self._take_assigned(change, gone)
        elif gone:
            self._queue.forget(pod["metadata"]["uid"])
            if self._nodes.remove(pod["metadata"]["uid"]):
                self._queue.wake()  # it was assumed, or nominated: its room is free
        elif pod["spec"]["schedulerName"] in self._schedulers:
            self._nodes.nominate(pod)
            self._queue.see(pod, concerns_all=_concerns_all(change))

    def _take_assigned(self, change: Change, gone: bool) -> None:
        pod = change.object
        uid = pod["metadata"]["uid"]
        self._queue.forget(uid)
        if gone:
            self._nodes.remove(uid)
            self._queue.wake()
        else:
            self._nodes.place(pod, pod["spec"]["nodeName"])
            self._queue.wake(concerns_all=False)


def _concerns_all(change: Change) -> bool:
    """Whether a pod's own change may help it where the extender had no say; its status may not."""
    before = change.before
    return before is None or any(_wanted(change.object, part) != _wanted(before, part) for part in _WISHES)


def _wanted(pod: Json, part: str) -> object:
    return pod["spec"] if part == "spec" else pod["metadata"].get(part)


def _without_heartbeat(node: Json) -> Json:
    """What of a node is news: all but its heartbeat."""
    status, meta = node.get("status") or {}, node["metadata"]
    conditions = [(each.get("type"), each.get("status")) for each in status.get("conditions") or []]
    return {
        "labels": meta.get("labels"),
        "annotations": meta.get("annotations"),
        "spec": node.get("spec"),
        "allocatable": status.get("allocatable"),
        "conditions": conditions,
    }
