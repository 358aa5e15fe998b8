"""Others who might schedule the same pods."""

from collections.abc import Iterator

import msgspec

from extender.api.objects import Lease
from extender.cli.check.findings import Finding, Site, fine, wrong
from extender.cli.check.leases import lively
from extender.kube.resources import LEASES

_VOLCANO = ("volcano-system", "volcano")  # where Volcano's scheduler holds its lease


def volcano(site: Site) -> Iterator[Finding]:
    found = site.get(LEASES, *_VOLCANO)
    lease = msgspec.convert(found, Lease) if found else None
    if lease is None or not lively(lease, site.now):
        yield fine("Volcano", "no scheduler of Volcano is at work")
        return
    told = (
        f"its scheduler is at work ({lease.spec.holder_identity}), so pods of schedulerName: volcano are"
        " left to it, and both schedulers try them"
    )
    yield wrong(
        "Volcano",
        told,
        "Stop Volcano's scheduler, or take volcano out of --scheduler-name, the profiles and the policy.",
    )
