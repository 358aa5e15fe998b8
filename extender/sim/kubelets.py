"""All kubelets, in one thread: they run bound pods, end pods, and confirm deletions.

These annotations and fields of a pod determine its end. Times pass `speed` times as fast as real time.

- `sim.kube-muster.io/run-seconds`: the pod succeeds after this run time. Without it, the pod never ends.
- `sim.kube-muster.io/fail`: the pod fails after its run time, or at once if it has none. A running pod may
  get this annotation at any time.
- activeDeadlineSeconds of the pod or its Job: the pod fails after this time.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from extender.api.keys import GPU
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import DEVICE_CLASSES, GIT_VERSION, PODS, RESOURCE_SLICES, Json, ResourceKind
from extender.apimachinery.objects import now, set_condition
from extender.apimachinery.service import Service
from extender.apimachinery.store import MAX_WAIT, Change, StoreFollower
from extender.files.offspring import DEADLINE_KEY

RUN_SECONDS = "sim.kube-muster.io/run-seconds"
FAIL = "sim.kube-muster.io/fail"


class Kubelets(StoreFollower):
    def __init__(
        self, service: Service, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(service.store, "kubelets", self._seconds_to_next_end)
        self._service = service
        self._speed = speed
        self._clock = clock
        self._start_times: dict[str, float] = {}  # start time of each running pod, by UID
        self._end_heap: list[tuple[float, str, str, str]] = []  # heap of end time, UID, namespace and name
        self._end_by_uid: dict[str, float] = {}  # current end time of each pod, by UID

    @property
    def busy(self) -> bool:
        """Return whether a pod will end by itself, or the store has changes that are not handled yet."""
        return bool(self._end_by_uid) or self.is_behind

    def _list_all(self) -> int:
        pods, version = self._store.listing(PODS)
        for uid in self._start_times.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._forget(uid)
        for pod in pods:
            self._sync_pod(pod)
        return version

    def _seconds_to_next_end(self) -> float:
        due = self._end_heap[0][0] - self._clock() if self._end_heap else MAX_WAIT
        return min(max(due, 0.0), MAX_WAIT)

    def _handle_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.kind is PODS and change.type == "DELETED":
                self._forget(change.object["metadata"]["uid"])
            elif change.kind is PODS:
                self._sync_pod(change.object)
        while self._end_heap and self._end_heap[0][0] <= self._clock():
            end, uid, namespace, name = heapq.heappop(self._end_heap)
            if self._end_by_uid.get(uid) != end:
                continue
            del self._end_by_uid[uid]
            pod = self._service.store.get(PODS, namespace, name)
            if pod and pod["metadata"]["uid"] == uid and pod["status"]["phase"] == "Running":
                with suppress(StatusError):
                    self._service.set_status(PODS, pod["metadata"], _ended_status)

    def _forget(self, uid: str) -> None:
        self._start_times.pop(uid, None)
        self._end_by_uid.pop(uid, None)

    def _sync_pod(self, pod: Json) -> None:
        """Start a pod on its node, plan its end, or confirm its deletion.

        Each of these writes leads to another change of the pod.
        """
        if not pod["spec"].get("nodeName"):
            return
        with suppress(StatusError):
            meta, phase = pod["metadata"], pod["status"]["phase"]
            if "deletionTimestamp" in meta:  # confirm the deletion
                self._service.delete_this(PODS, meta, gracePeriodSeconds=0)
            elif phase == "Pending":
                self._start_times[meta["uid"]] = self._clock()
                self._service.set_status(PODS, meta, _running_status)
            elif phase == "Running":  # after each change, because its annotations may change
                since, ending = self._start_times.setdefault(meta["uid"], self._clock()), ending_of(pod)
                end = since + ending.seconds / self._speed if ending else None
                if end is not None and self._end_by_uid.get(meta["uid"]) != end:
                    self._end_by_uid[meta["uid"]] = end
                    heapq.heappush(self._end_heap, (end, meta["uid"], meta["namespace"], meta["name"]))


class PodEnding(NamedTuple):
    """End of a pod, `seconds` after its start. `reason` is empty unless the pod exceeds its deadline."""

    seconds: float
    fails: bool
    reason: str = ""


def ending_of(pod: Json, run_seconds: float | None = None) -> PodEnding | None:
    """Return the end of a pod; None if the pod never ends. `run_seconds` is the default run time."""
    annotations = pod["metadata"].get("annotations") or {}
    run_time, fails = _as_seconds(annotations.get(RUN_SECONDS)), (annotations.get(FAIL) or "false") != "false"
    if run_time is None:
        run_time = 0.0 if fails else run_seconds
    limits = (pod["spec"].get("activeDeadlineSeconds"), annotations.get(DEADLINE_KEY))
    deadline = min((seconds for limit in limits if (seconds := _as_seconds(limit)) is not None), default=None)
    if deadline is not None and (run_time is None or run_time > deadline):
        return PodEnding(deadline, fails=True, reason="DeadlineExceeded")
    return None if run_time is None else PodEnding(run_time, fails)


def _as_seconds(value: Any) -> float | None:
    """Return a number of seconds; None if the value is missing or invalid."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


# ---- statuses written by kubelets


def _running_status(pod: Json) -> Json:
    state = {"running": {"startedAt": now()}}
    status = {**pod["status"], "phase": "Running", "startTime": now()}
    for type_ in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
        set_condition(status, {"type": type_, "status": "True", "lastTransitionTime": now()})
    return {**status, "containerStatuses": _container_statuses(pod, state, is_ready=True)}


def _ended_status(pod: Json) -> Json:
    ending = ending_of(pod)
    has_failed, reason = (ending.fails, ending.reason) if ending else (False, "")
    exit_fields = {"exitCode": 1, "reason": "Error"} if has_failed else {"exitCode": 0, "reason": "Completed"}
    state = {"terminated": {**exit_fields, "startedAt": pod["status"].get("startTime"), "finishedAt": now()}}
    status = {**pod["status"], "phase": "Failed" if has_failed else "Succeeded"}
    status |= {"reason": reason} if reason else {}
    for type_ in ("Ready", "ContainersReady"):
        not_ready = {"type": type_, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now()}
        set_condition(status, not_ready)
    return {**status, "containerStatuses": _container_statuses(pod, state, is_ready=False)}


def _container_statuses(pod: Json, state: Json, *, is_ready: bool) -> list[Json]:
    fields = {"ready": is_ready, "started": is_ready, "restartCount": 0, "imageID": ""}
    return [
        {"name": container["name"], "image": container.get("image", ""), "state": state, **fields}
        for container in pod["spec"]["containers"]
    ]


def devices_of(nodes: Iterable[str], name: str, number: int) -> Iterator[tuple[ResourceKind, Json]]:
    """Yield a DeviceClass, and for each node a slice with `number` devices of this class."""
    driver = f"{name}.example.com"
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    yield DEVICE_CLASSES, {"metadata": {"name": name}, "spec": {"selectors": [selector]}}
    devices = [{"name": f"{name}-{index}"} for index in range(number)]
    for node in nodes:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        yield RESOURCE_SLICES, {"metadata": {"name": f"{node}-{name}"}, "spec": spec}


def node(name: str, cpu: str, memory: str, gpu: int = 0) -> Json:
    """Return a ready node. It has no GPU resource if `gpu` is 0."""
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    capacity |= {GPU: str(gpu)} if gpu else {}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    info = {"kubeletVersion": GIT_VERSION}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready], "nodeInfo": info}
    return {"metadata": {"name": name}, "spec": {}, "status": status}
