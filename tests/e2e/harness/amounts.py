"""Requests of pods and capacity of nodes, computed without Muster's code.

All amounts are integers in thousandths of the resource's unit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

Json = dict[str, Any]
Amounts = Counter[str]
SUFFIXES = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
MILLI = 1000
MARKER_PREFIX = "kube-muster.io/"


def quantity(text: str | int | float) -> int:
    """Return a Kubernetes quantity in thousandths, rounded up."""
    string = str(text)
    number = string.rstrip("numkKMGTPEi")
    scale = SUFFIXES[string[len(number) :]] if number != string else Decimal(1)
    return int((Decimal(number) * scale * MILLI).to_integral_value(rounding="ROUND_CEILING"))


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Return quantities as amounts, without marker resources.

    The default-scheduler variant adds marker resources to pods, but no node has them.
    """
    items = (quantities or {}).items()
    return Counter({name: quantity(value) for name, value in items if not name.startswith(MARKER_PREFIX)})


def requests(pod: Json) -> Amounts:
    """Return the requests of a pod, with its overhead and with one pod of the node's pod limit.

    For each resource, the request of the containers counts, which is the larger of two amounts:

    - the sum of all containers and sidecars
    - the peak during init. An init container runs together with the sidecars that started before it.

    Requests at pod level replace the requests of the containers.
    """
    spec = pod["spec"]
    container_total = _sum(map(_container_requests, spec.get("containers", [])))
    sidecar_total, init_peak = Amounts(), Amounts()
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            sidecar_total += _container_requests(container)
            init_peak |= sidecar_total
        else:
            init_peak |= sidecar_total + _container_requests(container)
    total = (container_total + sidecar_total) | init_peak
    total.update(_pod_level_surplus(spec, total))
    return total + amounts(spec.get("overhead")) + Amounts({"pods": MILLI})


def _container_requests(container: Json) -> Amounts:
    return amounts(container.get("resources", {}).get("requests"))


def _pod_level_surplus(spec: Json, total: Amounts) -> dict[str, int]:
    """Return, for each resource with a pod-level request, the request minus the total of the containers."""
    pod_requests = amounts(spec.get("resources", {}).get("requests"))
    return {name: value - total[name] for name, value in pod_requests.items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total = Amounts()
    for part in parts:
        total += part
    return total
