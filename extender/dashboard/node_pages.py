"""Page of nodes: pools of equal nodes, with usage, reservations and the spread of free capacity.

A tile is one node, or several if there are many. A list below has each node.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flask import request
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import (
    CapacitySummary,
    DomainSummary,
    NodeSummary,
    capacity_summaries,
    domain_summaries,
)
from extender.dashboard.answers import Answers, Screen
from extender.dashboard.bars import AmountBar, capacity_bar, main_resource
from extender.dashboard.job_pages import job_index
from extender.dashboard.tables import Column, page, searched
from extender.dashboard.visible import VisibleOverview

_ROWS = 50  # of a page
_MOST_TILES = 600  # on one page
_FULL = 4  # highest level of a tile; 0 is empty
_DEVICES = 2  # of one node in the list, next to cpu and memory
_PIECES = 9  # maximum of distinct sizes of free pieces


class NodePages:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def nodes(self) -> Answer:
        visible = self._answers.see()
        state = visible.state("nodes", "topologies", "reservations")
        screen = Screen("Nodes", "nodes.html", "nodes", state, lambda: self._nodes(visible), by_rights=True)
        return self._answers.page(visible, screen)

    def _nodes(self, visible: VisibleOverview) -> Mapping[str, Any]:
        nodes, chosen = visible.overview.nodes, request.args.get("group", "")
        found = [it for it in nodes if chosen in it.groups] if chosen else nodes
        found = searched(
            found,
            request.args,
            lambda it: (
                f"{it.name} {' '.join(it.flavors)} {' '.join(it.groups)} {' '.join(it.domains.values())}"
            ),
        )
        topologies = visible.overview.topologies if nodes else ()
        trees = self._answers.derived(
            ("topologies", visible.state("nodes", "topologies")), lambda: _trees(topologies, nodes)
        )
        key = ("pools", visible.state("nodes"), chosen)
        shown = page(found, NODES, request.args, _ROWS)
        return {
            "pools": self._answers.derived(key, lambda: _pools(nodes, chosen)),
            "trees": [_shown(each, request.args) for each in trees],
            "page": shown,
            "columns": NODES,
            "uses": [_main_uses(it) for it in shown.rows],
            "chosen": chosen,
            "everything": len(nodes),
            "allowed": visible.rights.nodes,
            "seen": visible.rights.see_group,
            "spoken": job_index(self._answers, visible).spoken,
            "reservations": visible.overview.reservations,
        }


# ---- pools


class Tile(NamedTuple):
    """`level`: from 0, empty, to 4, full. `classes`: classes of the style sheet."""

    level: int
    classes: str
    title: str


class FreePiece(NamedTuple):
    """Number of nodes with the same free amount of a resource. `part`: per cent of the largest number."""

    free: str
    nodes: int
    part: float


@dataclass(frozen=True)
class NodePool:
    name: str
    nodes: int
    resource: str  # the main one
    uses: Sequence[tuple[CapacitySummary, AmountBar]]
    tiles: Sequence[Tile]
    pieces: Sequence[FreePiece]


def _pools(nodes: Sequence[NodeSummary], highlighted: str = "") -> list[NodePool]:
    """Return the pools, the largest first. `highlighted`: a group whose nodes are marked."""
    parts: dict[str, list[NodeSummary]] = defaultdict(list)
    for node in nodes:
        parts[_kind(node)].append(node)
    nodes_per_tile = -(-len(nodes) // _MOST_TILES)
    return [
        _pool(name, parts[name], nodes_per_tile, highlighted)
        for name in sorted(parts, key=lambda it: (-len(parts[it]), it))
    ]


def _kind(node: NodeSummary) -> str:
    """Return the flavors of a node; else its devices."""
    if node.flavors:
        return ", ".join(node.flavors)
    devices = [
        f"{value:g} {name.rpartition('/')[2]}" for name, value in node.allocatable.items() if "/" in name
    ]
    return ", ".join(devices) or "cpu only"


def _pool(name: str, nodes: Sequence[NodeSummary], nodes_per_tile: int, highlighted: str) -> NodePool:
    resource = main_resource([node.allocatable for node in nodes])
    chunks = (nodes[at : at + nodes_per_tile] for at in range(0, len(nodes), nodes_per_tile))
    tiles = [_tile(chunk, resource, highlighted) for chunk in chunks]
    return NodePool(name, len(nodes), resource, _uses(nodes), tiles, _pieces(nodes, resource))


def _uses(nodes: Sequence[NodeSummary]) -> list[tuple[CapacitySummary, AmountBar]]:
    return [(it, capacity_bar(it)) for it in capacity_summaries(nodes)]


def _main_uses(node: NodeSummary) -> list[tuple[CapacitySummary, AmountBar]]:
    uses = _uses([node])
    devices = [use for use in uses if "/" in use[0].resource]
    return [*devices[:_DEVICES], *(use for use in uses if use[0].resource in ("cpu", "memory"))]


def free(node: NodeSummary, resource: str) -> float:
    """Return the free capacity of a node that is not reserved."""
    return 0.0 if node.reserved_for or not node.taken else node.left.get(resource, 0.0)


def fullness(node: NodeSummary, resource: str) -> float:
    """Return the used part of a node, from 0 to 1, with planned pods."""
    of = node.allocatable.get(resource, 0.0)
    taken = node.used.get(resource, 0.0) + node.claimed.get(resource, 0.0)
    return min(taken / of, 1.0) if of > 0 else 0.0


def _tile(nodes: Sequence[NodeSummary], resource: str, highlighted: str) -> Tile:
    full = sum(fullness(node, resource) for node in nodes) / len(nodes)
    level = 0 if full == 0 else _FULL if full > 0.999 else 1 + int(full * (_FULL - 1))
    classes = {
        "claimed": any(any(node.claimed.values()) for node in nodes),
        "reserved": any(node.reserved_for for node in nodes),
        "closed": all(not node.taken for node in nodes),
        "chosen": bool(highlighted) and any(highlighted in node.groups for node in nodes),
    }
    marks = [name for name, is_set in classes.items() if is_set]
    names = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} … {nodes[-1].name}"
    words = ", ".join(["closed to new pods" if it == "closed" else it for it in marks if it != "chosen"])
    return Tile(level, " ".join(marks), f"{names[:200]}: {full:.0%} full{words and ', '}{words}")


def _pieces(nodes: Sequence[NodeSummary], resource: str) -> list[FreePiece]:
    """Return the numbers of nodes by free devices or cores; by powers of two if there are many sizes."""
    found = Counter(int(free(node, resource)) for node in nodes)
    if len(found) > _PIECES:
        powers: Counter[int] = Counter()
        for size, count in found.items():
            powers[1 << (size.bit_length() - 1) if size else 0] += count
        labels = {size: f"{size} to {2 * size - 1}" if size > 1 else str(size) for size in powers}
        found = powers
    else:
        labels = {size: str(size) for size in found}
    most = max(found.values(), default=1)
    return [
        FreePiece(labels[size], found[size], round(found[size] / most * 100, 2)) for size in sorted(found)
    ]


# ---- topologies


class Tree(NamedTuple):
    """Topology with the domains that the search found, else all, and their devices or cpu.

    `left_out`: number of domains that are not shown.
    """

    levels: Sequence[str]
    domains: Sequence[tuple[DomainSummary, CapacitySummary, AmountBar]]
    left_out: int = 0


_HOST = "kubernetes.io/hostname"


def _trees(
    topologies: Sequence[Sequence[str]], nodes: Sequence[NodeSummary]
) -> list[tuple[Sequence[str], list[DomainSummary]]]:
    """Return the topologies with domains of several nodes, without those that repeat earlier domains."""
    found: dict[object, tuple[Sequence[str], list[DomainSummary]]] = {}
    for levels in topologies:
        levels = [level for level in levels if level != _HOST]  # the list below has each node
        if domains := domain_summaries(levels, nodes):
            found.setdefault(tuple(domain.path for domain in domains), (levels, domains))
    return list(found.values())


def _shown(tree: tuple[Sequence[str], list[DomainSummary]], query: Mapping[str, str]) -> Tree:
    levels, domains = tree
    found = searched(domains, query, lambda it: " ".join(it.path)) or domains
    uses = ((it, it.capacity[0] if it.capacity else CapacitySummary("cpu")) for it in found[:_ROWS])
    return Tree(levels, [(it, use, capacity_bar(use)) for it, use in uses], max(len(found) - _ROWS, 0))


# ---- one by one


def _resource_of(node: NodeSummary) -> str:
    return main_resource([node.allocatable])


def _severity(node: NodeSummary) -> tuple[int, bool, str]:
    """Return the sort key of health: the worst first."""
    return -sum(problem != "cordoned" for problem in node.health), node.taken, node.name


NODES = (
    Column[NodeSummary]("name", "Node", lambda it: it.name),
    Column[NodeSummary]("health", "Health", _severity),
    Column[NodeSummary]("full", "In use", lambda it: fullness(it, _resource_of(it))),
    Column[NodeSummary]("groups", "Jobs on it or on their way", lambda it: len(it.groups)),
)
