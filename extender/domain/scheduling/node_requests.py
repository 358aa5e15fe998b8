"""Node requests: the waiting pods for which an autoscaler may add nodes.

All requesting pods together stay within the headroom of every ceiling and limit of their queue and of the
queues above it. They request nodes in this order: replacements, groups in line in the order of the queue,
groups too large for the existing nodes, and elastic members. A group that needs several members requests
nodes for all of them or for none.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby, islice
from operator import attrgetter

from msgspec.structs import replace

from extender.domain.model.reasons import REASONS_FOR_NODES, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shared_maps import changed_keys
from extender.domain.queues.share_tree import TOP
from extender.domain.scheduling.budget import Budget, Scope
from extender.domain.scheduling.headroom import levels
from extender.domain.scheduling.memory import CarriedFacts, Evaluation, NodeRequests
from extender.domain.scheduling.order import TurnOrder
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.wholeness import Missing, missing

_MAX_COUNT = 10**9
_NO_MEMBERS = Missing(())
_MAX_EQUAL_GROUPS = 64  # number of groups that are evaluated together
_MAX_MISFITS = 16  # failed headroom checks of a queue, after which no further group requests nodes

Lines = Mapping[str, Sequence[GroupInfo]]
EqualGroups = list[GroupInfo]  # consecutive groups of one queue that need equal headroom
DecisionMap = Mapping[GroupKey, GroupDecision]


def requests_after(
    evaluation: Evaluation, facts: CarriedFacts | None, lines: Lines, new: DecisionMap, previous: DecisionMap
) -> tuple[NodeRequests, list[GroupDecision]]:
    """Return the node requests after a cycle, and the decisions that change with them.

    Args:
        evaluation: The evaluation of the cycle.
        facts: Facts of the previous cycle, if its results for unchanged queues are still valid.
        lines: Groups in line, by queue.
        new: Decisions of this cycle.
        previous: Decisions of the previous cycle.
    """
    cycle, old_requests = evaluation.cycle, NodeRequests() if facts is None else facts.requests
    groups, tree = cycle.snapshot.groups, cycle.budget.shares.tree
    too_large = {key for key, decision in new.items() if decision.exceeds_cluster}
    too_large |= {key for key in old_requests.large_gangs if key in groups and key not in new}
    changed = _changed_queues(evaluation, facts, lines, previous)
    if changed is not None and not changed:
        return old_requests._replace(large_gangs=too_large), []

    def concerns(queue: str) -> bool:
        return queue in tree.leaves and (changed is None or not changed.isdisjoint(tree.path(queue)[-2:-1]))

    evaluated = [groups[key] for key in cycle.decisions if key in groups]
    joiners = [
        group
        for group in evaluated
        if new[group.key].verdict is Verdict.RUNNING and _needs_nodes(new[group.key])
    ]
    extras = [group for group in (*joiners, *map(groups.__getitem__, too_large)) if concerns(group.queue)]
    waiting_lines = _with_other_groups(
        {queue: line for queue, line in lines.items() if line and concerns(queue)}, extras
    )
    requests = _QueueRequests(evaluation, lambda key: new.get(key) or previous.get(key))
    requests_by_queue = requests.all_requesters(waiting_lines)
    requesting_keys = {queue: keys for queue, keys in old_requests.requesters.items() if not concerns(queue)}
    changes: dict[GroupKey, tuple[Uid, ...] | None] = {}
    for queue in {*waiting_lines, *filter(concerns, old_requests.requesters)}:
        granted_members = requests_by_queue.get(queue)
        if granted_members is None:  # all groups request nodes
            old_line = facts.lines.get(queue, ()) if facts is not None else ()
            reported = (*old_line, *waiting_lines.get(queue, ())) if queue in old_requests.requesters else ()
            changes |= dict.fromkeys(group.key for group in reported if group.key in groups)
            continue
        requesting_keys[queue] = granted_members.keys()
        line = waiting_lines[queue] if queue not in old_requests.requesters else ()
        old_requesters = (groups[key] for key in old_requests.requesters.get(queue, ()) if key in groups)
        reported_keys = {group.key for group in (*old_requesters, *line, *evaluated) if group.queue == queue}
        changes |= {key: () for key in reported_keys - granted_members.keys() if requests.may_request(key)}
        changes |= granted_members
    pairs = ((requests.decision_of(key), members) for key, members in changes.items())
    new_decisions = [replace(old, asking=members) for old, members in pairs if old and old.asking != members]
    return NodeRequests(too_large, requesting_keys), new_decisions


def with_request(new: GroupDecision, old: GroupDecision | None) -> GroupDecision:
    """Return a decision with the previous node request, which is valid until its queue changes."""
    if old is None or old.asking is None or old.queue != new.queue or _differs(old, new):
        return new
    return replace(new, asking=old.asking)


def _needs_nodes(decision: GroupDecision) -> bool:
    """Return whether more nodes would help a group. A group that starts has its nodes already."""
    lacks_nodes = decision.reason in REASONS_FOR_NODES or decision.exceeds_cluster
    return lacks_nodes and decision.verdict is not Verdict.STARTING


def _differs(old: GroupDecision | None, new: GroupDecision) -> bool:
    """Return whether a decision differs from the previous decision in more than numbers."""
    if old is None or old.plan != new.plan:
        return True
    return (old.verdict, old.reason, _needs_nodes(old)) != (new.verdict, new.reason, _needs_nodes(new))


def _with_other_groups(lines: Lines, other_groups: Iterable[GroupInfo]) -> Lines:
    """Return the lines, extended by groups that have no position in them.

    Replacements come first, elastic members last.
    """
    front_by_queue: dict[str, list[GroupInfo]] = {}
    back_by_queue: dict[str, list[GroupInfo]] = {}
    for group in sorted(other_groups, key=lambda group: (state_of(group) is State.GROWING, group.order)):
        side = front_by_queue if state_of(group) is State.REPLACING else back_by_queue
        side.setdefault(group.queue, []).append(group)
    changed_lines = {
        queue: [*front_by_queue.get(queue, ()), *lines.get(queue, ()), *back_by_queue.get(queue, ())]
        for queue in {**front_by_queue, **back_by_queue}
    }
    return {**lines, **changed_lines}


def _changed_queues(
    evaluation: Evaluation, facts: CarriedFacts | None, lines: Lines, previous: DecisionMap
) -> Set[int] | None:
    """Return the queues right below root that have changed, or that have a changed queue below them.

    None means that all queues may have changed.
    """
    if facts is None:
        return None
    snapshot, shares = evaluation.cycle.snapshot, evaluation.cycle.budget.shares
    nodes = shares.state.nodes_changed_since(facts.evaluation.cycle.budget.shares.state)
    if nodes is None:
        return None
    names = {new.queue for key, new in evaluation.cycle.decisions.items() if _differs(previous.get(key), new)}
    names |= {previous[key].queue for key in snapshot.dirty_groups if key in previous}
    names |= {name for name in lines.keys() | facts.lines if lines.get(name) is not facts.lines.get(name)}
    names |= {*changed_keys(snapshot.queues, facts.snapshot.queues)}
    names |= {shares.tree.queues[node] for node in nodes if node != TOP}
    return {node for name in names if name in shares.tree.leaves for node in shares.tree.path(name)[-2:-1]}


class _QueueRequests:
    """Node requests of some queues in one cycle. Requests use headroom, which is freed at the end."""

    def __init__(self, evaluation: Evaluation, look_up: Callable[[GroupKey], GroupDecision | None]) -> None:
        self.decision_of = look_up
        self._evaluation = evaluation
        self._budget: Budget = evaluation.cycle.budget
        self._queues = evaluation.cycle.snapshot.queues
        self._short_scopes = set[Scope]()  # scopes whose limit is too low for all their groups

    def all_requesters(self, waiting_lines: Lines) -> Mapping[str, Mapping[GroupKey, tuple[Uid, ...] | None]]:
        """Return by queue the groups that request nodes, and the members for which they do so.

        None means all waiting members. Queues whose groups may all request nodes are left out.
        """
        journal = self._budget.journal
        checkpoint = journal.checkpoint()
        self._evaluation.reservations.free_all_headroom()  # groups with reserved headroom request nodes, too
        limited_queues = self._limited_queues(waiting_lines)
        answers: dict[str, dict[GroupKey, tuple[Uid, ...] | None]] = {queue: {} for queue in limited_queues}
        sources = {queue: self._equal_groups(waiting_lines[queue]) for queue in limited_queues}
        lines = {queue: deque(islice(source, 1)) for queue, source in sources.items()}
        misfit_counts = Counter[str]()
        for queue, line in TurnOrder(self._budget.shares, self._queues, lines, lambda run: run[0]):
            run = line.popleft()
            fitting = run[: self._use_headroom(run)]
            has_spare = len(self._gang_need(run[0]).members) < len(run[0].waiting_pods)  # a run of one group
            answers[queue] |= {group.key: self._requesters(group) if has_spare else None for group in fitting}
            misfit_counts[queue] += len(fitting) < len(run)
            if misfit_counts[queue] < _MAX_MISFITS:
                line.extend(islice(sources[queue], 1))
        journal.roll_back(checkpoint)
        return answers

    def _limited_queues(self, lines: Lines) -> list[str]:
        """Return the queues without headroom for all their groups.

        The result also has all queues below the same child of root, since such queues can share a ceiling.
        """
        shares, journal = self._budget.shares, self._budget.journal
        checkpoint, short_nodes = journal.checkpoint(), set[int]()
        for queue in lines:
            info = self._queues.get(queue)
            usage = info.allocated if info is not None else {}
            growth = {name: n - usage.get(name, 0) for name, n in (info.requested if info else {}).items()}
            growth = {name: max(n, 0) for name, n in growth.items()}
            is_short = any(
                n > free[name] for _, need, free in shares.headroom(queue, growth) for name, n in need.items()
            )
            if is_short or self._is_limited(queue, lines[queue]) or self._budget.flavors.flavors_of(queue):
                short_nodes.update(shares.tree.path(queue)[-2:-1])
            shares.add(queue, growth)
        journal.roll_back(checkpoint)
        return [queue for queue in lines if not short_nodes.isdisjoint(shares.tree.path(queue)[-2:-1])]

    def _is_limited(self, queue: str, line: Iterable[GroupInfo]) -> bool:
        """Return whether limits on running pods can prevent a group of a queue from requesting nodes.

        The method records each queue, user and namespace whose remaining limit is lower than the needs of all
        its groups.
        """
        limits, free = self._budget.rules.limits_by_queue.get(queue), dict[Scope, Resources]()
        needs = defaultdict[Scope, Counter[str]](Counter)
        if limits is None:
            return False
        for group in line:
            for scope, counts, free_counts in self._budget.running.remaining(group, len(group.waiting_pods)):
                needs[scope].update(counts)
                free[scope] = free_counts
        short_scopes = {
            scope for scope, sums in needs.items() if any(n > free[scope][kind] for kind, n in sums.items())
        }
        self._short_scopes |= short_scopes
        return bool(short_scopes)

    def _equal_groups(self, line: Iterable[GroupInfo]) -> Iterator[EqualGroups]:
        """Yield the groups of a line that may request nodes, in runs with equal needs."""
        for _, groups in groupby((group for group in line if self.may_request(group.key)), self._need_key):
            while run := [*islice(groups, _MAX_EQUAL_GROUPS)]:
                yield run

    def may_request(self, key: GroupKey) -> bool:
        """Return whether nodes would help existing pods of a group. A job requests nodes once it has pods."""
        decision, group = self.decision_of(key), self._evaluation.cycle.snapshot.groups.get(key)
        if decision is None or group is None or not _needs_nodes(decision):
            return False
        return any(not pod.is_expected for pod in group.waiting_pods)

    def _need_key(self, group: GroupInfo) -> tuple[object, ...]:
        """Return a key that is equal for groups that need the same headroom.

        A group with spare members has a key of its own.
        """
        own_key = group.key if len(self._gang_need(group).members) < len(group.waiting_pods) else ""
        short = tuple(scope for scope, _ in self._budget.running.scopes(group) if scope in self._short_scopes)
        return own_key, group.compute(_signature), short

    def _gang_need(self, group: GroupInfo) -> Missing:
        """Return the missing members that start together; none for a fully running group."""
        decision = self.decision_of(group.key) if group.placed_pods else None
        if decision is not None and decision.verdict is Verdict.RUNNING:
            return _NO_MEMBERS
        return (
            self._budget.flavors.flavored_members(group)
            if self._budget.flavors.flavors_of(group.queue)
            else missing(group)
        )

    def _use_headroom(self, run: EqualGroups) -> int:
        """Use headroom for as many groups of a run as possible. Return the number of these groups."""
        need = self._gang_need(run[0])
        if not need.members:
            return len(run)
        fitting_count = min(self._count_fitting(run[0], need), len(run))
        if fitting_count:
            self._budget.shares.add(run[0].queue, need.requests, fitting_count)
        for group in run[:fitting_count] if run[0].queue in self._budget.rules.limits_by_queue else ():
            self._budget.running.add(group, len(need.members))
        return fitting_count

    def _requesters(self, group: GroupInfo) -> tuple[Uid, ...] | None:
        """Return the members for which a group requests nodes.

        The result has the needed members, for which headroom is used already, and spare members within the
        headroom. None means all waiting members.
        """
        decision, needed_pods = self.decision_of(group.key), self._gang_need(group).members
        settled_uids = {pod.uid for pod in needed_pods} | (decision.plan.keys() if decision else set())
        pods = sorted(group.waiting_pods, key=attrgetter("order"))
        spare = [pod for pod in pods if pod.uid not in settled_uids]
        uids = [pod.uid for pod in needed_pods]
        for _, equal_pods in groupby(spare, lambda pod: pod.shape):
            pods = [*equal_pods]
            one_member = Missing((pods[0],))
            fitting_pods = pods[: self._count_fitting(group, one_member)]
            if fitting_pods:
                self._budget.shares.add(group.queue, one_member.requests, len(fitting_pods))
                self._budget.running.add(group, len(fitting_pods))
            uids += [pod.uid for pod in fitting_pods]
        return None if len(uids) == len(needed_pods) + len(spare) else tuple(uids)

    def _count_fitting(self, group: GroupInfo, need: Missing) -> int:
        """Return how many times the headroom suffices for these members."""
        quotients = (
            free_amounts[name] // amount
            for level, needed_amounts, free_amounts in levels(self._budget, group, need)
            if not isinstance(level, Scope) or level in self._short_scopes
            for name, amount in needed_amounts.items()
            if amount
        )
        return max(min(quotients, default=_MAX_COUNT), 0)


def _signature(group: GroupInfo) -> object:
    return missing(group).signature
