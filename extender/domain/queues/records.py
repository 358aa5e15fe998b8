"""Records of queues from wire objects: limits, preemption, namespaces, and faults of fields."""

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Quantities
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import (
    BorrowWithinCohort,
    Guarantee,
    Queue,
    QueueLimits,
    QueuePreemption,
    QueueSpec,
    QueueTaken,
)
from extender.api.units import BadQuantity, Quantity, as_seconds, rounded_down
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources, offered, requested_amounts
from extender.domain.model.selectors import Labels, selects
from extender.domain.queues.flavors import Flavor, flavors_of


class Limit(msgspec.Struct, frozen=True, gc=False):
    """Limit of concurrent groups and pods; None: no limit."""

    groups: int | None = None
    pods: int | None = None


TAKE_AFTER, TAKE_AT_MOST = 120.0, 900.0  # seconds
MOST_PATIENCE = 1000


class RunningLimits(msgspec.Struct, frozen=True, gc=False):
    queue: Limit = Limit()  # of all groups of the queue
    user: Limit = Limit()  # of the groups of each user
    namespace: Limit = Limit()  # of the groups of each namespace


class PreemptionRules(msgspec.Struct, frozen=True, gc=False):
    within_queue: bool = False  # its groups may preempt running ones of lower priority
    borrows_up_to: float = -inf  # highest priority of other queues' groups from which its groups borrow
    unmanaged: bool = True  # its groups may preempt pods of other schedulers with lower priority
    min_runtime: float = 0.0  # seconds that its groups run before they may be evicted
    after: float = TAKE_AFTER  # seconds that complete groups wait before a reclaim
    at_most: float = TAKE_AT_MOST  # seconds after which a reclaim ignores the lost work
    patience: float = 1.0  # factor: acceptable lost work, relative to what the group lacked
    honour: frozenset[str] | None = None  # protections of borrowing pods; None: those of the parent
    max_grace: float | None = None  # most grace seconds of victims; None: those of the parent
    consolidation: bool = False  # its groups may be moved, and others for them


_OPERATORS = {"In": "values", "NotIn": "values", "Exists": "no values", "DoesNotExist": "no values"}
_FIELD = "spec.namespaceSelector"


def allows_namespace(selector: LabelSelector | None, labels: Labels) -> bool:
    """Return whether a queue takes groups of a namespace; a queue without a selector takes all."""
    return selector is None or selects(selector, labels)


def not_selected(queue: str, namespace: str) -> str:
    """Return the message for a namespace that `allows_namespace` does not allow."""
    return f"{_FIELD} of queue {queue} does not select namespace {namespace}"


def read_selector(selector: LabelSelector | None) -> LabelSelector | None:
    """Return a namespace selector.

    Raises:
        BadQuantity: It cannot be read.
    """
    for requirement in (selector.match_expressions or ()) if selector is not None else ():
        operator, key = requirement.operator, requirement.key[:80]
        if (takes := _OPERATORS.get(operator)) is None:
            allowed = ", ".join(_OPERATORS)
            raise BadQuantity(f"{_FIELD}: operator {operator[:40]!r} of {key!r} is not one of {allowed}")
        if not key:
            raise BadQuantity(f"{_FIELD}: an expression without a key")
        if (takes == "values") is not bool(requirement.values):
            raise BadQuantity(f"{_FIELD}: operator {operator} of {key!r} takes {takes}")
    return selector


MOST_OVERSELL = 100
D = TypeVar("D", float, None)
RESERVE_AFTER = 7200.0  # seconds; lower values lengthen mean waits (make bench ARGS=reservations)
START_TIMEOUT = 300.0  # seconds
_STOP_POLICIES = ("", keys.STOP_NONE, keys.STOP_HOLD, keys.STOP_DRAIN)


def running_limits(limits: QueueLimits | None) -> RunningLimits:
    limits = limits or QueueLimits()
    kinds = (limits, limits.per_user, limits.per_namespace)
    return RunningLimits(*(Limit(kind.groups, kind.pods) if kind else Limit() for kind in kinds))


def policy_fault(spec: QueueSpec) -> str:
    """Return the fault of the first invalid field, for users; empty if all are valid."""
    if fault := stop_policy_fault(spec.stop_policy):
        return fault
    numbers: dict[str, int | None] = {"spec.ageing": spec.ageing}
    limits = spec.limits or QueueLimits()
    parts = {"": limits, ".perUser": limits.per_user, ".perNamespace": limits.per_namespace}
    for part, limit in parts.items():
        if limit is not None:
            numbers[f"spec.limits{part}.groups"] = limit.groups
            numbers[f"spec.limits{part}.pods"] = limit.pods
    negative = ((name, number) for name, number in numbers.items() if number is not None and number < 0)
    return next((f"{name} is {number}; it must be 0 or more" for name, number in negative), "")


def stop_policy_fault(written: str) -> str:
    """Return the fault of a spec.stopPolicy, for users; empty if it is valid."""
    if written in _STOP_POLICIES:
        return ""
    return f"spec.stopPolicy is {written[:40]!r}; it must be one of {', '.join(_STOP_POLICIES[1:])}"


def oversell_of(written: Quantity | None) -> float | None:
    """Return the factor, to three decimals. Raises BadQuantity."""
    oversell = None if written is None else rounded_down(written, 1000) / 1000
    if oversell is not None and not 1.0 <= oversell <= MOST_OVERSELL:
        raise BadQuantity(f"spec.oversell is {written}: must be 1 to {MOST_OVERSELL}")
    return oversell


def limit_of(field: str, quantities: Quantities | None) -> Resources | None:
    """Return a limit; 0 is one, too.

    Raises:
        BadQuantity: An amount cannot be read.
    """
    amounts = None if quantities is None else offered(quantities)
    for name, amount in (amounts or {}).items():
        if amount < 0:
            raise BadQuantity(f"spec.{field}[{name}] is {(quantities or {})[name]}: must be 0 or more")
    return amounts


def preemption_of(written: QueuePreemption | None) -> PreemptionRules:
    """Return the preemption rules.

    Raises:
        BadQuantity: A field is invalid.
    """
    rules = written or QueuePreemption()
    borrowing = rules.borrow_within_cohort or BorrowWithinCohort()
    most = inf if borrowing.max_priority_threshold is None else borrowing.max_priority_threshold
    return PreemptionRules(
        borrows_up_to=most if borrowing.policy == keys.LOWER_PRIORITY else -inf,
        within_queue=rules.within_queue == keys.LOWER_PRIORITY,
        unmanaged=rules.unmanaged != keys.NEVER,
        min_runtime=_seconds("spec.preemption.minRuntime", rules.min_runtime),
        after=_seconds("spec.preemption.after", rules.after, TAKE_AFTER),
        at_most=_seconds("spec.preemption.atMost", rules.at_most, TAKE_AT_MOST),
        patience=_patience(rules.patience),
        honour=_honoured(rules.honour),
        max_grace=_seconds("spec.preemption.maxGracePeriod", rules.max_grace_period, None),
        consolidation=rules.consolidation,
    )


def _honoured(written: list[str] | None) -> frozenset[str] | None:
    """Return the protections to honour.

    Raises:
        BadQuantity: A field is invalid.
    """
    known = (keys.BUDGETS, keys.PREEMPTABLE_WORD)
    if unknown := [each for each in written or () if each not in known]:
        text = f"spec.preemption.honour: {unknown[0][:40]!r} is not one of {', '.join(known)}"
        raise BadQuantity(text)
    return None if written is None else frozenset(written)


def _patience(written: Quantity | None) -> float:
    """Return the factor of spec.preemption.patience, to three decimals. Raises BadQuantity."""
    patience = 1.0 if written is None else rounded_down(written, 1000) / 1000
    if not 0.0 <= patience <= MOST_PATIENCE:
        raise BadQuantity(f"spec.preemption.patience is {written}: must be 0 to {MOST_PATIENCE}")
    return patience


def _seconds(field: str, text: str, default: D = 0.0) -> float | D:  # type: ignore[assignment]
    """Return a duration in seconds.

    Raises:
        BadQuantity: The duration is invalid.
    """
    try:
        return as_seconds(text) if text else default
    except ValueError as fault:
        raise BadQuantity(f"{field}: {text!r:.50} is no duration, such as 90s or 10m") from fault


def duration_of(text: str, default: D) -> float | D:
    """Return a duration in seconds. An unreadable one counts as absent; the API server refuses it."""
    try:
        return as_seconds(text)
    except ValueError:
        return default


class ReclaimKey(NamedTuple):
    """Queue that lost capacity by a reclaim, and the namespace that got it.

    Unused reclaims of one namespace do not count against others.
    """

    queue: str
    namespace: str


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """Last reclaim of a queue from another one: its time, its group, and unused reclaims."""

    group: GroupKey  # the group that got the capacity
    at: str  # a timestamp
    in_vain: int = 0  # unused reclaims in a row, each within an hour of the last
    unused: tuple[QueueTaken, ...] = ()  # the last groups without enough use of it yet


class QueueRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a queue: small and frozen, made from the wire object."""

    name: str
    weight: int = 1  # at least 1
    capability: Resources | None = None  # None: spec.capability is absent
    deserved: Resources | None = None  # None: spec.deserved is absent
    guarantee: Resources = {}
    priority: int = 0  # queues with a higher one come first
    strategy: str = ""  # spec.dequeueStrategy
    placement: str = ""  # Pack or Spread, on the nodes of most or least load; empty: Pack, for gangs alone
    fair_share: str = ""  # how queues below it take turns: Instant or Historical; empty: see order.py
    spec_state: str = ""  # spec.state as written; empty: none
    status_state: str = ""  # the state last published, as written
    parent: str = ""  # as written; `states.parent_of` returns the queue above it
    hierarchy: str = ""  # the path in its annotation
    reclaimable: bool = True  # other queues may reclaim what it holds above its deserved share
    priority_threshold: int | None = None  # of `mixed`: no group passes one with at least this
    ageing: int = 0  # priority that a waiting group gains per hour
    stop_policy: str = ""  # Hold: no group is admitted; HoldAndDrain: running ones are evicted
    oversell: float | None = None  # factor of the capability that may be admitted; None: the cluster's
    limits: RunningLimits = RunningLimits()
    default_request: Resources = {}  # request of a group without minResources, before its pods exist
    borrowing_limit: Resources | None = None  # the most above what it deserves; None: no limit
    lending_limit: Resources | None = None  # the most of what it deserves that others may use; None: all
    reserve_after: float = RESERVE_AFTER  # seconds a group waits before capacity is reserved for it
    start_timeout: float = START_TIMEOUT  # seconds that a job may take until all its pods run
    max_run_time: float | None = None  # seconds that a job may run; None: no limit
    preemption: PreemptionRules = PreemptionRules()
    min_member: str = ""  # how many pods of its jobs start together, by its annotation
    flavors: tuple[Flavor, ...] = ()
    restricted: bool = False  # only users with the right to use it may submit to it
    namespace_selector: LabelSelector | None = None  # it takes groups from these namespaces; None: from all
    created: str = ""  # metadata.creationTimestamp
    uid: str = ""  # empty: the API does not have it (yet)
    deleting: bool = False  # metadata.deletionTimestamp is set: finalizers keep it for a while
    closed_by_parent: bool = False  # its annotation says that it was open when its parent was closed
    last_command: str = ""  # the UID of the Command that it executed last, by its annotation
    reclaimed: Mapping[ReclaimKey, Reclaimed] = {}  # the last reclaims of this queue
    fault: str = ""  # fault of its spec, for users; empty if valid


Rename = Callable[[Quantities], Quantities]


def queue_record(queue: Queue, rename: Rename = lambda amounts: amounts) -> QueueRecord:
    """Return the record of a queue. One with invalid quantities keeps its fault, which its groups report.

    `rename`: returns amounts with the names by which resources are counted.
    """
    record, spec = _without_quantities(queue), _with_names(queue.spec, rename)
    try:
        return replace(
            record,
            oversell=oversell_of(spec.oversell),
            capability=offered(spec.capability) if spec.capability else None,
            deserved=offered(spec.deserved) if spec.deserved else None,
            guarantee=offered(spec.guarantee.resource) if spec.guarantee else {},
            borrowing_limit=limit_of("borrowingLimit", spec.borrowing_limit),
            lending_limit=limit_of("lendingLimit", spec.lending_limit),
            default_request=requested_amounts(spec.default_request),
            preemption=preemption_of(spec.preemption),
            flavors=flavors_of(spec.flavors or ()),
            namespace_selector=read_selector(spec.namespace_selector),
        )
    except BadQuantity as fault:
        return replace(record, fault=f"queue {record.name}: {fault}")


def _with_names(spec: QueueSpec, rename: Rename) -> QueueSpec:
    """Return a spec with its resources renamed."""
    fields = ("capability", "deserved", "borrowing_limit", "lending_limit", "default_request")
    amounts = {name: rename(written) for name in fields if (written := getattr(spec, name)) is not None}
    guarantee = spec.guarantee and Guarantee(rename(spec.guarantee.resource or {}))
    flavors = [
        replace(flavor, **{field: rename(amounts) for field, amounts in flavor.amounts().items()})
        for flavor in spec.flavors or ()
    ]
    return replace(spec, **amounts, guarantee=guarantee, flavors=flavors or None)


def _without_quantities(queue: Queue) -> QueueRecord:
    """Return the record of a queue without its amounts, which may be invalid."""
    meta, spec = queue.metadata, queue.spec
    annotations, fault = meta.annotations or {}, policy_fault(spec)
    return QueueRecord(
        name=meta.name,
        weight=max(spec.weight, 1),
        min_member=annotations.get(keys.MIN_MEMBER, ""),
        priority=spec.priority,
        strategy=spec.dequeue_strategy,
        placement=spec.placement,
        fair_share=spec.fair_share,
        spec_state=spec.state,
        status_state=queue.status.state,
        parent=spec.parent,
        hierarchy=annotations.get(keys.HIERARCHY, ""),
        reclaimable=spec.reclaimable is not False,
        priority_threshold=spec.priority_threshold,
        ageing=max(spec.ageing, 0),
        stop_policy="" if spec.stop_policy == keys.STOP_NONE else spec.stop_policy,
        limits=running_limits(spec.limits),
        restricted=spec.restricted,
        reserve_after=duration_of(spec.reserve_after, RESERVE_AFTER),
        start_timeout=duration_of(spec.start_timeout, START_TIMEOUT),
        max_run_time=duration_of(spec.max_run_time, None),
        created=meta.creation_timestamp or "",
        uid=meta.uid,
        deleting=bool(meta.deletion_timestamp),
        closed_by_parent=annotations.get(keys.CLOSED_BY_PARENT) == "true",
        reclaimed={
            ReclaimKey(each.queue, each.group.partition("/")[0]): Reclaimed(
                GroupKey(each.group), each.at, each.in_vain, each.unused
            )
            for each in queue.status.reclaimed or ()
        },
        last_command=annotations.get(keys.LAST_COMMAND, ""),
        fault=f"queue {meta.name}: {fault}" if fault else "",
    )
