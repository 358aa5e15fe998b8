"""Amounts, shares and ages as commands write them."""

from collections.abc import Mapping
from contextlib import suppress

from extender.api import durations
from extender.api.quantities import BadQuantity, Quantity
from extender.domain.model.resources import PODS, offered, show

NOTHING = "-"


def number(name: str, quantity: Quantity | None) -> int:
    """The number behind a quantity; 0 for what is none."""
    try:
        return offered({name: quantity or 0}).get(name, 0)
    except BadQuantity:
        return 0


def amount(name: str, quantity: Quantity | None) -> str:
    """A quantity as people write it: 17179869184 bytes are 16Gi."""
    return NOTHING if quantity is None else show(name, number(name, quantity))


def amounts(quantities: Mapping[str, Quantity] | None) -> str:
    """`cpu 4, memory 8Gi`, without what is 0; every pod is one of `pods`, which says little."""
    known = sorted((name, each) for name, each in (quantities or {}).items() if name != PODS)
    shown = [f"{name} {amount(name, each)}" for name, each in known if number(name, each)]
    return ", ".join(shown) or NOTHING


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


def age(timestamp: str | None) -> str:
    """How long ago, as kubectl writes it; `-` for what is no timestamp."""
    with suppress(ValueError):
        return durations.age(timestamp or "")
    return NOTHING
