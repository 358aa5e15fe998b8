"""What the ledger remembers of a queue: a small frozen record, made from the wire object."""

from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.durations import as_seconds
from extender.api.objects import Quantities, Queue, QueuePreemption, QueueSpec
from extender.api.quantities import BadQuantity, Quantity, at_most
from extender.domain.model.resources import Resources, asked, offered
from extender.domain.queues.flavor_records import flavors_of
from extender.domain.queues.policy_fields import policy_fault, running_limits
from extender.domain.queues.queue_rules import Flavor, PreemptionRules, RunningLimits

MOST_OVERSELL = 100


class QueueRecord(msgspec.Struct, frozen=True, gc=False):
    name: str
    weight: int = 1  # at least 1
    capability: Resources | None = None  # None: spec.capability is absent
    deserved: Resources | None = None  # None: spec.deserved is absent
    guarantee: Resources = {}
    priority: int = 0  # queues with a higher one come first
    strategy: str = ""  # spec.dequeueStrategy
    spec_state: str = ""  # what its owner wants, as written; empty: nothing
    status_state: str = ""  # the state last published, as written
    parent: str = ""  # as written; `queue_states.parent_of` says which queue is above it
    hierarchy: str = ""  # the path in its annotation
    reclaimable: bool = True  # other queues may take back what it holds above what it deserves
    priority_threshold: int | None = None  # of the strategy `mixed`: groups from it on let none pass
    ageing: int = 0  # priority that a waiting group gains per hour
    stop_policy: str = ""  # Hold: nothing new is admitted; HoldAndDrain: what runs gives its room back, too
    oversell: float | None = None  # so many times its capability may be admitted; None: as the cluster says
    limits: RunningLimits = RunningLimits()
    default_request: Resources = {}  # of a group without minResources, before its pods are there
    borrowing_limit: Resources | None = None  # the most above what it deserves; None: no limit
    lending_limit: Resources | None = None  # the most of what it deserves that others may use; None: all
    reserve_after: float = 600.0  # seconds a group waits before room is reserved for it
    preemption: PreemptionRules = PreemptionRules()
    flavors: tuple[Flavor, ...] = ()
    restricted: bool = False  # only users with the right to use it may submit to it
    created: str = ""  # metadata.creationTimestamp
    uid: str = ""  # empty: the API does not have it (yet)
    marked: bool = False  # it was open when its parent was closed, by its annotation
    last_command: str = ""  # the UID of the Command that it executed last, by its annotation
    fault: str = ""  # what is wrong with its spec, for people; empty if nothing is


class _Amounts(NamedTuple):
    """What a queue says in quantities; fields as in QueueRecord."""

    capability: Resources | None = None
    deserved: Resources | None = None
    guarantee: Resources = MappingProxyType({})
    borrowing_limit: Resources | None = None
    lending_limit: Resources | None = None
    oversell: float | None = None
    default_request: Resources = MappingProxyType({})


def queue_record(queue: Queue) -> QueueRecord:
    """A queue whose quantities make no sense is kept with its fault, so that its groups can report it."""
    try:
        record = _queue_record(queue, _queue_amounts(queue.spec))
        return replace(
            record,
            preemption=_preemption(queue.spec.preemption),
            flavors=flavors_of(queue.spec.flavors or ()),
        )
    except BadQuantity as fault:
        return replace(_queue_record(queue, _Amounts()), fault=f"queue {queue.metadata.name}: {fault}")


def _queue_amounts(spec: QueueSpec) -> _Amounts:
    """Raises BadQuantity."""
    return _Amounts(
        capability=offered(spec.capability) if spec.capability else None,
        deserved=offered(spec.deserved) if spec.deserved else None,
        guarantee=offered(spec.guarantee.resource) if spec.guarantee else {},
        borrowing_limit=_limit("borrowingLimit", spec.borrowing_limit),
        lending_limit=_limit("lendingLimit", spec.lending_limit),
        oversell=_oversell(spec.oversell),
        default_request=asked(spec.default_request),
    )


def _limit(field: str, quantities: Quantities | None) -> Resources | None:
    """A limit of 0 is one, too. Raises BadQuantity."""
    amounts = None if quantities is None else offered(quantities)
    for name, amount in (amounts or {}).items():
        if amount < 0:
            raise BadQuantity(f"spec.{field}[{name}] is {(quantities or {})[name]}; allowed is 0 or more")
    return amounts


def _oversell(quantity: Quantity | None) -> float | None:
    """To three decimals. Raises BadQuantity."""
    if quantity is None:
        return None
    factor = at_most(quantity, 1000) / 1000
    if not 1.0 <= factor <= MOST_OVERSELL:
        raise BadQuantity(f"spec.oversell is {quantity}; allowed is 1 to {MOST_OVERSELL}")
    return factor


def _preemption(written: QueuePreemption | None) -> PreemptionRules:
    """Raises BadQuantity."""
    rules = written or QueuePreemption()
    return PreemptionRules(
        within_queue=rules.within_queue != keys.NEVER,
        unmanaged=rules.unmanaged != keys.NEVER,
        min_runtime=_seconds("spec.preemption.minRuntime", rules.min_runtime),
    )


def _seconds(field: str, text: str) -> float:
    """Raises BadQuantity."""
    try:
        return as_seconds(text) if text else 0.0
    except ValueError as fault:
        raise BadQuantity(f"{field}: {text!r} is no duration, such as 90s or 10m") from fault


def _reserve_after(text: str) -> float:
    """What cannot be read counts as not given; the API server refuses it."""
    try:
        return as_seconds(text)
    except ValueError:
        return QueueRecord("").reserve_after


def _queue_record(queue: Queue, amounts: _Amounts) -> QueueRecord:
    meta, spec = queue.metadata, queue.spec
    annotations, fault = meta.annotations or {}, policy_fault(spec)
    return QueueRecord(
        name=meta.name,
        weight=max(spec.weight, 1),
        priority=spec.priority,
        strategy=spec.dequeue_strategy,
        spec_state=spec.state,
        status_state=queue.status.state,
        parent=spec.parent,
        hierarchy=annotations.get(keys.HIERARCHY, ""),
        priority_threshold=spec.priority_threshold,
        ageing=max(spec.ageing, 0),
        stop_policy="" if spec.stop_policy == keys.STOP_NONE else spec.stop_policy,
        limits=running_limits(spec.limits),
        reclaimable=spec.reclaimable is not False,
        restricted=spec.restricted,
        reserve_after=_reserve_after(spec.reserve_after),
        created=meta.creation_timestamp or "",
        uid=meta.uid,
        marked=annotations.get(keys.CLOSED_BY_PARENT) == "true",
        last_command=annotations.get(keys.LAST_COMMAND, ""),
        fault=fault and f"queue {meta.name}: {fault}",
        **amounts._asdict(),
    )
