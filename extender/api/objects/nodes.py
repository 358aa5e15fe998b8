"""Nodes."""

from extender.api.objects.base import Meta, Quantities, Wire


class Taint(Wire, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeStatus(Wire, frozen=True):
    allocatable: Quantities | None = None


class Node(Wire, frozen=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
