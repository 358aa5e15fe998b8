"""A queue as the division sees it, and amounts as arrays: one row per queue, one column per resource."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from extender.domain.model.resources import Resources

Portion = npt.NDArray[np.float64]  # one number per resource
PortionRows = npt.NDArray[np.float64]  # one row per queue


class QueueDemand(msgspec.Struct, frozen=True, gc=False):
    """What the division needs to know of a queue."""

    name: str
    weight: int
    """At least 1."""
    request: Resources
    """What its own groups hold and wait for."""
    capability: Resources | None = None
    """The most that it and the queues below it may hold; None: it names none."""
    guarantee: Resources = {}
    """Kept for it even if it does not take part."""
    groups: bool = True
    """Whether it has groups, and so takes part."""
    parent: str = ""
    """The queue above it; root where there is none of that name."""
    deserved: Resources | None = None
    """What it deserves before the rest is divided; None: it names nothing."""
    borrowing_limit: Resources | None = None
    """The most above what it deserves; None: no limit."""
    lending_limit: Resources | None = None
    """The most of `deserved` that others may use; None: all."""
    oversell: float = 1.0
    """So many times its capability may be held."""


def dimensions_of(total: Resources, demands: Iterable[QueueDemand]) -> list[str]:
    """The resources to be divided: those of the cluster, and those that a guarantee names. Any other resource
    that groups ask for does not exist here, so no queue deserves any of it."""
    return sorted(set(total).union(*(demand.guarantee for demand in demands)))


def put_row(
    rows: PortionRows, row: int, amounts: Mapping[str, float], names: Sequence[str], otherwise: float = 0.0
) -> None:
    """Write the amounts of a queue into its row; `otherwise` for those that it does not name."""
    rows[row] = [amounts.get(name, otherwise) for name in names] if amounts else otherwise
