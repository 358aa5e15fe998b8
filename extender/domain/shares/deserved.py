"""Deserved shares: weighted max-min fairness ("water filling") over every resource at once.

Source of the rule: Volcano's proportion plugin. A queue's share rises in proportion to its weight until the
queue has what it asks for or reaches its ceiling; what it leaves is divided again among the others. A share
never exceeds the request, unless the guarantee is larger, and never the real capability.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from extender.domain.model.resources import Resources
from extender.domain.shares.ceiling import ceilings_of
from extender.domain.shares.comparisons import EPSILON
from extender.domain.shares.demand import Portion, PortionRows, QueueDemand, dimensions_of, rows_of
from extender.domain.shares.guarantee import guarantees_of, not_guaranteed

_ROUNDS = 200  # convergence is geometric where queues want different resources


class Share(msgspec.Struct, frozen=True):
    """The result of the division for one queue, by resource."""

    deserved: dict[str, float]  # without zeros
    ceiling: dict[str, float]  # the most that it may ever hold; inf: no limit


def divide(total: Resources, demands: Sequence[QueueDemand]) -> dict[str, Share]:
    """The share of `total` of each queue that takes part. The time grows with the number of queues."""
    taking = [demand for demand in demands if demand.groups]
    if not taking:
        return {}
    names = dimensions_of(total, demands)
    room = rows_of([total], names)[0]
    all_guarantees = guarantees_of(demands, names)
    guarantees = all_guarantees[[demand.groups for demand in demands]]
    ceilings = ceilings_of(taking, guarantees, not_guaranteed(room, all_guarantees), names)
    shares = _pour(room, taking, ceilings, guarantees, names)
    return {
        demand.name: Share(_without_zeros(names, due), dict(zip(names, most, strict=True)))
        for demand, due, most in zip(taking, shares.tolist(), ceilings.tolist(), strict=True)
    }


def _pour(
    room: Portion,
    taking: Sequence[QueueDemand],
    ceilings: PortionRows,
    guarantees: PortionRows,
    names: Sequence[str],
) -> PortionRows:
    """The shares, a row for each queue. Only queues that can still take more are looked at again."""
    asked = rows_of([demand.request for demand in taking], names)
    weights = np.array([demand.weight for demand in taking], dtype=np.float64)
    shares, held = np.zeros_like(asked), np.zeros_like(asked)
    unmet, left = np.arange(len(taking)), room
    for _ in range(_ROUNDS):
        portion = weights / max(float(weights.sum()), 1.0)
        risen = np.minimum(np.minimum(held + np.outer(portion, left), ceilings), asked)
        risen = np.maximum(risen, guarantees)
        still = np.any(asked > risen + EPSILON, axis=1) & np.any(risen != held, axis=1)
        remaining = np.maximum(left - (risen - held).sum(axis=0), 0.0)
        shares[unmet], held = risen, risen
        if not still.any() or np.all(remaining < EPSILON) or np.array_equal(remaining, left):
            break
        left = remaining
        if not still.all():
            unmet, held, asked, weights = unmet[still], held[still], asked[still], weights[still]
            ceilings, guarantees = ceilings[still], guarantees[still]
    return shares


def _without_zeros(names: Sequence[str], amounts: Sequence[float]) -> dict[str, float]:
    return {name: amount for name, amount in zip(names, amounts, strict=True) if amount}
