"""Requests of devices (Dynamic Resource Allocation) as amounts: one resource for each DeviceClass.

The resource has the name of the extended resource that the class backs, so that it adds up with the amounts
of a device plugin; without one, it is `deviceclass/NAME`. A claim that several pods name counts for one of
them. What amounts cannot say is left out, and the scheduler decides on it: alternatives, and selectors of a
request, which only narrow the class.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.objects.devices import EXTENDED_PREFIX, ClaimSpec, DeviceRequest
from extender.api.objects.pods import Pod, PodClaim, PodSpec
from extender.domain.model.resources import MOST, Resources, add

_MOST_CLAIMS = 256  # claims of one pod, and requests of one claim, that are counted
_CLASS_PREFIX = "deviceclass/"
_NONE: Resources = {}
K = TypeVar("K")
V = TypeVar("V")


class ClaimKey(NamedTuple):
    """Claim, or template of claims, that pods name."""

    namespace: str
    name: str
    is_template: bool = True


def resource_of_class(name: str, extended: str = "") -> str:
    """Return the resource of a DeviceClass. `extended`: the extended resource that it backs, if any."""
    return extended or f"{_CLASS_PREFIX}{name}"


class DeviceRequests:
    """DeviceClasses, claims and their templates, and what pods request of devices by them."""

    def __init__(self) -> None:
        self._resources: dict[str, str] = {}  # by DeviceClass; empty: it is not counted
        self._claims: dict[ClaimKey, Resources] = {}  # number of devices by class

    def set_class(self, name: str, resource: str | None) -> bool:
        """Record the resource of a class; return whether it changed.

        `resource`: empty if no node alone offers its devices, so that they are not counted; None: the class
        is gone.
        """
        return _put(self._resources, name, resource)

    def set_claim(self, key: ClaimKey, spec: ClaimSpec | None) -> bool:
        """Record a claim or template; return whether its requests changed. `spec`: None if it is gone."""
        return _put(self._claims, key, None if spec is None else _devices_of(spec))

    def of_claims(self, spec: PodSpec, namespace: str) -> dict[str, int]:
        """Return the devices that the claims of a pod request, by resource."""
        sums: dict[str, int] = {}
        for claim in (spec.resource_claims or ())[:_MOST_CLAIMS]:
            for key in _keys_of(claim, namespace) if not claim.counts_elsewhere else ():
                for name, amount in self._claims.get(key, _NONE).items():
                    add(sums, {self._resource_of(name): amount})
        sums.pop("", None)
        return sums

    def renamed(self, requests: Mapping[str, V]) -> dict[str, V]:
        """Return amounts by the resource of a class, where they have another name of it.

        If an amount is given under the resource itself, too, that one counts.
        """
        names = {name: self._resource_of(own) for name in requests if (own := _class_named_by(name))}
        others = {resource: requests[name] for name, resource in names.items() if resource}
        return others | {name: amount for name, amount in requests.items() if name not in names}

    def _resource_of(self, device_class: str) -> str:
        return self._resources.get(device_class, resource_of_class(device_class))

    def counted(self, requests: Resources, spec: PodSpec, namespace: str) -> Resources:
        """Return the requests of a pod with its devices, each under the resource of its class."""
        if not requests_devices(spec):
            return requests
        sums: dict[str, int] = {}
        for name, amount in requests.items():
            own = _class_named_by(name)
            add(sums, {self._resource_of(own) if own else name: amount})
        add(sums, self.of_claims(spec, namespace))
        sums.pop("", None)
        return {name: min(amount, MOST) for name, amount in sums.items()}

    def key_of(self, spec: PodSpec, namespace: str) -> tuple[object, ...]:
        """Return a key of what classes and claims add to the requests of a pod; empty: nothing."""
        if not requests_devices(spec):
            return ()
        names = sorted(filter(None, map(_class_named_by, _requested_names(spec))))
        claims = sorted(self.of_claims(spec, namespace).items())
        return namespace, claims, [(name, self._resource_of(name)) for name in names]


def _put(known: dict[K, V], key: K, now: V | None) -> bool:
    before = known.pop(key, None)
    if now is not None:
        known[key] = now
    return before != now


class DeviceUsers(Generic[K, V]):
    """Pods or jobs that request devices, by the claims and templates that they name."""

    def __init__(self) -> None:
        self._users: dict[K, tuple[V, Collection[ClaimKey]]] = {}
        self._naming: dict[ClaimKey, set[K]] = {}

    def put(self, key: K, user: V, claims: Collection[ClaimKey]) -> None:
        self.drop(key)
        self._users[key] = user, claims
        for claim in claims:
            self._naming.setdefault(claim, set()).add(key)

    def drop(self, key: K) -> None:
        _, claims = self._users.pop(key, (None, ()))
        for claim in claims:
            self._naming[claim].discard(key)
            if not self._naming[claim]:
                del self._naming[claim]

    def get(self, key: K) -> V | None:
        return self._users[key][0] if key in self._users else None

    def naming(self, claim: ClaimKey | None) -> list[K]:
        """Return the users that name a claim or template; None: all users."""
        return list(self._users if claim is None else self._naming.get(claim, ()))


class SharedClaims:
    """Claims that pods name: each counts for one of the pods that name it, its carrier."""

    def __init__(self) -> None:
        self._pods = DeviceUsers[str, Pod]()
        self._carriers: dict[ClaimKey, str] = {}  # UID of the pod

    def put(self, pod: Pod) -> Pod:
        """Record a pod, and return it with the claims marked that count for another one."""
        uid, named = pod.metadata.uid, [key for key in claims_of(pod) if not key.is_template]
        if not named:
            return pod
        self._pods.put(uid, pod, named)
        elsewhere = {key.name for key in named if self._carriers.setdefault(key, uid) != uid}
        marked = [
            replace(claim, counts_elsewhere=claim.resource_claim_name in elsewhere)
            for claim in pod.spec.resource_claims or ()
        ]
        return replace(pod, spec=replace(pod.spec, resource_claims=marked))

    def drop(self, uid: str) -> list[Pod]:
        """Remove a pod; return the pods for which its claims count now."""
        if (gone := self._pods.get(uid)) is None:
            return []
        self._pods.drop(uid)
        carried = [key for key in claims_of(gone) if self._carriers.get(key) == uid]
        heirs = {}
        for key in carried:
            del self._carriers[key]
            if heir := next(iter(self._pods.naming(key)), None):
                self._carriers[key] = heir
                heirs[heir] = self._pods.get(heir)
        return [pod for pod in heirs.values() if pod is not None]


def requests_devices(spec: PodSpec) -> bool:
    """Return whether DeviceClasses or claims determine the requests of a pod."""
    return bool(spec.resource_claims) or any(map(_class_named_by, _requested_names(spec)))


def _requested_names(spec: PodSpec) -> Iterator[str]:
    for part in (*spec.containers, *(spec.init_containers or ())):
        yield from part.resources.requests or ()


def _class_named_by(resource: str) -> str:
    """Return the class that a resource stands for by its name; empty if it stands for none."""
    for prefix in (EXTENDED_PREFIX, _CLASS_PREFIX):
        if resource.startswith(prefix):
            return resource.removeprefix(prefix)
    return ""


def claims_of(pod: Pod) -> frozenset[ClaimKey]:
    """Return the claims and templates that a pod names."""
    claims = (pod.spec.resource_claims or ())[:_MOST_CLAIMS]
    return frozenset(key for claim in claims for key in _keys_of(claim, pod.metadata.namespace))


def _keys_of(claim: PodClaim, namespace: str) -> Iterator[ClaimKey]:
    if claim.resource_claim_template_name:
        yield ClaimKey(namespace, claim.resource_claim_template_name)
    if claim.resource_claim_name:
        yield ClaimKey(namespace, claim.resource_claim_name, is_template=False)


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
