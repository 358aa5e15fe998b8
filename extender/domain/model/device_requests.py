"""Requests of devices (Dynamic Resource Allocation) as amounts: one resource for each DeviceClass.

The resource has the name of the extended resource that the class backs, so that it adds up with the amounts
of a device plugin; without one, it is `deviceclass/NAME`. What amounts cannot say is left out, and the
scheduler decides on it: alternatives, a claim that several pods name, and selectors of a request, which only
narrow the class.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from extender.api.objects.devices import EXTENDED_PREFIX, ClaimSpec, DeviceRequest
from extender.api.objects.pods import Pod, PodSpec
from extender.domain.model.resources import MOST, Resources, add

_MOST_CLAIMS = 256  # claims of one pod, and requests of one claim, that are counted
_NONE: Resources = {}
ClaimTemplateKey = tuple[str, str]  # namespace, name
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


def resource_of_class(name: str, extended: str = "") -> str:
    """Return the resource of a DeviceClass. `extended`: the extended resource that it backs, if any."""
    return extended or f"deviceclass/{name}"


class DeviceRequests:
    """DeviceClasses and claim templates, and what pods request of devices by them.

    Attributes:
        version: Number of changes so far.
    """

    def __init__(self) -> None:
        self.version = 1
        self._resources: dict[str, str] = {}  # by DeviceClass; empty: it is not counted
        self._templates: dict[ClaimTemplateKey, Resources] = {}  # number of devices by class

    def set_class(self, name: str, resource: str | None) -> bool:
        """Record the resource of a class; return whether it changed.

        `resource`: empty if no node alone offers its devices, so that they are not counted; None: the class
        is gone.
        """
        return self._put(self._resources, name, resource)

    def set_template(self, namespace: str, name: str, spec: ClaimSpec | None) -> bool:
        """Record a claim template; return whether its requests changed. `spec`: None if it is gone."""
        return self._put(self._templates, (namespace, name), None if spec is None else _devices_of(spec))

    def _put(self, known: dict[K, V], key: K, now: V | None) -> bool:
        before = known.pop(key, None)
        if now is not None:
            known[key] = now
        self.version += before != now
        return before != now

    def version_for(self, spec: PodSpec) -> int:
        """Return the version that determines the requests of a pod; 0 if it requests no devices."""
        return self.version if requests_devices(spec) else 0

    def counted(self, requests: Resources, spec: PodSpec, namespace: str) -> Resources:
        """Return the requests of a pod with its devices, each under the resource of its class."""
        if not requests_devices(spec):
            return requests
        sums: dict[str, int] = {}
        for name, amount in requests.items():
            given = name.removeprefix(EXTENDED_PREFIX)
            add(sums, {name: amount} if given == name else self._counted_as(given, amount))
        for claim in (spec.resource_claims or ())[:_MOST_CLAIMS]:
            devices = self._templates.get((namespace, claim.resource_claim_template_name), _NONE)
            for name, amount in devices.items():
                add(sums, self._counted_as(name, amount))
        return {name: min(amount, MOST) for name, amount in sums.items()}

    def _counted_as(self, device_class: str, amount: int) -> Resources:
        resource = self._resources.get(device_class, resource_of_class(device_class))
        return {resource: amount} if resource else _NONE


class DeviceUsers(Generic[K, T]):
    """Pods or jobs that request devices, by the claim templates that they name."""

    def __init__(self) -> None:
        self._users: dict[K, tuple[T, Collection[ClaimTemplateKey]]] = {}
        self._by_template: dict[ClaimTemplateKey, set[K]] = {}

    def put(self, key: K, user: T, templates: Collection[ClaimTemplateKey]) -> None:
        self.drop(key)
        self._users[key] = user, templates
        for template in templates:
            self._by_template.setdefault(template, set()).add(key)

    def drop(self, key: K) -> None:
        _, templates = self._users.pop(key, (None, ()))
        for template in templates:
            self._by_template[template].discard(key)
            if not self._by_template[template]:
                del self._by_template[template]

    def get(self, key: K) -> T | None:
        return self._users[key][0] if key in self._users else None

    def naming(self, template: ClaimTemplateKey | None) -> list[K]:
        """Return the users that name a claim template; None: all users."""
        return list(self._users if template is None else self._by_template.get(template, ()))


def requests_devices(spec: PodSpec) -> bool:
    """Return whether DeviceClasses or claim templates determine the requests of a pod."""
    parts = (*spec.containers, *(spec.init_containers or ()))
    requests = (part.resources.requests or {} for part in parts)
    return bool(spec.resource_claims) or any(
        name.startswith(EXTENDED_PREFIX) for each in requests for name in each
    )


def templates_of(pod: Pod) -> set[ClaimTemplateKey]:
    """Return the claim templates that a pod names."""
    named = {claim.resource_claim_template_name for claim in pod.spec.resource_claims or ()} - {""}
    return {(pod.metadata.namespace, name) for name in named}


def class_of_request(spec: ClaimSpec, request: str) -> str:
    """Return the class of a claim's request by its name; empty if it has alternatives."""
    found = (each for each in spec.devices.requests or () if each.name == request and each.exactly)
    return next((each.exactly.device_class_name for each in found if each.exactly), "")


def _devices_of(spec: ClaimSpec) -> Resources:
    """Return the least number of devices that a claim takes, by class."""
    devices: Counter[str] = Counter()
    for request in (spec.devices.requests or [])[:_MOST_CLAIMS]:
        devices.update(dict(_least(request)))
    return {name: min(number, MOST) for name, number in devices.items()}


def _least(request: DeviceRequest) -> Iterator[tuple[str, int]]:
    exactly = request.exactly
    if exactly is not None and not exactly.admin_access:
        is_all = exactly.allocation_mode == "All"  # of the node that the scheduler chooses: at least one
        yield exactly.device_class_name, 1 if is_all else max(exactly.count, 1)
