"""The page of nodes: in pools, and one by one."""

from collections.abc import Mapping
from typing import Any

from flask import request
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import NodeSummary
from extender.dashboard.answers import Answers, Screen
from extender.dashboard.bars import main_resource, node_bar
from extender.dashboard.job_pages import job_index
from extender.dashboard.pools import free, fullness, pools
from extender.dashboard.seen import Sight
from extender.dashboard.tables import Column, page, searched

_ROWS = 50  # of a page


def _resource_of(node: NodeSummary) -> str:
    return main_resource([node.allocatable])


NODES = (
    Column[NodeSummary]("name", "Node", lambda it: it.name),
    Column[NodeSummary]("full", "In use", lambda it: fullness(it, _resource_of(it))),
    Column[NodeSummary]("free", "Free", lambda it: free(it, _resource_of(it)), "number"),
    Column[NodeSummary]("groups", "Jobs on it or on their way", lambda it: len(it.groups)),
)


class NodePages:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def nodes(self) -> Answer:
        sight = self._answers.see()
        state = sight.state("nodes", "reservations")
        return self._answers.page(
            sight, Screen("Nodes", "nodes.html", "nodes", state, lambda: self._nodes(sight))
        )

    def _nodes(self, sight: Sight) -> Mapping[str, Any]:
        nodes, chosen = sight.overview.nodes, request.args.get("group", "")
        found = [it for it in nodes if chosen in it.groups] if chosen else nodes
        found = searched(
            found, request.args, lambda it: f"{it.name} {' '.join(it.flavors)} {' '.join(it.groups)}"
        )
        key = ("pools", sight.state("nodes"), chosen)
        return {
            "pools": self._answers.derived(key, lambda: pools(nodes, chosen)),
            "page": page(found, NODES, request.args, _ROWS),
            "columns": NODES,
            "resource_of": _resource_of,
            "chosen": chosen,
            "everything": len(nodes),
            "allowed": sight.rights.nodes,
            "node_bar": node_bar,
            "free": free,
            "seen": sight.rights.see_group,
            "spoken": job_index(self._answers, sight).spoken,
            "reservations": sight.overview.reservations,
        }
