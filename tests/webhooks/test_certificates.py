"""Certificates of Muster's own: how they are made and stored, and how replicas agree on them."""

import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import REGISTRY

from extender.api.objects.base import Meta
from extender.api.setting_kinds import ObjectName
from extender.kube.access import AdmissionApi, ClientConfig, Secret, Webhook, WebhookConfiguration
from extender.kube.errors import Conflict, NotFound, Unreachable
from extender.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from extender.web.sockets import Identity
from extender.webhooks.certificate_rotation import (
    CertificateRotation,
    RotationStep,
    next_certificates,
    read_stored,
    settle_time,
)
from extender.webhooks.certificates import (
    Pair,
    Unreadable,
    expiry_of,
    has_signed,
    host_names,
    is_trusted,
    make_pair,
    split_bundle,
    validity_of,
)
from tests.rows import each_of

NOW = 1_800_000_000.0
LIFE = 900.0
DAY = 86_400.0
HOSTS = frozenset({"muster-webhook.kube-muster.svc", "127.0.0.1"})
SECRET = ObjectName("kube-muster", "certificate")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair(sorted(HOSTS), LIFE, NOW)


# ---- one certificate


def test_a_certificate_is_valid_for_its_names_and_its_time(pair: Pair) -> None:
    assert host_names(pair.certificate) == HOSTS
    assert expiry_of(pair.certificate) == NOW + LIFE
    assert has_signed(pair.authority, pair.certificate, pair.key)


def test_the_ca_signs_and_the_certificate_does_not(pair: Pair) -> None:
    constraints = [
        x509.load_pem_x509_certificate(each).extensions.get_extension_for_class(x509.KeyUsage).value
        for each in (pair.authority, pair.certificate)
    ]
    assert [constraint.key_cert_sign for constraint in constraints] == [True, False]


def test_a_certificate_of_another_ca_or_key_is_not_trusted(pair: Pair) -> None:
    other = make_pair(["x"], LIFE, NOW)
    assert not has_signed(other.authority, pair.certificate, pair.key)
    assert not has_signed(pair.authority, pair.certificate, other.key)


def test_a_bundle_is_trusted_for_certificates_that_it_issued_or_contains(pair: Pair) -> None:
    other = make_pair(sorted(HOSTS), LIFE, NOW)
    assert is_trusted(pair.certificate, pair.authority)
    assert is_trusted(pair.certificate, other.authority + pair.authority)
    assert is_trusted(pair.certificate, pair.certificate)
    assert is_trusted(pair.certificate + other.certificate + pair.authority, pair.authority)
    assert not is_trusted(pair.certificate, other.authority)
    assert not is_trusted(pair.certificate + pair.authority, other.authority)
    assert not is_trusted(pair.certificate + other.certificate, other.authority)


def test_trust_in_a_root_covers_its_intermediates() -> None:
    """The root signed the authority, which signed the certificate."""
    root, authority, leaf = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    chain = _signed("leaf", leaf, "authority", authority) + _signed("authority", authority, "root", root)
    assert is_trusted(chain, _signed("root", root, "root", root))
    assert not is_trusted(_signed("leaf", leaf, "authority", authority), _signed("root", root, "root", root))


def _signed(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey
) -> bytes:
    above, below = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (issuer, subject)
    )
    begin, end = datetime.now(UTC), datetime.now(UTC) + timedelta(hours=1)
    builder = x509.CertificateBuilder(above, below, key.public_key(), x509.random_serial_number(), begin, end)
    return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@each_of(b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
def test_texts_that_are_no_certificate(text: bytes) -> None:
    for read in (expiry_of, host_names, split_bundle):
        with pytest.raises(Unreadable):
            read(text)


def test_a_server_keeps_its_certificate_when_the_next_is_broken(pair: Pair) -> None:
    identity = Identity("webhooks")
    assert identity.fault()
    identity.use(pair.certificate, pair.key)
    served = identity.context
    shown = REGISTRY.get_sample_value("muster_certificate_expiry_timestamp_seconds", {"port": "webhooks"})
    assert shown == expiry_of(pair.certificate)
    with pytest.raises(ssl.SSLError):
        identity.use(pair.certificate, make_pair(["x"], LIFE, NOW).key)
    assert identity.context is served


@each_of(
    (0.0, None),
    (-2 * DAY, "the certificate is not valid before 172500 s from now: a clock is or was wrong"),
    (LIFE, "the certificate has expired"),
)
def test_an_expired_certificate_counts_as_missing(offset: float, found: str | None, *, pair: Pair) -> None:
    identity = Identity("webhooks", lambda: NOW + offset)
    identity.use(pair.certificate, pair.key)
    assert identity.fault() == found


# ---- as it is stored


def test_a_stored_certificate_is_read_back() -> None:
    stored = next_certificates(RotationStep.MAKE, None, HOSTS, LIFE, NOW)
    prepared = next_certificates(RotationStep.PREPARE, stored, HOSTS, LIFE, NOW)
    switched = next_certificates(RotationStep.SWITCH, prepared, HOSTS, LIFE, NOW)
    pruned = next_certificates(RotationStep.PRUNE, switched, HOSTS, LIFE, NOW)
    for each in (stored, prepared, switched, pruned):
        assert read_stored(each.data) == each
    assert [len(each.authorities) for each in (stored, prepared, switched, pruned)] == [1, 2, 2, 1]
    served = validity_of(prepared.tls_pair.certificate)
    assert [each.certificate.next_validity for each in (stored, prepared, switched)] == [None, served, None]
    assert [each.certificate.has_extra_authority for each in (prepared, switched, pruned)] == [
        False,
        True,
        False,
    ]
    assert switched.tls_pair == prepared.next_pair


@each_of("tls.crt", "tls.key", "ca.crt", "next.key")
def test_a_broken_secret_counts_as_empty(broken: str) -> None:
    stored = next_certificates(
        RotationStep.PREPARE, next_certificates(RotationStep.MAKE, None, HOSTS, LIFE, NOW), HOSTS, LIFE, NOW
    )
    assert read_stored({**stored.data, broken: b"nonsense"}) is None
    assert read_stored({key: value for key, value in stored.data.items() if key != broken}) is None
    assert read_stored({}) is None


# ---- how replicas agree


class Cluster(AdmissionApi):
    """One Secret and two configurations; as at the API server, the slower of two writers is refused."""

    def __init__(self) -> None:
        self.retained: Secret | None = None
        self.bundles: dict[str, bytes] = {VALIDATING_WEBHOOKS.plural: b"", MUTATING_WEBHOOKS.plural: b""}
        self.trusted: list[bytes] = []
        self.away = False
        self._version = 0

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def secret(self, namespace: str, name: str, timeout: float = 10) -> Secret:
        if self.away:
            raise Unreachable("away")
        if self.retained is None:
            raise NotFound(404)
        return self.retained

    def create_secret(self, namespace: str, name: str, data: dict[str, bytes], timeout: float = 10) -> None:
        if self.retained is not None:
            raise Conflict(409)
        self.retained = Secret(Meta(name, namespace, resource_version=self._next()), data)

    def replace_secret(self, secret: Secret, data: dict[str, bytes], timeout: float = 10) -> None:
        assert self.retained is not None
        if self.retained.metadata.resource_version != secret.metadata.resource_version:
            raise Conflict(409)
        self.retained = Secret(Meta(secret.metadata.name, resource_version=self._next()), data)

    def webhook_configuration(
        self, resource: Resource, name: str, timeout: float = 10
    ) -> WebhookConfiguration:
        if name != "kube-muster":
            raise NotFound(404)
        bundle = ClientConfig(self.bundles[resource.plural])
        return WebhookConfiguration(Meta(name), [Webhook("a", bundle), Webhook("b", bundle)])

    def trust(
        self, resource: Resource, configuration: WebhookConfiguration, bundle: bytes, timeout: float = 10
    ) -> None:
        self.bundles[resource.plural] = bundle
        self.trusted.append(bundle)


class Replica:
    def __init__(self, api: Cluster, hosts: frozenset[str] = HOSTS, ahead: float = 0.0) -> None:
        self.now = NOW + ahead
        self.served: list[bytes] = []  # each certificate once
        self.fault: Exception | None = None  # of the port
        self.keeper = CertificateRotation(
            api, SECRET, hosts, LIFE, self._serve, clock=lambda: self.now, monotonic=lambda: self.now
        )

    def _serve(self, certificate: bytes, key: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        if certificate not in self.served[-1:]:
            self.served.append(certificate)

    def look(self) -> None:
        """Look until there is nothing new."""
        for _ in range(5):
            if not self.keeper.advance():
                return
        raise AssertionError("it never settles")


@pytest.fixture
def api() -> Cluster:
    return Cluster()


def test_the_first_replica_creates_the_secret_and_the_second_uses_it(api: Cluster) -> None:
    first, second = Replica(api), Replica(api)
    first.look()
    second.look()
    assert first.served == second.served
    assert len(first.served) == 1
    (bundle,) = set(api.bundles.values())
    assert api.retained is not None
    assert bundle == api.retained.data["ca.crt"]


def test_a_slower_replica_uses_the_existing_secret(api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the Secret of the faster replica, although neither saw one."""
    other = Replica(api)
    slower = Replica(api)

    def secret(namespace: str, name: str, timeout: float = 10) -> Any:
        monkeypatch.undo()
        other.look()
        raise NotFound(404)

    monkeypatch.setattr(api, "secret", secret)
    slower.look()
    assert slower.served == other.served


def test_a_renewal_goes_step_by_step(api: Cluster) -> None:
    replica = Replica(api)
    replica.look()
    replica.now += LIFE * 2 / 3 + 1
    replica.look()
    assert len(replica.served) == 1
    assert [len(split_bundle(bundle)) for bundle in api.bundles.values()] == [2, 2]
    replica.now += settle_time(LIFE) / 2
    replica.look()
    assert len(replica.served) == 1
    replica.now += settle_time(LIFE)
    replica.look()
    assert len(replica.served) == 2
    assert [len(split_bundle(bundle)) for bundle in api.bundles.values()] == [2, 2]
    replica.now += settle_time(LIFE)
    replica.look()
    assert [len(split_bundle(bundle)) for bundle in api.bundles.values()] == [1, 1]
    assert len(replica.served) == 2


def test_a_port_that_cannot_be_served_does_not_stop_the_renewal(api: Cluster) -> None:
    """Renew next to such a port, as one whose file with the callers' CAs is missing.

    It is tried again at each look.
    """
    replica = Replica(api)
    replica.look()
    replica.now, replica.fault = replica.now + LIFE * 2 / 3 + 1, OSError("no such file")
    for _ in range(2):
        with pytest.raises(OSError, match="no such file"):
            replica.keeper.advance()
    assert [len(split_bundle(bundle)) for bundle in api.bundles.values()] == [2, 2]
    replica.now, replica.fault = replica.now + 2 * settle_time(LIFE), None
    replica.look()
    assert len(replica.served) == 2


def test_a_certificate_of_a_clock_that_was_ahead_is_replaced(api: Cluster) -> None:
    """It was made two days ahead, by the clock of an API server that is right now."""
    Replica(api, ahead=2 * DAY).look()
    replica = Replica(api)
    replica.look()
    assert validity_of(replica.served[-1]).covers(NOW)
    (bundle,) = set(api.bundles.values())
    assert is_trusted(replica.served[-1], bundle)


def test_a_prepared_certificate_of_a_clock_that_was_ahead_is_never_served(api: Cluster) -> None:
    Replica(api).look()
    Replica(api, frozenset({"other"}), ahead=LIFE / 2).look()
    replica = Replica(api)
    for _ in range(3):
        replica.look()
        replica.now += settle_time(LIFE) + 1
    assert [validity_of(each).covers(NOW) for each in replica.served] == [True]


def test_a_removed_ca_bundle_is_restored(api: Cluster) -> None:
    replica = Replica(api)
    replica.look()
    (bundle,) = set(api.bundles.values())
    api.bundles[VALIDATING_WEBHOOKS.plural] = b""
    replica.look()
    assert set(api.bundles.values()) == {bundle}


def test_nothing_is_written_without_need(api: Cluster) -> None:
    replica = Replica(api)
    replica.look()
    written, retained = len(api.trusted), api.retained
    replica.now += LIFE / 2
    replica.look()
    assert (len(api.trusted), api.retained) == (written, retained)


def test_changed_names_are_renewed_step_by_step(api: Cluster) -> None:
    Replica(api).look()
    other = Replica(api, frozenset({"other"}))
    other.look()
    other.now += settle_time(LIFE) + 1
    other.look()
    assert host_names(other.served[-1]) == {"other"}


def test_an_invalid_secret_is_replaced(api: Cluster) -> None:
    api.create_secret(*SECRET, {"tls.crt": b"nonsense"})
    replica = Replica(api)
    replica.look()
    assert len(replica.served) == 1


def test_a_fault_is_passed_on_and_changes_nothing(api: Cluster) -> None:
    replica = Replica(api)
    replica.look()
    api.away = True
    with pytest.raises(Unreachable):
        replica.keeper.advance()
    assert len(replica.served) == 1
