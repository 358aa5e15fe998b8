"""The certificates by which Muster and the cluster's own scheduler know each other: the Secret that Muster
has at --tls-folder. The scheduler's side is in files of its node, which the API server does not show.
"""

from collections.abc import Iterator

from extender.cli.check.certificate_facts import ends, expiries, part_of
from extender.cli.check.findings import Finding, Installation, fine, wrong
from extender.cli.output import Json
from extender.kube.resources import SECRETS

_SUBJECT = "mutual TLS"
_SOON = 30 * 86400.0  # people renew it, on each node
_PAGE = "docs/install.md#default-scheduler"
_RENEW = f"Renew both sides with muster certificates, and restart the schedulers: {_PAGE}"


def mutual_tls(site: Installation) -> Iterator[Finding]:
    """Where the folder is of no Secret, nothing is known of it."""
    for each in site.workloads:
        if (folder := each.setting("tls_folder")) and (name := each.secret_at(folder)):
            yield _judged(site, name, _called(each.setting("listen")))


def _judged(site: Installation, name: str, host: str) -> Finding:
    secret, shown = site.get(SECRETS, site.namespace, name), f"the Secret {site.namespace}/{name}"
    if secret is None:
        todo = (
            "muster certificates --out muster-tls, then: "
            f"kubectl -n {site.namespace} create secret generic {name} --from-file=muster-tls/muster; {_PAGE}"
        )
        return wrong(_SUBJECT, f"{shown} does not exist, so the pods of Muster do not start", todo)
    try:
        fault = _fault(secret, site.now, host)
        left = _left(secret, site.now) if not fault else 0.0
    except ValueError as unreadable:
        return wrong(_SUBJECT, f"{shown} cannot be read: {unreadable}", _RENEW)
    if fault:
        return wrong(_SUBJECT, f"{shown} {fault}", _RENEW)
    return fine(_SUBJECT, f"the certificate in {shown} is for {host} and {ends(left)}")


def _fault(secret: Json, now: float, host: str) -> str:
    """Empty where nothing is wrong. Raises ValueError."""
    from extender.webhooks.certificate_files import AUTHORITY, CERTIFICATE, KEY
    from extender.webhooks.certificates import fits, names

    missing = [each for each in (CERTIFICATE, KEY, AUTHORITY) if not part_of(secret, each)]
    if missing:
        return f"lacks {', '.join(missing)}"
    certificate = part_of(secret, CERTIFICATE)
    if not fits(certificate, part_of(secret, KEY)):
        return f"has a {KEY} that is not of its {CERTIFICATE}"
    if host not in names(certificate):
        known = ", ".join(sorted(names(certificate))) or "no host"
        return f"has a certificate for {known}, and the scheduler calls {host}"
    left = _left(secret, now)
    return f"has a certificate that {ends(left)}" if left <= _SOON else ""


def _left(secret: Json, now: float) -> float:
    """Seconds until the first of its certificates ends."""
    from extender.webhooks.certificate_files import AUTHORITY, CERTIFICATE

    return min(each for name in (CERTIFICATE, AUTHORITY) for each in expiries(part_of(secret, name))) - now


def _called(listen: str) -> str:
    """The host in urlPrefix of the scheduler's configuration: Muster is on the scheduler's own node."""
    host = listen.rpartition(":")[0].strip("[]")
    return host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"
