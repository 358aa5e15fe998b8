"""Whether a Lease is held and renewed. `now` is in seconds since 1970, by the clock of the caller."""

from datetime import datetime

from extender.api.objects.cluster import LeaseSpec

_DURATION = 15.0  # seconds, for a Lease that names no duration


def duration_of(lease: LeaseSpec) -> float:
    return lease.lease_duration_seconds or _DURATION


def age_of(lease: LeaseSpec, now: float) -> float | None:
    """Seconds since its renewal, negative when its holder's clock is ahead; None if it has no valid time of
    renewal."""
    try:
        return now - datetime.fromisoformat(lease.renew_time or "").timestamp()
    except ValueError:
        return None


def lively(lease: LeaseSpec, now: float) -> bool:
    """Whether the Lease has a holder that renewed it in time, by that clock."""
    age = age_of(lease, now)
    return bool(lease.holder_identity) and age is not None and age < duration_of(lease)
