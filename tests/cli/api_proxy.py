"""Proxy in proxy of the embedded API server, which adds rights of users, and workloads.

It answers access reviews and requests for workloads, and passes all other requests on.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.answering import Answering, HttpAnswer, HttpRequest
from tests.cli.cluster import Cluster, ago, kubeconfig

Json = dict[str, Any]
_OWN_GROUPS = (
    "batch",
    "apps",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "scheduling.x-k8s.io",
    "scheduling.k8s.io",
    "example.com",
)


class ApiProxy(Answering):
    """Proxy. `denied`, `denied_to_muster`: verbs and resources without a right, of the user and of Muster."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self._upstream = upstream
        self.denied: set[tuple[str, str]] = set()
        self.denied_to_muster: set[tuple[str, str]] = set()
        self.unreadable: set[str] = set()  # plural names
        self._collections: dict[str, list[Json]] = {}

    def workload(
        self,
        api_version: str,
        kind: str,
        name: str,
        owner: Json | None = None,
        labels: Json | None = None,
        annotations: Json | None = None,
        **fields: Any,
    ) -> Json:
        """Create a workload in namespace team, and return the owner reference for its dependents."""
        owners = {"ownerReferences": [owner]} if owner else {}
        meta = {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{kind}-{name}",
            "creationTimestamp": ago(days=1),
            "labels": labels or {},
            "annotations": annotations or {},
        }
        path = f"/apis/{api_version}/namespaces/team/{kind.lower()}s"
        self._collections.setdefault(path, []).append({"metadata": meta | owners, **fields})
        return {"apiVersion": api_version, "kind": kind, "name": name, "uid": meta["uid"], "controller": True}

    def install_muster(self) -> None:
        """Add Muster's Deployment to the list of all namespaces."""
        template = {"spec": {"serviceAccountName": "muster", "containers": [{"name": "muster"}]}}
        meta = {"name": "muster", "namespace": "kube-muster"}
        deployment = {"metadata": meta, "spec": {"template": template}}
        self._collections["/apis/apps/v1/deployments"] = [deployment]

    def answer(self, request: HttpRequest) -> HttpAnswer:
        path = request.target.partition("?")[0]
        if path.endswith("subjectaccessreviews"):
            return HttpAnswer(201, self._review(json.loads(request.body)))
        if path.split("/")[-1] in self.unreadable:
            return _refusal(403, "Forbidden")
        if path == "/apis":
            return HttpAnswer(200, self._groups())
        if path.split("/")[2] in _OWN_GROUPS:
            return self._read(path)
        return self._pass_on(request)

    def _review(self, review: Json) -> bytes:
        attributes = review["spec"]["resourceAttributes"]
        denied = self.denied_to_muster if "user" in review["spec"] else self.denied
        allowed = (attributes["verb"], attributes["resource"]) not in denied
        return json.dumps({**review, "status": {"allowed": allowed}}).encode()

    def _groups(self) -> bytes:
        versions = {path.split("/")[2]: path.split("/")[3] for path in self._collections}
        groups = [
            {"name": name, "preferredVersion": {"version": version}} for name, version in versions.items()
        ]
        return json.dumps({"kind": "APIGroupList", "groups": groups}).encode()

    def _read(self, path: str) -> HttpAnswer:
        if path in self._collections:
            return HttpAnswer(200, json.dumps({"metadata": {}, "items": self._collections[path]}).encode())
        collection, _, name = path.rpartition("/")
        objects = [obj for obj in self._collections.get(collection, ()) if obj["metadata"]["name"] == name]
        return HttpAnswer(200, json.dumps(objects[0]).encode()) if objects else _refusal(404, "NotFound")

    def _pass_on(self, request: HttpRequest) -> HttpAnswer:
        method, target, request_headers, body = request
        headers = {"Content-Type": request_headers["Content-Type"]} if body else {}
        forwarded = urllib.request.Request(self._upstream + target, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(forwarded, timeout=30) as answer:
                return HttpAnswer(answer.status, answer.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return HttpAnswer(refusal.code, refusal.read())


def _refusal(code: int, reason: str) -> HttpAnswer:
    status = {"kind": "Status", "code": code, "reason": reason, "message": reason}
    return HttpAnswer(code, json.dumps(status).encode())


@contextmanager
def in_front_of(cluster: Cluster) -> Iterator[ApiProxy]:
    """Yield a proxy that gets the requests of the cluster's commands."""
    with ApiProxy(cluster.server.url) as proxy:
        cluster.kubeconfig.write_text(json.dumps(kubeconfig(proxy.url)))
        yield proxy
