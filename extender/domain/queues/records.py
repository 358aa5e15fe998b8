"""What the ledger remembers of a queue: a small frozen record, made from the wire object."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import Queue, QueueTaken
from extender.api.units import BadQuantity
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources, asked, offered
from extender.domain.queues import spec as fields
from extender.domain.queues.flavors import Flavor, flavors_of


class LosingTo(NamedTuple):
    """Who lost room to a queue, and for whose groups: what one tenant takes in vain is not counted against
    others."""

    queue: str
    namespace: str


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """When a queue last took room back from another one."""

    group: GroupKey  # for which
    at: str  # a timestamp
    in_vain: int = 0  # how often, each within an hour of the last time, the room was not kept or not used
    unused: tuple[QueueTaken, ...] = ()  # groups that have not run for long enough since, the last ones


class QueueRecord(msgspec.Struct, frozen=True, gc=False):
    """What the ledger remembers of a queue: a small frozen record, made from the wire object."""

    name: str
    weight: int = 1  # at least 1
    capability: Resources | None = None  # None: spec.capability is absent
    deserved: Resources | None = None  # None: spec.deserved is absent
    guarantee: Resources = {}
    priority: int = 0  # queues with a higher one come first
    strategy: str = ""  # spec.dequeueStrategy
    placement: str = ""  # Pack or Spread, on the nodes of most or least load; empty: Pack, for gangs alone
    fair_share: str = ""  # how queues below it take turns: Instant or Historical; empty: as order.py says
    spec_state: str = ""  # what its owner wants, as written; empty: nothing
    status_state: str = ""  # the state last published, as written
    parent: str = ""  # as written; `queue_states.parent_of` says which queue is above it
    hierarchy: str = ""  # the path in its annotation
    reclaimable: bool = True  # other queues may take back what it holds above what it deserves
    priority_threshold: int | None = None  # of the strategy `mixed`: groups from it on let none pass
    ageing: int = 0  # priority that a waiting group gains per hour
    stop_policy: str = ""  # Hold: nothing new is admitted; HoldAndDrain: what runs gives its room back, too
    oversell: float | None = None  # so many times its capability may be admitted; None: as the cluster says
    limits: fields.RunningLimits = fields.RunningLimits()
    default_request: Resources = {}  # of a group without minResources, before its pods are there
    borrowing_limit: Resources | None = None  # the most above what it deserves; None: no limit
    lending_limit: Resources | None = None  # the most of what it deserves that others may use; None: all
    reserve_after: float = fields.RESERVE_AFTER  # seconds a group waits before room is reserved for it
    start_timeout: float = fields.START_TIMEOUT  # seconds that a job may take until all its pods run
    max_run_time: float | None = None  # seconds that a job may run; None: no limit
    preemption: fields.PreemptionRules = fields.PreemptionRules()
    min_member: str = ""  # how many pods of its jobs start together, by its annotation
    flavors: tuple[Flavor, ...] = ()
    restricted: bool = False  # only users with the right to use it may submit to it
    namespace_selector: LabelSelector | None = None  # it takes groups from these namespaces; None: from all
    created: str = ""  # metadata.creationTimestamp
    uid: str = ""  # empty: the API does not have it (yet)
    deleting: bool = False  # metadata.deletionTimestamp is set: finalizers keep it for a while
    marked: bool = False  # it was open when its parent was closed, by its annotation
    last_command: str = ""  # the UID of the Command that it executed last, by its annotation
    reclaimed: Mapping[LosingTo, Reclaimed] = {}  # when this one last took room
    fault: str = ""  # what is wrong with its spec, for people; empty if nothing is


def queue_record(queue: Queue) -> QueueRecord:
    """A queue whose quantities make no sense is kept with its fault, so that its groups can report it."""
    record, spec = _without_quantities(queue), queue.spec
    try:
        return replace(
            record,
            oversell=fields.oversell_of(spec.oversell),
            capability=offered(spec.capability) if spec.capability else None,
            deserved=offered(spec.deserved) if spec.deserved else None,
            guarantee=offered(spec.guarantee.resource) if spec.guarantee else {},
            borrowing_limit=fields.limit_of("borrowingLimit", spec.borrowing_limit),
            lending_limit=fields.limit_of("lendingLimit", spec.lending_limit),
            default_request=asked(spec.default_request),
            preemption=fields.preemption_of(spec.preemption),
            flavors=flavors_of(spec.flavors or ()),
            namespace_selector=fields.read_selector(spec.namespace_selector),
        )
    except BadQuantity as fault:
        return replace(record, fault=f"queue {record.name}: {fault}")


def _without_quantities(queue: Queue) -> QueueRecord:
    meta, spec = queue.metadata, queue.spec
    annotations, fault = meta.annotations or {}, fields.policy_fault(spec)
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
        limits=fields.running_limits(spec.limits),
        restricted=spec.restricted,
        reserve_after=fields.duration_of(spec.reserve_after, fields.RESERVE_AFTER),
        start_timeout=fields.duration_of(spec.start_timeout, fields.START_TIMEOUT),
        max_run_time=fields.duration_of(spec.max_run_time, None),
        created=meta.creation_timestamp or "",
        uid=meta.uid,
        deleting=bool(meta.deletion_timestamp),
        marked=annotations.get(keys.CLOSED_BY_PARENT) == "true",
        reclaimed={
            LosingTo(each.queue, each.group.partition("/")[0]): Reclaimed(
                GroupKey(each.group), each.at, each.in_vain, each.unused
            )
            for each in queue.status.reclaimed or ()
        },
        last_command=annotations.get(keys.LAST_COMMAND, ""),
        fault=fault and f"queue {meta.name}: {fault}",
    )
