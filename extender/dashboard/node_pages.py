"""Page of nodes: pools of equal nodes, with usage, reservations and the spread of free capacity.

A tile is one node, or several if there are many. A list below has each node.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flask import request
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import NodeSummary
from extender.dashboard.answers import Answers, Screen
from extender.dashboard.bars import AmountBar, main_resource, node_bar, usage_bar
from extender.dashboard.job_pages import job_index
from extender.dashboard.tables import Column, page, searched
from extender.dashboard.visible import VisibleOverview

_ROWS = 50  # of a page
_MOST_TILES = 600  # on one page
_FULL = 4  # highest level of a tile; 0 is empty
_USUAL = {"cpu": 1, "memory": 2}
_PIECES = 9  # maximum of distinct sizes of free pieces


class NodePages:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def nodes(self) -> Answer:
        visible = self._answers.see()
        state = visible.state("nodes", "reservations")
        screen = Screen("Nodes", "nodes.html", "nodes", state, lambda: self._nodes(visible), by_rights=True)
        return self._answers.page(visible, screen)

    def _nodes(self, visible: VisibleOverview) -> Mapping[str, Any]:
        nodes, chosen = visible.overview.nodes, request.args.get("group", "")
        found = [it for it in nodes if chosen in it.groups] if chosen else nodes
        found = searched(
            found, request.args, lambda it: f"{it.name} {' '.join(it.flavors)} {' '.join(it.groups)}"
        )
        key = ("pools", visible.state("nodes"), chosen)
        return {
            "pools": self._answers.derived(key, lambda: _pools(nodes, chosen)),
            "page": page(found, NODES, request.args, _ROWS),
            "columns": NODES,
            "resource_of": _resource_of,
            "chosen": chosen,
            "everything": len(nodes),
            "allowed": visible.rights.nodes,
            "node_bar": node_bar,
            "free": free,
            "seen": visible.rights.see_group,
            "spoken": job_index(self._answers, visible).spoken,
            "reservations": visible.overview.reservations,
        }


# ---- pools


class Use(NamedTuple):
    """Usage of one resource of a pool."""

    resource: str
    of: float
    stands: float
    claimed: float
    reserved: float

    @property
    def free(self) -> float:
        return max(self.of - self.stands - self.claimed - self.reserved, 0.0)

    @property
    def bar(self) -> AmountBar:
        return usage_bar(self.stands, self.claimed, self.reserved, self.of)


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
    uses: Sequence[Use]
    tiles: Sequence[Tile]
    pieces: Sequence[FreePiece]


def _pools(nodes: Sequence[NodeSummary], highlighted: str = "") -> list[NodePool]:
    """Return the pools, the largest first. `highlighted`: a group whose nodes are marked."""
    parts: dict[str, list[NodeSummary]] = defaultdict(list)
    for node in nodes:
        parts[_kind(node)].append(node)
    a_tile = -(-len(nodes) // _MOST_TILES)
    return [
        _pool(name, parts[name], a_tile, highlighted)
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


def _pool(name: str, nodes: Sequence[NodeSummary], a_tile: int, highlighted: str) -> NodePool:
    resource = main_resource([node.allocatable for node in nodes])
    chunks = (nodes[at : at + a_tile] for at in range(0, len(nodes), a_tile))
    tiles = [_tile(chunk, resource, highlighted) for chunk in chunks]
    return NodePool(name, len(nodes), resource, list(_uses(nodes)), tiles, _pieces(nodes, resource))


def _uses(nodes: Iterable[NodeSummary]) -> Iterable[Use]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for node in nodes:
        for resource, of in node.allocatable.items():
            stands, claimed = node.used.get(resource, 0.0), node.claimed.get(resource, 0.0)
            retained = max(of - stands - claimed, 0.0) if node.reserved_for else 0.0
            row = sums[resource]
            for at, value in enumerate((of, stands, claimed, retained)):
                row[at] += value
    return (Use(resource, *sums[resource]) for resource in sorted(sums, key=_devices_first))


def _devices_first(resource: str) -> tuple[int, str]:
    """Return the sort key of resources: devices first, then cpu and memory."""
    return 0 if "/" in resource else _USUAL.get(resource, 3), resource


def free(node: NodeSummary, resource: str) -> float:
    """Return the free capacity of a node that is not reserved."""
    if node.reserved_for or not node.taken:
        return 0.0
    taken = node.used.get(resource, 0.0) + node.claimed.get(resource, 0.0)
    return max(node.allocatable.get(resource, 0.0) - taken, 0.0)


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
    said = [mark for mark, true in classes.items() if true]
    names = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} … {nodes[-1].name}"
    words = ", ".join(["closed to new pods" if it == "closed" else it for it in said if it != "chosen"])
    return Tile(level, " ".join(said), f"{names[:200]}: {full:.0%} full{words and ', '}{words}")


def _pieces(nodes: Sequence[NodeSummary], resource: str) -> list[FreePiece]:
    """Return the numbers of nodes by free devices or cores; by powers of two if there are many sizes."""
    found = Counter(int(free(node, resource)) for node in nodes)
    if len(found) > _PIECES:
        powers: Counter[int] = Counter()
        for size, count in found.items():
            powers[1 << size.bit_length() - 1 if size else 0] += count
        labels = {size: f"{size} to {2 * size - 1}" if size > 1 else str(size) for size in powers}
        found = powers
    else:
        labels = {size: str(size) for size in found}
    most = max(found.values(), default=1)
    return [
        FreePiece(labels[size], found[size], round(found[size] / most * 100, 2)) for size in sorted(found)
    ]


# ---- one by one


def _resource_of(node: NodeSummary) -> str:
    return main_resource([node.allocatable])


NODES = (
    Column[NodeSummary]("name", "Node", lambda it: it.name),
    Column[NodeSummary]("full", "In use", lambda it: fullness(it, _resource_of(it))),
    Column[NodeSummary]("free", "Free", lambda it: free(it, _resource_of(it)), "number"),
    Column[NodeSummary]("groups", "Jobs on it or on their way", lambda it: len(it.groups)),
)
