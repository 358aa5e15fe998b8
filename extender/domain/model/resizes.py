"""In-place resizes: what a container counts for while its new size is not yet in force.

Rule: component-helpers `determineEffectiveRequests`, as kube-scheduler counts the pods on a node: the largest
of the amounts requested, set aside and in force, so that neither growing nor shrinking overcommits the node.
The requested amounts do not count once the kubelet has called them infeasible.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from extender.api.objects.base import Quantities
from extender.api.objects.pods import Container, ContainerStatus, Pod, PodSpec
from extender.api.quantities import Quantity, at_least

_SCALE = 10**9  # quantities are no finer than that


def counted_spec(pod: Pod) -> PodSpec:
    """The specification with the requests that count now: the same object if no resize is under way. Raises
    BadQuantity."""
    spec, status = pod.spec, pod.status
    given = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    statuses = {each.name: each for each in given if each.resources is not None}
    if not statuses:
        return spec
    infeasible = _is_infeasible(pod)
    containers = [_counted(each, statuses, infeasible) for each in spec.containers]
    before = spec.init_containers or []
    sidecars = [_counted(each, statuses, infeasible) if each.is_sidecar else each for each in before]
    if containers == spec.containers and sidecars == before:
        return spec
    return replace(spec, containers=containers, init_containers=sidecars or None)


def _is_infeasible(pod: Pod) -> bool:
    conditions = pod.status.conditions or ()
    return any(each.type == "PodResizePending" and each.reason == "Infeasible" for each in conditions)


def _counted(container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool) -> Container:
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return container
    asked = None if infeasible else container.resources.requests
    requests = _largest(asked, status.resources.requests, status.allocated_resources)
    if requests == (container.resources.requests or {}):
        return container
    return replace(container, resources=replace(container.resources, requests=requests))


def _largest(*several: Quantities | None) -> dict[str, Quantity]:
    """The largest quantity of each resource; of equal ones the first, in its own notation."""
    largest: dict[str, Quantity] = {}
    for quantities in several:
        for name, quantity in (quantities or {}).items():
            if name not in largest or at_least(quantity, _SCALE) > at_least(largest[name], _SCALE):
                largest[name] = quantity
    return largest
