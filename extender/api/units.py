"""Texts of quantities, durations, times and names, and tables of texts.

A line of a table is `name: text`. Indented lines continue the text.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache

from extender.api.keys import GPU

Quantity = str | int

_QUANTITY_RE = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY: dict[str, int] = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL_FACTORS: dict[str, Fraction] = {
    letter: Fraction(f"1e{power}")
    for letter, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
_MAX_AMOUNT = 2**63 - 1
_DIGITS = 10
MAX_LENGTH = 100  # maximum characters of a text; the API server writes at most 30


class BadQuantity(ValueError):
    """Error: the API server would not accept a text as a quantity."""


def rounded_up(quantity: Quantity, scale: int = 1) -> int:
    """Return `quantity` in units of 1/`scale`, rounded up, as for requests.

    Raises:
        BadQuantity: The text is no quantity.
    """
    value = _parse(quantity) * scale
    return _capped(-(-value.numerator // value.denominator))


def rounded_down(quantity: Quantity, scale: int = 1) -> int:
    """Return `quantity` in units of 1/`scale`, rounded down, as for capacities.

    Raises:
        BadQuantity: The text is no quantity.
    """
    value = _parse(quantity) * scale
    return _capped(value.numerator // value.denominator)


@lru_cache(maxsize=4096)
def _parse(quantity: Quantity) -> Fraction:
    """Return the exact value of a quantity.

    Raises:
        BadQuantity: The text is no quantity.
    """
    text = str(quantity)
    match = _QUANTITY_RE.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        hint = _intended_quantity(text)
        raise BadQuantity(f"{text[:MAX_LENGTH]!r} is not a quantity such as 500m, 2 or 1.5Gi{hint}")
    value = Fraction(match["sign"] + match["number"])
    if match["binary"]:
        return value * _BINARY[match["binary"]]
    if match["decimal"]:
        return value * _DECIMAL_FACTORS[match["decimal"]]
    return value * Fraction(f"1e{int(match['exponent'] or 0)}")


def _intended_quantity(text: str) -> str:
    """Return a hint with the intended quantity for a text such as 8GB; empty for other texts."""
    match = re.fullmatch(
        r"(?P<number>[0-9.]{1,20}) ?(?P<letter>[kmgtp])(?P<binary>i?)b?", text, re.IGNORECASE
    )
    if match is None:
        return ""
    number, letter = match["number"], match["letter"].upper()
    decimal_letter = "k" if letter == "K" else letter
    decimal = "" if match["binary"] else f"{number}{decimal_letter} or "
    return f"; did you mean {decimal}{number}{letter}i?"


_RESOURCES = {
    **dict.fromkeys(("cpus", "core", "cores"), "cpu"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("gpu", "gpus"), GPU),
}


def intended_name(resource: str) -> str:
    """Return a sentence with the intended resource for a frequent wrong name; empty for other names."""
    intended = _RESOURCES.get(resource.lower())
    return f"no node has a resource {resource}; did you mean {intended}?" if intended else ""


def _capped(value: int) -> int:
    return max(-_MAX_AMOUNT, min(value, _MAX_AMOUNT))


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_MAX_SECONDS = 2**63 / 1e9  # seconds: Go counts nanoseconds in 64 bits


def as_seconds(text: str) -> float:
    """Return the seconds of a duration in Go's format, such as 500ms, 2s or 1m30s.

    Raises:
        ValueError: The text is no duration.
    """
    if len(text) > MAX_LENGTH or re.fullmatch(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+", text) is None:
        raise ValueError(text[:MAX_LENGTH])
    seconds = sum(float(number) * _UNITS[suffix] for number, suffix in re.findall(r"([0-9.]+)([a-z]+)", text))
    if seconds >= _GO_MAX_SECONDS:
        raise ValueError(text)
    return seconds


def as_duration(seconds: float) -> str:
    """Return seconds as a Go duration, in the largest unit without a fraction: 120s, 500ms."""
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


def as_time(text: str, now: float) -> float:
    """Return a time that a user wrote, in seconds since 1970.

    Accepts a duration before now (7d, 12h, 1d12h, 90m), a date, or a timestamp. Dates and timestamps are in
    UTC unless they have an offset.

    Raises:
        ValueError: The text is no time.
    """
    days, _, hours = text.rpartition("d")
    if re.fullmatch(r"[0-9]{1,5}|", days) and (days or hours) and re.fullmatch(r"[0-9.hms]*", hours):
        return now - int(days or 0) * 86400.0 - (as_seconds(hours) if hours else 0.0)
    try:
        at = as_datetime(text)
    except OverflowError as fault:
        raise ValueError(text) from fault
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


PAST_FORMS = "how long ago, such as 7d, 12h or 30m, or a date or timestamp, such as 2026-11-01"


def human_duration(seconds: int) -> str:
    """Return a duration as kubectl prints it: a small number also gets the next smaller unit."""
    for limit, step, letter, lesser_step, lesser_letter in _STEPS:
        if seconds < limit:
            lesser_count = seconds % step // lesser_step if lesser_step else 0
            return f"{seconds // step}{letter}" + (f"{lesser_count}{lesser_letter}" if lesser_count else "")
    return f"{seconds // (365 * 86400)}y"


def as_datetime(timestamp: str) -> datetime:
    """Return the datetime of a timestamp.

    Raises:
        ValueError: The text is no timestamp.
    """
    if len(timestamp) > MAX_LENGTH:
        raise ValueError(timestamp[:MAX_LENGTH])
    return datetime.fromisoformat(timestamp)


def is_count(text: object) -> bool:
    """Return whether a text is a whole number from 0 with at most ten digits."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _DIGITS


def age(timestamp: str, now: datetime | None = None) -> str:
    """Return the time since a timestamp, as kubectl prints ages.

    Raises:
        ValueError: The text is no timestamp.
    """
    elapsed_time = (now or datetime.now(UTC)) - as_datetime(timestamp)
    return human_duration(max(0, int(elapsed_time.total_seconds())))


def timestamp_at(seconds: float) -> str:
    """Return the timestamp of seconds since 1970; empty if no calendar date matches."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def unix_seconds(timestamp: str | None) -> float:
    """Return a timestamp in seconds since 1970; 0 if the text is empty or invalid."""
    try:
        return as_datetime(timestamp).timestamp() if timestamp else 0.0
    except (OverflowError, ValueError, TypeError):
        return 0.0


def duration_between(start: str, end: str) -> str:
    """Return the time between two timestamps, as kubectl prints ages.

    Raises:
        ValueError: A text is no timestamp.
    """
    return age(start, as_datetime(end))


def precise_duration(seconds: float) -> str:
    """Return seconds with about three digits, `2.5s`, `7m30s` or `3d04h`, which readers can compare."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{seconds:.3g}s" if seconds < 10 else f"{whole_seconds}s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60}m{whole_seconds % 60:02}s"
    if whole_seconds < 86400:
        return f"{whole_seconds // 3600}h{whole_seconds % 3600 // 60:02}m"
    return f"{whole_seconds // 86400}d{whole_seconds % 86400 // 3600:02}h"


_ENTRY = re.compile(r"^([^\s:]+): (.+(?:\n  .+)*)", re.MULTILINE)

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LONGEST_NAME = 253


def may_be_name(text: str) -> bool:
    """Return whether an object can have this name.

    Other texts must not get into paths: `q/status` and `..` would lead to another object.
    """
    return len(text) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(text) is not None


def name_hint(name: str, known_names: Sequence[str]) -> str:
    """Return a hint for a wrong name: the most similar known name as a question, or all known names."""
    near = get_close_matches(name[:MAX_LENGTH], known_names, n=1)
    return f"did you mean {near[0]}?" if near else f"must be one of {', '.join(known_names)}"


def listed(names: Sequence[str], maximum: int = 5, separator: str = ", ") -> str:
    """Return a text with the first names, and the number of the omitted names."""
    return " ".join([separator.join(names[:maximum]), *and_more(len(names) - maximum)])


def and_more(left_out: int, suffix: str = "") -> list[str]:
    """Return `and 3 more` for a shortened list; empty for a complete list."""
    return [f"and {left_out:,} more{suffix}"] if left_out > 0 else []


def texts_by_name(table: str) -> dict[str, str]:
    """Return the texts of a table by name, in order, without line breaks."""
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(table)}
