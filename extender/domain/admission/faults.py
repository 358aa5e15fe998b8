"""Faults, for which an object is refused, and warnings, with which it is accepted.

A fault names the field, the value and the allowed values for users, and has a code for programs. Warnings
concern ignored fields, and workloads whose pods cannot follow their queue or their gang.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from extender.api import keys
from extender.api.units import name_hint
from extender.api.workloads.children import SHAPE_ERRORS
from extender.api.workloads.gangs import IN_TURN_TEXT, ORDERED_READY, Defaults, gang_of_replicas, gang_size_of
from extender.api.workloads.pod_sets import JobPodSet, pod_sets
from extender.api.workloads.shape import STATEFUL_SET, Json, value_at


class Code(StrEnum):
    """Closed list of fault codes: faults of the object's own values, then conflicts with other objects."""

    INVALID_STATE = "InvalidState"
    WEIGHT_BELOW_MIN = "WeightBelowMin"
    NOT_A_QUANTITY = "NotAQuantity"
    NOT_A_RESOURCE = "NotAResource"
    NEGATIVE_QUANTITY = "NegativeQuantity"
    DESERVED_BELOW_GUARANTEE = "DeservedBelowGuarantee"
    DESERVED_ABOVE_CAPABILITY = "DeservedAboveCapability"
    LENDING_ABOVE_DESERVED = "LendingAboveDeserved"
    OVERSELL_OUT_OF_RANGE = "OversellOutOfRange"
    HIERARCHY_LENGTH_MISMATCH = "HierarchyLengthMismatch"
    HIERARCHY_WEIGHT_NOT_NUMBER = "HierarchyWeightNotNumber"
    HIERARCHY_WEIGHT_NOT_POSITIVE = "HierarchyWeightNotPositive"
    SELF_PARENT = "SelfParent"
    TOPOLOGY_BOTH_TIERS = "TopologyBothTiers"
    NEGATIVE_REPLICAS = "NegativeReplicas"
    DUPLICATE_TASK_NAME = "DuplicateTaskName"
    MIN_AVAILABLE_ABOVE_REPLICAS = "MinAvailableAboveReplicas"
    DEPENDS_ON_INVALID = "DependsOnInvalid"
    POLICY_BOTH = "PolicyBoth"
    POLICY_NEITHER = "PolicyNeither"
    POLICY_INVALID_EVENT = "PolicyInvalidEvent"
    POLICY_INVALID_ACTION = "PolicyInvalidAction"
    POLICY_ANY_EXCLUSIVE = "PolicyAnyExclusive"
    POLICY_EXIT_CODE_ZERO = "PolicyExitCodeZero"
    POLICY_DUPLICATE_EXIT_CODE = "PolicyDuplicateExitCode"
    DUPLICATE_POLICY_EVENT = "DuplicatePolicyEvent"
    UNKNOWN_JOB_PLUGIN = "UnknownJobPlugin"
    JOB_NOT_VALID = "JobNotValid"
    JOB_IMMUTABLE = "JobImmutable"
    BUDGET_NOT_VALID = "BudgetNotValid"
    BUDGET_TWICE = "BudgetTwice"
    ON_LOST_DOMAIN_NOT_VALID = "OnLostDomainNotValid"
    FLAVOR_NOT_VALID = "FlavorNotValid"
    NOT_READABLE = "NotReadable"
    INVALID_OPERATION = "InvalidOperation"

    HIERARCHY_SUBPATH = "HierarchySubpath"
    PARENT_NOT_FOUND = "ParentNotFound"
    PARENT_HAS_PODS = "ParentHasPods"
    DEPTH_EXCEEDED = "DepthExceeded"
    CAPABILITY_ABOVE_ANCESTOR = "CapabilityAboveAncestor"
    CAPABILITY_BELOW_DESCENDANT = "CapabilityBelowDescendant"
    CHILDREN_GUARANTEE_SUM = "ChildrenGuaranteeSum"
    CHILDREN_DESERVED_SUM = "ChildrenDeservedSum"
    ROOT_IMMUTABLE = "RootImmutable"
    PROTECTED_QUEUE = "ProtectedQueue"
    HAS_CHILDREN = "HasChildren"
    HAS_ALLOCATED_PODS = "HasAllocatedPods"
    NOT_CLOSED = "NotClosed"
    FLAVOR_IN_USE = "FlavorInUse"
    LEVEL_NOT_FOUND = "LevelNotFound"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    QUEUE_IS_ROOT = "QueueIsRoot"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    USE_NOT_GRANTED = "UseNotGranted"
    PODS_NOT_REVIEWED = "PodsNotJudged"
    GROUP_HAS_STARTED = "GroupHasStarted"
    RESIZE_ABOVE_CEILING = "ResizeAboveCeiling"

    NOT_NOW = "NotNow"

    @property
    def is_inherent(self) -> bool:
        """Return whether the object itself is wrong, independent of other objects in the cluster."""
        return _POSITION_BY_CODE[self] <= _POSITION_BY_CODE[Code.INVALID_OPERATION]

    @property
    def is_temporary(self) -> bool:
        """Return whether the same request may be accepted shortly afterwards."""
        return self is Code.NOT_NOW


_POSITION_BY_CODE = {code: number for number, code in enumerate(Code)}


class Fault(msgspec.Struct, frozen=True):
    """Fault of a field. `field` is a path such as spec.deserved[cpu].

    `message` has the value and the remedy.
    """

    code: Code
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def join_faults(faults: Iterable[Fault]) -> str:
    return "; ".join(map(str, faults))


_EACH_ITEM = "*"  # stands for each item of a list
_TOPOLOGY = f"annotate the pods with {keys.REQUIRED_TOPOLOGY}: the label of nodes of one domain"
_KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-"
_READ_KEYS = (
    *(keys.KUEUE_REQUIRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY),
    *(keys.KUEUE_SLICE_TOPOLOGY, keys.KUEUE_SLICE_SIZE),
    f"{_KUEUE_TOPOLOGY}unconstrained-topology",  # requests no topology
)
_MAX_WARNINGS = 8

# Ignored fields by API group and kind, with advice for users.
_IGNORED_FIELDS: Mapping[tuple[str, str], Mapping[tuple[str, ...], str]] = {
    ("scheduling.volcano.sh", "Queue"): {
        ("spec", "affinity"): "use node selectors, taints or spec.flavors to tie work to nodes",
        ("spec", "extendClusters"): "Muster serves one cluster",
    },
    ("batch.volcano.sh", "Job"): {
        ("spec", "runningEstimate"): "use the annotation kube-muster.io/run-time",
        ("spec", "tasks", _EACH_ITEM, "maxRetry"): "use spec.maxRetry",
    },
    ("scheduling.x-k8s.io", "PodGroup"): {
        ("spec", "scheduleTimeoutSeconds"): "the start timeout of Muster applies to all groups"
    },
}
_ANNOTATIONS_PATH = ("metadata", "annotations")
_ANNOTATION_PATHS = (
    _ANNOTATIONS_PATH,
    ("spec", "template", "metadata", "annotations"),
    ("spec", "tasks", _EACH_ITEM, "template", "metadata", "annotations"),
)


def ignored_fields(group: str, kind: str, obj: Mapping[str, Any]) -> list[str]:
    """Return a warning for the user for each field of a new object that Muster ignores."""
    warnings: list[str] = []
    for path, advice in _IGNORED_FIELDS.get((group, kind), {}).items():
        warnings += [f"{field}: accepted and ignored; {advice}" for field, _ in _values_at(obj, path)]
    for path in _ANNOTATION_PATHS:
        for field, annotations in _values_at(obj, path):
            names = annotations if isinstance(annotations, dict) else ()
            ignored_keys = [key for key in names if key.startswith(_KUEUE_TOPOLOGY) and key not in _READ_KEYS]
            warnings += [f"{field}[{key[:100]}]: accepted and ignored; {_TOPOLOGY}" for key in ignored_keys]
    return warnings[:_MAX_WARNINGS]


def _values_at(value: Any, path: tuple[str, ...], field: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each non-empty value at a path, with its field."""
    if not path:
        if value:
            yield field, value
    elif path[0] == _EACH_ITEM:
        for number, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values_at(item, path[1:], f"{field}[{number}]")
    elif isinstance(value, dict):
        yield from _values_at(value.get(path[0]), path[1:], f"{field}.{path[0]}".lstrip("."))


def review_on_lost_domain(obj: Json) -> Iterator[Fault]:
    """Yield a fault for each unknown value of the annotation on an object or on its pod templates."""
    for path in _ANNOTATION_PATHS:
        for field, annotations in _values_at(obj, path):
            value = annotations.get(keys.ON_LOST_DOMAIN) if isinstance(annotations, dict) else None
            if value not in (None, keys.WAIT, keys.RESTART):
                text = f"invalid value {str(value)[:60]!r}: must be {keys.WAIT} or {keys.RESTART}"
                yield Fault(Code.ON_LOST_DOMAIN_NOT_VALID, f"{field}[{keys.ON_LOST_DOMAIN}]", text)


# Annotations that name a level, by the part of the request. Muster's annotations precede Kueue's annotations.
_LEVELS = {
    "required": (keys.REQUIRED_TOPOLOGY, keys.KUEUE_REQUIRED_TOPOLOGY),
    "preferred": (keys.PREFERRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY),
    "slice": ("kube-muster.io/slice-topology", f"{_KUEUE_TOPOLOGY}slice-required-topology"),
}
_NETWORK_TOPOLOGIES = (
    ("spec", "networkTopology"),
    ("spec", "subGroupPolicy", _EACH_ITEM, "networkTopology"),
    ("spec", "tasks", _EACH_ITEM, "partitionPolicy", "networkTopology"),
)


class NamedLevel(NamedTuple):
    """Level of a topology that a field names.

    `parts` are the parts of a topology request to which the level applies, such as `required`.
    """

    field: str
    level: str
    parts: Collection[str]
    scope: str  # the object or its pods; requests of different scopes add up


class KnownLevels(NamedTuple):
    """Levels that a request may name: the levels of topologies, and all other labels of nodes."""

    topology_levels: Sequence[str]
    is_label: Callable[[str], bool]


def named_levels(obj: Json) -> Iterator[NamedLevel]:
    """Yield the levels that an object names.

    If several levels are for the same part of a request, the first of these levels counts.
    """
    for topology in _NETWORK_TOPOLOGIES:
        for field, value in _values_at(obj, topology):
            request = value if isinstance(value, dict) else {}
            if (tier := request.get("highestTierName") or request.get("highestTierAllowed")) is not None:
                yield NamedLevel(field, f"tier:{tier}", _LEVELS, field.replace("spec.networkTopology", ""))
    for field, level in _values_at(obj, ("spec", "schedulingConstraints", "topology", _EACH_ITEM, "key")):
        yield NamedLevel(field, str(level), _LEVELS, "")
    for path in _ANNOTATION_PATHS:
        for field, annotations in _values_at(obj, path):
            levels = annotations if isinstance(annotations, dict) else {}
            scope = field.removesuffix("metadata.annotations")
            for part, names in _LEVELS.items():
                for key in filter(levels.get, names):
                    yield NamedLevel(f"{field}[{key}]", str(levels[key]), (part,), scope)


def level_faults(levels: Iterable[NamedLevel], known: KnownLevels) -> Iterator[Fault]:
    """Yield a fault for each level that neither a topology nor a node has."""
    known_levels = known.topology_levels
    for field, level, *_ in levels:
        if level not in known_levels and not known.is_label(level):
            hint = name_hint(level, known_levels) if known_levels else "there are no topologies"
            text = f"invalid value {level[:100]!r}, which no topology has as a level and no node as a label"
            yield Fault(Code.LEVEL_NOT_FOUND, field, f"{text}; {hint}")


def contradicting_levels(levels: Iterable[NamedLevel]) -> Iterator[str]:
    """Yield a warning for each level that has no effect, because an earlier field names a different level."""
    effective_levels: dict[tuple[str, str], NamedLevel] = {}
    for item in levels:
        first_levels = [effective_levels.setdefault((item.scope, part), item) for part in item.parts]
        first, level = first_levels[0], item.level
        if level != first.level:
            yield f"{item.field}: {level[:100]!r} does not count: {first.field} names {first.level[:100]!r}"


def workload_warnings(workload: Json, schedulers: Collection[str]) -> Iterator[str]:
    """Yield warnings for users about an object whose controller creates pods for one of `schedulers`.

    Args:
        workload: The object in the form of the API.
        schedulers: Values of spec.schedulerName.
    """
    with suppress(*SHAPE_ERRORS, msgspec.ValidationError):  # the API server refuses unreadable objects
        if (workload.get("apiVersion"), workload.get("kind")) == STATEFUL_SET:
            yield from (
                warning
                for pod_set in pod_sets(workload)
                if _scheduler_of(pod_set) in schedulers
                for warning in _turn_warnings(workload, pod_set)
            )


def _scheduler_of(pod_set: JobPodSet) -> str:
    return str(value_at(pod_set.template, ("spec", "schedulerName")) or keys.DEFAULT_SCHEDULER)


def _turn_warnings(stateful_set: Json, pod_set: JobPodSet) -> Iterator[str]:
    """Yield a warning for a gang whose pods are created only one after the other."""
    policy = value_at(stateful_set, ("spec", "podManagementPolicy")) or ORDERED_READY
    gang = gang_of_replicas(value_at(stateful_set, _ANNOTATIONS_PATH) or {}, pod_set.count, policy)
    template = (value_at(pod_set.template, _ANNOTATIONS_PATH) or {}).get(keys.MIN_MEMBER, "")
    fault = gang_size_of(gang, template, Defaults(), waits=False).fault
    if IN_TURN_TEXT in fault:
        yield fault
