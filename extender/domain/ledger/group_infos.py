"""Infos of groups and queues, which decide() reads, and the usage of each queue."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import reduce
from math import ceil

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import OwnerReference
from extender.api.units import timestamp_at
from extender.domain.ledger.claims import Claims
from extender.domain.ledger.groups import Group, Members
from extender.domain.ledger.registry import Registry
from extender.domain.model.ownership import length_fault, name_of
from extender.domain.model.records import GroupKey, Needs, Uid
from extender.domain.model.resources import Resources, add_times, counts_in_queues
from extender.domain.model.run_history import NO_CHECKPOINT, Checkpoint, series_of
from extender.domain.model.shapes import total_requests
from extender.domain.model.shared_maps import with_changes
from extender.domain.queues.flavors import Pools
from extender.domain.queues.tree import QueueInfo
from extender.domain.snapshot.group_info import GroupHistory, GroupInfo, GroupSpec, JobState
from extender.domain.snapshot.wholeness import is_whole_with


class QueueSums(msgspec.Struct):
    """Sums over the groups of one queue. Amounts are without zeros."""

    group_count: int = 0  # number of groups that the queue counts
    info_count: int = 0  # number of groups that name the queue
    allocated: dict[str, int] = {}  # requests of pods on nodes and assumed pods
    requested: dict[str, int] = {}  # `allocated` plus the requests of waiting entitled groups
    amounts_by_pool: dict[str, dict[str, int]] = {}  # allocated amounts on the nodes of each pool


class Usage:
    """Usage and requests of the groups of each queue, updated by differences.

    Only resources that some node offers are added up. So no pod can make the status of a queue longer than
    the list of resources in the cluster.
    """

    def __init__(self) -> None:
        self.sums_by_queue: dict[str, QueueSums] = {}  # sums by queue, which may not exist
        self.amounts_by_local_queue: dict[str, dict[str, int]] = {}  # allocation of the groups, without zeros
        self.changed_local_queues: set[str] = set()  # LocalQueues whose sums have changed
        self.changed_queues: set[str] = set()  # queues whose sums have changed
        self._offered_names: frozenset[str] = frozenset()

    def recount(self, offered: Iterable[str], infos: Mapping[GroupKey, GroupInfo]) -> None:
        """Add up the usage again from `infos` if nodes offer other resources than before."""
        names = frozenset(filter(counts_in_queues, offered))
        if names == self._offered_names:
            return
        self.changed_queues.update(self.sums_by_queue)
        self._offered_names, self.sums_by_queue, self.amounts_by_local_queue = names, {}, {}
        for info in infos.values():
            self.add(info, sign=1)

    def update(self, old: GroupInfo | None, new: GroupInfo | None) -> None:
        """Update the sums after a change of a group; None stands for an absent group.

        Most changes do not affect the sums.
        """
        if old is not None and new is not None and _summed_facts(old) == _summed_facts(new):
            return
        if old is not None:
            self.add(old, sign=-1)
        if new is not None:
            self.add(new, sign=1)

    def add(self, info: GroupInfo, sign: int) -> None:
        """Add a group to the sums (`sign` is 1), or remove the group (-1)."""
        self.changed_queues.add(info.queue)
        sums = self.sums_by_queue.setdefault(info.queue, QueueSums())
        allocated_amounts = self._offered_part(info.allocated)
        add_times(sums.allocated, allocated_amounts, sign)
        add_times(sums.requested, allocated_amounts, sign)
        add_times(sums.requested, self._offered_part(info.missing_request), sign)
        if info.local_queue is not None:
            key = info.local_queue.key
            self.changed_local_queues.add(key)
            add_times(self.amounts_by_local_queue.setdefault(key, {}), allocated_amounts, sign)
            if not self.amounts_by_local_queue[key]:
                del self.amounts_by_local_queue[key]
        for pool, amounts in info.amounts_by_pool.items():
            add_times(sums.amounts_by_pool.setdefault(pool, {}), self._offered_part(amounts), sign)
            if not sums.amounts_by_pool[pool]:
                del sums.amounts_by_pool[pool]
        sums.group_count += sign if info.is_in_queue else 0
        sums.info_count += sign
        if not sums.info_count:
            del self.sums_by_queue[info.queue]

    def _offered_part(self, amounts: Resources) -> Resources:
        """Return the amounts of resources that some node offers."""
        return {name: amount for name, amount in amounts.items() if name in self._offered_names}


def _summed_facts(info: GroupInfo) -> tuple[object, ...]:
    """Return the facts in an info on which the sums depend."""
    amounts = (info.allocated, info.missing_request, info.amounts_by_pool)
    return (info.queue, info.local_queue and info.local_queue.key, info.is_in_queue, *amounts)


class GroupInfos:
    """Infos of groups and queues for decide(), made again only for dirty groups.

    The sums of a queue are updated by the difference. Callers hold the ledger's lock.
    """

    def __init__(
        self, registry: Registry, claims: Claims, wall_clock: Callable[[], float], stuck_uids: Container[Uid]
    ) -> None:
        self._registry, self._wall_clock, self._stuck_uids = registry, wall_clock, stuck_uids
        self._claims = claims
        self.usage = Usage()
        self._infos: Mapping[GroupKey, GroupInfo] = {}
        self._queues: Mapping[str, QueueInfo] = {}
        self._queues_version = -1  # version of the tree of queues from which `_queues` was made
        self.pools = Pools()

    def refresh(self) -> tuple[Collection[GroupKey], Mapping[GroupKey, GroupInfo], Mapping[str, QueueInfo]]:
        """Return the groups that changed since the last call, and all infos of groups and queues."""
        self.usage.recount(self._claims.capacity.columns.names, self._infos)
        if self._registry.queues.pools != self.pools:
            self.pools = self._registry.queues.pools
            for key in self._registry.groups:
                self._registry.mark_dirty(key)
        dirty, claims_changed = self._registry.take_dirty()
        changes: dict[GroupKey, GroupInfo | None] = dict.fromkeys(dirty)
        for key in dirty:
            group, old_info = self._registry.groups.get(key), self._infos.get(key)
            old_queue = old_info.queue if old_info is not None else ""
            if group is not None and not group.pods and group.record is None and group.job is None:
                self._registry.record_info(key, old_queue, "")
                self._registry.forget(group)
                group = None
            if group is not None:
                new_info = None
                if old_info is not None and key in claims_changed and group.job is None:
                    new_info = self._updated_info(group, old_info)
                group.info = changes[key] = new_info or self._info(group)
                self._registry.record_info(key, old_queue, group.info.queue)
            self.usage.update(old_info, group.info if group is not None else None)
        self._infos = with_changes(self._infos, changes)
        self._refresh_queues()
        return dirty, self._infos, self._queues

    def _refresh_queues(self) -> None:
        """Make new infos of the queues whose sums have changed: usually few of a thousand queues."""
        changed_names, self.usage.changed_queues = self.usage.changed_queues, set()
        name_sets = {keys.DEFAULT_QUEUE}, self._registry.queues.records, self.usage.sums_by_queue
        old_infos = self._queues if self._registry.queues.version == self._queues_version else {}
        self._queues_version = self._registry.queues.version
        changes = {
            name: self.queue_info(name) if any(name in names for names in name_sets) else None
            for name in changed_names
        }
        if old_infos and all(name in old_infos for name in changed_names):
            self._queues = with_changes(old_infos, changes)
        else:  # infos stay ordered by name
            all_names = sorted(set().union(*name_sets))
            self._queues = {
                name: changes.get(name) or old_infos.get(name) or self.queue_info(name) for name in all_names
            }

    def queue_info(self, name: str) -> QueueInfo:
        """Return the current info of a queue."""
        sums = self.usage.sums_by_queue.get(name) or QueueSums()
        amounts_by_pool = {pool: dict(amounts) for pool, amounts in sums.amounts_by_pool.items()}
        return self._registry.queues.info(
            name, sums.group_count, dict(sums.allocated), dict(sums.requested), amounts_by_pool
        )

    def _updated_info(self, group: Group, old_info: GroupInfo) -> GroupInfo | None:
        """Return the updated info of a group of which only claims, attempts and the start have changed.

        All other facts are copied from the old info. None means that the change moved the group to another
        queue.
        """
        members = self._members(group)
        self._registry.record_start(group, members.are_under_way)
        if self._registry.routes.queue_of(group) != old_info.queue:
            return None
        return replace(
            old_info,
            job=self._job(group),
            history=self._history(group, old_info.queue, old_info.history.run_needs),
            start=group.start,
            assumed_pods=tuple(members.assumed_pods),
            waiting_pods=tuple(members.waiting_pods),
            held_back_count=members.held_back_count,
            claim_fault=members.claim_fault,
            planned_nodes=members.planned_nodes,
            attempts=dict(group.attempts),
            allocated=total_requests(members.holding_shapes),
            pending_requests=members.pending_requests,
            amounts_by_pool=self._amounts_by_pool(group),
        )

    def _members(self, group: Group) -> Members:
        """Return the members of a group by progress."""
        job, awaits_claims = self._registry.jobs.get(group.key), self._registry.claims_are_read()
        return Members(group, self._claims, self._stuck_uids, job, awaits_claims)

    def _info(self, group: Group) -> GroupInfo:
        """Return the info of a group for the decisions of a cycle."""
        registry = self._registry
        members = self._members(group)
        registry.record_dependencies(group)
        registry.settle_defaults(group)
        registry.record_start(group, members.are_under_way)
        queue, needs = registry.routes.queue_of(group), group.needs
        on_nodes = Counter([pod.role for pod in members.placed_pods])
        self._record_history(group, queue, needs, members)
        self._record_held_back(group, queue, needs, members)
        run_needs = group.run_needs.at_most(needs) if group.run_needs else None
        return GroupInfo(
            key=group.key,
            exists=group.exists and not registry.awaits_controller(group),
            queue=queue,
            local_queue=registry.routes.local_queue_of(group),
            is_namespace_allowed=registry.accepts_namespace(queue, group.namespace),
            is_use_allowed=registry.may_use(group, queue),
            priority=registry.priority_of(group),
            may_preempt=registry.preempts(group),
            created_at=self._created_at(group),
            min_member=needs.min_member,
            min_task_member=needs.min_task_member,
            run_limit=self._run_limit(group),
            is_aborted=registry.has_lost_queue(group) or registry.is_suspended(group),
            spec=self._spec(group, queue),
            job=self._job(group),
            history=self._history(group, queue, run_needs),
            start=group.start,
            placed_pods=tuple(members.placed_pods),
            assumed_pods=tuple(members.assumed_pods),
            waiting_pods=tuple(members.waiting_pods),
            departing_pods=tuple(members.departing_pods),
            held_back_count=members.held_back_count,
            planned_nodes=members.planned_nodes,
            attempts=dict(group.attempts),
            bound_since=dict(group.bound_since),
            running=members.running,
            succeeded=members.succeeded,
            failed=members.failed,
            running_since=min((p.running_since for p in members.placed_pods if p.running_since), default=""),
            is_whole=is_whole_with(needs, on_nodes, on_nodes.total()),
            is_whole_as_before=run_needs is not None and is_whole_with(run_needs, on_nodes, on_nodes.total()),
            allocated=total_requests(members.holding_shapes),
            pending_requests=members.pending_requests,
            amounts_by_pool=self._amounts_by_pool(group),
            claim_fault=members.claim_fault,
            checkpoint=reduce(Checkpoint.with_other, self._checkpoints(group, members)),
        )

    def _created_at(self, group: Group) -> str:
        """Return the creation time of a group.

        A PodGroup that Muster makes may be created late, for example after a restart. If its job or its first
        pod is older, the creation time of that object counts.
        """
        record, job = group.record, self._registry.jobs.get(group.key)
        times = [record.created_at] if record is not None else []
        if record is None or record.stands_for or group.plain_pod is not None:
            times += [pod.created_at for pod in group.pods.values()] + ([job.created_at] if job else [])
        return min(filter(None, times), default="")

    def _job(self, group: Group) -> JobState:
        """Return the state of the group's job for the snapshot."""
        managed_job, any_job = group.job, self._registry.jobs.get(group.key)
        return JobState(
            is_managed=managed_job is not None,
            is_unsuspended=managed_job is not None and managed_job.is_unsuspended,
            outcome=any_job.outcome if any_job is not None else None,
            min_partial_size=group.fewest_members,
            is_crowded_out=group.is_crowded_out,
            start_timeouts=group.start_timeouts,
            created_pods=group.created_pods.count if group.created_pods.asked_at is not None else None,
        )

    def _history(self, group: Group, queue: str, run_needs: Needs | None) -> GroupHistory:
        """Return the history of a group.

        After a restart of Muster, a protected annotation may prove that Muster had admitted the start of
        members that are on nodes now. A phase or a node name is no evidence, because users may write them. If
        annotations are not protected, or Muster had no time to write one, missing members are evaluated like
        all other members.
        """
        record, trusts_markers = group.record, self._registry.trusts_markers
        return GroupHistory(
            is_entitled=group.entitled_queue == queue,
            accepted_by=self._registry.admitting_queue_uid(group, queue),
            run_needs=run_needs,
            resumes=record is not None and record.was_admitted and trusts_markers and not group.has_waited,
            reclaim_times=dict(group.reclaim_times),
            eviction_times=dict(group.eviction_times),
            lost_work=group.lost_work,
            last_eviction=group.last_eviction,
            ready_at=group.ready_at,
        )

    def _spec(self, group: Group, queue: str) -> GroupSpec:
        """Return the spec of a group, which comes from its PodGroup, its job and its pods."""
        record, uses_gang_size = group.record, group.job is not None or group.is_implied
        uses_gang_size &= group.job is not None or not group.has_fully_run  # moot after a full run
        fault = (group.job.fault if group.job else "") or (group.gang_size.fault if uses_gang_size else "")
        fault = fault or length_fault("group", group.key) or length_fault("queue", queue)
        spec = GroupSpec(
            fault=fault,
            run_time=self._run_time(group),
            submitter=self._registry.submitter_of(group),
            restarts=self._restarts_elsewhere(group),
            least_sub_groups={p.name: p.min_sub_groups for p in group.sub_group_policies if p.min_sub_groups},
            composite=group.last_record.composite if group.last_record is not None else None,
        )
        if record is None:  # the pods name no PodGroup
            names = [pod.name for pod in group.pods.values()]
            series = series_of(group.namespace, "Pod", min(names)) if names else ""
            return replace(spec, series=series, owner_name=self._owner_name(group))
        return replace(
            spec,
            has_podgroup=True,
            fault=fault or record.fault,
            is_held=record.is_held,
            min_resources=record.min_resources,
            is_preemptable=record.is_preemptable,
            series=record.series,
            owner_name=record.stands_for,
            reported_phase=record.phase,
            is_evicted_whole=record.is_evicted_whole,
        )

    def _owner_name(self, group: Group) -> str:
        """Return the owner for which Muster should make the PodGroup; empty if unknown.

        The owner is written as `job/train`.
        """
        if (job := self._registry.jobs.get(group.key)) is not None:
            return name_of(OwnerReference(*job.kind, job.name).display_name)
        return f"pod/{group.plain_pod.name}" if group.plain_pod is not None else ""

    def _amounts_by_pool(self, group: Group) -> dict[str, Resources]:
        """Return the amounts that the group's members hold on the nodes of each pool."""
        claims = filter(None, map(self._claims.get, group.pods)) if self.pools.all_pools else ()
        fixed_claims = (claim for claim in claims if claim.is_fixed and claim.pod.uid not in self._stuck_uids)
        return self.pools.amounts_by_pool(
            (claim.pod.shape, self._claims.capacity.labels(claim.node)) for claim in fixed_claims
        )

    def _checkpoints(self, group: Group, members: Members) -> Iterator[Checkpoint]:
        """Yield the checkpoints of the PodGroup, of the owner of the pods, and of members on nodes."""
        job = self._registry.jobs.get(group.key)
        yield NO_CHECKPOINT
        yield from (record.checkpoint for record in (group.record, job, group.owner) if record is not None)
        yield from (pod.checkpoint for pod in members.placed_pods if pod.checkpoint is not NO_CHECKPOINT)

    def _run_time(self, group: Group) -> float | None:
        """Return the declared run time of the group.

        The run time of the PodGroup comes first, then the run time of the pods' owner, then the longest of
        all pods.
        """
        objects = (group.record, self._registry.jobs.get(group.key), group.owner)
        run_times = (record.run_time for record in objects if record is not None)
        job_run_time = next((seconds for seconds in run_times if seconds is not None), None)
        return _longest(pod.run_time for pod in group.pods.values()) if job_run_time is None else job_run_time

    def _restarts_elsewhere(self, group: Group) -> bool:
        """Return whether the group asks for restarts elsewhere.

        The policy of the PodGroup comes first, then the policy of the pods' owner, then the policy of a pod.
        """
        objects = (group.record, self._registry.jobs.get(group.key), group.owner, *group.pods.values())
        policies = (each.on_lost_domain for each in objects if each is not None)
        return next(filter(None, policies), "") == keys.RESTART

    def _run_limit(self, group: Group) -> float | None:
        """Return the seconds after which Kubernetes ends the pods of a group; None if there is no limit.

        The limits of the pods count if all pods have one. Otherwise, the limit of their controller counts.
        """
        pod_limit = _longest(pod.run_limit for pod in group.pods.values())
        return self._registry.run_limit_of(group) if pod_limit is None else pod_limit

    def _record_history(self, group: Group, queue: str, needs: Needs, members: Members) -> None:
        """Record the lasting facts about a group: whether its queue was open, and whether it has fully run.

        A group loses the record that it has fully run once no member is on a node. Then the group has to
        start whole again. While a group has this record, needed members count as soon as they are on nodes,
        even before their containers run.
        """
        is_new = group.entitled_queue != queue
        if is_new and (self._registry.was_admitted(group, queue) or self._registry.queues.is_open(queue)):
            group.entitled_queue = queue
        if group.record is not None and self._registry.trusts_markers:
            group.lost_work = max(group.lost_work, group.record.lost_work)
        if not members.placed_pods:
            group.run_needs = None
            return
        roles = Counter([pod.role for pod in members.placed_pods if pod.has_started or group.has_fully_run])
        count = group.record.members_when_run if group.record and self._registry.trusts_markers else None
        if is_whole_with(needs, roles, roles.total()):
            group.run_needs = needs
        elif group.run_needs is None and not group.has_waited and count is not None:
            group.run_needs = Needs(count, {})  # the record on a PodGroup has no roles

    def _record_held_back(self, group: Group, queue: str, needs: Needs, members: Members) -> None:
        """Record since when the group could have started, so that its waiting time counts from then on.

        A group cannot start while it or its queue is held, while its owner is suspended, or while too few of
        its members wait without gates of others.
        """
        record = self._registry.queues.records.get(queue)
        local_queue = self._registry.routes.local_queue_of(group)
        waiting_count = sum(not pod.is_for_min_resources for pod in members.waiting_pods)
        existing_count = len(members.placed_pods) + len(members.assumed_pods) + waiting_count
        was_held_back = group.is_held_back
        group.is_held_back = (
            (group.record is not None and group.record.is_held)
            or (record is not None and bool(record.stop_policy))
            or (local_queue is not None and (local_queue.is_closed or bool(local_queue.stop_policy)))
            or self._registry.is_suspended(group)
            or existing_count < needs.min_member
        )
        if was_held_back and not group.is_held_back:  # the time is rounded up to the next second
            group.ready_at = timestamp_at(ceil(self._wall_clock()))


def _longest(times: Iterable[float | None]) -> float | None:
    """Return the longest time; None if any time is unknown, or if there are no times."""
    seconds = list(times)
    return max((float(n) for n in seconds if n is not None), default=None) if None not in seconds else None
