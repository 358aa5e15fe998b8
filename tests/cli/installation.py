"""API server with one installation of Muster, made from the repository's manifests.

It answers the requests of `muster check` from a table of objects, which tests change. A real API server is
used in tests/e2e/test_cli.py; this one also has running pods, a wrong clock, and other schedulers.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import yaml

from extender.kube import resources
from tests.answering import Answering, HttpAnswer, HttpRequest

PLURALS = {var.plural for var in vars(resources).values() if isinstance(var, resources.Resource)}
MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "kube-muster"
LABEL = "app.kubernetes.io/part-of"
METRICS = "muster_leader 1.0\nmuster_scheduler_never_called 0.0\n"
PROXY = f"/api/v1/namespaces/{NAMESPACE}/pods/muster-1:8282/proxy"
Json = dict[str, Any]


class Installation(Answering):
    """Installation. `objects`: by the path of their collection. `pages`: answers for other paths."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, list[Json]] = {}
        self.pages: dict[str, tuple[int, str]] = {"/version": (200, _version("1.36"))}
        self.denied: set[tuple[str, str]] = set()  # rights that Muster's account lacks: verb, resource
        self.forbidden: set[str] = set()  # plural names that the user may not read
        self.ahead = timedelta()  # difference of the API server's clock from this machine's

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def of(self, plural: str) -> list[Json]:
        """Return the list of objects of a kind, which tests change in place."""
        paths = [path for path in self.objects if path.endswith(f"/{plural}")]
        return self.objects[paths[0]] if paths else []

    def install(self, variant: str = "sidecar") -> None:
        for path in (
            *MANIFESTS.glob("crds/*.yaml"),
            MANIFESTS / "marks.yaml",
            *sorted((MANIFESTS / variant).glob("*.yaml")),
        ):
            if path.name != "kustomization.yaml":
                self._apply(path)
        for crd in self.of("customresourcedefinitions"):
            crd["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        if variant == "sidecar":
            self._configure_scheduler()

    def gates(self) -> None:
        """Apply the component `gates`, before `run`."""
        self._apply(MANIFESTS / "gates" / "admission-policy.yaml")
        [component] = documents(MANIFESTS / "gates" / "kustomization.yaml")
        [patch] = component["patches"]
        (workload,) = self.of("deployments")
        _merge(workload, yaml.load(patch["patch"], yaml.CSafeLoader))

    def _apply(self, path: Path) -> None:
        for obj in documents(path):
            self.put(obj)

    def _configure_scheduler(self) -> None:
        """Add the ConfigMap of the overlay."""
        folder = MANIFESTS.parent / "scheduler-config"
        data = {path.name: path.read_text() for path in folder.glob("sidecar*.yaml")}
        meta = {"name": "muster-scheduler-config", "namespace": NAMESPACE}
        self.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def put(self, obj: Json, plural: str = "") -> Json:
        namespace = obj["metadata"].get("namespace")
        root = f"/apis/{obj['apiVersion']}" if "/" in obj["apiVersion"] else f"/api/{obj['apiVersion']}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        self.objects.setdefault(f"{root}{scope}/{plural or _plural(obj['kind'])}", []).append(obj)
        return obj

    def run(self) -> None:
        """Simulate one replica that is ready, leads, and gets calls of the scheduler."""
        (workload,) = [*self.of("deployments"), *self.of("daemonsets")]
        workload["spec"]["replicas"] = 1
        workload["status"] = {"readyReplicas": 1, "desiredNumberScheduled": 1, "numberReady": 1}
        if workload["kind"] == "Deployment":
            del workload["status"]["desiredNumberScheduled"], workload["status"]["numberReady"]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        meta = {"name": "muster-1", "namespace": workload["metadata"]["namespace"], "labels": labels}
        spec = {**workload["spec"]["template"]["spec"], "nodeName": "n0"}
        status = {"phase": "Running"}
        self.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})
        self.pages[f"{PROXY}/metrics"] = (200, METRICS)
        self.pages[f"{PROXY}/readyz"] = (200, "[+]ping ok\nreadyz check passed\n")

    def lease(self, namespace: str, name: str, holder: str, age: float = 2) -> None:
        renewed = (self.now - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
        meta = {"name": name, "namespace": namespace}
        self.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    # ---- answers

    def answer(self, request: HttpRequest) -> HttpAnswer:
        status, text = self._answer(urlsplit(request.target), json.loads(request.body or "{}"))
        return HttpAnswer(status, text.encode(), {"Date": format_datetime(self.now, usegmt=True)})

    def _answer(self, url: SplitResult, body: Json) -> tuple[int, str]:
        if url.path in self.pages:
            return self.pages[url.path]
        if url.path.endswith("/subjectaccessreviews"):
            attributes = body["spec"]["resourceAttributes"]
            allowed = (attributes["verb"], attributes["resource"]) not in self.denied
            return 201, json.dumps({**body, "status": {"allowed": allowed}})
        if any(re.search(rf"/{plural}(/|$)", url.path) for plural in self.forbidden):
            return 403, json.dumps({"kind": "Status", "code": 403, "message": "you may not"})
        return self._read(url.path, parse_qs(url.query).get("labelSelector", [""])[0])

    def _read(self, path: str, selector: str) -> tuple[int, str]:
        collection, _, name = path.rpartition("/")
        if name in PLURALS or path in self.objects:
            return 200, json.dumps({"metadata": {}, "items": self._selected(path, selector)})
        objects = [obj for obj in self.objects.get(collection, ()) if obj["metadata"]["name"] == name]
        missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"no {name}"}
        return (200, json.dumps(objects[0])) if objects else (404, json.dumps(missing))

    def _selected(self, path: str, selector: str) -> list[Json]:
        """Return the selected objects without their kind, as in lists of a real API server."""
        return [
            {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
            for obj in self.objects.get(path, ())
            if _has(obj["metadata"].get("labels") or {}, selector)
        ]


def documents(path: Path) -> list[Json]:
    """Return new copies of the objects of a file."""
    objects: list[Json] = json.loads(_as_json(path))
    return objects


@cache
def _as_json(path: Path) -> str:
    """Return the objects of a file as JSON, which is faster to parse for each test than YAML."""
    return json.dumps(
        [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]
    )


def _has(labels: Json, selector: str) -> bool:
    """Return whether labels match a selector: `key=value`, or a key alone."""
    key, equals, value = selector.partition("=")
    return not selector or (labels.get(key) == value if equals else key in labels)


def _merge(target: Json, patch: Json) -> None:
    """Merge a patch as kustomize does: items with a known key are merged or deleted, others replaced."""
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(target[name], value)
        elif isinstance(value, list) and isinstance(value[0], dict):
            _merge_lists(target[name], value)
        else:
            target[name] = value


def _merge_lists(targets: list[Json], patches: list[Json]) -> None:
    for patch in patches:
        key = "mountPath" if "mountPath" in patch else "name"
        (target,) = [item for item in targets if item.get(key) == patch[key]]
        if patch.get("$patch") == "delete":
            targets.remove(target)
        else:
            _merge(target, patch)


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def _version(minor: str) -> str:
    return json.dumps({"major": "1", "minor": minor.partition(".")[2], "gitVersion": f"v{minor}.3"})


def older(minor: str) -> tuple[int, str]:
    return 200, _version(minor)


def gated_installation() -> Iterator[Installation]:
    """Yield a healthy sidecar installation whose pods wait behind gates."""
    with Installation() as installation:
        installation.install()
        installation.gates()
        installation.run()
        installation.lease("kube-system", "muster-scheduler", "muster-1_5ec7")
        yield installation
