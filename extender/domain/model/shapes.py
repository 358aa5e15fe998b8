"""Shapes: all requests and constraints that decide which nodes can run a pod.

Pods of one shape are interchangeable. A template's thousand pods share one Shape object, which `Shapes`
interns. So masks over nodes, and failures to fit, are computed once per shape and not once per pod. A shape
is freed with its last pod.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from extender.api.objects import pods
from extender.api.objects.cluster import Taint
from extender.api.objects.pods import Affinity, LabelSelector, NodeSelectorTerm, PodSpec, Toleration
from extender.domain.model.device_requests import DeviceRequests, LogicalResources
from extender.domain.model.resources import Resources, pod_requests
from extender.domain.model.selectors import Labels, NodePart, allows, is_tolerated, selects


class PodLabels(dict[str, str]):
    """Interned labels of pods.

    Equal labels are one object, which is freed with the last pod that has these labels.
    """

    __slots__ = ("__weakref__",)


class SharedLabels:
    """Interned labels of all pods."""

    def __init__(self) -> None:
        self._interned: WeakValueDictionary[int, PodLabels] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._interned)

    def intern(self, labels: Mapping[str, str] | None) -> Labels:
        """Return a mapping equal to `labels`. For equal labels, this is normally the same object."""
        hash_key = hash(frozenset(labels.items())) if labels else 0
        known_labels = self._interned.get(hash_key)
        if known_labels is not None and known_labels == (labels or {}):
            return known_labels
        copy = self._interned[hash_key] = PodLabels({intern(k): text for k, text in (labels or {}).items()})
        return copy


CORDON_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_ANY_ADDRESS = "0.0.0.0"
_ANY_NAMESPACE = LabelSelector()
_MAX_FOREIGN_TERMS = 8  # limit of anti-affinity terms per pod of another scheduler
_MAX_CACHED_PARTS = 64  # limit of cached parts per shape; beyond it, most parts are outdated
# Limits on the constraints of a pod, far above real numbers. The group of a pod with more constraints waits.
MAX_TERMS, MAX_PORTS, MAX_RESOURCES, MAX_TEXT_BYTES = 64, 256, 256, 128 * 1024
MAX_SELECTORS = 4096  # limit of cached selectors of terms
_MAX_CACHED_BYTES = 8 * 1024  # limit of a node affinity or selector that is cached once parsed
_NO_NODES = b"[]"  # node affinity that no node meets


class HostPort(NamedTuple):
    """Host port of a container."""

    protocol: str
    address: str
    port: int


class Term(NamedTuple):
    """Required pod (anti-)affinity term."""

    topology_key: str
    namespaces: frozenset[str] | None  # namespaces in which the term selects pods; None: all
    selector: bytes  # LabelSelector as JSON, so that terms can be hashed

    @property
    def label_selector(self) -> LabelSelector | None:
        """Return the selector of pods; None selects no pod."""
        return _selector_of(self.selector)

    def matches(self, namespace: str, labels: Labels) -> bool:
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return selects(self.label_selector, labels)


class Constraints(NamedTuple):
    """Constraints of a pod on its node, apart from amounts."""

    node_labels: tuple[tuple[str, str], ...] = ()  # spec.nodeSelector, sorted
    node_terms: bytes = b""  # terms of the required node affinity, as JSON; empty: no terms
    tolerations: tuple[Toleration, ...] = ()  # spec.tolerations as written
    ports: tuple[HostPort, ...] = ()  # host ports of the containers
    affinity: tuple[Term, ...] = ()  # required terms only
    anti_affinity: tuple[Term, ...] = ()  # required terms only
    # Constraints that only the scheduler evaluates, as written. Equal pods share its refusals.
    scheduler_rules: tuple[bytes, ...] = ()
    excess: str = ""  # constraints beyond the limits, for users; if there are any, no node fits


class Shape:
    """Requests and constraints that pods share.

    Shapes are compared by identity. Only `Shapes` and `on_part` make shapes.

    Attributes:
        number: The unique number of the shape.
    """

    __slots__ = (
        *("__weakref__", "_on_all_nodes", "_on_parts", "_original"),
        *("constraints", "looks_at_others", "number", "requests", "suits", "terms"),
    )

    def __init__(
        self,
        requests: Resources,
        constraints: Constraints,
        part: NodePart | None = None,
        on_all_nodes: "Shape | None" = None,
        original: "Shape | None" = None,
    ) -> None:
        self.number = next(_NUMBERS)
        self._original = original  # the original, if this is a namespace's or an unevaluated copy
        self.requests = requests
        self.constraints = constraints
        self.suits = NodeTest(constraints, part)
        self.terms: tuple[Term, ...] = constraints.affinity + constraints.anti_affinity
        self.looks_at_others = bool(constraints.ports or self.terms)
        self._on_all_nodes = on_all_nodes  # the same shape on all nodes, if this shape is bound to a part
        self._on_parts: dict[NodePart, Shape] = {}

    @property
    def on_all_nodes(self) -> "Shape":
        """Return the same shape without a binding to a part of the nodes."""
        return self._on_all_nodes or self

    def requests_at_most(self, amounts: Resources) -> bool:
        """Return whether a pod requests at most `amounts` of each resource."""
        return all(n <= amounts.get(name, 0) for name, n in self.requests.items())

    def on_part(self, part: NodePart) -> "Shape":
        """Return the shape on a part of the nodes only. The result is the same object for equal parts."""
        shape_by_part = self.on_all_nodes._on_parts
        if part not in shape_by_part:
            if len(shape_by_part) >= _MAX_CACHED_PARTS:
                shape_by_part.clear()
            shape_by_part[part] = Shape(self.requests, self.constraints, part, self.on_all_nodes)
        return shape_by_part[part]


_NUMBERS = itertools.count()


class NodeTest:
    """Test of whether a node suits a shape.

    The test considers labels, taints, and the part of the nodes to which the shape is bound.

    Attributes:
        key: A short key that is equal for shapes which differ only in requests.
        labels: The label pairs that a node must have.
        is_large: Whether the terms are long, so that they are parsed again each time.
    """

    __slots__ = ("_parsed_terms", "_terms", "_tolerations", "is_large", "key", "labels", "part")

    def __init__(self, constraints: Constraints, part: NodePart | None = None) -> None:
        self.part = part
        self.labels = constraints.node_labels
        self._terms = constraints.node_terms
        self._tolerations = constraints.tolerations
        self.is_large = len(self._terms) > _MAX_CACHED_BYTES
        self._parsed_terms = None if self.is_large else _node_terms(self._terms)
        part_key = part and (part.labels, part.earlier_parts)
        self.key = _digest((self.labels, self._terms, self._tolerations, part_key))

    @property
    def terms(self) -> list[NodeSelectorTerm] | None:
        """Return the terms of which at least one must admit a node; None admits all nodes."""
        return _node_terms(self._terms) if self.is_large else self._parsed_terms

    def tolerates(self, taints: tuple[Taint, ...]) -> bool:
        return not taints or all(is_tolerated(taint, self._tolerations) for taint in taints)

    def __call__(self, name: str, labels: Labels, taints: tuple[Taint, ...]) -> bool:
        if not all(labels.get(key) == value for key, value in self.labels):
            return False
        if self.part is not None and not self.part.has(labels):
            return False
        terms = self.terms
        is_admitted = terms is None or any(allows(term, labels, name) for term in terms)
        return is_admitted and self.tolerates(taints)


def _node_terms(encoded_terms: bytes) -> list[NodeSelectorTerm] | None:
    """Return the parsed terms of a node affinity; None without terms."""
    return msgspec.json.decode(encoded_terms, type=list[NodeSelectorTerm]) if encoded_terms else None


class Shapes:
    """Interned shapes and labels. Equal pods share one object, which is freed with its last pod."""

    def __init__(self, logical: LogicalResources | None = None) -> None:
        self.labels = SharedLabels()
        self.devices = DeviceRequests(logical or LogicalResources())
        self._interned: WeakValueDictionary[tuple[object, ...], Shape] = WeakValueDictionary()
        # Shapes by a digest of the pod's fields, so that known constraints need not be parsed.
        self._by_digest: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()
        # Shapes from `separate` and `unevaluated_shape`, by namespace or excess, and number of the original.
        self._copies: WeakValueDictionary[tuple[str, int], Shape] = WeakValueDictionary()

    def shape_of(self, spec: PodSpec, namespace: str) -> Shape:
        """Return the shape of a pod's spec.

        Raises:
            BadQuantity: A request cannot be read.
        """
        digest = _digest_of(spec, namespace, self.devices.key_of(spec, namespace))
        shape = self._by_digest.get(digest)
        if shape is None:
            requests = self.devices.counted_requests(pod_requests(spec), spec, namespace)
            constraints = _narrow(constraints_of(spec, namespace), self.devices.node_terms(spec, namespace))
            if constraints.excess:  # the pod waits anyway, so that only some of its resources count
                counted = sorted(requests.items(), key=lambda item: ("/" in item[0], item[0]))[:MAX_RESOURCES]
                requests = dict(counted)
            shape = self._intern(requests, constraints)
            self._by_digest[digest] = shape
        return self.namespace_shape(shape, namespace)

    def namespace_shape(self, shape: Shape, namespace: str) -> Shape:
        """Return the shape that pods of a namespace have instead of `shape`, or else `shape` itself."""
        return self._copies.get((namespace, shape.number), shape)

    def separate(self, namespace: str, shape: Shape) -> Shape:
        """Return a separate shape that pods of this namespace have from now on.

        The scheduler's refusals of pods in this namespace do not count in other namespaces, where a volume of
        the same name is a different volume.
        """
        copy = self._copies.get((namespace, shape.number))
        if copy is None:
            copy = Shape(shape.requests, shape.constraints, original=shape)
            self._copies[namespace, shape.number] = self._copies[namespace, copy.number] = copy
        return copy

    def unevaluated_shape(self, shape: Shape, excess: str) -> Shape:
        """Return the shape of a pod that has to wait because its constraints exceed the limits."""
        copy = self._copies.get((excess, shape.number))  # `excess` is no name of a namespace
        if copy is None:
            copy = Shape(shape.requests, Constraints(node_terms=_NO_NODES, excess=excess), original=shape)
            self._copies[excess, shape.number] = copy
        return copy

    def with_requests(self, shape: Shape, requests: Resources) -> Shape:
        """Return a shape with other requests that suits the same nodes as `shape`."""
        old = shape.constraints
        return self._intern(requests, Constraints(old.node_labels, old.node_terms, old.tolerations))

    def foreign_shape(self, spec: PodSpec, namespace: str) -> Shape:
        """Return the shape of a pod of another scheduler: requests, host ports and anti-affinity.

        Its constraints on nodes are left out, because they differ between the pods of a DaemonSet.

        Raises:
            BadQuantity: A request cannot be read.
        """
        anti_terms = _foreign_anti_affinity(spec, namespace)
        amounts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
        digest = _digest((amounts, anti_terms, self.devices.key_of(spec, namespace)))
        shape = self._by_digest.get(digest)
        if shape is None:
            constraints = Constraints(ports=_host_ports(spec), anti_affinity=anti_terms)
            requests = self.devices.counted_requests(pod_requests(spec), spec, namespace)
            shape = self._intern(requests, constraints)
            self._by_digest[digest] = shape
        return shape

    def __len__(self) -> int:
        return len(self._by_digest)

    def _intern(self, requests: Resources, constraints: Constraints) -> Shape:
        """Return the shape with these requests and constraints, which is one object for equal ones."""
        key = (tuple(sorted(requests.items())), constraints)
        return self._interned.setdefault(key, Shape(requests, constraints))


def _digest(parts: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(parts), digest_size=16).digest()


def _digest_of(spec: PodSpec, namespace: str, devices: tuple[object, ...]) -> bytes:
    """Return a digest of the parts of a pod's spec that determine its shape."""
    amounts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
    demands = (spec.node_selector, spec.affinity, spec.tolerations, _scheduler_rules(spec))
    return _digest((namespace, amounts, demands, devices))


def node_taints(taints: list[Taint] | None, is_cordoned: bool) -> tuple[Taint, ...]:
    """Return a node's taints. A cordoned node also has the taint that the node controller adds."""
    in_spec = tuple(taints or ())
    return (*in_spec, CORDON_TAINT) if is_cordoned else in_spec


def constraints_of(spec: PodSpec, namespace: str) -> Constraints:
    """Return the constraints of a pod. If they exceed the limits, no node meets them."""
    if excess := _excess_text(spec):
        return Constraints(node_terms=_NO_NODES, excess=excess)
    affinity = spec.affinity or Affinity()
    node_affinity = affinity.node_affinity.required if affinity.node_affinity else None
    attraction, repulsion = affinity.pod_affinity, affinity.pod_anti_affinity
    return Constraints(
        node_labels=tuple(sorted((spec.node_selector or {}).items())),
        node_terms=msgspec.json.encode(node_affinity.node_selector_terms) if node_affinity else b"",
        tolerations=tuple(spec.tolerations or ()),
        ports=_host_ports(spec),
        affinity=_terms(attraction.required, namespace) if attraction else (),
        anti_affinity=_terms(repulsion.required, namespace) if repulsion else (),
        scheduler_rules=_scheduler_rules(spec),
    )


def _narrow(constraints: Constraints, selectors: Iterable[Sequence[NodeSelectorTerm]]) -> Constraints:
    """Return constraints that also require all node selectors.

    A node must meet at least one term of each selector.
    """
    terms = _node_terms(constraints.node_terms) or [NodeSelectorTerm()]
    for selector in () if constraints.excess else selectors:
        if len(terms) * len(selector) <= MAX_TERMS:  # further selectors are left to the scheduler
            terms = [_with_both(one, other) for one in terms for other in selector]
    encoded_terms = msgspec.json.encode(terms) if terms != [NodeSelectorTerm()] else constraints.node_terms
    return constraints._replace(node_terms=encoded_terms)


def _with_both(one: NodeSelectorTerm, other: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return a term that requires both terms."""
    expressions = [*(one.match_expressions or ()), *(other.match_expressions or ())]
    return NodeSelectorTerm(expressions, [*(one.match_fields or ()), *(other.match_fields or ())])


def _excess_text(spec: PodSpec) -> str:
    """Return the constraints of a pod that exceed a limit, for users; empty if no limit is exceeded."""
    affinity = spec.affinity or Affinity()
    sides = affinity.pod_affinity, affinity.pod_anti_affinity
    term_count = sum(len(side.required or ()) for side in sides if side)
    if term_count > MAX_TERMS:
        return f"{term_count} required pod (anti-)affinity terms: must be at most {MAX_TERMS}"
    port_count = sum(len(container.ports or ()) for container in spec.containers)
    host_ports = len(_host_ports(spec)) if port_count > MAX_PORTS else 0
    if host_ports > MAX_PORTS:
        return f"{host_ports} host ports: must be at most {MAX_PORTS}"
    parts = (spec, *spec.containers, *(spec.init_containers or ()))
    requests = [part.resources.requests for part in parts if part.resources and part.resources.requests]
    resource_count = len(set().union(*requests)) if sum(map(len, requests)) > MAX_RESOURCES else 0
    if resource_count > MAX_RESOURCES:
        return f"{resource_count} resources: must be at most {MAX_RESOURCES}"
    text = msgspec.msgpack.encode((spec.node_selector, affinity, spec.tolerations, _scheduler_rules(spec)))
    if len(text) > MAX_TEXT_BYTES:
        size, limit = len(text) // 1024, MAX_TEXT_BYTES // 1024
        return f"{size} KiB of selectors, affinity, tolerations and volumes: must be at most {limit}"
    return ""


def _scheduler_rules(spec: PodSpec) -> tuple[bytes, ...]:
    """Return the constraints that only the scheduler evaluates, as written: spreading, volumes and claims."""
    volumes = (raw for each in spec.volumes or () for raw in (each.persistent_volume_claim, each.ephemeral))
    claims = (msgspec.json.encode(spec.resource_claims),) if spec.resource_claims else ()
    texts = (bytes(raw) for raw in (spec.topology_spread_constraints, *volumes))
    return (*(raw for raw in texts if raw not in (b"", b"null")), *claims)


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers."""
    return tuple(
        HostPort(port.protocol or "TCP", port.host_ip or _ANY_ADDRESS, port.host_port)
        for container in spec.containers
        for port in container.ports or ()
        if port.host_port
    )


def _terms(terms: list[pods.PodAffinityTerm] | None, namespace: str) -> tuple[Term, ...]:
    """Return the terms of an affinity, each term once.

    A namespace selector counts as all namespaces, which selects at least as many pods.
    """
    all_terms = (
        Term(
            term.topology_key,
            None if term.namespace_selector is not None else frozenset(term.namespaces or [namespace]),
            msgspec.json.encode(term.label_selector),
        )
        for term in terms or ()
    )
    return tuple(dict.fromkeys(all_terms))


def _foreign_anti_affinity(spec: PodSpec, namespace: str) -> tuple[Term, ...]:
    """Return the required anti-affinity of a pod of another scheduler.

    Some terms are left to the scheduler: terms beyond the first few, and terms that select namespaces by
    labels, because the labels of namespaces are not known here.
    """
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return ()
    terms = spec.affinity.pod_anti_affinity.required or ()
    readable = [term for term in terms if term.namespace_selector in (None, _ANY_NAMESPACE)]
    return _terms(readable[:_MAX_FOREIGN_TERMS], namespace)


def _selector_of(encoded: bytes) -> LabelSelector | None:
    """Return a parsed label selector. Long selectors have a small cache of their own."""
    return _parse(encoded) if len(encoded) <= _MAX_CACHED_BYTES else _parse_long(encoded)


@lru_cache(maxsize=MAX_SELECTORS)
def _parse(encoded: bytes) -> LabelSelector | None:
    return msgspec.json.decode(encoded, type=LabelSelector | None)


_parse_long = lru_cache(maxsize=64)(_parse.__wrapped__)  # few entries, as they outlive their pods


def requests_of(shapes: Mapping[Shape, int]) -> dict[str, int]:
    """Return the joint requests of pods, given the number of pods of each shape."""
    sums: dict[str, int] = {}
    for shape, count in shapes.items():
        for name, amount in shape.requests.items():
            sums[name] = sums.get(name, 0) + amount * count
    return sums


def total_requests(shapes: Iterable[Shape]) -> dict[str, int]:
    """Return the joint requests of pods, given the shape of each pod."""
    all_shapes = tuple(shapes)  # often a single shape
    return dict(all_shapes[0].requests) if len(all_shapes) == 1 else requests_of(Counter(all_shapes))


def is_any_port_used(ports: tuple[HostPort, ...], used_ports: Iterable[HostPort]) -> bool:
    """Return whether any of `ports` is used on the same address.

    An unspecified address means all addresses.
    """
    by_port: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for port in ports:
        by_port[port.protocol, port.port].append(port.address)
    pairs = (
        (own, other.address) for other in used_ports for own in by_port.get((other.protocol, other.port), ())
    )
    return any(own == other or _ANY_ADDRESS in (own, other) for own, other in pairs)


Pair = tuple[str, str]
LabelPairs = tuple[Pair, ...]
_IndexKey = tuple[str, str, str | None]  # namespace, label, value; "" and None stand for any of them
_ANY_NAMESPACE_NAME = ""
_MIN_CANDIDATES, _MAX_RESULTS = 32, 64  # results are cached from so many candidates on, up to a limit


class TermIndex:
    """Index of (anti-)affinity terms by the labels that they require.

    With the index, a pod is compared with few terms only. In each namespace that it covers, a term has an
    entry for one label pair that its selector requires. The pair with the fewest terms so far is used,
    because a label that all jobs have does not narrow the search. If a term requires no label pair, but a
    label of any value, it has an entry for the name of this label. All other terms share one entry.
    """

    def __init__(self) -> None:
        self._terms_at: defaultdict[_IndexKey, dict[Term, None]] = defaultdict(dict)
        self._keys_by_term: dict[Term, tuple[_IndexKey, ...]] = {}
        self._label_counts: Counter[str] = Counter()  # number of terms that mention a label
        self._cached_terms: dict[tuple[str, LabelPairs], list[Term]] = {}

    def __len__(self) -> int:
        return len(self._keys_by_term)

    def __iter__(self) -> Iterator[Term]:
        return iter(self._keys_by_term)

    def add(self, term: Term) -> None:
        """Add a term under keys that fit every pod that the term selects."""
        selector = term.label_selector
        index_keys: list[_IndexKey] = []
        if selector is not None:  # without a selector, the term selects no pod
            for namespace in (_ANY_NAMESPACE_NAME,) if term.namespaces is None else sorted(term.namespaces):
                index_keys += self._keys_for(namespace, selector)
        self._keys_by_term[term] = tuple(index_keys)
        self._label_counts.update(_mentioned_keys(selector))
        self._cached_terms.clear()
        for index_key in index_keys:
            self._terms_at[index_key][term] = None

    def remove(self, term: Term) -> None:
        for key in _mentioned_keys(term.label_selector):
            self._label_counts[key] -= 1
            if not self._label_counts[key]:
                del self._label_counts[key]
        self._cached_terms.clear()
        for index_key in self._keys_by_term.pop(term):
            del self._terms_at[index_key][term]
            if not self._terms_at[index_key]:
                del self._terms_at[index_key]

    def terms_selecting(self, namespace: str, labels: Labels) -> list[Term]:
        """Return the terms that select a pod.

        The list must not be changed: if many terms may select the pod, the list is cached until terms are
        added or removed.
        """
        if not self._keys_by_term:
            return []
        key = namespace, self.mentioned_labels(labels)
        if (known_terms := self._cached_terms.get(key)) is not None:
            return known_terms
        candidates = self.candidates(namespace, labels)
        selecting_terms = [term for terms in candidates for term in terms if term.matches(namespace, labels)]
        if sum(map(len, candidates)) > _MIN_CANDIDATES:
            if len(self._cached_terms) >= _MAX_RESULTS:
                self._cached_terms.clear()
            self._cached_terms[key] = selecting_terms
        return selecting_terms

    def mentioned_labels(self, labels: Labels) -> LabelPairs:
        """Return the labels of a pod that any term mentions.

        Pods of a namespace with equal mentioned labels are selected by the same terms. The pods of an Indexed
        Job, for example, differ only in a label that no term mentions.
        """
        return tuple((key, value) for key, value in labels.items() if key in self._label_counts)

    def candidates(self, namespace: str, labels: Labels) -> list[Collection[Term]]:
        """Return the terms that may select a pod, by index key."""
        terms = self._terms_at
        return [terms[key] for key in _keys_of(namespace, labels) if key in terms]

    def copy(self) -> "TermIndex":
        """Return a copy that later changes to this index do not affect. The terms are shared."""
        index = TermIndex()
        index._terms_at = defaultdict(dict, {key: dict(terms) for key, terms in self._terms_at.items()})
        index._keys_by_term, index._label_counts = dict(self._keys_by_term), self._label_counts.copy()
        return index

    def _keys_for(self, namespace: str, selector: LabelSelector) -> Iterable[_IndexKey]:
        """Return the index keys for a selector in a namespace: the keys with the fewest terms so far."""
        choices = [[(namespace, *pair) for pair in pairs] for pairs in required_pairs(selector)]
        if choices:
            return min(choices, key=lambda each: sum(len(self._terms_at.get(key, ())) for key in each))
        requirements = selector.match_expressions or ()
        keys = (requirement.key for requirement in requirements if requirement.operator == "Exists")
        return [(namespace, next(keys, ""), None)]


def _mentioned_keys(selector: LabelSelector | None) -> set[str]:
    """Return the labels on which a selector depends."""
    if selector is None:
        return set()
    return {*(selector.match_labels or ()), *(each.key for each in selector.match_expressions or ())}


def required_pairs(selector: LabelSelector) -> list[list[Pair]]:
    """Return lists of label pairs. Every pod that the selector selects has at least one pair of each list."""
    pairs = [[pair] for pair in (selector.match_labels or {}).items()]
    chosen = [requirement for requirement in selector.match_expressions or () if requirement.operator == "In"]
    return pairs + [
        [(requirement.key, value) for value in dict.fromkeys(requirement.values or ())]
        for requirement in chosen
    ]


def _keys_of(namespace: str, labels: Labels) -> Iterator[_IndexKey]:
    """Yield the index keys of all terms that may select a pod with these labels."""
    for where in (namespace, _ANY_NAMESPACE_NAME):
        yield (where, "", None)
        for key, value in labels.items():
            yield (where, key, value)
            yield (where, key, None)
