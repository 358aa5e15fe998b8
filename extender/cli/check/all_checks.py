"""All checks, in the order in which one would mend what they find."""

import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

import msgspec

from extender.cli.access import ClusterAccess
from extender.cli.check.admission import policies, webhooks
from extender.cli.check.certificates import certificates
from extender.cli.check.crds import kinds
from extender.cli.check.findings import Check, Finding, Installation, fine, looked, wrong
from extender.cli.check.kueue import kueue
from extender.cli.check.leadership import leader, workload
from extender.cli.check.local_queues import local_queues
from extender.cli.check.mutual_tls import mutual_tls
from extender.cli.check.quotas import quotas
from extender.cli.check.replicas import replicas
from extender.cli.check.rights import rights
from extender.cli.check.view import view
from extender.cli.check.volcano import volcano

_SKEW = 5.0  # seconds that clocks may differ
_OLDEST = 34
_EMBEDDED = "embedded"  # what the embedded API server says for its platform

CHECKS: tuple[tuple[str, Check], ...] = (
    ("kinds", kinds),
    ("rights", rights),
    ("policies", policies),
    ("webhooks", webhooks),
    ("certificates", certificates),
    ("mutual TLS", mutual_tls),
    ("workload", workload),
    ("leader", leader),
    ("health", replicas),
    ("view", view),
    ("LocalQueues", local_queues),
    ("quotas", quotas),
    ("Kueue", kueue),
    ("Volcano", volcano),
)


def all_findings(
    place: ClusterAccess, looking_at: Callable[[str], None] = lambda _: None
) -> Iterator[Finding]:
    """`looking_at` takes what is looked at next, to be shown meanwhile."""
    with place.connection.stream("/version") as answer:
        here, date = time.time(), answer.answer.headers.get("date", "")
        served = msgspec.json.decode(answer.read(), type=dict[str, str])
    there = parsedate_to_datetime(date).timestamp() if date else here
    site = Installation(place, there)
    site.minor = int(served["minor"].rstrip("+"))
    if served.get("platform") == _EMBEDDED:
        yield embedded(served["gitVersion"])
        return
    yield version(site, served["gitVersion"])
    yield clocks(here - there)
    for subject, check in CHECKS:
        looking_at(f"looking at {subject}")
        yield from looked(subject, check, site)


def embedded(git: str) -> Finding:
    """`muster run` brings nothing that could be missing."""
    message = f"this is the embedded cluster of muster run ({git}), where Muster runs next to the API server"
    return fine("cluster", f"{message}; there is no installation to look at")


def version(site: Installation, git: str) -> Finding:
    if site.minor < _OLDEST:
        return wrong(
            "Kubernetes", f"{git} is too old", f"Allowed is 1.{_OLDEST} and newer: update the cluster."
        )
    return fine("Kubernetes", git)


def clocks(ahead: float) -> Finding:
    """`ahead`: seconds that this machine's clock is ahead of the API server's."""
    if abs(ahead) <= _SKEW:
        return fine("clocks", "this machine and the API server agree")
    side = "ahead of" if ahead > 0 else "behind"
    message = f"this machine's is {abs(ahead):.0f} s {side} the API server's"
    return wrong("clocks", message, "Let both follow the same time server; ages are shown wrong until then.")
