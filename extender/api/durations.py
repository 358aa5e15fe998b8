"""Durations as people read them. Two forms: an age as kubectl writes it, and the two largest units."""

from datetime import UTC, datetime

_DAY, _YEAR = 86400, 365 * 86400
_STEPS = (  # below so many seconds: the unit, the letter; the same of a second unit, or nothing
    (120, 1, "s", 0, ""),
    (600, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (48 * 3600, 3600, "h", 0, ""),
    (8 * _DAY, _DAY, "d", 3600, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def human_duration(seconds: int) -> str:
    """As apimachinery's `duration.HumanDuration`: two units while the first is small, then one."""
    for below, unit, letter, second, second_letter in _STEPS:
        if seconds < below:
            rest = seconds % unit // second if second else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{second_letter}" if rest else "")
    return f"{seconds // _YEAR}y"


def age(timestamp: str, now: datetime | None = None) -> str:
    """How long ago a timestamp of the API was. Raises ValueError for what is none."""
    passed = (now or datetime.now(UTC)) - datetime.fromisoformat(timestamp)
    return human_duration(max(0, int(passed.total_seconds())))


def two_units(seconds: float) -> str:
    """`2.5s`, `7m30s`, `1h05m`, `3d04h`: finer than an age, for what is compared."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g}s" if seconds < 10 else f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < _DAY:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // _DAY}d{whole % _DAY // 3600:02}h"
