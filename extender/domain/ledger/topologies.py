"""Topologies of a cluster, as its objects declare them: Muster's Topologies and those of others."""

from enum import IntEnum

from extender.api.objects.cluster import ClusterTopology
from extender.domain.snapshot.nodes import Levels, Topologies

_MOST_LEVELS = 16


class BadTopology(ValueError):
    """Error in the levels of a Topology, for administrators."""


class TopologySource(IntEnum):
    """Origin of a topology; the first one with a level counts for it."""

    MUSTER = 0
    KUEUE = 1


def levels_of(topology: ClusterTopology) -> Levels:
    """Return the levels of a Topology.

    Raises:
        BadTopology: They are not 1 to 16 different labels.
    """
    levels = tuple(level.node_label for level in topology.spec.levels or ())
    if not 0 < len(levels) <= _MOST_LEVELS:
        raise BadTopology(f"spec.levels has {len(levels)} entries: must have 1 to {_MOST_LEVELS}")
    for number, label in enumerate(levels):
        if not label or label in levels[:number]:
            wrong = "the label of an earlier level" if label else "no label"
            raise BadTopology(f"spec.levels[{number}].nodeLabel: {label!r} is {wrong}")
    return levels


class TopologySources:
    """Levels of all topologies, by origin and name."""

    def __init__(self) -> None:
        self._levels: dict[tuple[TopologySource, str], Levels] = {}

    def put(self, source: TopologySource, name: str, levels: Levels | None) -> bool:
        """Record the levels of a topology; None: it is gone. Return whether they changed."""
        key = (source, name)
        before = self._levels.pop(key, None)
        if levels is not None:
            self._levels[key] = levels
        return levels != before

    def in_order(self) -> Topologies:
        return Topologies(levels for _, levels in sorted(self._levels.items()))
