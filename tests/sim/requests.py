"""Requests of users, sent by Muster's own connection, with bodies and answers in JSON."""

import json
from typing import Any

from extender.apimachinery.kinds import LEASES
from extender.apimachinery.store import Store
from extender.kube.connection import Connection
from tests.e2e.harness import objects

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
NODES = "/api/v1/nodes"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def ask(connection: Connection, method: str, path: str, body: Any = None, **options: Any) -> Any:
    """Send a request and return the JSON of the answer. `options`: as for Connection.request."""
    data = None if body is None else json.dumps(body).encode()
    return json.loads(connection.request(method, path, body=data, **options))


def get(connection: Connection, path: str, **query: str | int) -> Any:
    return ask(connection, "GET", path, query=query)


def create(connection: Connection, path: str, body: Json) -> Json:
    created: Json = ask(connection, "POST", path, body)
    return created


def patch(connection: Connection, path: str, body: Any, content_type: str = MERGE) -> Json:
    changed: Json = ask(connection, "PATCH", path, body, content_type=content_type)
    return changed


def names(listed: Json) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def pod(name: str = "a", **options: Any) -> Json:
    """Return a pod, by default of the embedded scheduler."""
    return objects.pod(name, namespace="default", **{"scheduler": "default-scheduler", **options})


GPU_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: learner, namespace: default}
spec:
  schedulerName: muster
  containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def overflow_log(store: Store) -> None:
    """Write more changes than the log of the store holds."""
    with store:
        for _ in range(50_000):
            store.put(LEASES, {"metadata": {"namespace": "default", "name": "renewed"}})
