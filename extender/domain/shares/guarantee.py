"""Guarantees: what is kept for a queue, whether it asks for it or not.

Source of the rule: Volcano's proportion plugin. Nobody's ceiling reaches into what others are guaranteed, and
what a queue deserves is never less than its own guarantee.
"""

from collections.abc import Sequence

import numpy as np

from extender.domain.shares.demand import Portion, PortionRows, QueueDemand, rows_of


def guarantees_of(demands: Sequence[QueueDemand], names: Sequence[str]) -> PortionRows:
    """Never negative: nobody can be guaranteed less than nothing."""
    return np.maximum(rows_of([demand.guarantee for demand in demands], names), 0.0)


def not_guaranteed(room: Portion, guarantees: PortionRows) -> Portion:
    """What is left of the room when all guarantees are kept: summed up once for all queues."""
    left: Portion = np.maximum(room - guarantees.sum(axis=0), 0.0)
    return left
