"""Amounts of resources: plain mappings from a resource's name to an integer.

Units: `cpu` in millicores, everything else in whole units (bytes, devices, pods). Every pod asks for one of
`pods`.
"""

from collections.abc import Iterable, Mapping

from extender.api.keys import MARKS
from extender.api.quantities import Quantity, at_least, at_most

Resources = Mapping[str, int]

CPU, MEMORY, PODS = "cpu", "memory", "pods"
# Amounts of one pod or one node are capped here, far above anything real (256 TiB of memory), so that the
# sums over all nodes that numpy works with stay inside 64 bits. Sums of queues and groups are plain integers,
# which have no limit.
MOST = 2**48
_NATIVE = frozenset({CPU, MEMORY, PODS, "ephemeral-storage"})
_MILLI = 1000


def asked(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """The amounts of a request, rounded up; those that are not positive are left out. Raises BadQuantity."""
    amounts = {name: at_least(q, _scale(name)) for name, q in (quantities or {}).items() if counts(name)}
    return {name: amount for name, amount in amounts.items() if amount > 0}


def offered(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """The amounts of a capacity, rounded down. Raises BadQuantity."""
    return {name: at_most(q, _scale(name)) for name, q in (quantities or {}).items() if counts(name)}


def offered_by_node(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """The same for a node: never negative, and always less than MOST, the cap of a pod's request, so that a
    pod whose request was capped fits nowhere. Raises BadQuantity."""
    return {name: min(max(amount, 0), MOST - 1) for name, amount in offered(quantities).items()}


def capped(amounts: Resources) -> dict[str, int]:
    """The amounts that one pod asks for, each at most MOST."""
    return {name: min(amount, MOST) for name, amount in amounts.items()}


def counts(name: str) -> bool:
    """Whether the scheduler counts a resource of this name; our own marks are not resources."""
    if name in _NATIVE or name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in name and not name.startswith("count/") and name not in MARKS


def _scale(name: str) -> int:
    return _MILLI if name == CPU else 1


def total(amounts: Iterable[Resources]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in amounts:
        add(sums, each)
    return sums


def add(sums: dict[str, int], more: Resources, times: int = 1) -> None:
    """Add `times` times `more` to `sums`, in place; a negative `times` subtracts."""
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + amount * times


def largest(left: Resources, right: Resources) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def quantities(amounts: Mapping[str, float]) -> dict[str, str]:
    """Amounts as the API writes them, rounded down."""
    return {name: _quantity(name, int(amount)) for name, amount in amounts.items()}


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU and amount % _MILLI else str(amount // _scale(name))


def show(name: str, amount: float) -> str:
    """An amount for people to read: `1500m` cpu as 1.5, bytes in the largest unit that keeps it short."""
    if name == CPU:
        return f"{amount / _MILLI:g}"
    if _is_bytes(name):
        return _bytes(amount)
    return f"{amount:g}"


def three_digits(name: str, amount: int) -> int:
    """An amount rounded down to about the precision that `show` prints: three digits, for bytes ten bits.
    Negative amounts become 0."""
    if amount <= 0:
        return 0
    if _is_bytes(name):
        spare = max(amount.bit_length() - 10, 0)
        return amount >> spare << spare
    unit = 10 ** max(len(str(amount)) - 3, 0)
    return int(amount // unit * unit)


def _is_bytes(name: str) -> bool:
    return name == MEMORY or name.startswith("hugepages-") or name == "ephemeral-storage"


def _bytes(amount: float) -> str:
    for suffix in ("", "Ki", "Mi", "Gi"):
        if abs(amount) < 1024:
            return f"{amount:.4g}{suffix}"
        amount /= 1024
    return f"{amount:.4g}Ti"
