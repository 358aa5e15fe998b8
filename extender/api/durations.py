"""Durations as text: exact, as Go and Kubernetes read them, and rounded, as kubectl shows them to people; and
moments."""

import re
from datetime import UTC, datetime
from math import isinf

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def as_seconds(text: str) -> float:
    """The seconds of a duration as Go writes it: 500ms, 2s, 1m30s. Raises ValueError."""
    if re.fullmatch(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+", text) is None:
        raise ValueError(text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([a-z]+)", text))
    if isinf(seconds):  # hundreds of digits
        raise ValueError(text)
    return seconds


def as_duration(seconds: float) -> str:
    """`seconds` as Go reads them, in the larger unit that keeps them whole: 120s, 500ms."""
    milliseconds = round(seconds * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


_STEPS = (  # upper limit in seconds; unit and its letter; second unit and its letter, 0 and "" without one
    (120, 1, "s", 0, ""),
    (600, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (48 * 3600, 3600, "h", 0, ""),
    (8 * 86400, 86400, "d", 3600, "h"),
    (2 * 365 * 86400, 86400, "d", 0, ""),
    (8 * 365 * 86400, 365 * 86400, "y", 86400, "d"),
)


def rounded(seconds: int) -> str:
    """A duration as kubectl prints it: two units while the first is small, then one."""
    for below, unit, letter, second, second_letter in _STEPS:
        if seconds < below:
            rest = seconds % unit // second if second else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{second_letter}" if rest else "")
    return f"{seconds // (365 * 86400)}y"


def age(timestamp: str, now: datetime | None = None) -> str:
    """How long ago a timestamp of the API was. Raises ValueError if it is not a timestamp."""
    passed = (now or datetime.now(UTC)) - datetime.fromisoformat(timestamp)
    return rounded(max(0, int(passed.total_seconds())))


def timestamp_at(seconds: float) -> str:
    """The timestamp of a moment in seconds since 1970; empty for one beyond all calendars."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def moment(timestamp: str | None) -> float:
    """A timestamp of the API in seconds since 1970; 0 for none, and for a text that is none."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except (OverflowError, ValueError, TypeError):
        return 0.0


def between(start: str, end: str) -> str:
    """How long it was from one timestamp of the API to another. Raises ValueError if one is none."""
    return age(start, datetime.fromisoformat(end))


def two_units(seconds: float) -> str:
    """`2.5s`, `7m30s`, `1h05m`, `3d04h`: finer than an age, for durations that readers compare."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g}s" if seconds < 10 else f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
