"""When which part of the certificate that Muster makes for itself changes.

    keep ──► prepare: a second certificate is made, its CA is trusted beside the first
         ──► switch:  once every API server had time to hear of that CA, the second one is served
         ──► prune:   once every replica serves it, the first CA is forgotten
Nobody ever meets a certificate that is not trusted yet or any more. What makes no sense, or has expired, is
made anew at once: there is nothing left to be careful about.
"""

from enum import Enum

import msgspec

_RENEW = 1 / 3  # of its life that a certificate has left when the next is made
_SETTLE = 1 / 30
_LONGEST_SETTLE = 120.0


class RotationStep(Enum):
    MAKE = "make"
    PREPARE = "prepare"
    SWITCH = "switch"
    PRUNE = "prune"
    KEEP = "keep"


class Kept(msgspec.Struct, frozen=True):
    """What is stored. `expires` in seconds since the epoch; `names`: whom the served certificate is for;
    `extra`: whether CAs are trusted of which nothing stored comes."""

    expires: float
    names: frozenset[str]
    prepared: bool = False
    extra: bool = False


def settle(lifetime: float) -> float:
    """Seconds that a change needs until every API server and every replica has heard of it."""
    return min(_LONGEST_SETTLE, lifetime * _SETTLE)


def next_step(
    kept: Kept | None, names: frozenset[str], lifetime: float, now: float, settled: bool
) -> RotationStep:
    """`kept` None: nothing readable is stored. `settled`: what is stored was in force for long enough."""
    if kept is None or kept.expires <= now:
        return RotationStep.MAKE
    if kept.prepared:
        return RotationStep.SWITCH if settled else RotationStep.KEEP
    if kept.expires - now < lifetime * _RENEW or kept.names != names:
        return RotationStep.PREPARE
    return RotationStep.PRUNE if kept.extra and settled else RotationStep.KEEP
