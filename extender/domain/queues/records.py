"""Records of queues, made from wire objects: limits, preemption, namespaces, and faults of fields."""

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
    """Limit of concurrent groups and pods; None means no limit."""

    groups: int | None = None
    pods: int | None = None


RECLAIM_AFTER, RECLAIM_AT_MOST = 120.0, 900.0  # default seconds of preemption.after and preemption.atMost
MAX_PATIENCE = 1000


class RunningLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits of running groups and pods in a queue."""

    queue: Limit = Limit()  # limit of all groups of the queue together
    user: Limit = Limit()  # limit of the groups of each user
    namespace: Limit = Limit()  # limit of the groups of each namespace


class PreemptionRules(msgspec.Struct, frozen=True, gc=False):
    """Rules by which the groups of a queue evict pods, and are evicted."""

    within_queue: bool = False  # whether its groups may preempt running groups of lower priority
    borrows_up_to: float = -inf  # highest priority of groups in other queues that may be preempted to borrow
    preempts_unmanaged: bool = True  # whether its groups may preempt lower pods of other schedulers
    min_runtime: float = 0.0  # seconds that its groups run before they may be evicted
    after: float = RECLAIM_AFTER  # seconds that a group with all members waits before a reclaim
    at_most: float = RECLAIM_AT_MOST  # seconds after which a reclaim ignores the lost work of victims
    patience: float = 1.0  # factor for the acceptable lost work, relative to what the group lacks
    protections: frozenset[str] | None = None  # protections of borrowing pods; None: as the parent queue
    max_grace: float | None = None  # longest grace period of victims, in seconds; None: as the parent queue
    may_consolidate: bool = False  # whether its groups may be moved, and other groups for them


_OPERANDS = {"In": "values", "NotIn": "values", "Exists": "no values", "DoesNotExist": "no values"}
_FIELD = "spec.namespaceSelector"


def allows_namespace(selector: LabelSelector | None, labels: Labels) -> bool:
    """Return whether a queue accepts groups of a namespace; a queue without a selector accepts all."""
    return selector is None or selects(selector, labels)


def not_selected(queue: str, namespace: str) -> str:
    """Return the message for a namespace that a queue does not select."""
    return f"{_FIELD} of queue {queue} does not select namespace {namespace}"


def read_selector(selector: LabelSelector | None) -> LabelSelector | None:
    """Return a namespace selector after a check of its expressions.

    Raises:
        BadQuantity: A selector's expression is invalid.
    """
    for requirement in (selector.match_expressions or ()) if selector is not None else ():
        operator, key = requirement.operator, requirement.key[:80]
        if (operand := _OPERANDS.get(operator)) is None:
            names = ", ".join(_OPERANDS)
            raise BadQuantity(f"{_FIELD}: operator {operator[:40]!r} of {key!r} is not one of {names}")
        if not key:
            raise BadQuantity(f"{_FIELD}: an expression without a key")
        if (operand == "values") is not bool(requirement.values):
            raise BadQuantity(f"{_FIELD}: operator {operator} of {key!r} takes {operand}")
    return selector


MAX_OVERSELL = 100
D = TypeVar("D", float, None)
RESERVE_AFTER = 7200.0  # seconds; lower values lengthen the mean wait (make bench ARGS=reservations)
START_TIMEOUT = 300.0  # default start timeout of jobs, in seconds
_STOP_POLICIES = ("", keys.STOP_NONE, keys.STOP_HOLD, keys.STOP_DRAIN)


def running_limits(limits: QueueLimits | None) -> RunningLimits:
    """Return the limits of running groups and pods from a spec."""
    limits = limits or QueueLimits()
    kinds = (limits, limits.per_user, limits.per_namespace)
    return RunningLimits(*(Limit(kind.groups, kind.pods) if kind else Limit() for kind in kinds))


def policy_fault(spec: QueueSpec) -> str:
    """Return the fault of the first invalid policy field, for users; empty if all fields are valid."""
    if fault := stop_policy_fault(spec.stop_policy):
        return fault
    numbers: dict[str, int | None] = {"spec.ageing": spec.ageing}
    limits = spec.limits or QueueLimits()
    limits_by_field = {"": limits, ".perUser": limits.per_user, ".perNamespace": limits.per_namespace}
    for part, limit in limits_by_field.items():
        if limit is not None:
            numbers[f"spec.limits{part}.groups"] = limit.groups
            numbers[f"spec.limits{part}.pods"] = limit.pods
    negative = ((name, number) for name, number in numbers.items() if number is not None and number < 0)
    return next((f"{name} is {number}; it must be 0 or more" for name, number in negative), "")


def stop_policy_fault(policy: str) -> str:
    """Return the fault of a spec.stopPolicy, for users; empty if it is valid."""
    if policy in _STOP_POLICIES:
        return ""
    return f"spec.stopPolicy is {policy[:40]!r}; it must be one of {', '.join(_STOP_POLICIES[1:])}"


def oversell_of(quantity: Quantity | None) -> float | None:
    """Return the factor of spec.oversell, rounded down to three decimals.

    Raises:
        BadQuantity: The factor is invalid.
    """
    oversell = None if quantity is None else rounded_down(quantity, 1000) / 1000
    if oversell is not None and not 1.0 <= oversell <= MAX_OVERSELL:
        raise BadQuantity(f"spec.oversell is {quantity}: must be 1 to {MAX_OVERSELL}")
    return oversell


def limit_of(field: str, quantities: Quantities | None) -> Resources | None:
    """Return the amounts of a limit; None without a limit. An amount of 0 is a limit, too.

    Raises:
        BadQuantity: An amount cannot be read, or is negative.
    """
    amounts = None if quantities is None else offered(quantities)
    for name, amount in (amounts or {}).items():
        if amount < 0:
            raise BadQuantity(f"spec.{field}[{name}] is {(quantities or {})[name]}: must be 0 or more")
    return amounts


def preemption_of(spec: QueuePreemption | None) -> PreemptionRules:
    """Return the preemption rules of a spec.

    Raises:
        BadQuantity: A field is invalid.
    """
    rules = spec or QueuePreemption()
    borrowing = rules.borrow_within_cohort or BorrowWithinCohort()
    highest_priority = inf if borrowing.max_priority_threshold is None else borrowing.max_priority_threshold
    return PreemptionRules(
        borrows_up_to=highest_priority if borrowing.policy == keys.LOWER_PRIORITY else -inf,
        within_queue=rules.within_queue == keys.LOWER_PRIORITY,
        preempts_unmanaged=rules.unmanaged != keys.NEVER,
        min_runtime=_seconds_of("spec.preemption.minRuntime", rules.min_runtime),
        after=_seconds_of("spec.preemption.after", rules.after, RECLAIM_AFTER),
        at_most=_seconds_of("spec.preemption.atMost", rules.at_most, RECLAIM_AT_MOST),
        patience=_patience_of(rules.patience),
        protections=_protections_of(rules.honour),
        max_grace=_seconds_of("spec.preemption.maxGracePeriod", rules.max_grace_period, None),
        may_consolidate=rules.consolidation,
    )


def _protections_of(names: list[str] | None) -> frozenset[str] | None:
    """Return the protections to honour.

    Raises:
        BadQuantity: A field is invalid.
    """
    known_names = (keys.BUDGETS, keys.PREEMPTABLE_WORD)
    if unknown_names := [each for each in names or () if each not in known_names]:
        text = f"spec.preemption.honour: {unknown_names[0][:40]!r} is not one of {', '.join(known_names)}"
        raise BadQuantity(text)
    return None if names is None else frozenset(names)


def _patience_of(quantity: Quantity | None) -> float:
    """Return the factor of spec.preemption.patience, rounded down to three decimals.

    Raises:
        BadQuantity: The factor is invalid.
    """
    patience = 1.0 if quantity is None else rounded_down(quantity, 1000) / 1000
    if not 0.0 <= patience <= MAX_PATIENCE:
        raise BadQuantity(f"spec.preemption.patience is {quantity}: must be 0 to {MAX_PATIENCE}")
    return patience


def _seconds_of(field: str, text: str, default: D = 0.0) -> float | D:  # type: ignore[assignment]
    """Return a duration in seconds.

    Raises:
        BadQuantity: The duration is invalid.
    """
    try:
        return as_seconds(text) if text else default
    except ValueError as fault:
        raise BadQuantity(f"{field}: {text!r:.50} is no duration, such as 90s or 10m") from fault


def duration_of(text: str, default: D) -> float | D:
    """Return a duration in seconds, or the default if the text cannot be read.

    The API server refuses an unreadable text anyway.
    """
    try:
        return as_seconds(text)
    except ValueError:
        return default


class ReclaimKey(NamedTuple):
    """Key of a reclaim: the queue that lost capacity, and the namespace that got the capacity.

    The namespace is part of the key so that unused reclaims of one namespace do not count against others.
    """

    queue: str
    namespace: str


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """Last reclaim of a queue from another queue, and the number of unused reclaims."""

    group: GroupKey  # the group that got the capacity
    at: str  # timestamp of the reclaim
    in_vain: int = 0  # number of unused reclaims in a row, each within an hour of the previous reclaim
    unused: tuple[QueueTaken, ...] = ()  # the last groups that have not used the capacity enough yet


class QueueRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a queue: small, frozen, and made from the wire object."""

    name: str
    weight: int = 1  # at least 1
    capability: Resources | None = None  # None: spec.capability is absent
    deserved: Resources | None = None  # None: spec.deserved is absent
    guarantee: Resources = {}
    priority: int = 0  # queues of higher priority come first
    strategy: str = ""  # spec.dequeueStrategy
    placement: str = ""  # Pack: onto nodes with most load; Spread: with least; empty: Pack for gangs only
    fair_share: str = ""  # order of the queues below: Instant or Historical; empty: see order.py
    spec_state: str = ""  # spec.state as written; empty: no state
    status_state: str = ""  # status.state as written: the last published state
    parent: str = ""  # spec.parent as written; `states.parent_of` returns the parent
    hierarchy: str = ""  # path in the hierarchy annotation
    is_reclaimable: bool = True  # whether others may reclaim its allocation above the deserved share
    priority_threshold: int | None = None  # in `mixed` queues, groups from this priority on are not overtaken
    ageing: int = 0  # priority that a waiting group gains per hour
    stop_policy: str = ""  # Hold: no group is admitted; HoldAndDrain: running groups are evicted, too
    oversell: float | None = None  # factor on the capability for admission; None: default factor
    limits: RunningLimits = RunningLimits()
    default_request: Resources = {}  # assumed request of a group without minResources and pods
    borrowing_limit: Resources | None = None  # limit above the deserved amount; None: no limit
    lending_limit: Resources | None = None  # part of the deserved amount that others may use; None: all
    reserve_after: float = RESERVE_AFTER  # seconds after which capacity is reserved for a waiting group
    start_timeout: float = START_TIMEOUT  # seconds within which all pods of a job have to run
    max_run_time: float | None = None  # longest run time of a job in seconds; None: no limit
    preemption: PreemptionRules = PreemptionRules()
    min_member: str = ""  # number of pods of its jobs that start together, by annotation
    flavors: tuple[Flavor, ...] = ()
    is_restricted: bool = False  # whether users need the right to use the queue
    namespace_selector: LabelSelector | None = None  # selects namespaces whose groups may enter; None: all
    created_at: str = ""  # metadata.creationTimestamp
    uid: str = ""  # empty while the API server does not have the queue
    is_deleting: bool = False  # whether metadata.deletionTimestamp is set
    was_closed_by_parent: bool = False  # by its annotation: whether it was open when its parent was closed
    last_command: str = ""  # UID of the last executed Command, by its annotation
    reclaimed: Mapping[ReclaimKey, Reclaimed] = {}  # the last reclaims by this queue
    fault: str = ""  # fault of its spec, for users; empty if valid


Rename = Callable[[Quantities], Quantities]


def queue_record(queue: Queue, rename: Rename = lambda amounts: amounts) -> QueueRecord:
    """Return the record of a queue.

    If quantities are invalid, the record has a fault, which the groups of the queue report.

    Args:
        queue: The queue.
        rename: Returns amounts with the names under which resources are counted.
    """
    record, spec = _without_quantities(queue), _rename_resources(queue.spec, rename)
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


def _rename_resources(spec: QueueSpec, rename: Rename) -> QueueSpec:
    """Return a spec in which the resources are renamed."""
    fields = ("capability", "deserved", "borrowing_limit", "lending_limit", "default_request")
    amounts = {name: rename(quantities) for name in fields if (quantities := getattr(spec, name)) is not None}
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
        is_reclaimable=spec.reclaimable is not False,
        priority_threshold=spec.priority_threshold,
        ageing=max(spec.ageing, 0),
        stop_policy="" if spec.stop_policy == keys.STOP_NONE else spec.stop_policy,
        limits=running_limits(spec.limits),
        is_restricted=spec.restricted,
        reserve_after=duration_of(spec.reserve_after, RESERVE_AFTER),
        start_timeout=duration_of(spec.start_timeout, START_TIMEOUT),
        max_run_time=duration_of(spec.max_run_time, None),
        created_at=meta.creation_timestamp or "",
        uid=meta.uid,
        is_deleting=bool(meta.deletion_timestamp),
        was_closed_by_parent=annotations.get(keys.CLOSED_BY_PARENT) == "true",
        reclaimed={
            ReclaimKey(each.queue, each.group.partition("/")[0]): Reclaimed(
                GroupKey(each.group), each.at, each.in_vain, each.unused
            )
            for each in queue.status.reclaimed or ()
        },
        last_command=annotations.get(keys.LAST_COMMAND, ""),
        fault=f"queue {meta.name}: {fault}" if fault else "",
    )
