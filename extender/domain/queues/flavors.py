"""Flavors: parts of the amounts of queues that apply on nodes with certain labels.

A flavor is identified by its nodes: queues that name the same labels mean the same flavor, whatever its name.
If any queue has an amount of a resource in a flavor, this resource is divided through the tree as a resource
of its own, `RESOURCE of FLAVOR`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from extender.api.objects.base import Quantities
from extender.api.objects.cluster import Taint
from extender.api.objects.queues import QueueFlavor, ResourceFlavor
from extender.api.units import BadQuantity
from extender.domain.model.resources import Resources, add, in_flavor, offered
from extender.domain.model.selectors import NOWHERE, Labels, NodePart, is_tolerated, parts_of, taint_text
from extender.domain.model.shapes import Shape, requests_of

if TYPE_CHECKING:  # `muster why` imports this module, and starts faster without numpy
    import numpy as np
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]  # one truth value per node row

MAX_FLAVORS = 16  # limit of flavors per queue
MAX_POOLS = 64  # limit of pools of all queues together
_MAX_COMBINATIONS = 4096  # limit of cached combinations of label values


class Flavor(msgspec.Struct, frozen=True):
    """Part of a queue's amounts that applies on nodes with certain labels.

    Resources without an amount have no limit on these nodes.
    """

    name: str
    nodes: NodePart  # nodes with the flavor's labels that no earlier flavor selects
    amounts: Mapping[str, Resources] = {}  # amounts by field of `QueueDemand`
    resource_flavor: str = ""  # ResourceFlavor with the node labels; empty: the queue has the labels
    taints: tuple[Taint, ...] = ()  # taints of the ResourceFlavor, which pods have to tolerate

    @property
    def is_missing(self) -> bool:
        """Return whether the ResourceFlavor does not exist, so that the flavor has no nodes."""
        return self.nodes == NOWHERE

    def refuses(self, shapes: Iterable[Shape]) -> str:
        """Return why pods of these shapes never get the flavor, for messages; empty if they may get it."""
        if self.is_missing:
            return f"ResourceFlavor {self.resource_flavor} does not exist"
        tolerations = {shape.constraints.tolerations for shape in shapes} if self.taints else ()
        repelling = (taint for taint in self.taints if not all(is_tolerated(taint, t) for t in tolerations))
        return next((f"pods do not tolerate its taint {taint_text(taint)}" for taint in repelling), "")


class SharedFlavor(msgspec.Struct, frozen=True):
    """ResourceFlavor: labels and taints of nodes, for the flavors that name the ResourceFlavor."""

    name: str
    labels: Labels = {}
    taints: tuple[Taint, ...] = ()


def shared_flavor(obj: ResourceFlavor) -> SharedFlavor:
    spec = obj.spec
    return SharedFlavor(obj.metadata.name, spec.node_labels or {}, tuple(spec.node_taints or ()))


def resolve(flavors: tuple[Flavor, ...], flavors_by_name: Mapping[str, SharedFlavor]) -> tuple[Flavor, ...]:
    """Return the flavors of one queue, with the nodes and taints of ResourceFlavors filled in.

    Args:
        flavors: The flavors of the queue.
        flavors_by_name: The existing ResourceFlavors.
    """
    if not any(flavor.resource_flavor for flavor in flavors):
        return flavors
    records = [flavors_by_name.get(flavor.resource_flavor) for flavor in flavors]
    own_labels = (dict(flavor.nodes.labels) if not flavor.resource_flavor else None for flavor in flavors)
    parts = parts_of([r.labels if r else labels for r, labels in zip(records, own_labels, strict=True)])
    taints = [record.taints if record else () for record in records]
    return tuple(
        replace(flavor, nodes=part, taints=node_taints)
        for flavor, part, node_taints in zip(flavors, parts, taints, strict=True)
    )


def flavor_on(flavors: Iterable[Flavor], labels: Labels) -> Flavor | None:
    """Return the first flavor whose labels the node has; None if there is no such flavor."""
    return next((flavor for flavor in flavors if flavor.nodes.has(labels)), None)


def flavors_of(specs: Sequence[QueueFlavor]) -> tuple[Flavor, ...]:
    """Return the flavors of a spec, in the order in which they are tried.

    Flavors that name a ResourceFlavor have no nodes yet.

    Raises:
        BadQuantity: A name, an amount or a combination of fields is invalid.
    """
    if len(specs) > MAX_FLAVORS:
        raise BadQuantity(f"spec.flavors has {len(specs)} entries; at most {MAX_FLAVORS} are allowed")
    names = [flavor.name for flavor in specs]
    for number, name in enumerate(names):
        if not name or name in names[:number]:
            fault = "the name of an earlier flavor" if name else "no name"
            raise BadQuantity(f"spec.flavors[{number}].name: {name!r} is {fault}")
        if specs[number].resource_flavor and specs[number].node_labels is not None:
            raise BadQuantity(f"spec.flavors[{number}] has both nodeLabels and resourceFlavor: must have one")
    parts = parts_of([None if each.resource_flavor else each.node_labels or {} for each in specs])
    return tuple(_flavor_of(flavor, part) for flavor, part in zip(specs, parts, strict=True))


def _flavor_of(spec: QueueFlavor, nodes: NodePart) -> Flavor:
    """Return a flavor of a spec.

    Raises:
        BadQuantity: An amount cannot be read.
    """
    try:
        amounts = {field: _amounts_of(amounts) for field, amounts in spec.amounts().items()}
    except BadQuantity as fault:
        raise BadQuantity(f"flavor {spec.name}: {fault}") from fault
    return Flavor(spec.name, nodes, amounts, spec.resource_flavor)


def _amounts_of(quantities: Quantities) -> Resources:
    """Return the amounts of a flavor; negative amounts count as 0."""
    return {name: max(amount, 0) for name, amount in offered(quantities).items()}


class Pool(msgspec.Struct, frozen=True):
    """Nodes of a flavor, which all queues that name the flavor share."""

    name: str  # flavor name in the oldest queue; the queue's name is added if the flavor name is already used
    nodes: NodePart
    resources: frozenset[str] = frozenset()  # resources for which any queue has an amount

    def rename(self, amounts: Resources) -> Resources:
        """Return the amounts that the pool divides, under the names by which the tree divides them."""
        return {in_flavor(name, self.name): n for name, n in amounts.items() if name in self.resources}


class Pools(msgspec.Struct, frozen=True, dict=True):
    """All pools of a cluster."""

    all_pools: tuple[Pool, ...] = ()

    @classmethod
    def from_queues(cls, queues: Iterable[tuple[str, tuple[Flavor, ...]]]) -> "Pools":
        """Return the pools of the flavors of `queues`, which must be ordered from the oldest queue on.

        Flavors beyond the first `MAX_POOLS` get no pool.
        """
        names: dict[NodePart, str] = {}
        resources: dict[NodePart, set[str]] = {}
        for queue, flavors in queues:
            for flavor in flavors:
                if flavor.nodes not in names and len(names) < MAX_POOLS and not flavor.is_missing:
                    name, used_names = flavor.name, set(names.values())
                    while name in used_names:
                        name = f"{name} ({queue})"
                    names[flavor.nodes] = name
                resources.setdefault(flavor.nodes, set()).update(*flavor.amounts.values())
        return cls(tuple(Pool(name, part, frozenset(resources[part])) for part, name in names.items()))

    @cached_property
    def by_nodes(self) -> Mapping[NodePart, Pool]:
        return {pool.nodes: pool for pool in self.all_pools}

    @cached_property
    def by_name(self) -> Mapping[str, Pool]:
        return {pool.name: pool for pool in self.all_pools}

    @cached_property
    def _label_keys(self) -> Sequence[str]:
        """Return the keys of all labels that decide to which pools a node belongs."""
        parts = [pairs for pool in self.all_pools for pairs in (pool.nodes.labels, *pool.nodes.earlier_parts)]
        return sorted({key for pairs in parts for key, _ in pairs})

    @cached_property
    def _pools_by_labels(self) -> dict[tuple[str | None, ...], tuple[Pool, ...]]:
        """Return the cache of pools, by the values of the labels in `_label_keys`."""
        return {}

    def pools_of_node(self, labels: Labels) -> tuple[Pool, ...]:
        """Return the pools that contain a node with these labels."""
        values = tuple(map(labels.get, self._label_keys))
        if values not in self._pools_by_labels:
            if len(self._pools_by_labels) >= _MAX_COMBINATIONS:
                self._pools_by_labels.clear()
            self._pools_by_labels[values] = tuple(pool for pool in self.all_pools if pool.nodes.has(labels))
        return self._pools_by_labels[values]

    def amounts_by_pool(self, pods: Iterable[tuple[Shape, Labels | None]]) -> dict[str, Resources]:
        """Return the amounts that pods hold of each pool, by the pool's name.

        Args:
            pods: The shape of each pod, and the labels of its node.
        """
        shapes: dict[str, Counter[Shape]] = {}
        for shape, labels in pods if self.all_pools else ():
            for pool in self.pools_of_node(labels) if labels is not None else ():
                shapes.setdefault(pool.name, Counter())[shape] += 1
        return {name: requests_of(pool_shapes) for name, pool_shapes in shapes.items()}

    def rename(self, amounts_by_pool: Mapping[str, Resources]) -> Resources:
        """Return amounts by pool, under the names by which the tree divides them."""
        pairs = ((self.by_name[name], held) for name, held in amounts_by_pool.items() if name in self.by_name)
        return {name: n for pool, amounts in pairs for name, n in pool.rename(amounts).items()}


class PoolRows:
    """Rows of the nodes of each pool in one table of nodes."""

    def __init__(self, pools: Pools, find_rows: "Callable[[NodePart], Mask]") -> None:
        self.pools = pools
        self._rows = {pool.nodes: find_rows(pool.nodes) for pool in pools.all_pools}
        self._containing_pools: dict[NodePart, tuple[Pool, ...]] = {}
        self._overlapping_pools: dict[tuple[NodePart, ...], tuple[Pool, ...]] = {}

    def totals_by_pool(self, dimensions: Sequence[str], offers: "npt.NDArray[np.int64]") -> dict[str, int]:
        """Return the amounts that the nodes of each pool offer.

        Args:
            dimensions: The names of the columns.
            offers: The offered amounts, with a row per node and a column per resource.
        """
        totals: dict[str, int] = {}
        for pool in self.pools.all_pools if len(offers) else ():
            sums = offers[self._rows[pool.nodes]].sum(axis=0).tolist()
            totals |= pool.rename(dict(zip(dimensions, sums, strict=True)))
        return totals

    def amounts_in_pools(self, part: NodePart, amounts: Resources) -> Resources:
        """Return amounts on a part of the nodes, named for each pool of nodes that contains this part."""
        if part not in self._containing_pools:
            rows = self._rows.get(part)
            self._containing_pools[part] = tuple(
                pool
                for pool in self.pools.all_pools
                if pool.nodes == part
                or (rows is not None and rows.any() and not (rows & ~self._rows[pool.nodes]).any())
            )
        return {name: n for pool in self._containing_pools[part] for name, n in pool.rename(amounts).items()}

    def max_requests(self, flavors: Sequence[Flavor], amounts: Resources) -> Resources:
        """Return the amounts in each pool from which queues with these flavors may request.

        Queues without flavors may request from all pools.
        """
        parts = tuple(flavor.nodes for flavor in flavors)
        if parts not in self._overlapping_pools:
            rows = [self._rows[part] for part in parts if part in self._rows]
            self._overlapping_pools[parts] = tuple(
                pool
                for pool in self.pools.all_pools
                if not parts
                or pool.nodes in parts
                or any((part_rows & self._rows[pool.nodes]).any() for part_rows in rows)
            )
        sums: dict[str, int] = {}
        for pool in self._overlapping_pools[parts]:
            add(sums, pool.rename(amounts))
        return sums
