"""Faults of an object: the field, the value, and what is allowed, for people, and a code for programs."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Code(StrEnum):
    """The closed list of faults: first those of the object's own values, then those of others around it."""

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
    def about_value(self) -> bool:
        """Return whether the object itself is wrong, independent of other objects in the cluster."""
        return _ORDER[self] <= _ORDER[Code.INVALID_OPERATION]

    @property
    def passing(self) -> bool:
        """Return whether the same request may pass a moment later."""
        return self is Code.NOT_NOW


_ORDER = {code: number for number, code in enumerate(Code)}


class Fault(msgspec.Struct, frozen=True):
    """`field`: a path such as spec.deserved[cpu]; `message`: the value and the remedy."""

    code: Code
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def joined(faults: Iterable[Fault]) -> str:
    return "; ".join(map(str, faults))
