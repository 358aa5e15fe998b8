"""The steps by which Muster renews the certificate that it makes for itself."""

from enum import Enum

import msgspec

_RENEW = 1 / 3  # the part of its lifetime that a certificate has left when the next one is made
_SETTLE = 1 / 30  # the part of the lifetime that a change is given to be known everywhere
_LONGEST_SETTLE = 120.0  # seconds; the most that a change is given


class RotationStep(Enum):
    MAKE = "make"
    PREPARE = "prepare"
    SWITCH = "switch"
    PRUNE = "prune"
    KEEP = "keep"


class Kept(msgspec.Struct, frozen=True):
    """What is stored, as far as the next step depends on it."""

    expires: float  # of the served certificate, in seconds since the epoch
    names: frozenset[str]  # the host names and IP addresses that the served certificate is valid for
    prepared: bool = False  # whether a second certificate is stored
    extra: bool = False  # whether CAs are trusted that have signed none of the stored certificates


def settle(lifetime: float) -> float:
    """Seconds after which every API server and every replica has learned of a change."""
    return min(_LONGEST_SETTLE, lifetime * _SETTLE)


def next_step(
    kept: Kept | None, names: frozenset[str], lifetime: float, now: float, settled: bool
) -> RotationStep:
    """`kept` None: nothing readable is stored. `settled`: what is stored has been in force for long
    enough."""
    if kept is None or kept.expires <= now:
        return RotationStep.MAKE
    if kept.prepared:
        return RotationStep.SWITCH if settled else RotationStep.KEEP
    if kept.expires - now < lifetime * _RENEW or kept.names != names:
        return RotationStep.PREPARE
    return RotationStep.PRUNE if kept.extra and settled else RotationStep.KEEP
