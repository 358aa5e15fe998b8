"""World with a tree of queues, in which the invariants of every decision are checked."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from extender.domain.model.evictions import EvictionCause, Reclaim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.resources import CPU, total
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import is_whole_with
from tests.domain.world import LIMITS, World, comparable

SLACK = 0.5  # millicores: possible rounding of a share


class SharedWorld(World):
    """World that counts reclaims, and records when each began."""

    def __init__(self, *objects: object) -> None:
        self.last_reclaims: dict[tuple[GroupKey, GroupKey], float] = {}
        self.ended_reclaims: list[tuple[GroupKey, Reclaim, GroupDecision | None]] = []
        super().__init__(*objects)

    def decide(self) -> Decisions:
        snapshot, before = self.ledger.snapshot(), self.decisions
        decisions = decide(snapshot, before)
        assert comparable(decisions) == comparable(decide(snapshot, before)), "the same again"
        assert comparable(decisions) == comparable(decide(snapshot, None)), "the same from scratch"
        check(DecidedStep(snapshot, before, decisions))
        return decisions

    def publish_decisions(self, decisions: Decisions) -> None:
        before, snapshot = self.decisions, self.ledger.snapshot()
        for key, previous in before.groups.items():
            if (
                previous.reclaim is not None
                and decisions.groups.get(key, previous).reclaim != previous.reclaim
            ):
                self._forget_refused(key, previous.reclaim, snapshot)
        for key, decision in decisions.groups.items():
            earlier = before.groups[key].reclaim if key in before.groups else None
            if decision.reclaim is not None and decision.reclaim != earlier:
                self._record(key, decision.reclaim)
        for key, decision in before.groups.items():
            now = decisions.groups.get(key)
            if decision.reclaim is not None and (now is None or now.reclaim is None):
                self.ended_reclaims.append((key, decision.reclaim, now))
                check_outcome(decision.reclaim, now)
        super().publish_decisions(decisions)

    def _forget_refused(self, key: GroupKey, reclaim: Reclaim, snapshot: Snapshot) -> None:
        """Forget a reclaim for which no pod was evicted, since an eviction was refused."""
        placed = {
            pod.uid for group in snapshot.groups.values() for pod in group.placed_pods if not pod.deleting
        }
        if any(victim.uid in snapshot.refused_evictions for victim in reclaim.victims):
            evicted_groups = {victim.group for victim in reclaim.victims if victim.uid not in placed}
            for victim_group in {victim.group for victim in reclaim.victims} - evicted_groups:
                self.last_reclaims.pop((key, victim_group), None)

    def _record(self, key: GroupKey, reclaim: Reclaim) -> None:
        assert reclaim.until - reclaim.since <= LIMITS.reclaim_deadline
        for victim_group in {victim.group for victim in reclaim.victims if victim.group}:
            last_reclaim_at = self.last_reclaims.get((key, victim_group))
            assert last_reclaim_at is None or self.now - last_reclaim_at >= LIMITS.reclaim_memory, (
                f"{key} reclaims from {victim_group} again"
            )
            self.last_reclaims[key, victim_group] = self.now


class DecidedStep:
    """Snapshot of the cluster, and the decision on it. Amounts are in millicores."""

    def __init__(self, snapshot: Snapshot, before: Decisions, now: Decisions) -> None:
        self.snapshot, self.before, self.now = snapshot, before, now

    def assumed_pods(self, group: GroupInfo) -> Iterator[tuple[PodRecord, str]]:
        """Yield members that are starting, with their nodes."""
        yield from group.assumed_pods
        assumed = {pod.uid for pod, _ in group.assumed_pods}
        plan = self.now.groups[group.key].plan
        for pod in group.waiting_pods:
            if pod.uid in plan and pod.uid not in assumed:
                yield pod, plan[pod.uid]

    def holders(self, group: GroupInfo, leaving: bool = True) -> list[tuple[PodRecord, str]]:
        """Return members that hold capacity, with their nodes. `leaving`: also terminating ones."""
        members = [*group.placed_pods, *(group.departing_pods if leaving else ())]
        return [*((pod, pod.node) for pod in members if pod.holds_capacity), *self.assumed_pods(group)]

    def new_members(self, group: GroupInfo) -> list[PodRecord]:
        """Return members that got a node in this decision."""
        return [
            pod
            for pod in group.waiting_pods
            if group.planned_nodes.get(pod.uid) != self.now.groups[group.key].plan.get(pod.uid)
            and pod.uid in self.now.groups[group.key].plan
        ]

    def joining(self, group: GroupInfo) -> list[PodRecord]:
        """Return the pods of a group that had no node before.

        A pod that moves to another node adds nothing to its queue, whose ceiling may have changed.
        """
        return [pod for pod in self.new_members(group) if pod.uid not in group.planned_nodes]

    def path(self, queue: str) -> list[str]:
        names = []
        while queue:
            names.append(queue)
            queue = self.now.queues[queue].parent
        return names

    def subtree(self, queue: str) -> list[GroupInfo]:
        return [group for group in self.snapshot.groups.values() if queue in self.path(group.queue)]

    def held(self, queue: str, leaving: bool = True) -> int:
        return cpu(pod for group in self.subtree(queue) for pod, _ in self.holders(group, leaving))

    def promised(self, queue: str, excluded: GroupKey) -> int:
        """Return the requests of other groups for which capacity is being reclaimed."""
        groups = [group for group in self.subtree(queue) if group.key != excluded]
        reclaims = [(group, self.now.groups[group.key].reclaim) for group in groups]
        plans = [(group, reclaim.plan) for group, reclaim in reclaims if reclaim]
        return cpu(pod for group, plan in plans for pod in group.waiting_pods if pod.uid in plan)

    def deserved(self, queue: str) -> float:
        return self.now.queues[queue].deserved.get(CPU, 0.0)

    def new_reclaims(self) -> dict[GroupKey, Reclaim]:
        former = {key: decision.reclaim for key, decision in self.before.groups.items()}
        return {
            key: decision.reclaim
            for key, decision in self.now.groups.items()
            if decision.reclaim is not None and decision.reclaim != former.get(key)
        }


def cpu(pods: Iterable[PodRecord]) -> int:
    return total(pod.shape.requests for pod in pods).get(CPU, 0)


def check(step: DecidedStep) -> None:
    check_nodes(step)
    check_ceilings(step)
    check_division(step)
    for group in step.snapshot.groups.values():
        check_gang(group, step.now.groups[group.key])
    check_remainders(step)
    check_victims(step)
    check_moves(step)


def check_nodes(step: DecidedStep) -> None:
    """Check that nodes on which pods start are not above their capacity."""
    snapshot, used = step.snapshot, Counter[str]()
    starting: set[str] = set()
    for group in snapshot.groups.values():
        used.update({node: 0 for _, node in step.holders(group)})
        for pod, node in step.holders(group):
            used[node] += cpu([pod])
        starting |= {step.now.groups[group.key].plan[pod.uid] for pod in step.new_members(group)}
    for node in starting:
        row, column = snapshot.nodes.row_of[node], snapshot.dimensions.index(CPU)
        assert used[node] <= snapshot.allocatable[row, column], f"{node} is over its capacity"


def check_ceilings(step: DecidedStep) -> None:
    """Check that starts keep all queues on their paths within their capability."""
    queues = {
        queue
        for group in step.snapshot.groups.values()
        if step.joining(group)
        for queue in step.path(group.queue)
    }
    for queue in queues:
        capability = step.snapshot.queues[queue].record.capability or {}
        assert step.held(queue) <= capability.get(CPU, 10**9), f"queue {queue} is over its capability"


def check_division(step: DecidedStep) -> None:
    """Check that siblings divide their parent's share: no more, and no less than they may use and request."""
    children: dict[str, list[str]] = {}
    for name, queue in step.now.queues.items():
        children.setdefault(queue.parent, []).append(name)
    for parent, names in children.items():
        if not parent:
            continue
        deserved_sum, deserved_of_parent = sum(map(step.deserved, names)), step.deserved(parent)
        assert deserved_sum <= max(
            deserved_of_parent, sum(_reserved_amount(step, children, name) for name in names)
        ) + len(names), parent
        if any(group.queue == parent for group in step.snapshot.groups.values()):
            continue  # the share of its own groups is not reported
        if all(_is_plain(step, queue) for queue in step.now.queues):
            requested = sum(_requested_amount(step, children, name) for name in names)
            assert deserved_sum >= min(deserved_of_parent, requested) - 2 * len(names), (
                parent,
                deserved_sum,
                deserved_of_parent,
                requested,
            )


def _reserved_amount(step: DecidedStep, children: Mapping[str, list[str]], queue: str) -> int:
    record = step.snapshot.queues[queue].record
    reserved = record.guarantee.get(CPU, 0)
    if record.lending_limit is not None:
        reserved = max(reserved, (record.deserved or {}).get(CPU, 0))
    return max(reserved, sum(_reserved_amount(step, children, child) for child in children.get(queue, ())))


def _is_plain(step: DecidedStep, queue: str) -> bool:
    """Return whether only capability, weight and deserved decide a queue's share."""
    record = step.snapshot.queues[queue].record
    return not record.guarantee and record.borrowing_limit is None and record.lending_limit is None


def _requested_amount(step: DecidedStep, children: Mapping[str, list[str]], queue: str) -> float:
    child_queues = children.get(queue, ())
    own_request = step.now.queues[queue].requested.get(CPU, 0) - sum(
        step.now.queues[child].requested.get(CPU, 0) for child in child_queues
    )
    capability = (step.snapshot.queues[queue].record.capability or {}).get(CPU, 10**9)
    return min(
        own_request + sum(_requested_amount(step, children, child) for child in child_queues), capability
    )


def check_gang(group: GroupInfo, decision: GroupDecision) -> None:
    """Check that no gang stays incomplete with some members on nodes."""
    holding = [pod for pod in group.placed_pods if pod.holds_capacity]
    if holding and not group.is_whole and not group.has_fully_run:
        is_starting = decision.verdict is Verdict.STARTING
        assert is_starting or {pod.uid for pod in holding} <= {*decision.undo}, (
            f"{group.key} is split: {decision}"
        )
    if decision.verdict is Verdict.WAITING:
        assert not decision.plan
        assert decision.reason is not None


def check_remainders(step: DecidedStep) -> None:
    """Check that evictions leave a group complete or without members."""
    reclaims = [decision.reclaim for decision in step.now.groups.values() if decision.reclaim]
    victims = [victim for reclaim in reclaims for victim in reclaim.victims]
    victim_uids = {victim.uid for victim in victims if victim.cause is not EvictionCause.CONSOLIDATE}
    for group in step.snapshot.groups.values():
        remaining = [pod for pod in group.placed_pods if pod.uid not in victim_uids]
        if len(remaining) < len(group.placed_pods) and remaining and group.is_whole:
            roles = Counter(pod.role for pod in remaining)
            assert is_whole_with(group.needs, roles, len(remaining)), group.key


def check_victims(step: DecidedStep) -> None:
    """Check that a queue is above its deserved share before each of its victims for other queues.

    The same is checked for its ancestors that lose capacity.
    """
    for key, reclaim in step.new_reclaims().items():
        claimant = step.snapshot.groups[key]
        gaining_queues = step.path(claimant.queue)
        pods = {pod.uid: pod for group in step.snapshot.groups.values() for pod in group.placed_pods}
        for victim in reclaim.victims:
            if victim.cause is not EvictionCause.RECLAIM:
                continue
            for queue in step.path(victim.queue):
                if queue in gaining_queues:
                    break
                surrendered = [
                    pods[evicted.uid] for evicted in reclaim.victims if queue in step.path(evicted.queue)
                ]
                remaining = step.held(queue, leaving=False) + step.promised(queue, key) - cpu(surrendered)
                deserved = step.deserved(queue)
                last_evicted = max(map(cpu, units(step.snapshot, surrendered)))
                assert remaining + last_evicted > deserved - SLACK, (
                    f"{key} takes from {queue} within its share: {remaining} < {deserved}"
                )


def check_moves(step: DecidedStep) -> None:
    """Check that moved pods fit on their new nodes, and that no pod moves twice."""
    snapshot = step.snapshot
    for key, reclaim in step.new_reclaims().items():
        if not reclaim.homes:
            continue
        victims = {victim.uid: victim for victim in reclaim.victims}
        assert {victim.cause for victim in victims.values()} == {EvictionCause.CONSOLIDATE}
        assert victims.keys() == reclaim.homes.keys()
        used = Counter[str]()
        for group in snapshot.groups.values():
            for pod, node in step.holders(group, leaving=False):
                used[reclaim.homes.get(pod.uid, node)] += cpu([pod])
        for pod in snapshot.groups[key].waiting_pods:
            used[reclaim.plan.get(pod.uid, "")] += cpu([pod])
        for node in {*reclaim.homes.values(), *reclaim.plan.values()}:
            row, column = snapshot.nodes.row_of[node], snapshot.dimensions.index(CPU)
            assert used[node] <= snapshot.allocatable[row, column], f"{node} would be over its capacity"
        for moved_group in {victim.group for victim in victims.values()}:
            last_move = snapshot.moves.get(moved_group)
            assert last_move is None or snapshot.now >= last_move.at + LIMITS.reclaim_memory, (
                f"{moved_group} moves again"
            )


def units(snapshot: Snapshot, victims: Iterable[PodRecord]) -> list[list[PodRecord]]:
    """Return the victims in units that are evicted together: single pods while their group stays complete."""
    by_group: dict[GroupKey, list[PodRecord]] = {}
    for pod in victims:
        by_group.setdefault(pod.group, []).append(pod)
    units_of_groups: list[list[PodRecord]] = []
    for key, pods in by_group.items():
        is_whole = len(pods) == sum(pod.holds_capacity for pod in snapshot.groups[key].placed_pods)
        units_of_groups += [pods] if is_whole else [[pod] for pod in pods]
    return units_of_groups


def check_outcome(reclaim: Reclaim, decision: GroupDecision | None) -> None:
    """Check that a group for which capacity was reclaimed starts, or has another reason to wait."""
    if decision is None or decision.verdict is not Verdict.WAITING:
        return
    assert decision.reason not in (None, Reason.RECLAIMING)
    assert decision.detail, decision
