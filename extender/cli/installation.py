"""An installation of Muster as the API server shows it: its objects, and the settings of `muster serve`."""

import http.client
from functools import cached_property
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from extender.api.configuration import SETTINGS
from extender.api.setting_kinds import ADDRESS
from extender.cli.access import ClusterAccess
from extender.cli.output import Json
from extender.kube.access import Right
from extender.kube.errors import NotFound
from extender.kube.resources import ACCESS_REVIEWS, DAEMON_SETS, DEPLOYMENTS, PODS, Resource

T = TypeVar("T")

OWN_LABEL = "app.kubernetes.io/part-of=kube-muster"
ACCOUNT = "muster"
DEBUG_TIMEOUT = 60.0  # seconds; the slowest debug page, a dump, takes a few seconds
_MAX_ERROR_BYTES = 4096  # maximum bytes of an error message


class Installation:
    """Installation of Muster, by objects of the API server. `now` is the time by the API server's clock."""

    def __init__(self, access: ClusterAccess, now: float = 0) -> None:
        self.access = access
        self.now = now
        self.namespace = access.namespace
        self.minor = 0  # minor version of Kubernetes

    def muster_objects(self, resource: Resource, namespace: str = "") -> list[Json]:
        """Return the objects of a kind that Muster's manifests created; empty if the kind is not served."""
        return self.all_of(resource, Json, OWN_LABEL, namespace)

    def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        try:
            return self.access.reader.get(resource, namespace, name, Json)
        except NotFound:
            return None

    def all_of(self, resource: Resource, kind: type[T], labels: str = "", namespace: str = "") -> list[T]:
        """Return the objects of a kind, by default in all namespaces; empty if the kind is not served."""
        try:
            return self.access.reader.list(resource, namespace, kind, labels=labels)
        except NotFound:
            return []

    def debug_page(self, page: str, max_bytes: int) -> bytes:
        """Return a debug page of the leading pod, by port-forward.

        Raises:
            ClickException: No pod leads, or the page cannot be read.
        """
        pods = [pod for pod in self.pods if nested(pod.obj, "status", "phase") == "Running"]
        if not pods:
            remedy = "-n names another namespace, --debug-address a Muster outside of the cluster"
            raise click.ClickException(f"no pod of Muster runs in namespace {self.namespace}\n{remedy}")
        for pod in pods:
            if len(pods) == 1 or b'"leads": true' in self._debug_page(pod, "leadership", _MAX_ERROR_BYTES):
                return self._debug_page(pod, page, max_bytes)
        raise click.ClickException(f"none of {len(pods)} pods of Muster leads: try again in some seconds")

    def _debug_page(self, pod: "ServingObject", page: str, max_bytes: int) -> bytes:
        address = ADDRESS.parse(pod.setting("debug_listen"))
        connection = http.client.HTTPConnection(*address)
        connection.sock = self.access.connection.endpoint.forward(self.namespace, pod.name, address.port)
        connection.sock.settimeout(DEBUG_TIMEOUT)
        return read_debug_page(connection, f"pod {pod.name}", page, max_bytes)

    def may(self, right: Right) -> bool:
        """Return whether Muster's service account has a right."""
        namespace = nested(self.first_workload.obj, "metadata", "namespace") or self.namespace
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        spec: Json = {
            "user": f"system:serviceaccount:{namespace}:{self.account}",
            "groups": list(groups),
            "resourceAttributes": right._asdict(),
        }
        review = {"apiVersion": ACCESS_REVIEWS.version, "kind": "SubjectAccessReview", "spec": spec}
        return bool(self.access.editor.review(ACCESS_REVIEWS.path(), review)["status"].get("allowed"))

    def versions_of(self, resource: Resource) -> list[str]:
        """Return the API versions in which the cluster serves a kind."""
        try:
            group = msgspec.json.decode(self.text_at(f"/apis/{resource.group}"))
        except NotFound:
            return []
        versions = []
        for version in (entry["groupVersion"] for entry in group["versions"]):
            kinds = msgspec.json.decode(self.text_at(f"/apis/{version}"))["resources"]
            if any(kind["name"] == resource.plural for kind in kinds):
                versions.append(version)
        return versions

    def text_at(self, path: str) -> str:
        """Return the answer for a path as text."""
        return self.access.connection.request("GET", path).decode("utf-8", "replace")

    @cached_property
    def workloads(self) -> list["ServingObject"]:
        """Return the workloads that run Muster, with their kind, which lists of the API server omit."""
        labelled_objects = [
            ServingObject({**obj, "kind": kind}, obj["spec"]["template"]["spec"])
            for resource, kind in ((DEPLOYMENTS, "Deployment"), (DAEMON_SETS, "DaemonSet"))
            for obj in self.muster_objects(resource, self.namespace)
        ]
        return [workload for workload in labelled_objects if workload.container]

    @cached_property
    def pods(self) -> list["ServingObject"]:
        all_pods = [ServingObject(pod, pod["spec"]) for pod in self.muster_objects(PODS, self.namespace)]
        return [pod for pod in all_pods if pod.container]

    @property
    def account(self) -> str:
        return str(self.first_workload.spec.get("serviceAccountName", ACCOUNT))

    @property
    def first_workload(self) -> "ServingObject":
        """Return the first workload that runs Muster; a workload without settings if there is none."""
        return self.workloads[0] if self.workloads else ServingObject({}, {})


class ServingObject(NamedTuple):
    """Pod, Deployment or DaemonSet that runs `muster serve`.

    `spec` is the spec of the pod, or of the workload's pod template.
    """

    obj: Json
    spec: Json

    @property
    def name(self) -> str:
        return name_of(self.obj)

    @property
    def container(self) -> Json:
        """Return the container that runs `muster serve`; empty if there is none."""
        containers = [*self.spec.get("initContainers", ()), *self.spec.get("containers", ())]
        return next((container for container in containers if container["name"] == "muster"), {})

    def setting(self, field: str) -> str:
        """Return the value of a setting of `muster serve`: from a flag, a variable or the default."""
        return self.settings(field)[0]

    def settings(self, field: str) -> list[str]:
        """Return all values of a setting that may have several values."""
        setting = next(setting for setting in SETTINGS if setting.field == field)
        flags = (arg.partition("=") for arg in self.container.get("args", ()))
        values = [value for name, _, value in flags if name == setting.flag]
        variables = self.container.get("env", ())
        values += [entry.get("value", "") for entry in variables if entry["name"] == setting.variable]
        default = setting.file_form(setting.default)
        return values or (default if isinstance(default, list) else [default])

    def secret_at(self, folder: str) -> str:
        """Return the name of the Secret that is mounted at a folder; empty if there is none."""
        volume = self.volume_at(self.container, folder) if folder else None
        return nested(volume, "secret", "secretName") or ""

    def volume_at(self, container: Json, folder: str) -> Json:
        """Return the volume that a container mounts at a folder; empty if there is none."""
        mounts = container.get("volumeMounts", ())
        volumes = {mount["name"] for mount in mounts if mount["mountPath"].rstrip("/") == folder.rstrip("/")}
        return next((volume for volume in self.spec.get("volumes", ()) if volume["name"] in volumes), {})


def name_of(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def nested(obj: Any, *steps: str) -> Any:
    """Return the value at a path of an object; None if there is none."""
    for step in steps:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def read_debug_page(connection: http.client.HTTPConnection, where: str, page: str, max_bytes: int) -> bytes:
    """Return a debug page, cut after `max_bytes`. Raises ClickException."""
    try:
        connection.request("GET", f"/debug/{page}")
        response = connection.getresponse()
        body = response.read(max_bytes if response.status == HTTPStatus.OK else _MAX_ERROR_BYTES)
    except (OSError, http.client.HTTPException) as fault:
        raise click.ClickException(f"no debug port at {where}: {fault}") from fault
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        text = body.decode(errors="replace").strip()
        raise click.ClickException(f"the debug port at {where} answered {response.status}: {text}")
    return body
