"""Topologies of a cluster, declared by Muster's Topologies and by objects of other systems.

HyperNodes of Volcano list their nodes. They become labels of these nodes, one label per tier, and the tiers
become the levels of a topology. The keys of these labels contain a ":", so that no selector can name them.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.api.objects.cluster import ClusterTopology
from extender.api.objects.volcano import HyperNode
from extender.domain.model.selectors import Labels
from extender.domain.snapshot.nodes import Levels, Mask, NodeTable, Rows, Topologies

_MAX_LEVELS, _MAX_TOPOLOGIES = 16, 64
_TIER_PREFIX = "tier:"
_MAX_CHARACTERS, _MAX_REPEATS = 256, 4  # limits of characters and repetitions in a pattern
_MAX_PATTERNS = 64  # limit of patterns per HyperNode
_MAX_MATCHES = 500_000  # limit of matches between nodes and the patterns of all HyperNodes
_ATOM_REGEX = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")  # parts without special characters
_GROUP_REGEX = re.compile(r"\(([^()]*)\)([*+{]?)")


_Bits = npt.NDArray[np.uint8]


class _NamedNodes(NamedTuple):
    """Pattern with the names of nodes that it matches."""

    pattern: re.Pattern[str]
    names: set[str]


class BadTopology(ValueError):
    """Error in a Topology or HyperNode, for administrators."""


class TopologySource(IntEnum):
    """Origin of a topology. If several topologies have a level, the first origin counts."""

    MUSTER = 0
    KUEUE = 1
    VOLCANO = 2


def levels_of(topology: ClusterTopology) -> Levels:
    """Return the levels of a Topology.

    Raises:
        BadTopology: The levels are not 1 to 16 different labels.
    """
    levels = tuple(level.node_label for level in topology.spec.levels or ())
    if not 0 < len(levels) <= _MAX_LEVELS:
        raise BadTopology(f"spec.levels has {len(levels)} entries: must have 1 to {_MAX_LEVELS}")
    for number, label in enumerate(levels):
        if not label or label in levels[:number]:
            fault = "the label of an earlier level" if label else "no label"
            raise BadTopology(f"spec.levels[{number}].nodeLabel: {label!r} is {fault}")
    return levels


class TopologySources:
    """Levels of all topologies, by origin and name."""

    def __init__(self) -> None:
        self._levels: dict[tuple[TopologySource, str], Levels] = {}

    def put(self, source: TopologySource, name: str, levels: Levels | None) -> bool:
        """Record the levels of a topology; None means that it is gone. Return whether the levels changed."""
        key = (source, name)
        old_levels = self._levels.pop(key, None)
        if levels is not None:
            self._levels[key] = levels
        return levels != old_levels

    def in_order(self) -> Topologies:
        """Return the topologies, ordered by origin and name."""
        return Topologies(levels for _, levels in sorted(self._levels.items())[:_MAX_TOPOLOGIES])


class HyperNodes:
    """HyperNodes, and the labels that nodes get from them.

    A pattern is compared with a name once, when either is new. Comparing 5,000 patterns with 5,000 names at
    once would take seconds.
    """

    def __init__(self) -> None:
        self._hyper_nodes: dict[str, HyperNode] = {}
        self._matches: dict[str, _NamedNodes] = {}  # matching nodes by pattern
        self._match_count = 0  # number of matches; too high after nodes are gone, until the next refresh
        self._names: set[str] = set()  # names of all nodes
        self._labels: dict[str, Labels] = {}  # labels by node, as last computed
        self.are_stale = False

    def put(self, hyper_node: HyperNode) -> bool:
        """Record a HyperNode. Return whether it has changed.

        Raises:
            BadTopology: The HyperNode has an unusable pattern.
        """
        old_node = self._hyper_nodes.get(hyper_node.metadata.name)
        if old_node is not None and old_node.spec == hyper_node.spec:
            return False
        regexes = {text: _compile(text) for text in _patterns_of(hyper_node) if text not in self._matches}
        if len(regexes) > _MAX_PATTERNS:
            raise BadTopology(f"it has {len(regexes):,} patterns; at most {_MAX_PATTERNS} are allowed")
        new_nodes = {text: _NamedNodes(r, set(filter(r.search, self._names))) for text, r in regexes.items()}
        match_count = self._match_count + sum(len(nodes.names) for nodes in new_nodes.values())
        if match_count > _MAX_MATCHES:
            raise BadTopology(f"too many matches of patterns with nodes: at most {_MAX_MATCHES:,}")
        self._match_count = match_count
        self._matches |= new_nodes
        self._hyper_nodes[hyper_node.metadata.name], self.are_stale = hyper_node, True
        return True

    def drop(self, name: str) -> None:
        if self._hyper_nodes.pop(name, None) is not None:
            self.are_stale = True

    def put_node(self, name: str) -> None:
        """Record a new node, or a node with changed labels."""
        self.are_stale |= bool(self._hyper_nodes)
        if name not in self._names:
            self._names.add(name)
            for pattern, matching_names in self._matches.values():
                if self._match_count < _MAX_MATCHES and pattern.search(name):
                    matching_names.add(name)
                    self._match_count += 1

    def drop_node(self, name: str) -> None:
        self._names.discard(name)
        self._labels.pop(name, None)
        for _, names in self._matches.values():
            names.discard(name)

    def labels(self, node: str) -> Labels:
        return self._labels.get(node, {})

    @property
    def levels(self) -> Iterator[Levels]:
        """Yield the levels by the tiers' numbers and, if any tier has a name, also by the tiers' names."""
        tiers = self._tiers()
        numbers = [f"{_TIER_PREFIX}{tier}" for tier in tiers]
        names = [
            f"{_TIER_PREFIX}{next(filter(None, map(_name_of_tier, hyper_nodes)), tier)}"
            for tier, hyper_nodes in tiers.items()
        ]
        for levels in (numbers, names) if names != numbers else (numbers,):
            if levels:
                yield tuple(dict.fromkeys(reversed(levels)))

    def refresh(self, table: NodeTable) -> list[str]:
        """Compute the labels of all nodes again. Return the nodes whose labels have changed."""
        texts = {pattern for each in self._hyper_nodes.values() for pattern in _patterns_of(each)}
        self._matches = {pattern: nodes for pattern, nodes in self._matches.items() if pattern in texts}
        self._match_count = sum(len(nodes.names) for nodes in self._matches.values())
        old, self._labels = self._labels, self._labels_on(table)
        return [name for name in {**old, **self._labels} if self.labels(name) != old.get(name, {})]

    def _tiers(self) -> dict[int, list[HyperNode]]:
        """Return the HyperNodes by tier, the smallest tier first, and by name.

        Tiers in between may be empty.
        """
        tiers: defaultdict[int, list[HyperNode]] = defaultdict(list)
        for _, each in sorted(self._hyper_nodes.items()):
            tiers[each.spec.tier].append(each)
        if tiers and max(tiers) - min(tiers) < _MAX_LEVELS:
            return {tier: tiers[tier] for tier in range(min(tiers), max(tiers) + 1)}
        return dict(sorted(tiers.items())[:_MAX_LEVELS])

    def _labels_on(self, table: NodeTable) -> dict[str, Labels]:
        """Return the labels by node.

        For each tier, the label of a node is the first HyperNode by name that contains the node. If no
        HyperNode of the tier contains the node, the HyperNode of the nearest smaller tier counts.
        """
        labels: defaultdict[str, dict[str, str]] = defaultdict(dict)
        pattern_rows: dict[str, Rows] = {}  # rows by pattern
        for text, (_, names) in self._matches.items():
            pattern_rows[text] = np.array([table.row_of[n] for n in names & table.row_of.keys()], np.int64)
        packed_rows: dict[str, _Bits] = {}  # rows of the HyperNodes of smaller tiers
        nearest = np.full(len(table.nodes), -1)
        owners: list[HyperNode] = []
        for tier, hyper_nodes in self._tiers().items():
            rows_of_tier: dict[str, _Bits] = {}
            for number, each in reversed([*enumerate(hyper_nodes, len(owners))]):
                mask = _nodes_of(each, table, pattern_rows, packed_rows)
                nearest[mask] = number
                rows_of_tier[each.metadata.name] = np.packbits(mask)
            packed_rows |= rows_of_tier  # only larger tiers can have these members, so that there is no cycle
            owners += hyper_nodes
            for row in np.flatnonzero(nearest >= 0):
                if (node := table.nodes[row]) is not None:
                    owner = owners[nearest[row]]
                    for key in (str(tier), _name_of_tier(owner)):
                        if key:
                            labels[node.name][f"{_TIER_PREFIX}{key}"] = owner.metadata.name
        return dict(labels)


def _nodes_of(
    hyper_node: HyperNode, table: NodeTable, rows_by_text: Mapping[str, Rows], bits: Mapping[str, _Bits]
) -> Mask:
    """Return a mask of the rows of a HyperNode's nodes.

    Args:
        hyper_node: The HyperNode.
        table: The table of nodes.
        rows_by_text: The rows of matching nodes, by pattern.
        bits: The packed rows of HyperNodes of smaller tiers, which may be members.
    """
    mask = np.zeros(len(table.nodes), np.bool_)
    for member in hyper_node.spec.members or ():
        exact, regex, selector = member.selector.exact_match, member.selector.regex_match, member.selector
        if member.type == "HyperNode" and exact is not None and exact.name in bits:
            mask |= np.unpackbits(bits[exact.name], count=len(mask)).astype(np.bool_)
        if member.type != "Node":
            continue
        if exact is not None and exact.name in table.row_of:
            mask[table.row_of[exact.name]] = True
        if regex is not None and regex.pattern in rows_by_text:
            mask[rows_by_text[regex.pattern]] = True
        if selector.label_match is not None:
            mask |= table.selected_rows(selector.label_match)
    return mask


def _name_of_tier(hyper_node: HyperNode) -> str:
    """Return the name of the tier; empty if the name looks like the number of a tier."""
    return "" if hyper_node.spec.tier_name.isdecimal() else hyper_node.spec.tier_name


def _patterns_of(hyper_node: HyperNode) -> Iterator[str]:
    for member in hyper_node.spec.members or ():
        regex = member.selector.regex_match
        if member.type == "Node" and regex is not None and regex.pattern:
            yield regex.pattern


def _compile(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern, which may match any part of a name, as in Go.

    Raises:
        BadTopology: The pattern is invalid, or its evaluation could take very long.
    """
    if len(pattern) > _MAX_CHARACTERS or _may_take_long(pattern):
        raise BadTopology(f"the pattern {pattern[:_MAX_CHARACTERS]!r} is too long, or repeats a repetition")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as fault:
        raise BadTopology(f"the pattern {pattern!r} is invalid: {fault}") from fault


def _may_take_long(pattern: str) -> bool:
    """Return whether a pattern repeats a group with a choice or repetition, or has too many repetitions."""
    text = _ATOM_REGEX.sub("a", pattern)
    while match := _GROUP_REGEX.search(text):
        has_choice = any(each in match[1] for each in "*+{|")
        if has_choice and match[2]:
            return True
        repetitions = "".join(each for each in match[1] if each in "*+{|")
        text = f"{text[: match.start()]}a{repetitions}{match[2]}{text[match.end() :]}"
    return sum(text.count(each) for each in "*+{") > _MAX_REPEATS
