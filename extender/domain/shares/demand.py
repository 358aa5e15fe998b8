"""A queue as the division sees it, and all queues as arrays: one row per queue, one column per resource."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from extender.domain.model.resources import Resources

Portion = npt.NDArray[np.float64]  # one number per resource
PortionRows = npt.NDArray[np.float64]  # one row per queue


class QueueDemand(msgspec.Struct, frozen=True):
    """What the division needs to know of a queue."""

    name: str
    weight: int  # at least 1
    request: Resources  # what its groups hold and wait for
    capability: Resources | None = None  # None: it names none
    guarantee: Resources = {}  # kept for it even if it does not take part
    groups: bool = True  # whether it has groups, and so takes part


def dimensions_of(total: Resources, demands: Sequence[QueueDemand]) -> list[str]:
    """The resources to be divided: those of the cluster, and those that a guarantee names. Any other resource
    that groups ask for does not exist here, so no queue deserves any of it."""
    return sorted(set(total).union(*(demand.guarantee for demand in demands)))


def rows_of(amounts: Sequence[Resources], names: Sequence[str]) -> PortionRows:
    rows = np.zeros((len(amounts), len(names)))
    for row, each in enumerate(amounts):
        if each:
            rows[row] = [each.get(name, 0) for name in names]
    return rows
