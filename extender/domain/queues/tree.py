"""The tree of queues: state and faults of each, and groups of deleted queues."""

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
from extender.domain.queues.flavors import MOST_POOLS, Flavor, Pools, SharedFlavor, resolve
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.states import (
    AnnotationStep,
    QueueState,
    annotation_step,
    closed_above,
    desired_state,
    parent_of,
    state_of,
)


class QueueInfo(msgspec.Struct, frozen=True, gc=False):
    """Info of one queue for decide()."""

    record: QueueRecord
    exists: bool  # whether the API has it; `default` always counts as existing
    state: str  # a QueueState; empty if the queue does not exist
    groups: int  # number of its groups, in any phase
    allocated: Resources  # requests of its pods on nodes or assumed on nodes
    requested: Resources  # `allocated`, and the requests of waiting entitled groups
    wish: QueueState = QueueState.OPEN  # its state apart from its parents
    closed_above: str = ""  # the ancestor that keeps it closed; empty if none does
    mark: AnnotationStep = AnnotationStep.KEEP  # step for the closed-by-parent annotation
    fault: str = ""  # its own fault or that of its place in the tree, for users; empty if valid
    protection: Protection = Protection()  # of its pods: its own, or that of the nearest queue above
    flavors: tuple[Flavor, ...] = ()  # its own, or those of the nearest queue above it that has some
    by_pool: Mapping[str, Resources] = {}  # of what is allocated, the amounts on the nodes of each pool

    @property
    def queue_to_open(self) -> str:
        """Return the queue that has to be opened to open this one."""
        is_held = self.closed_above and self.wish is QueueState.OPEN
        return self.closed_above if is_held else self.record.name


class Ceiling(msgspec.Struct, frozen=True):
    """Upper limit of the allocation of a queue and its descendants, by resource."""

    queue: str
    held: Resources
    most: Mapping[str, float]


# Faults of a queue or of its place in the tree: its groups wait, since their share is unknown.

MOST_LEVELS = 100  # levels below root; the upper limit of the flag --max-queue-depth


def fault_of(name: str, queues: Mapping[str, QueueRecord]) -> str:
    """Return the first fault of an existing queue and those above it, for users; empty if none.

    The limits of queues above apply, too.
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
        if len(path) == MOST_LEVELS:
            return f"queue {path[0]}: more than {MOST_LEVELS} levels of queues are above it"
        path.append(name)
        name = parent_of(name, record)
    return ""


class Queues:
    """Queues of the API, with the state of each: open, closed, or closed by its parent."""

    def __init__(self) -> None:
        self.records: dict[str, QueueRecord] = {}  # queues of the API; `default` may be missing
        self.version = 0  # grows with each change of the queues
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self.names: dict[str, str] = {}  # names by UID
        self.gone: set[str] = set()  # UIDs of queues that were seen here and are gone
        self._faults: dict[str, str] = {}  # cached faults of queues in this tree
        self._pools: Pools | None = None
        self._flavors: dict[str, tuple[Flavor, ...]] = {}  # cached
        self._protections: dict[str, Protection] = {}  # cached
        self.shared_flavors: dict[str, SharedFlavor] = {}  # the ResourceFlavors that the API has, by name

    def put(self, record: QueueRecord) -> set[str]:
        """Record a new or changed queue. Return the names of all queues that this may open or close."""
        before = self.records.get(record.name)
        if record.flavors:
            record = replace(record, flavors=resolve(record.flavors, self.shared_flavors))
        if before == record:
            return set()
        self.records[record.name] = record
        self._place(before, record)
        return self._with_descendants(record.name)

    def drop(self, name: str) -> set[str]:
        """Remove a queue. Return the names of all queues that this may open."""
        gone = self.records.pop(name, None)
        self._place(gone, None)
        return self._with_descendants(name)

    def get(self, name: str) -> QueueRecord | None:
        """Return a queue; `default` counts as existing before it is created."""
        return self.records.get(name) or (QueueRecord(name) if name == keys.DEFAULT_QUEUE else None)

    def is_open(self, name: str) -> bool:
        record = self.get(name)
        return record is not None and self._state(record, has_groups=True) is QueueState.OPEN

    def info(
        self,
        name: str,
        groups: int,
        allocated: Resources,
        requested: Resources,
        by_pool: Mapping[str, Resources] = MappingProxyType({}),
    ) -> QueueInfo:
        """Return a queue as the decisions of a cycle see it.

        Args:
            name: The queue, which may not exist.
            groups: The number of its groups.
            allocated: What they hold.
            requested: What they hold or ask for.
            by_pool: What they hold of each flavor.
        """
        record = self.get(name)
        above = closed_above(name, self.records) if name in self.records else ""
        if name in self.records and name not in self._faults:  # a fault only changes with the tree
            self._faults[name] = fault_of(name, self.records) or self._lacks_pool(name)
        return QueueInfo(
            record=record or QueueRecord(name),
            exists=record is not None,
            state=str(self._state(record, groups > 0)) if record else "",
            groups=groups,
            allocated=allocated,
            requested=allocated if record and record.stop_policy else requested,
            wish=desired_state(record or QueueRecord(name)),
            closed_above=above,
            mark=annotation_step(record or QueueRecord(name), bool(above)),
            fault=self._faults.get(name, ""),
            protection=self._protection_of(name),
            flavors=self.flavors_of(name),
            by_pool=by_pool,
        )

    def _protection_of(self, name: str) -> Protection:
        """Return the protection; each part is that of the nearest queue upwards that declares it."""
        if name not in self.records:  # pods may name any queue, so nothing is cached for unknown ones
            return Protection()
        if name not in self._protections:
            rules, default = [record.preemption for record in self._upwards(name)], Protection()
            honour = (each.honour for each in rules if each.honour is not None)
            grace = (each.max_grace for each in rules if each.max_grace is not None)
            self._protections[name] = Protection(next(honour, default.honour), next(grace, default.max_grace))
        return self._protections[name]

    def put_flavor(self, name: str, flavor: SharedFlavor | None) -> set[str]:
        """Record a ResourceFlavor; None if it is gone.

        Return the queues that name it, and those below them.
        """
        self.shared_flavors.pop(name, None)
        if flavor is not None:
            self.shared_flavors[name] = flavor
        named = [queue for queue in self.records.values() if name in {each.shared for each in queue.flavors}]
        return {queue for record in named for queue in self.put(record)}

    @property
    def pools(self) -> Pools:
        """Return the flavors of all queues; the same object while no queue changes."""
        if self._pools is None:
            named = [record for record in self.records.values() if record.flavors]
            named.sort(key=lambda record: (record.created, record.name))
            self._pools = Pools.from_queues((record.name, record.flavors) for record in named)
        return self._pools

    def flavors_of(self, name: str) -> tuple[Flavor, ...]:
        """Return the flavors of a queue, or of the nearest one above it that has some.

        The nodes of that queue are all that those below it may use.
        """
        if name not in self.records:
            return ()
        if name not in self._flavors:
            self._flavors[name] = next((each.flavors for each in self._upwards(name) if each.flavors), ())
        return self._flavors[name]

    def _lacks_pool(self, name: str) -> str:
        """Return the fault of a flavor without a pool, whose limits would not apply; empty if none."""
        for record in self._upwards(name):
            found = (flavor.nodes for flavor in record.flavors if not flavor.is_missing)
            if any(nodes not in self.pools.by_nodes for nodes in found):
                return f"queue {record.name}: queues have more than {MOST_POOLS} different flavors together"
        return ""

    def _upwards(self, name: str) -> Iterator[QueueRecord]:
        """Yield a queue and those above it; stop at a cycle."""
        passed: set[str] = set()
        while name not in passed and (record := self.records.get(name)) is not None:
            passed.add(name)
            yield record
            name = parent_of(name, record)

    def _state(self, record: QueueRecord, has_groups: bool) -> QueueState:
        is_closed_above = record.closed_by_parent and bool(closed_above(record.name, self.records))
        return state_of(desired_state(record), has_groups, is_closed_above)

    def _place(self, before: QueueRecord | None, now: QueueRecord | None) -> None:
        """Update the tree and the UIDs for a queue that is new, has changed or is gone."""
        self.version += 1
        self._faults, self._flavors, self._protections = {}, {}, {}
        if any(record is not None and record.flavors for record in (before, now)):
            self._pools = None
        if before is not None:
            self._children[parent_of(before.name, before)].discard(before.name)
            self.names.pop(before.uid, None)
            self.gone.add(before.uid)
        if now is not None:
            self._children[parent_of(now.name, now)].add(now.name)
            self.names[now.uid] = now.name
            self.gone.discard(now.uid)

    def _with_descendants(self, name: str) -> set[str]:
        """Return a queue and all queues below it."""
        found, unvisited = {name}, [name]
        while unvisited:
            below = self._children.get(unvisited.pop(), set()) - found
            found |= below
            unvisited += below
        return found


class QueueTree:
    """Tree of all queues for admission rules. Usage is looked up on demand: few rules need it."""

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
        """Return a queue with what it holds; None if it does not exist."""
        return self._look_up(name) if name in self.queues else None

    def pods(self, name: str) -> int:
        """Return how many pods of a queue are on nodes."""
        info = self.info(name)
        return info.allocated.get(PODS, 0) if info else 0

    def children(self, name: str) -> list[str]:
        return self._children.get(name, [])

    def ancestry(self, name: str) -> Iterator[QueueRecord]:
        """Yield the queue and those above it, the nearest first, without root; a cycle ends at its start."""
        seen: set[str] = set()
        while name != ROOT_QUEUE and name not in seen and (record := self.queues.get(name)) is not None:
            seen.add(name)
            yield record
            name = record.parent

    def height(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """Return the number of levels from a queue down to the lowest below it, itself included."""
        if name in seen:
            return 0
        below = (self.height(child, seen | {name}) for child in self.children(name))
        return 1 + max(below, default=0)

    def largest(self, resource: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, int]:
        """Return the largest capability of a resource among a queue and those below it, as (queue, amount).

        A queue that lists the resource counts in place of all below it.
        """
        record = self.queues.get(name)
        own = (record.capability or {}).get(resource) if record else None
        if own is not None or name in seen:
            return name, own or 0
        below = (self.largest(resource, child, seen | {name}) for child in self.children(name))
        return max(below, key=lambda found: found[1], default=(name, 0))


class Orphan(msgspec.Struct, frozen=True):
    """PodGroup whose queue is deleted."""

    namespace: str
    name: str
    uid: str
    queue: str  # the name of the queue that is gone
    queue_uid: str


class AdmittedGroups:
    """Groups by the UID of the queue that took them in, as recorded on them.

    A queue with groups is protected from deletion; if it is deleted nevertheless, its groups are, too. A
    group that was created before its queue has no such record, and waits.
    """

    def __init__(self) -> None:
        self._by_queue_uid: defaultdict[str, dict[GroupKey, GroupRecord]] = defaultdict(dict)

    def record(self, before: GroupRecord | None, now: GroupRecord | None) -> None:
        """Record a changed, new (`before` is None) or removed (`now` is None) group."""
        if before is not None and before.queue_uid:
            self._by_queue_uid[before.queue_uid].pop(before.key, None)
            if not self._by_queue_uid[before.queue_uid]:
                del self._by_queue_uid[before.queue_uid]
        if now is not None and now.queue_uid:
            self._by_queue_uid[now.queue_uid][now.key] = now

    def any_of(self, queue_uid: str) -> bool:
        """Return whether this queue admitted any group, by the groups' records."""
        return queue_uid in self._by_queue_uid

    def of_missing_queues(self, existing: Set[str]) -> list[GroupRecord]:
        """Return the groups of all queues whose UID is not in `existing`."""
        gone = sorted(self._by_queue_uid.keys() - existing)
        return [record for uid in gone for record in self._by_queue_uid[uid].values()]


def in_tree_order(parents: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield all names with their depth, each below its parent, by name.

    A queue without an existing parent is at the top; queues of a cycle are left out.
    """
    below: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(parents, reverse=True):
        below[parents[name] if parents[name] in parents else ""].append(name)
    unvisited = [(name, 0) for name in below[""]]
    while unvisited:
        name, depth = unvisited.pop()
        yield name, depth
        unvisited += [(child, depth + 1) for child in below.get(name, ())]
