"""Copies of Volcano Jobs and their pods, with the writes that the watch has not shown yet.

A created pod counts from the API server's answer on, and a deleted one as terminating: so a lagging watch
leads to no second creation or deletion. Pods are found by the UID of their owner, whatever their names; pods
may be seen before their job, and are kept until they are gone. Any user can write any UID into a pod of their
own: so pods of other namespaces do not count, nor those whose name does not follow from their task and index,
and no user can add a pod to a job that has all its pods.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.volcano import Json, VolcanoJob
from extender.domain.model.ownership import controller_of
from extender.domain.model.records import Uid
from extender.domain.snapshot.jobs import AnyJob
from extender.kube.reflector import Removed
from extender.volcano.pods import JobPod, pod_name, pod_of

_SHOWN = 60.0  # seconds after which a created pod that the watch has not shown counts as gone


class LostPod(NamedTuple):
    """Pod that is gone and that Muster did not delete."""

    owner: Uid
    pod: JobPod


class _Made(NamedTuple):
    pod: JobPod | None  # None: the API server has not answered yet
    at: float  # monotonic, in seconds


class _Pods:
    """Pods of one job, by UID, and created ones that are not shown yet, by name."""

    __slots__ = ("deleted", "gone", "made", "shown")

    def __init__(self) -> None:
        self.shown: dict[str, JobPod] = {}
        self.made: dict[str, _Made] = {}
        self.deleted: set[str] = set()  # UIDs of pods that Muster deleted
        self.gone: set[str] = set()  # UIDs of pods that were gone before the answer to their creation

    @property
    def empty(self) -> bool:
        return not (self.shown or self.made)


class VolcanoCopies:
    """Copies, safe in any thread, and the sink of the pods with the label of a Volcano Job.

    `on_change` is called with the UID of a job whose pods have changed, `on_loss` with pods that Muster did
    not delete.
    """

    def __init__(
        self,
        on_change: Callable[[Uid], object],
        on_loss: Callable[[LostPod], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed, self._lost, self._clock = on_change, on_loss, clock
        self._lock = threading.Lock()
        self._jobs: dict[Uid, VolcanoJob] = {}
        self._pods: defaultdict[Uid, _Pods] = defaultdict(_Pods)  # by the UID of their job
        self.obeyed: dict[Uid, str] = {}  # by job, the UID of the last Command that it has obeyed
        self._owners: dict[str, Uid] = {}  # owners of the pods that the watch has shown

    def put(self, job: VolcanoJob) -> None:
        with self._lock:
            self._jobs[Uid(job.metadata.uid)] = job

    def record_write(self, before: VolcanoJob, answer: VolcanoJob) -> None:
        """Record the `answer` to a write on `before`, unless the watch has shown a newer copy."""
        uid = Uid(answer.metadata.uid)
        with self._lock:
            if self._jobs.get(uid) is before:
                self._jobs[uid] = answer

    def drop(self, uid: Uid) -> None:
        with self._lock:
            self._jobs.pop(uid, None)
            self.obeyed.pop(uid, None)
            self._drop_if_empty(uid)

    def record_obeyed(self, uid: Uid, command: str) -> None:
        with self._lock:
            if uid in self._jobs:
                self.obeyed[uid] = command

    def get(self, uid: Uid) -> VolcanoJob | None:
        return self._jobs.get(uid)

    def uids(self) -> list[Uid]:
        with self._lock:
            return list(self._jobs)

    def upsert(self, pod: AnyJob) -> None:
        owner = controller_of(pod.metadata.owner_references)
        found = pod_of(as_json(pod.metadata, pod.spec, pod.status))
        if owner is None or found is None or self._owners.get(found.uid, owner.uid) != owner.uid:
            meta = pod.metadata  # the pod may have belonged to a job before
            self.remove(Removed(meta.namespace, meta.name, meta.uid))
        if owner is None or found is None:
            return
        uid = Uid(owner.uid)
        with self._lock:
            job_pods = self._pods[uid]
            job_pods.shown[found.uid] = found
            self._owners[found.uid] = uid
            if (copy := job_pods.made.get(found.name)) is not None and copy.pod is not None:
                del job_pods.made[found.name]
        self._changed(uid)

    def remove(self, gone: Removed) -> None:
        with self._lock:
            if (uid := self._owners.pop(gone.uid, None)) is None:
                return
            job_pods = self._pods[uid]
            pod, is_ours = job_pods.shown.pop(gone.uid), gone.uid in job_pods.deleted
            job_pods.deleted.discard(gone.uid)
            if any(copy.pod is None for copy in job_pods.made.values()):
                job_pods.gone.add(gone.uid)
            self._drop_if_empty(uid)
        if not is_ours and self._is_of(uid, pod):
            self._lost(LostPod(uid, pod))
        self._changed(uid)

    def pods_of(self, uid: Uid) -> list[JobPod]:
        with self._lock:
            job_pods = self._pods.get(uid)
            if job_pods is None:
                return []
            oldest = self._clock() - _SHOWN
            for name, copy in list(job_pods.made.items()):
                if copy.pod is not None and copy.at < oldest:
                    del job_pods.made[name]
            created = (copy.pod for copy in job_pods.made.values() if copy.pod is not None)
            pods = [*job_pods.shown.values(), *created]
            deleted = job_pods.deleted
            self._drop_if_empty(uid)
        return [
            replace(pod, deleting=True) if pod.uid in deleted else pod
            for pod in pods
            if self._is_of(uid, pod)
        ]

    def begin_creation(self, uid: Uid, name: str) -> bool:
        """Record that a pod of this name is about to be created; return False if that is already recorded."""
        with self._lock:
            copies = self._pods[uid].made
            if name in copies:
                return False
            copies[name] = _Made(None, self._clock())
            return True

    def end_creation(self, uid: Uid, name: str, answer: Json | None) -> None:
        """Record the created or existing pod in the `answer`; None: the creation failed."""
        pod = pod_of(answer) if answer is not None else None
        with self._lock:
            job_pods = self._pods[uid]
            job_pods.made.pop(name, None)
            if pod is not None and pod.uid not in job_pods.shown and pod.uid not in job_pods.gone:
                job_pods.made[name] = _Made(pod, self._clock())
            if all(copy.pod is not None for copy in job_pods.made.values()):
                job_pods.gone.clear()
            self._drop_if_empty(uid)

    def record_deletion(self, uid: Uid, pod: JobPod, succeeded: bool = True) -> None:
        with self._lock:
            deleted = self._pods[uid].deleted
            (deleted.add if succeeded else deleted.discard)(pod.uid)
            self._drop_if_empty(uid)

    def forget_writes(self) -> None:
        """Forget own writes: another replica leads, and the watch has shown them."""
        with self._lock:
            for uid, job_pods in list(self._pods.items()):
                job_pods.made.clear()
                job_pods.deleted.clear()
                job_pods.gone.clear()
                self._drop_if_empty(uid)

    def _is_of(self, uid: Uid, pod: JobPod) -> bool:
        if (job := self._jobs.get(uid)) is None:
            return True
        meta = job.metadata
        return (pod.namespace, pod.name) == (meta.namespace, pod_name(meta.name, pod.task, pod.index))

    def _drop_if_empty(self, uid: Uid) -> None:
        if self._pods[uid].empty:
            del self._pods[uid]


def as_json(meta: Meta, spec: Json, status: Json) -> Json:
    return {"metadata": msgspec.to_builtins(meta), "spec": spec, "status": status}
