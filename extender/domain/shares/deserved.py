"""Deserved shares of queues: of a whole cluster, divided over their tree."""

from collections.abc import Sequence

from extender.domain.model.resources import Resources
from extender.domain.shares.demand import QueueDemand
from extender.domain.shares.division import Division, Share


def divide(total: Resources, demands: Sequence[QueueDemand]) -> dict[str, Share]:
    """The share of `total` of each queue that takes part. The time grows with the number of queues."""
    division = Division.of(total, {demand.name: demand for demand in demands})
    shares = {demand.name: division.share(division.tree.node[demand.name]) for demand in demands}
    return {name: share for name, share in shares.items() if share is not None}
