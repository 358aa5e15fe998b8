"""Certificates of the webhooks, of the dashboard, and for mutual TLS with the scheduler."""

import base64
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extender.api.keys import AUTHORITY, CERTIFICATE, KEY
from extender.api.units import as_seconds, human_duration
from extender.cli.check.findings import Finding, error, fine
from extender.cli.installation import Installation, nested
from extender.cli.output import Json
from extender.kube.resources import SECRETS

_MIN_SECONDS_LEFT = 7 * 86400.0  # seconds before the expiry
_MIN_MANUAL_LEFT = 30 * 86400.0  # seconds before the expiry of certificates that are renewed by hand
_PAGE = "docs/how-to/install.md#default-scheduler"
_RENEW_TODO = f"Renew both sides with muster certificates, and restart the schedulers: {_PAGE}"
_MIN_SHARE_LEFT = 1 / 6  # part of the lifetime; Muster renews when a third is left
_OWN_TODO = "Muster makes and renews it by itself: look at the lines rights and health, and at its log."
_FOREIGN_TODO = "Its issuer has to renew it; for cert-manager: kubectl get certificates -A"
_DASHBOARD_TODO = "Nobody can log in to the dashboard without it: docs/how-to/dashboard.md#in-the-cluster"
_OWN_CA_TODO = "Muster writes its CA there within seconds: look at the line rights, and at its log."
_TRUST_TODO = (
    "Put the CA of that Secret there; cert-manager does, where the annotation cert-manager.io/inject-ca-from"
    " names its Certificate."
)
_NAME_TODO = "Name it by --webhook-name."
_HOST_TODO = "Its issuer has to name that host; for cert-manager, add it to dnsNames of the Certificate."


class Certificate(NamedTuple):
    """Certificate in a Secret.

    Attributes:
        name: Namespace and name of the Secret.
        is_own: Whether Muster makes the certificate.
        secret: The Secret; None if it does not exist.
        min_left: Seconds before the expiry from which its renewal is overdue.
    """

    name: str
    is_own: bool
    secret: Json | None
    min_left: float = _MIN_SECONDS_LEFT


def webhook_certificates(site: Installation) -> Iterator[Certificate]:
    """Yield the certificates of the webhooks. Files outside Secrets cannot be read and are left out."""
    for workload in site.workloads:
        source = workload.setting("webhook_certificates")
        mounted_secret = workload.secret_at(workload.setting("webhook_folder"))
        if source == "self-signed":
            name, life = workload.setting("webhook_secret"), workload.setting("webhook_lifetime")
            limit = min(_MIN_SECONDS_LEFT, as_seconds(life) * _MIN_SHARE_LEFT)
            yield Certificate(name, is_own=True, secret=site.get(SECRETS, *name.split("/")), min_left=limit)
        elif source == "files" and mounted_secret:
            secret = site.get(SECRETS, site.namespace, mounted_secret)
            yield Certificate(f"{site.namespace}/{mounted_secret}", is_own=False, secret=secret)


def file_of_secret(secret: Json | None, name: str) -> bytes:
    """Return a file of a Secret; empty if the Secret does not have it.

    Raises:
        ValueError: The content is not base64.
    """
    return base64.b64decode(nested(secret, "data", name) or "")


def expiries(pem: bytes) -> list[float]:
    """Return the expiry of each certificate in a file, in seconds since 1970.

    Raises:
        ValueError: The file cannot be read.
    """
    from extender.webhooks.certificates import expiry_of, split_bundle

    return [expiry_of(certificate) for certificate in split_bundle(pem)]


def latest_begin(pem: bytes) -> float:
    """Return the time from which all certificates in a file are valid, in seconds since 1970.

    Raises:
        ValueError: The file cannot be read.
    """
    from extender.webhooks.certificates import split_bundle, validity_of

    return max(validity_of(certificate).begin for certificate in split_bundle(pem))


def expiry_text(seconds_left: float) -> str:
    return "has expired" if seconds_left <= 0 else f"expires in {human_duration(int(seconds_left))}"


def bundle_fault(bundle: str, certificates: Sequence[Certificate], now: float) -> str:
    """Return the fault of a caBundle; empty if there is no fault."""
    if not bundle:
        return "caBundle is empty, so the API server trusts no certificate of it"
    try:
        seconds_left = max(expiries(base64.b64decode(bundle))) - now
    except ValueError as fault:
        return f"caBundle cannot be read: {fault}"
    min_left = min((certificate.min_left for certificate in certificates), default=_MIN_SECONDS_LEFT)
    return f"its authority {expiry_text(seconds_left)}" if seconds_left <= min_left else ""


def reason_of_distrust(bundle: str, host: str, certificate: Certificate) -> tuple[str, str] | None:
    """Return why the API server distrusts the certificate of `host`, and a remedy; None if it is trusted.

    If the certificate cannot be read, the result is None, because another check reports this fault.
    """
    from extender.webhooks.certificates import host_names, is_trusted

    try:
        pem = file_of_secret(certificate.secret, "tls.crt")
        has_trust, certified_names = is_trusted(pem, base64.b64decode(bundle)), host_names(pem)
    except ValueError:
        return None
    if not has_trust:
        message = f"caBundle is not of the CA that made the certificate in the Secret {certificate.name}"
        return f"{message}, so the API server refuses it", _OWN_CA_TODO if certificate.is_own else _TRUST_TODO
    if not {host, f"*.{host.partition('.')[2]}"} & certified_names:
        hosts = ", ".join(sorted(certified_names)) or "no host"
        message = f"the certificate in the Secret {certificate.name} is for {hosts}"
        return f"{message}, and the API server calls {host}", _NAME_TODO if certificate.is_own else _HOST_TODO
    return None


def certificates(site: Installation) -> Iterator[Finding]:
    for certificate in webhook_certificates(site):
        yield _expiry_finding(site, certificate, _OWN_TODO if certificate.is_own else _FOREIGN_TODO)
    for workload in site.workloads:
        if name := workload.secret_at(workload.setting("dashboard_tls_folder")):
            secret = site.get(SECRETS, site.namespace, name)
            certificate = Certificate(f"{site.namespace}/{name}", is_own=False, secret=secret)
            yield _expiry_finding(site, certificate, _DASHBOARD_TODO)


def _expiry_finding(site: Installation, certificate: Certificate, todo: str) -> Finding:
    if certificate.secret is None:
        return error("certificates", f"the Secret {certificate.name} does not exist", todo)
    try:
        pem = file_of_secret(certificate.secret, "tls.crt")
        seconds_left, wait = min(expiries(pem)) - site.now, latest_begin(pem) - site.now
    except ValueError as fault:
        advice = f"Delete it. {todo}" if certificate.is_own else todo
        return error("certificates", f"the Secret {certificate.name} holds none: {fault}", advice)
    if wait > 0:
        validity = f"is not valid before {human_duration(int(wait))} from now: a clock is or was wrong"
        return error("certificates", f"that of the Secret {certificate.name} {validity}", todo)
    message = f"that of the Secret {certificate.name} {expiry_text(seconds_left)}"
    is_late = seconds_left <= certificate.min_left
    return error("certificates", message, todo) if is_late else fine("certificates", message)


# ---- mutual TLS: the certificates by which Muster and the cluster's own scheduler know each other
#
# Muster's are in the Secret at --tls-folder. The scheduler's are files on its node, so they are not checked.


def mutual_tls(site: Installation) -> Iterator[Finding]:
    """Check the certificates for mutual TLS. Folders outside Secrets cannot be read and are left out."""
    for workload in site.workloads:
        if name := workload.secret_at(workload.setting("tls_folder")):
            # The host in urlPrefix of the scheduler's configuration: Muster runs on the scheduler's node.
            host = workload.setting("listen").rpartition(":")[0].strip("[]")
            yield _mutual_tls_finding(site, name, "127.0.0.1" if host in ("", "0.0.0.0", "::") else host)


def _mutual_tls_finding(site: Installation, name: str, host: str) -> Finding:
    secret, title = site.get(SECRETS, site.namespace, name), f"the Secret {site.namespace}/{name}"
    if secret is None:
        todo = (
            "muster certificates --out muster-tls, then: "
            f"kubectl -n {site.namespace} create secret generic {name} --from-file=muster-tls/muster; {_PAGE}"
        )
        return error("mutual TLS", f"{title} does not exist, so the pods of Muster do not start", todo)
    try:
        fault = _mutual_tls_fault(secret, site.now, host)
        seconds_left = _seconds_left(secret, site.now) if not fault else 0.0
    except ValueError as unreadable:
        return error("mutual TLS", f"{title} cannot be read: {unreadable}", _RENEW_TODO)
    if fault:
        return error("mutual TLS", f"{title} {fault}", _RENEW_TODO)
    return fine("mutual TLS", f"the certificate in {title} is for {host} and {expiry_text(seconds_left)}")


def _mutual_tls_fault(secret: Json, now: float, host: str) -> str:
    """Return the fault of the certificates in a Secret; empty if there is no fault.

    Raises:
        ValueError: A file cannot be read.
    """
    from extender.webhooks.certificates import host_names, is_key_of

    missing_files = [file for file in (CERTIFICATE, KEY, AUTHORITY) if not file_of_secret(secret, file)]
    if missing_files:
        return f"lacks {', '.join(missing_files)}"
    certificate = file_of_secret(secret, CERTIFICATE)
    if not is_key_of(certificate, file_of_secret(secret, KEY)):
        return f"has a {KEY} that is not of its {CERTIFICATE}"
    if host not in host_names(certificate):
        certified_names = ", ".join(sorted(host_names(certificate))) or "no host"
        return f"has a certificate for {certified_names}, and the scheduler calls {host}"
    seconds_left = _seconds_left(secret, now)
    return f"has a certificate that {expiry_text(seconds_left)}" if seconds_left <= _MIN_MANUAL_LEFT else ""


def _seconds_left(secret: Json, now: float) -> float:
    """Return the seconds until the first certificate in a Secret expires."""
    files = (file_of_secret(secret, name) for name in (CERTIFICATE, AUTHORITY))
    return min(expiry for pem in files for expiry in expiries(pem)) - now
