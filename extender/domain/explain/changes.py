"""The smallest change that would start a group, found by the reason why the group waits.

decide() tries each change before it is reported.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import gcd

import numpy as np
from msgspec.structs import replace

from extender.api import keys
from extender.api.units import listed
from extender.domain.explain.holders import Holder, StartChange, WaitingCase, queue_path
from extender.domain.explain.hypotheses import (
    best_node,
    placements,
    snapshot_without,
    with_group,
    with_groups,
    with_nodes,
    with_queue,
    without_pods,
)
from extender.domain.model.reasons import Reason
from extender.domain.model.records import Uid
from extender.domain.model.resources import Resources, show
from extender.domain.model.shapes import Shape
from extender.domain.placement.planner import Planner
from extender.domain.queues.records import Limit, QueueRecord
from extender.domain.scheduling.obstacles import amounts_text
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import missing

_MAX_NODE_COUNT = 64
_MAX_LISTED_NAMES = 4  # number of names in one sentence


def window_clears(case: WaitingCase) -> StartChange | None:
    """Return the change that starting members are bound to nodes, which frees places in the window."""

    def widen_window(n: int) -> Snapshot:
        return replace(case.snapshot, limits=replace(case.snapshot.limits, window=window + n))

    window, size = case.snapshot.limits.window, len(missing(case.group).members)
    count = case.trial.smallest_number(window + size, widen_window)
    if count is None:
        return None
    return StartChange(f"with {count} more place{'s' * (count > 1)} in the window")


def window_grows(case: WaitingCase) -> StartChange | None:
    """Return the change that the window is large enough for the group."""
    size = max(len(missing(case.group).members), 1)
    wider_snapshot = replace(case.snapshot, limits=replace(case.snapshot.limits, window=size))
    return case.start_change(f"with a window of {size} members (--window)", wider_snapshot)


def backoff_ends(case: WaitingCase) -> StartChange:
    """Return the change that the group's backoff has ended."""
    instant = max(case.decision.retry_at, case.snapshot.now)
    return case.start_change(f"about {case.snapshot.timestamp(instant)}", replace(case.snapshot, now=instant))


def more_nodes(case: WaitingCase) -> StartChange | None:
    """Return the change that nodes like the most suitable node are added."""
    if (row := best_node(case.snapshot, case.group)) is None:
        return None
    max_nodes = min(len(missing(case.group).members), _MAX_NODE_COUNT)
    count = case.trial.smallest_number(max_nodes, lambda n: with_nodes(case.snapshot, row, n))
    return StartChange(_more_nodes_text(case, row, count)) if count is not None else None


def more_empty_nodes(case: WaitingCase) -> StartChange | None:
    """Return the change that nodes are added for a group that all nodes together cannot hold.

    The number of nodes does not depend on running groups.
    """
    row, need = best_node(case.snapshot, case.group), missing(case.group)

    def fits(n: int) -> bool:
        larger_snapshot = with_nodes(case.snapshot, row or 0, n)
        empty_planner = Planner.empty(larger_snapshot, Planner.from_snapshot(larger_snapshot).affinity)
        return empty_planner.could_place(need)

    max_nodes = min(len(need.members), _MAX_NODE_COUNT)
    if row is None or not fits(max_nodes):
        return None
    count = 1 + bisect_left(range(1, max_nodes), True, key=fits)
    change = case.start_change(_more_nodes_text(case, row, count), with_nodes(case.snapshot, row, count))
    return None if change.then == Reason.NEVER_FITS else change  # the group is too large for a ceiling, too


def _more_nodes_text(case: WaitingCase, row: int, count: int) -> str:
    """Return a text for `count` more nodes like the node in `row`."""
    node = case.snapshot.nodes.nodes[row]
    assert node is not None, "it is suitable"
    size = amounts_text({name: node.allocatable.get(name, 0) for name in missing(case.group).requests})
    return f"with {count} more node{'s' * (count > 1)} like {node.name}{f' ({size})' * bool(size)}"


def more_members(case: WaitingCase) -> StartChange | None:
    """Return the change in which the missing members are created."""
    group = case.group
    members = [*group.waiting_pods, *(pod for pod, _ in group.assumed_pods), *group.placed_pods]
    missing_count = case.group.min_member - len(members)
    if missing_count <= 0:
        return None
    text = f"with {missing_count} more member{'s' * (missing_count > 1)}"
    if not members:
        may_fit = missing_count <= case.snapshot.limits.window
        return StartChange(f"{text}, if they fit") if may_fit else None
    if missing_count > case.snapshot.limits.window:  # a tenant may write any number
        smaller_group = replace(case.group, min_member=len(members))
        text = f"if it needs no more than the {len(members)} member{'s' * (len(members) > 1)} that it has"
        return case.start_change(text, with_group(case.snapshot, smaller_group))
    template = replace(members[0], node="", phase="Pending")
    numbered_ids = ((f"{template.uid}:{n}", f"{template.name}:{n}") for n in range(missing_count))
    copies = (replace(template, uid=Uid(uid), name=name) for uid, name in numbered_ids)
    complete_group = replace(case.group, waiting_pods=(*case.group.waiting_pods, *copies))
    return case.start_change(text, with_group(case.snapshot, complete_group))


def smaller_requests(case: WaitingCase) -> StartChange | None:
    """Return the change that members request less, for members that no node can hold."""
    largest_requests = {shape: _largest_request(case, shape) for shape in missing(case.group).shapes}
    requests = {shape: amounts for shape, amounts in largest_requests.items() if amounts != shape.requests}
    if not requests or any(amounts is None for amounts in requests.values()):
        return None
    shapes = {shape: Shape(amounts or {}, shape.constraints) for shape, amounts in requests.items()}
    pods = tuple(replace(pod, shape=shapes.get(pod.shape, pod.shape)) for pod in case.group.waiting_pods)
    spec = case.group.spec
    if spec.owner_name:  # Muster computed minResources from the requests
        spec = replace(spec, min_resources={})
    changed_snapshot = with_group(case.snapshot, replace(case.group, waiting_pods=pods, spec=spec))
    texts = [
        f"{amounts_text({name: n})} per member instead of {show(name, shape.requests[name])}"
        for shape, amounts in requests.items()
        for name, n in (amounts or {}).items()
        if n != shape.requests[name]
    ]
    change = case.start_change(f"with requests of at most {', '.join(texts)}", changed_snapshot)
    return None if change.then == Reason.NEVER_FITS else change


def _largest_request(case: WaitingCase, shape: Shape) -> Resources | None:
    """Return the requests that the most suitable node can hold; None if there is no such node.

    The result is at most the present requests.
    """
    rows, columns = np.flatnonzero(case.snapshot.nodes.suitable_rows(shape)), case.snapshot.dimensions
    best: tuple[float, Resources] | None = None
    for row in rows.tolist():
        allocatable = dict(zip(columns, case.snapshot.allocatable[row].tolist(), strict=True))
        amounts = {name: min(amount, allocatable.get(name, 0)) for name, amount in shape.requests.items()}
        part = min((amounts[name] / amount for name, amount in shape.requests.items() if amount), default=1.0)
        if part > 0 and (best is None or part > best[0]):
            best = (part, amounts)
    return best[1] if best else None


def declared_run_time(case: WaitingCase) -> StartChange | None:
    """Return the change that the group declares a run time that is short enough to pass reservations."""
    reservations = (decision.reservation for decision in case.decisions.groups.values())
    instants = (reservation.passable_until for reservation in reservations if reservation)
    durations = [instant - case.snapshot.now for instant in instants if instant is not None]
    seconds = int(max(durations, default=0.0))
    if seconds < 1:
        return None
    shorter_group = replace(case.group, spec=replace(case.group.spec, run_time=float(seconds)))
    if not case.trial.starts(with_group(case.snapshot, shorter_group)):
        return None
    return StartChange(f"with a declared run time of at most {seconds} s ({keys.RUN_TIME})")


def group_resumed(case: WaitingCase) -> StartChange:
    """Return the change that the group is no longer held."""
    snapshot = with_group(case.snapshot, replace(case.group, spec=replace(case.group.spec, is_held=False)))
    return case.start_change(f"without the annotation {keys.HOLD}", snapshot)


def timeouts_reset(case: WaitingCase) -> StartChange:
    """Return the change that a user lets a job with too many start timeouts try again."""
    snapshot = with_group(case.snapshot, replace(case.group, job=replace(case.group.job, start_timeouts=0)))
    return case.start_change(f"without the annotation {keys.START_TIMEOUTS}", snapshot)


def local_queue_resumed(case: WaitingCase) -> StartChange | None:
    """Return the change that the group's LocalQueue is resumed."""
    local_queue = case.group.local_queue
    if local_queue is None or not local_queue.stop_policy:
        return None
    groups = [group for group in case.snapshot.groups.values() if group.local_queue == local_queue]
    snapshot = with_groups(
        case.snapshot, (replace(group, local_queue=replace(local_queue, stop_policy="")) for group in groups)
    )
    return case.start_change(f"with spec.stopPolicy None in LocalQueue {local_queue.key}", snapshot)


def more_capability(case: WaitingCase) -> StartChange | None:
    """Return the change that the capability of the group's queue, or of a queue above it, is raised.

    The new capability covers the usage of the queue, the missing members of the group, and groups ahead.
    """
    requests = missing(case.group).requests
    for name in queue_path(case.decisions, case.group.queue):
        record, (held_or_needed, steps) = case.snapshot.queues[name].record, _subtree_needs(case, name)
        old_capability = record.capability or {}
        new_capability = {
            resource: held_or_needed.get(resource, 0) + requests[resource]
            for resource, amount in old_capability.items()
            if resource in requests and held_or_needed.get(resource, 0) + requests[resource] > amount
        }
        new_capability = _least_capability(case, record, new_capability, steps)
        if new_capability:
            amount_texts = (
                f"{amounts_text({resource: n})} instead of {show(resource, old_capability[resource])}"
                for resource, n in new_capability.items()
            )
            text = f"with spec.capability {', '.join(amount_texts)} in queue {name}"
            return StartChange(text, queue=name, capability=new_capability)
    return None


def _least_capability(
    case: WaitingCase, record: QueueRecord, sufficient_capability: Resources, steps: Resources
) -> dict[str, int]:
    """Return the smallest capability with which the group still starts, one resource after the other.

    The search goes below `sufficient_capability`, usually in steps of whole members. The result is empty if
    the group does not even start with `sufficient_capability`.
    """
    old_capability, new_capability = record.capability or {}, dict(sufficient_capability)

    def starts(resource: str, amount: int) -> bool:
        amounts = {**old_capability, **new_capability, resource: max(amount, old_capability[resource])}
        return case.trial.starts(with_queue(case.snapshot, replace(record, capability=amounts)))

    if not any(starts(*each) for each in islice(new_capability.items(), 1)):
        return {}
    for resource in sorted(new_capability.keys() & steps.keys()):
        for step in (steps[resource], 1):  # the queue's turn can come first with a smaller raise
            amounts = range(new_capability[resource], old_capability[resource] - step, -step)[::-1]
            new_capability[resource] = amounts[bisect_left(amounts[:-1], True, key=partial(starts, resource))]
            if not starts(resource, new_capability[resource] - 1):
                break
    return {resource: n for resource, n in new_capability.items() if n > old_capability[resource]}


def flavor_capability(case: WaitingCase) -> StartChange | None:
    """Return the change that the capability of one flavor is raised."""
    requests = missing(case.group).requests
    for name in queue_path(case.decisions, case.group.queue):
        record, flavor_shares = case.snapshot.queues[name].record, case.decisions.queues[name].flavors
        for number, flavor in enumerate(record.flavors):
            limits = flavor.amounts.get("capability", {})
            held_amounts = flavor_shares[flavor.name].allocated if flavor.name in flavor_shares else {}
            needs = {item: held_amounts.get(item, 0) + requests[item] for item in limits if item in requests}
            more = {item: n for item, n in needs.items() if n > limits[item]}
            raised_flavor = replace(flavor, amounts={**flavor.amounts, "capability": {**limits, **more}})
            flavors = tuple(raised_flavor if item is flavor else item for item in record.flavors)
            if more and case.trial.starts(with_queue(case.snapshot, replace(record, flavors=flavors))):
                amount_texts = [
                    f"{amounts_text({key: n})} instead of {show(key, limits[key])}" for key, n in more.items()
                ]
                field = f"spec.flavors[{number}].capability ({flavor.name}) in queue {name}"
                return StartChange(f"with {', '.join(amount_texts)} in {field}")
    return None


def _subtree_needs(case: WaitingCase, queue: str) -> tuple[Resources, Resources]:
    """Return the amounts that groups of a queue and of queues below it hold or need, and search steps.

    A search step is the greatest common divisor of the requests of all pods that are to start.
    """
    held_or_needed, steps = dict(case.decisions.queues[queue].allocated), dict[str, int]()
    for decision in case.decisions.groups.values():
        if decision.plan and queue in queue_path(case.decisions, decision.queue):
            for pod in case.snapshot.groups[decision.key].waiting_pods:
                for name, amount in pod.shape.requests.items() if pod.uid in decision.plan else ():
                    held_or_needed[name] = held_or_needed.get(name, 0) + amount
                    steps[name] = gcd(steps.get(name, 0), amount)
    return held_or_needed, steps


def higher_limit(case: WaitingCase) -> StartChange | None:
    """Return the change that a limit on running groups or pods is raised."""
    if case.queue is None:
        return None
    record, size = case.queue, len(missing(case.group).members)
    for field, scope in (("queue", ""), ("user", " of each user"), ("namespace", " of each namespace")):
        limits: Limit = getattr(record.limits, field)
        for kind, n, max_raise in (("groups", limits.groups, 1), ("pods", limits.pods, size)):
            if n is None:
                continue
            growth = _needed_raise(case, record, field, kind, n, max_raise)
            if growth is not None:
                text = f"with a limit of {n + growth} {kind}{scope} instead of {n} in queue {record.name}"
                return StartChange(text)
    return None


def _needed_raise(
    case: WaitingCase, record: QueueRecord, field: str, kind: str, old_limit: int, max_raise: int
) -> int | None:
    """Return by how much a limit must be raised for the group to start, up to `max_raise`.

    None means that such a raise does not help.
    """

    def raise_limit(n: int) -> Snapshot:
        limit = replace(getattr(record.limits, field), **{kind: old_limit + n})
        return with_queue(case.snapshot, replace(record, limits=replace(record.limits, **{field: limit})))

    return case.trial.smallest_number(max_raise, raise_limit)


def queue_resumed(case: WaitingCase) -> StartChange | None:
    """Return the change that the group's queue is resumed."""
    if case.queue is None or not case.queue.stop_policy:
        return None
    snapshot = with_queue(case.snapshot, replace(case.queue, stop_policy=""))
    return case.start_change(f"with spec.stopPolicy None in queue {case.queue.name}", snapshot)


def namespace_allowed(case: WaitingCase) -> StartChange:
    """Return the change that the queue admits the namespace, which also admits its groups ahead."""
    queue, namespace = case.group.queue, case.group.key.partition("/")[0]
    snapshot = with_groups(
        case.snapshot,
        (
            replace(group, is_namespace_allowed=True)
            for group in case.snapshot.groups.values()
            if group.queue == queue and group.key.startswith(f"{namespace}/")
        ),
    )
    text = f"with spec.namespaceSelector of queue {queue} selecting namespace {namespace}"
    return case.start_change(text, snapshot)


def use_allowed(case: WaitingCase) -> StartChange:
    """Return the change that the group's author may use its restricted queue."""
    snapshot = with_group(case.snapshot, replace(case.group, is_use_allowed=True))
    return case.start_change(f"once a record says that its author may use queue {case.group.queue}", snapshot)


def ends_for_capacity(case: WaitingCase) -> StartChange | None:
    """Return the change that holders of capacity end.

    Holders on the group's reserved nodes come first, as in its messages.
    """
    holders = sorted(case.evictable_holders(), key=_size_key)
    if (reservation := case.decision.reservation) is not None:
        nodes, snapshot = frozenset(reservation.nodes.values()), case.snapshot

        def is_elsewhere(holder: Holder) -> bool:
            if holder.group:
                return nodes.isdisjoint(node for _, node in placements(snapshot.groups[holder.group]))
            pod = snapshot.other_pods.get(holder.uid)
            return pod is None or pod.node not in nodes

        holders.sort(key=is_elsewhere)
    return _fewest_ends(case, holders, "ends", "end", needs_capacity=True)


def ends_in_queue(case: WaitingCase) -> StartChange | None:
    """Return the change that groups of the queue or of its siblings end."""
    holders = sorted(case.queue_holders(), key=_size_key)
    holders.sort(key=lambda holder: holder.queue != case.group.queue)
    return _fewest_ends(case, holders, "ends", "end")


def groups_ahead_end(case: WaitingCase) -> StartChange | None:
    """Return the change that groups ahead have started and ended, or are deleted."""
    holders = case.holders(Reason.BEHIND_OTHERS)
    return _fewest_ends(
        case, holders, "has started and ended, or is deleted", "have started and ended, or are deleted"
    )


def reservations_end(case: WaitingCase) -> StartChange | None:
    """Return the change that groups with a reservation no longer wait and leave their nodes."""
    holders = case.holders(Reason.RESERVED)
    return _fewest_ends(
        case, holders, "no longer waits and leaves its nodes", "no longer wait and leave their nodes"
    )


def claims_end(case: WaitingCase) -> StartChange | None:
    """Return the change that groups that claim capacity no longer wait."""
    holders = case.holders_by_decision(lambda decision: decision.claims_capacity)
    return _fewest_ends(case, holders, "no longer waits", "no longer wait")


def victims_gone(case: WaitingCase) -> StartChange | None:
    """Return the change that the victims whose eviction is in progress have ended. No user needs to act."""
    if case.decision.reclaim is None:
        return None
    victims = {victim.uid for victim in case.decision.reclaim.victims}
    gone_uids = {pod.uid for group in case.snapshot.groups.values() for pod in group.departing_pods}
    gone_uids |= case.snapshot.other_pods.leaving.keys()
    holders = list(case.victims())
    which_pods = f"evicted for it are gone: {_holders_text(holders)}" if holders else "that leave are gone"
    return case.start_change(f"once the pods {which_pods}", without_pods(case.snapshot, victims | gone_uids))


def _fewest_ends(
    case: WaitingCase,
    candidates: Sequence[Holder],
    singular_verb: str,
    plural_verb: str,
    needs_capacity: bool = False,
) -> StartChange | None:
    """Return the change that one candidate ends. If no candidate suffices alone, the fewest of them end."""

    def remove_holders(removed: Sequence[Holder]) -> Snapshot:
        groups = frozenset(holder.group for holder in removed if holder.group)
        pods = frozenset(holder.uid for holder in removed if holder.uid)
        return snapshot_without(case.snapshot, groups, pods)

    holders = case.trial.smallest_set(candidates, remove_holders, needs_capacity)
    if not holders:
        return None
    text = f"once {_holders_text(holders)} {singular_verb if len(holders) == 1 else plural_verb}"
    return StartChange(text, ends=tuple(holder.name for holder in holders))


def _holders_text(holders: Sequence[Holder]) -> str:
    """Return the names of holders as a part of a sentence, with their numbers of pods."""
    texts: list[str] = []
    for holder in holders:
        remarks = ["1 pod" if holder.pods == 1 else f"{holder.pods} pods"] if holder.group else []
        if holder.deleting:
            text = f"{holder.deleting} being deleted" if holder.group else "being deleted"
            remarks.append(f"{text} and should have gone at {holder.overdue}" if holder.overdue else text)
        remark_text = f" ({', '.join(remarks)})" if remarks else ""
        texts.append(f"{holder.called}{remark_text}" if holder.group else f"pod {holder.name}{remark_text}")
    return listed(texts, _MAX_LISTED_NAMES)


def _size_key(holder: Holder) -> tuple[bool, bool, int, str]:
    """Return the sort key of holders: departing holders first, then groups, then other pods."""
    name = holder.called or holder.name
    return holder.deleting < holder.pods, not holder.group, holder.pods, name


_CAPACITY_FINDERS = (ends_for_capacity, more_nodes)
_FINDERS: Mapping[Reason, Sequence[Callable[[WaitingCase], StartChange | None]]] = {
    Reason.NO_ROOM: _CAPACITY_FINDERS,
    Reason.FRAGMENTED: _CAPACITY_FINDERS,
    Reason.NO_DOMAIN: _CAPACITY_FINDERS,
    Reason.REFUSED_BY_SCHEDULER: _CAPACITY_FINDERS,
    Reason.QUEUE_CEILING: (higher_limit, ends_in_queue, more_capability, flavor_capability),
    Reason.QUEUE_SHARE: (claims_end, more_nodes),
    Reason.BEHIND_OTHERS: (groups_ahead_end,),
    Reason.RESERVED: (declared_run_time, reservations_end, more_nodes),
    Reason.RECLAIMING: (victims_gone,),
    Reason.WINDOW_FULL: (window_clears,),
    Reason.TOO_LARGE_FOR_WINDOW: (window_grows,),
    Reason.NEVER_FITS: (higher_limit, more_capability, flavor_capability, smaller_requests, more_empty_nodes),
    Reason.BACKING_OFF: (backoff_ends,),
    Reason.NOT_ENOUGH_MEMBERS: (more_members,),
    Reason.HELD: (group_resumed,),
    Reason.START_TIMED_OUT: (timeouts_reset,),
    Reason.QUEUE_STOPPED: (queue_resumed, local_queue_resumed),
    Reason.NAMESPACE_NOT_ALLOWED: (namespace_allowed,),
    Reason.QUEUE_NOT_ALLOWED: (use_allowed,),
}


def smallest_change(case: WaitingCase) -> StartChange | None:
    """Return the smallest change that starts the group, among the changes that its reason suggests."""
    reason = case.decision.reason
    finders = _FINDERS.get(reason, ()) if reason is not None else ()
    return next((change for find in finders if (change := find(case)) is not None), None)
