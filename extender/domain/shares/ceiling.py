"""Ceilings: the most that a queue may ever hold.

Source of the rule: Volcano's real capability. A queue may hold its own guarantee and everything that is not
guaranteed to its siblings, limited by its capability.
"""

from collections.abc import Mapping
from math import inf

from extender.domain.model.resources import CPU, MEMORY, Resources
from extender.domain.shares.demand import QueueDemand


def limits_of(demand: QueueDemand) -> Mapping[str, float]:
    """What limits a queue by its specification alone: its capability, and what it deserves by name and may
    borrow. A resource that is not listed is unlimited; so are a capability's cpu and memory given as zero."""
    limits = {name: _limit(name, amount) for name, amount in (demand.capability or {}).items()}
    for name, more in (demand.borrowing_limit or {}).items():
        if name in (demand.deserved or {}):
            limits[name] = min(limits.get(name, inf), _own(demand.deserved, name) + max(more, 0))
    return limits


def borrowing_of(demand: QueueDemand) -> Mapping[str, float]:
    """How much it may hold above what the division gives it, where it deserves nothing by name."""
    limits, named = demand.borrowing_limit or {}, demand.deserved or {}
    return {name: float(max(more, 0)) for name, more in limits.items() if name not in named}


def kept_for(demand: QueueDemand) -> Mapping[str, float]:
    """What no other queue may hold, whether it asks for it or not: its guarantee, and what it deserves by
    name and does not lend."""
    kept = {name: float(max(amount, 0)) for name, amount in demand.guarantee.items()}
    for name, lent in (demand.lending_limit or {}).items():
        kept[name] = max(kept.get(name, 0.0), _own(demand.deserved, name) - max(lent, 0), 0.0)
    return kept


def given_to(demand: QueueDemand) -> Mapping[str, float]:
    """What it deserves by name."""
    return {name: float(max(amount, 0)) for name, amount in (demand.deserved or {}).items()}


def _own(deserved: Resources | None, name: str) -> float:
    return float(max((deserved or {}).get(name, 0), 0))


def _limit(name: str, amount: int) -> float:
    return inf if name in (CPU, MEMORY) and amount <= 0 else float(amount)
