"""Requests of the webhooks to the API server. All functions raise ApiError.

They concern the right to use a queue, the Secret with the certificate, and the webhook configurations with
the CAs that the API server trusts.
"""

import base64

from extender.api.objects.base import Meta, Wire
from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import LocalQueue, Queue
from extender.api.texts import may_be_name
from extender.domain.admission.access import Subject
from extender.kube.access import AccessReview, access_review
from extender.kube.errors import NotFound
from extender.kube.requests import STRATEGIC, Requests, decoded
from extender.kube.resources import ACCESS_REVIEWS, LOCAL_QUEUES, NAMESPACES, QUEUES, SECRETS, Resource

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


class AdmissionApi(Requests):
    def may_use(self, subject: Subject, queue: str, timeout: float = 10) -> bool:
        """Return whether RBAC, or another authorizer of the cluster, grants the verb `use` on a queue."""
        wanted = {"verb": "use", "group": QUEUES.group, "resource": QUEUES.plural, "name": queue}
        path = ACCESS_REVIEWS.path()
        answer = self._post(path, access_review(subject, wanted), timeout)
        return decoded(answer, AccessReview, path).status.allowed

    def queue(self, name: str, timeout: float = 10) -> Queue:
        """Return a queue by a name that a tenant wrote."""
        if not may_be_name(name):
            raise NotFound(404, "NotFound", f"{name!r} cannot be the name of a queue")
        return self._get(QUEUES.path(name=name), Queue, timeout)

    def local_queue(self, key: str, timeout: float = 10) -> LocalQueue:
        """Return a LocalQueue as the API server has it now. `key`: namespace/name."""
        namespace, _, name = key.partition("/")
        return self._get(LOCAL_QUEUES.path(namespace, name), LocalQueue, timeout)

    def namespace(self, name: str, timeout: float = 10) -> Namespace:
        return self._get(NAMESPACES.path(name=name), Namespace, timeout)

    def secret(self, namespace: str, name: str) -> Secret:
        return self._get(SECRETS.path(namespace, name), Secret)

    def create_secret(self, namespace: str, name: str, data: dict[str, bytes]) -> None:
        """Create a Secret.

        Raises:
            Conflict: The Secret was created meanwhile.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
            "data": _encoded(data),
        }
        self._post(SECRETS.path(namespace), body)

    def replace_secret(self, secret: Secret, data: dict[str, bytes]) -> None:
        """Replace the data of a Secret.

        Raises:
            Conflict: The Secret has changed since `secret` was read.
        """
        meta = secret.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "data": {**dict.fromkeys(secret.data), **_encoded(data)},
        }
        self._patch(SECRETS.path(meta.namespace, meta.name), patch, kind=STRATEGIC)

    def webhook_configuration(self, resource: Resource, name: str) -> WebhookConfiguration:
        return self._get(resource.path(name=name), WebhookConfiguration)

    def trust(self, resource: Resource, configuration: WebhookConfiguration, bundle: bytes) -> None:
        """Write the CA bundle into every webhook. Raises Conflict if the configuration was changed."""
        meta, ca_bundle = configuration.metadata, base64.b64encode(bundle).decode()
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "webhooks": [
                {"name": webhook.name, "clientConfig": {"caBundle": ca_bundle}}
                for webhook in configuration.webhooks
            ],
        }
        self._patch(resource.path(name=meta.name), patch, kind=STRATEGIC)


def _encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
