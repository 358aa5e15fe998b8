"""Page of nodes: pools of equal nodes with their usage, reservations and free capacity.

A tile stands for one node, or for several if there are many nodes. A list below the tiles has each node.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flask import request
from werkzeug.wrappers import Response as BaseResponse

from extender.api.summaries import (
    CapacitySummary,
    DomainSummary,
    NodeSummary,
    capacity_summaries,
    domain_summaries,
)
from extender.dashboard.bars import AmountBar, capacity_bar, main_resource
from extender.dashboard.job_pages import job_index
from extender.dashboard.rendering import Renderer, Screen
from extender.dashboard.tables import Column, matching_rows, page
from extender.dashboard.visible_overviews import VisibleOverview

_MAX_ROWS = 50  # rows of a page
_MAX_TILES = 600  # maximum of tiles on a page
_FULL_LEVEL = 4  # level of a full tile; 0 is empty
_MAX_DEVICES = 2  # maximum of devices in a node's row, next to cpu and memory
_MAX_SIZES = 9  # maximum of distinct sizes of free pieces


class NodePages:
    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def nodes(self) -> BaseResponse:
        visible = self._renderer.visible_overview()
        state = visible.state("nodes", "topologies", "reservations")
        screen = Screen("Nodes", "nodes.html", "nodes", state, lambda: self._nodes(visible), is_shared=True)
        return self._renderer.page(visible, screen)

    def _nodes(self, visible: VisibleOverview) -> Mapping[str, Any]:
        nodes, chosen_group = visible.overview.nodes, request.args.get("group", "")
        listed_nodes = [node for node in nodes if chosen_group in node.groups] if chosen_group else nodes
        listed_nodes = matching_rows(
            listed_nodes,
            request.args,
            lambda node: " ".join((node.name, *node.flavors, *node.groups, *node.domains.values())),
        )
        topologies = visible.overview.topologies if nodes else ()
        trees_key = ("topologies", visible.state("nodes", "topologies"))
        trees = self._renderer.derive(trees_key, lambda: _trees(topologies, nodes))
        key = ("pools", visible.state("nodes"), chosen_group)
        rows = page(listed_nodes, NODES, request.args, _MAX_ROWS)
        return {
            "pools": self._renderer.derive(key, lambda: _pools(nodes, chosen_group)),
            "trees": [_searched_tree(*tree, request.args) for tree in trees],
            "page": rows,
            "columns": NODES,
            "uses": [_main_uses(node) for node in rows.rows],
            "chosen": chosen_group,
            "unfiltered_count": len(nodes),
            "may_list": visible.rights.sees_nodes,
            "may_see": visible.rights.may_see_group,
            "display_name": job_index(self._renderer, visible).display_name,
            "reservations": visible.overview.reservations,
        }


# ---- pools


class Tile(NamedTuple):
    """Tile of one or several nodes.

    `level` is from 0 (empty) to 4 (full). `classes` are of the style sheet.
    """

    level: int
    classes: str
    title: str


class FreePiece(NamedTuple):
    """Number of nodes with the same free amount. `part` is this number in percent of the largest number."""

    free: str
    nodes: int
    part: float


@dataclass(frozen=True)
class NodePool:
    name: str
    nodes: int
    resource: str  # main resource of the pool
    uses: Sequence[tuple[CapacitySummary, AmountBar]]
    tiles: Sequence[Tile]
    pieces: Sequence[FreePiece]


def _pools(nodes: Sequence[NodeSummary], highlighted_group: str = "") -> list[NodePool]:
    """Return the pools, the largest first. The nodes of `highlighted_group` are emphasized."""
    nodes_by_pool: dict[str, list[NodeSummary]] = defaultdict(list)
    for node in nodes:
        nodes_by_pool[_pool_name(node)].append(node)
    nodes_per_tile = -(-len(nodes) // _MAX_TILES)
    return [
        _pool(name, nodes_by_pool[name], nodes_per_tile, highlighted_group)
        for name in sorted(nodes_by_pool, key=lambda name: (-len(nodes_by_pool[name]), name))
    ]


def _pool_name(node: NodeSummary) -> str:
    """Return the name of a node's pool: its flavors, or its devices if it has no flavor."""
    if node.flavors:
        return ", ".join(node.flavors)
    amounts = ((name, value) for name, value in node.allocatable.items() if "/" in name)
    devices = [f"{value:g} {name.rpartition('/')[2]}" for name, value in amounts]
    return ", ".join(devices) or "cpu only"


def _pool(name: str, nodes: Sequence[NodeSummary], nodes_per_tile: int, highlighted_group: str) -> NodePool:
    resource = main_resource([node.allocatable for node in nodes])
    chunks = (nodes[at : at + nodes_per_tile] for at in range(0, len(nodes), nodes_per_tile))
    tiles = [_tile(chunk, resource, highlighted_group) for chunk in chunks]
    return NodePool(name, len(nodes), resource, _uses(nodes), tiles, _pieces(nodes, resource))


def _uses(nodes: Sequence[NodeSummary]) -> list[tuple[CapacitySummary, AmountBar]]:
    return [(capacity, capacity_bar(capacity)) for capacity in capacity_summaries(nodes)]


def _main_uses(node: NodeSummary) -> list[tuple[CapacitySummary, AmountBar]]:
    uses = _uses([node])
    devices = [(capacity, bar) for capacity, bar in uses if "/" in capacity.resource]
    other_uses = [(capacity, bar) for capacity, bar in uses if capacity.resource in ("cpu", "memory")]
    return [*devices[:_MAX_DEVICES], *other_uses]


def free(node: NodeSummary, resource: str) -> float:
    """Return the free amount of a node; 0 if the node is reserved or accepts no pods."""
    return 0.0 if node.reserved_for or not node.taken else node.left.get(resource, 0.0)


def fullness(node: NodeSummary, resource: str) -> float:
    """Return the used part of a node, from 0 to 1. Planned pods count as used."""
    allocatable = node.allocatable.get(resource, 0.0)
    used = node.used.get(resource, 0.0) + node.claimed.get(resource, 0.0)
    return min(used / allocatable, 1.0) if allocatable > 0 else 0.0


def _tile(nodes: Sequence[NodeSummary], resource: str, highlighted_group: str) -> Tile:
    mean = sum(fullness(node, resource) for node in nodes) / len(nodes)
    partial_level = 1 + int(mean * (_FULL_LEVEL - 1)) if mean > 0 else 0
    level = _FULL_LEVEL if mean > 0.999 else partial_level
    classes = {
        "claimed": any(any(node.claimed.values()) for node in nodes),
        "reserved": any(node.reserved_for for node in nodes),
        "closed": all(not node.taken for node in nodes),
        "chosen": bool(highlighted_group) and any(highlighted_group in node.groups for node in nodes),
    }
    set_classes = [name for name, is_set in classes.items() if is_set]
    names = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} … {nodes[-1].name}"
    states = [{"closed": "closed to new pods"}.get(name, name) for name in set_classes if name != "chosen"]
    return Tile(level, " ".join(set_classes), f"{names[:200]}: {', '.join([f'{mean:.0%} full', *states])}")


def _pieces(nodes: Sequence[NodeSummary], resource: str) -> list[FreePiece]:
    """Return how many nodes have each free amount of devices or cores.

    Many different amounts are grouped by powers of two.
    """
    counts = Counter(int(free(node, resource)) for node in nodes)
    if len(counts) > _MAX_SIZES:
        powers: Counter[int] = Counter()
        for size, count in counts.items():
            powers[1 << (size.bit_length() - 1) if size else 0] += count
        labels = {size: f"{size} to {2 * size - 1}" if size > 1 else str(size) for size in powers}
        counts = powers
    else:
        labels = {size: str(size) for size in counts}
    max_count = max(counts.values(), default=1)
    percentages = {size: round(count / max_count * 100, 2) for size, count in counts.items()}
    return [FreePiece(labels[size], counts[size], percentages[size]) for size in sorted(counts)]


# ---- topologies


class Tree(NamedTuple):
    """Topology with its domains. If some domains match the search, only these domains are listed.

    A domain has the capacity of its first device, or of its cpu if it has no device. `left_out` is the number
    of listed domains that the page does not show.
    """

    levels: Sequence[str]
    domains: Sequence[tuple[DomainSummary, CapacitySummary, AmountBar]]
    left_out: int = 0


_HOST = "kubernetes.io/hostname"


def _trees(
    topologies: Sequence[Sequence[str]], nodes: Sequence[NodeSummary]
) -> list[tuple[Sequence[str], list[DomainSummary]]]:
    """Return the topologies with their domains. Of topologies with the same domains, only the first stays."""
    tree_by_paths: dict[object, tuple[Sequence[str], list[DomainSummary]]] = {}
    for levels in topologies:
        levels = [level for level in levels if level != _HOST]  # the page has a list of nodes
        if domains := domain_summaries(levels, nodes):
            tree_by_paths.setdefault(tuple(domain.path for domain in domains), (levels, domains))
    return list(tree_by_paths.values())


def _searched_tree(levels: Sequence[str], domains: list[DomainSummary], query: Mapping[str, str]) -> Tree:
    listed_domains = matching_rows(domains, query, lambda domain: " ".join(domain.path)) or domains
    rows = []
    for domain in listed_domains[:_MAX_ROWS]:
        capacity = domain.capacity[0] if domain.capacity else CapacitySummary("cpu")
        rows.append((domain, capacity, capacity_bar(capacity)))
    return Tree(levels, rows, max(len(listed_domains) - _MAX_ROWS, 0))


# ---- the list of nodes


def _resource_of(node: NodeSummary) -> str:
    return main_resource([node.allocatable])


def _severity(node: NodeSummary) -> tuple[int, bool, str]:
    """Return the sort key of a node's health, with the worst first."""
    return -sum(problem != "cordoned" for problem in node.health), node.taken, node.name


NODES = (
    Column[NodeSummary]("name", "Node", lambda node: node.name),
    Column[NodeSummary]("health", "Health", _severity),
    Column[NodeSummary]("full", "In use", lambda node: fullness(node, _resource_of(node))),
    Column[NodeSummary]("groups", "Jobs on it or on their way", lambda node: len(node.groups)),
)
