"""Obstacles of a group, as reasons of decisions.

Some obstacles prevent the evaluation of a group: a fault of the group, the state of its queue, missing
members, or its backoff. A group that is evaluated and does not fit gets one of these
reasons: NeverFits, NoRoom (it does not fit now), RefusedByScheduler (it fits only on nodes that the scheduler
refuses), NoDomain (no single domain has the capacity), or Fragmented (its members fit only separately).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.pods import NodeSelectorTerm, Toleration
from extender.api.units import listed
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import PodRecord
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, counts_in_queues, show
from extender.domain.model.selectors import is_tolerated, taint_text
from extender.domain.model.shapes import Constraints, Shape, requests_of
from extender.domain.model.topology import TopologySet
from extender.domain.placement.capacity import Capacity
from extender.domain.placement.planner import Planner
from extender.domain.queues.records import QueueRecord, not_selected
from extender.domain.queues.tree import QueueInfo
from extender.domain.scheduling.backoff import back_off, undo_decision
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.order import Strategies
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, computed_once
from extender.domain.snapshot.phases import State, ending_text, life_of, state_of
from extender.domain.snapshot.wholeness import Missing, missing, whole_at


@computed_once
def state_decision(group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that has ended, is terminating, or fully runs without waiting members.

    This decision changes only if the group itself changes. None means that the group must be evaluated.
    """
    state = state_of(group)
    if state not in (State.ENDED, State.ENDING, State.FULLY_RUNNING, State.NEWLY_RUNNING):
        return None
    verdict = Verdict.ENDED if state is State.ENDED else Verdict.RUNNING
    life = life_of(group, Verdict.RUNNING)
    return GroupDecision(group.key, group.queue, verdict, detail=ending_text(life), life=life)


def state_decision_now(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision that follows from the state of a group alone; None if the group must be evaluated.

    Unlike in `state_decision`, time counts: the decision also records that all needed members have been on
    nodes for the grace period.
    """
    decision = state_decision(group)
    if decision is None or state_of(group) is not State.NEWLY_RUNNING:
        return decision
    instant = whole_at(group, cycle.limits.whole_grace)
    is_whole = instant is not None and cycle.is_due(instant)
    return replace(decision, stood_whole=True) if is_whole else decision


def blocking_decision(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that cannot be evaluated. None means that it can."""
    queue = cycle.snapshot.queues.get(group.queue)
    if group.spec.fault:
        return waiting_decision(group, Reason.INVALID_SPEC, group.spec.fault)
    if not group.exists:
        return waiting_decision(group, Reason.GROUP_NOT_FOUND, missing_group_message(group))
    if (local_queue := group.local_queue) is not None and not local_queue.exists:
        return waiting_decision(group, Reason.QUEUE_NOT_FOUND, f"LocalQueue {local_queue.key} does not exist")
    if local_queue is not None and local_queue.fault:
        return waiting_decision(group, Reason.INVALID_SPEC, local_queue.fault)
    if queue is None or not queue.exists:
        return waiting_decision(group, Reason.QUEUE_NOT_FOUND, f"queue {group.queue} does not exist")
    if queue.fault:
        return waiting_decision(group, Reason.INVALID_SPEC, queue.fault)
    if excess_text := _excess_constraints_text(group):
        return waiting_decision(group, Reason.TOO_COMPLEX, excess_text)
    return _not_accepted_decision(cycle, group, queue) or _held_decision(group, queue.record)


@computed_once
def _excess_constraints_text(group: GroupInfo) -> str:
    """Return which constraints of a member exceed the limits of the evaluation, as text; empty if none."""
    shapes = ((pod.name, pod.shape.constraints.excess) for pod in group.waiting_pods)
    return next((f"pod {name} has {excess}" for name, excess in shapes if excess), "")


def _not_accepted_decision(cycle: Cycle, group: GroupInfo, queue: QueueInfo) -> GroupDecision | None:
    """Return the decision on a group that its queue does not accept, or whose job may no longer start."""
    if not group.history.is_entitled:
        text = f"queue {queue.record.name} is {queue.state}"
        if queue.record.is_deleting:
            text += ", because it is being deleted"
        elif queue.queue_to_open != queue.record.name:
            text += f", because queue {queue.queue_to_open} above it is closed"
        return waiting_decision(group, Reason.QUEUE_NOT_OPEN, text)
    if not group.is_namespace_allowed:
        detail = not_selected(group.queue, group.key.partition("/")[0])
        return waiting_decision(group, Reason.NAMESPACE_NOT_ALLOWED, detail)
    if not group.is_use_allowed:
        text = f"queue {group.queue} is restricted, and no record says that the group's author may use it"
        return waiting_decision(group, Reason.QUEUE_NOT_ALLOWED, f"{text} ({keys.MAY_USE})")
    if group.job.is_crowded_out:
        max_pods = cycle.limits.expected_pods
        text = f"the jobs of its namespace wait for {max_pods} pods already; it has its turn as these start"
        return waiting_decision(group, Reason.BEHIND_OTHERS, text)
    if group.job.start_timeouts >= cycle.limits.start_timeouts:
        failure = "its pods did not all run in time" if group.job.is_managed else "its start was undone"
        text = f"{failure} {group.job.start_timeouts} times in a row"
        return waiting_decision(group, Reason.START_TIMED_OUT, text)
    return None


def _held_decision(group: GroupInfo, queue: QueueRecord) -> GroupDecision | None:
    """Return the decision on a group that its owner, its queue or its LocalQueue holds back."""
    if group.spec.is_held:
        return waiting_decision(group, Reason.HELD, f'the annotation {keys.HOLD} is "true"')
    if queue.stop_policy:
        detail = f"spec.stopPolicy of queue {queue.name} is {queue.stop_policy}"
        return waiting_decision(group, Reason.QUEUE_STOPPED, detail)
    if (local_queue := group.local_queue) is not None and local_queue.stop_policy:
        detail = f"spec.stopPolicy of LocalQueue {local_queue.key} is {local_queue.stop_policy}"
        return waiting_decision(group, Reason.QUEUE_STOPPED, detail)
    return None


def why_not_replaced(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return why lost members are not replaced: the group is held, or its queue or LocalQueue drains.

    None means that lost members are replaced. If a queue admits no new groups but does not drain, lost
    members of its groups are still replaced.
    """
    queue = cycle.snapshot.queues.get(group.queue)
    is_draining = group.is_drained or (queue is not None and queue.record.stop_policy == keys.STOP_DRAIN)
    is_held = queue is not None and (group.spec.is_held or is_draining)
    return _held_decision(group, queue.record) if queue is not None and is_held else None


def capability_excess(cycle: Cycle, group: GroupInfo) -> str:
    """Return how `minResources` exceeds the capability of the queue; empty if it does not.

    Volcano has the same rule for its enqueue action. While the group is Pending, operators create no members
    that could never start. A group without `minResources` and pods counts with the default request of its
    queue. Managed jobs are exempt: their requests are known, and they may start with fewer pods.
    """
    queue = cycle.snapshot.queues[group.queue].record
    if not (limits := queue.capability) or group.job.is_managed:
        return ""
    field, requests = "spec.minResources", group.spec.min_resources
    if not requests and not group.has_pods:
        field = f"spec.defaultRequest for {group.min_member} members"
        requests = {name: amount * group.min_member for name, amount in queue.default_request.items()}
    excess = {name: amount for name, amount in requests.items() if amount > limits.get(name, amount)}
    texts = [f"{name}: {show(name, amount)} > {show(name, limits[name])}" for name, amount in excess.items()]
    return f"{field} is above the capability of queue {group.queue}: {', '.join(texts)}" if texts else ""


def excess_decision(group: GroupInfo, detail: str) -> GroupDecision:
    """Return the decision on a group that never fits, because of its queue."""
    return replace(waiting_decision(group, Reason.NEVER_FITS, detail), exceeds_queue=True)


def waiting_decision(group: GroupInfo, reason: Reason, detail: str) -> GroupDecision:
    """Return the decision that a group waits for a reason."""
    return GroupDecision(group.key, group.queue, Verdict.WAITING, reason, detail)


def missing_group_message(group: GroupInfo) -> str:
    return f"PodGroup {group.key} does not exist"


def competing_groups(cycle: Cycle, strategies: Strategies, groups: Iterable[GroupInfo]) -> list[GroupInfo]:
    """Return the pending groups that compete for capacity. Record decisions on all other groups.

    A group that backs off competes only if no group may pass it.
    """
    return cycle.record_all(groups, partial(_decision_out_of_line, cycle, strategies))


def _decision_out_of_line(cycle: Cycle, strategies: Strategies, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that does not compete for capacity.

    None means that the group competes.
    """
    if excess_text := capability_excess(cycle, group):
        return undo_decision(cycle, group) or excess_decision(group, excess_text)
    absent_text = missing(group).absent_text
    if (group.is_on_nodes or not absent_text) and strategies.strategy_of(group).backs_off(group):
        is_in_line = not absent_text and strategies.strategy_of(group).lets_none_pass(group)
        return None if is_in_line else back_off(cycle, group)
    if group.is_on_nodes and (decision := undo_decision(cycle, group)) is not None:
        return decision
    if absent_text and group.start.failure and group.job.created_pods is None:  # this may explain the absence
        absent_text = f"{absent_text}; its last start failed: {group.start.failure}"
    return waiting_decision(group, Reason.NOT_ENOUGH_MEMBERS, absent_text) if absent_text else None


_MAX_LABEL_LENGTH = 63  # number of characters of a label
_MAX_LISTED_RESOURCES = 4  # number of resources in one sentence
_MAX_COMPARED_SETS = 64  # number of pod sets that are compared
_MAX_LISTED = 8  # number of names in one sentence, so that a status stays small


def explain(cycle: Cycle, planner: Planner, group: GroupInfo, need: Missing) -> tuple[Reason, str]:
    """Return why members have no placement in `planner`: the reason, and a text with numbers."""
    members, shapes, capacity = need.members, need.shapes, planner.capacity
    if (never_reason := why_never_fits(cycle, need)) is not None:
        return never_reason
    is_refused = any(capacity.refuses(shape) for shape in shapes)
    if is_refused and all(capacity.fits_without_refusals(shape, n) for shape, n in shapes.items()):
        detail = group.start.failure or "the scheduler rejects the nodes with free capacity"
        return Reason.REFUSED_BY_SCHEDULER, detail
    if not planner.affinity.is_any_interdependent(need) and capacity.is_short_for(shapes):
        # One shape alone lacks capacity, and no member has affinity. Counting the pods suffices here.
        at_once_text = f"{_capacity_text(capacity, shapes)} at once"
    else:
        at_once_text = f"capacity for {len(planner.fitting_pods(members))} of {len(members)} members at once"
    shape_counts: list[Mapping[Shape, int]] = [{shape: count} for shape, count in shapes.items()]
    for counted_shapes in (*shape_counts, shapes) if len(shape_counts) > 1 else shape_counts:
        if shortage := _shortage_text(capacity, counted_shapes, "left"):
            return Reason.NO_ROOM, f"{shortage} on suitable nodes; {_capacity_text(capacity, shapes)}"
    is_enough = all(capacity.total(shape) >= n for shape, n in shapes.items())
    if is_enough and (domains := _domains_text(planner, need)):
        return Reason.NO_DOMAIN, domains
    return Reason.FRAGMENTED, at_once_text


def best_domain_text(cycle: Cycle, members: Sequence[PodRecord]) -> str:
    """Return the domain with the most capacity as text, for members that fit only outside a single domain.

    The text is empty if capacity is lacking, or if the members need not share a domain.
    """
    need, planner = Missing(tuple(members)), cycle.budget.planner
    return "" if planner.capacity.is_short_for(need.shapes) else _domains_text(planner, need)


def _domains_text(planner: Planner, need: Missing) -> str:
    """Return the domain with the most capacity for members that must share a domain, as text.

    The text is empty if the members need not share a domain.
    """
    pods_by_set: dict[TopologySet, list[PodRecord]] = {}
    for pod in need.members:
        for pod_set in pod.pod_sets:
            if pod_set.is_required:
                pods_by_set.setdefault(pod_set, []).append(pod)
    texts = (_domain_text(planner, pod_set, pods) for pod_set, pods in pods_by_set.items())
    by_text = dict(islice(texts, _MAX_COMPARED_SETS))
    return next((text for text, suffices in by_text.items() if not suffices), next(iter(by_text), ""))


def _domain_text(planner: Planner, pod_set: TopologySet, pods: Sequence[PodRecord]) -> tuple[str, bool]:
    """Return the domain with the most capacity for the pods of a set, as text, and whether it suffices."""
    label = pod_set.level[:_MAX_LABEL_LENGTH]
    if (domain_and_fit := planner.largest_domain(pod_set, pods)) is None:
        return f"no node has the label {label} that the topology of its pods names", False
    domain, fitting_count, holds_others = domain_and_fit
    suffices = fitting_count >= len(pods)
    capacity = "all, but not together" if suffices else f"{fitting_count} of {len(pods)} members"
    phrase = "has other members, and free capacity" if holds_others else "has the most free capacity,"
    return f"{label}={domain} {phrase} for {capacity}", suffices


def _shortage_text(capacity: Capacity, shapes: Mapping[Shape, int], adverb: str) -> str:
    """Return the resources of which suitable nodes have too little, such as `cpu: 4 needed, 2 left`."""
    requests = sorted(requests_of(shapes).items())
    amounts = ((name, n, capacity.free_amount(shapes, name)) for name, n in requests)
    texts = (f"{name}: {show(name, n)} needed, {show(name, m)} {adverb}" for name, n, m in amounts if m < n)
    return " and ".join(islice(texts, _MAX_LISTED_RESOURCES))


def no_capacity_text(capacity: Capacity, shapes: Counter[Shape]) -> str:
    """Return a text with numbers about members that join a running group and find no capacity."""
    shortage = _shortage_text(capacity, shapes, "left")
    prefix = f"{shortage} on suitable nodes; " if shortage else ""
    return f"{prefix}no free capacity for {shapes.total()} more member{'s' * (shapes.total() > 1)}"


def why_never_fits(cycle: Cycle, need: Missing) -> tuple[Reason, str] | None:
    """Return why members have no placement even on empty nodes. None means that they have a placement."""
    for shape in need.shapes:
        if not cycle.empty_planner.capacity.total(shape):
            return Reason.NEVER_FITS, _no_node_text(cycle, shape)
    if cycle.fits_empty_cluster(need):
        return None
    if domains := _domains_text(cycle.empty_planner, need):
        return Reason.NEVER_FITS, f"on empty nodes: {domains}"
    shortage = _shortage_text(cycle.empty_planner.capacity, need.shapes, "there")
    detail = f"all suitable nodes together cannot hold {len(need.members)} members, even when empty"
    return Reason.NEVER_FITS, f"{shortage}; {detail}" if shortage else detail


def _no_node_text(cycle: Cycle, shape: Shape) -> str:
    """Return the resources or constraints that no node meets, as text.

    The shortest explanation is preferred:

    - a resource that no node has, to the whole request,
    - constraints that no node meets even alone, to all constraints together.
    """
    nodes, constraints, offers = cycle.snapshot.nodes, shape.constraints, cycle.largest_allocatable
    missing_names = sorted(name for name, n in shape.requests.items() if n > 0 >= offers.get(name, 0))
    if offers and missing_names:  # without nodes, all resources are lacking
        classes = list(filter(counts_in_queues, missing_names))  # instead of selectors of their devices
        return f"no node has {listed(classes or missing_names, _MAX_LISTED)}"
    suitable_count = np.count_nonzero(nodes.suitable_rows(shape))
    if suitable_count or not nodes.row_of:
        request = amounts_text(shape.requests) or "an empty request"
        return f"no node can hold {request} (suitable nodes: {suitable_count})"
    is_met_by_demand = {
        f"the label {key}={value} that nodeSelector names": nodes.has_value(key, value)
        for key, value in constraints.node_labels
    }
    if constraints.node_terms:
        term_shape = Shape({}, Constraints((), constraints.node_terms, (Toleration(operator="Exists"),)))
        or_claim = " or a ResourceClaim" if b"metadata.name" in constraints.node_terms else ""
        text = f"what the required node affinity{or_claim} asks for ({_terms_text(constraints.node_terms)})"
        is_met_by_demand[text] = bool(nodes.suitable_rows(term_shape).any())
    if (part := shape.suits.part) is not None:
        any_shape = Shape({}, Constraints(tolerations=(Toleration(operator="Exists"),)))
        labels = listed([f"{key}={value}" for key, value in part.labels], _MAX_LISTED)
        has_labels = part.earlier_parts and all(nodes.has_value(key, value) for key, value in part.labels)
        restriction = " without those of an earlier flavor" if has_labels else ""
        demand = f"the flavor's labels {labels}".rstrip() + restriction
        is_met_by_demand[demand] = bool(nodes.suitable_rows(any_shape.on_part(part)).any())
    if unmet_demands := [text for text, is_met in is_met_by_demand.items() if not is_met]:
        return f"no node has {listed(unmet_demands, _MAX_LISTED, ' and ')}"
    if not nodes.suitable_rows(Shape({}, Constraints(tolerations=constraints.tolerations))).any():
        taints = {taint for node in nodes.nodes if node for taint in node.taints}
        texts = sorted(taint_text(t) for t in taints if not is_tolerated(t, constraints.tolerations))
        return f"every node has a taint that is not tolerated: {listed(texts, _MAX_LISTED)}"
    all_demands = (*is_met_by_demand, "taints that are tolerated")
    return f"no node has all at once: {listed(all_demands, _MAX_LISTED)}"


def _terms_text(node_terms: bytes) -> str:
    """Return the terms of a node affinity as text for users."""
    texts: list[str] = []
    for term in msgspec.json.decode(node_terms or b"[]", type=list[NodeSelectorTerm]):
        rules = (*(term.match_expressions or ()), *(term.match_fields or ()))
        phrases = [f"{r.key} {r.operator} {listed(r.values or (), _MAX_LISTED)}".rstrip() for r in rules]
        texts.append(listed(phrases, _MAX_LISTED, " and "))
    return listed(texts, _MAX_LISTED, " or ")


def _capacity_text(capacity: Capacity, shapes: Counter[Shape]) -> str:
    """Return the capacity for shapes as text. Each shape is counted without the other shapes."""
    fitting_count = sum(min(capacity.total(shape), n) for shape, n in shapes.items())
    return f"capacity for {'at most ' * (len(shapes) > 1)}{fitting_count} of {shapes.total()} members"


def amounts_text(amounts: Resources) -> str:
    """Return amounts as text, such as `cpu 4 memory 64Gi`, without the number of pods. A long text is cut."""
    names = sorted(amounts.keys() - {PODS}, key=lambda name: (name != CPU, name != MEMORY, name))
    return listed([f"{name} {show(name, amounts[name])}" for name in names], _MAX_LISTED, " ")
