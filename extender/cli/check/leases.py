"""How a lease stands, by the clock of the API server."""

from datetime import datetime

from extender.api.objects import Lease


def age_of(lease: Lease, now: float) -> float | None:
    """Seconds since its last renewal, negative when its holder's clock is ahead; None when it never was."""
    if not lease.spec.renew_time:
        return None
    return now - datetime.fromisoformat(lease.spec.renew_time).timestamp()


def lively(lease: Lease, now: float) -> bool:
    age = age_of(lease, now)
    return (
        bool(lease.spec.holder_identity)
        and age is not None
        and age < (lease.spec.lease_duration_seconds or 15)
    )
