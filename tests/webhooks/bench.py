"""Bench of the tests of reviews: a reviewer with a small ledger, called as by the API server."""

import base64
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import LocalQueue, Queue
from extender.domain.admission.access import Subject
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.webhooks.lookups import LatestQueues, Sources
from extender.webhooks.reviews import NotKnown, Reviewer
from extender.webhooks.rules import AdmissionRules
from tests.domain.builders import NAMESPACE, SCHEDULER, queue

Json = dict[str, Any]
BATCH, VOLCANO = {"group": "batch", "kind": "Job"}, {"group": "batch.volcano.sh", "kind": "Job"}
ALICE = {"username": "alice", "groups": ["system:authenticated"]}
MUSTER = {"username": "system:serviceaccount:kube-muster:muster"}
CONTROLLER = {
    "username": "system:serviceaccount:kube-system:job-controller",
    "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system"],
}


class Roles:
    """Queues that subjects may use. `granted` is None if the API server does not answer."""

    def __init__(self) -> None:
        self.granted: set[tuple[str, str]] | None = set()
        self.asked: list[str] = []

    def may_use(self, subject: Subject, queue: str, timeout: float) -> bool:
        self.asked.append(subject.user)
        if self.granted is None:
            raise NotKnown("the API server is away")
        return (subject.user, queue) in self.granted


class Bench:
    """Reviewer with a ledger, and objects that the API server has and the watches do not show yet."""

    def __init__(self, schedulers: Iterable[str] = (SCHEDULER,)) -> None:
        names = tuple(schedulers)
        self.ledger = Ledger(Ownership(frozenset(names)))
        self.roles = Roles()
        self.synced = True
        self.runs_volcano_jobs = False
        self.newest: dict[str, Queue] = {}  # queues of the API server that the watch has not shown yet
        self.newest_local_queues: dict[str, LocalQueue] = {}
        self.newest_namespaces: dict[str, Namespace] = {}
        self.looked_up: list[str] = []
        self.queues_looked_up: list[str] = []
        self.away = False  # whether the API server does not answer
        self.slow = False  # whether a look-up takes its whole timeout
        self.now = 0.0
        sources = Sources(self._look_up, self._look_up_local_queue, self._look_up_namespace)
        latest = partial(LatestQueues, self.ledger, sources, lambda: self.now)
        rules = AdmissionRules(
            self.ledger,
            latest,
            self.roles.may_use,
            names,
            max_depth=5,
            runs_volcano_jobs=lambda: self.runs_volcano_jobs,
        )
        self.reviewer = Reviewer(rules.paths(), lambda: self.synced)

    def _look_up(self, name: str, timeout: float) -> Queue | None:
        self.looked_up.append(name)
        self.queues_looked_up.append(name)
        if self.slow:
            self.now += timeout
            self.newest[name] = queue(name, parent=f"{name}-parent")
        if self.away:
            raise NotKnown("the API server is away")
        return self.newest.get(name)

    def _look_up_local_queue(self, key: str, timeout: float) -> LocalQueue | None:
        self.looked_up.append(key)
        return self.newest_local_queues.get(key)

    def _look_up_namespace(self, name: str, timeout: float) -> Namespace | None:
        self.looked_up.append(name)
        return self.newest_namespaces.get(name)

    def ask(self, path: str, obj: Json | None, operation: str = "CREATE", **fields: Any) -> Json:
        """Review an object and return the response. `fields`: further fields of the request."""
        request = {
            "uid": "1",
            "operation": operation,
            "namespace": NAMESPACE,
            "object": obj,
            "userInfo": ALICE,
            **fields,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        return self.send(path, review)

    def send(self, path: str, review: Json) -> Json:
        response: Json = json.loads(self.reviewer.answer(path, json.dumps(review).encode()))["response"]
        return response

    def faults(self, path: str, obj: Json | None, operation: str = "CREATE", **fields: Any) -> list[str]:
        """Return the codes of a refusal; empty if the object is admitted."""
        answer = self.ask(path, obj, operation, **fields)
        causes = answer.get("status", {}).get("details", {}).get("causes", [])
        assert answer["allowed"] is not bool(causes)
        return [cause["reason"] for cause in causes]

    def patch(self, path: str, obj: Json) -> list[Json]:
        answer = self.ask(path, obj)
        assert answer["allowed"]
        return self.decoded(answer)

    @staticmethod
    def decoded(answer: Json) -> list[Json]:
        """Return the patch of an answer; empty without one."""
        operations: list[Json] = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
        return operations


def pod(queue: str = "", group: str = "", scheduler: str = SCHEDULER, **spec: Any) -> Json:
    annotations = {"scheduling.volcano.sh/queue-name": queue, "scheduling.k8s.io/group-name": group}
    retained = {key: value for key, value in annotations.items() if value}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {"name": "p", "annotations": retained},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
    }


def owned(obj: Json, kind: str, uid: str) -> Json:
    api = "batch/v1" if kind == "Job" else "apps/v1"
    owner = {"apiVersion": api, "kind": kind, "uid": uid, "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


def job(queue: str = "", group: str = "") -> Json:
    return {"metadata": {"name": "j"}, "spec": {"template": pod(queue, group)}}


def pod_group(queue: str = "", **spec: Any) -> Json:
    return {"metadata": {"name": "g"}, "spec": {"queue": queue, **spec}}
