"""How a Lease stands. `now` is in seconds since 1970, by whatever clock is asked."""

from datetime import datetime

from extender.api.objects import LeaseSpec

_DURATION = 15.0  # of one that does not say


def duration_of(lease: LeaseSpec) -> float:
    return lease.lease_duration_seconds or _DURATION


def age_of(lease: LeaseSpec, now: float) -> float | None:
    """Seconds since its renewal, negative when its holder's clock is ahead; None when it does not say."""
    try:
        return now - datetime.fromisoformat(lease.renew_time or "").timestamp()
    except ValueError:
        return None


def lively(lease: LeaseSpec, now: float) -> bool:
    """Whether somebody holds it and has renewed it in time, by that clock."""
    age = age_of(lease, now)
    return bool(lease.holder_identity) and age is not None and age < duration_of(lease)
