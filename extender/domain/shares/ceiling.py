"""Ceilings: the most that a queue may ever hold.

Source of the rule: Volcano's real capability. A queue may hold its own guarantee and everything that is not
guaranteed to other queues, limited by its capability.
"""

from collections.abc import Sequence

import numpy as np

from extender.domain.model.resources import CPU, MEMORY, Resources
from extender.domain.shares.demand import Portion, PortionRows, QueueDemand


def ceilings_of(
    demands: Sequence[QueueDemand], guarantees: PortionRows, unclaimed: Portion, names: Sequence[str]
) -> PortionRows:
    """A row for each of `demands`; `guarantees` has the same rows. `unclaimed`: what no queue is
    guaranteed."""
    limits = np.full_like(guarantees, np.inf)
    for row, demand in enumerate(demands):
        if demand.capability:
            limits[row] = [_limit(demand.capability, name) for name in names]
    return np.minimum(unclaimed + guarantees, limits)


def _limit(capability: Resources, name: str) -> float:
    """A dimension that a capability does not name is unlimited; so are cpu and memory given as zero."""
    if name not in capability or (name in (CPU, MEMORY) and capability[name] <= 0):
        return float("inf")
    return float(capability[name])
