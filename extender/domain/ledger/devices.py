"""Inventory of devices by node: the number of devices that pods can still get there for each DeviceClass.

A device counts once its pool is complete, in the pool's newest generation, for each class whose selectors
admit the device. An allocated device counts only for the class under which a pod has requested it, so that
two classes over the same devices do not count it twice. Devices of claims that no pod uses count for no
class. A partition counts while the allocated partitions leave capacity for it.

A selection is the set of devices that the selectors of a request admit. Selections count like classes.
Tenants write selectors, so only a few selections of a namespace count, and a selection that takes too many
steps to evaluate does not count. The scheduler alone decides on requests with selections that do not count.
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

Pool = tuple[str, str]  # driver and name of a pool
Counters = Mapping[tuple[str, str], int]  # amounts by counter set and counter
_ANY_NODE = ""
_COUNTED_USERS = ("pods", "podgroups")  # users that count; a PodGroup stands for its members
_MAX_CACHE_SIZE = 65_536
_MAX_SELECTIONS, _MAX_PER_NAMESPACE = 32, 8
_MAX_COST = 131_072  # limit of a selection's cost, in characters and steps over all devices
_MAX_NEW_NAMES = 100  # new selections per namespace until a restart: each is compared with all devices
_MAX_NAMESPACES = 10_000  # limit of namespaces whose new selections are counted
ClassNames = tuple[str, ...]  # a class and a selection, or a class alone; empty: not counted
Measure = tuple[str, str]  # class or selection, and logical resource
T = TypeVar("T")


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str


class _Offer(NamedTuple):
    """Device that a slice offers."""

    node: str  # empty if the device has no single node, or no limit of users
    device: Device
    classes: frozenset[str]  # classes and selections that admit the device
    consumes: Counters  # amounts that it takes of counters shared by partitions


class SelectedDevices:
    """Devices that a selection admits, as long as its evaluation is not too costly."""

    def __init__(self, selection: Selection) -> None:
        self.device_class, self._expressions = selection
        self._text = "\n".join(self._expressions)
        self._cost = cost_of(self._text)
        self._answers: dict[Facts, bool] = {}

    @property
    def is_counted(self) -> bool:
        """Return whether the selection counts, because its evaluation is not too costly."""
        return max(len(self._answers), 1) * self._cost <= _MAX_COST

    def admits(self, driver: str, device: Device, classes: frozenset[str]) -> bool:
        """Return whether the selection admits a device of these classes. Equal devices are evaluated once."""
        if self.device_class not in classes or not self.is_counted:
            return False
        facts = facts_of(self._text, driver, device)
        if facts not in self._answers:
            self._answers[facts] = all(selects(each, driver, device) for each in self._expressions)
        return self._answers[facts]


class Selections:
    """Selections of claims and templates that are counted.

    The first selections are counted, up to a limit per namespace and in total.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, SelectedDevices] = {}
        self._names_by_claim: dict[ClaimKey, list[str]] = {}
        self._use_counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by namespace and selection
        self._new_counts = Counter[str]()  # number of new selections by namespace

    def names_of_class(self, name: str) -> list[str]:
        """Return the names of the counted selections of a class."""
        return [key for key, selection in self.by_name.items() if selection.device_class == name]

    def put(self, key: ClaimKey, selections: Mapping[str, Selection]) -> set[str]:
        """Record the selections of a claim. Return the names of selections that begin or cease to count."""
        old_names, namespace = set(self.by_name), key.namespace
        self._use_counts[namespace] -= Counter(self._names_by_claim.pop(key, ()))
        for name, selection in selections.items():
            if self._has_capacity(namespace, name):
                self._use_counts[namespace][name] += 1
                self._names_by_claim.setdefault(key, []).append(name)
                if name not in self.by_name:
                    if len(self._new_counts) >= _MAX_NAMESPACES:
                        self._new_counts.clear()
                    self._new_counts[namespace] += 1
                    self.by_name[name] = SelectedDevices(selection)
        if not self._use_counts[namespace]:
            del self._use_counts[namespace]
        for name in self.by_name.keys() - set().union(*self._use_counts.values()):
            del self.by_name[name]
        return old_names ^ set(self.by_name)

    def _has_capacity(self, namespace: str, name: str) -> bool:
        """Return whether a selection may count for a namespace within the limits."""
        used_names, is_new = self._use_counts[namespace], name not in self.by_name
        if is_new and (len(self.by_name) >= _MAX_SELECTIONS or self._new_counts[namespace] >= _MAX_NEW_NAMES):
            return False
        return name in used_names or len(used_names) < _MAX_PER_NAMESPACE


class DeviceInventory:
    """Inventory of devices, fed by four watches. The ledger gets the amounts of each node."""

    def __init__(self, intake: Intake, lock: AbstractContextManager[Any] | None = None) -> None:
        """Begin without devices.

        Args:
            intake: Receives the results, in order.
            lock: Guards the inventory against events from several threads.
        """
        self._intake = intake
        self._lock = lock or nullcontext()
        self._slices: dict[str, ResourceSlice] = {}  # slices by name
        self._slices_by_pool: defaultdict[Pool, set[str]] = defaultdict(set)  # names of slices by pool
        self._classes: dict[str, DeviceClass] = {}
        self._selections = Selections()
        self._expressions = ""  # selectors of all classes, in one text
        self._classes_by_facts: dict[Facts, frozenset[str]] = {}  # admitting classes by facts of a device
        self._offers_by_slice: dict[str, list[_Offer]] = {}  # offered devices by slice
        self._offers: dict[Pool, dict[str, list[_Offer]]] = {}  # offered devices by pool and node
        self._counters: dict[Pool, Counters] = {}
        self._pools_on: defaultdict[str, set[Pool]] = defaultdict(set)  # pools by node
        # Largest capacities of devices that logical resources stand for, by pool.
        self._capacities: dict[Pool, Counter[Measure]] = {}
        self._maxima = Counter[Measure]()
        self._devices_by_claim: dict[str, dict[DeviceId, ClassNames]] = {}  # devices with their classes
        self._used_names: dict[DeviceId, ClassNames] = {}  # classes under which a pod has an allocated device
        self._shared_parts: dict[Hashable, Any] = {}  # parts of devices, one object for equal parts

    def add(self, obj: Wire) -> None:
        """Record an object of any watched kind."""
        match obj:
            case DeviceClass():
                self.set_class(obj)
            case ResourceSlice():
                self.set_slice(obj)
            case ResourceClaimTemplate():
                self.set_template(obj)
            case ResourceClaim():
                self.set_claim(obj)

    def set_slice(self, slice_: ResourceSlice) -> None:
        """Record a ResourceSlice, which may have moved to another pool."""
        with self._lock:
            devices = [self._with_interned_parts(device) for device in slice_.spec.devices or ()]
            slice_ = replace(slice_, spec=replace(slice_.spec, devices=devices))
            old_slice = self._slices.get(slice_.metadata.name)
            self._slices[slice_.metadata.name] = slice_
            self._offers_by_slice[slice_.metadata.name] = self._read_slice(slice_)
            self._slices_by_pool[_pool_of(slice_)].add(slice_.metadata.name)
            if old_slice is not None and _pool_of(old_slice) != _pool_of(slice_):
                self._slices_by_pool[_pool_of(old_slice)].discard(slice_.metadata.name)
                self._publish(self._read_pool(_pool_of(old_slice)))
            self._publish(self._read_pool(_pool_of(slice_)))

    def drop_slice(self, name: str) -> None:
        with self._lock:
            if (old_slice := self._slices.pop(name, None)) is not None:
                del self._offers_by_slice[name]
                self._slices_by_pool[_pool_of(old_slice)].discard(name)
                self._publish(self._read_pool(_pool_of(old_slice)))

    def set_class(self, device_class: DeviceClass) -> None:
        with self._lock:
            self._classes[device_class.metadata.name] = device_class
            self._read_class(device_class.metadata.name)

    def drop_class(self, name: str) -> None:
        with self._lock:
            if self._classes.pop(name, None) is not None:
                self._read_class(name)

    def set_claim(self, claim: ResourceClaim) -> None:
        """Record the allocation of a ResourceClaim and, unless a pod owns the claim, its requests."""
        with self._lock:
            meta = claim.metadata
            self._set_claim_devices(meta.uid, dict(_allocated_devices(claim)))
            if not any(owner.kind == "Pod" for owner in meta.owner_references or ()):
                key = ClaimKey(meta.namespace, meta.name, is_template=False)
                self._set_requests(key, claim.spec, self._state_of(claim))

    def _state_of(self, claim: ResourceClaim) -> ClaimState:
        """Return the state of a claim. If no pod uses the claim, the state has its devices by node."""
        meta, is_allocated = claim.metadata, claim.status.allocation is not None
        idle_devices = defaultdict[str, Counter[str]](Counter)
        for result in _exclusive_results(claim) if not claim.status.reserved_for else ():
            names = classes_of_request(claim.spec, result.request)
            for node in self._nodes_of([_id_of(result)]):
                idle_devices[node].update(filter(None, map(self._resource_of, names)))
        return ClaimState(
            meta.uid, meta.deletion_timestamp is not None, is_allocated, _nodes_of(claim), dict(idle_devices)
        )

    def drop_claim(self, namespace: str, name: str, uid: str) -> None:
        with self._lock:
            self._set_claim_devices(uid, {})
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
        """Record the requests and selections of a claim or template; no `spec` means that it is gone."""
        for name in self._selections.put(key, selections_of(spec) if spec else {}):
            self._read_selection(name)
        self._intake.set_claim(key, spec, state)

    def _read_pool(self, pool: Pool) -> set[str]:
        """Compute the devices of a pool again. Return the nodes on which devices changed."""
        slices = [self._slices[name] for name in sorted(self._slices_by_pool.get(pool, ()))]
        if not slices:
            self._slices_by_pool.pop(pool, None)
        newest_slices = _newest_if_complete(slices)
        counters = _sums_of([each for slice_ in newest_slices for each in slice_.spec.shared_counters or ()])
        new_offers = defaultdict[str, list[_Offer]](list)
        for slice_ in newest_slices:
            for offer in self._offers_by_slice[slice_.metadata.name]:
                new_offers[offer.node].append(offer)
        old_offers, old_counters = self._offers.pop(pool, {}), self._counters.pop(pool, {})
        if counters:
            self._counters[pool] = counters
        if new_offers:
            self._offers[pool] = dict(new_offers)
        for node in old_offers:
            self._pools_on[node].discard(pool)
        for node in new_offers:
            self._pools_on[node].add(pool)
        if self._intake.logical_resources.capacities:
            self._update_capacities(pool)
        nodes = old_offers.keys() | new_offers.keys()
        is_changed = old_counters != counters
        return {node for node in nodes if is_changed or old_offers.get(node) != new_offers.get(node)}

    def _read_class(self, name: str) -> None:
        """Compute again which devices each class admits, after a class has changed."""
        selectors = (each.spec.selectors for each in self._classes.values())
        self._expressions = "\n".join(chain.from_iterable(map(expressions_of, selectors)))
        self._classes_by_facts.clear()
        for slice_name, slice_ in self._slices.items():
            self._offers_by_slice[slice_name] = self._read_slice(slice_)
        for pool in list(self._slices_by_pool):
            self._read_pool(pool)
        self._publish(set(self._pools_on))
        self._set_resource(name)

    def _read_selection(self, name: str) -> None:
        """Compute again which devices a selection admits, after the selection began or ceased to count."""
        selection, pools = self._selections.by_name.get(name), set[Pool]()
        for slice_name, offers in self._offers_by_slice.items():
            pool = _pool_of(self._slices[slice_name])
            for index, offer in enumerate(offers):
                is_admitted = selection is not None and selection.admits(pool[0], offer.device, offer.classes)
                if is_admitted != (name in offer.classes):
                    offers[index] = offer._replace(classes=offer.classes ^ {name})
                    pools.add(pool)
        self._publish(set[str]().union(*map(self._read_pool, pools)))
        self._set_resource(name)

    def _read_slice(self, slice_: ResourceSlice) -> list[_Offer]:
        """Return the devices that a slice offers, with their node and classes."""
        driver, node = slice_.spec.driver, slice_.spec.node_name
        return [
            _Offer(
                _ANY_NODE if device.allow_multiple_allocations else node,
                device,
                self._classes_of(driver, device),
                _sums_of(device.consumes_counters or ()),
            )
            for device in slice_.spec.devices or ()
        ]

    def _classes_of(self, driver: str, device: Device) -> frozenset[str]:
        """Return the classes and selections that admit a device."""
        facts = facts_of(self._expressions, driver, device)
        if (classes := self._classes_by_facts.get(facts)) is None:
            classes = frozenset(
                name
                for name, each in self._classes.items()
                if all(selects(text, driver, device) for text in expressions_of(each.spec.selectors))
            )
            if len(self._classes_by_facts) >= _MAX_CACHE_SIZE:
                self._classes_by_facts.clear()
            self._classes_by_facts[facts] = classes
        selections = list[str]()
        for name, selection in self._selections.by_name.items():
            was_counted = selection.is_counted
            if selection.admits(driver, device, classes):
                selections.append(name)
            if was_counted and not selection.is_counted:
                self._set_resource(name)
        return classes.union(selections) if selections else classes

    def _interned(self, key: Hashable, part: T) -> T:
        """Return a part of a device, or an equal part that was stored before.

        Most devices of a cluster are alike, so that few different parts are stored.
        """
        if len(self._shared_parts) > _MAX_CACHE_SIZE:
            self._shared_parts.clear()
        shared_part: T = self._shared_parts.setdefault(key, part)
        return shared_part

    def _with_interned_parts(self, device: Device) -> Device:
        """Return the device with attributes and capacities that it shares with equal devices."""
        attributes = {name: self._interned(each, each) for name, each in (device.attributes or {}).items()}
        capacity = device.capacity or {}
        parts = self._interned((*capacity.items(),), capacity)
        return replace(device, attributes=attributes, capacity=parts)

    def _set_claim_devices(self, claim: str, devices: dict[DeviceId, ClassNames]) -> None:
        """Record the devices that are allocated to a claim, and publish the affected nodes."""
        old_devices = self._devices_by_claim.pop(claim, {})
        if old_devices == devices:
            if devices:
                self._devices_by_claim[claim] = devices
            return
        for identity in old_devices:
            self._used_names.pop(identity, None)
        self._used_names.update(devices)
        if devices:
            self._devices_by_claim[claim] = devices
        self._publish(self._nodes_of(devices))
        self._publish(self._nodes_of(old_devices), are_freed=True)

    def _nodes_of(self, devices: Iterable[DeviceId]) -> set[str]:
        """Return the nodes that offer any of these devices."""
        names = defaultdict[Pool, set[str]](set)
        for driver, pool, device in devices:
            names[driver, pool].add(device)
        return {
            node
            for pool, device_names in names.items()
            for node, offers in self._offers.get(pool, {}).items()
            if any(offer.device.name in device_names for offer in offers)
        }

    def _publish(self, nodes: set[str], are_freed: bool = False) -> None:
        """Give the ledger the amounts of these nodes.

        Args:
            nodes: The names of the nodes.
            are_freed: Whether claims gave devices back.
        """
        pools = {pool for node in nodes for pool in self._pools_on[node]}
        counters = {pool: self._unused_counters(pool) for pool in pools}
        for node in nodes - {_ANY_NODE}:
            kind_counts = Counter[tuple[frozenset[str], ClassNames | None]]()
            for pool in self._pools_on[node]:
                offers = self._offers[pool][node]
                kind_counts.update(
                    [(each.classes, self._available_classes(pool, each, counters[pool])) for each in offers]
                )
            offered, available_counts = Counter[str](), Counter[str]()
            for (classes, held), number in kind_counts.items():
                resources = {self._resource_of(name) for name in classes}
                offered.update(dict.fromkeys(resources, number))
                available_as = resources if held is None else resources & set(map(self._resource_of, held))
                available_counts.update(dict.fromkeys(available_as, number))
            self._intake.set_devices(node, offered, offered - available_counts, are_freed)
            if not self._pools_on[node]:
                del self._pools_on[node]
        if _ANY_NODE in nodes:
            for name in self._classes:
                self._set_resource(name)

    def _unused_counters(self, pool: Pool) -> Counters:
        """Return the amounts of a pool's shared counters that no allocated partition consumes."""
        counters = Counter(self._counters.get(pool, {}))
        for offer in chain.from_iterable(self._offers[pool].values()) if counters else ():
            if DeviceId(*pool, offer.device.name) in self._used_names:
                counters.subtract(offer.consumes)
        return counters

    def _available_classes(self, pool: Pool, offer: _Offer, counters: Counters) -> ClassNames | None:
        """Return the classes for which a device counts as available.

        None stands for all classes of the device. If the device is allocated, the result has the class and
        the selection under which a pod has requested the device. If the shared counters do not suffice for
        the device, the result is empty: no pod can get the device.
        """
        names = self._used_names.get(DeviceId(*pool, offer.device.name)) if self._used_names else None
        if names is None and any(n > counters.get(key, 0) for key, n in offer.consumes.items()):
            return ()
        return names

    def _set_resource(self, name: str) -> None:
        """Give the ledger the resource of a selection, or the resources of a class and its selections."""
        device_class = self._class_of(name)
        offers_anywhere = (self._offers[pool][_ANY_NODE] for pool in self._pools_on.get(_ANY_NODE, ()))
        is_for_any_node = any(device_class in offer.classes for offers in offers_anywhere for offer in offers)
        for each in (*self._selections.names_of_class(name), name):
            selection = self._selections.by_name.get(each)
            is_known = each in self._classes or selection is not None
            is_uncounted = is_for_any_node or (selection is not None and not selection.is_counted)
            resource = "" if is_uncounted else self._resource_of(each)
            self._intake.set_device_class(each, resource if is_known else None, self._logical_amounts(each))

    def _update_capacities(self, pool: Pool) -> None:
        """Update the largest capacities of a pool's devices that logical resources stand for."""
        old_capacities, largest = self._capacities.pop(pool, Counter()), Counter[Measure]()
        capacities = self._intake.logical_resources.capacities
        for offer in chain.from_iterable(self._offers.get(pool, {}).values()):
            for name in offer.classes:
                for resource, capacity in capacities.get(self._class_of(name), {}).items():
                    if (amount := (offer.device.capacity or {}).get(capacity)) is not None:
                        largest[name, resource] = max(largest[name, resource], rounded_down(amount.value))
        if largest:
            self._capacities[pool] = largest
        for each in old_capacities.keys() | largest.keys():
            old_maximum = self._maxima[each]
            if largest[each] > old_maximum or old_capacities[each] == old_maximum != largest[each]:
                self._maxima[each] = max((counts[each] for counts in self._capacities.values()), default=0)
                self._set_resource(each[0])
        self._maxima = +self._maxima

    def _class_of(self, name: str) -> str:
        """Return the class of a selection; a class itself is returned unchanged."""
        selection = self._selections.by_name.get(name)
        return selection.device_class if selection else name

    def _logical_amounts(self, name: str) -> Resources:
        """Return the logical amounts of a device of a class.

        For a selection, return the difference to its class.
        """
        device_class = self._class_of(name)
        resources = self._intake.logical_resources.capacities.get(device_class, ())
        maxima = {resource: self._maxima[name, resource] for resource in resources}
        if name == device_class:
            return maxima
        return {name: amount - self._maxima[device_class, name] for name, amount in maxima.items()}

    def _resource_of(self, name: str) -> str:
        """Return the resource of a class or a selection."""
        if (selection := self._selections.by_name.get(name)) is not None:
            return self._resource_of(selection.device_class) + name.removeprefix(selection.device_class)
        class_ = self._classes.get(name)
        return resource_of_class(name, class_.spec.extended_resource_name if class_ else "") if name else ""


def _sums_of(sets: Iterable[CounterSet]) -> Counters:
    """Return amounts by counter set and counter, in thousandths."""
    return {
        (each.name or each.counter_set, name): rounded_down(counter.value, 1000)
        for each in sets
        for name, counter in (each.counters or {}).items()
    }


def _pool_of(slice_: ResourceSlice) -> Pool:
    return slice_.spec.driver, slice_.spec.pool.name


def _newest_if_complete(slices: list[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of a pool's newest generation; empty while any of these slices is missing."""
    newest_generation = max((each.spec.pool.generation for each in slices), default=0)
    members = [each for each in slices if each.spec.pool.generation == newest_generation]
    return members if members and len(members) == members[0].spec.pool.resource_slice_count else []


def _nodes_of(claim: ResourceClaim) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms of the nodes to which a used claim is bound. The scheduler frees unused claims."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None or not claim.status.reserved_for:
        return ()
    return tuple(allocation.node_selector.node_selector_terms)


def _allocated_devices(claim: ResourceClaim) -> Iterator[tuple[DeviceId, ClassNames]]:
    """Yield the devices of a claim, each with the class and selection under which it was requested.

    If no pod uses the claim, these names are left out.
    """
    has_pod = any(user.resource in _COUNTED_USERS for user in claim.status.reserved_for or ())
    for result in _exclusive_results(claim):
        yield _id_of(result), classes_of_request(claim.spec, result.request) if has_pod else ()


def _exclusive_results(claim: ResourceClaim) -> Iterator[AllocatedDevice]:
    """Yield the devices that are allocated to a claim exclusively."""
    allocation = claim.status.allocation
    results = (allocation.devices.results or ()) if allocation is not None else ()
    return (result for result in results if not result.admin_access)


def _id_of(result: AllocatedDevice) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
