"""A cluster divided over queues once, for tests of the rule of division."""

from collections.abc import Sequence

from extender.domain.model.resources import Resources
from extender.domain.queues.deserved import Division, Share
from extender.domain.queues.share_tree import Portions, QueueDemand, exceeded_dimensions


def divide(total: Resources, demands: Sequence[QueueDemand]) -> dict[str, Share]:
    """Return the share of `total` of each queue that takes part."""
    division = Division.divide(total, {demand.name: demand for demand in demands})
    shares = {demand.name: division.share(division.tree.node_by_queue[demand.name]) for demand in demands}
    return {name: share for name, share in shares.items() if share is not None}


def within(
    requested: Resources, allocated: Resources, limit: Portions, ignored: frozenset[str] = frozenset()
) -> bool:
    """Return whether `requested` in addition to `allocated` stays within `limit`."""
    return not exceeded_dimensions(requested, allocated, limit, ignored)
