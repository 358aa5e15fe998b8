"""The component for cert-manager, with a real one: certificates are served and renewed, without refusals."""

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import build
from tests.e2e.harness import cert_manager, installs, manifests, secret_volume
from tests.e2e.harness.access import User
from tests.e2e.harness.cert_manager import CERTIFICATES
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import Port, load, wait_in_force

Json = dict[str, Any]
# The first run builds cert-manager.
pytestmark = pytest.mark.timeout(900)
APPLIED_KINDS = ("Issuer", "Certificate", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
NAMESPACE = "kube-muster"
SERVED, AUTHORITY = "muster-webhook", "muster-webhook-ca"


@pytest.fixture
def gates() -> str:
    """Return cert-manager's feature gates: the defaults, unless a test overrides them."""
    return ""


@pytest.fixture
def issuing(stage: Stage, gates: str) -> Iterator[None]:
    """Run cert-manager."""
    written = manifests.install(stage.api, cert_manager.crds())
    process = cert_manager.process(stage.cluster, gates)
    process.start()
    yield
    process.kill()
    manifests.remove(stage.api, written)


@pytest.fixture
def port(stage: Stage, issuing: None, tmp_path: Path) -> Iterator[Port]:
    """Yield a port behind the applied kustomize component; the Service leads to loopback, by its name."""
    port = Port()
    release = build.release(stage.cluster.kubernetes)
    folder = installs.overlay(tmp_path, "sidecar", ["cert-manager"], release)
    found = installs.kustomized(stage.cluster.binaries / "kubectl", folder)
    written = [_at(each, port) for each in found if each["kind"] in APPLIED_KINDS]
    manifests.install(stage.api, [_service(), *written])
    yield port
    manifests.remove(stage.api, [_service(), *written])
    for each in stage.api.items(SECRETS, NAMESPACE, labelSelector=cert_manager.SECRETS_SELECTOR):
        stage.api.delete(SECRETS, each["metadata"]["name"], NAMESPACE)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


@pytest.fixture
def review(stage: Stage, port: Port, volume: Path, muster_user: User) -> Muster:
    """Start Muster with the issued certificate; cert-manager alone tells the API server its CA."""
    secret_volume.update(_issued(stage, SERVED), volume)
    flags = port.flags("files", f"--webhook-folder={volume}")
    muster = stage.start_muster(*flags, user=muster_user)
    wait_in_force(stage.api)
    return muster


def test_the_certificate_is_issued_trusted_and_served(stage: Stage, review: Muster) -> None:
    with pytest.raises(ApiError, match="ParentNotFound"):
        stage.queue("lost", parent="nowhere")


@pytest.mark.parametrize("gates", ["", "CAInjectorMerging=false"], ids=["merging", "replacing"])
def test_renewals_refuse_nothing(stage: Stage, review: Muster, port: Port, volume: Path, gates: str) -> None:
    """Accept renewals of all certificates, those of the CA included.

    Reviews pass before the kubelet brings Muster the certificate that the API server trusts: the new CA
    next to the old one or, as with older releases, instead of it.
    """
    with load(stage.api) as refusals:
        _renew(stage, AUTHORITY)
        secret = _renew(stage, SERVED)
        wait_for(lambda: _trusts(stage, secret), what="the new CA is trusted")
        _wait_for_reviews(review)
        assert not _serves(port, secret)
        secret_volume.update(secret, volume)
        wait_for(lambda: _serves(port, secret), what="the new certificate is served")
        _wait_for_reviews(review)
    assert refusals == []


def _at(document: Json, port: Port) -> Json:
    for webhook in document.get("webhooks", ()):
        webhook["clientConfig"]["service"]["port"] = port.number
    return document


def _service() -> Json:
    """Return the Service: the API server connects to its externalName, and asks for its own name."""
    metadata = {"name": "muster-webhook", "namespace": NAMESPACE}
    spec = {"type": "ExternalName", "externalName": "localhost"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _secret_name(certificate: str) -> str:
    return {SERVED: "muster-webhook-cert-manager", AUTHORITY: "muster-webhook-ca"}[certificate]


def _issued(stage: Stage, certificate: str, before: str = "") -> Json:
    """Return the Secret of a Certificate that is ready, once it differs from the one before."""

    def ready() -> Json | None:
        found = stage.api.get(CERTIFICATES, certificate, NAMESPACE)
        conditions = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", ())}
        secret = stage.api.find(SECRETS, _secret_name(certificate), NAMESPACE)
        issued = conditions.get("Ready") == "True" and secret and secret["data"].get("tls.crt") != before
        return secret if issued else None

    found = wait_for(ready, what=f"{certificate} issued")
    assert found is not None
    return found


def _renew(stage: Stage, certificate: str) -> Json:
    """Renew the certificate as `cmctl renew` does, and return the new Secret."""
    before = _issued(stage, certificate)["data"]["tls.crt"]
    asked = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "asked for"}
    conditions = stage.api.get(CERTIFICATES, certificate, NAMESPACE)["status"]["conditions"]
    status = {"status": {"conditions": [*conditions, asked]}}
    stage.api.patch(CERTIFICATES, certificate, status, NAMESPACE, sub="status")
    return _issued(stage, certificate, before)


def _trusts(stage: Stage, secret: Json) -> bool:
    """Return whether the API server trusts the CA of this certificate, with or without others."""
    kinds = (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)
    webhooks = [each for kind in kinds for each in stage.api.get(kind, "kube-muster")["webhooks"]]
    bundles = [_decoded(webhook["clientConfig"].get("caBundle", "")) for webhook in webhooks]
    return all(_decoded(secret["data"]["ca.crt"]).strip() in bundle for bundle in bundles)


def _serves(port: Port, secret: Json) -> bool:
    shown = ssl.get_server_certificate(("127.0.0.1", port.number))
    return shown.strip() in _decoded(secret["data"]["tls.crt"])


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def _wait_for_reviews(review: Muster) -> None:
    def passed() -> float:
        return review.metric("muster_reviews_total", outcome="allowed")

    before = passed()
    wait_for(lambda: passed() > before + 20, what="reviews that passed")
