"""Inventory of devices by node: what each DeviceClass can still get there.

A device counts once a pool is complete, in its newest generation, for each class whose selectors admit it. An
allocated device counts only for the class under which a pod has requested it, so that two classes over the
same devices do not count it twice; devices of claims that no pod uses count for no class. A partition counts
while the allocated partitions leave capacity for it.

The devices that selectors of requests admit, a selection, count like those of a class. Tenants write
selectors, so only a few selections of a namespace count, and none that takes too many steps to evaluate; the
scheduler alone decides on the others.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.device_selectors import Facts, cost_of, facts_of, selects
from extender.api.objects.base import Wire
from extender.api.objects.devices import (
    AllocatedDevice,
    ClaimSpec,
    CounterSet,
    Device,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    expressions_of,
)
from extender.api.objects.pods import NodeSelectorTerm
from extender.api.units import rounded_down
from extender.domain.ledger.intake import Intake
from extender.domain.model.device_requests import (
    ClaimKey,
    ClaimState,
    Selection,
    classes_of_request,
    resource_of_class,
    selections_of,
)
from extender.domain.model.resources import Resources

Pool = tuple[str, str]  # driver, name
Counters = Mapping[tuple[str, str], int]  # amounts by counter set and counter
_ANY_NODE = ""
_USERS = ("pods", "podgroups")  # kinds of the users of claims that count, as members of a PodGroup do
_MOST_PARTS = 65_536
_MOST_SELECTIONS, _MOST_OF_NAMESPACE = 32, 8
_MOST_COST = 131_072  # characters and steps in which a selection may be evaluated, for all devices together
_MOST_READ = 100  # new selections of a namespace, until Muster restarts: each costs a look at all devices
_MOST_NAMESPACES = 10_000  # whose new selections are counted
Names = tuple[str, ...]  # a class and a selection, or the class alone; empty: none counts
Measure = tuple[str, str]  # class or selection, and logical resource
T = TypeVar("T")


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str


class _Offer(NamedTuple):
    node: str  # empty: the device is not of one node, or has no limit of users
    device: Device
    classes: frozenset[str]  # classes and selections that admit it
    consumes: Counters  # what it takes of the amounts that partitions share


class SelectedDevices:
    """Devices that a selection admits, while its evaluations are not too costly."""

    def __init__(self, selection: Selection) -> None:
        self.device_class, self._expressions = selection
        self._text = "\n".join(self._expressions)
        self._cost = cost_of(self._text)
        self._admitted: dict[Facts, bool] = {}

    @property
    def is_counted(self) -> bool:
        return max(len(self._admitted), 1) * self._cost <= _MOST_COST

    def admits(self, driver: str, device: Device, classes: frozenset[str]) -> bool:
        """Return whether the selection admits a device of these classes. Equal devices are evaluated once."""
        if self.device_class not in classes or not self.is_counted:
            return False
        facts = facts_of(self._text, driver, device)
        if facts not in self._admitted:
            self._admitted[facts] = all(selects(each, driver, device) for each in self._expressions)
        return self._admitted[facts]


class Selections:
    """Selections of claims and templates that are counted: the first ones, at most so many of a namespace."""

    def __init__(self) -> None:
        self.by_name: dict[str, SelectedDevices] = {}
        self._of_claim: dict[ClaimKey, list[str]] = {}
        self._uses: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by namespace
        self._read = Counter[str]()  # how many were new, by namespace

    def of_class(self, name: str) -> list[str]:
        return [own for own, selection in self.by_name.items() if selection.device_class == name]

    def put(self, key: ClaimKey, wanted: Mapping[str, Selection]) -> set[str]:
        """Record the selections of a claim; return the names that are new or gone."""
        before, namespace = set(self.by_name), key.namespace
        self._uses[namespace] -= Counter(self._of_claim.pop(key, ()))
        for name, selection in wanted.items():
            if self._has_capacity(namespace, name):
                self._uses[namespace][name] += 1
                self._of_claim.setdefault(key, []).append(name)
                if name not in self.by_name:
                    if len(self._read) >= _MOST_NAMESPACES:
                        self._read.clear()
                    self._read[namespace] += 1
                    self.by_name[name] = SelectedDevices(selection)
        if not self._uses[namespace]:
            del self._uses[namespace]
        for name in self.by_name.keys() - set().union(*self._uses.values()):
            del self.by_name[name]
        return before ^ set(self.by_name)

    def _has_capacity(self, namespace: str, name: str) -> bool:
        own, is_new = self._uses[namespace], name not in self.by_name
        if is_new and (len(self.by_name) >= _MOST_SELECTIONS or self._read[namespace] >= _MOST_READ):
            return False
        return name in own or len(own) < _MOST_OF_NAMESPACE


class DeviceInventory:
    """Inventory of devices, fed by four watches; the ledger gets the amounts of each node."""

    def __init__(self, intake: Intake, lock: AbstractContextManager[Any] | None = None) -> None:
        """Begin without devices. `lock`: for events of several threads; the ledger gets results in order."""
        self._intake = intake
        self._lock = lock or nullcontext()
        self._slices: dict[str, ResourceSlice] = {}  # by name
        self._of_pool: defaultdict[Pool, set[str]] = defaultdict(set)  # names of slices
        self._classes: dict[str, DeviceClass] = {}
        self._selections = Selections()
        self._expressions = ""  # selectors of all classes, in one text
        self._admitting: dict[Facts, frozenset[str]] = {}  # classes by what their selectors may depend on
        self._offers_of: dict[str, list[_Offer]] = {}  # by slice
        self._offers: dict[Pool, dict[str, list[_Offer]]] = {}  # by node
        self._counters: dict[Pool, Counters] = {}
        self._pools_on: defaultdict[str, set[Pool]] = defaultdict(set)  # by node
        # Largest capacities of devices that logical resources stand for, by pool.
        self._capacities: dict[Pool, Counter[Measure]] = {}
        self._largest = Counter[Measure]()
        self._claimed: dict[str, dict[DeviceId, Names]] = {}  # by claim: classes of its devices
        self._held_as: dict[DeviceId, Names] = {}  # those under which a pod has an allocated device
        self._equal: dict[Hashable, Any] = {}  # parts of devices: equal ones are one object

    def add(self, found: Wire) -> None:
        """Add an object of any of the kinds."""
        match found:
            case DeviceClass():
                self.set_class(found)
            case ResourceSlice():
                self.set_slice(found)
            case ResourceClaimTemplate():
                self.set_template(found)
            case ResourceClaim():
                self.set_claim(found)

    def set_slice(self, found: ResourceSlice) -> None:
        """Record a ResourceSlice, which may have moved to another pool."""
        with self._lock:
            devices = [self._compact(device) for device in found.spec.devices or ()]
            found = replace(found, spec=replace(found.spec, devices=devices))
            before = self._slices.get(found.metadata.name)
            self._slices[found.metadata.name] = found
            self._offers_of[found.metadata.name] = self._read_slice(found)
            self._of_pool[_pool_of(found)].add(found.metadata.name)
            if before is not None and _pool_of(before) != _pool_of(found):
                self._of_pool[_pool_of(before)].discard(found.metadata.name)
                self._publish(self._read_pool(_pool_of(before)))
            self._publish(self._read_pool(_pool_of(found)))

    def drop_slice(self, name: str) -> None:
        with self._lock:
            if (before := self._slices.pop(name, None)) is not None:
                del self._offers_of[name]
                self._of_pool[_pool_of(before)].discard(name)
                self._publish(self._read_pool(_pool_of(before)))

    def set_class(self, found: DeviceClass) -> None:
        with self._lock:
            self._classes[found.metadata.name] = found
            self._read_class(found.metadata.name)

    def drop_class(self, name: str) -> None:
        with self._lock:
            if self._classes.pop(name, None) is not None:
                self._read_class(name)

    def set_claim(self, claim: ResourceClaim) -> None:
        """Record what a ResourceClaim has allocated and, unless a pod owns it, what it requests."""
        with self._lock:
            meta = claim.metadata
            self._set_claimed(meta.uid, dict(_allocated_by(claim)))
            if not any(owner.kind == "Pod" for owner in meta.owner_references or ()):
                key = ClaimKey(meta.namespace, meta.name, is_template=False)
                self._set_requests(key, claim.spec, self._state_of(claim))

    def _state_of(self, claim: ResourceClaim) -> ClaimState:
        """Return the state of a claim, with its devices by node if no pod uses it."""
        meta, is_allocated = claim.metadata, claim.status.allocation is not None
        idle = defaultdict[str, Counter[str]](Counter)
        for result in _results(claim) if not claim.status.reserved_for else ():
            names = classes_of_request(claim.spec, result.request)
            for node in self._nodes_of([_id_of(result)]):
                idle[node].update(filter(None, map(self._resource_of, names)))
        return ClaimState(
            meta.uid, meta.deletion_timestamp is not None, is_allocated, _nodes_of(claim), dict(idle)
        )

    def drop_claim(self, namespace: str, name: str, uid: str) -> None:
        with self._lock:
            self._set_claimed(uid, {})
            self._set_requests(ClaimKey(namespace, name, is_template=False), None)

    def set_template(self, template: ResourceClaimTemplate) -> None:
        meta = template.metadata
        with self._lock:
            self._set_requests(ClaimKey(meta.namespace, meta.name), template.spec.spec)

    def drop_template(self, namespace: str, name: str) -> None:
        with self._lock:
            self._set_requests(ClaimKey(namespace, name), None)

    # Callers of the methods below hold the lock.

    def _set_requests(self, key: ClaimKey, spec: ClaimSpec | None, state: ClaimState | None = None) -> None:
        """Record what a claim or template requests, with its selections; `spec`: None if it is gone."""
        for name in self._selections.put(key, selections_of(spec) if spec else {}):
            self._read_selection(name)
        self._intake.set_claim(key, spec, state)

    def _read_pool(self, pool: Pool) -> set[str]:
        """Replace the devices of a pool; return the nodes on which they changed."""
        slices = [self._slices[name] for name in sorted(self._of_pool.get(pool, ()))]
        if not slices:
            self._of_pool.pop(pool, None)
        newest = _newest_if_complete(slices)
        counters = _sums([each for each_slice in newest for each in each_slice.spec.shared_counters or ()])
        now = defaultdict[str, list[_Offer]](list)
        for each_slice in newest:
            for offer in self._offers_of[each_slice.metadata.name]:
                now[offer.node].append(offer)
        before, counters_before = self._offers.pop(pool, {}), self._counters.pop(pool, {})
        if counters:
            self._counters[pool] = counters
        if now:
            self._offers[pool] = dict(now)
        for node in before:
            self._pools_on[node].discard(pool)
        for node in now:
            self._pools_on[node].add(pool)
        if self._intake.logical.capacities:
            self._measure(pool)
        nodes = before.keys() | now.keys()
        return {node for node in nodes if counters_before != counters or before.get(node) != now.get(node)}

    def _read_class(self, name: str) -> None:
        """Determine the devices that each class admits, after one changed."""
        selectors = (each.spec.selectors for each in self._classes.values())
        self._expressions = "\n".join(chain.from_iterable(map(expressions_of, selectors)))
        self._admitting.clear()
        for slice_, found in self._slices.items():
            self._offers_of[slice_] = self._read_slice(found)
        for pool in list(self._of_pool):
            self._read_pool(pool)
        self._publish(set(self._pools_on))
        self._set_resource(name)

    def _read_selection(self, name: str) -> None:
        """Determine the devices that a selection admits, after it came or went."""
        selection, pools = self._selections.by_name.get(name), set[Pool]()
        for slice_, offers in self._offers_of.items():
            pool = _pool_of(self._slices[slice_])
            for at, offer in enumerate(offers):
                admits = selection is not None and selection.admits(pool[0], offer.device, offer.classes)
                if admits != (name in offer.classes):
                    offers[at] = offer._replace(classes=offer.classes ^ {name})
                    pools.add(pool)
        self._publish(set[str]().union(*map(self._read_pool, pools)))
        self._set_resource(name)

    def _read_slice(self, found: ResourceSlice) -> list[_Offer]:
        """Return the devices that a slice offers, with their node and classes."""
        driver, node = found.spec.driver, found.spec.node_name
        return [
            _Offer(
                _ANY_NODE if device.allow_multiple_allocations else node,
                device,
                self._classes_of(driver, device),
                _sums(device.consumes_counters or ()),
            )
            for device in found.spec.devices or ()
        ]

    def _classes_of(self, driver: str, device: Device) -> frozenset[str]:
        """Return the classes and selections that admit a device."""
        facts = facts_of(self._expressions, driver, device)
        if (classes := self._admitting.get(facts)) is None:
            classes = frozenset(
                name
                for name, each in self._classes.items()
                if all(selects(text, driver, device) for text in expressions_of(each.spec.selectors))
            )
            if len(self._admitting) >= _MOST_PARTS:
                self._admitting.clear()
            self._admitting[facts] = classes
        selected = list[str]()
        for name, selection in self._selections.by_name.items():
            was_counted = selection.is_counted
            if selection.admits(driver, device, classes):
                selected.append(name)
            if was_counted and not selection.is_counted:
                self._set_resource(name)
        return classes.union(selected) if selected else classes

    def _shared(self, key: Hashable, part: T) -> T:
        """Return a part of a device, or an equal one that is known: most devices of a cluster are alike."""
        if len(self._equal) > _MOST_PARTS:
            self._equal.clear()
        known: T = self._equal.setdefault(key, part)
        return known

    def _compact(self, device: Device) -> Device:
        """Return the device with attributes and capacities that it shares with equal devices."""
        attributes = {name: self._shared(each, each) for name, each in (device.attributes or {}).items()}
        capacity = device.capacity or {}
        parts = self._shared((*capacity.items(),), capacity)
        return replace(device, attributes=attributes, capacity=parts)

    def _set_claimed(self, claim: str, devices: dict[DeviceId, Names]) -> None:
        """Record the devices that are allocated to a claim, and publish the nodes that this affects."""
        before = self._claimed.pop(claim, {})
        if before == devices:
            if devices:
                self._claimed[claim] = devices
            return
        for identity in before:
            self._held_as.pop(identity, None)
        self._held_as.update(devices)
        if devices:
            self._claimed[claim] = devices
        self._publish(self._nodes_of(devices))
        self._publish(self._nodes_of(before), are_freed=True)

    def _nodes_of(self, devices: Iterable[DeviceId]) -> set[str]:
        """Return the nodes that offer any of some devices."""
        names = defaultdict[Pool, set[str]](set)
        for driver, pool, device in devices:
            names[driver, pool].add(device)
        return {
            node
            for pool, wanted in names.items()
            for node, offers in self._offers.get(pool, {}).items()
            if any(offer.device.name in wanted for offer in offers)
        }

    def _publish(self, nodes: set[str], are_freed: bool = False) -> None:
        """Give the ledger the amounts of some nodes. `are_freed`: claims gave devices back."""
        pools = {pool for node in nodes for pool in self._pools_on[node]}
        counters = {pool: self._counters_left(pool) for pool in pools}
        for node in nodes - {_ANY_NODE}:
            kinds = Counter[tuple[frozenset[str], Names | None]]()
            for pool in self._pools_on[node]:
                offers = self._offers[pool][node]
                kinds.update([(offer.classes, self._held(pool, offer, counters[pool])) for offer in offers])
            offered, available = Counter[str](), Counter[str]()
            for (classes, held), number in kinds.items():
                resources = {self._resource_of(name) for name in classes}
                offered.update(dict.fromkeys(resources, number))
                available_as = resources if held is None else resources & set(map(self._resource_of, held))
                available.update(dict.fromkeys(available_as, number))
            self._intake.set_devices(node, offered, offered - available, are_freed)
            if not self._pools_on[node]:
                del self._pools_on[node]
        if _ANY_NODE in nodes:
            for name in self._classes:
                self._set_resource(name)

    def _counters_left(self, pool: Pool) -> Counters:
        """Return what allocated partitions leave of the amounts that they share with others."""
        counters = Counter(self._counters.get(pool, {}))
        for offer in chain.from_iterable(self._offers[pool].values()) if counters else ():
            if DeviceId(*pool, offer.device.name) in self._held_as:
                counters.subtract(offer.consumes)
        return counters

    def _held(self, pool: Pool, offer: _Offer, counters: Counters) -> Names | None:
        """Return the classes under which a pod has a device; empty: no pod can get it; None: all can."""
        held = self._held_as.get(DeviceId(*pool, offer.device.name)) if self._held_as else None
        if held is None and any(n > counters.get(key, 0) for key, n in offer.consumes.items()):
            return ()
        return held

    def _set_resource(self, name: str) -> None:
        """Give the ledger the resource of a class and those of its selections, or that of a selection."""
        device_class = self._class_of(name)
        of_pools = (self._offers[pool][_ANY_NODE] for pool in self._pools_on.get(_ANY_NODE, ()))
        is_anywhere = any(device_class in offer.classes for offers in of_pools for offer in offers)
        for each in (*self._selections.of_class(name), name):
            selection = self._selections.by_name.get(each)
            is_known = each in self._classes or selection is not None
            is_left_out = is_anywhere or (selection is not None and not selection.is_counted)
            resource = "" if is_left_out else self._resource_of(each)
            self._intake.set_device_class(each, resource if is_known else None, self._stands_for(each))

    def _measure(self, pool: Pool) -> None:
        """Determine the largest capacities of the devices of a pool that logical resources stand for."""
        before, now = self._capacities.pop(pool, Counter()), Counter[Measure]()
        capacities = self._intake.logical.capacities
        for offer in chain.from_iterable(self._offers.get(pool, {}).values()):
            for name in offer.classes:
                for resource, capacity in capacities.get(self._class_of(name), {}).items():
                    if (found := (offer.device.capacity or {}).get(capacity)) is not None:
                        now[name, resource] = max(now[name, resource], rounded_down(found.value))
        if now:
            self._capacities[pool] = now
        for each in before.keys() | now.keys():
            known = self._largest[each]
            if now[each] > known or before[each] == known != now[each]:
                self._largest[each] = max((pool[each] for pool in self._capacities.values()), default=0)
                self._set_resource(each[0])
        self._largest = +self._largest

    def _class_of(self, name: str) -> str:
        selection = self._selections.by_name.get(name)
        return selection.device_class if selection else name

    def _stands_for(self, name: str) -> Resources:
        """Return the logical amounts of a device of a class; of a selection, the difference to its class."""
        device_class = self._class_of(name)
        resources = self._intake.logical.capacities.get(device_class, ())
        own = {resource: self._largest[name, resource] for resource in resources}
        if name == device_class:
            return own
        return {resource: amount - self._largest[device_class, resource] for resource, amount in own.items()}

    def _resource_of(self, name: str) -> str:
        if (selection := self._selections.by_name.get(name)) is not None:
            return self._resource_of(selection.device_class) + name.removeprefix(selection.device_class)
        found = self._classes.get(name)
        return resource_of_class(name, found.spec.extended_resource_name if found else "") if name else ""


def _sums(sets: Iterable[CounterSet]) -> Counters:
    """Return amounts by counter set and counter, in thousandths."""
    return {
        (each.name or each.counter_set, name): rounded_down(counter.value, 1000)
        for each in sets
        for name, counter in (each.counters or {}).items()
    }


def _pool_of(found: ResourceSlice) -> Pool:
    return found.spec.driver, found.spec.pool.name


def _newest_if_complete(slices: list[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of a pool's newest generation; none while some of them are missing."""
    newest = max((each.spec.pool.generation for each in slices), default=0)
    found = [each for each in slices if each.spec.pool.generation == newest]
    return found if found and len(found) == found[0].spec.pool.resource_slice_count else []


def _nodes_of(claim: ResourceClaim) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms of the nodes that a claim in use is bound to; the scheduler frees an unused one."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None or not claim.status.reserved_for:
        return ()
    return tuple(allocation.node_selector.node_selector_terms)


def _allocated_by(claim: ResourceClaim) -> Iterator[tuple[DeviceId, Names]]:
    """Yield the devices of a claim, with the class and selection of a pod's request; none without a pod."""
    is_pods = any(user.resource in _USERS for user in claim.status.reserved_for or ())
    for result in _results(claim):
        yield _id_of(result), classes_of_request(claim.spec, result.request) if is_pods else ()


def _results(claim: ResourceClaim) -> Iterator[AllocatedDevice]:
    """Yield the devices that are allocated to a claim alone."""
    allocation = claim.status.allocation
    results = (allocation.devices.results or ()) if allocation is not None else ()
    return (result for result in results if not result.admin_access)


def _id_of(result: AllocatedDevice) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
