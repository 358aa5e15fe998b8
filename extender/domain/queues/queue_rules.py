"""The rules that an owner gives a queue, besides its amounts: small frozen records."""

from collections.abc import Iterable

import msgspec

from extender.domain.model.node_parts import NodePart
from extender.domain.model.resources import Resources
from extender.domain.model.selectors import Labels


class Limit(msgspec.Struct, frozen=True, gc=False):
    """How much may run at the same time; None: no limit."""

    groups: int | None = None
    pods: int | None = None


class RunningLimits(msgspec.Struct, frozen=True, gc=False):
    queue: Limit = Limit()
    """Of all groups of the queue."""
    user: Limit = Limit()
    """Of the groups of each user."""
    namespace: Limit = Limit()
    """Of the groups of each namespace."""


class PreemptionRules(msgspec.Struct, frozen=True, gc=False):
    within_queue: bool = True
    """Whether groups of higher priority may take room from running ones of the same queue."""
    unmanaged: bool = True
    """Whether its groups may take room from pods of lower priority that are not Muster's."""
    min_runtime: float = 0.0
    """How long its groups have run, in seconds, before others may take their room."""
    after: float = 0.0
    """How long its groups have waited with all their members, in seconds, before room is taken for them."""


class Flavor(msgspec.Struct, frozen=True):
    """A part of a queue's amounts, on nodes with certain labels."""

    name: str
    nodes: NodePart
    """The nodes with its labels, without those of the flavors before it."""
    capability: Resources = {}
    """The most that the queue may hold on these nodes; what it does not name has no limit of its own."""
    deserved: Resources | None = None
    """What the queue may hold there before the rest is lent to it; None: no more is said than for the whole
    queue."""


def flavor_on(flavors: Iterable[Flavor], labels: Labels) -> Flavor | None:
    """The flavor that a node with these labels belongs to: the first whose labels it has; None for none."""
    return next((flavor for flavor in flavors if flavor.nodes.has(labels)), None)
