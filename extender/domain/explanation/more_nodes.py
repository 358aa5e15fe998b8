"""Nodes that would have to come."""

import numpy as np
import numpy.typing as npt

from extender.domain.explanation.case import StartChange, WaitingCase, amounts_text
from extender.domain.explanation.hypotheses import with_nodes
from extender.domain.lifecycle.quorum import missing
from extender.domain.model.shapes import Shape

_MOST_NODES = 64


def nodes(case: WaitingCase) -> StartChange | None:
    """Like the suitable node that holds most of its members when empty."""
    row = _best_row(case)
    if row is None:
        return None
    most = min(len(missing(case.group).members), _MOST_NODES)
    count = case.trial.least(most, lambda n: with_nodes(case.snapshot, row, n))
    like = case.snapshot.nodes.nodes[row]
    if count is None or like is None:
        return None
    plural = "s" * (count > 1)
    size = amounts_text({name: like.allocatable.get(name, 0) for name in missing(case.group).requests})
    return StartChange(f"with {count} more node{plural} like {like.name}{f' ({size})' * bool(size)}")


def _best_row(case: WaitingCase) -> int | None:
    fits = sum(_fits(case, shape) for shape in missing(case.group).shapes)
    if isinstance(fits, int) or not len(fits) or not fits.max():
        return None
    best = np.flatnonzero(fits == fits.max())
    return int(best[np.argmin(case.snapshot.allocatable[best].sum(axis=1))])


def _fits(case: WaitingCase, shape: Shape) -> npt.NDArray[np.int64]:
    """How many pods of a shape each suitable node holds when empty."""
    suits = case.snapshot.nodes.suitable(shape).astype(np.int64)
    for column, name in enumerate(case.snapshot.dimensions):
        if asked := shape.requests.get(name, 0):
            suits = np.where(suits > 0, np.minimum(case.snapshot.allocatable[:, column] // asked, 2**30), 0)
    return suits
