"""Overviews of a running Muster, made from the newest decisions and their snapshot.

All pages agree, because they share one overview. Unchanged parts are not made again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isinf
from threading import Lock
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache
from msgspec.structs import replace

from extender.api.objects.queues import Estimate
from extender.api.summaries import (
    CommandSummary,
    DecisionSummary,
    EventSummary,
    EvictionSummary,
    GroupDetails,
    GroupSummary,
    LocalQueueSummary,
    MemberSummary,
    NodeSummary,
    Overview,
    QueueSummary,
    ReservationSummary,
    ShortfallSummary,
    WaitSummary,
    node_health,
    share_summaries,
)
from extender.controllers.podgroup_status import wait_details
from extender.dashboard.source import LastHour
from extender.domain.explain.explain import WhyGroup, explain_group
from extender.domain.model.reasons import sentence
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.resources import add, in_units, on_all_nodes, total
from extender.domain.model.shapes import CORDON_TAINT
from extender.domain.queues.flavors import Pools
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.tree import QueueInfo, in_tree_order
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot.decisions import Decisions, GroupDecision, QueueDecision, message_of
from extender.domain.snapshot.group_info import GroupInfo, Reservation
from extender.domain.snapshot.nodes import AmountRows, NodeRecord, NodeTable, column_sums
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import missing, ready_since

_MAX_GROUPS = 16  # maximum of groups listed for a node
_MAX_EXPLANATIONS, _EXPLANATION_SECONDS = 256, 10.0  # limit and seconds of the cache of explanations
_REST_FACTOR = 30  # pause after an explanation, as a multiple of its time, which may be seconds
_READING_TEXTS = ("Muster has not decided anything yet: it reads the cluster.",)
_EMPTY_OVERVIEW = Overview("0", "", "muster", notes=_READING_TEXTS)
_FOLLOWER_TEXTS = ("This replica of Muster does not lead: the one that does has estimates and the history.",)


class _Presence(NamedTuple):
    """Requests of a group's members that are assumed or planned on a node; empty if all are bound."""

    assumed: dict[str, int]
    planned: dict[str, int]


_Presences = Mapping[str, _Presence]  # by node
_CachedGroup = tuple[GroupInfo, GroupDecision, int, Estimate | None, GroupSummary]


EstimateOf = Callable[[GroupKey], Estimate | None]
WhyOf = Callable[[GroupDecision], WhyGroup | None]


class DecidedOverviews:
    """Overviews of decisions. Only changed groups are summarized again. Not thread-safe.

    Args:
        estimate_of: Returns the estimated start of a pending group.
        why_of: Returns the explanation of a wait, if it is known. Otherwise the explanation is computed here
            and cached. The computation may take as long as some scheduling cycles.
        clock: Returns seconds.
    """

    def __init__(
        self,
        estimate_of: EstimateOf = lambda _: None,
        why_of: WhyOf = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._estimate_of, self._why_of, self._clock = estimate_of, why_of, clock
        self._explanations: LRUCache[GroupKey, tuple[WhyGroup | None, float]] = LRUCache(_MAX_EXPLANATIONS)
        self._rest_end = -inf  # time until which cached explanations are used, even if they have expired
        self._version = 0
        self._last = _EMPTY_OVERVIEW
        self._groups: dict[GroupKey, _CachedGroup] = {}
        self._queues: dict[str, tuple[QueueInfo | None, QueueDecision, QueueSummary]] = {}
        self._nodes = _Nodes()

    def overview(
        self,
        decisions: Decisions,
        log: Sequence[DecisionSummary] = (),
        notes: Sequence[str] = (),
        local_queues: Sequence[LocalQueueSummary] = (),
    ) -> Overview:
        """Return the overview; empty before the first decisions.

        `log` has the latest changes, newest first.
        """
        facts = read_facts(decisions)
        if facts is None:
            return self._last
        snapshot = facts.snapshot
        groups, changed_groups = self._group_summaries(snapshot, decisions)
        reserved = {group.key: group.reservation for group in decisions.groups.values() if group.reservation}
        overview = Overview(
            version=self._last.version,
            at=self._last.at,
            by="muster",
            queues=self._queue_summaries(snapshot, decisions),
            local_queues=local_queues,
            groups=groups,
            nodes=self._nodes.summaries(snapshot, decisions, changed_groups, reserved),
            topologies=snapshot.nodes.topologies.level_lists,
            reservations=[
                ReservationSummary(key, decisions.groups[key].queue, held.node_names, in_units(held.requests))
                for key, held in reserved.items()
            ],
            decisions=log,
            notes=notes,
        )
        if overview != self._last:
            self._version += 1
            self._last = replace(overview, version=str(self._version), at=snapshot.timestamp(snapshot.now))
        return self._last

    def _why(self, decisions: Decisions, decision: GroupDecision) -> WhyGroup | None:
        explanation = self._why_of(decision)
        if explanation is not None:
            return explanation
        cached, until = self._explanations.get(decision.key, (None, -inf))
        now = self._clock()
        if cached is None or cached.reason != str(decision.reason or "") or now >= max(until, self._rest_end):
            cached = explain_group(decisions, decision.key)
            self._explanations[decision.key] = cached, now + _EXPLANATION_SECONDS
            self._rest_end = max(self._rest_end, now + _REST_FACTOR * (self._clock() - now))
        return cached

    # ---- queues

    def _queue_summaries(self, snapshot: Snapshot, decisions: Decisions) -> list[QueueSummary]:
        cached, current = self._queues, {}
        parents = {name: decision.parent for name, decision in decisions.queues.items()}
        for name, depth in in_tree_order(parents):
            info, decision = snapshot.queues.get(name), decisions.queues[name]
            entry = cached.get(name)
            if entry is None or entry[0] is not info or entry[1] != decision or entry[2].depth != depth:
                entry = (info, decision, _queue_summary(info, decision, depth))
            current[name] = entry
        self._queues = current
        return [summary for _, _, summary in current.values()]

    # ---- groups

    def _group_summaries(
        self, snapshot: Snapshot, decisions: Decisions
    ) -> tuple[list[GroupSummary], Sequence[GroupKey]]:
        """Return the summaries of all groups, and the keys of the groups that changed since the last call."""
        cached, current, changed_keys = self._groups, {}, list[GroupKey]()
        infos, lengths = snapshot.groups, {name: queue.waiting for name, queue in decisions.queues.items()}
        for key in sorted(decisions.groups):
            decision, info, entry = decisions.groups[key], infos.get(key), cached.get(key)
            if info is None:
                continue
            length = lengths.get(decision.queue, 0) if decision.position else 0
            estimate = self._estimate_of(key)
            is_same = entry is not None and entry[0] is info and entry[1] is decision
            if not is_same:
                changed_keys.append(key)
            if entry is None or not is_same or entry[2:4] != (length, estimate):
                summary = _group_summary(snapshot, decision, length, estimate)
                entry = (info, decision, length, estimate, summary)
            current[key] = entry
        self._groups = current
        return [entry[-1] for entry in current.values()], [*changed_keys, *cached.keys() - current.keys()]

    def details(
        self, decisions: Decisions, key: GroupKey, log: Sequence[DecisionSummary] = ()
    ) -> GroupDetails | None:
        """Return the details of a group, with the current reason of its wait.

        `log` has the latest decisions on the group, newest first.
        """
        facts, decision = read_facts(decisions), decisions.groups.get(key)
        info = facts.snapshot.groups.get(key) if facts else None
        if facts is None or decision is None or info is None:
            return None
        snapshot, explanation = facts.snapshot, self._why(decisions, decision)
        queue = decisions.queues.get(decision.queue)
        length = queue.waiting if queue and decision.position else 0
        summary = _group_summary(snapshot, decision, length, self._estimate_of(key), explanation)
        namespace, _, name = key.partition("/")
        command = f"kubectl muster why -n {namespace} podgroup/{name}"
        return GroupDetails(
            summary,
            [*_members(info, decision)],
            [*_shortfall(snapshot, info)] if summary.wait else [],
            [*_events(info, log)],
            [CommandSummary("see the same on the command line", command)],
        )


class DecisionSource:
    """Source that shows the newest decisions.

    Args:
        decisions: Returns the newest decisions.
        log: Returns the latest changes of decisions, newest first.
        min_period: The minimum seconds between two overviews. All viewers share one overview.
        clock: Returns seconds.
        estimate_of: Returns the estimated start of a pending group.
        why_of: Returns the explanation of a wait, if it is known.
        read_estimate_version: Returns a value that changes with the estimates.
        leads: Returns whether this replica leads.
        local_queues: Returns the LocalQueues.
    """

    def __init__(
        self,
        decisions: Callable[[], Decisions],
        log: Callable[[], Sequence[DecisionSummary]],
        min_period: float = 1.7,
        clock: Callable[[], float] = time.monotonic,
        estimate_of: EstimateOf = lambda _: None,
        why_of: WhyOf = lambda _: None,
        read_estimate_version: Callable[[], object] = lambda: None,
        leads: Callable[[], bool] = lambda: True,
        local_queues: Callable[[], Sequence[LocalQueueSummary]] = lambda: (),
    ) -> None:
        self._local_queues = local_queues
        self._decisions, self._log, self._read_estimate_version = decisions, log, read_estimate_version
        self._min_period, self._clock, self._leads = min_period, clock, leads
        self._overviews = DecidedOverviews(estimate_of, why_of, clock)
        self.shares, self.usages = LastHour(), LastHour()
        self._last, self._at = _EMPTY_OVERVIEW, -inf  # last overview and its time
        self._inputs: tuple[Decisions | None, bool, object] = (None, False, None)  # for `_last`
        self._lock = Lock()

    def overview(self) -> Overview:
        with self._lock:
            if self._is_due():
                decisions, leads, _ = inputs = self._current_inputs()
                notes = () if leads else _FOLLOWER_TEXTS
                self._last = self._overviews.overview(decisions, self._log(), notes, self._local_queues())
                self._inputs, self._at = inputs, self._clock()
            return self._last

    def is_current(self, version: str) -> bool:
        return version == self._last.version and not self._is_due()

    def seconds_to_next_change(self) -> float:
        remaining = self._at + self._min_period - self._clock()
        return remaining if remaining > 0 else self._min_period

    def _is_due(self) -> bool:
        if self._clock() - self._at < self._min_period:
            return False
        (decisions, *others), (last_decisions, *last_others) = self._current_inputs(), self._inputs
        return decisions is not last_decisions or others != last_others

    def _current_inputs(self) -> tuple[Decisions, bool, object]:
        return self._decisions(), self._leads(), self._read_estimate_version()

    def sample(self, now: float) -> float | None:
        """Record a sample for the charts of the last hour.

        Returns:
            The seconds until the next sample; None for the default.
        """
        decisions = self._decisions()
        facts = read_facts(decisions)
        if not decisions.queues or facts is None:
            return 1.0  # before the first decisions
        self.shares.record({name: round(queue.share, 3) for name, queue in decisions.queues.items()}, now)
        self.usages.record(_usage(facts.snapshot), now)
        return None

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        key = GroupKey(f"{namespace}/{name}")
        changes = [change for change in self._log() if change.group == key]
        return self._overviews.details(self._decisions(), key, changes)


def _usage(snapshot: Snapshot) -> Mapping[str, float]:
    """Return the used part of each resource, over all nodes."""
    totals, remaining = column_sums(snapshot.allocatable), column_sums(np.maximum(snapshot.capacity, 0))
    return {
        name: round(1 - free / total, 3)
        for name, total, free in zip(snapshot.dimensions, totals, remaining, strict=True)
        if total
    }


# ---- queues


def _queue_summary(info: QueueInfo | None, decision: QueueDecision, depth: int) -> QueueSummary:
    record = info.record if info else QueueRecord(decision.name)
    ceiling = {name: n for name, n in on_all_nodes(decision.ceiling).items() if not isinf(n)}
    shares = [
        *share_summaries(
            "",
            in_units(on_all_nodes(decision.allocated)),
            in_units(on_all_nodes(decision.deserved)),
            in_units(record.guarantee),
            {**dict.fromkeys(ceiling, 0.0), **in_units(ceiling)},
            in_units(record.deserved or {}),
        )
    ]
    for flavor, share in sorted(decision.flavors.items()):
        shares += share_summaries(flavor, in_units(share.allocated), in_units(share.deserved))
    return QueueSummary(
        name=decision.name,
        parent=decision.parent,
        depth=depth,
        state=str(decision.state),
        stop_policy=record.stop_policy,
        weight=decision.weight,
        share=round(decision.share, 3),
        shares=shares,
        waiting=decision.counts.get("pending", 0),
        starting=decision.counts.get("inqueue", 0),
        running=decision.counts.get("running", 0),
        fault=decision.fault or (info.fault if info else ""),
    )


# ---- groups


def _group_summary(
    snapshot: Snapshot,
    decision: GroupDecision,
    queue_length: int,
    estimate: Estimate | None,
    explanation: WhyGroup | None = None,
) -> GroupSummary:
    """Return the summary of a group.

    Args:
        snapshot: The snapshot that the decision is about.
        decision: The decision on the group.
        queue_length: The number of pending groups in the queue.
        estimate: The estimated start of the group, if any.
        explanation: The explanation with the holders of the lacking capacity, if the page shows it.
    """
    info, wait = snapshot.groups[decision.key], None
    namespace, _, name = info.key.partition("/")
    reason = decision.reason
    if reason is not None:
        status = wait_details(decision, explanation, explanation.outlook if explanation else "", estimate)
        detail = message_of(replace(decision, position=0))
        wait = WaitSummary.from_status(reason, sentence(reason), detail, status, queue_length)
        more = len(explanation.holders) + explanation.more_holders - len(wait.holders) if explanation else 0
        wait = replace(wait, since=ready_since(info), more_holders=more)
    return GroupSummary(
        namespace=namespace,
        name=name,
        called=info.spec.owner_name or name,
        queue=decision.queue,
        user=info.spec.submitter,
        priority=info.priority,
        verdict=decision.verdict,
        needed=info.min_member,
        members=sum(map(len, (info.placed_pods, info.assumed_pods, info.waiting_pods)))
        + info.held_back_count,
        placed=len(info.placed_pods),
        failed=info.failed,
        succeeded=info.succeeded,
        asks=in_units(info.pending_requests),
        holds=in_units(info.allocated),
        created=info.created_at,
        started=info.running_since,
        wait=wait,
        held=info.spec.is_held,
        stopped=info.job.is_managed and info.is_aborted,
        is_job=info.job.is_managed,
        evicted=_eviction(snapshot, info),
    )


def _eviction(snapshot: Snapshot, info: GroupInfo) -> EvictionSummary | None:
    eviction = info.history.last_eviction
    if eviction is None:
        return None
    return EvictionSummary(snapshot.timestamp(eviction.at), eviction.cause, eviction.why)


def _members(info: GroupInfo, decision: GroupDecision) -> Iterator[MemberSummary]:
    """Yield the members; members on nodes come first. Pods that a job has not created yet are left out."""

    def summary(pod: PodRecord, node: str, stage: str) -> MemberSummary:
        return MemberSummary(pod.name, pod.phase, node, stage, pod.unschedulable)

    for pod in info.placed_pods:
        yield summary(pod, pod.node, "Bound")
    for pod in info.departing_pods:
        yield summary(pod, pod.node, "Leaving")
    for pod, node in info.assumed_pods:
        yield summary(pod, node, "Claimed")
    for pod in info.waiting_pods:
        node = decision.plan.get(pod.uid, "")
        if not pod.is_expected:
            yield summary(pod, node, "Planned" if node else "")


def _shortfall(snapshot: Snapshot, info: GroupInfo) -> Iterator[ShortfallSummary]:
    lacking = missing(info)
    masks = [snapshot.nodes.suitable_rows(shape) for shape in lacking.shapes]
    suitable_rows = np.logical_or.reduce(masks) if masks else np.zeros(len(snapshot.nodes.nodes), np.bool_)
    sums = np.maximum(snapshot.capacity[suitable_rows], 0).sum(axis=0).tolist()
    free = in_units(dict(zip(snapshot.dimensions, sums, strict=True)))
    for name, requested in sorted(in_units(lacking.requests).items()):
        yield ShortfallSummary(name, requested, free.get(name, 0.0))


def _events(info: GroupInfo, log: Sequence[DecisionSummary]) -> Iterator[EventSummary]:
    """Yield the known events of a group, from its creation on."""
    yield EventSummary(info.created_at, "Created", "it was created")
    for change in reversed(log):
        text = ": ".join(filter(None, (change.reason, change.detail))) or change.verdict
        yield EventSummary(change.at, change.verdict, text)


# ---- nodes


class _Nodes:
    def __init__(self) -> None:
        self._table = NodeTable()
        self._rows: tuple[AmountRows, AmountRows] | None = None
        self._pools = Pools()
        self._presences: dict[GroupKey, _Presences] = {}
        self._groups_by_node: dict[str, dict[GroupKey, None]] = {}  # with bound or planned members, by node
        self._reserved: dict[str, GroupKey] = {}  # group that a node is reserved for
        self._summaries: dict[str, NodeSummary] = {}

    def summaries(
        self,
        snapshot: Snapshot,
        decisions: Decisions,
        changed_groups: Sequence[GroupKey],
        reservations: Mapping[GroupKey, Reservation],
    ) -> list[NodeSummary]:
        """Return the summaries of all nodes.

        `changed_groups` are the groups that changed since the last call.
        """
        changed = self._update_presences(snapshot, decisions, changed_groups) | self._changed_nodes(snapshot)
        reserved = {node: key for key, reservation in reservations.items() for node in reservation.node_names}
        changed |= {node for node, _ in reserved.items() ^ self._reserved.items()}
        self._reserved = reserved
        table, names = snapshot.nodes, []
        for node in table.nodes:
            if node is None:
                continue
            if node.name in changed or node.name not in self._summaries:
                self._summaries[node.name] = self._summary(snapshot, node)
            names.append(node.name)
        for removed in self._summaries.keys() - set(names):
            del self._summaries[removed]
        return [self._summaries[name] for name in sorted(names)]

    def _changed_nodes(self, snapshot: Snapshot) -> set[str]:
        """Return the names of the nodes whose amounts, labels or taints have changed."""
        table, rows, old_rows = snapshot.nodes, (snapshot.capacity, snapshot.allocatable), self._rows
        old_table, self._table, self._rows = self._table, table, rows
        old_pools, self._pools = self._pools, snapshot.pools
        if (
            old_rows is None
            or old_pools is not snapshot.pools
            or old_rows[0].shape != rows[0].shape
            or len(old_table.nodes) != len(table.nodes)
            or old_table.topologies is not table.topologies
        ):
            return {node.name for node in table.nodes if node}
        is_different = (old_rows[0] != rows[0]).any(axis=1) | (old_rows[1] != rows[1]).any(axis=1)
        names = {node.name for node in (table.nodes[row] for row in np.flatnonzero(is_different)) if node}
        if old_table is not table:
            pairs = zip(old_table.nodes, table.nodes, strict=True)
            names |= {new.name for old, new in pairs if new is not None and new is not old}
        return names

    def _update_presences(
        self, snapshot: Snapshot, decisions: Decisions, groups: Sequence[GroupKey]
    ) -> set[str]:
        """Update the nodes of the changed groups. Return the names of the nodes whose groups have changed."""
        changed: set[str] = set()
        for key in groups:
            info, decision = snapshot.groups.get(key), decisions.groups.get(key)
            old_presences = self._presences.pop(key, {})
            presences = _presences(info, decision) if info and decision else {}
            if old_presences != presences:
                self._move(key, old_presences, presences, changed)
            if presences:
                self._presences[key] = presences
        return changed

    def _move(self, key: GroupKey, old_nodes: _Presences, new_nodes: _Presences, changed: set[str]) -> None:
        """Move a group from its old nodes to its new nodes, and add all of these to `changed`."""
        for node in old_nodes.keys() - new_nodes.keys():
            groups = self._groups_by_node.get(node)
            if groups is not None:
                groups.pop(key, None)
                if not groups:
                    del self._groups_by_node[node]
        for node in new_nodes:
            self._groups_by_node.setdefault(node, {})[key] = None
        changed.update(old_nodes, new_nodes)

    def _summary(self, snapshot: Snapshot, node: NodeRecord) -> NodeSummary:
        row = snapshot.nodes.row_of[node.name]
        allocatable = dict(zip(snapshot.dimensions, snapshot.allocatable[row].tolist(), strict=True))
        free = dict(zip(snapshot.dimensions, snapshot.capacity[row].tolist(), strict=True))
        groups = self._groups_by_node.get(node.name, {})
        presences = [self._presences[key][node.name] for key in groups]
        assumed = total(presence.assumed for presence in presences)
        claimed = total((assumed, *(presence.planned for presence in presences)))
        used = {name: max(n - free[name] - assumed.get(name, 0), 0) for name, n in allocatable.items()}
        return NodeSummary(
            node.name,
            in_units(allocatable),
            in_units(used),
            in_units(claimed),
            self._reserved.get(node.name, ""),
            sorted(groups)[:_MAX_GROUPS],
            [pool.name for pool in snapshot.pools.pools_of_node(node.labels)],
            domains=snapshot.nodes.topologies.domains_of(node.labels),
            taken=CORDON_TAINT not in node.taints,
            health=node_health(taint.key for taint in node.taints),
        )


def _presences(info: GroupInfo, decision: GroupDecision) -> dict[str, _Presence]:
    nodes = (pod.node for pod in (*info.placed_pods, *info.departing_pods) if pod.holds_capacity)
    presences = {node: _Presence({}, {}) for node in nodes}
    for pod, node in info.assumed_pods:
        add(presences.setdefault(node, _Presence({}, {})).assumed, pod.shape.requests)
    for pod in info.waiting_pods:
        if node := decision.plan.get(pod.uid, ""):
            add(presences.setdefault(node, _Presence({}, {})).planned, pod.shape.requests)
    return presences
