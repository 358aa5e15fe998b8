"""Copies of Volcano Jobs and their pods, including writes that the watch has not shown yet.

As soon as the API server answers, a created pod counts, and a deleted pod counts as terminating. A watch that
lags therefore leads to no second creation or deletion.

Pods are found by the UID of their owner, whatever their names. The watch may show a pod before its job. The
copy of a pod stays until the pod is gone.

Any user can write any UID as the owner of a pod. Two kinds of pods therefore do not count: pods of other
namespaces, and pods whose name does not follow from their task and index. So no user can add a pod to a job
that has all its pods.
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

_WATCH_TIMEOUT = 60.0  # seconds after which a created pod counts as gone if the watch has not shown it


class LostPod(NamedTuple):
    """Pod that is gone although Muster did not delete it."""

    owner: Uid
    pod: JobPod


class _CreatedPod(NamedTuple):
    pod: JobPod | None  # None until the API server has answered
    created_at: float  # monotonic time in seconds


class _Pods:
    """Pods of one job.

    Attributes:
        shown_pods: Pods that the watch has shown, by UID.
        created_pods: Created pods that the watch has not shown yet, by name.
        deleted_uids: UIDs of pods that Muster has deleted.
        gone_uids: UIDs of pods that were gone before Muster got the answer to their creation.
    """

    __slots__ = ("created_pods", "deleted_uids", "gone_uids", "shown_pods")

    def __init__(self) -> None:
        self.shown_pods: dict[str, JobPod] = {}
        self.created_pods: dict[str, _CreatedPod] = {}
        self.deleted_uids: set[str] = set()
        self.gone_uids: set[str] = set()

    @property
    def is_empty(self) -> bool:
        return not (self.shown_pods or self.created_pods)


class VolcanoCopies:
    """Copies of Volcano Jobs and their pods. Safe to use from any thread.

    It is also the sink of pods with the label of a Volcano Job. `on_change` gets the UID of each job whose
    pods have changed. `on_loss` gets each pod that is gone although Muster did not delete it.
    """

    def __init__(
        self,
        on_change: Callable[[Uid], object],
        on_loss: Callable[[LostPod], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_change, self._on_loss, self._clock = on_change, on_loss, clock
        self._lock = threading.Lock()
        self._jobs: dict[Uid, VolcanoJob] = {}
        self._pods: defaultdict[Uid, _Pods] = defaultdict(_Pods)  # keyed by the UID of their job
        self.obeyed_uids: dict[Uid, str] = {}  # UID of the last Command that each job has obeyed
        self._job_by_pod: dict[str, Uid] = {}  # jobs of the pods that the watch has shown, by UID of the pod

    def put(self, job: VolcanoJob) -> None:
        with self._lock:
            self._jobs[Uid(job.metadata.uid)] = job

    def record_write(self, old_copy: VolcanoJob, answer: VolcanoJob) -> None:
        """Store the `answer` to a write, unless the watch has replaced the copy `old_copy` meanwhile."""
        uid = Uid(answer.metadata.uid)
        with self._lock:
            if self._jobs.get(uid) is old_copy:
                self._jobs[uid] = answer

    def drop(self, uid: Uid) -> None:
        with self._lock:
            self._jobs.pop(uid, None)
            self.obeyed_uids.pop(uid, None)
            self._drop_if_empty(uid)

    def record_obeyed(self, uid: Uid, command: str) -> None:
        with self._lock:
            if uid in self._jobs:
                self.obeyed_uids[uid] = command

    def get(self, uid: Uid) -> VolcanoJob | None:
        return self._jobs.get(uid)

    def uids(self) -> list[Uid]:
        with self._lock:
            return list(self._jobs)

    def upsert(self, pod: AnyJob) -> None:
        """Store a pod that the watch has shown, under its job."""
        owner = controller_of(pod.metadata.owner_references)
        job_pod = pod_of(as_json(pod.metadata, pod.spec, pod.status))
        if owner is None or job_pod is None or self._job_by_pod.get(job_pod.uid, owner.uid) != owner.uid:
            meta = pod.metadata  # the pod may have belonged to another job before
            self.remove(Removed(meta.namespace, meta.name, meta.uid))
        if owner is None or job_pod is None:
            return
        uid = Uid(owner.uid)
        with self._lock:
            job_pods = self._pods[uid]
            job_pods.shown_pods[job_pod.uid] = job_pod
            self._job_by_pod[job_pod.uid] = uid
            if (created := job_pods.created_pods.get(job_pod.name)) is not None and created.pod is not None:
                del job_pods.created_pods[job_pod.name]
        self._on_change(uid)

    def remove(self, removed: Removed) -> None:
        """Forget a pod that is gone, and report its loss if Muster did not delete it."""
        with self._lock:
            if (uid := self._job_by_pod.pop(removed.uid, None)) is None:
                return
            job_pods = self._pods[uid]
            pod, is_our_deletion = job_pods.shown_pods.pop(removed.uid), removed.uid in job_pods.deleted_uids
            job_pods.deleted_uids.discard(removed.uid)
            if any(created.pod is None for created in job_pods.created_pods.values()):
                job_pods.gone_uids.add(removed.uid)
            self._drop_if_empty(uid)
        if not is_our_deletion and self._belongs_to_job(uid, pod):
            self._on_loss(LostPod(uid, pod))
        self._on_change(uid)

    def pods_of(self, uid: Uid) -> list[JobPod]:
        """Return the pods of a job, including created pods. Deleted pods are marked as deleting."""
        with self._lock:
            job_pods = self._pods.get(uid)
            if job_pods is None:
                return []
            oldest = self._clock() - _WATCH_TIMEOUT
            for name, copy in list(job_pods.created_pods.items()):
                if copy.pod is not None and copy.created_at < oldest:
                    del job_pods.created_pods[name]
            created = (copy.pod for copy in job_pods.created_pods.values() if copy.pod is not None)
            pods = [*job_pods.shown_pods.values(), *created]
            deleted_uids = job_pods.deleted_uids
            self._drop_if_empty(uid)
        return [
            replace(pod, is_deleting=True) if pod.uid in deleted_uids else pod
            for pod in pods
            if self._belongs_to_job(uid, pod)
        ]

    def begin_creation(self, uid: Uid, name: str) -> bool:
        """Record that a pod is about to be created; return False if this is already recorded."""
        with self._lock:
            copies = self._pods[uid].created_pods
            if name in copies:
                return False
            copies[name] = _CreatedPod(None, self._clock())
            return True

    def end_creation(self, uid: Uid, name: str, answer: Json | None) -> None:
        """Record the created or existing pod in the `answer`; None means that the creation failed."""
        pod = pod_of(answer) if answer is not None else None
        with self._lock:
            job_pods = self._pods[uid]
            job_pods.created_pods.pop(name, None)
            if pod is not None and pod.uid not in job_pods.shown_pods and pod.uid not in job_pods.gone_uids:
                job_pods.created_pods[name] = _CreatedPod(pod, self._clock())
            if all(copy.pod is not None for copy in job_pods.created_pods.values()):
                job_pods.gone_uids.clear()
            self._drop_if_empty(uid)

    def record_deletion(self, uid: Uid, pod: JobPod, has_succeeded: bool = True) -> None:
        with self._lock:
            deleted_uids = self._pods[uid].deleted_uids
            (deleted_uids.add if has_succeeded else deleted_uids.discard)(pod.uid)
            self._drop_if_empty(uid)

    def forget_writes(self) -> None:
        """Forget the writes of this replica, since another replica leads and the watch shows the results."""
        with self._lock:
            for uid, job_pods in list(self._pods.items()):
                job_pods.created_pods.clear()
                job_pods.deleted_uids.clear()
                job_pods.gone_uids.clear()
                self._drop_if_empty(uid)

    def _belongs_to_job(self, uid: Uid, pod: JobPod) -> bool:
        """Return whether the namespace and name of a pod fit its job; True if the job is unknown."""
        if (job := self._jobs.get(uid)) is None:
            return True
        meta = job.metadata
        return (pod.namespace, pod.name) == (meta.namespace, pod_name(meta.name, pod.task, pod.index))

    def _drop_if_empty(self, uid: Uid) -> None:
        if self._pods[uid].is_empty:
            del self._pods[uid]


def as_json(meta: Meta, spec: Json, status: Json) -> Json:
    return {"metadata": msgspec.to_builtins(meta), "spec": spec, "status": status}
