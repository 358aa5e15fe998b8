"""Simulated kubelets of all nodes. They set bound pods to Running, and confirm deletions.

A test can make the kubelets refuse pods at admission, can finish pods, and can turn the kubelets off. After
they are turned on again, the kubelets handle all changes that happened meanwhile.
"""

import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import urllib3

from tests.e2e.harness.client import STRATEGIC, Client
from tests.e2e.harness.follower import Follower
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
PodPredicate = Callable[[Json], bool]
WORKERS = 4
CONFLICTS = (404, 409)


class Kubelet:
    """Simulated kubelets: `with Kubelet(client) as kubelet: kubelet.refuse("a-0"); ...`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods = Follower(client, PODS, self._enqueue)
        self._queued_uids: queue.Queue[str | None] = queue.Queue()
        self._is_on = threading.Event()
        self._is_on.set()
        self._refused_pods: list[PodPredicate] = []
        self._pods_without_image: set[str] = set()
        self._threads = [
            threading.Thread(target=self._run, name=f"kubelet-{n}", daemon=True) for n in range(WORKERS)
        ]

    def __enter__(self) -> "Kubelet":
        for thread in self._threads:
            thread.start()
        self._pods.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pods.stop()
        self._is_on.set()
        for _thread in self._threads:
            self._queued_uids.put(None)
        for thread in self._threads:
            thread.join()

    def off(self) -> None:
        """Turn the kubelets off. Bound pods then stay Pending, and deleted pods stay terminating."""
        self._is_on.clear()

    def on(self) -> None:
        self._is_on.set()

    def refuse(self, pods: str | PodPredicate) -> None:
        """Reject these pods at admission, after a scheduler has bound the pods.

        `pods` is the name of one pod, or a function that returns whether a given pod is rejected.
        """
        if isinstance(pods, str):
            self._refused_pods.append(lambda pod: bool(pod["metadata"]["name"] == pods))
        else:
            self._refused_pods.append(pods)

    def refuse_none(self) -> None:
        """Accept all pods again."""
        self._refused_pods.clear()

    def pull(self, *names: str) -> None:
        """Keep these pods Pending after binding, as if the node could not pull their images."""
        self._pods_without_image.update(names)

    def finish(
        self, namespace: str, names: Iterable[str], phase: str = "Succeeded", code: int | None = None
    ) -> None:
        """End running pods with a phase.

        `code` is the exit code. By default, the code is 0 for the phase Succeeded, and 1 for Failed.
        """
        container_status = _container_status(_terminated_state(phase, code))
        for name in names:
            self._patch(namespace, name, {"phase": phase, "containerStatuses": [container_status]})

    def _enqueue(self, kind: str, pod: Json, _version: int) -> None:
        """Queue a pod for the workers, if the pod is bound to a node and was not deleted."""
        if kind != "DELETED" and pod["spec"].get("nodeName"):
            self._queued_uids.put(pod["metadata"]["uid"])

    def _run(self) -> None:
        while (uid := self._queued_uids.get()) is not None:
            self._is_on.wait()
            if (pod := self._pods.known.get(uid)) is not None:
                self._advance_or_retry(pod)

    def _advance_or_retry(self, pod: Json) -> None:
        """Advance a pod. If the API server is down, try again later.

        A conflict needs no retry, since an event with the newer state of the pod follows.
        """
        try:
            self._advance(pod)
        except ApiError as error:
            if error.status not in CONFLICTS:
                self._try_again_later(pod)
        except (urllib3.exceptions.HTTPError, OSError):
            self._try_again_later(pod)

    def _advance(self, pod: Json) -> None:
        """Take the next step of a pod: confirm its deletion, set it to Running, or reject it."""
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        if "deletionTimestamp" in metadata:
            if metadata.get("finalizers") and phase not in ("Succeeded", "Failed"):
                # Kubelets write the final phase before they delete a pod, since 1.27.
                self.finish(metadata["namespace"], [metadata["name"]], "Failed")
            self._client.delete(PODS, metadata["name"], metadata["namespace"], grace=0)
        elif phase == "Pending" and metadata["name"] not in self._pods_without_image:
            is_refused = any(matches(pod) for matches in list(self._refused_pods))
            self._patch(
                metadata["namespace"],
                metadata["name"],
                _refusal_status(pod) if is_refused else _running_status(),
            )

    def _try_again_later(self, pod: Json) -> None:
        timer = threading.Timer(0.2, self._queued_uids.put, [pod["metadata"]["uid"]])
        timer.daemon = True
        timer.start()

    def _patch(self, namespace: str, name: str, status: Json) -> None:
        with suppress(KeyError):
            self._client.patch(PODS, name, {"status": status}, namespace, "status", STRATEGIC)


def _running_status() -> Json:
    now = _now()
    kinds = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [_container_status({"running": {"startedAt": now}}, ready=True)],
    }


def _refusal_status(pod: Json) -> Json:
    """Return the status that a real kubelet writes when the node has too little capacity for a pod.

    The status has no containers, since no container was ever started.
    """
    node = pod["spec"]["nodeName"]
    message = f"Pod was rejected: Node {node} didn't have enough resource: cpu"
    return {"phase": "Failed", "reason": "OutOfcpu", "message": message, "startTime": _now()}


def _terminated_state(phase: str, code: int | None) -> Json:
    """Return the state of an ended container. Without `code`, the phase determines the exit code."""
    if code is None:
        code = 0 if phase == "Succeeded" else 1
    return {
        "terminated": {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "finishedAt": _now(),
        }
    }


def _container_status(state: Json, *, ready: bool = False) -> Json:
    return {
        "name": "main",
        "state": state,
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
