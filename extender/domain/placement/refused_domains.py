"""Refusals by whole zones: once the scheduler has refused a shape on several nodes of a zone, the rest of the
zone is not tried one by one.

A volume that exists only in another zone, or a zone that is down, makes the scheduler refuse every node of a
zone. Finding that out costs a member seconds per node, and meanwhile a place in the window.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from extender.domain.model.shapes import Shape
from extender.domain.snapshot.nodes import NodeTable

ZONE = "topology.kubernetes.io/zone"
_ENOUGH = 3  # refusing nodes of a zone, after which the whole zone counts as refusing the shape


def by_domain(refused: Mapping[Shape, Iterable[int]], nodes: NodeTable) -> dict[Shape, set[int]]:
    """The rows that refuse each shape, and all rows of zones that count as refusing it. In a cluster of one
    zone only the nodes themselves count."""
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
