"""Access reviews of users and rights, and the webhooks' requests for Secrets and configurations.

The webhooks check the right to use a queue, and read and write two kinds of objects: the Secret with their
certificate, and the webhook configurations with the CAs that the API server trusts. All functions raise
ApiError.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple

from extender.api.admission import UserInfo
from extender.api.objects.base import Meta, Wire
from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import LocalQueue, Queue
from extender.api.units import may_be_name
from extender.domain.admission.access import Subject, subject
from extender.kube.errors import NotFound
from extender.kube.requests import STRATEGIC, Json, Requests, decode
from extender.kube.resources import (
    ACCESS_REVIEWS,
    LOCAL_QUEUES,
    NAMESPACES,
    QUEUES,
    SECRETS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
)

_TIMEOUT = 5.0  # seconds


class Right(NamedTuple):
    """Right to use a verb on a resource.

    `resource` is the plural name. An empty namespace or an empty name means all namespaces or all objects.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """Return the right in the form of a review's resourceAttributes."""
        return {name: value for name, value in self._asdict().items() if value}

    def __str__(self) -> str:
        resource = "/".join(filter(None, (self.resource, self.subresource)))
        suffix = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{' ' + self.name if self.name else ''}{suffix}"


def right_to(verb: str, resource: Resource, namespace: str = "", name: str = "") -> Right:
    return Right(verb, resource.group, resource.plural, namespace=namespace, name=name)


class _Verdict(Wire, frozen=True):
    allowed: bool = False


class AccessReview(Wire, frozen=True):
    status: _Verdict = _Verdict()


class _TokenOwner(Wire, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _TokenReview(Wire, frozen=True):
    status: _TokenOwner = _TokenOwner()


class _SelfOwner(Wire, frozen=True):
    user_info: UserInfo = UserInfo()


class _SelfReview(Wire, frozen=True):
    status: _SelfOwner = _SelfOwner()


def access_review(user: Subject, attributes: Mapping[str, str]) -> Json:
    """Return a SubjectAccessReview with the given resourceAttributes."""
    spec = {
        "user": user.user,
        "uid": user.uid,
        "groups": user.groups,
        "extra": dict(user.extra),
        "resourceAttributes": attributes,
    }
    return {"apiVersion": ACCESS_REVIEWS.version, "kind": "SubjectAccessReview", "spec": spec}


class AccessApi(Requests):
    def owner_of(self, token: str) -> Subject | None:
        """Return the owner of a bearer token; None if the token is unknown or has another audience."""
        review = {"apiVersion": TOKEN_REVIEWS.version, "kind": "TokenReview", "spec": {"token": token}}
        answer = self._post(TOKEN_REVIEWS.path(), review, _TIMEOUT)
        status = decode(answer, _TokenReview, "a token review").status
        return subject(status.user) if status.authenticated and status.user.username else None

    def grants(self, user: Subject, right: Right) -> bool:
        return self._is_allowed(ACCESS_REVIEWS.path(), access_review(user, right.attributes))

    def has_own_right(self, right: Right) -> bool:
        """Return whether the user of the connection has the right.

        All users may check their own rights.
        """
        kind = {"apiVersion": SELF_ACCESS_REVIEWS.version, "kind": "SelfSubjectAccessReview"}
        review = {**kind, "spec": {"resourceAttributes": right.attributes}}
        return self._is_allowed(SELF_ACCESS_REVIEWS.path(), review)

    def my_name(self) -> str:
        """Return the name of the connection's user.

        Raises:
            NotFound: The API server is older than 1.28.
        """
        review = {"apiVersion": SELF_REVIEWS.version, "kind": "SelfSubjectReview"}
        answer = self._post(SELF_REVIEWS.path(), review, _TIMEOUT)
        return decode(answer, _SelfReview, "a self review").status.user_info.username

    def _is_allowed(self, path: str, review: Json) -> bool:
        return decode(self._post(path, review, _TIMEOUT), AccessReview, path).status.allowed


_LABELS = {
    "app.kubernetes.io/name": "muster",
    "app.kubernetes.io/component": "admission",
    "app.kubernetes.io/part-of": "kube-muster",
}


class Secret(Wire, frozen=True):
    """Secret with decoded `data`. Kubernetes writes base64, which msgspec decodes into bytes."""

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
        attributes = {"verb": "use", "group": QUEUES.group, "resource": QUEUES.plural, "name": queue}
        path = ACCESS_REVIEWS.path()
        answer = self._post(path, access_review(subject, attributes), timeout)
        return decode(answer, AccessReview, path).status.allowed

    def queue(self, name: str, timeout: float = 10) -> Queue:
        """Return a queue. Its name comes from a tenant, and can be invalid."""
        if not may_be_name(name):
            raise NotFound(404, "NotFound", f"{name!r} cannot be the name of a queue")
        return self._get(QUEUES.path(name=name), Queue, timeout)

    def local_queue(self, key: str, timeout: float = 10) -> LocalQueue:
        """Return the newest LocalQueue from the API server. `key` is namespace/name."""
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
            "data": _encode_base64(data),
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
            "data": {**dict.fromkeys(secret.data), **_encode_base64(data)},  # None removes the key
        }
        self._patch(SECRETS.path(meta.namespace, meta.name), patch, patch_type=STRATEGIC)

    def webhook_configuration(self, resource: Resource, name: str) -> WebhookConfiguration:
        return self._get(resource.path(name=name), WebhookConfiguration)

    def trust(self, resource: Resource, configuration: WebhookConfiguration, bundle: bytes) -> None:
        """Write the CA bundle into every webhook of a configuration.

        Raises:
            Conflict: The configuration was changed meanwhile.
        """
        meta, ca_bundle = configuration.metadata, base64.b64encode(bundle).decode()
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "webhooks": [
                {"name": webhook.name, "clientConfig": {"caBundle": ca_bundle}}
                for webhook in configuration.webhooks
            ],
        }
        self._patch(resource.path(name=meta.name), patch, patch_type=STRATEGIC)


def _encode_base64(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
