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
from extender.apimachinery.store import LONGEST_WAIT, Change, StoreFollower
from extender.files.offspring import DEADLINE

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
        self._running: dict[str, float] = {}  # start time of each running pod, by UID
        self._ends: list[tuple[float, str, str, str]] = []  # heap of end time, UID, namespace and name
        self._end_of: dict[str, float] = {}  # current end time of each pod, by UID

    @property
    def busy(self) -> bool:
        """Return whether a pod will end by itself, or the store has changes that are not handled yet."""
        return bool(self._end_of) or self.is_behind

    def _list_all(self) -> int:
        pods, version = self._store.listing(PODS)
        for uid in self._running.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._forget(uid)
        for pod in pods:
            self._sync_pod(pod)
        return version

    def _seconds_to_next_end(self) -> float:
        due = self._ends[0][0] - self._clock() if self._ends else LONGEST_WAIT
        return min(max(due, 0.0), LONGEST_WAIT)

    def _handle_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.kind is PODS and change.type == "DELETED":
                self._forget(change.object["metadata"]["uid"])
            elif change.kind is PODS:
                self._sync_pod(change.object)
        while self._ends and self._ends[0][0] <= self._clock():
            at, uid, namespace, name = heapq.heappop(self._ends)
            if self._end_of.get(uid) != at:
                continue
            del self._end_of[uid]
            pod = self._service.store.get(PODS, namespace, name)
            if pod and pod["metadata"]["uid"] == uid and pod["status"]["phase"] == "Running":
                with suppress(StatusError):
                    self._service.set_status(PODS, pod["metadata"], _ended_status)

    def _forget(self, uid: str) -> None:
        self._running.pop(uid, None)
        self._end_of.pop(uid, None)

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
                self._running[meta["uid"]] = self._clock()
                self._service.set_status(PODS, meta, _running_status)
            elif phase == "Running":  # after each change, because its annotations may change
                since, ending = self._running.setdefault(meta["uid"], self._clock()), ending_of(pod)
                at = since + ending.seconds / self._speed if ending else None
                if at is not None and self._end_of.get(meta["uid"]) != at:
                    self._end_of[meta["uid"]] = at
                    heapq.heappush(self._ends, (at, meta["uid"], meta["namespace"], meta["name"]))


class PodEnding(NamedTuple):
    """End of a pod, `seconds` after its start. `reason` is only set if the pod exceeds its deadline."""

    seconds: float
    fails: bool
    reason: str = ""


def ending_of(pod: Json, run_seconds: float | None = None) -> PodEnding | None:
    """Return the end of a pod; None if the pod never ends. `run_seconds` is the default run time."""
    annotations = pod["metadata"].get("annotations") or {}
    runs, fails = _seconds(annotations.get(RUN_SECONDS)), annotations.get(FAIL, "false") not in ("false", "")
    if runs is None:
        runs = 0.0 if fails else run_seconds
    limits = (pod["spec"].get("activeDeadlineSeconds"), annotations.get(DEADLINE))
    deadline = min((seconds for limit in limits if (seconds := _seconds(limit)) is not None), default=None)
    if deadline is not None and (runs is None or runs > deadline):
        return PodEnding(deadline, fails=True, reason="DeadlineExceeded")
    return None if runs is None else PodEnding(runs, fails)


def _seconds(value: Any) -> float | None:
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
    return {**status, "containerStatuses": _containers(pod, state, ready=True)}


def _ended_status(pod: Json) -> Json:
    ending = ending_of(pod)
    failed, reason = (ending.fails, ending.reason) if ending else (False, "")
    result = {"exitCode": 1, "reason": "Error"} if failed else {"exitCode": 0, "reason": "Completed"}
    state = {"terminated": {**result, "startedAt": pod["status"].get("startTime"), "finishedAt": now()}}
    status = {**pod["status"], "phase": "Failed" if failed else "Succeeded"}
    status |= {"reason": reason} if reason else {}
    for type_ in ("Ready", "ContainersReady"):
        not_ready = {"type": type_, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now()}
        set_condition(status, not_ready)
    return {**status, "containerStatuses": _containers(pod, state, ready=False)}


def _containers(pod: Json, state: Json, *, ready: bool) -> list[Json]:
    fields = {"ready": ready, "started": ready, "restartCount": 0, "imageID": ""}
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
