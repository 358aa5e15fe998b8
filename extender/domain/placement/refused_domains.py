"""Refusals by whole zones: where the scheduler refuses a shape on node after node of a zone, the rest of the
zone is not tried one by one.

A volume that lives in one zone, or a zone that is down, makes the scheduler refuse every node of it. Each
node costs a member seconds to find out, and a place in the window meanwhile.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from extender.domain.model.shapes import Shape
from extender.domain.snapshot.nodes import NodeTable

ZONE = "topology.kubernetes.io/zone"
_ENOUGH = 3  # nodes of a zone that refuse a shape speak for all of it


def by_domain(refused: Mapping[Shape, Iterable[int]], nodes: NodeTable) -> dict[Shape, set[int]]:
    """The rows that refuse each shape, with those of zones that are taken to do so. A cluster of one zone has
    nothing to learn of it."""
    return {shape: _spread(set(rows), nodes) for shape, rows in refused.items()}


def _spread(rows: set[int], nodes: NodeTable) -> set[int]:
    if len(rows) < _ENOUGH:
        return rows
    zones = nodes.domains(ZONE)
    if zones.max(initial=-1) < 1:
        return rows
    numbers, counts = np.unique(zones[list(rows)], return_counts=True)
    lost = numbers[(counts >= _ENOUGH) & (numbers >= 0)]
    return rows | set(np.flatnonzero(np.isin(zones, lost)).tolist())
