"""Pods as an API server stores them, for tests of the proxy's bytes."""

from copy import deepcopy
from typing import Any

Json = dict[str, Any]

MARK = {
    "name": "kube-muster",
    "resources": {
        "limits": {"kube-muster.io/ask": "1"},
        "requests": {"kube-muster.io/ask": "1", "cpu": "0", "memory": "0"},
    },
}
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


def pod(name: str = "train-1", version: str = "1001", node: str = "", **labels: str) -> Json:
    """Return a pod with texts that look like fields."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
            "labels": {"app": "train", **labels},
            "annotations": {"note": 'uid "resourceVersion":"7" nodeName ☃ \\ \n }]'},
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update"}],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "train:1",
                    "resources": {"requests": {"cpu": "4", "memory": "8Gi"}},
                }
            ],
            "schedulerName": "kube-muster",
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def bookmark(version: str, annotations: dict[str, str] | None = None) -> Json:
    annotation_field = {} if annotations is None else {"annotations": annotations}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "creationTimestamp": None, **annotation_field},
        "spec": {"containers": None},
        "status": {},
    }


def without_kind(obj: Json) -> Json:
    """Return an object without the fields that items of lists lack."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def expected(obj: Json, version: int | None = None, node: str = "", asks: bool = False) -> Json:
    """Return a pod with the three edits of the proxy, made on decoded JSON."""
    changed = deepcopy(obj)
    if version is not None:
        changed["metadata"]["resourceVersion"] = str(version)
    if node:
        changed.setdefault("status", {})["nominatedNodeName"] = node
    if asks:
        spec = changed.setdefault("spec", {})
        spec["initContainers"] = [*(spec.get("initContainers") or []), MARK]
    return changed
