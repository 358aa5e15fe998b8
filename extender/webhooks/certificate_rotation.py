"""Rotation of the self-signed certificate: one Secret, and the CA bundles that the API server trusts.

Every replica rotates the certificate, whether it leads or not. The replicas agree through the Secret: a step
is written on the version that was read, so the step of a second replica is refused as a conflict. The API
server checks certificates by its own clock. The rotation therefore uses the clock of the API server. The
clock of a replica can be wrong by days.
"""

import time
from collections.abc import Callable
from enum import Enum

import msgspec

from extender.api.objects.base import Wire
from extender.api.setting_kinds import ObjectName
from extender.kube.access import AdmissionApi
from extender.kube.errors import ApiError, Conflict, NotFound
from extender.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from extender.kube.writers import Poller
from extender.telemetry.logs import logger
from extender.webhooks.certificates import (
    Pair,
    Unreadable,
    Validity,
    has_signed,
    host_names,
    make_pair,
    split_bundle,
    validity_of,
)

log = logger(__name__)

CONFIGURATION_NAME = "kube-muster"
CONFIGURATIONS = (
    (VALIDATING_WEBHOOKS, CONFIGURATION_NAME),
    (MUTATING_WEBHOOKS, CONFIGURATION_NAME),
    (MUTATING_WEBHOOKS, f"{CONFIGURATION_NAME}-pods"),  # for API servers without mutating admission policies
)
_MAX_PERIOD = 10.0  # longest time between two polls, in seconds
_STEP_PAUSE = 0.05  # seconds until the next poll after a step
_POLL_COUNT = 4  # polls within the settle time of a change
Serve = Callable[[bytes, bytes], None]
Data = dict[str, bytes]
_RENEWAL_SHARE = 1 / 3  # part of the lifetime that is left when the next certificate is created
_SETTLE_SHARE = 1 / 30  # part of the lifetime in which a change becomes known everywhere
_MAX_SETTLE_SECONDS = 120.0  # maximum of the settle time, in seconds


class RotationStep(Enum):
    """Step of a rotation.

    - MAKE: Create a pair of certificate and key, and serve the pair.
    - PREPARE: Create the next pair, whose CA clients can learn in advance.
    - SWITCH: Serve the next pair.
    - PRUNE: Remove the CAs that have signed no stored certificate, and an unusable next pair.
    - KEEP: Change nothing.
    """

    MAKE = "make"
    PREPARE = "prepare"
    SWITCH = "switch"
    PRUNE = "prune"
    KEEP = "keep"


class StoredCertificate(msgspec.Struct, frozen=True):
    """Fields of the stored certificate on which the next step depends."""

    served_validity: Validity
    host_names: frozenset[str]  # host names and IP addresses of the served certificate
    next_validity: Validity | None = None  # validity of the next certificate, if it is stored
    has_extra_authority: bool = False  # whether a trusted CA has signed no stored certificate


def settle_time(lifetime: float) -> float:
    """Return the seconds after which every API server and every replica uses a changed Secret or bundle."""
    return min(_MAX_SETTLE_SECONDS, lifetime * _SETTLE_SHARE)


def next_step(
    stored: StoredCertificate | None, names: frozenset[str], lifetime: float, now: float, is_settled: bool
) -> RotationStep:
    """Return the step that is due at `now`, by the clock of the API server.

    Args:
        stored: The stored certificate; None if nothing readable is stored.
        names: The wanted host names and IP addresses.
        lifetime: The lifetime of a certificate, in seconds.
        now: The time of the API server.
        is_settled: Whether the settle time has passed since the stored certificates and bundles changed.
    """
    if stored is None or not stored.served_validity.covers(now):
        return RotationStep.MAKE
    if stored.next_validity and not stored.next_validity.covers(now):
        return RotationStep.PRUNE
    if stored.next_validity:
        return RotationStep.SWITCH if is_settled else RotationStep.KEEP
    if stored.served_validity.end - now < lifetime * _RENEWAL_SHARE or stored.host_names != names:
        return RotationStep.PREPARE
    return RotationStep.PRUNE if stored.has_extra_authority and is_settled else RotationStep.KEEP


class StoredPairs(Wire, frozen=True):
    """Certificates in the Secret.

    tls.crt and tls.key are served. ca.crt has the trusted CAs. next.crt and next.key are served after the
    next switch.
    """

    tls_pair: Pair
    next_pair: Pair | None  # the pair that is served after the next switch
    authorities: tuple[bytes, ...]  # CAs of both pairs, and of pairs that a replica may still serve

    @property
    def bundle(self) -> bytes:
        return b"".join(self.authorities)

    @property
    def certificate(self) -> StoredCertificate:
        """Return the facts on which the next step depends."""
        signers = {pair.authority for pair in (self.tls_pair, self.next_pair) if pair}
        served, has_extra = self.tls_pair.certificate, bool(set(self.authorities) - signers)
        next_validity = validity_of(self.next_pair.certificate) if self.next_pair else None
        return StoredCertificate(validity_of(served), host_names(served), next_validity, has_extra)

    @property
    def data(self) -> Data:
        """Return the data of the Secret."""
        data = {"tls.crt": self.tls_pair.certificate, "tls.key": self.tls_pair.key, "ca.crt": self.bundle}
        if self.next_pair:
            data |= {"next.crt": self.next_pair.certificate, "next.key": self.next_pair.key}
        return data


def read_stored(data: Data) -> StoredPairs | None:
    """Return the certificates in a Secret; None if Muster has not stored the data in this form."""
    try:
        authorities = split_bundle(data["ca.crt"])
        tls_pair = _pair(data, "tls", authorities)
        next_pair = _pair(data, "next", authorities) if "next.crt" in data else None
        stored_pairs = StoredPairs(tls_pair, next_pair, authorities)
        _ = stored_pairs.certificate  # raises an error if a needed field cannot be read
    except (KeyError, Unreadable):
        return None
    return stored_pairs


def _pair(data: Data, name: str, authorities: tuple[bytes, ...]) -> Pair:
    """Return a certificate with its key and its CA.

    Raises:
        KeyError: The certificate or the key is missing.
        Unreadable: The key or the CA does not fit.
    """
    certificate, key = data[f"{name}.crt"], data[f"{name}.key"]
    for authority in authorities:
        if has_signed(authority, certificate, key):
            return Pair(certificate, key, authority)
    raise Unreadable(f"{name}.crt: its key or its CA is missing")


def next_certificates(
    step: RotationStep, stored_pairs: StoredPairs | None, hosts: frozenset[str], lifetime: float, now: float
) -> StoredPairs:
    """Return the certificates to store after a step."""
    if stored_pairs is None or step is RotationStep.MAKE:
        pair = make_pair(sorted(hosts), lifetime, now)
        return StoredPairs(pair, None, (pair.authority,))
    if step is RotationStep.PREPARE:
        pair = make_pair(sorted(hosts), lifetime, now)
        return StoredPairs(stored_pairs.tls_pair, pair, (*stored_pairs.authorities, pair.authority))
    if step is RotationStep.SWITCH and stored_pairs.next_pair:
        return StoredPairs(stored_pairs.next_pair, None, stored_pairs.authorities)
    if step is RotationStep.PRUNE:
        return StoredPairs(stored_pairs.tls_pair, None, (stored_pairs.tls_pair.authority,))
    return stored_pairs


class CertificateRotation(Poller):
    """Thread that rotates the self-signed certificate.

    `serve` gets the certificate and the key at each poll, since the CAs of its clients may have changed.
    `clock` returns the time of the API server. `monotonic` measures how long a change has been in effect.
    """

    def __init__(
        self,
        api: AdmissionApi,
        secret: ObjectName,
        names: frozenset[str],
        lifetime: float,
        serve: Serve,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._secret = secret
        self._names = names
        self._lifetime = lifetime
        self._serve = serve
        self._clock, self._monotonic = clock, monotonic
        self._last_stored: StoredPairs | None = None
        self._changed_at = monotonic()

        def poll() -> float | None:
            try:
                return _STEP_PAUSE if self.advance() else None
            except ApiError as fault:
                log.warning("the webhooks' certificate could not be checked", error=str(fault))
                return None

        super().__init__("certificate", min(_MAX_PERIOD, settle_time(lifetime) / _POLL_COUNT), poll)

    def advance(self) -> bool:
        """Take the step that is due; return whether this or another replica has taken a step.

        Errors of `serve` never prevent a renewal.

        Raises:
            ApiError: A request failed. The errors of `serve` are raised, too.
        """
        try:
            return self._take_step()
        finally:
            if self._last_stored is not None:
                self._serve(self._last_stored.tls_pair.certificate, self._last_stored.tls_pair.key)

    def _take_step(self) -> bool:
        """Publish the CA bundle, and store the result of the due step; return whether a step was due."""
        try:
            secret = self._api.secret(*self._secret)
        except NotFound:
            secret = None
        stored = read_stored(secret.data) if secret else None
        if stored is not None and stored != self._last_stored:
            self._last_stored, self._changed_at = stored, self._monotonic()
        is_trusted = stored is not None and self._publish_bundle(stored.bundle)
        now = self._clock()
        is_settled = is_trusted and self._monotonic() - self._changed_at >= settle_time(self._lifetime)
        step = next_step(stored.certificate if stored else None, self._names, self._lifetime, now, is_settled)
        if step is RotationStep.KEEP:
            return False
        new_pairs = next_certificates(step, stored, self._names, self._lifetime, now)
        try:
            if secret is None:
                self._api.create_secret(*self._secret, new_pairs.data)
            else:
                self._api.replace_secret(secret, new_pairs.data)
        except Conflict:
            return True  # another replica has taken the step
        log.info("the webhooks' certificate is rotated", step=step.value, secret=str(self._secret))
        return True

    def _publish_bundle(self, bundle: bytes) -> bool:
        """Write the CA bundle into all webhook configurations; return whether all of them have it now."""
        is_complete = True
        for resource, name in CONFIGURATIONS:
            try:
                configuration = self._api.webhook_configuration(resource, name)
            except NotFound:
                continue  # this webhook is not installed
            if all(webhook.client_config.ca_bundle == bundle for webhook in configuration.webhooks):
                continue
            self._changed_at = self._monotonic()
            try:
                self._api.trust(resource, configuration, bundle)
            except Conflict:
                is_complete = False
        return is_complete
