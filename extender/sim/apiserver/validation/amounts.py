"""What a container may ask for, and what a node may say that it has.

Rules: validateResourceRequirements and ValidateNodeResources in pkg/apis/core/validation of Kubernetes.
"""

from typing import Any

from extender.api.quantities import at_least
from extender.sim.apiserver.field_errors import FieldErrors, required, wrong
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.validation.names import label_key

_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))
_OF_OTHERS = frozenset(
    (
        *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
        *("persistentvolumeclaims", "storage", "services.nodeports", "services.loadbalancers"),
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _STANDARD),
        "requests.storage",
    )
)
_HUGE_PAGES = "hugepages-"
_KUBERNETES = "kubernetes.io/"
_NANO = 10**9


def request_errors(resources: Json, at: str) -> FieldErrors:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in sorted(amounts.items()):
            field = f"{at}.{side}[{name}]"
            yield from _name_errors(name, field)
            yield from amount_errors(name, amount, field)
            if side == "requests":
                yield from _against_limit(name, amount, limits, at)


def node_errors(node: Json) -> FieldErrors:
    for side in ("capacity", "allocatable"):
        for name, amount in sorted(((node.get("status") or {}).get(side) or {}).items()):
            yield from amount_errors(name, amount, f"status.{side}.{name}")


def amount_errors(name: str, amount: Any, field: str) -> FieldErrors:
    value = at_least(amount, _NANO)
    if value < 0:
        yield wrong(field, str(amount), "must be greater than or equal to 0")
    if (_is_extended(name) or name == "pods") and value % _NANO:
        yield wrong(field, _written(value), "must be an integer")


def _name_errors(name: str, field: str) -> FieldErrors:
    bad = label_key(name)
    for message in bad:
        yield wrong(field, name, message)
    if "/" not in name:
        if not bad and not _is_standard(name) and name not in _OF_OTHERS:
            yield wrong(field, name, "must be a standard resource type or fully qualified")
        if not _is_standard(name):
            yield wrong(field, name, "must be a standard resource for containers")
    elif not _is_native(name) and not _is_extended(name):
        yield wrong(field, name, "doesn't follow extended resource name standard")


def _against_limit(name: str, amount: Any, limits: Json, at: str) -> FieldErrors:
    overcommits = _is_native(name) and not name.startswith(_HUGE_PAGES)
    if name not in limits:
        if not overcommits:
            yield required(f"{at}.limits", "Limit must be set for non overcommitable resources")
        return
    asked, limit = at_least(amount, _NANO), at_least(limits[name], _NANO)
    if asked != limit and not overcommits:
        yield wrong(f"{at}.requests", str(amount), f"must be equal to {name} limit of {limits[name]}")
    elif asked > limit:
        message = f"must be less than or equal to {name} limit of {limits[name]}"
        yield wrong(f"{at}.requests", str(amount), message)


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith(_HUGE_PAGES)


def _is_native(name: str) -> bool:
    return "/" not in name or _KUBERNETES in name


def _is_extended(name: str) -> bool:
    return not _is_native(name) and not name.startswith("requests.") and not label_key(f"requests.{name}")


def _written(value: int) -> str:
    """Of billionths, as Kubernetes writes the amount."""
    for unit, suffix in ((_NANO, ""), (10**6, "m"), (10**3, "u"), (1, "n")):
        if value % unit == 0:
            return f"{value // unit}{suffix}"
    raise AssertionError
