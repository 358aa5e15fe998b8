"""Obstacles of a group, as reasons.

Some prevent its evaluation: its own faults, the state of its queue, missing members, or its backoff. A group
that is evaluated and does not fit never does (NeverFits), not now (NoRoom), or only in pieces (Fragmented).
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
def resting_decision(group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that has ended, backs off or terminates: nothing around changes it.

    None: it has to be evaluated.
    """
    state = state_of(group)
    if state not in (State.ENDED, State.ENDING, State.RESTING, State.SETTLING):
        return None
    verdict = Verdict.ENDED if state is State.ENDED else Verdict.RUNNING
    life = life_of(group, Verdict.RUNNING)
    return GroupDecision(group.key, group.queue, verdict, detail=ending_text(life), life=life)


def decision_at_rest(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group at rest, and record since when it has fully run."""
    decision = resting_decision(group)
    if decision is None or state_of(group) is not State.SETTLING:
        return decision
    instant = whole_at(group, cycle.limits.whole_grace)
    is_whole = instant is not None and cycle.is_due(instant)
    return replace(decision, stood_whole=True) if is_whole else decision


def blocking_decision(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that cannot be evaluated; None where it can."""
    queue = cycle.snapshot.queues.get(group.queue)
    if group.spec.fault:
        return waiting_decision(group, Reason.INVALID_SPEC, group.spec.fault)
    if not group.exists:
        return waiting_decision(group, Reason.GROUP_NOT_FOUND, missing_group_message(group))
    if (local := group.local_queue) is not None and not local.exists:
        return waiting_decision(group, Reason.QUEUE_NOT_FOUND, f"LocalQueue {local.key} does not exist")
    if local is not None and local.fault:
        return waiting_decision(group, Reason.INVALID_SPEC, local.fault)
    if queue is None or not queue.exists:
        return waiting_decision(group, Reason.QUEUE_NOT_FOUND, f"queue {group.queue} does not exist")
    if queue.fault:
        return waiting_decision(group, Reason.INVALID_SPEC, queue.fault)
    if excess := _excess_constraints(group):
        return waiting_decision(group, Reason.TOO_COMPLEX, excess)
    return _refused_entry(cycle, group, queue) or _held_decision(group, queue.record)


@computed_once
def _excess_constraints(group: GroupInfo) -> str:
    """Return the part of a member's constraints beyond what is evaluated; empty if there is none."""
    shapes = ((pod.name, pod.shape.constraints.excess) for pod in group.waiting)
    return next((f"pod {name} has {excess}" for name, excess in shapes if excess), "")


def _refused_entry(cycle: Cycle, group: GroupInfo, queue: QueueInfo) -> GroupDecision | None:
    """Return the decision on a group that its queue does not take, or whose job may not start any more."""
    if not group.history.entitled:
        text = f"queue {queue.record.name} is {queue.state}"
        if queue.record.deleting:
            text += ", because it is being deleted"
        elif queue.queue_to_open != queue.record.name:
            text += f", because queue {queue.queue_to_open} above it is closed"
        return waiting_decision(group, Reason.QUEUE_NOT_OPEN, text)
    if not group.namespace_allowed:
        detail = not_selected(group.queue, group.key.partition("/")[0])
        return waiting_decision(group, Reason.NAMESPACE_NOT_ALLOWED, detail)
    if not group.use_allowed:
        text = f"queue {group.queue} is restricted, and no record says that the group's author may use it"
        return waiting_decision(group, Reason.QUEUE_NOT_ALLOWED, f"{text} ({keys.MAY_USE})")
    if group.job.crowded_out:
        most = cycle.limits.expected_pods
        text = f"the jobs of its namespace wait for {most} pods already; it has its turn as these start"
        return waiting_decision(group, Reason.BEHIND_OTHERS, text)
    if group.job.start_timeouts >= cycle.limits.start_timeouts:
        what = "its pods did not all run in time" if group.job.managed else "its start was undone"
        text = f"{what} {group.job.start_timeouts} times in a row"
        return waiting_decision(group, Reason.START_TIMED_OUT, text)
    return None


def _held_decision(group: GroupInfo, queue: QueueRecord) -> GroupDecision | None:
    """Return the decision on a group that is held by its owner, or by that of its queue."""
    if group.spec.held:
        return waiting_decision(group, Reason.HELD, f'the annotation {keys.HOLD} is "true"')
    if queue.stop_policy:
        detail = f"spec.stopPolicy of queue {queue.name} is {queue.stop_policy}"
        return waiting_decision(group, Reason.QUEUE_STOPPED, detail)
    if (local := group.local_queue) is not None and local.stop_policy:
        detail = f"spec.stopPolicy of LocalQueue {local.key} is {local.stop_policy}"
        return waiting_decision(group, Reason.QUEUE_STOPPED, detail)
    return None


def not_replaced(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return why lost members are not replaced: the group is held, or its queue or LocalQueue drains.

    A queue that only admits no new groups keeps its running groups whole.
    """
    queue = cycle.snapshot.queues.get(group.queue)
    drains = group.is_drained or (queue is not None and queue.record.stop_policy == keys.STOP_DRAIN)
    return _held_decision(group, queue.record) if queue is not None and (group.spec.held or drains) else None


def above_capability(cycle: Cycle, group: GroupInfo) -> str:
    """Return how `minResources` exceeds the maximum of the queue; empty if it does not.

    This is Volcano's rule for its enqueue action: while the group is Pending, operators make no members
    that could never start. A group without `minResources` and pods counts with the default request of its
    queue. Managed jobs are exempt: their requests are known, and they may start with fewer pods.
    """
    queue = cycle.snapshot.queues[group.queue].record
    if not (most := queue.capability) or group.job.managed:
        return ""
    field, requests = "spec.minResources", group.spec.min_resources
    if not requests and not group.has_pods:
        field = f"spec.defaultRequest for {group.min_member} members"
        requests = {name: amount * group.min_member for name, amount in queue.default_request.items()}
    above = {name: amount for name, amount in requests.items() if amount > most.get(name, amount)}
    over = [f"{name}: {show(name, amount)} > {show(name, most[name])}" for name, amount in above.items()]
    return f"{field} is above the capability of queue {group.queue}: {', '.join(over)}" if over else ""


def exceeds_queue(group: GroupInfo, detail: str) -> GroupDecision:
    """Return the decision on a group that never fits because of its queue."""
    return replace(waiting_decision(group, Reason.NEVER_FITS, detail), exceeds_queue=True)


def waiting_decision(group: GroupInfo, reason: Reason, detail: str) -> GroupDecision:
    return GroupDecision(group.key, group.queue, Verdict.WAITING, reason, detail)


def missing_group_message(group: GroupInfo) -> str:
    return f"PodGroup {group.key} does not exist"


def evaluable_groups(cycle: Cycle, strategies: Strategies, groups: Iterable[GroupInfo]) -> list[GroupInfo]:
    """Return the pending groups that capacity would help, and those that let none pass while they back off.

    The others are settled.
    """
    return cycle.settle_all(groups, partial(_not_ready, cycle, strategies))


def _not_ready(cycle: Cycle, strategies: Strategies, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that does not compete for capacity; None: it does."""
    if too_much := above_capability(cycle, group):
        return undo_decision(cycle, group) or exceeds_queue(group, too_much)
    absent = missing(group).absent
    if (group.is_on_nodes or not absent) and strategies.traverse_of(group).backs_off(group):
        is_in_line = not absent and strategies.traverse_of(group).lets_none_pass(group)
        return None if is_in_line else back_off(cycle, group)
    if group.is_on_nodes and (decision := undo_decision(cycle, group)) is not None:
        return decision
    if absent and group.start.failure and group.job.created_pods is None:  # perhaps why they are absent
        absent = f"{absent}; its last start failed: {group.start.failure}"
    return waiting_decision(group, Reason.NOT_ENOUGH_MEMBERS, absent) if absent else None


_LONGEST_NAME = 63  # characters of a label
_MOST_SHORT = 4  # resources in one sentence
_MOST_SETS = 64  # pod sets that are looked at
_MOST_NAMES = 8  # in one sentence: a pod may ask for thousands of resources, and a status should stay small


def explain(cycle: Cycle, planner: Planner, group: GroupInfo, wanted: Missing) -> tuple[Reason, str]:
    """Return the reason and its numbers for members that have no placement in `planner`."""
    members, shapes, capacity = wanted.members, wanted.shapes, planner.capacity
    if (never := never_fits(cycle, wanted)) is not None:
        return never
    is_refused = any(capacity.refuses(shape) for shape in shapes)
    if is_refused and all(capacity.could_hold_but_for_refusals(shape, n) for shape, n in shapes.items()):
        detail = group.start.failure or "the scheduler rejects the nodes with free capacity"
        return Reason.REFUSED_BY_SCHEDULER, detail
    if not planner.affinity.any_interdependent(wanted) and capacity.is_short_for(shapes):
        # Some shape alone lacks capacity, and no member has affinity: counting suffices, without placing.
        at_once = f"{_capacity_for(capacity, shapes)} at once"
    else:
        at_once = f"capacity for {len(planner.fitting(members))} of {len(members)} members at once"
    parts: list[Mapping[Shape, int]] = [{shape: count} for shape, count in shapes.items()]
    for part in (*parts, shapes) if len(parts) > 1 else parts:
        if numbers := _short(capacity, part, "left"):
            return Reason.NO_ROOM, f"{numbers} on suitable nodes; {_capacity_for(capacity, shapes)}"
    is_enough = all(capacity.total(shape) >= n for shape, n in shapes.items())
    if is_enough and (domains := _domains_text(planner, wanted)):
        return Reason.NO_DOMAIN, domains
    return Reason.FRAGMENTED, at_once


def lacks_domain(cycle: Cycle, members: Sequence[PodRecord]) -> str:
    """Return the domain with the most capacity as text, for members that only fit outside one domain."""
    wanted, planner = Missing(tuple(members)), cycle.budget.planner
    return "" if planner.capacity.is_short_for(wanted.shapes) else _domains_text(planner, wanted)


def _domains_text(planner: Planner, wanted: Missing) -> str:
    """Return the domain with the most capacity for members that must share one, as text; empty: none must."""
    by_set: dict[TopologySet, list[PodRecord]] = {}
    for pod in wanted.members:
        for pod_set in pod.pod_sets:
            if pod_set.is_required:
                by_set.setdefault(pod_set, []).append(pod)
    texts = (_domain_text(planner, pod_set, pods) for pod_set, pods in by_set.items())
    found = dict(islice(texts, _MOST_SETS))
    return next((text for text, suffices in found.items() if not suffices), next(iter(found), ""))


def _domain_text(planner: Planner, pod_set: TopologySet, pods: Sequence[PodRecord]) -> tuple[str, bool]:
    """Return the domain with the most capacity for the pods of a set, as text, and whether it suffices."""
    label = pod_set.level[:_LONGEST_NAME]
    if (found := planner.largest_domain(pod_set, pods)) is None:
        return f"no node has the label {label} that the topology of its pods names", False
    domain, fitting, holds_others = found
    suffices = fitting >= len(pods)
    capacity = "all, but not together" if suffices else f"{fitting} of {len(pods)} members"
    has = "has other members, and free capacity" if holds_others else "has the most free capacity,"
    return f"{label}={domain} {has} for {capacity}", suffices


def _short(capacity: Capacity, shapes: Mapping[Shape, int], free: str) -> str:
    """Return the resources of which suitable nodes have less than needed, such as `cpu: 4 needed, 2 left`."""
    requests = sorted(requests_of(shapes).items())
    amounts = ((name, n, capacity.left_for(shapes, name)) for name, n in requests)
    short = (f"{name}: {show(name, n)} needed, {show(name, m)} {free}" for name, n, m in amounts if m < n)
    return " and ".join(islice(short, _MOST_SHORT))


def why_none_joins(capacity: Capacity, shapes: Counter[Shape]) -> str:
    """Return the numbers for members that join a running group and find no capacity."""
    short = _short(capacity, shapes, "left")
    numbers = f"{short} on suitable nodes; " if short else ""
    return f"{numbers}no free capacity for {shapes.total()} more member{'s' * (shapes.total() > 1)}"


def never_fits(cycle: Cycle, wanted: Missing) -> tuple[Reason, str] | None:
    """Return the reason for members that have no placement even if nothing runs; None if they have one."""
    for shape in wanted.shapes:
        if not cycle.empty.capacity.total(shape):
            return Reason.NEVER_FITS, _no_node(cycle, shape)
    if cycle.fits_empty_cluster(wanted):
        return None
    if domains := _domains_text(cycle.empty, wanted):
        return Reason.NEVER_FITS, f"on empty nodes: {domains}"
    numbers = _short(cycle.empty.capacity, wanted.shapes, "there")
    detail = f"all suitable nodes together cannot hold {len(wanted.members)} members, even when empty"
    return Reason.NEVER_FITS, f"{numbers}; {detail}" if numbers else detail


def _no_node(cycle: Cycle, shape: Shape) -> str:
    """Return the resources or constraints that no node meets, as text.

    The shortest explanation comes first: a resource that no node has, before the whole request; constraints
    that no node meets even alone, before all of them together.
    """
    nodes, constraints, offers = cycle.snapshot.nodes, shape.constraints, cycle.largest_offers
    lacking = sorted(name for name, n in shape.requests.items() if n > 0 >= offers.get(name, 0))
    if offers and lacking:  # without nodes, everything is lacking
        classes = list(filter(counts_in_queues, lacking))  # rather than selections of their devices
        return f"no node has {listed(classes or lacking, _MOST_NAMES)}"
    suitable = np.count_nonzero(nodes.suitable(shape))
    if suitable or not nodes.row:
        request = amounts_text(shape.requests) or "an empty request"
        return f"no node can hold {request} (suitable nodes: {suitable})"
    demands = {
        f"the label {key}={value} that nodeSelector names": nodes.has(key, value)
        for key, value in constraints.node_labels
    }
    if constraints.node_terms:
        alone = Shape({}, Constraints((), constraints.node_terms, (Toleration(operator="Exists"),)))
        or_claim = " or a ResourceClaim" if b"metadata.name" in constraints.node_terms else ""
        affinity = f"what the required node affinity{or_claim} asks for ({_in_words(constraints.node_terms)})"
        demands[affinity] = bool(nodes.suitable(alone).any())
    if (part := shape.suits.part) is not None:
        anywhere = Shape({}, Constraints(tolerations=(Toleration(operator="Exists"),)))
        labels = listed([f"{key}={value}" for key, value in part.labels], _MOST_NAMES)
        is_taken = part.before and all(nodes.has(key, value) for key, value in part.labels)
        restriction = " without those of an earlier flavor" if is_taken else ""
        demand = f"the flavor's labels {labels}".rstrip() + restriction
        demands[demand] = bool(nodes.suitable(anywhere.on_part(part)).any())
    if unmet := [text for text, is_met in demands.items() if not is_met]:
        return f"no node has {listed(unmet, _MOST_NAMES, ' and ')}"
    if not nodes.suitable(Shape({}, Constraints(tolerations=constraints.tolerations))).any():
        taints = {taint for node in nodes.nodes if node for taint in node.taints}
        texts = sorted(taint_text(t) for t in taints if not is_tolerated(t, constraints.tolerations))
        return f"every node has a taint that is not tolerated: {listed(texts, _MOST_NAMES)}"
    tolerated_too = (*demands, "taints that are tolerated")
    return f"no node has all at once: {listed(tolerated_too, _MOST_NAMES)}"


def _in_words(node_terms: bytes) -> str:
    """Return the terms of a node affinity for users."""
    texts: list[str] = []
    for term in msgspec.json.decode(node_terms or b"[]", type=list[NodeSelectorTerm]):
        required = (*(term.match_expressions or ()), *(term.match_fields or ()))
        phrases = [f"{r.key} {r.operator} {listed(r.values or (), _MOST_NAMES)}".rstrip() for r in required]
        texts.append(listed(phrases, _MOST_NAMES, " and "))
    return listed(texts, _MOST_NAMES, " or ")


def _capacity_for(capacity: Capacity, shapes: Counter[Shape]) -> str:
    """Return the capacity for shapes as text; if there are several, each is counted alone."""
    fitting = sum(min(capacity.total(shape), n) for shape, n in shapes.items())
    return f"capacity for {'at most ' * (len(shapes) > 1)}{fitting} of {shapes.total()} members"


def amounts_text(amounts: Resources) -> str:
    """Return amounts as text, `cpu 4 memory 64Gi`, without pods; of many resources only the first."""
    names = sorted(amounts.keys() - {PODS}, key=lambda name: (name != CPU, name != MEMORY, name))
    return listed([f"{name} {show(name, amounts[name])}" for name in names], _MOST_NAMES, " ")
