"""Results of a cycle: the Decisions, which share all unchanged objects with the previous Decisions."""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import Resources, add, add_times, in_flavor, of_flavor, on_all_nodes
from extender.domain.model.shared_maps import changed_keys, with_changes
from extender.domain.queues.deserved import sum_up
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.tree import QueueInfo
from extender.domain.scheduling.cycle import NO_GROUP, Cycle, error_decision
from extender.domain.scheduling.inadmissible import InadmissibleGroups
from extender.domain.scheduling.memory import CarriedFacts, Evaluation, NodeRequests
from extender.domain.scheduling.node_requests import Lines, requests_after, with_request
from extender.domain.scheduling.order import Rank
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.decisions import (
    UNKNOWN_LIFE,
    Decisions,
    FlavorShare,
    GroupDecision,
    QueueDecision,
)
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.phases import Life, Phase, life_of
from extender.domain.snapshot.snapshot import Snapshot

_PHASE_COLUMNS = {
    Phase.PENDING: "pending",
    Phase.INQUEUE: "inqueue",
    Phase.RUNNING: "running",
    Phase.UNKNOWN: "unknown",
}
_BY_OUTCOME = {Outcome.COMPLETED: "completed", Outcome.FAILED: "failed", Outcome.ABORTED: "aborted"}
_COLUMNS = (*_PHASE_COLUMNS.values(), *_BY_OUTCOME.values())
WAITING, ADMITTED = "waiting", "admitted"  # columns in the status of a LocalQueue
Column = tuple[str, str]  # name of a Queue or LocalQueue, and a column of its status


def column_changes(
    old_decisions: Mapping[GroupKey, GroupDecision],
    new_decisions: Mapping[GroupKey, GroupDecision],
    changed_groups: Iterable[GroupKey],
    find_column: Callable[[GroupDecision], Column | None],
) -> Mapping[Column, int]:
    """Return the change of the number of groups by column.

    Each group is in one column of its queue, and also counts in all queues above. Since few of many groups
    change in a cycle, the counts are updated instead of computed again.

    Args:
        old_decisions: The previous decisions.
        new_decisions: The decisions of this cycle. They differ from `old_decisions` only in `changed_groups`.
        changed_groups: The groups to compare.
        find_column: Returns the column of a group. A group without a column is not counted.
    """
    change_by_column = Counter[Column]()
    for key in changed_groups:
        for groups, sign in ((old_decisions, -1), (new_decisions, 1)):
            column = find_column(groups[key]) if key in groups else None
            if column is not None:
                change_by_column[column] += sign
    return {column: number for column, number in change_by_column.items() if number}


def add_changes(counts: Mapping[Column, int], changes: Mapping[Column, int]) -> Mapping[Column, int]:
    """Return the counts with the changes added, without zeros."""
    if not changes:
        return counts
    new_counts = {**counts, **{column: counts.get(column, 0) + number for column, number in changes.items()}}
    for column in changes:
        if not new_counts[column]:
            del new_counts[column]
    return new_counts


def queue_column(decision: GroupDecision) -> Column | None:
    """Return the column of a group in its queue's status: its outcome once it has ended, else its phase."""
    life = decision.life
    column = _PHASE_COLUMNS.get(life.phase, "unknown") if life.outcome is None else _BY_OUTCOME[life.outcome]
    return (decision.queue, column) if life.in_queue else None


def local_queue_column(decision: GroupDecision) -> Column | None:
    """Return the column of a group in its LocalQueue's status. A group that has ended has no column."""
    life = decision.life
    column = WAITING if life.phase is Phase.PENDING else ADMITTED
    return (life.local_queue, column) if life.local_queue and life.outcome is None else None


_REASONS_OUT_OF_LINE = (
    Reason.GROUP_NOT_FOUND,
    Reason.QUEUE_NOT_FOUND,
    Reason.INVALID_SPEC,
    Reason.TOO_COMPLEX,
    Reason.QUEUE_NOT_OPEN,
    Reason.NAMESPACE_NOT_ALLOWED,
    Reason.QUEUE_NOT_ALLOWED,
    Reason.QUEUE_STOPPED,
    Reason.HELD,
    Reason.START_TIMED_OUT,
    Reason.NOT_ENOUGH_MEMBERS,
    Reason.NEVER_FITS,
    Reason.TOO_LARGE_FOR_WINDOW,
)


class Positions(NamedTuple):
    """Positions of pending groups in their queues."""

    position_by_group: Mapping[GroupKey, int]
    """Positions by group, 1 for the next group. Unchanged lines have only their evaluated groups."""
    lines: Mapping[str, Sequence[GroupInfo]]  # groups in line by queue, in order


def positions_of(evaluation: Evaluation, inadmissible: InadmissibleGroups) -> Positions:
    """Return the position of each pending group in its queue, in the order of this cycle.

    Only a group that could start has a position. Groups that have not enough members, are held, or are too
    large for the cluster, their queue or the window have no position. Groups that back off keep their
    position, and inadmissible groups keep their place among the evaluated groups.

    A line without changed groups stays the same object.
    """
    carried_facts, new_lines = inadmissible.facts, _lines_of(evaluation)
    if carried_facts is None or inadmissible.memory is None:
        return Positions(_coarse_positions(new_lines.values()), new_lines)
    old_decisions, lines = inadmissible.previous.groups, dict(carried_facts.lines)
    old_line: dict[str, list[GroupInfo]] = {}
    for key in {*evaluation.cycle.decisions, *inadmissible.snapshot.dirty_groups}:
        if (old_decision := old_decisions.get(key)) is not None and old_decision.position:
            old_line.setdefault(old_decision.queue, []).append(carried_facts.snapshot.groups[key])
    new_positions: dict[GroupKey, int] = {}
    for queue in new_lines.keys() | old_line.keys():
        line, new_groups, old_groups = lines.get(queue, ()), new_lines.get(queue, ()), old_line.get(queue, ())
        if len(old_groups) < len(line) and set(new_groups) == set(old_groups):
            new_positions |= {group.key: old_decisions[group.key].position for group in new_groups}
            continue
        old_keys = {group.key for group in old_groups}
        unevaluated_groups = [group for group in line if group.key not in old_keys]
        new_line = unevaluated_groups or list(new_groups)
        if unevaluated_groups:
            for group in new_groups:
                insort(new_line, group, key=_order_key_of(evaluation))
        if new_line:
            lines[queue] = new_line
        else:
            lines.pop(queue, None)
        new_positions |= _coarse_positions([new_line])
    return Positions(new_positions, lines)


def _lines_of(evaluation: Evaluation) -> dict[str, Sequence[GroupInfo]]:
    """Return the groups that wait in line, by queue.

    The lines also include groups in backoff, which this cycle has not put in order.
    """
    cycle, order_key = evaluation.cycle, _order_key_of(evaluation)
    groups_in_backoff: dict[str, list[GroupInfo]] = {}
    for key, decision in cycle.decisions.items():
        if decision.reason is Reason.BACKING_OFF and _is_in_line(decision):
            groups_in_backoff.setdefault(decision.queue, []).append(cycle.snapshot.groups[key])
    lines: dict[str, Sequence[GroupInfo]] = {}
    for queue in evaluation.lines.keys() | groups_in_backoff.keys():
        line = evaluation.lines.get(queue, ())
        if queue in groups_in_backoff or any(map(evaluation.reservations.is_promised, line)):
            line = sorted({*line, *groups_in_backoff.get(queue, ())}, key=order_key)
        lines[queue] = [group for group in line if _is_in_line(cycle.decisions[group.key])]
    return lines


def _order_key_of(evaluation: Evaluation) -> Callable[[GroupInfo], tuple[bool, Rank]]:
    """Return the function for the sort key of groups.

    Guaranteed starts come before the order of the queue.
    """
    is_promised, rank = evaluation.reservations.is_promised, evaluation.strategies.rank
    return lambda group: (not is_promised(group), rank(group))


def _coarse_positions(lines: Iterable[Sequence[GroupInfo]]) -> dict[GroupKey, int]:
    """Return the position of each group in these lines."""
    return {group.key: coarse_position(place) for line in lines for place, group in enumerate(line, 1)}


def coarse_position(position: int) -> int:
    """Return a position, rounded down from 10 on: to 10, 15, 20 … 50, 60 … 100, 150 and so on.

    One start changes the position of every group behind it, and each change of a rounded position causes a
    write. In a line of 1,000 groups, a start changes only 35 rounded positions.
    """
    magnitude: int = 10 ** (len(str(position)) - 1)
    step = magnitude // 2 if position < 5 * magnitude else magnitude
    return position - position % max(step, 1)


def _is_in_line(decision: GroupDecision) -> bool:
    """Return whether a group with this decision has a position in its queue."""
    return decision.verdict is Verdict.WAITING and decision.reason not in _REASONS_OUT_OF_LINE


T = TypeVar("T")
_EMPTY_DECISION = QueueDecision("", "", 1, "", {}, {}, {}, {}, 0.0, counts=dict.fromkeys(_COLUMNS, 0))
_PENDING_LIFE, _RUNNING = Life(Phase.PENDING), Life(Phase.RUNNING)


def decisions_of(evaluation: Evaluation, inadmissible: InadmissibleGroups) -> Decisions:
    """Return the decisions of a cycle, including the previous decisions on inadmissible groups.

    If a decision equals the previous decision, it is the same object, so that readers can skip it.
    """
    cycle, previous, snapshot = evaluation.cycle, inadmissible.previous, inadmissible.snapshot
    positions, dirty, old = positions_of(evaluation, inadmissible), snapshot.dirty_groups, previous.groups
    new = _latest_decisions(evaluation, inadmissible, positions.position_by_group)
    requests = _request_nodes(evaluation, inadmissible, positions.lines, new)
    gone_keys = {key for key in (old if inadmissible.memory is None else dirty) if key not in snapshot.groups}
    changes = {key: decision for key, decision in new.items() if old.get(key) is not decision}
    groups: Mapping[GroupKey, GroupDecision] = new
    if inadmissible.memory is not None:
        groups = with_changes(old, {**changes, **dict.fromkeys(key for key in gone_keys if key in old)})
    renumbered_keys = [key for key in changes if _is_renumbered(old.get(key), new[key]) and key not in dirty]
    renumbered_set = frozenset(renumbered_keys)
    changed_groups = [key for key in new if key in dirty or (key in changes and key not in renumbered_set)]
    changed_groups += sorted(gone_keys | (dirty - new.keys()))  # sorted, as sets have no fixed order
    differences = column_changes(old, groups, changed_groups, queue_column)
    counts = add_changes(previous.counts, differences)
    local_differences = column_changes(old, groups, changed_groups, local_queue_column)
    queues = _queue_decisions(inadmissible, cycle, counts, differences, positions)  # may request a cycle
    instants, requeue_at = _instants(cycle, inadmissible, gone_keys)
    return Decisions(
        version=snapshot.version,
        groups=groups,
        queues=queues,
        requeue_at=requeue_at,
        orphans=snapshot.orphans,
        evictions=cycle.evictions,
        counts=counts,
        local_counts=add_changes(previous.local_counts, local_differences),
        serial=previous.serial + 1,
        changed_groups=changed_groups,
        renumbered_groups=renumbered_keys,
        memory=CarriedFacts(
            evaluation,
            inadmissible.memory,
            groups,
            positions.lines,
            instants,
            _reserving_queues(inadmissible, queues),
            requests,
        ),
    )


def _latest_decisions(
    evaluation: Evaluation, inadmissible: InadmissibleGroups, positions: Mapping[GroupKey, int]
) -> dict[GroupKey, GroupDecision]:
    """Return the decisions that may differ from the previous decisions."""
    cycle, previous = evaluation.cycle, inadmissible.previous.groups
    decisions: dict[GroupKey, GroupDecision] = {}
    if inadmissible.memory is not None:
        updated_decisions = inadmissible.updated_decisions(cycle.decisions, evaluation.heads)
        decisions = {decision.key: decision for decision in updated_decisions}
        for key, position in positions.items():
            decision = decisions.get(key) or previous.get(key)
            if decision is not None and key not in cycle.decisions and position != decision.position:
                decisions[key] = replace(decision, position=position)
    for key, decision in cycle.decisions.items():
        complete_decision = _complete(inadmissible.snapshot.groups[key], decision, positions.get(key, 0))
        if inadmissible.memory is not None:
            complete_decision = with_request(complete_decision, previous.get(key))
        decisions[key] = _reuse(previous.get(key), complete_decision)
    return decisions


def _request_nodes(
    evaluation: Evaluation, inadmissible: InadmissibleGroups, lines: Lines, new: dict[GroupKey, GroupDecision]
) -> NodeRequests:
    """Return the groups that request nodes, and add the decisions that change with the requests to `new`."""
    previous = inadmissible.previous.groups
    earlier_facts = inadmissible.facts if inadmissible.memory is not None else None
    requests = NodeRequests() if earlier_facts is None else earlier_facts.requests
    may_request = any(lines.values()) or any(decision.reason for decision in new.values())
    if may_request or requests != NodeRequests():
        requests, changes = requests_after(evaluation, earlier_facts, lines, new, previous)
        new |= {decision.key: _reuse(previous.get(decision.key), decision) for decision in changes}
    return requests


def _is_renumbered(old_decision: GroupDecision | None, new: GroupDecision) -> bool:
    """Return whether a decision differs from the previous decision, but only in its detail and position."""
    return old_decision is not None and replace(old_decision, detail=new.detail, position=new.position) == new


def _instants(
    cycle: Cycle, inadmissible: InadmissibleGroups, deleted_keys: Set[GroupKey]
) -> tuple[Mapping[GroupKey, float], float | None]:
    """Return when time alone could next change each decision, and the earliest of these times."""
    instants, carried_facts = cycle.instants, inadmissible.facts
    if carried_facts is None or inadmissible.memory is None:
        return instants, min(instants.values(), default=None)
    previous, earliest = carried_facts.instants, inadmissible.previous.requeue_at
    old = {key: previous[key] for key in (*cycle.decisions, *deleted_keys, NO_GROUP) if key in previous}
    if old == instants:
        return previous, earliest
    rest = {key: at for key, at in previous.items() if key not in old} if old.keys() - instants else previous
    new_instants = {**rest, **instants}
    if earliest is None or earliest in old.values():  # search all times only if the first is outdated
        return new_instants, min(new_instants.values(), default=None)
    return new_instants, min((earliest, *instants.values()))


def _complete(group: GroupInfo, decision: GroupDecision, position: int) -> GroupDecision:
    """Return the decision with the group's position, phase and numbers."""
    if decision.life is not UNKNOWN_LIFE:
        return decision
    try:
        life = life_of(group, decision.verdict, decision.plan, decision.reason)
    except Exception as fault:
        return replace(error_decision(group, fault), life=_RUNNING if group.is_on_nodes else _PENDING_LIFE)
    return replace(decision, life=life, position=position)


def _reuse(old_object: T | None, new: T) -> T:
    """Return the previous object if the new object is equal."""
    return old_object if old_object is not None and (old_object is new or old_object == new) else new


class _PreviousQueues(NamedTuple):
    """Previous decisions on queues, with the changes since; empty if they cannot be compared."""

    decisions: Mapping[str, QueueDecision] = {}
    infos: Mapping[str, QueueInfo] = {}
    lines: Mapping[str, Sequence[GroupInfo]] = {}
    reserving_queues: Set[str] = frozenset()  # queues with a reservation, or with reclaimed capacity
    changed_nodes: Iterable[int] = ()  # nodes of the queue tree whose allocation, share or ceiling changed

    @classmethod
    def from_carried(cls, inadmissible: InadmissibleGroups, cycle: Cycle) -> "_PreviousQueues":
        """Return the previous results, with the changed nodes of the queue tree; empty if not comparable."""
        if (facts := inadmissible.facts) is None:
            return cls()
        shares, previous, snapshot = cycle.budget.shares, facts.evaluation.cycle.budget.shares, cycle.snapshot
        changed_at_start = shares.at_start.nodes_changed_since(previous.at_start)
        changed_nodes = shares.state.nodes_changed_since(previous.state)
        is_comparable = (
            snapshot.past_usage.shown_usages is facts.snapshot.past_usage.shown_usages
            and snapshot.pools == facts.snapshot.pools
        )
        if (
            changed_at_start is None
            or changed_nodes is None
            or not is_comparable
            or shares.at_start.reduced_guarantees != previous.at_start.reduced_guarantees
        ):
            return cls()
        results = inadmissible.previous.queues, facts.snapshot.queues, facts.lines, facts.reserving_queues
        return cls(*results, changed_at_start | changed_nodes)

    def changed_queues(
        self, cycle: Cycle, reservations: Mapping[str, Reservation], lines: Mapping[str, Sequence[GroupInfo]]
    ) -> Set[str]:
        """Return the queues whose line, reservation or reclaims have changed."""
        names = {name for name in lines.keys() | self.lines if lines.get(name) is not self.lines.get(name)}
        candidates = {*self.reserving_queues, *cycle.reclaimed, *reservations}
        for name in candidates & self.decisions.keys():
            previous = self.decisions[name]
            is_any_reclaimed = previous.reclaimed or name in cycle.reclaimed  # reclaims expire
            is_reclaim_changed = is_any_reclaimed and previous.reclaimed != cycle.recent_reclaims(name)
            if is_reclaim_changed or previous.reservation != reservations.get(name):
                names.add(name)
        return names


class _Sums:
    """Sums of amounts of queues. The amounts of a queue also count for the queues above it."""

    def __init__(self, ancestry: Callable[[str], Sequence[str]]) -> None:
        self.by_queue: dict[str, dict[str, int]] = {}
        self._ancestry = ancestry

    def add(self, queue: str, amounts: Resources, times: int = 1) -> None:
        for ancestor in self._ancestry(queue):
            add(self.by_queue.setdefault(ancestor, {}), amounts, times)


def _resources_beyond_nodes(queue: QueueRecord, offered: Resources) -> tuple[str, ...]:
    """Return the resources of which a queue deserves more than all nodes offer."""
    return tuple(sorted(name for name, n in (queue.deserved or {}).items() if n > offered.get(name, 0)))


def _queue_decisions(
    inadmissible: InadmissibleGroups,
    cycle: Cycle,
    counts: Mapping[Column, int],
    changed_counts: Mapping[Column, int],
    positions: Positions,
) -> Mapping[str, QueueDecision]:
    """Return the decisions on queues. Decisions without a change are reused.

    Args:
        inadmissible: The previous decisions.
        cycle: The cycle.
        counts: The number of groups by queue and column of its status.
        changed_counts: The changes of these numbers.
        positions: The groups in line.
    """
    snapshot, shares, old_decisions = cycle.snapshot, cycle.budget.shares, inadmissible.previous.queues
    queues, tree, old = snapshot.queues, shares.tree, _PreviousQueues.from_carried(inadmissible, cycle)
    columns, requested_sums = _Sums(tree.ancestry), _Sums(tree.ancestry)
    for (name, column), number in (changed_counts if old.decisions else counts).items():
        if name in queues:
            columns.add(name, {column: number})
    for name in changed_keys(queues, old.infos):
        if name in queues:
            requested_sums.add(name, queues[name].requested)
            requested_sums.add(name, old.infos[name].requested if name in old.infos else {}, times=-1)
    reservations = {item.queue: item.reservation for item in cycle.decisions.values() if item.reservation}
    lines = positions.lines
    names = {*columns.by_queue, *requested_sums.by_queue, *(tree.queues[node] for node in old.changed_nodes)}
    names |= old.changed_queues(cycle, reservations, lines)
    if not names:
        return old_decisions
    flavors = _FlavorShares(snapshot, shares)
    changes: dict[str, QueueDecision] = {}
    for name in filter(queues.__contains__, names) if old.decisions else queues:
        previous = old.decisions.get(name, _EMPTY_DECISION)
        new_counts, requests = dict(previous.counts), dict(previous.requested)
        add(new_counts, columns.by_queue.get(name, {}))
        add_times(requests, requested_sums.by_queue.get(name, {}), times=1)
        reservation, waiting = reservations.get(name), len(lines.get(name, ()))
        decision = _queue_decision(cycle, queues[name], flavors, requests, new_counts, reservation, waiting)
        changes[name] = _reuse(old_decisions.get(name), decision)
    return with_changes(old.decisions, changes)


def _queue_decision(
    cycle: Cycle,
    queue: QueueInfo,
    flavors: "_FlavorShares",
    requested_amounts: Resources,
    counts: Mapping[str, int],
    reservation: Reservation | None,
    waiting_count: int,
) -> QueueDecision:
    """Return the decision on a queue, from its info and the shares of the cycle."""
    record, shares = queue.record, cycle.budget.shares
    name, tree = record.name, shares.tree
    node = tree.node_by_queue[name]
    return QueueDecision(
        name=name,
        state=queue.state,
        weight=record.weight,
        parent=tree.parent_of(name),
        allocated=on_all_nodes(shares.at_start.holdings.held(node)),
        requested=requested_amounts,
        deserved=on_all_nodes(shares.state.deserved_at(node)),
        ceiling=on_all_nodes(shares.state.ceiling_at(node)),
        share=shares.relative_share(node),
        borrowed=on_all_nodes(shares.borrowed_amounts(node)),
        above_nodes=_resources_beyond_nodes(record, shares.at_start.division.total),
        unmet=shares.at_start.reduced_guarantees.get(name, {}),
        usage=cycle.snapshot.past_usage.shown_usages.get(name),
        flavors=flavors.shares_of(queue, node),
        counts=counts,
        uid=record.uid,
        wish=queue.desired_state,
        deleting=record.is_deleting,
        closed_above=queue.closed_above,
        mark=queue.annotation_step,
        fault=queue.fault,
        missing_flavors=tuple(flavor.resource_flavor for flavor in record.flavors if flavor.is_missing),
        reservation=reservation,
        reclaimed=cycle.recent_reclaims(name),
        waiting=waiting_count,
    )


def _reserving_queues(inadmissible: InadmissibleGroups, new: Mapping[str, QueueDecision]) -> Set[str]:
    """Return the queues with a reservation, or with reclaimed capacity."""
    carried_facts, old_decisions = inadmissible.facts, inadmissible.previous.queues
    names = set(changed_keys(new, old_decisions if carried_facts is not None else {}))
    new_names = (name for name in names if name in new and (new[name].reservation or new[name].reclaimed))
    return {*(carried_facts.reserving_queues - names if carried_facts is not None else ()), *new_names}


class _FlavorShares:
    """Allocated and deserved amounts of queues by flavor.

    The amounts cover the flavors that a queue may use, and other flavors of which the queue holds more than
    it deserves.
    """

    def __init__(self, snapshot: Snapshot, shares: QueueShares) -> None:
        self._shares, self._pools, self._infos = shares, snapshot.pools, snapshot.queues

    @cached_property
    def _held_by_node(self) -> Sequence[Resources]:
        """Return the amounts of flavors that each node of the queue tree holds."""
        amounts: dict[str, dict[str, int]] = {queue: {} for queue in self._infos}
        for queue, info in self._infos.items():
            for pool, holdings in info.amounts_by_pool.items():
                amounts[queue] |= {in_flavor(resource, pool): amount for resource, amount in holdings.items()}
        return sum_up(self._shares.tree, amounts)

    def shares_of(self, queue: QueueInfo, node: int) -> Mapping[str, FlavorShare]:
        """Return the shares of a queue in its own flavors, and in flavors that it borrows.

        Each flavor has the name that the queue uses for it.
        """
        if not self._pools.all_pools:
            return {}
        deserved, above_share = self._shares.state.deserved_at(node), self._shares.borrowed_amounts(node)
        names = {flavor.nodes: flavor.name for flavor in queue.flavors}
        shares = {
            pool.name: FlavorShare(
                of_flavor(self._held_by_node[node], pool.name), of_flavor(deserved, pool.name), borrowed
            )
            for pool in self._pools.all_pools
            if (borrowed := of_flavor(above_share, pool.name)) or pool.nodes in names
        }
        own_names = {pool.name: names[pool.nodes] for pool in self._pools.all_pools if pool.nodes in names}
        return {own_names.get(name, name): share for name, share in shares.items()}
