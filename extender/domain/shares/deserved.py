"""Deserved shares: weighted max-min fairness ("water filling") over every resource at once.

Source of the rule: Volcano's proportion plugin. A queue's share rises with its weight until the queue has
what it asks for or reaches its ceiling; what it leaves is poured again over the rest. A share never exceeds
the request, but for the guarantee, and never the real capability.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from extender.domain.model.resources import CPU, MEMORY, Resources

Vector = npt.NDArray[np.float64]
Amounts = Mapping[str, float]

EPSILON = 0.1  # of a millicore, a byte, a device: less than that is nothing
_ROUNDS = 200  # convergence is geometric where queues want different resources


class Claimant(msgspec.Struct, frozen=True):
    """A queue as the division sees it. Only those with `groups` take part; all guarantees count."""

    name: str
    weight: int
    request: Resources
    capability: Resources | None = None
    guarantee: Resources = {}
    groups: bool = True


class Share(msgspec.Struct, frozen=True):
    """What a queue deserves, and the most that it may ever hold (inf: no limit)."""

    deserved: dict[str, float]
    ceiling: dict[str, float]


def divide(total: Resources, claimants: Sequence[Claimant]) -> dict[str, Share]:
    """Each taking queue's share of `total`."""
    names = sorted(set(total).union(*(claimant.request.keys() for claimant in claimants)))
    taking = [claimant for claimant in claimants if claimant.groups]
    if not taking:
        return {}
    room = _vector(total, names)
    ceilings = np.array([_ceiling(each, room, names, claimants) for each in taking])
    shares = _pour(room, taking, ceilings, names)
    return {
        each.name: Share(_mapping(shares[row], names), _mapping(ceilings[row], names))
        for row, each in enumerate(taking)
    }


def _pour(room: Vector, taking: Sequence[Claimant], ceilings: Vector, names: Sequence[str]) -> Vector:
    requests = np.array([_vector(each.request, names) for each in taking])
    guarantees = np.array([_vector(each.guarantee, names) for each in taking])
    weights = np.array([float(each.weight) for each in taking])
    shares = np.zeros_like(requests)
    thirsty = np.ones(len(taking), dtype=np.bool_)
    left = room.copy()
    for _ in range(_ROUNDS):
        portion = np.where(thirsty, weights, 0.0) / max(float(weights[thirsty].sum()), 1.0)
        risen = np.maximum(
            np.minimum(np.minimum(shares + np.outer(portion, left), ceilings), requests), guarantees
        )
        risen = np.where(thirsty[:, None], risen, shares)
        settled = np.all(requests <= risen + EPSILON, axis=1) | np.all(risen == shares, axis=1)
        remaining = np.maximum(left - (risen - shares).sum(axis=0), 0.0)
        shares, thirsty = risen, thirsty & ~settled
        if not thirsty.any() or np.all(remaining < EPSILON) or np.array_equal(remaining, left):
            break
        left = remaining
    return shares


def _ceiling(queue: Claimant, room: Vector, names: Sequence[str], claimants: Sequence[Claimant]) -> Vector:
    """The real capability: what others are not guaranteed, cut to the queue's own capability."""
    promised = sum((_vector(each.guarantee, names) for each in claimants), start=np.zeros(len(names)))
    free = np.maximum(room - promised, 0.0) + _vector(queue.guarantee, names)
    return np.minimum(free, [_limit(queue.capability, name) for name in names])


def _limit(capability: Resources | None, name: str) -> float:
    """A dimension that a capability does not name is unlimited; so are cpu and memory given as zero."""
    if not capability or name not in capability or (name in (CPU, MEMORY) and capability[name] <= 0):
        return float("inf")
    return float(capability[name])


def _vector(amounts: Resources, names: Sequence[str]) -> Vector:
    return np.array([float(amounts.get(name, 0)) for name in names])


def _mapping(row: Vector, names: Sequence[str]) -> dict[str, float]:
    return dict(zip(names, row.tolist(), strict=True))


# ---- the comparisons


def share(allocated: Resources, deserved: Amounts) -> float:
    """How much of what it deserves a queue holds, in its dominant resource. Whoever deserves nothing and
    holds something has its share."""
    ratios = (allocated.get(name, 0) / due for name, due in deserved.items() if due >= EPSILON)
    return max(ratios, default=1.0 if any(allocated.values()) else 0.0)


def within(asked: Resources, allocated: Resources, limit: Amounts, but: frozenset[str] = frozenset()) -> bool:
    """Whether `asked` on top of `allocated` stays within `limit`, in the dimensions that are asked for.

    Names in `but` are not compared; a name that `limit` lacks has none of it.
    """
    return not exceeded(asked, allocated, limit, but)


def exceeded(
    asked: Resources, allocated: Resources, limit: Amounts, but: frozenset[str] = frozenset()
) -> list[str]:
    """The asked-for dimensions in which `limit` would be overrun."""
    return [
        name
        for name, amount in asked.items()
        if amount > 0 and name not in but and allocated.get(name, 0) + amount > limit.get(name, 0.0) + EPSILON
    ]
