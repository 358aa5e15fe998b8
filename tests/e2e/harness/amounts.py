"""Requests of a pod and capacity of a node, counted by the observer's own rules and not by Muster's."""

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
OUR_MARKS = "kube-muster.io/"


def quantity(text: str | int | float) -> int:
    """Return a Kubernetes quantity in thousandths, rounded up."""
    string = str(text)
    number = string.rstrip("numkKMGTPEi")
    scale = SUFFIXES[string[len(number) :]] if number != string else Decimal(1)
    return int((Decimal(number) * scale * MILLI).to_integral_value(rounding="ROUND_CEILING"))


def amounts(written: Mapping[str, Any] | None) -> Amounts:
    """Return amounts without the marks of the default-scheduler variant: no node has such a resource."""
    given = (written or {}).items()
    return Counter({name: quantity(value) for name, value in given if not name.startswith(OUR_MARKS)})


def requests(pod: Json) -> Amounts:
    """Return the requests of a pod.

    Containers and sidecars add up; each init container runs next to the sidecars started before it.
    """
    spec = pod["spec"]
    running = _sum(map(_asked, spec.get("containers", [])))
    sidecars, peak = Amounts(), Amounts()
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            sidecars += _asked(container)
            peak |= sidecars
        else:
            peak |= sidecars + _asked(container)
    total = (running + sidecars) | peak
    total.update(_pod_level(spec, total))
    return total + amounts(spec.get("overhead")) + Amounts({"pods": MILLI})


def _asked(container: Json) -> Amounts:
    return amounts(container.get("resources", {}).get("requests"))


def _pod_level(spec: Json, total: Amounts) -> dict[str, int]:
    """Return the requests of the pod as a whole, as the difference to the sum of its containers.

    They replace that sum.
    """
    stated = amounts(spec.get("resources", {}).get("requests"))
    return {name: value - total[name] for name, value in stated.items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total = Amounts()
    for part in parts:
        total += part
    return total
