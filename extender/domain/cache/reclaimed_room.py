"""Room that is being taken back, kept from everybody but those who have it planned already.

Its members have no claims yet: what they will claim is still in use. So it is counted beside the claims.
"""

from extender.domain.cache.node_capacity import NodeCapacity
from extender.domain.cache.registry import Registry
from extender.domain.model.evictions import Reclaim
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources


class ReclaimedRoom:
    """Callers hold the ledger's lock."""

    def __init__(self, registry: Registry, capacity: NodeCapacity) -> None:
        self._registry = registry
        self._capacity = capacity
        self._kept: dict[GroupKey, tuple[Reclaim, list[tuple[str, Resources]]]] = {}

    def put(self, key: GroupKey, reclaim: Reclaim | None) -> None:
        """What is being taken back for a group now; None: nothing."""
        before, parts = self._kept.get(key, (None, []))
        if before is reclaim:
            return
        for node, amounts in parts:
            self._capacity.keep(node, amounts, -1)
        self._kept.pop(key, None)
        group = self._registry.groups.get(key)
        if reclaim is None or group is None:
            return
        now = [
            (node, group.pods[uid].shape.requests) for uid, node in reclaim.plan.items() if uid in group.pods
        ]
        self._kept[key] = (reclaim, now)
        for node, amounts in now:
            self._capacity.keep(node, amounts)
