"""Model of the pods in a kube-scheduler: client-go's reflector and informer, the queue and the cache.

Source: tools/cache/reflector.go, the_real_fifo.go and shared_informer.go of client-go 0.36.3,
eventhandlers.go and backend/cache/cache.go of kube-scheduler 1.36.3. Events that
would end the real scheduler fail an assertion.
"""

from collections.abc import Iterable

from tests.domain.view.api import OURS, Frame, Pod


class Scheduler:
    def __init__(self, lists: bool) -> None:
        self.lists = lists  # whether it uses LIST and a watch, as in 1.34; otherwise a WatchList
        self.version: int | None = None  # of the last event
        self.must_list = True
        self.queue: dict[str, str] = {}  # nominated nodes, by UID of unbound pods
        self.cache: dict[str, str] = {}  # nodes, by UID of bound pods
        # UIDs of pods with a bind call, until it fails or an event shows their binding or deletion.
        self.assumed: set[str] = set()
        self.store: dict[str, Frame] = {}  # by name, as informers do
        self._initial: dict[str, Frame] = {}  # initial events of a WatchList that has not ended

    # ---- the reflector

    def receive(self, frame: Frame) -> None:
        if self.must_list:
            self._receive_initial(frame)
            return
        assert self.version is not None
        assert frame.version >= self.version, f"versions go back: {self.version}, then {frame}"
        self.version = frame.version
        if frame.pod is not None:
            self._inform(frame.type, frame.pod, frame)

    def _receive_initial(self, frame: Frame) -> None:
        is_from_api = frame.pod is None or frame.version == frame.pod.version
        assert is_from_api, f"injected before the initial events have ended: {frame}"
        if frame.ends_initial:
            self.replace(self._initial.values(), frame.version)
        elif frame.pod is not None and frame.type == "DELETED":
            self._initial.pop(frame.pod.name, None)
        elif frame.pod is not None:
            self._initial[frame.pod.name] = frame

    def disconnected(self) -> None:
        self._initial = {}

    def replace(self, frames: Iterable[Frame], version: int) -> None:
        assert self.version is None or version >= self.version, "a list goes back"
        new = {frame.pod.name: frame for frame in frames if frame.pod is not None}
        for name, old in list(self.store.items()):
            if old.pod is not None and (name not in new or new[name].pod.uid != old.pod.uid):  # type: ignore[union-attr]
                self._inform("DELETED", old.pod, old)
        for frame in new.values():
            assert frame.pod is not None
            self._inform("REPLACED", frame.pod, frame)
        self.version, self.must_list, self._initial = version, False, {}

    # ---- the informer

    def _inform(self, type_: str, pod: Pod, frame: Frame) -> None:
        old = self.store.get(pod.name)
        assert old is None or old.pod is None or old.pod.uid == pod.uid, f"{frame} ends another pod: {old}"
        if type_ == "DELETED":
            self.store.pop(pod.name, None)
            self._deleted(pod, frame)
            return
        self.store[pod.name] = frame
        if old is None or old.pod is None:
            self._added(pod, frame)
        elif old.version != frame.version:
            self._updated(old.pod, pod, frame)

    # ---- queue and cache

    def _added(self, pod: Pod, frame: Frame) -> None:
        assert pod.node or pod.uid not in self.cache, f"unbound after bound: {frame}"
        if pod.node:
            self._bound(pod)
        elif pod.scheduler == OURS:
            self.queue[pod.uid] = frame.nominated

    def _updated(self, old: Pod, pod: Pod, frame: Frame) -> None:
        assert not old.node or old.node == pod.node, f"the scheduler exits, its cache is corrupted: {frame}"
        if pod.node:
            self._bound(pod)
        elif pod.scheduler == OURS and pod.uid not in self.assumed:
            self.queue[pod.uid] = frame.nominated

    def _bound(self, pod: Pod) -> None:
        self.queue.pop(pod.uid, None)
        self.assumed.discard(pod.uid)
        self.cache[pod.uid] = pod.node

    def _deleted(self, pod: Pod, frame: Frame) -> None:
        if pod.node:
            assert self.cache.get(pod.uid, pod.node) == pod.node, f"the scheduler exits: {frame}"
            self.cache.pop(pod.uid, None)
        else:
            assert pod.uid not in self.cache, f"unbound when it ends, but it was bound: {frame}"
            self.queue.pop(pod.uid, None)
            self.assumed.discard(pod.uid)

    # ---- bind calls

    def call_failed(self, uid: str) -> None:
        """Requeue a pod with its current state in the informer."""
        self.assumed.discard(uid)
        for frame in self.store.values():
            if frame.pod is not None and frame.pod.uid == uid and not frame.pod.node:
                self.queue[uid] = frame.nominated
