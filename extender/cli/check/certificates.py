"""The certificates of the webhooks: what the API server trusts, and what Muster shows."""

import base64
from collections.abc import Iterator

from extender.cli.check.findings import Finding, Site, at, container_of, fine, setting, wrong
from extender.cli.output import Json
from extender.cli.seen import duration
from extender.kube.resources import SECRETS

SOON = 7 * 86400.0
_LOG = "Muster makes and renews it by itself: look at its log."


def bundle_fault(bundle: str, now: float) -> str:
    """What is wrong with a caBundle; empty when nothing is."""
    if not bundle:
        return "caBundle is empty, so the API server trusts no certificate of it"
    try:
        left = max(_expiries(bundle)) - now
    except ValueError as fault:
        return f"caBundle cannot be read: {fault}"
    return "" if left > SOON else f"its authority {_ends(left)}"


def certificates(site: Site) -> Iterator[Finding]:
    """The one that Muster makes itself; those in files are for others to watch."""
    for each in site.workloads:
        container = container_of(each["spec"]["template"]["spec"])
        if setting(container, "webhook_certificates") == "self-signed":
            name = setting(container, "webhook_secret")
            yield _secret(name, site.get(SECRETS, *name.split("/")), site.now)


def _secret(name: str, secret: Json | None, now: float) -> Finding:
    if secret is None:
        return wrong("certificates", f"the Secret {name} does not exist", _LOG)
    try:
        left = min(_expiries(at(secret, "data", "tls.crt") or "")) - now
    except ValueError as fault:
        return wrong("certificates", f"the Secret {name} holds none: {fault}", f"Delete it. {_LOG}")
    if left <= SOON:
        return wrong("certificates", f"that of the Secret {name} {_ends(left)}", _LOG)
    return fine("certificates", f"that of the Secret {name} {_ends(left)}")


def _expiries(encoded: str) -> list[float]:
    """When each certificate of a base64 text ends, in seconds since 1970. Raises ValueError."""
    from extender.webhooks.certificates import expiry, split

    return [expiry(each) for each in split(base64.b64decode(encoded))]


def _ends(left: float) -> str:
    return "has expired" if left <= 0 else f"expires in {duration(int(left))}"
