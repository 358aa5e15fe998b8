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

_SOON = 7 * 86400.0  # seconds before the expiry
_SOON_BY_HAND = 30 * 86400.0  # seconds before the expiry of certificates that are renewed by hand
_PAGE = "docs/how-to/install.md#default-scheduler"
_RENEW = f"Renew both sides with muster certificates, and restart the schedulers: {_PAGE}"
_OVERDUE = 1 / 6  # part of the lifetime; Muster renews when a third is left
_LOG = "Muster makes and renews it by itself: look at the lines rights and health, and at its log."
_OTHERS = "Its issuer has to renew it; for cert-manager: kubectl get certificates -A"
_DASHBOARD = "Nobody can log in to the dashboard without it: docs/how-to/dashboard.md#in-the-cluster"
_TRUST = "Muster writes its CA there within seconds: look at the line rights, and at its log."
_TRUST_OTHERS = (
    "Put the CA of that Secret there; cert-manager does, where the annotation cert-manager.io/inject-ca-from"
    " names its Certificate."
)
_NAME = "Name it by --webhook-name."
_NAME_OTHERS = "Its issuer has to name that host; for cert-manager, add it to dnsNames of the Certificate."


class Certificate(NamedTuple):
    """Certificate in a Secret.

    `is_own` says whether Muster makes it. With `soon` seconds left, its renewal is overdue.
    """

    name: str
    is_own: bool
    secret: Json | None
    soon: float = _SOON


def webhook_certificates(site: Installation) -> Iterator[Certificate]:
    """Yield the certificates of the webhooks. Files outside Secrets cannot be read and are left out."""
    for workload in site.workloads:
        source = workload.setting("webhook_certificates")
        mounted = workload.secret_at(workload.setting("webhook_folder"))
        if source == "self-signed":
            name, life = workload.setting("webhook_secret"), workload.setting("webhook_lifetime")
            soon = min(_SOON, as_seconds(life) * _OVERDUE)
            yield Certificate(name, is_own=True, secret=site.get(SECRETS, *name.split("/")), soon=soon)
        elif source == "files" and mounted:
            secret = site.get(SECRETS, site.namespace, mounted)
            yield Certificate(f"{site.namespace}/{mounted}", is_own=False, secret=secret)


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
    from extender.webhooks.certificates import expiry, split

    return [expiry(certificate) for certificate in split(pem)]


def latest_begin(pem: bytes) -> float:
    """Return the time from which all certificates in a file are valid, in seconds since 1970.

    Raises:
        ValueError: The file cannot be read.
    """
    from extender.webhooks.certificates import split, validity

    return max(validity(certificate).begin for certificate in split(pem))


def expiry_text(remaining: float) -> str:
    return "has expired" if remaining <= 0 else f"expires in {human_duration(int(remaining))}"


def bundle_fault(bundle: str, certificates: Sequence[Certificate], now: float) -> str:
    """Return the fault of a caBundle; empty without one."""
    if not bundle:
        return "caBundle is empty, so the API server trusts no certificate of it"
    try:
        remaining = max(expiries(base64.b64decode(bundle))) - now
    except ValueError as fault:
        return f"caBundle cannot be read: {fault}"
    soon = min((certificate.soon for certificate in certificates), default=_SOON)
    return f"its authority {expiry_text(remaining)}" if remaining <= soon else ""


def reason_of_distrust(bundle: str, host: str, certificate: Certificate) -> tuple[str, str] | None:
    """Return why the API server refuses the certificate of `host`, and a remedy; None if it trusts it.

    An unreadable certificate also returns None, because another check reports it.
    """
    from extender.webhooks.certificates import is_trusted, names

    try:
        pem = file_of_secret(certificate.secret, "tls.crt")
        trusted, certified_names = is_trusted(pem, base64.b64decode(bundle)), names(pem)
    except ValueError:
        return None
    if not trusted:
        message = f"caBundle is not of the CA that made the certificate in the Secret {certificate.name}"
        return f"{message}, so the API server refuses it", _TRUST if certificate.is_own else _TRUST_OTHERS
    if not {host, f"*.{host.partition('.')[2]}"} & certified_names:
        hosts = ", ".join(sorted(certified_names)) or "no host"
        message = f"the certificate in the Secret {certificate.name} is for {hosts}"
        return f"{message}, and the API server calls {host}", _NAME if certificate.is_own else _NAME_OTHERS
    return None


def certificates(site: Installation) -> Iterator[Finding]:
    for certificate in webhook_certificates(site):
        yield _expiry(site, certificate, _LOG if certificate.is_own else _OTHERS)
    for workload in site.workloads:
        if name := workload.secret_at(workload.setting("dashboard_tls_folder")):
            secret = site.get(SECRETS, site.namespace, name)
            certificate = Certificate(f"{site.namespace}/{name}", is_own=False, secret=secret)
            yield _expiry(site, certificate, _DASHBOARD)


def _expiry(site: Installation, certificate: Certificate, todo: str) -> Finding:
    if certificate.secret is None:
        return error("certificates", f"the Secret {certificate.name} does not exist", todo)
    try:
        pem = file_of_secret(certificate.secret, "tls.crt")
        remaining, wait = min(expiries(pem)) - site.now, latest_begin(pem) - site.now
    except ValueError as fault:
        advice = f"Delete it. {todo}" if certificate.is_own else todo
        return error("certificates", f"the Secret {certificate.name} holds none: {fault}", advice)
    if wait > 0:
        validity = f"is not valid before {human_duration(int(wait))} from now: a clock is or was wrong"
        return error("certificates", f"that of the Secret {certificate.name} {validity}", todo)
    message = f"that of the Secret {certificate.name} {expiry_text(remaining)}"
    is_late = remaining <= certificate.soon
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
        fault = _fault(secret, site.now, host)
        remaining = _seconds_left(secret, site.now) if not fault else 0.0
    except ValueError as unreadable:
        return error("mutual TLS", f"{title} cannot be read: {unreadable}", _RENEW)
    if fault:
        return error("mutual TLS", f"{title} {fault}", _RENEW)
    return fine("mutual TLS", f"the certificate in {title} is for {host} and {expiry_text(remaining)}")


def _fault(secret: Json, now: float, host: str) -> str:
    """Return the fault of the certificates in a Secret; empty without one.

    Raises:
        ValueError: A file cannot be read.
    """
    from extender.webhooks.certificates import is_key_of, names

    missing = [file for file in (CERTIFICATE, KEY, AUTHORITY) if not file_of_secret(secret, file)]
    if missing:
        return f"lacks {', '.join(missing)}"
    certificate = file_of_secret(secret, CERTIFICATE)
    if not is_key_of(certificate, file_of_secret(secret, KEY)):
        return f"has a {KEY} that is not of its {CERTIFICATE}"
    if host not in names(certificate):
        certified_names = ", ".join(sorted(names(certificate))) or "no host"
        return f"has a certificate for {certified_names}, and the scheduler calls {host}"
    remaining = _seconds_left(secret, now)
    return f"has a certificate that {expiry_text(remaining)}" if remaining <= _SOON_BY_HAND else ""


def _seconds_left(secret: Json, now: float) -> float:
    """Return the seconds until the first certificate in a Secret expires."""
    files = (file_of_secret(secret, name) for name in (CERTIFICATE, AUTHORITY))
    return min(expiry for pem in files for expiry in expiries(pem)) - now
