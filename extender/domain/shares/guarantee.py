"""Guarantees: what is kept for a queue, whether it asks for it or not.

Source of the rule: Volcano's proportion plugin. No queue's ceiling includes what other queues are guaranteed,
and what a queue deserves is never less than its own guarantee.
"""

from collections.abc import Sequence

import numpy as np

from extender.domain.shares.demand import Portion, PortionRows, QueueDemand, rows_of


def guarantees_of(demands: Sequence[QueueDemand], names: Sequence[str]) -> PortionRows:
    """A row for each of `demands`; negative guarantees count as 0."""
    return np.maximum(rows_of([demand.guarantee for demand in demands], names), 0.0)


def not_guaranteed(room: Portion, guarantees: PortionRows) -> Portion:
    """What all guarantees leave of the room: computed once for all queues."""
    left: Portion = np.maximum(room - guarantees.sum(axis=0), 0.0)
    return left
