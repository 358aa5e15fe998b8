"""What goes on from a dump: its snapshot as objects from which the same would be known at second 0.

What only a running Muster remembers ends here: failed starts, reservations, room that is being taken back,
and how long groups ran that have ended. Pods that are being deleted are gone, jobs have made their pods, and
no disruption budget protects any.
"""

from collections.abc import Iterator
from math import inf, isfinite

import msgspec

from extender.api import keys
from extender.api.objects.base import Meta, Quantities
from extender.api.objects.cluster import Node, NodeSpec, NodeStatus, PriorityClass
from extender.api.objects.pods import (
    Affinity,
    Container,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    Port,
    ResourceRequirements,
)
from extender.api.objects.queues import (
    BorrowWithinCohort,
    Guarantee,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueFlavor,
    QueueLimits,
    QueuePreemption,
    QueueSpec,
    QueueStatus,
    ResourceFlavor,
    ResourceFlavorSpec,
    RunningLimit,
)
from extender.api.units import as_duration
from extender.domain.model.queue_of_group import note
from extender.domain.model.records import PodRecord, is_single
from extender.domain.model.resources import CPU, PODS, Resources
from extender.domain.model.shapes import Constraints, Term
from extender.domain.model.wire_records import whole_condition
from extender.domain.queues.flavors import Flavor
from extender.domain.queues.records import PreemptionRules, QueueRecord
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import NodeRecord
from extender.domain.snapshot.snapshot import Snapshot
from extender.sim.virtual.workload import GroupArrival, PodArrival, VirtualWorkload, stamp

_SCHEDULER = "muster"


def from_dump(snapshot: Snapshot, run_seconds: float | None) -> VirtualWorkload:
    """`run_seconds`: how long pods run, from second 0 on, that do not say so; None: without end. Pods of
    others stay."""
    queues = [queue.record for queue in snapshot.queues.values() if queue.exists]
    flavors = {flavor.shared: flavor for queue in queues for flavor in queue.flavors if flavor.shared}
    groups = [group for group in snapshot.groups.values() if not _has_ended(group)]
    others = [PodArrival(0.0, _pod(snapshot, pod, keys.DEFAULT_SCHEDULER), None) for pod in snapshot.others]
    return VirtualWorkload(
        nodes=tuple(_node(node) for node in snapshot.nodes.nodes if node is not None),
        flavors=tuple(_resource_flavor(flavor) for flavor in flavors.values() if not flavor.is_missing),
        queues=tuple(map(queue_of, queues)),
        priority_classes=tuple(
            PriorityClass(Meta(_class_of(value)), value) for value in sorted({it.priority for it in groups})
        ),
        groups=tuple(GroupArrival(0.0, _group(snapshot, it)) for it in groups if it.spec.recorded),
        members=(*others, *(pod for group in groups for pod in _members(snapshot, group, run_seconds))),
    )


def _has_ended(group: GroupView) -> bool:
    return bool(group.succeeded or group.failed) and not (group.is_on_nodes or group.pinned or group.waiting)


def _stamp(snapshot: Snapshot, timestamp: str) -> str:
    return stamp(snapshot.moment(timestamp) - snapshot.now)


# ---- nodes and queues


def _quantities(amounts: Resources) -> Quantities:
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}


def _maybe(amounts: Resources | None) -> Quantities | None:
    return None if amounts is None else _quantities(amounts)


def _node(record: NodeRecord) -> Node:
    meta = Meta(record.name, uid=record.name, labels=dict(record.labels))
    return Node(meta, NodeSpec([*record.taints] or None), NodeStatus(_quantities(record.allocatable)))


def queue_of(record: QueueRecord) -> Queue:
    """Without what asks who may use it: that is known of each group."""
    limits = record.limits
    own, user, namespace = (RunningLimit(it.groups, it.pods) for it in msgspec.structs.astuple(limits))
    spec = QueueSpec(
        weight=record.weight,
        capability=_maybe(record.capability),
        deserved=_maybe(record.deserved),
        guarantee=Guarantee(_quantities(record.guarantee)),
        reclaimable=record.reclaimable,
        parent=record.parent,
        priority=record.priority,
        dequeue_strategy=record.strategy,
        placement=record.placement,
        fair_share=record.fair_share,
        priority_threshold=record.priority_threshold,
        ageing=record.ageing,
        state="Closed" if record.deleting else record.spec_state,
        stop_policy=record.stop_policy,
        oversell=None if record.oversell is None else str(record.oversell),
        limits=QueueLimits(own.groups, own.pods, user, namespace),
        default_request=_quantities(record.default_request),
        borrowing_limit=_maybe(record.borrowing_limit),
        lending_limit=_maybe(record.lending_limit),
        reserve_after=as_duration(record.reserve_after),
        start_timeout=as_duration(record.start_timeout),
        max_run_time="" if record.max_run_time is None else as_duration(record.max_run_time),
        preemption=_preemption(record.preemption),
        flavors=[*map(_flavor, record.flavors)] or None,
    )
    meta = Meta(record.name, uid=record.uid, creation_timestamp=record.created or None)
    return Queue(meta, spec, QueueStatus(state=record.status_state))


def _preemption(rules: PreemptionRules) -> QueuePreemption:
    def policy(lets: bool) -> str:
        return keys.LOWER_PRIORITY if lets else keys.NEVER

    borrows = rules.borrows_up_to
    return QueuePreemption(
        within_queue=policy(rules.within_queue),
        borrow_within_cohort=BorrowWithinCohort(
            policy(borrows > -inf), int(borrows) if isfinite(borrows) else None
        ),
        unmanaged=policy(rules.unmanaged),
        min_runtime=as_duration(rules.min_runtime),
        after=as_duration(rules.after),
        at_most=as_duration(rules.at_most),
        patience=str(rules.patience),
        honour=None if rules.honour is None else sorted(rules.honour),
        max_grace_period="" if rules.max_grace is None else as_duration(rules.max_grace),
        consolidation=rules.consolidation,
    )


def _flavor(flavor: Flavor) -> QueueFlavor:
    amounts = {field: _quantities(of_field) for field, of_field in flavor.amounts.items()}
    labels = None if flavor.shared else dict(flavor.nodes.labels)
    return QueueFlavor(flavor.name, labels, resource_flavor=flavor.shared, **amounts)


def _resource_flavor(flavor: Flavor) -> ResourceFlavor:
    spec = ResourceFlavorSpec(dict(flavor.nodes.labels), [*flavor.taints] or None)
    return ResourceFlavor(Meta(flavor.shared, uid=flavor.shared), spec)


# ---- groups and pods


def _class_of(priority: int) -> str:
    return f"priority-{priority}"


def _group(snapshot: Snapshot, group: GroupView) -> PodGroup:
    """One that its queue, namespace or author keeps from starting is held back."""
    namespace, _, name = group.key.partition("/")
    queue, spec, uid = snapshot.queues.get(group.queue), group.spec, f"group {group.key}"
    is_held = spec.held or group.is_kept_out or group.aborted or bool(spec.fault or (queue and queue.fault))
    left = _seconds_left(snapshot, group)
    notes = {
        keys.HOLD: "true" if is_held else "",
        keys.RUN_TIME: "" if left is None else as_duration(left),
        keys.SUBMITTER: spec.submitter,
        keys.PREEMPTABLE: "" if spec.preemptable else "false",
        **(note(group.history.accepted_by, uid) if group.history.accepted_by else {}),
    }
    created = _stamp(snapshot, group.created)
    written = {name: text for name, text in notes.items() if text}
    stood = group.history.stood_with
    status = PodGroupStatus(
        phase=spec.reported_phase,
        conditions=[whole_condition(uid, stood.min_member)] if stood is not None else None,
    )
    asked = PodGroupSpec(
        group.min_member,
        dict(group.min_task_member) or None,
        group.queue,
        _class_of(group.priority),
        _quantities(spec.min_resources) or None,
    )
    meta = Meta(name, namespace, uid, creation_timestamp=created, annotations=written)
    return PodGroup(meta, asked, status)


def _seconds_left(snapshot: Snapshot, group: GroupView) -> float | None:
    """Of what its owner declared; None: nothing."""
    declared = group.spec.run_time
    if declared is None or not group.running_since:
        return declared
    return max(declared - (snapshot.now - snapshot.moment(group.running_since)), 1.0)


def _members(snapshot: Snapshot, group: GroupView, run_seconds: float | None) -> Iterator[PodArrival]:
    left = _seconds_left(snapshot, group)
    runs = run_seconds if left is None else left
    there = (pod for pod in group.placed if pod.holds_room)
    for pod in (*there, *(pod for pod, _ in group.pinned), *group.waiting):
        yield PodArrival(0.0, _pod(snapshot, pod, _SCHEDULER), runs)


def _pod(snapshot: Snapshot, pod: PodRecord, scheduler: str) -> Pod:
    shape, notes = pod.shape, {keys.ROLE: pod.role} if pod.role else {}
    if pod.group and not is_single(pod.group):
        notes[keys.GROUP_ANNOTATION] = pod.group.partition("/")[2]
    elif pod.group:
        notes[keys.QUEUE] = snapshot.groups[pod.group].queue
    if not pod.preemptable:
        notes[keys.PREEMPTABLE] = "false"
    asked = _quantities({name: amount for name, amount in shape.requests.items() if name != PODS})
    ports = [Port(it.port, it.address, it.protocol) for it in shape.constraints.ports]
    spec = pod_spec(shape.constraints)
    return Pod(
        Meta(
            pod.name,
            pod.namespace,
            pod.uid,
            creation_timestamp=_stamp(snapshot, pod.created),
            labels=dict(pod.labels) or None,
            annotations=notes or None,
        ),
        msgspec.structs.replace(
            spec,
            containers=[Container(ResourceRequirements(asked), ports or None)],
            node_name=pod.node,
            scheduler_name=scheduler,
            priority=pod.priority,
            preemption_policy=keys.NEVER if pod.never_preempts else "",
        ),
        PodStatus("Running" if pod.node else "Pending"),
    )


def pod_spec(demands: Constraints) -> PodSpec:
    """What it demands of nodes."""
    terms = msgspec.json.decode(demands.node_terms or b"[]", type=list[NodeSelectorTerm])
    node = NodeAffinity(NodeSelector(terms)) if demands.node_terms else None
    near, apart = ([*map(_term, side)] for side in (demands.affinity, demands.anti_affinity))
    sides = PodAffinity(near) if near else None, PodAffinity(apart) if apart else None
    return PodSpec(
        node_selector=dict(demands.node_labels) or None,
        tolerations=[*demands.tolerations] or None,
        affinity=Affinity(node, *sides) if node or near or apart else None,
    )


def _term(term: Term) -> PodAffinityTerm:
    everywhere = LabelSelector() if term.namespaces is None else None
    named = None if term.namespaces is None else sorted(term.namespaces)
    return PodAffinityTerm(term.topology_key, term.label_selector, named, everywhere)
