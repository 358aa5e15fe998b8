"""What a pod requests of a node, counted as the scheduler counts it.

Rule: kube-scheduler `resourcehelper.PodRequests`: the sum of containers and sidecars, or the peak of the
initialisation if that is more; pod-level resources replace the sum for the resources that they name; the
overhead is added; and every pod takes one of the node's `pods`.
"""

from extender.api.objects.pods import Container, PodSpec
from extender.domain.model.resources import CPU, MEMORY, PODS, add, asked, capped, largest


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Each amount is from 1 to MOST. Raises BadQuantity."""
    sums = _containers_and_sidecars(spec)
    sums = largest(sums, _initialisation(spec.init_containers or []))
    sums |= _pod_level(spec)
    add(sums, asked(spec.overhead))
    sums[PODS] = 1
    return capped(sums)


def _containers_and_sidecars(spec: PodSpec) -> dict[str, int]:
    sums: dict[str, int] = {}
    for container in spec.containers + [c for c in spec.init_containers or [] if c.is_sidecar]:
        add(sums, asked(container.resources.requests))
    return sums


def _initialisation(containers: list[Container]) -> dict[str, int]:
    """The peak while init containers run in turn, together with the sidecars started so far."""
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in containers:
        running = dict(sidecars)
        add(running, asked(container.resources.requests))
        peak = largest(peak, running)
        if container.is_sidecar:
            sidecars = running
    return peak


def _pod_level(spec: PodSpec) -> dict[str, int]:
    given = asked(spec.resources.requests) if spec.resources else {}
    return {name: n for name, n in given.items() if name in (CPU, MEMORY) or name.startswith("hugepages-")}
