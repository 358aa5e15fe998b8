"""Amounts of resources, and the requests of pods, counted as kube-scheduler counts them."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from extender.api.keys import MARKERS
from extender.api.objects.base import condition
from extender.api.objects.pods import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from extender.api.units import Quantity, rounded_down, rounded_up

# Amounts by resource: `cpu` in millicores, others in whole units (bytes, devices). A pod requests 1 `pods`.

Resources = Mapping[str, int]
N = TypeVar("N", int, float)

CPU, MEMORY, PODS = "cpu", "memory", "pods"
# Cap of an amount of one pod or node (256 TiB of memory), so that sums over all nodes fit into 64 bits.
MAX_AMOUNT = 2**48
_FLAVOR_SEPARATOR = " of "  # for RESOURCE of FLAVOR; resource names have no space
_SELECTOR_SEPARATOR = " where "  # for RESOURCE where SELECTOR: the selected devices of a resource
_NATIVE_NAMES = frozenset({CPU, MEMORY, PODS, "ephemeral-storage"})
_MILLICORES = 1000


def requested_amounts(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return the positive amounts of a request, rounded up.

    Raises:
        BadQuantity: An amount cannot be read.
    """
    named = (quantities or {}).items()
    amounts = {name: rounded_up(quantity, _scale(name)) for name, quantity in named if is_counted(name)}
    return {name: amount for name, amount in amounts.items() if amount > 0}


def offered(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return the amounts of a capacity, rounded down.

    Raises:
        BadQuantity: An amount cannot be read.
    """
    return {name: rounded_down(q, _scale(name)) for name, q in (quantities or {}).items() if is_counted(name)}


def offered_by_node(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return the amounts that a node offers, rounded down.

    An amount is never negative, and always less than MAX_AMOUNT.

    The requests of a pod are capped at MAX_AMOUNT, so that a pod with a capped request fits on no node.

    Raises:
        BadQuantity: An amount cannot be read.
    """
    return {name: min(max(amount, 0), MAX_AMOUNT - 1) for name, amount in offered(quantities).items()}


def is_counted(name: str) -> bool:
    """Return whether the scheduler counts a resource of this name. Marker resources do not count."""
    if name in _NATIVE_NAMES or name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in name and not name.startswith("count/") and name not in MARKERS


def in_flavor(name: str, flavor: str) -> str:
    """Return the name under which a resource counts on the nodes of a flavor only."""
    return f"{name}{_FLAVOR_SEPARATOR}{flavor}"


def resource_of(name: str) -> str:
    """Return the resource behind a name that counts on all nodes, or on the nodes of a flavor only."""
    return name.partition(_FLAVOR_SEPARATOR)[0]


def selected_devices(name: str, selector: str) -> str:
    """Return the name of the resource that consists of the devices that a selector admits."""
    return f"{name}{_SELECTOR_SEPARATOR}{selector}"


def counts_in_queues(name: str) -> bool:
    """Return whether queues count a resource. Devices that a request selects count on nodes only."""
    return _SELECTOR_SEPARATOR not in name


def of_flavor(amounts: Mapping[str, N], flavor: str) -> dict[str, N]:
    """Return the amounts that count on the nodes of a flavor only, by plain resource name."""
    suffix = in_flavor("", flavor)
    return {name.removesuffix(suffix): amount for name, amount in amounts.items() if name.endswith(suffix)}


def on_all_nodes(amounts: Mapping[str, N]) -> dict[str, N]:
    """Return the amounts that count on all nodes, and not only on the nodes of a flavor."""
    return {name: amount for name, amount in amounts.items() if _FLAVOR_SEPARATOR not in name}


def _scale(name: str) -> int:
    """Return the number of counted units in one unit of a resource."""
    return _MILLICORES if name == CPU else 1


def total(amounts: Iterable[Resources]) -> dict[str, int]:
    """Return the sum of amounts."""
    sums: dict[str, int] = {}
    for each in amounts:
        add(sums, each)
    return sums


def add(sums: dict[str, int], amounts: Resources, times: int = 1) -> None:
    """Add amounts, multiplied by `times`, to `sums` in place. A negative `times` subtracts."""
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount * times


def add_times(sums: dict[str, int], amounts: Resources, times: int) -> None:
    """Add amounts, multiplied by `times`, to `sums` in place, and remove zeros from `sums`."""
    for name, amount in amounts.items():
        if amount_now := sums.get(name, 0) + amount * times:
            sums[name] = amount_now
        else:
            sums.pop(name, None)


def larger_amounts(amounts: Resources, others: Resources) -> dict[str, int]:
    """Return the larger amount of each resource."""
    return {name: max(amounts.get(name, 0), others.get(name, 0)) for name in amounts.keys() | others.keys()}


def quantities(amounts: Mapping[str, float]) -> dict[str, str]:
    """Return amounts as quantities of the API, rounded down.

    Amounts that queues do not count are left out.
    """
    return {name: _quantity(name, int(amount)) for name, amount in amounts.items() if counts_in_queues(name)}


def in_units(amounts: Mapping[str, float]) -> dict[str, float]:
    """Return the amounts that queues count in cores, bytes and pieces, without zeros and without pods."""
    return {n: m / _scale(n) for n, m in amounts.items() if m and n != PODS and counts_in_queues(n)}


def _quantity(name: str, amount: int) -> str:
    """Return an amount as a quantity of the API."""
    return f"{amount}m" if name == CPU and amount % _MILLICORES else str(amount // _scale(name))


def show(name: str, amount: float) -> str:
    """Return an amount for users: 1500 millicores as 1.5, bytes in a unit that keeps the text short."""
    name = resource_of(name)
    if name == CPU:
        return f"{amount / _MILLICORES:g}"
    if not _is_bytes(name):
        return f"{amount:g}"
    for suffix in ("", "Ki", "Mi", "Gi"):
        if abs(amount) < 1024:
            return f"{amount:.4g}{suffix}"
        amount /= 1024
    return f"{amount:.4g}Ti"


def three_digits(name: str, amount: int) -> int:
    """Return an amount rounded down to three significant digits, and at least 0.

    Bytes are rounded to ten bits.
    """
    if amount <= 0:
        return 0
    if _is_bytes(name):
        dropped_bits = max(amount.bit_length() - 10, 0)
        return amount >> dropped_bits << dropped_bits
    step = 10 ** max(len(str(amount)) - 3, 0)
    return int(amount // step * step)


def _is_bytes(name: str) -> bool:
    return name == MEMORY or name.startswith("hugepages-") or name == "ephemeral-storage"


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return the requests of a pod. Each amount is from 1 to MAX_AMOUNT.

    The requests are counted as in kube-scheduler (`resourcehelper.PodRequests`). The amount of a resource is
    the sum over containers and sidecars, or the peak of the init containers if the peak is higher. Pod-level
    requests replace the amounts of the resources that they name. The overhead is added, and every pod
    requests one of the node's `pods`.

    Raises:
        BadQuantity: A request cannot be read.
    """
    sums: dict[str, int] = {}
    for container in spec.containers + [c for c in spec.init_containers or [] if c.is_sidecar]:
        add(sums, requested_amounts(container.resources.requests))
    # At the peak, one init container runs together with the sidecars that started before it.
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers or ():
        running_requests = dict(sidecars)
        add(running_requests, requested_amounts(container.resources.requests))
        peak = larger_amounts(peak, running_requests)
        if container.is_sidecar:
            sidecars = running_requests
    sums = larger_amounts(sums, peak)
    in_spec = requested_amounts(spec.resources.requests) if spec.resources else {}
    sums |= {name: n for name, n in in_spec.items() if name in (CPU, MEMORY) or name.startswith("hugepages-")}
    add(sums, requested_amounts(spec.overhead))
    sums[PODS] = 1
    return {name: min(amount, MAX_AMOUNT) for name, amount in sums.items()}


_SCALE = 10**9  # the finest unit of quantities


def counted_spec(pod: Pod) -> PodSpec:
    """Return a pod's spec with the requests that count now, during an in-place resize.

    kube-scheduler counts the same amounts for pods on a node (component-helpers `AggregateContainerRequests`
    and `effectivePodLevelResources`). Of the requested amounts, the allocated amounts and the amounts in
    force, the largest counts. So the node is not overcommitted while the pod grows or shrinks. The rule
    applies to each container, and to the pod if it has requests of its own. Requested amounts no longer count
    once the kubelet has called them infeasible.

    Raises:
        BadQuantity: A request cannot be read.
    """
    spec, status = pod.spec, pod.status
    all_statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    statuses = {each.name: each for each in all_statuses if each.resources is not None}
    if not statuses and status.resources is None:
        return spec
    resize_condition = condition(status.conditions, "PodResizePending")
    is_infeasible = resize_condition is not None and resize_condition.reason == "Infeasible"
    containers = [_recount(container, statuses, is_infeasible) for container in spec.containers]
    init_before = spec.init_containers or []
    counted_init = [_recount(c, statuses, is_infeasible) if c.is_sidecar else c for c in init_before]
    pod_level = _counted_requirements(spec.resources, status, is_infeasible)
    if containers == spec.containers and counted_init == init_before and pod_level is spec.resources:
        return spec
    return replace(spec, containers=containers, init_containers=counted_init or None, resources=pod_level)


def _recount(container: Container, statuses: Mapping[str, ContainerStatus], is_infeasible: bool) -> Container:
    """Return a container with the requests that count during its resize, as in kube-scheduler."""
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return container
    spec_requests = None if is_infeasible else container.resources.requests
    requests = _largest_quantities(spec_requests, status.resources.requests, status.allocated_resources)
    if requests == (container.resources.requests or {}):
        return container
    return replace(container, resources=replace(container.resources, requests=requests))


def _counted_requirements(
    requirements: ResourceRequirements | None, status: PodStatus, is_infeasible: bool
) -> ResourceRequirements | None:
    """Return the pod-level requests that count during a resize; None if the pod has no such requests."""
    if requirements is None or not requirements.requests or status.resources is None:
        return requirements
    spec_requests = None if is_infeasible else requirements.requests
    requests = _largest_quantities(spec_requests, status.resources.requests, status.allocated_resources)
    return requirements if requests == requirements.requests else replace(requirements, requests=requests)


def _largest_quantities(*alternatives: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
    """Return the largest amount of each resource.

    Of equal quantities, the first is returned, in its notation.
    """
    quantities: dict[str, Quantity] = {}
    for amounts in alternatives:
        for name, quantity in (amounts or {}).items():
            if name not in quantities or rounded_up(quantity, _SCALE) > rounded_up(quantities[name], _SCALE):
                quantities[name] = quantity
    return quantities
