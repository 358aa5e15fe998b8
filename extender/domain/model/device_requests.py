"""Requests of devices (Dynamic Resource Allocation) as amounts, with one resource for each DeviceClass.

The resource has the name of the extended resource that the class backs, so that it adds up with the amounts
of a device plugin. Without an extended resource, the name is `deviceclass/NAME`. A claim that several pods
name counts for one of these pods. A request with its own selectors also asks for devices of a selection,
which count on nodes only. Requests that amounts cannot express, such as alternatives, are left to the
scheduler.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.objects.devices import EXTENDED_PREFIX, ClaimSpec, ExactRequest, expressions_of
from extender.api.objects.pods import NodeSelectorTerm, Pod, PodClaim, PodSpec
from extender.api.setting_kinds import LogicalResource
from extender.api.units import listed, rounded_down
from extender.domain.model.resources import MAX_AMOUNT, Resources, add, counts_in_queues, selected_devices

_NODE_NAME = "metadata.name"  # the field with which an allocation names its node
_MAX_CLAIMS = 256  # limit of counted claims per pod, and of requests per claim
_CLASS_PREFIX = "deviceclass/"
_MAX_LENGTH = 120  # limit of a selector's characters in a name
_NO_AMOUNTS: Resources = {}
K = TypeVar("K")
V = TypeVar("V")


class ClaimKey(NamedTuple):
    """Key of a claim, or of a template of claims, that pods name."""

    namespace: str
    name: str
    is_template: bool = True

    @property
    def kind(self) -> str:
        return "ResourceClaimTemplate" if self.is_template else "ResourceClaim"


class ClaimState(NamedTuple):
    """State of a ResourceClaim."""

    uid: str = ""
    is_deleted: bool = False  # whether it is being deleted, so that no further pod can start with it
    is_allocated: bool = False
    nodes: tuple[NodeSelectorTerm, ...] = ()  # terms that select its nodes; empty: bound to no node
    idle_devices: Mapping[str, Resources] = {}  # devices by node, if the claim is allocated but unused


_NO_STATE = ClaimState()


class Selection(NamedTuple):
    """Devices of a class that the selectors of a request admit."""

    device_class: str
    expressions: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return a name for users, which is used like the name of a class.

        A single short expression is shown as written. Other names contain a digest of all expressions, so
        that no tenant can give the name of another selection to their own selection.
        """
        text = self.expressions[0]
        if len(self.expressions) > 1 or len(text) > _MAX_LENGTH or not text.isprintable() or " of " in text:
            digest = blake2b(repr(self.expressions).encode(), digest_size=16).hexdigest()
            text = f"{' '.join(text[:_MAX_LENGTH].split()).replace(' of ', ' ')}... ({digest})"
        return selected_devices(self.device_class, text)


def resource_of_class(name: str, extended_resource: str = "") -> str:
    """Return the resource of a DeviceClass.

    Args:
        name: The name of the DeviceClass.
        extended_resource: The extended resource that the class backs, if any.
    """
    return extended_resource or f"{_CLASS_PREFIX}{name}"


class LogicalResources:
    """Resources of the configuration that stand for other resources.

    Nodes offer a logical resource, and pods request it, in a fixed proportion to the other resources.
    Therefore, a logical resource never prevents a pod from fitting on a node.
    """

    def __init__(self, resources: Iterable[LogicalResource] = ()) -> None:
        self._amounts: dict[str, dict[str, int]] = {}  # logical amounts of one unit of a resource
        self.capacities: dict[str, dict[str, str]] = {}  # capacity names by DeviceClass and resource
        for name, parts in resources:
            for part in parts:
                if part.capacity:
                    device_class = part.resource.removeprefix(_CLASS_PREFIX)
                    self.capacities.setdefault(device_class, {})[name] = part.capacity
                else:
                    self._amounts.setdefault(part.resource, {})[name] = rounded_down(part.amount)

    def set_amounts(self, resource: str, amounts: Resources) -> bool:
        """Record the logical amounts of one unit of `resource`, and return whether they changed.

        If `resource` is empty, nothing is recorded, because devices without a resource are not counted.
        """
        old_amounts = self._amounts.get(resource, _NO_AMOUNTS) if resource else amounts
        if is_changed := any(old_amounts.get(name) != amount for name, amount in amounts.items()):
            self._amounts[resource] = {**old_amounts, **amounts}
        return is_changed

    def forget(self, resource: str) -> None:
        self._amounts.pop(resource, None)

    def amounts_for(self, amounts: Resources, is_on_node: bool = False) -> Resources:
        """Return the logical amounts that follow from amounts of other resources, each less than MAX_AMOUNT.

        Args:
            amounts: The amounts of other resources.
            is_on_node: Whether a node offers the amounts. The selections of a node are part of its classes,
                so they are not counted again.
        """
        sums: dict[str, int] = {}
        for name in amounts.keys() & self._amounts.keys():
            if counts_in_queues(name) or not is_on_node:
                add(sums, self._amounts[name], amounts[name])
        return {name: min(amount, MAX_AMOUNT - 1) for name, amount in sums.items()}


class DeviceRequests:
    """Known DeviceClasses, claims and templates, and the devices that pods request through them."""

    def __init__(self, logical: LogicalResources) -> None:
        self.logical = logical
        self._resources: dict[str, str] = {}  # by DeviceClass or selection; empty: not counted
        self._claims: dict[ClaimKey, Resources] = {}  # number of devices, by class and selection
        self._states: dict[ClaimKey, ClaimState] = {}  # states of claims, not of templates

    def set_class(self, name: str, resource: str | None, stands_for: Resources = _NO_AMOUNTS) -> bool:
        """Record the resource of a class or a selection, and return whether anything changed.

        Args:
            name: The name of the class or selection.
            resource: The resource. None means that the class is gone. Empty means that no node alone offers
                its devices, so that they are not counted.
            stands_for: The logical amounts that follow from the capacities of one device. For a selection,
                only the amounts that exceed the amounts of the class.
        """
        if resource is None and not counts_in_queues(name):
            self.logical.forget(self._resources.get(name, ""))
        is_changed = _set_or_remove(self._resources, name, resource)
        return self.logical.set_amounts(resource or "", stands_for) or is_changed

    def set_claim(self, key: ClaimKey, spec: ClaimSpec | None, state: ClaimState | None = None) -> bool:
        """Record a claim or template, and return whether its state or its devices changed.

        Args:
            key: The claim or template.
            spec: Its spec; None if it is gone.
            state: The state of a claim; None for a template.
        """
        is_changed = _set_or_remove(self._states, key, state)
        return _set_or_remove(self._claims, key, None if spec is None else _devices_of(spec)) or is_changed

    def uid_of(self, claim: ClaimKey) -> str:
        """Return the UID of a claim with which pods can start; empty if there is no such claim."""
        state = self._states.get(claim, _NO_STATE)
        return "" if state.is_deleted else state.uid

    def fault_of(self, pod: Pod) -> str:
        """Return why a pod cannot start with its claims, for users; empty if it can start.

        A claim that was created for the pod counts even if its template is gone.
        """
        created_names = {each.name for each in pod.status.resource_claim_statuses or ()}
        nodes: dict[str, str] = {}
        for claim in (pod.spec.resource_claims or ())[:_MAX_CLAIMS]:
            for key in _keys_of(claim, pod.metadata.namespace):
                state = self._states.get(key, _NO_STATE)
                if key not in self._claims and not (key.is_template and claim.name in created_names):
                    return f"{key.kind} {key.name} does not exist"
                if state.is_deleted:
                    return f"{key.kind} {key.name} is being deleted"
                if node := _only_node(state.nodes):
                    nodes.setdefault(node, key.name)
        places = [f"{name} on {node}" for node, name in sorted(nodes.items())]
        text = f"its ResourceClaims are allocated on different nodes: {listed(places, 2, ' and ')}"
        return text if len(places) > 1 else ""

    def idle_devices(self, claim: ClaimKey) -> Mapping[str, Resources]:
        """Return the devices of an allocated but unused claim, by node.

        Only pods that name the claim can get these devices.
        """
        return self._states.get(claim, _NO_STATE).idle_devices

    def awaited_claims(self, pod: Pod, only_counted: bool = False) -> tuple[str, ...]:
        """Return the shared claims of a pod that the scheduler still has to allocate.

        Args:
            pod: The pod.
            only_counted: Whether only claims count whose devices are each offered by a single node.
        """
        claims = (pod.spec.resource_claims or ())[:_MAX_CLAIMS]
        keys = {key for claim in claims for key in _keys_of(claim, pod.metadata.namespace)}
        found = [key for key in keys if (claim := self._states.get(key)) and not claim.is_allocated]
        if only_counted:
            found = [key for key in found if any(map(self._resource_of, self._claims.get(key, ())))]
        return tuple(sorted(key.name for key in found))

    def node_terms(self, spec: PodSpec, namespace: str) -> list[tuple[NodeSelectorTerm, ...]]:
        """Return the node terms of each claim of a pod that is bound to nodes.

        For each claim, at least one term has to select the pod's node.
        """
        claims = (spec.resource_claims or ())[:_MAX_CLAIMS]
        keys = {key for claim in claims for key in _keys_of(claim, namespace)}
        return [state.nodes for key in sorted(keys) if (state := self._states.get(key)) and state.nodes]

    def devices_of_claims(self, spec: PodSpec, namespace: str) -> dict[str, int]:
        """Return the devices that the claims of a pod request, by resource."""
        sums: dict[str, int] = {}
        for claim in (spec.resource_claims or ())[:_MAX_CLAIMS]:
            keys = () if claim.counts_elsewhere else _keys_of(claim, namespace)
            devices = next((self._claims[key] for key in keys if key in self._claims), _NO_AMOUNTS)
            for name, amount in devices.items():
                add(sums, {self._resource_of(name): amount})
        sums.pop("", None)
        return sums

    def resolve_classes(self, requests: Mapping[str, V]) -> dict[str, V]:
        """Return amounts with each name of a DeviceClass replaced by the resource of the class.

        If an amount is also given under the resource itself, the amount under the resource counts.
        """
        names = {name: self._resource_of(kind) for name in requests if (kind := _class_named_by(name))}
        renamed_requests = {resource: requests[name] for name, resource in names.items() if resource}
        return renamed_requests | {name: amount for name, amount in requests.items() if name not in names}

    def _resource_of(self, name: str) -> str:
        """Return the resource of a class or selection; empty if its devices are not counted."""
        default = resource_of_class(name) if counts_in_queues(name) else ""
        return self._resources.get(name, default)

    def counted_requests(self, requests: Resources, spec: PodSpec, namespace: str) -> Resources:
        """Return the requests of a pod with its devices, each under the resource of its class."""
        if not requests_devices(spec):
            return self._with_logical(requests)
        sums: dict[str, int] = {}
        for name, amount in requests.items():
            device_class = _class_named_by(name)
            add(sums, {self._resource_of(device_class) if device_class else name: amount})
        add(sums, self.devices_of_claims(spec, namespace))
        sums.pop("", None)
        return {name: min(amount, MAX_AMOUNT) for name, amount in self._with_logical(sums).items()}

    def _with_logical(self, requests: Resources) -> Resources:
        """Return requests with the logical resources that follow from them."""
        return {**requests, **more} if (more := self.logical.amounts_for(requests)) else requests

    def key_of(self, spec: PodSpec, namespace: str) -> tuple[object, ...]:
        """Return a key of the effect that classes and claims have on a pod's requests.

        The key is empty if they have no effect.
        """
        if not requests_devices(spec):
            return ()
        names = sorted(filter(None, map(_class_named_by, _requested_names(spec))))
        class_resources = {self._resource_of(name): 1 for name in names}
        claims = self.devices_of_claims(spec, namespace)
        resources = sorted(claims.items()), [(name, self._resource_of(name)) for name in names]
        stands_for = self.logical.amounts_for(claims), self.logical.amounts_for(class_resources)
        return namespace, resources, stands_for, self.node_terms(spec, namespace)


def _set_or_remove(values: dict[K, V], key: K, value: V | None) -> bool:
    """Set or remove (None) a value, and return whether the value changed."""
    previous = values.pop(key, None)
    if value is not None:
        values[key] = value
    return previous != value


class DeviceUsers(Generic[K, V]):
    """Pods or jobs that request devices, by the claims and templates that they name."""

    def __init__(self) -> None:
        self._users: dict[K, tuple[V, Collection[ClaimKey]]] = {}
        self._users_by_claim: dict[ClaimKey, set[K]] = {}

    def put(self, key: K, user: V, claims: Collection[ClaimKey]) -> None:
        """Record a user and the claims that it names. A former record of the user is replaced."""
        self.drop(key)
        self._users[key] = user, claims
        for claim in claims:
            self._users_by_claim.setdefault(claim, set()).add(key)

    def drop(self, key: K) -> None:
        """Forget a user, if it is known."""
        _, claims = self._users.pop(key, (None, ()))
        for claim in claims:
            self._users_by_claim[claim].discard(key)
            if not self._users_by_claim[claim]:
                del self._users_by_claim[claim]

    def get(self, key: K) -> V | None:
        return self._users[key][0] if key in self._users else None

    def claims_of(self, key: K) -> Collection[ClaimKey]:
        return self._users[key][1] if key in self._users else ()

    def users_of(self, claim: ClaimKey | None) -> list[K]:
        """Return the users that name a claim or template; None returns all users."""
        return list(self._users if claim is None else self._users_by_claim.get(claim, ()))


class SharedClaims:
    """Claims that several pods use. Each claim counts for one of these pods, its carrier.

    Pods share claims that they name, and claims that their PodGroup has for a template.
    """

    def __init__(self, on_use: Callable[[ClaimKey], None]) -> None:
        """Begin without pods.

        Args:
            on_use: Called with a claim that gets its first pod or loses its last pod.
        """
        self._on_use = on_use
        self._pods = DeviceUsers[str, Pod]()
        self._carriers: dict[ClaimKey, str] = {}  # UID of the pod for which a claim counts
        self._group_claims: dict[ClaimKey, dict[PodClaim, str]] = {}  # by PodGroup: names of its claims

    def set_group(self, group: ClaimKey, claims: Mapping[PodClaim, str]) -> bool:
        """Record the claims that a PodGroup has for templates, and return whether they changed."""
        return _set_or_remove(self._group_claims, group, dict(claims) or None)

    def put(self, pod: Pod) -> Pod:
        """Record a pod. Return the pod with `counts_elsewhere` set on claims that count for other pods."""
        uid, claims = pod.metadata.uid, pod.spec.resource_claims
        if not claims:
            return pod
        group_claims = self._group_claims.get(group_of_claims(pod) or _NO_GROUP, {})
        keys = [_shared_key(pod, claim, group_claims.get(claim)) for claim in claims]
        for key in set(self._pods.claims_of(uid)) - set(keys):
            if self._carriers.get(key) == uid:
                del self._carriers[key]
        if not any(keys):
            self._pods.drop(uid)
            return pod
        self._pods.put(uid, pod, [key for key in keys if key])
        new_claims = [
            replace(
                claim,
                counts_elsewhere=key is not None and self._carrier_of(key, uid) != uid,
                made_for_group=group_claims.get(claim, ""),
            )
            for claim, key in zip(claims, keys, strict=True)
        ]
        return replace(pod, spec=replace(pod.spec, resource_claims=new_claims))

    def is_used(self, claim: ClaimKey) -> bool:
        """Return whether any pod uses a shared claim."""
        return claim in self._carriers

    def _carrier_of(self, claim: ClaimKey, uid: str) -> str:
        """Return the UID of the pod for which a claim counts. The first user becomes this pod."""
        if claim not in self._carriers:
            self._carriers[claim] = uid
            self._on_use(claim)
        return self._carriers[claim]

    def drop(self, uid: str) -> list[Pod]:
        """Remove a pod. Return the pods for which its claims count from now on."""
        carried_keys = [key for key in self._pods.claims_of(uid) if self._carriers.get(key) == uid]
        self._pods.drop(uid)
        heirs = {}
        for key in carried_keys:
            del self._carriers[key]
            if heir := next(iter(self._pods.users_of(key)), None):
                self._carriers[key] = heir
                heirs[heir] = self._pods.get(heir)
            else:
                self._on_use(key)
        return [pod for pod in heirs.values() if pod is not None]


def carrier_pods(pods: Iterable[tuple[int, Pod]]) -> Iterator[tuple[int, int, Pod]]:
    """Yield the pods that a job will make, each with its number in `pods` and its count.

    A claim that several pods name counts for the first of these pods.
    """
    counted_claims: set[str] = set()
    for number, (count, pod) in enumerate(pods):
        claims = pod.spec.resource_claims or ()
        first_pod = _with_claims_elsewhere(pod, counted_claims)
        counted_claims |= {claim.resource_claim_name for claim in claims} - {""}
        other_pods = _with_claims_elsewhere(pod, counted_claims)
        if first_pod == other_pods or count == 1:
            yield number, count, first_pod
        else:
            yield from ((number, 1, first_pod), (number, count - 1, other_pods))


def _with_claims_elsewhere(pod: Pod, names: Container[str]) -> Pod:
    """Return the pod with `counts_elsewhere` set on claims that count for other pods.

    Args:
        pod: The pod.
        names: The names of the claims that count for other pods.
    """
    new_claims = [
        replace(claim, counts_elsewhere=claim.resource_claim_name in names)
        for claim in pod.spec.resource_claims or ()
    ]
    return replace(pod, spec=replace(pod.spec, resource_claims=new_claims)) if new_claims else pod


def requests_devices(spec: PodSpec) -> bool:
    """Return whether the pod's requests depend on DeviceClasses or claims."""
    return bool(spec.resource_claims) or any(map(_class_named_by, _requested_names(spec)))


def _requested_names(spec: PodSpec) -> Iterator[str]:
    """Yield the names of all resources that containers request."""
    for part in (*spec.containers, *(spec.init_containers or ())):
        yield from part.resources.requests or ()


def _class_named_by(resource: str) -> str:
    """Return the class that the name of a resource stands for; empty if it stands for no class."""
    for prefix in (EXTENDED_PREFIX, _CLASS_PREFIX):
        if resource.startswith(prefix):
            return resource.removeprefix(prefix)
    return ""


def claims_of(pod: Pod) -> frozenset[ClaimKey]:
    """Return the claims and templates that a pod uses, and the key of its PodGroup's claims."""
    claims = (pod.spec.resource_claims or ())[:_MAX_CLAIMS]
    keys = frozenset(key for claim in claims for key in _keys_of(claim, pod.metadata.namespace))
    group = group_of_claims(pod) if claims else None
    return keys if group is None else keys | {group}


_NO_GROUP = ClaimKey("", "")


def claims_of_group(namespace: str, name: str) -> ClaimKey:
    """Return the key of the claims that a PodGroup has for templates."""
    return ClaimKey(namespace, f"{name}/")


def group_of_claims(pod: Pod) -> ClaimKey | None:
    """Return the key of the claims of a pod's PodGroup; None without a PodGroup."""
    group = pod.spec.scheduling_group
    return claims_of_group(pod.metadata.namespace, group.pod_group_name) if group is not None else None


def _shared_key(pod: Pod, claim: PodClaim, made_for_group: str | None) -> ClaimKey | None:
    """Return the key of a claim that other pods may use, too; None for a claim of the pod alone.

    Args:
        pod: The pod.
        claim: The claim in the pod's spec.
        made_for_group: The name of the claim that the PodGroup has. Empty means that the claim is not created
            yet; None means that the PodGroup has no such claim.
    """
    name, group = claim.resource_claim_name or made_for_group, group_of_claims(pod)
    if made_for_group == "" and group is not None:
        name = f"{group.name}{claim.name}"
    return ClaimKey(pod.metadata.namespace, name, is_template=False) if name else None


def _keys_of(claim: PodClaim, namespace: str) -> Iterator[ClaimKey]:
    """Yield the keys of the template and the claim that an entry of a pod's spec names."""
    if claim.resource_claim_template_name:
        yield ClaimKey(namespace, claim.resource_claim_template_name)
    if name := claim.resource_claim_name or claim.made_for_group:
        yield ClaimKey(namespace, name, is_template=False)


def _only_node(terms: Sequence[NodeSelectorTerm]) -> str:
    """Return the only node that terms name; empty if they select nodes by labels, or several nodes."""
    parts = (part for term in terms for part in (term.match_fields, term.match_expressions))
    requirements = [each for part in parts for each in part or ()]
    name_requirements = [each for each in requirements if each.key == _NODE_NAME and each.operator == "In"]
    names = [name for each in name_requirements for name in each.values or ()]
    return names[0] if len(requirements) == len(names) == 1 else ""


def selection_of(request: ExactRequest) -> Selection | None:
    """Return the selection of a request; None if the request accepts any device of the class."""
    expressions = expressions_of(request.selectors)
    return Selection(request.device_class_name, expressions) if expressions else None


def classes_of_request(spec: ClaimSpec, name: str) -> tuple[str, ...]:
    """Return the names of the class and selection of a claim's request; empty if it has alternatives."""
    requests = (request for each, request in _exact_requests(spec) if each == name)
    return next(map(_names_of, requests), ())


def selections_of(spec: ClaimSpec) -> dict[str, Selection]:
    """Return the selections of a claim, keyed by their names."""
    selections = (selection_of(request) for _, request in _exact_requests(spec))
    return {selection.name: selection for selection in selections if selection}


def _devices_of(spec: ClaimSpec) -> Resources:
    """Return the least number of devices that a claim requests, by class and selection."""
    devices: Counter[str] = Counter()
    for _, request in _exact_requests(spec):
        requests_all = request.allocation_mode == "All"  # all devices of the chosen node: at least one
        number = 1 if requests_all else max(request.count, 1)
        devices.update(dict.fromkeys(() if request.admin_access else _names_of(request), number))
    return {name: min(number, MAX_AMOUNT) for name, number in devices.items()}


def _exact_requests(spec: ClaimSpec) -> Iterator[tuple[str, ExactRequest]]:
    """Yield the requests of a claim with their names, without requests that have alternatives."""
    for request in (spec.devices.requests or [])[:_MAX_CLAIMS]:
        if request.exactly is not None:
            yield request.name, request.exactly


def _names_of(request: ExactRequest) -> tuple[str, ...]:
    """Return the names under which a request counts: its class and, with selectors, its selection."""
    selection = selection_of(request)
    return (request.device_class_name, selection.name) if selection else (request.device_class_name,)
