"""Queues made from quotas of other systems: amounts, names, faults, and the next step."""

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
Written = dict[str, Quantity]  # amounts as a Queue has them
_MOST_LISTED = 2000  # most namespaces in the annotation, whose size the API server limits


class QuotaSource(NamedTuple):
    """Object that a queue is made from."""

    version: str  # its apiVersion
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """Return the name as the annotation of a queue has it."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def from_meta(cls, version: str, kind: str, meta: Meta) -> "QuotaSource":
        return cls(version, kind, meta.namespace, meta.name, meta.uid)


class QuotaFault(NamedTuple):
    """Fault in a quota, for users."""

    source: QuotaSource
    where: str  # the node and the field
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class QuotaQueue(msgspec.Struct, frozen=True, gc=False):
    """Queue as its quota defines it. Other fields belong to the queue's own administrators."""

    name: str
    source: QuotaSource
    parent: str
    capability: Written = {}
    guarantee: Written = {}  # also its specified deserved amounts
    most_groups: int | None = None  # how many groups may run at the same time; None: no limit
    namespaces: tuple[str, ...] = ()  # namespaces whose pods and groups enter it, sorted
    unreadable: bool = False  # its quota cannot be read: the queue is neither created nor changed


class QuotaPlan(msgspec.Struct, frozen=True):
    """Plan of all queues from quotas.

    `unsure`: sources with an unreadable part, whose missing queues may stay.
    """

    queues: dict[str, QuotaQueue] = {}  # by name; parents before their children
    namespaces: dict[str, str] = {}  # queue that the pods and groups of a namespace enter
    faults: tuple[QuotaFault, ...] = ()
    unsure: frozenset[str] = frozenset()


MOST_JOBS = "kube-queue/max-jobs"  # key in the amounts of a tree: the limit of running jobs
_MOST_GROUPS = 2**31 - 1
_ALMOST_NONE = {CPU: "1m", MEMORY: "1"}  # for a Queue, a capability of 0 of these means no limit


class QuotaAmounts(NamedTuple):
    """Amounts of a quota. `faults` by field: min[cpu]; with faults, the amounts are not used."""

    capability: Written = {}
    guarantee: Written = {}
    most_groups: int | None = None
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def largest(self) -> dict[str, int]:
        return offered(self.capability)

    @property
    def guaranteed(self) -> dict[str, int]:
        return offered(self.guarantee)


def amounts_of(least: Mapping[str, Any] | None, most: Mapping[str, Any] | None) -> QuotaAmounts:
    """Return the amounts of a quota; `least` is its min, `most` its max, as written."""
    faults: list[tuple[str, str]] = []
    low, high = _readable_amounts("min", least or {}, faults), _readable_amounts("max", most or {}, faults)
    jobs = high.pop(MOST_JOBS, None)
    low.pop(MOST_JOBS, None)
    faults = faults or [
        (f"min[{name}]", f"invalid value {low[name]}: must be the max, {high[name]}, or less")
        for name in low.keys() & high.keys()
        if rounded_down(low[name], 1000) > rounded_down(high[name], 1000)
    ]
    if faults:
        return QuotaAmounts(faults=tuple(sorted(faults)))
    return QuotaAmounts(
        {**high, **{name: least for name, least in _ALMOST_NONE.items() if offered(high).get(name, 1) <= 0}},
        {name: amount for name, amount in low.items() if offered({name: amount})[name] > 0},
        None if jobs is None else min(rounded_down(jobs), _MOST_GROUPS),
    )


def _readable_amounts(field: str, amounts: Mapping[str, Any], faults: list[tuple[str, str]]) -> Written:
    """Return the readable amounts; resources that the scheduler does not count are left out."""
    found: Written = {}
    for name, value in amounts.items():
        if not is_counted(name):
            continue
        try:
            # Raises BadQuantity. YAML reads 0.5 as a number, which Kubernetes accepts.
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise BadQuantity(f"{str(value)[:60]!r} is not a quantity such as 500m, 2 or 1.5Gi")
            text: Quantity = repr(value) if isinstance(value, float) else value
            rounded_down(text)
            found[name] = text
            if rounded_down(found[name], 1000) < 0:
                faults.append((f"{field}[{name}]", f"invalid value {value}: must be 0 or more"))
        except ValueError as fault:  # BadQuantity, or a number of more digits than Python prints
            faults.append((f"{field}[{name}]", f"invalid value {fault}"))
    return found


_LONGEST = 63  # the length of a label's value, since pods may name their queue in a label
_VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUFFIX = "-quota"


def queue_name(name: str) -> str:
    """Return a queue name for `name`: the same, if a queue may have it.

    `root` and `default`, which every cluster has, get `-quota` as a suffix. Other names keep their
    allowed characters, with a digest as a suffix, so that all names stay distinct.
    """
    if name in (ROOT_QUEUE, DEFAULT_QUEUE):
        return name + _SUFFIX
    if len(name) <= _LONGEST and _VALID.fullmatch(name):
        return name
    readable = re.sub("[^a-z0-9]+", "-", name[:_LONGEST].lower()).strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable[:40].rstrip('-') or 'queue'}-{digest}"


class QuotaStep(StrEnum):
    NOTHING = "nothing"
    CREATE = "create"
    CHANGE = "change"
    CLOSE = "close"
    DELETE = "delete"
    LEAVE = "leave"  # not made from a quota


def quota_source(queue: Queue) -> str:
    """Return the quota that a queue says it is made from, or an empty name."""
    return (queue.metadata.annotations or {}).get(keys.QUOTA_SOURCE, "")


def step_of(wanted: QuotaQueue | None, queue: Queue | None, *, empty: bool) -> QuotaStep:
    """Return the next step for a queue.

    `wanted`: None if no quota asks for it.
    `empty`: neither groups nor queues are in the queue.
    """
    if queue is None:
        return QuotaStep.NOTHING if wanted is None or wanted.unreadable else QuotaStep.CREATE
    if not quota_source(queue):
        return QuotaStep.NOTHING if wanted is None else QuotaStep.LEAVE
    if queue.metadata.deletion_timestamp:
        return QuotaStep.NOTHING
    if wanted is None:
        if not is_ended(queue) or queue.spec.state not in ("", "Closed"):
            return QuotaStep.CLOSE
        return QuotaStep.DELETE if empty and queue.status.state == "Closed" else QuotaStep.NOTHING
    return QuotaStep.CHANGE if not wanted.unreadable and queue_patch(wanted, queue) else QuotaStep.NOTHING


def is_ended(queue: Queue) -> bool:
    return (queue.metadata.annotations or {}).get(keys.QUOTA_ENDED) == "true"


def entering_namespaces(annotations: Mapping[str, str] | None) -> list[str]:
    """Return the namespaces that enter a queue with these annotations, by its quota."""
    recorded = (annotations or {}).get(keys.QUOTA_NAMESPACES, "")
    return recorded.split(",") if recorded else []


def annotations_of(wanted: QuotaQueue) -> dict[str, str]:
    listed = ",".join(wanted.namespaces[:_MOST_LISTED])
    return {keys.QUOTA_SOURCE: str(wanted.source)} | ({keys.QUOTA_NAMESPACES: listed} if listed else {})


def spec_of(wanted: QuotaQueue) -> Json:
    """Return the spec of a new queue."""
    found: Json = {"weight": 1, "reclaimable": True, "parent": wanted.parent}
    if wanted.capability:
        found["capability"] = wanted.capability
    if wanted.guarantee:
        found |= {"deserved": wanted.guarantee, "guarantee": {"resource": wanted.guarantee}}
    if wanted.most_groups is not None:
        found["limits"] = {"groups": wanted.most_groups}
    return found


def queue_patch(wanted: QuotaQueue, queue: Queue) -> Json:
    """Return the changes of a queue as a merge patch; empty if nothing has to change."""
    spec, now = queue.spec, queue.metadata.annotations or {}
    ours = (keys.QUOTA_SOURCE, keys.QUOTA_NAMESPACES, keys.QUOTA_ENDED)
    notes = dict.fromkeys(ours) | annotations_of(wanted)
    guarantee = _amounts_patch(spec.guarantee.resource if spec.guarantee else None, wanted.guarantee)
    changed: Json = {
        "capability": _amounts_patch(spec.capability, wanted.capability),
        "deserved": _amounts_patch(spec.deserved, wanted.guarantee),  # at least the guarantee
        "guarantee": {"resource": guarantee} if guarantee else None,
    }
    patch = {name: value for name, value in changed.items() if value}
    if (spec.parent or keys.ROOT_QUEUE) != wanted.parent:
        patch["parent"] = wanted.parent
    if (spec.limits.groups if spec.limits else None) != wanted.most_groups:
        patch["limits"] = {"groups": wanted.most_groups}
    if is_ended(queue):
        patch["state"] = "Open"
    recorded = {name: value for name, value in notes.items() if now.get(name) != value}
    metadata = {"metadata": {"annotations": recorded}} if recorded else {}
    return metadata | ({"spec": patch} if patch else {})


def _amounts_patch(now: dict[str, Quantity] | None, wanted: dict[str, Quantity]) -> Json | None:
    """Return the amounts to merge, with nulls for removed ones; None without a change."""
    now = now or {}
    try:
        same = now.keys() == wanted.keys() and offered(now) == offered(wanted)
    except BadQuantity:
        same = False
    return None if same else dict.fromkeys(now) | wanted
