"""Tree of queues: the state and faults of each queue, and the groups of deleted queues."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.domain.model.evictions import Protection
from extender.domain.model.records import GroupKey, GroupRecord
from extender.domain.model.resources import PODS, Resources
from extender.domain.queues.flavors import MAX_POOLS, Flavor, Pools, SharedFlavor, resolve
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.states import (
    AnnotationStep,
    QueueState,
    annotation_step,
    closing_ancestor,
    desired_state,
    parent_of,
    state_of,
)


class QueueInfo(msgspec.Struct, frozen=True, gc=False):
    """State of one queue for decide()."""

    record: QueueRecord
    exists: bool  # whether the queue exists; `default` always counts as existing
    state: str  # a QueueState; empty if the queue does not exist
    group_count: int  # number of its groups, in any phase
    allocated: Resources  # requests of its pods on nodes and its assumed pods
    requested: Resources  # `allocated` plus the requests of waiting entitled groups
    desired_state: QueueState = QueueState.OPEN  # its state if its ancestors are ignored
    closed_above: str = ""  # the ancestor that keeps the queue closed; empty: no ancestor does
    annotation_step: AnnotationStep = AnnotationStep.KEEP  # step for the closed-by-parent annotation
    fault: str = ""  # fault of its spec or its position in the tree, for users; empty: valid
    protection: Protection = Protection()  # protection of its pods, by this queue or the nearest above
    flavors: tuple[Flavor, ...] = ()  # flavors of this queue, or of the nearest queue above with flavors
    amounts_by_pool: Mapping[str, Resources] = {}  # allocated amounts on the nodes of each pool

    @property
    def queue_to_open(self) -> str:
        """Return the queue that a user has to open so that this queue opens."""
        is_closed_above = self.closed_above and self.desired_state is QueueState.OPEN
        return self.closed_above if is_closed_above else self.record.name


class Ceiling(msgspec.Struct, frozen=True):
    """Upper limit of the allocation of a queue and its descendants, by resource."""

    queue: str
    held_amounts: Resources  # current allocation
    max_amounts: Mapping[str, float]  # upper limits


MAX_LEVELS = 100  # levels below root; the upper limit of the flag --max-queue-depth


def fault_of(name: str, queues: Mapping[str, QueueRecord]) -> str:
    """Return the first fault of an existing queue or a queue above it, for users; empty if there is none.

    The fault may concern the queue itself or its position in the tree. While there is a fault, the groups of
    the queue wait, because their share is unknown. Faults of queues above count, because their limits apply,
    too.
    """
    path: list[str] = []
    while name and name != ROOT_QUEUE:
        record = queues.get(name)
        if record is None:
            if not path or name == DEFAULT_QUEUE:
                return ""
            return f"queue {path[-1]}: its parent {name} does not exist"
        if record.fault:
            return record.fault
        if name in path:
            return f"queue {name}: spec.parent leads back to the queue itself: {' > '.join([*path, name])}"
        if len(path) == MAX_LEVELS:
            return f"queue {path[0]}: more than {MAX_LEVELS} levels of queues are above it"
        path.append(name)
        name = parent_of(name, record)
    return ""


class Queues:
    """Queues of the API server, with their states: open, closed, or closed by the parent."""

    def __init__(self) -> None:
        self.records: dict[str, QueueRecord] = {}  # existing queues by name; `default` may be missing
        self.version = 0  # number of changes of queues
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self.name_by_uid: dict[str, str] = {}  # names of queues by UID
        self.deleted_uids: set[str] = set()  # UIDs of queues that were deleted since the start
        self._faults: dict[str, str] = {}  # cached faults by queue
        self._pools: Pools | None = None
        self._flavors: dict[str, tuple[Flavor, ...]] = {}  # cached flavors by queue
        self._protections: dict[str, Protection] = {}  # cached protections by queue
        self.shared_flavors: dict[str, SharedFlavor] = {}  # existing ResourceFlavors by name

    def put(self, record: QueueRecord) -> set[str]:
        """Record a new or changed queue.

        Return the names of all queues that may open or close because of the change.
        """
        old_record = self.records.get(record.name)
        if record.flavors:
            record = replace(record, flavors=resolve(record.flavors, self.shared_flavors))
        if old_record == record:
            return set()
        self.records[record.name] = record
        self._update_tree(old_record, record)
        return self._with_descendants(record.name)

    def drop(self, name: str) -> set[str]:
        """Remove a queue. Return the names of the queues that may open as a result."""
        old_record = self.records.pop(name, None)
        self._update_tree(old_record, None)
        return self._with_descendants(name)

    def get(self, name: str) -> QueueRecord | None:
        """Return a queue; None if it does not exist.

        `default` counts as existing even before it is created.
        """
        return self.records.get(name) or (QueueRecord(name) if name == keys.DEFAULT_QUEUE else None)

    def is_open(self, name: str) -> bool:
        """Return whether a queue exists and is open."""
        record = self.get(name)
        return record is not None and self._state_of(record, has_groups=True) is QueueState.OPEN

    def info(
        self,
        name: str,
        group_count: int,
        allocated: Resources,
        requested: Resources,
        amounts_by_pool: Mapping[str, Resources] = MappingProxyType({}),
    ) -> QueueInfo:
        """Return the state of a queue for the decisions of a cycle.

        Args:
            name: The name of the queue, which may not exist.
            group_count: The number of its groups.
            allocated: The amounts that these groups hold.
            requested: The amounts that these groups hold or request.
            amounts_by_pool: The amounts that these groups hold on the nodes of each pool.
        """
        record = self.get(name)
        ancestor = closing_ancestor(name, self.records) if name in self.records else ""
        if name in self.records and name not in self._faults:  # a fault changes only with the tree
            self._faults[name] = fault_of(name, self.records) or self._pool_fault(name)
        return QueueInfo(
            record=record or QueueRecord(name),
            exists=record is not None,
            state=str(self._state_of(record, group_count > 0)) if record else "",
            group_count=group_count,
            allocated=allocated,
            requested=allocated if record and record.stop_policy else requested,
            desired_state=desired_state(record or QueueRecord(name)),
            closed_above=ancestor,
            annotation_step=annotation_step(record or QueueRecord(name), bool(ancestor)),
            fault=self._faults.get(name, ""),
            protection=self._protection_of(name),
            flavors=self.flavors_of(name),
            amounts_by_pool=amounts_by_pool,
        )

    def _protection_of(self, name: str) -> Protection:
        """Return the protection of a queue's pods.

        Each setting comes from the queue, or else from the nearest queue above it that has the setting.
        """
        if name not in self.records:  # pods may name any queue, so unknown queues are not cached
            return Protection()
        if name not in self._protections:
            rules, default = [record.preemption for record in self._ancestry(name)], Protection()
            protections = (each.protections for each in rules if each.protections is not None)
            grace_periods = (each.max_grace for each in rules if each.max_grace is not None)
            max_grace = next(grace_periods, default.max_grace)
            self._protections[name] = Protection(next(protections, default.protections), max_grace)
        return self._protections[name]

    def put_flavor(self, name: str, flavor: SharedFlavor | None) -> set[str]:
        """Record a ResourceFlavor; None means that the ResourceFlavor was deleted.

        Return the names of the queues that use the flavor, and of all queues below them.
        """
        self.shared_flavors.pop(name, None)
        if flavor is not None:
            self.shared_flavors[name] = flavor
        records = [r for r in self.records.values() if name in {each.resource_flavor for each in r.flavors}]
        return {queue for record in records for queue in self.put(record)}

    @property
    def pools(self) -> Pools:
        """Return the pools of the flavors of all queues: the same object until a queue changes."""
        if self._pools is None:
            records_with_flavors = [record for record in self.records.values() if record.flavors]
            records_with_flavors.sort(key=lambda record: (record.created_at, record.name))
            self._pools = Pools.from_queues((record.name, record.flavors) for record in records_with_flavors)
        return self._pools

    def flavors_of(self, name: str) -> tuple[Flavor, ...]:
        """Return the flavors of a queue, or else the flavors of the nearest queue above it that has flavors.

        A queue without flavors may use only nodes that have one of the returned flavors.
        """
        if name not in self.records:
            return ()
        if name not in self._flavors:
            self._flavors[name] = next((each.flavors for each in self._ancestry(name) if each.flavors), ())
        return self._flavors[name]

    def _pool_fault(self, name: str) -> str:
        """Return a fault if a flavor has no pool; empty if all flavors have one.

        The limits of a flavor without a pool would not apply.
        """
        for record in self._ancestry(name):
            node_parts = (flavor.nodes for flavor in record.flavors if not flavor.is_missing)
            if any(nodes not in self.pools.by_nodes for nodes in node_parts):
                return f"queue {record.name}: queues have more than {MAX_POOLS} different flavors together"
        return ""

    def _ancestry(self, name: str) -> Iterator[QueueRecord]:
        """Yield a queue and the queues above it. A cycle of parents ends at the first repeated queue."""
        visited_names: set[str] = set()
        while name not in visited_names and (record := self.records.get(name)) is not None:
            visited_names.add(name)
            yield record
            name = parent_of(name, record)

    def _state_of(self, record: QueueRecord, has_groups: bool) -> QueueState:
        """Return the state of a queue, with regard to its ancestors."""
        is_closed_above = record.was_closed_by_parent and bool(closing_ancestor(record.name, self.records))
        return state_of(desired_state(record), has_groups, is_closed_above)

    def _update_tree(self, old_record: QueueRecord | None, new_record: QueueRecord | None) -> None:
        """Update the tree and the UIDs after a queue was added, changed or removed."""
        self.version += 1
        self._faults, self._flavors, self._protections = {}, {}, {}
        if any(record is not None and record.flavors for record in (old_record, new_record)):
            self._pools = None
        if old_record is not None:
            self._children[parent_of(old_record.name, old_record)].discard(old_record.name)
            self.name_by_uid.pop(old_record.uid, None)
            self.deleted_uids.add(old_record.uid)
        if new_record is not None:
            self._children[parent_of(new_record.name, new_record)].add(new_record.name)
            self.name_by_uid[new_record.uid] = new_record.name
            self.deleted_uids.discard(new_record.uid)

    def _with_descendants(self, name: str) -> set[str]:
        """Return the names of a queue and of all queues below it."""
        names, stack = {name}, [name]
        while stack:
            new_names = self._children.get(stack.pop(), set()) - names
            names |= new_names
            stack += new_names
        return names


class QueueTree:
    """Tree of all queues, for admission rules.

    The usage of a queue is looked up on demand, because few rules need it.
    """

    def __init__(
        self,
        queues: Mapping[str, QueueRecord],
        look_up: Callable[[str], QueueInfo | None],
        shared_flavors: Mapping[str, SharedFlavor] = MappingProxyType({}),
    ) -> None:
        self.queues = queues
        self.shared_flavors = shared_flavors
        self._look_up = look_up
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for name, record in queues.items():
            self._children[record.parent].append(name)

    def info(self, name: str) -> QueueInfo | None:
        """Return the state of a queue with its usage; None if the queue does not exist."""
        return self._look_up(name) if name in self.queues else None

    def pod_count(self, name: str) -> int:
        """Return the number of pods of a queue that are on nodes or assumed."""
        info = self.info(name)
        return info.allocated.get(PODS, 0) if info else 0

    def children(self, name: str) -> list[str]:
        return self._children.get(name, [])

    def ancestry(self, name: str) -> Iterator[QueueRecord]:
        """Yield the queue and the queues above it, the nearest first, without root.

        A cycle of parents ends at the first repeated queue.
        """
        visited: set[str] = set()
        while name != ROOT_QUEUE and name not in visited and (record := self.queues.get(name)) is not None:
            visited.add(name)
            yield record
            name = record.parent

    def height(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """Return the number of levels from a queue down to its lowest descendant; the queue itself counts."""
        if name in seen:
            return 0
        heights = (self.height(child, seen | {name}) for child in self.children(name))
        return 1 + max(heights, default=0)

    def max_capability(self, resource: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, int]:
        """Return the largest capability for a resource in a queue and its descendants, as (queue, amount).

        If a queue lists the resource, the amounts below the queue do not count.
        """
        record = self.queues.get(name)
        amount = (record.capability or {}).get(resource) if record else None
        if amount is not None or name in seen:
            return name, amount or 0
        amounts = (self.max_capability(resource, child, seen | {name}) for child in self.children(name))
        return max(amounts, key=lambda found: found[1], default=(name, 0))


class Orphan(msgspec.Struct, frozen=True):
    """PodGroup whose queue was deleted."""

    namespace: str
    name: str
    uid: str
    queue: str  # name of the deleted queue
    queue_uid: str


class AdmittedGroups:
    """Groups by the UID of the queue that accepted them, as recorded on each group.

    A queue with groups is protected from deletion. If it is deleted nevertheless, its groups are deleted,
    too. A group that was created before its queue has no such UID, and waits.
    """

    def __init__(self) -> None:
        self._groups_by_queue_uid: defaultdict[str, dict[GroupKey, GroupRecord]] = defaultdict(dict)

    def record(self, old_record: GroupRecord | None, new_record: GroupRecord | None) -> None:
        """Record a change of a group.

        Args:
            old_record: The earlier record; None for a new group.
            new_record: The new record; None for a removed group.
        """
        if old_record is not None and old_record.queue_uid:
            self._groups_by_queue_uid[old_record.queue_uid].pop(old_record.key, None)
            if not self._groups_by_queue_uid[old_record.queue_uid]:
                del self._groups_by_queue_uid[old_record.queue_uid]
        if new_record is not None and new_record.queue_uid:
            self._groups_by_queue_uid[new_record.queue_uid][new_record.key] = new_record

    def has_groups_of(self, queue_uid: str) -> bool:
        """Return whether any existing group is recorded as accepted by this queue."""
        return queue_uid in self._groups_by_queue_uid

    def groups_of_missing_queues(self, existing_uids: Set[str]) -> list[GroupRecord]:
        """Return the groups of all queues whose UID is not in `existing_uids`."""
        missing_uids = sorted(self._groups_by_queue_uid.keys() - existing_uids)
        return [record for uid in missing_uids for record in self._groups_by_queue_uid[uid].values()]


def in_tree_order(parents: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield all names with their depth, each queue below its parent, and siblings by name.

    A queue whose parent does not exist is at the top. Queues of a cycle are left out.
    """
    children: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(parents, reverse=True):
        children[parents[name] if parents[name] in parents else ""].append(name)
    stack = [(name, 0) for name in children[""]]
    while stack:
        name, depth = stack.pop()
        yield name, depth
        stack += [(child, depth + 1) for child in children.get(name, ())]
