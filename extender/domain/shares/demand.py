"""A queue as the division sees it, and all queues as arrays: one row a queue, one column a resource."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from extender.domain.model.resources import Resources

Portion = npt.NDArray[np.float64]  # one number a resource
PortionRows = npt.NDArray[np.float64]  # one row a queue


class QueueDemand(msgspec.Struct, frozen=True):
    """What a queue brings to the division."""

    name: str
    weight: int  # at least 1
    request: Resources  # what its groups hold and wait for
    capability: Resources | None = None  # None: it names none
    guarantee: Resources = {}
    groups: bool = True  # whether it takes part. The guarantee of a queue that does not still counts


def dimensions_of(total: Resources, demands: Sequence[QueueDemand]) -> list[str]:
    """The resources that are divided: those of the cluster, and those that a guarantee names. What groups ask
    for besides is not there: nobody deserves any of it."""
    return sorted(set(total).union(*(demand.guarantee for demand in demands)))


def rows_of(amounts: Sequence[Resources], names: Sequence[str]) -> PortionRows:
    rows = np.zeros((len(amounts), len(names)))
    for row, each in enumerate(amounts):
        if each:
            rows[row] = [each.get(name, 0) for name in names]
    return rows
