"""Shapes: all that decides which nodes can run a pod. Pods of one shape are interchangeable."""

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
    """Interned labels of pods: equal labels are one object, freed with the last pod that has them."""

    __slots__ = ("__weakref__",)


class SharedLabels:
    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, PodLabels] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def intern(self, labels: Mapping[str, str] | None) -> Labels:
        """Return a mapping equal to `labels`, normally the same object for all equal ones."""
        number = hash(frozenset(labels.items())) if labels else 0
        known = self._known.get(number)
        if known is not None and known == (labels or {}):
            return known
        new = self._known[number] = PodLabels({intern(key): text for key, text in (labels or {}).items()})
        return new


# Shapes: everything that decides which nodes can take a pod.
#
# A template's thousand pods share one Shape object (`Shapes` interns them), so masks over nodes and
# failures to fit are computed once per shape, not once per pod. It is freed with the last of them.

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_ANY_ADDRESS = "0.0.0.0"
_ANY_NAMESPACE = LabelSelector()
_MOST_OF_OTHERS = 8  # terms that are followed for one pod of another scheduler
_MOST_PARTS = 64  # cached parts of one shape; beyond this, most are outdated
# Limits on the constraints of one pod, far above real ones. The group of a pod beyond them waits.
MOST_TERMS, MOST_PORTS, MOST_RESOURCES, MOST_TEXT = 64, 256, 256, 128 * 1024
CACHED_SELECTORS = 4096  # parsed selectors of terms
_SHORT = 8 * 1024  # bytes of a node affinity or selector that is cached once parsed
_NOWHERE = b"[]"  # a node affinity that no node meets


class HostPort(NamedTuple):
    protocol: str
    address: str
    port: int


class Term(NamedTuple):
    """Required pod (anti-)affinity term."""

    topology_key: str
    namespaces: frozenset[str] | None  # namespaces in which it selects pods; None: all
    selector: bytes  # a LabelSelector as JSON, so that terms can be hashed

    @property
    def label_selector(self) -> LabelSelector | None:
        """Return the selector of pods; None selects no pod."""
        return _selector(self.selector)

    def matches(self, namespace: str, labels: Labels) -> bool:
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return selects(self.label_selector, labels)


class Constraints(NamedTuple):
    """Constraints of a pod on a node, apart from amounts."""

    node_labels: tuple[tuple[str, str], ...] = ()  # spec.nodeSelector, sorted
    node_terms: bytes = b""  # the required node affinity's terms as JSON; empty if there are none
    tolerations: tuple[Toleration, ...] = ()  # as written
    ports: tuple[HostPort, ...] = ()  # the host ports of its containers
    affinity: tuple[Term, ...] = ()  # required terms only
    anti_affinity: tuple[Term, ...] = ()  # required terms only
    # Constraints that only the scheduler evaluates (spreading, volumes, devices), as written: its refusal of
    # a node to one pod does not count for pods that differ in these.
    unplanned: tuple[bytes, ...] = ()
    excess: str = ""  # constraints beyond what is evaluated, for users: then no node fits


class Shape:
    """Shape: the requests and constraints that pods share.

    Shapes are compared by identity: only `Shapes` and `on_part` make them.

    Attributes:
        number: Unique number of the shape.
    """

    __slots__ = (
        *("__weakref__", "_anywhere", "_shared", "_within"),
        *("constraints", "looks_at_others", "number", "requests", "suits", "terms"),
    )

    def __init__(
        self,
        requests: Resources,
        constraints: Constraints,
        part: NodePart | None = None,
        anywhere: "Shape | None" = None,
        shared: "Shape | None" = None,
    ) -> None:
        self.number = next(_NUMBERS)
        self._shared = shared  # the shape of which this is a namespace's copy, or an unevaluated one
        self.requests = requests
        self.constraints = constraints
        self.suits = NodeTest(constraints, part)
        self.terms: tuple[Term, ...] = constraints.affinity + constraints.anti_affinity
        self.looks_at_others = bool(constraints.ports or self.terms)
        self._anywhere = anywhere  # the same shape on all nodes, if this one is bound to a part
        self._within: dict[NodePart, Shape] = {}

    @property
    def on_all_nodes(self) -> "Shape":
        """Return the same shape, not bound to a part of the nodes."""
        return self._anywhere or self

    def asks_at_most(self, amounts: Resources) -> bool:
        """Return whether a pod asks for no more than `amounts` of anything."""
        return all(n <= amounts.get(name, 0) for name, n in self.requests.items())

    def on_part(self, part: NodePart) -> "Shape":
        """Return the shape on a part of the nodes only; the same object for equal parts."""
        known = self.on_all_nodes._within
        if part not in known:
            if len(known) >= _MOST_PARTS:
                known.clear()
            known[part] = Shape(self.requests, self.constraints, part, self.on_all_nodes)
        return known[part]


_NUMBERS = itertools.count()


class NodeTest:
    """Test of a node for a shape: labels, taints, and the part of the nodes that the shape is bound to.

    Attributes:
        key: Short key, equal for shapes that differ only in requests.
        labels: Pairs that a node must have.
        is_large: Whether its terms are long, and read again each time.
    """

    __slots__ = ("_read", "_terms", "_tolerations", "is_large", "key", "labels", "part")

    def __init__(self, constraints: Constraints, part: NodePart | None = None) -> None:
        self.part = part
        self.labels = constraints.node_labels
        self._terms = constraints.node_terms
        self._tolerations = constraints.tolerations
        self.is_large = len(self._terms) > _SHORT
        self._read = None if self.is_large else _node_terms(self._terms)
        within = part and (part.labels, part.before)
        self.key = _digest((self.labels, self._terms, self._tolerations, within))

    @property
    def terms(self) -> list[NodeSelectorTerm] | None:
        """Return the terms of which one must admit a node; None: all nodes are admitted."""
        return _node_terms(self._terms) if self.is_large else self._read

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


def _node_terms(written: bytes) -> list[NodeSelectorTerm] | None:
    return msgspec.json.decode(written, type=list[NodeSelectorTerm]) if written else None


class Shapes:
    """Interned shapes and labels: equal pods share one of each, freed with the last pod that has it."""

    def __init__(self, logical: LogicalResources | None = None) -> None:
        self.labels = SharedLabels()
        self.devices = DeviceRequests(logical or LogicalResources())
        self._known: WeakValueDictionary[tuple[object, ...], Shape] = WeakValueDictionary()
        # By a digest of the fields, so that known constraints need no parsing.
        self._written: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()
        # Separate shapes, by namespace and by number of the general shape.
        self._own: WeakValueDictionary[tuple[str, int], Shape] = WeakValueDictionary()

    def shape_of(self, spec: PodSpec, namespace: str) -> Shape:
        """Return the shape of a pod's specification.

        Raises:
            BadQuantity: A request cannot be read.
        """
        written = _digest_of(spec, namespace, self.devices.key_of(spec, namespace))
        shape = self._written.get(written)
        if shape is None:
            requests = self.devices.counted(pod_requests(spec), spec, namespace)
            constraints = _within(constraints_of(spec, namespace), self.devices.nodes_of(spec, namespace))
            if constraints.excess:  # the pod waits anyway, so only a few of its resource names are kept
                few = sorted(requests.items(), key=lambda item: ("/" in item[0], item[0]))[:MOST_RESOURCES]
                requests = dict(few)
            shape = self._interned(requests, constraints)
            self._written[written] = shape
        return self.current(shape, namespace)

    def current(self, shape: Shape, namespace: str) -> Shape:
        """Return the separate shape that the namespace has for a shape; without one, the shape itself."""
        return self._own.get((namespace, shape.number), shape)

    def separate(self, namespace: str, shape: Shape) -> Shape:
        """Return a separate shape for pods of this namespace, from now on.

        The scheduler's refusals in this namespace do not count in others: a volume of the same name is
        another one there.
        """
        own = self._own.get((namespace, shape.number))
        if own is None:
            own = Shape(shape.requests, shape.constraints, shared=shape)
            self._own[namespace, shape.number] = self._own[namespace, own.number] = own
        return own

    def unevaluated(self, shape: Shape, excess: str) -> Shape:
        """Return the shape for a pod that has to wait, since its constraints exceed what is evaluated."""
        known = self._own.get((excess, shape.number))  # a sentence is never the name of a namespace
        if known is None:
            known = Shape(shape.requests, Constraints(node_terms=_NOWHERE, excess=excess), shared=shape)
            self._own[excess, shape.number] = known
        return known

    def with_requests(self, shape: Shape, requests: Resources) -> Shape:
        """Return the shape of a pod with other requests, for the nodes that suit pods of `shape`."""
        of_nodes = shape.constraints
        return self._interned(
            requests, Constraints(of_nodes.node_labels, of_nodes.node_terms, of_nodes.tolerations)
        )

    def foreign_shape(self, spec: PodSpec, namespace: str) -> Shape:
        """Return the shape of a pod of another scheduler: requests, host ports, and anti-affinity.

        Its constraints on nodes, which differ from pod to pod of a DaemonSet, are left out.

        Raises:
            BadQuantity: A request cannot be read.
        """
        apart = _foreign_anti_affinity(spec, namespace)
        amounts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
        written = _digest((amounts, apart, self.devices.key_of(spec, namespace)))
        shape = self._written.get(written)
        if shape is None:
            constraints = Constraints(ports=_host_ports(spec), anti_affinity=apart)
            requests = self.devices.counted(pod_requests(spec), spec, namespace)
            shape = self._interned(requests, constraints)
            self._written[written] = shape
        return shape

    def __len__(self) -> int:
        return len(self._written)

    def _interned(self, requests: Resources, constraints: Constraints) -> Shape:
        key = (tuple(sorted(requests.items())), constraints)
        return self._known.setdefault(key, Shape(requests, constraints))


def _digest(parts: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(parts), digest_size=16).digest()


def _digest_of(spec: PodSpec, namespace: str, devices: tuple[object, ...]) -> bytes:
    """Return a digest of the parts of a pod's specification that determine its shape."""
    amounts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
    demands = (spec.node_selector, spec.affinity, spec.tolerations, _unplanned(spec))
    return _digest((namespace, amounts, demands, devices))


def node_taints(taints: list[Taint] | None, unschedulable: bool) -> tuple[Taint, ...]:
    """Return a node's taints; a cordon counts as the taint that the node controller adds for it."""
    tolerated = tuple(taints or ())
    return (*tolerated, UNSCHEDULABLE) if unschedulable else tolerated


def constraints_of(spec: PodSpec, namespace: str) -> Constraints:
    """Return the constraints of a pod; with more than can be evaluated, no node meets them."""
    if excess := _excess(spec):
        return Constraints(node_terms=_NOWHERE, excess=excess)
    affinity = spec.affinity or Affinity()
    node_affinity = affinity.node_affinity.required if affinity.node_affinity else None
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    return Constraints(
        node_labels=tuple(sorted((spec.node_selector or {}).items())),
        node_terms=msgspec.json.encode(node_affinity.node_selector_terms) if node_affinity else b"",
        tolerations=tuple(spec.tolerations or ()),
        ports=_host_ports(spec),
        affinity=_terms(near.required, namespace) if near else (),
        anti_affinity=_terms(apart.required, namespace) if apart else (),
        unplanned=_unplanned(spec),
    )


def _within(constraints: Constraints, selectors: Iterable[Sequence[NodeSelectorTerm]]) -> Constraints:
    """Return constraints that also require all node selectors: of each, one term must admit a node."""
    terms = _node_terms(constraints.node_terms) or [NodeSelectorTerm()]
    for selector in () if constraints.excess else selectors:
        if len(terms) * len(selector) <= MOST_TERMS:  # beyond that, only the scheduler evaluates it
            terms = [_both(one, other) for one in terms for other in selector]
    narrowed = msgspec.json.encode(terms) if terms != [NodeSelectorTerm()] else constraints.node_terms
    return constraints._replace(node_terms=narrowed)


def _both(one: NodeSelectorTerm, other: NodeSelectorTerm) -> NodeSelectorTerm:
    expressions = [*(one.match_expressions or ()), *(other.match_expressions or ())]
    return NodeSelectorTerm(expressions, [*(one.match_fields or ()), *(other.match_fields or ())])


def _excess(spec: PodSpec) -> str:
    """Return the part of a pod's constraints beyond what is evaluated, for users; empty if none."""
    affinity = spec.affinity or Affinity()
    sides = affinity.pod_affinity, affinity.pod_anti_affinity
    terms = sum(len(side.required or ()) for side in sides if side)
    if terms > MOST_TERMS:
        return f"{terms} required pod (anti-)affinity terms: must be at most {MOST_TERMS}"
    ports = sum(len(container.ports or ()) for container in spec.containers)
    host_ports = len(_host_ports(spec)) if ports > MOST_PORTS else 0
    if host_ports > MOST_PORTS:
        return f"{host_ports} host ports: must be at most {MOST_PORTS}"
    parts = (spec, *spec.containers, *(spec.init_containers or ()))
    requests = [part.resources.requests for part in parts if part.resources and part.resources.requests]
    resources = len(set().union(*requests)) if sum(map(len, requests)) > MOST_RESOURCES else 0
    if resources > MOST_RESOURCES:
        return f"{resources} resources: must be at most {MOST_RESOURCES}"
    text = msgspec.msgpack.encode((spec.node_selector, affinity, spec.tolerations, _unplanned(spec)))
    if len(text) > MOST_TEXT:
        size, most = len(text) // 1024, MOST_TEXT // 1024
        return f"{size} KiB of selectors, affinity, tolerations and volumes: must be at most {most}"
    return ""


def _unplanned(spec: PodSpec) -> tuple[bytes, ...]:
    """Return the constraints that only the scheduler evaluates, as written: spreading, volumes and claims."""
    volumes = (
        raw for volume in spec.volumes or () for raw in (volume.persistent_volume_claim, volume.ephemeral)
    )
    claims = (msgspec.json.encode(spec.resource_claims),) if spec.resource_claims else ()
    written = (bytes(raw) for raw in (spec.topology_spread_constraints, *volumes))
    return (*(raw for raw in written if raw not in (b"", b"null")), *claims)


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers."""
    return tuple(
        HostPort(port.protocol or "TCP", port.host_ip or _ANY_ADDRESS, port.host_port)
        for container in spec.containers
        for port in container.ports or ()
        if port.host_port
    )


def _terms(terms: list[pods.PodAffinityTerm] | None, namespace: str) -> tuple[Term, ...]:
    """Return each term once. A namespace selector counts as all namespaces, which selects no fewer pods."""
    found = (
        Term(
            term.topology_key,
            None if term.namespace_selector is not None else frozenset(term.namespaces or [namespace]),
            msgspec.json.encode(term.label_selector),
        )
        for term in terms or ()
    )
    return tuple(dict.fromkeys(found))


def _foreign_anti_affinity(spec: PodSpec, namespace: str) -> tuple[Term, ...]:
    """Return the required anti-affinity of a pod of another scheduler.

    Left to the scheduler are terms that select namespaces by labels, which are not known here, and terms
    beyond the first few.
    """
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return ()
    required = spec.affinity.pod_anti_affinity.required or ()
    known = [term for term in required if term.namespace_selector in (None, _ANY_NAMESPACE)]
    return _terms(known[:_MOST_OF_OTHERS], namespace)


def _selector(encoded: bytes) -> LabelSelector | None:
    return _read(encoded) if len(encoded) <= _SHORT else _read_long(encoded)


@lru_cache(maxsize=CACHED_SELECTORS)
def _read(encoded: bytes) -> LabelSelector | None:
    return msgspec.json.decode(encoded, type=LabelSelector | None)


_read_long = lru_cache(maxsize=64)(_read.__wrapped__)  # few, because cached ones outlive their pods


def requests_of(shapes: Mapping[Shape, int]) -> dict[str, int]:
    """Return the joint requests of `shapes`, a count of pods for each shape."""
    sums: dict[str, int] = {}
    for shape, count in shapes.items():
        for name, amount in shape.requests.items():
            sums[name] = sums.get(name, 0) + amount * count
    return sums


def total_requests(shapes: Iterable[Shape]) -> dict[str, int]:
    """Return the joint requests of pods. `shapes`: the shape of each pod."""
    each = tuple(shapes)  # often only one
    return dict(each[0].requests) if len(each) == 1 else requests_of(Counter(each))


def conflicting_ports(ports: tuple[HostPort, ...], taken: Iterable[HostPort]) -> bool:
    """Return whether any of `ports` is taken on the same address; an unspecified address means all."""
    wanted: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for port in ports:
        wanted[port.protocol, port.port].append(port.address)
    similar = (
        (own, other.address) for other in taken for own in wanted.get((other.protocol, other.port), ())
    )
    return any(own == other or _ANY_ADDRESS in (own, other) for own, other in similar)


Pair = tuple[str, str]
Labelled = tuple[Pair, ...]
_Place = tuple[str, str, str | None]  # namespace, label, value; "" and None stand for any
_ANYWHERE = ""
_MANY, _MOST_CACHED = 32, 64  # candidate terms from which on results are cached, and number of cached results


class TermIndex:
    """(Anti-)affinity terms by the labels that they require, so that a pod is compared only with a few.

    In each namespace that it covers, a term is filed under one label pair that its selector requires: the
    pair with the fewest terms so far, since a label that all jobs have does not narrow the search. Terms
    that require no label pair are filed under a label's name, or all together if they require none.
    """

    def __init__(self) -> None:
        self._filed: defaultdict[_Place, dict[Term, None]] = defaultdict(dict)
        self._places: dict[Term, tuple[_Place, ...]] = {}
        self._keys: Counter[str] = Counter()  # the labels that terms mention
        self._selecting: dict[tuple[str, Labelled], list[Term]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Term]:
        return iter(self._places)

    def add(self, term: Term) -> None:
        """Add a term, under labels or keys that every pod has that it selects."""
        selector = term.label_selector
        places: list[_Place] = []
        if selector is not None:  # without a selector, the term selects no pod
            for namespace in (_ANYWHERE,) if term.namespaces is None else sorted(term.namespaces):
                places += self._places_in(namespace, selector)
        self._places[term] = tuple(places)
        self._keys.update(_mentioned_keys(selector))
        self._selecting.clear()
        for place in places:
            self._filed[place][term] = None

    def remove(self, term: Term) -> None:
        """Remove a term."""
        for key in _mentioned_keys(term.label_selector):
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]
        self._selecting.clear()
        for place in self._places.pop(term):
            del self._filed[place][term]
            if not self._filed[place]:
                del self._filed[place]

    def terms_selecting(self, namespace: str, labels: Labels) -> list[Term]:
        """Return the terms that select a pod.

        The list must not be changed: it is cached where many terms may select the pod, until terms
        come or go.
        """
        if not self._places:
            return []
        key = namespace, self.mentioned(labels)
        if (known := self._selecting.get(key)) is not None:
            return known
        candidates = self.candidates(namespace, labels)
        found = [term for filed in candidates for term in filed if term.matches(namespace, labels)]
        if sum(map(len, candidates)) > _MANY:
            if len(self._selecting) >= _MOST_CACHED:
                self._selecting.clear()
            self._selecting[key] = found
        return found

    def mentioned(self, labels: Labels) -> Labelled:
        """Return the labels of a pod that any term mentions.

        The same terms select all pods of a namespace for which these are equal, such as the pods of an
        Indexed Job, which differ in another label.
        """
        return tuple((key, value) for key, value in labels.items() if key in self._keys)

    def candidates(self, namespace: str, labels: Labels) -> list[Collection[Term]]:
        """Return the terms that may select a pod, as they are filed."""
        filed = self._filed
        return [filed[place] for place in _places_of(namespace, labels) if place in filed]

    def copy(self) -> "TermIndex":
        """Return an index that later changes to this one do not affect. Terms are shared."""
        copied = TermIndex()
        copied._filed = defaultdict(dict, {place: dict(terms) for place, terms in self._filed.items()})
        copied._places, copied._keys = dict(self._places), self._keys.copy()
        return copied

    def _places_in(self, namespace: str, selector: LabelSelector) -> Iterable[_Place]:
        """Return the places for a selector in a namespace: those with the fewest terms so far."""
        choices = [[(namespace, *pair) for pair in pairs] for pairs in required_pairs(selector)]
        if choices:
            return min(choices, key=lambda places: sum(len(self._filed.get(place, ())) for place in places))
        requirements = selector.match_expressions or ()
        keys = (requirement.key for requirement in requirements if requirement.operator == "Exists")
        return [(namespace, next(keys, ""), None)]


def _mentioned_keys(selector: LabelSelector | None) -> set[str]:
    """Return the labels that a selector depends on."""
    if selector is None:
        return set()
    return {*(selector.match_labels or ()), *(each.key for each in selector.match_expressions or ())}


def required_pairs(selector: LabelSelector) -> list[list[Pair]]:
    """Return lists of label pairs; every pod that the selector selects has one pair of each list."""
    pairs = [[pair] for pair in (selector.match_labels or {}).items()]
    chosen = [requirement for requirement in selector.match_expressions or () if requirement.operator == "In"]
    return pairs + [
        [(requirement.key, value) for value in dict.fromkeys(requirement.values or ())]
        for requirement in chosen
    ]


def _places_of(namespace: str, labels: Labels) -> Iterator[_Place]:
    """Yield the places where a term that selects such a pod may be filed."""
    for where in (namespace, _ANYWHERE):
        yield (where, "", None)
        for key, value in labels.items():
            yield (where, key, value)
            yield (where, key, None)
