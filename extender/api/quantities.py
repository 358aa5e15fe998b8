"""Kubernetes quantities as integers, as strict as the API server.

A quantity is a decimal number with an optional suffix: binary (Ki … Ei), decimal (n u m k M G T P E) or an
exponent (e3, E-2). A value finer than the unit asked for is rounded so that nothing is overcommitted:
requests up, capacities down. Rule: apimachinery `resource.ParseQuantity`.
"""

import re
from fractions import Fraction
from functools import lru_cache

from extender.api.keys import GPU

Quantity = str | int

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY: dict[str, int] = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: dict[str, Fraction] = {
    letter: Fraction(f"1e{power}")
    for letter, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
_LARGEST = 2**63 - 1
_LONGEST = 100  # characters; the API server never writes more than 30


class BadQuantity(ValueError):
    """A text that the API server would not accept as a quantity."""


def at_least(quantity: Quantity, scale: int = 1) -> int:
    """`quantity` in units of 1/`scale`, rounded up: for requests. Raises BadQuantity."""
    value = _parse(quantity) * scale
    return _capped(-(-value.numerator // value.denominator))


def at_most(quantity: Quantity, scale: int = 1) -> int:
    """`quantity` in units of 1/`scale`, rounded down: for capacities. Raises BadQuantity."""
    value = _parse(quantity) * scale
    return _capped(value.numerator // value.denominator)


@lru_cache(maxsize=4096)
def _parse(quantity: Quantity) -> Fraction:
    text = str(quantity)
    match = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise BadQuantity(f"{text[:_LONGEST]!r} is not a quantity such as 500m, 2 or 1.5Gi{_meant(text)}")
    value = Fraction(match["sign"] + match["number"])
    if match["binary"]:
        return value * _BINARY[match["binary"]]
    if match["decimal"]:
        return value * _DECIMAL[match["decimal"]]
    return value * Fraction(f"1e{int(match['exponent'] or 0)}")


def _meant(text: str) -> str:
    """Of units as disks and shops have them."""
    match = re.fullmatch(r"([0-9.]{1,20}) ?([kmgtp])(i?)b?", text, re.IGNORECASE)
    if match is None:
        return ""
    number, letter = match[1], match[2].upper()
    decimal = "" if match[3] else f"{number}{'k' if letter == 'K' else letter} or "
    return f"; did you mean {decimal}{number}{letter}i?"


_RESOURCES = {
    **dict.fromkeys(("cpus", "core", "cores"), "cpu"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("gpu", "gpus"), GPU),
}


def misnamed(resource: str) -> str:
    """What no node has, and what was meant, as a sentence; empty for other names."""
    meant = _RESOURCES.get(resource.lower())
    return f"no node has a resource {resource}; did you mean {meant}?" if meant else ""


def _capped(value: int) -> int:
    return max(-_LARGEST, min(value, _LARGEST))
