"""What admission asks of the API server: who may use a queue, the Secret with the certificate, and the
configurations in which the API server reads whom to trust. All raise ApiError.
"""

import base64
from typing import Any, TypeVar

import msgspec

from extender.api.objects import Meta, Queue, Wire
from extender.domain.admission.access import Subject
from extender.kube.connection import Connection
from extender.kube.errors import Ambiguous
from extender.kube.events import UNREADABLE
from extender.kube.resources import ACCESS_REVIEWS, QUEUES, SECRETS, Resource

_STRATEGIC = "application/strategic-merge-patch+json"
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")
_LABELS = {
    "app.kubernetes.io/name": "muster",
    "app.kubernetes.io/component": "admission",
    "app.kubernetes.io/part-of": "kube-muster",
}


class Secret(Wire, frozen=True):
    """`data` decoded: msgspec takes bytes for base64, as Kubernetes does."""

    metadata: Meta
    data: dict[str, bytes] = {}


class ClientConfig(Wire, frozen=True):
    ca_bundle: bytes = b""


class Webhook(Wire, frozen=True):
    name: str
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Wire, frozen=True):
    metadata: Meta
    webhooks: list[Webhook] = []


class _Verdict(Wire, frozen=True):
    allowed: bool = False


class _AccessReview(Wire, frozen=True):
    status: _Verdict = _Verdict()


class AdmissionApi:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def may_use(self, who: Subject, queue: str, timeout: float = 10) -> bool:
        """Whether RBAC, or whatever authorizes in the cluster, grants the verb `use` on a queue."""
        group = QUEUES.root.split("/")[2]
        wanted = {"verb": "use", "group": group, "resource": QUEUES.plural, "name": queue}
        spec = {
            "user": who.user,
            "uid": who.uid,
            "groups": who.groups,
            "extra": dict(who.extra),
            "resourceAttributes": wanted,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = self._send("POST", ACCESS_REVIEWS.path(), body, timeout)
        return _read(answer, _AccessReview).status.allowed

    def queue(self, name: str, timeout: float = 10) -> Queue:
        """As the API server has it now."""
        return _read(self._connection.request("GET", QUEUES.path(name=name), timeout=timeout), Queue)

    def secret(self, namespace: str, name: str, timeout: float = 10) -> Secret:
        return _read(self._connection.request("GET", SECRETS.path(namespace, name), timeout=timeout), Secret)

    def create_secret(self, namespace: str, name: str, data: dict[str, bytes], timeout: float = 10) -> None:
        """Conflict when somebody made it meanwhile."""
        body = _secret(namespace, name, data)
        self._send("POST", SECRETS.path(namespace), body, timeout)

    def replace_secret(self, secret: Secret, data: dict[str, bytes], timeout: float = 10) -> None:
        """Conflict when somebody changed it since `secret` was read."""
        meta = secret.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "data": {**dict.fromkeys(secret.data), **_encoded(data)},
        }
        self._send("PATCH", SECRETS.path(meta.namespace, meta.name), patch, timeout)

    def webhook_configuration(
        self, resource: Resource, name: str, timeout: float = 10
    ) -> WebhookConfiguration:
        answer = self._connection.request("GET", resource.path(name=name), timeout=timeout)
        return _read(answer, WebhookConfiguration)

    def trust(
        self, resource: Resource, configuration: WebhookConfiguration, bundle: bytes, timeout: float = 10
    ) -> None:
        """Write the CA bundle into every webhook. Conflict when somebody changed the configuration since."""
        meta, ca_bundle = configuration.metadata, base64.b64encode(bundle).decode()
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "webhooks": [
                {"name": each.name, "clientConfig": {"caBundle": ca_bundle}}
                for each in configuration.webhooks
            ],
        }
        self._send("PATCH", resource.path(name=meta.name), patch, timeout)

    def _send(self, method: str, path: str, body: dict[str, Any], timeout: float) -> bytes:
        kind = _STRATEGIC if method == "PATCH" else "application/json"
        return self._connection.request(method, path, body=_encode(body), content_type=kind, timeout=timeout)


def _secret(namespace: str, name: str, data: dict[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "data": _encoded(data),
    }


def _encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as fault:
        raise Ambiguous(f"not the expected {kind.__name__}: {fault}") from fault
