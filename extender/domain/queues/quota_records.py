"""Queues that are made from quotas of other systems: amounts, names, faults, and the next step."""

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from extender.api import keys
from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue
from extender.api.units import BadQuantity, Quantity, rounded_down
from extender.domain.model.resources import CPU, MEMORY, is_counted, offered

Json = dict[str, Any]
Amounts = dict[str, Quantity]  # amounts as in the spec of a Queue
_MAX_NAMESPACES = 2000  # limit of namespaces in the annotation: the API server limits its size


class QuotaSource(NamedTuple):
    """Quota object from which a queue is made."""

    version: str  # apiVersion of the object
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """Return the quota's name in the form used by the annotation of its queue."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def from_meta(cls, version: str, kind: str, meta: Meta) -> "QuotaSource":
        return cls(version, kind, meta.namespace, meta.name, meta.uid)


class QuotaFault(NamedTuple):
    """Fault in a quota, for users."""

    source: QuotaSource
    where: str  # node and field with the fault
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class QuotaQueue(msgspec.Struct, frozen=True, gc=False):
    """Queue as its quota defines it. All other fields belong to the administrators of the queue."""

    name: str
    source: QuotaSource
    parent: str
    capability: Amounts = {}
    guarantee: Amounts = {}  # guaranteed amounts, which are also the deserved amounts
    max_groups: int | None = None  # limit of groups that run at the same time; None: no limit
    namespaces: tuple[str, ...] = ()  # namespaces whose pods and groups enter the queue, sorted
    is_unreadable: bool = False  # whether the quota is unreadable: the queue is neither created nor changed


class QuotaPlan(msgspec.Struct, frozen=True):
    """Plan of all queues that quotas ask for.

    Attributes:
        unsure_quotas: Quotas of which a part cannot be read. Existing queues of these quotas stay, even if
            they are not in the plan.
    """

    queues: dict[str, QuotaQueue] = {}  # queues by name, parents before their children
    namespaces: dict[str, str] = {}  # the queue that pods and groups of a namespace enter
    faults: tuple[QuotaFault, ...] = ()
    unsure_quotas: frozenset[str] = frozenset()


MAX_JOBS_KEY = "kube-queue/max-jobs"  # key of the limit of running jobs in the amounts of a tree
_MAX_GROUPS = 2**31 - 1
_ALMOST_NONE = {CPU: "1m", MEMORY: "1"}  # in a Queue, a capability of 0 for these resources means no limit


class QuotaAmounts(NamedTuple):
    """Amounts of a quota.

    Attributes:
        faults: Faults by field, such as min[cpu]. If there are faults, all other attributes are empty.
    """

    capability: Amounts = {}
    guarantee: Amounts = {}
    max_groups: int | None = None
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def max_amounts(self) -> dict[str, int]:
        """Return the amounts of the max, as numbers."""
        return offered(self.capability)

    @property
    def min_amounts(self) -> dict[str, int]:
        """Return the amounts of the min, as numbers."""
        return offered(self.guarantee)


def amounts_of(min_spec: Mapping[str, Any] | None, max_spec: Mapping[str, Any] | None) -> QuotaAmounts:
    """Return the amounts of a quota.

    Args:
        min_spec: The min of the quota, as written.
        max_spec: The max of the quota, as written.
    """
    faults: list[tuple[str, str]] = []
    min_amounts = _readable_amounts("min", min_spec or {}, faults)
    max_amounts = _readable_amounts("max", max_spec or {}, faults)
    jobs = max_amounts.pop(MAX_JOBS_KEY, None)
    min_amounts.pop(MAX_JOBS_KEY, None)
    faults = faults or [
        (f"min[{name}]", f"invalid value {min_amounts[name]}: must be the max, {max_amounts[name]}, or less")
        for name in min_amounts.keys() & max_amounts.keys()
        if rounded_down(min_amounts[name], 1000) > rounded_down(max_amounts[name], 1000)
    ]
    if faults:
        return QuotaAmounts(faults=tuple(sorted(faults)))
    return QuotaAmounts(
        max_amounts | {n: _ALMOST_NONE[n] for n in _ALMOST_NONE if offered(max_amounts).get(n, 1) <= 0},
        {name: amount for name, amount in min_amounts.items() if offered({name: amount})[name] > 0},
        None if jobs is None else min(rounded_down(jobs), _MAX_GROUPS),
    )


def _readable_amounts(field: str, amounts: Mapping[str, Any], faults: list[tuple[str, str]]) -> Amounts:
    """Return the readable amounts of resources that the scheduler counts.

    The faults of other amounts are added to `faults`.
    """
    readable: Amounts = {}
    for name, value in amounts.items():
        if not is_counted(name):
            continue
        try:
            # YAML reads 0.5 as a number, which Kubernetes accepts.
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise BadQuantity(f"{str(value)[:60]!r} is not a quantity such as 500m, 2 or 1.5Gi")
            text: Quantity = repr(value) if isinstance(value, float) else value
            rounded_down(text)
            readable[name] = text
            if rounded_down(readable[name], 1000) < 0:
                faults.append((f"{field}[{name}]", f"invalid value {value}: must be 0 or more"))
        except ValueError as fault:  # BadQuantity, or a number with more digits than Python prints
            faults.append((f"{field}[{name}]", f"invalid value {fault}"))
    return readable


_MAX_LABEL_LENGTH = 63  # limit for the value of a label, because pods may name their queue in a label
_VALID_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUOTA_SUFFIX = "-quota"


def queue_name(name: str) -> str:
    """Return the name of the queue for a quota's name: the same name, if a queue may have it.

    `root` and `default`, which every cluster has, get `-quota` as a suffix. Other names keep their allowed
    characters, and get a digest as a suffix, so that all names stay distinct.
    """
    if name in (ROOT_QUEUE, DEFAULT_QUEUE):
        return name + _QUOTA_SUFFIX
    if len(name) <= _MAX_LABEL_LENGTH and _VALID_NAME.fullmatch(name):
        return name
    readable = re.sub("[^a-z0-9]+", "-", name[:_MAX_LABEL_LENGTH].lower()).strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable[:40].rstrip('-') or 'queue'}-{digest}"


class QuotaStep(StrEnum):
    """Next step for a queue that a quota asks for, or asked for."""

    NOTHING = "nothing"
    CREATE = "create"
    CHANGE = "change"
    CLOSE = "close"
    DELETE = "delete"
    LEAVE = "leave"  # leave the queue alone, because it was not made from a quota


def quota_source(queue: Queue) -> str:
    """Return the quota from which a queue was made, by its annotation; empty if there is none."""
    return (queue.metadata.annotations or {}).get(keys.QUOTA_SOURCE, "")


def step_of(target: QuotaQueue | None, queue: Queue | None, *, is_empty: bool) -> QuotaStep:
    """Return the next step for a queue.

    Args:
        target: The queue as its quota defines it; None if no quota asks for it.
        queue: The existing queue; None if it does not exist.
        is_empty: Whether the queue has no groups and no queues below it.
    """
    if queue is None:
        return QuotaStep.NOTHING if target is None or target.is_unreadable else QuotaStep.CREATE
    if not quota_source(queue):
        return QuotaStep.NOTHING if target is None else QuotaStep.LEAVE
    if queue.metadata.deletion_timestamp:
        return QuotaStep.NOTHING
    if target is None:
        if not is_obsolete(queue) or queue.spec.state not in ("", "Closed"):
            return QuotaStep.CLOSE
        return QuotaStep.DELETE if is_empty and queue.status.state == "Closed" else QuotaStep.NOTHING
    return QuotaStep.CHANGE if not target.is_unreadable and queue_patch(target, queue) else QuotaStep.NOTHING


def is_obsolete(queue: Queue) -> bool:
    """Return whether the queue was closed because no quota asks for it any more."""
    return (queue.metadata.annotations or {}).get(keys.QUOTA_ENDED) == "true"


def entering_namespaces(annotations: Mapping[str, str] | None) -> list[str]:
    """Return the namespaces whose pods enter a queue, by the annotations that its quota caused."""
    text = (annotations or {}).get(keys.QUOTA_NAMESPACES, "")
    return text.split(",") if text else []


def annotations_of(target: QuotaQueue) -> dict[str, str]:
    """Return the annotations of a queue that name its quota and the namespaces that enter it."""
    text = ",".join(target.namespaces[:_MAX_NAMESPACES])
    return {keys.QUOTA_SOURCE: str(target.source)} | ({keys.QUOTA_NAMESPACES: text} if text else {})


def spec_of(target: QuotaQueue) -> Json:
    """Return the spec of a queue that is created for a quota."""
    spec: Json = {"weight": 1, "reclaimable": True, "parent": target.parent}
    if target.capability:
        spec["capability"] = target.capability
    if target.guarantee:
        spec |= {"deserved": target.guarantee, "guarantee": {"resource": target.guarantee}}
    if target.max_groups is not None:
        spec["limits"] = {"groups": target.max_groups}
    return spec


def queue_patch(target: QuotaQueue, queue: Queue) -> Json:
    """Return the changes to a queue as a merge patch; empty if nothing has to change."""
    spec, current = queue.spec, queue.metadata.annotations or {}
    own_keys = (keys.QUOTA_SOURCE, keys.QUOTA_NAMESPACES, keys.QUOTA_ENDED)
    annotations = dict.fromkeys(own_keys) | annotations_of(target)
    guarantee = _amounts_patch(spec.guarantee.resource if spec.guarantee else None, target.guarantee)
    amounts: Json = {
        "capability": _amounts_patch(spec.capability, target.capability),
        "deserved": _amounts_patch(spec.deserved, target.guarantee),
        "guarantee": {"resource": guarantee} if guarantee else None,
    }
    patch = {name: value for name, value in amounts.items() if value}
    if (spec.parent or keys.ROOT_QUEUE) != target.parent:
        patch["parent"] = target.parent
    if (spec.limits.groups if spec.limits else None) != target.max_groups:
        patch["limits"] = {"groups": target.max_groups}
    if is_obsolete(queue):
        patch["state"] = "Open"
    new_annotations = {name: value for name, value in annotations.items() if current.get(name) != value}
    metadata = {"metadata": {"annotations": new_annotations}} if new_annotations else {}
    return metadata | ({"spec": patch} if patch else {})


def _amounts_patch(current: dict[str, Quantity] | None, target: dict[str, Quantity]) -> Json | None:
    """Return the amounts to merge, with nulls for removed resources; None without a change."""
    current = current or {}
    try:
        is_same = current.keys() == target.keys() and offered(current) == offered(target)
    except BadQuantity:
        is_same = False
    return None if is_same else dict.fromkeys(current) | target
