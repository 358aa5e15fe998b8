"""Ledger: the state of the cluster, updated event by event, and all claims on capacity.

    watches ──► pods, intake ──┐                ┌──► snapshot ──► decide()
                               ├──►   claims   ─┤                    │
    verbs  ◄──► assumed ───────┘                └──◄ publish ◄───────┘

One lock guards the ledger, and no method blocks. After a restart, the watches rebuild the whole state.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from msgspec.structs import replace

from extender.domain.ledger.assumed_pods import AssumedPods, Confirmation, Preemptions
from extender.domain.ledger.claims import Claim, ClaimEvent, Claims, ClaimStage
from extender.domain.ledger.expected_members import ExpectedMembers, LostMembers
from extender.domain.ledger.group_infos import GroupInfos
from extender.domain.ledger.groups import Group
from extender.domain.ledger.intake import Intake
from extender.domain.ledger.min_resources import MinResources
from extender.domain.ledger.nodes import NodeCapacity
from extender.domain.ledger.pods import Pods, StuckPods
from extender.domain.ledger.queries import GroupQueries, QueueQueries
from extender.domain.ledger.registry import Registry
from extender.domain.ledger.releases import Releases
from extender.domain.ledger.shown_pods import ShownPods
from extender.domain.ledger.state import Changes, ClaimTransitions, Core, Instants, Refusals
from extender.domain.model.device_requests import LogicalResources
from extender.domain.model.evictions import LOSS_CAUSES, Move, PastEviction, Reclaim
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Outcome, Verdict, lacks_only_capacity
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.run_history import RunHistory
from extender.domain.model.shared_maps import changed_keys, with_changes
from extender.domain.queues.past_usage import PastUsage, UsageMeter
from extender.domain.queues.records import START_TIMEOUT, Reclaimed, ReclaimKey
from extender.domain.queues.tree import Ceiling
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo, Start, holding_of, kind_of
from extender.domain.snapshot.job_start_and_suspension import ManagedJob
from extender.domain.snapshot.jobs import JobRules
from extender.domain.snapshot.nodes import NodeTable, column_sums
from extender.domain.snapshot.snapshot import Limits, Snapshot
from extender.domain.snapshot.wholeness import running_since

__all__ = ["Confirmation", "Ledger"]
_MAX_DOUBLINGS = 5  # limit of doublings of the pause between two restarts of a group


class Ledger:
    """State of the cluster with all claims on capacity.

    Each cycle takes a `snapshot`, calls decide(), and calls `publish`. The cost of each of these calls grows
    with the number of changes only. Other callers use the parts of the ledger.

    Args:
        ownership: The rules about which pods belong to Muster.
        limits: The limits of policy.
        clock: The monotonic clock, in seconds.
        lock: The lock that guards the ledger.
        on_change: Called under the lock when a decision may change.
        on_shown: Called when the scheduler is to see another pod, or see a pod differently. None if the
            scheduler proxy is off.
        wall_clock: The wall clock, in seconds since 1970.
        jobs: The rules about which jobs Muster manages.
        logical: The logical resources of the configuration.
    """

    def __init__(
        self,
        ownership: Ownership,
        limits: Limits | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        lock: AbstractContextManager[object] | None = None,
        on_change: Callable[[], None] = lambda: None,
        on_shown: Callable[[], None] | None = None,
        wall_clock: Callable[[], float] = lambda: 0.0,
        jobs: JobRules | None = None,
        logical: LogicalResources | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.decisions = Decisions()  # the last published decisions
        self.claims = Claims()
        self.registry = Registry()
        self._clock, self._wall_clock = clock, wall_clock
        self._lock = lock or nullcontext()
        self._releases = Releases(on_shown, clock)
        self._changes = Changes(on_change, clock, self.limits.asking_pause)
        self._transitions = ClaimTransitions(self.claims, self.registry, self._releases, self._changes, clock)
        self._refusals = Refusals(self.claims)
        core = Core(
            registry=self.registry,
            claims=self.claims,
            transitions=self._transitions,
            releases=self._releases,
            changes=self._changes,
            refusals=self._refusals,
            clock=clock,
            lock=self._lock,
        )
        jobs = jobs or JobRules()
        self._stuck_pods = StuckPods(self.registry, clock, wall_clock)
        self._infos = GroupInfos(self.registry, self.claims, wall_clock, self._stuck_pods.uids)
        self.pods = Pods(core, ownership, self._stuck_pods, logical)
        self._meter = UsageMeter(PastUsage(wall_clock()), self.limits.usage_half_life)
        self.intake = Intake(core, self.pods, jobs, self._meter, self._stuck_pods)
        self.groups = GroupQueries(core, self.pods, self.intake.composites)
        self.queues = QueueQueries(core, self._infos)
        self.assumed_pods = AssumedPods(core, self.pods, lambda: self.decisions)
        self.preemptions = Preemptions(core, self.pods)
        self.shown_pods = ShownPods(core, self.pods)
        self._expected_members = ExpectedMembers(core, self.pods, jobs, self.limits.expected_pods)
        self._lost_members = LostMembers(core)
        self._min_resources = MinResources(core, self.pods.shapes, self.limits.expected_pods)
        self._instants = Instants(self.registry)
        self._reclaimed_capacity = ReclaimedCapacity(self.registry, self.claims.capacity, self.limits)
        self._spared_until: dict[Uid, float] = {}  # by pod: end of the time in which the pod is no victim
        self._last_reclaims: Mapping[str, Mapping[ReclaimKey, Reclaimed]] = {}  # by queue, from decisions
        self._history = RunHistory()
        # Converts timestamps as the last snapshot did.
        self._instant_of: Callable[[str], float] = lambda _: clock()
        # By group: version of its last change that no published decision considers.
        self._change_versions: dict[GroupKey, int] = {}

    @property
    def version(self) -> int:
        return self._changes.version

    def record_scheduler_call(self) -> None:
        """Record a call of the scheduler, and request a decision if the scheduler had paused."""
        if self._changes.record_scheduler_call():
            with self._lock:
                self._changes.notify()

    def set_leading(self, is_leading: bool) -> None:
        """Record whether this replica leads, and request a decision if that has changed."""
        if self._changes.set_leading(is_leading):
            with self._lock:
                self._changes.notify()

    def snapshot(self) -> Snapshot:
        """Return a consistent view of all facts for one cycle.

        First, changes that depend only on the time are applied, such as the end of unused filter answers.
        """
        with self._lock:
            self._expire_filter_answers()
            self._spared_until = {uid: at for uid, at in self._spared_until.items() if at > self._clock()}
            self.intake.sync_hyper_nodes()
            self.intake.sync_composites()
            self._stuck_pods.record_expired()
            self._lost_members.sync(self.decisions.evictions)
            self._min_resources.sync()
            self._expected_members.sync()
            dirty_keys, groups, queues = self._infos.refresh()
            self._record_usage(dirty_keys, groups)
            moves = self._reclaimed_capacity.moves(groups, self._clock())
            refused_rows = self._refusals.refused_rows(self._clock())
            self._change_versions.update(dict.fromkeys(dirty_keys, self._changes.version))
            epoch = self._wall_clock() - self._clock()
            self._instants.record(dirty_keys, epoch, self._clock())
            capacity = self.claims.capacity
            snapshot = Snapshot(
                version=self._changes.version,
                now=self._clock(),
                epoch=epoch,
                limits=self.limits,
                dimensions=capacity.columns.names,
                nodes=capacity.table(),
                capacity=capacity.columns.capacity.copy(),
                allocatable=capacity.columns.allocatable.copy(),
                occupancy=capacity.occupancy(),
                refused_rows=refused_rows,
                queues=queues,
                groups=groups,
                pools=self._infos.pools,
                expires_at=min(self._expiries(), default=None),
                orphans=self.registry.orphans(),
                dirty_groups=frozenset(self._change_versions),
                other_pods=self.pods.other_pods(),
                last_reclaims=self._last_reclaims,
                moves=moves,
                refused_evictions=dict(self._spared_until),
                disruption_budgets=self.intake.disruption_budgets(),
                attention=self._changes.attention,
                history=self._history,
                past_usage=self._meter.past_usage,
                last_freed=self._changes.last_freed,
                changed_at=self._changes.changed_at,
                instants=self._instants.by_timestamp,
            )
            self._instant_of = snapshot.instant
            return snapshot

    def _record_usage(self, dirty: Collection[GroupKey], groups: Mapping[GroupKey, GroupInfo]) -> None:
        """Record the amounts that groups hold from now on, and sample the usage of queues at intervals."""
        if not self._meter.half_life:
            return
        now = self._wall_clock()
        if self._meter.is_due(now):
            self._meter.sample(now, self.offered_amounts())
            self._changes.notify()
        self._meter.record_holdings({key: holding_of(groups.get(key)) for key in dirty}, now)

    def _expire_filter_answers(self) -> None:
        """End the claims of filter answers that no bind call has followed within the start deadline.

        Without this step, unused answers would hold capacity forever. The deadline includes the time to bind
        volumes, which comes before the bind call.
        """
        oldest_at = self._clock() - self.limits.start_deadline
        for claim in [c for c in self.claims.in_stage(ClaimStage.ANSWERED) if c.stage_since <= oldest_at]:
            self._transitions.end(claim.pod, ClaimEvent.EXPIRE)
            self._changes.notify()

    def _expiries(self) -> Iterator[float]:
        """Yield the times at which parts of the ledger's state expire, so that a new decision is due."""
        if (until := self._refusals.next_expiry()) is not None:
            yield until
        yield from self._spared_until.values()
        yield from self._reclaimed_capacity.expiries(self._clock())
        yield from self._expected_members.later_pods.expiries()
        yield from self._lost_members.expiries()
        if (stuck_at := self._stuck_pods.next_stuck_at) is not None:
            yield stuck_at
        for claim in self.claims.in_stage(ClaimStage.ANSWERED):
            yield claim.stage_since + self.limits.start_deadline

    @property
    def is_usage_due(self) -> bool:
        """Return whether statuses have to show recent usage, even if nothing else happens."""
        with self._lock:
            return self._meter.is_to_be_shown(self._wall_clock())

    def restore_state(self, snapshot: Snapshot) -> None:
        """Restore the remaining state of a snapshot after `restore` has recorded the snapshot's objects.

        A restored refusal lasts as long as a new refusal.
        """
        with self._lock:
            now = self._clock()
            self._changes.restore(snapshot)
            self._instants.by_timestamp = dict(snapshot.instants)
            self._spared_until, self._last_reclaims = dict(snapshot.refused_evictions), snapshot.last_reclaims
            self._history, self._meter.past_usage = snapshot.history, snapshot.past_usage
            for shape, rows in snapshot.refused_rows.items():
                for node in filter(None, (snapshot.nodes.nodes[row] for row in rows)):
                    self._refusals.add(shape, node.name, now + self.limits.refusal_memory)
            for key, info in snapshot.groups.items():
                self._restore_claims(self.registry.group(key), info)
                self._reclaimed_capacity.put(key, info.start.reclaim)
            self._reclaimed_capacity.restore(snapshot.moves)

    def _restore_claims(self, group: Group, info: GroupInfo) -> None:
        """Restore the claims of a group's planned and assumed members."""
        for uid, node in info.planned_nodes.items():
            if (pod := group.pods.get(uid)) is not None:
                self._transitions.put(pod, ClaimEvent.PLAN, node)
        for pod, node in info.assumed_pods:
            if pod.uid in group.pods:
                self._transitions.put(group.pods[pod.uid], ClaimEvent.PLAN, node)
                self._transitions.put(group.pods[pod.uid], ClaimEvent.ANSWER, node)

    def publish(self, decisions: Decisions) -> None:
        """Turn the plans of decisions into claims.

        A filter call may have made a claim since the snapshot. This claim is newer than the plans, and stays.
        """
        with self._lock:
            old_decisions, self.decisions = self.decisions, decisions
            version, changed_claims = decisions.version, self._transitions.changed_since(decisions.version)
            self._change_versions = {key: at for key, at in self._change_versions.items() if at > version}
            self._record_evictions(old_decisions, decisions)
            self._record_reclaims(old_decisions, decisions)
            for key in dict.fromkeys((*decisions.changed_since(old_decisions), *changed_claims)):
                old, decision = old_decisions.groups.get(key), decisions.groups.get(key)
                self._reclaimed_capacity.put(key, decision.reclaim if decision is not None else None)
                group = self.registry.groups.get(key)
                if decision is None or group is None:
                    continue
                if old is not decision:
                    self._record_run(group, old, decision)
                    self._apply(group, decision)
                # Claims need no update if neither the old nor the new decision lets a member start.
                starts_none = all(d and d.verdict is Verdict.WAITING and not d.plan for d in (old, decision))
                if key in changed_claims or not (old is decision or starts_none):
                    for pod in group.pods.values():
                        self._replan(group, pod, decision, version)

    def _record_reclaims(self, old: Decisions, new: Decisions) -> None:
        changed_names = list(changed_keys(new.queues, old.queues))
        reclaims = {name: new.queues[name].reclaimed or None for name in changed_names if name in new.queues}
        self._last_reclaims = with_changes(self._last_reclaims, dict.fromkeys(changed_names) | reclaims)

    def _record_evictions(self, old_decisions: Decisions, decisions: Decisions) -> None:
        """Record evictions that have taken effect, because their pods terminate or are gone.

        The cause of the eviction and the work that it cost are recorded on the group.
        """
        for uid, eviction in old_decisions.evictions.items():
            group, pod = self.registry.groups.get(eviction.victim.group), self.pods.get(uid)
            is_evicted = uid not in decisions.evictions and (pod is None or pod.deleting)
            if group is not None and is_evicted:
                group.lost_work += eviction.victim.lost
                group.last_eviction = PastEviction(eviction.victim.cause, eviction.why, self._clock())
                self.registry.mark_dirty(group.key)
                self._changes.notify()

    def _record_run(self, group: Group, old: GroupDecision | None, decision: GroupDecision) -> None:
        """Record the run time of a group that has completed since its last decision."""
        if old is None or old.verdict is Verdict.ENDED or decision.life.outcome is not Outcome.COMPLETED:
            return
        since = running_since(group.info, self._instant_of) if group.info is not None else None
        if group.info is not None and since is not None:
            seconds = max(self._clock() - since, 0.0)
            self._history = self._history.with_run(kind_of(group.info), seconds, group.info.spec.run_time)

    def _unharmed_victims(self, reclaim: Reclaim | None) -> set[GroupKey]:
        """Return the victim groups of a reclaim that have lost no member so far.

        The result is empty unless the API server has refused one of the reclaim's evictions.
        """
        victims = reclaim.victims if reclaim is not None else ()
        if not any(victim.uid in self._spared_until for victim in victims):
            return set()
        pods = ((victim.group, self.pods.get(victim.uid)) for victim in victims)
        groups_with_losses = {group for group, pod in pods if pod is None or pod.deleting}
        return {victim.group for victim in victims} - groups_with_losses

    def _apply(self, group: Group, decision: GroupDecision) -> None:
        """Apply a decision to the state of its group."""
        now, has_changed = self._clock(), False
        for uid, node in decision.moved.items():  # the scheduler refused these planned nodes
            if (pod := group.pods.get(uid)) is not None:
                expires_at, text = now + self.limits.refusal_memory, group.attempt(uid).message
                if lacks_only_capacity(text, pod.shape.requests):
                    # At `retry_at`, the scheduler may know of freed capacity.
                    expires_at = min(expires_at, decision.retry_at)
                self._refusals.add(self.pods.separate_shape(pod), node, expires_at)
        if decision.reclaim != group.start.reclaim:
            # A group reclaims from the same victim group only once within `reclaim_memory`.
            unharmed_groups = self._unharmed_victims(group.start.reclaim)
            past_times = ((key, at) for key, at in group.reclaim_times.items() if key not in unharmed_groups)
            recent_times = {key: at for key, at in past_times if at + self.limits.reclaim_memory > now}
            victims = decision.reclaim.victims if decision.reclaim is not None else ()
            group.reclaim_times = recent_times | {victim.group: now for victim in victims if victim.group}
            self.registry.mark_dirty(group.key)
            self._record_losses(group.key, decision.reclaim, unharmed_groups)
        # The number of a partial start stays until the job waits again, or until the job has this number.
        keeps_number = decision.reduced_to is None and decision.verdict is Verdict.STARTING
        if not keeps_number and group.reduced_to != decision.reduced_to:
            group.reduced_to, has_changed = decision.reduced_to, True
        group.has_waited |= decision.verdict is Verdict.WAITING and not decision.undo
        group.start_queue = group.start_queue or (decision.queue if decision.plan else "")
        if decision.stood_whole and not group.has_fully_run:
            group.run_needs, has_changed = group.info.needs if group.info else group.needs, True
        self._follow_start(group, group.start_after(decision, now), decision.verdict)
        if has_changed:
            self.registry.mark_dirty(group.key)
            self._changes.notify()

    def _record_losses(self, owner: GroupKey, reclaim: Reclaim | None, spared: Collection[GroupKey]) -> None:
        """Record when groups of other queues last lost capacity to the queue of `owner`.

        Args:
            owner: The group for which capacity is reclaimed.
            reclaim: The reclaim; None if there is none.
            spared: Groups that have lost nothing after all, so that the record of their loss is removed.
        """
        queue, now = self.decisions.groups[owner].queue, self._clock()
        causes = {victim.group: victim.cause for victim in reclaim.victims} if reclaim is not None else {}
        for key in {*spared, *(key for key, cause in causes.items() if cause in LOSS_CAUSES)}:
            if (group := self.registry.groups.get(key)) is not None:
                oldest_at = now - self.limits.reclaim_memory
                times = {receiver: at for receiver, at in group.eviction_times.items() if at > oldest_at}
                times.pop(queue, None)
                group.eviction_times = times | ({queue: now} if key in causes else {})
                self.registry.mark_dirty(key)

    def _follow_start(self, group: Group, start: Start, verdict: Verdict) -> None:
        """Record the start of a group.

        If the start or an attempt to bind has changed, a new decision is requested. There is one exception:
        when the group runs, the times of its start are cleared. Decisions on running groups do not depend on
        these times, so this change alone requests no decision.
        """
        old_start, attempts, group.start = group.start, dict(group.attempts), start
        if old_start.admitted_at is not None and start.admitted_at is None:
            group.reset_attempts()
        elif start.failures > old_start.failures:
            for uid in [uid for uid, attempt in attempts.items() if attempt.binding_fault]:
                group.record_binding_refused(uid, "")
        base_start = replace(old_start, admitted_at=None, released_at=None)
        if start != (base_start if verdict is Verdict.RUNNING else old_start) or group.attempts != attempts:
            self.registry.mark_claims_changed(group.key)
            self._changes.notify()

    def _replan(self, group: Group, pod: PodRecord, decision: GroupDecision, version: int) -> None:
        """Update the claim of a waiting member for a decision on its group.

        A claim that a bind call holds ends together with the bind call. If the group has to wait, the pod is
        hidden from the scheduler first, so that the scheduler forgets the pod before the bind call fails.

        Args:
            group: The group.
            pod: The member.
            decision: The decision on the group.
            version: The version of the snapshot on which the decision is based.
        """
        claim, node = self.claims.get(pod.uid), decision.plan.get(pod.uid)
        if claim is not None and claim.stage >= ClaimStage.HELD:
            if claim.stage is ClaimStage.HELD and decision.verdict is Verdict.WAITING:
                self._releases.take_back(pod.uid, was_called=True)
            return
        is_newer = claim is not None and claim.version > version
        if (
            claim is not None
            and claim.stage.is_fixed
            and (is_newer or decision.verdict is not Verdict.WAITING)
        ):
            return
        if node is None and claim is not None:
            self._transitions.end(pod, ClaimEvent.WITHDRAW)
            self._changes.notify()
        elif node is not None and (claim is None or claim.node != node):
            self._transitions.put(pod, ClaimEvent.PLAN, node)
            group.record_planned(pod.uid, node, is_new=claim is None)
            if self._releases.scheduler_retries(pod):
                group.record_shown(pod.uid, node, self._clock())
            self._changes.notify()

    def record_refused_eviction(self, uid: Uid) -> None:
        """Record that the eviction of a pod was refused, so that the pod is no victim for a while."""
        with self._lock:
            self._spared_until[uid] = self._clock() + self.limits.spared_seconds
            self._changes.notify()

    def record_refusal(self, key: GroupKey, message: str) -> None:
        """Record the API server's answer about missing pods of a job.

        Args:
            key: The group of the job.
            message: The message about refused pods; empty if there is none.
        """
        with self._lock:
            group = self.registry.groups.get(key)
            if group is not None and group.created_pods.count >= 0:
                group.created_pods = group.created_pods.after_answer(self._clock(), message)
                self.registry.mark_dirty(key)
                self._changes.notify()

    def give_up_start(self, key: GroupKey, why: str) -> None:
        """Give up the start of a job that missed its start timeout. The group waits again, and backs off.

        If the group backs off already, because a decision has given up the start, nothing changes. So the
        failure counts only once.
        """
        with self._lock:
            group = self.registry.groups.get(key)
            if group is None or group.start.retry_at > self._clock():
                return
            failures = group.start.failures
            retry_at = self._clock() + self.limits.retry_after(failures)
            rotation = group.start.rotation
            group.start = Start(failures=failures + 1, retry_at=retry_at, failure=why, rotation=rotation)
            group.has_waited = True
            self.registry.mark_dirty(key)
            self._changes.notify()

    def claims_to_release(self, groups: Iterable[GroupKey] | None = None) -> list[Claim]:
        """Return the planned claims of existing pods: claims that the scheduler does not know yet.

        Args:
            groups: The groups of the pods; None for all groups.
        """
        with self._lock:
            decisions = self.decisions.groups
            return [
                claim
                for key in (decisions if groups is None else groups)
                for uid in (decisions[key].plan if key in decisions else ())
                if (claim := self.claims.get(uid)) and claim.stage is ClaimStage.PLANNED
                if not claim.pod.is_expected
            ]

    def awaits_the_scheduler(self) -> bool:
        """Return whether any pod without Muster's gate is planned.

        The scheduler is expected to call Muster about such a pod.
        """
        return any(not claim.pod.is_gated for claim in self.claims_to_release())

    def managed_job(self, key: GroupKey) -> ManagedJob | None:
        """Return the job that makes a group's pods; None if no managed job makes them."""
        with self._lock:
            group = self.registry.groups.get(key)
            job = group.job if group is not None else None
            if group is None or job is None:
                return None
            queue = self.registry.routes.queue_of_job(job) or self.registry.routes.queue_of(group)
            record = self.registry.queues.get(queue)
            # A decision may be older than a change of the job. Therefore, claims only count if they were made
            # for the current job, and if they cover all pods with which the job starts.
            claimed_count = sum(1 for p in group.pods.values() if p.is_expected and self.claims.get(p.uid))
            self.registry.settle_defaults(group)
            member_count = group.gang_size.members
            start_count = member_count if group.reduced_to is None else group.reduced_to
            is_current = self.registry.jobs.get(key) == job
            since, created = group.unsuspended_since, group.created_pods
            return ManagedJob(
                job,
                queue,
                member_count,
                group=group.record,
                decision=self.decisions.groups.get(key),
                unsuspended_since=since,
                has_capacity=is_current and claimed_count > 0 and claimed_count >= start_count,
                capacity_since=group.start.admitted_at if job.is_suspended and claimed_count else None,
                reduced_to=group.reduced_to,
                created_pods=created,
                lacks_pods=claimed_count > 0 or (created.count < member_count and not group.became_ready),
                became_ready=group.became_ready,
                is_on_nodes=any(pod.holds_capacity for pod in group.pods.values()),
                start_timeout=record.start_timeout if record is not None else START_TIMEOUT,
                is_victim=any(uid in self.decisions.evictions for uid in group.pods),
                runs_since=min(since, self._instant_of(job.started_at)) if since is not None else None,
                max_run_time=record.max_run_time if record is not None else None,
                finished_at=group.job_finished_at,
            )

    def manages(self, key: GroupKey) -> bool:
        """Return whether Muster decides when the job of a group starts.

        The newest recorded version of the job counts.
        """
        with self._lock:
            job = self.registry.jobs.get(key)
            return job is not None and self._expected_members.manages(job)

    def is_suitable(self, pod: PodRecord, node: str) -> bool:
        with self._lock:
            return self.claims.capacity.is_suitable(pod, node)

    def offered_amounts(self) -> Resources:
        """Return the amounts that all nodes offer together."""
        with self._lock:
            columns = self.claims.capacity.columns
            return dict(zip(columns.names, column_sums(columns.allocatable), strict=True))

    def ceilings(self, queue: str) -> Iterator[Ceiling]:
        """Yield the ceilings of a queue and of all queues above it, by the last decisions.

        A limit at or above the total of all nodes is left out, because free capacity is the tighter limit.
        """
        decisions, offers = self.decisions.queues, self.offered_amounts()
        while (decision := decisions.get(queue)) is not None:
            limits = {name: limit for name, limit in decision.ceiling.items() if limit < offers.get(name, 0)}
            yield Ceiling(decision.name, decision.allocated, limits)
            queue = decision.parent

    def node_table(self) -> NodeTable:
        with self._lock:
            return self.claims.capacity.table()

    def nodes(self) -> list[tuple[str, Resources, Resources, list[Claim]]]:
        """Return each node's name, allocatable amounts, amounts without claims, and claims."""
        with self._lock:
            capacity = self.claims.capacity
            return [
                (node.name, node.allocatable, capacity.idle(node.name), list(self.claims.on_node(node.name)))
                for node in capacity.table().nodes
                if node
            ]


class ReclaimedCapacity:
    """Capacity that is being reclaimed, and capacity for the replacements of moved pods.

    Only pods that are planned on this capacity may use it. The capacity is not counted as claims, because
    other pods still use the capacity, or because the replacements do not exist yet.
    """

    def __init__(self, registry: Registry, capacity: NodeCapacity, limits: Limits) -> None:
        self._registry, self._capacity = registry, capacity
        self._memory_seconds = limits.reclaim_memory
        self._reclaims: dict[GroupKey, Reclaim] = {}
        self._moves: dict[GroupKey, Move] = {}  # last move of each group, with the nodes of all replacements
        # Nodes with reserved amounts: for a group (False), or for replacements of its moved pods (True).
        self._reservations: dict[tuple[GroupKey, bool], list[tuple[str, Resources]]] = {}

    def put(self, key: GroupKey, reclaim: Reclaim | None) -> None:
        """Record the reclaim for a group; None means that the reclaim has ended."""
        if self._reclaims.get(key) is reclaim:
            return
        old_reclaim = self._reclaims.pop(key, None)
        group = self._registry.groups.get(key)
        if reclaim is None or group is None:
            return self._reserve(key, (), is_moved=False)
        self._reclaims[key], pods = reclaim, group.pods
        places = [(pods[uid], node) for uid, node in reclaim.plan.items() if uid in pods]
        self._reserve(key, places, is_moved=False)
        if old_reclaim is None or old_reclaim.since != reclaim.since:
            for moved_group in {victim.group for victim in reclaim.victims if victim.uid in reclaim.homes}:
                self._record_move(moved_group, key, reclaim)

    def _record_move(self, moved_group: GroupKey, claimant: GroupKey, reclaim: Reclaim) -> None:
        """Record that a group is moved or restarted, with the reserved nodes of its evicted members."""
        group = self._registry.groups.get(moved_group)
        if group is not None and group.info is not None:
            node_by_uid, home_by_uid = dict(_pods_with_nodes(group.info)), reclaim.homes
            homes = tuple((group.pods[uid], node) for uid, node in home_by_uid.items() if uid in group.pods)
            stayed = len(node_by_uid.keys() - home_by_uid.keys())
            group.restart_count += reclaim.is_restart
            doublings = min(group.restart_count - 1, _MAX_DOUBLINGS) if reclaim.is_restart else 0
            again_at = reclaim.since + self._memory_seconds * 2**doublings
            self._moves[moved_group] = Move(claimant, reclaim.since, reclaim.until, again_at, homes, stayed)

    def moves(self, groups: Mapping[GroupKey, GroupInfo], now: float) -> dict[GroupKey, Move]:
        """Return the last move of each group that may not move again yet.

        Each move has the nodes that are still reserved: for pods that will move, and for pods that have left
        and are not replaced yet.
        """
        previous_moves, self._moves, open_moves = self._moves, {}, {}
        for key, move in previous_moves.items():
            group = groups.get(key)
            homes: Sequence[tuple[PodRecord, str]] = ()
            if group is not None and move.again_at > now:
                self._moves[key] = move
                homes = self._unused_homes(move, group) if now < move.until else ()
                open_moves[key] = replace(move, homes=tuple(homes))
            self._reserve(key, homes, is_moved=True)
        return open_moves

    def restore(self, moves: Mapping[GroupKey, Move]) -> None:
        """Restore the moves from a snapshot of another ledger."""
        self._moves = dict(moves)

    def _unused_homes(self, move: Move, info: GroupInfo) -> Sequence[tuple[PodRecord, str]]:
        """Return the moved members that no running pod has replaced yet, each with its reserved node."""
        reclaim, node_by_uid = self._reclaims.get(move.claimant), dict(_pods_with_nodes(info))
        home_by_uid = reclaim.homes if reclaim is not None and reclaim.since == move.at else {}
        moved_uids = {pod.uid for pod, _ in move.homes}
        other_nodes = {uid: node for uid, node in node_by_uid.items() if uid not in moved_uids}
        homes = [home for home in move.homes if home[0].uid in home_by_uid or home[0].uid not in node_by_uid]
        homes.sort(key=lambda home: home[1] not in other_nodes.values())  # nodes with replacements come first
        return homes[max(len(other_nodes) - move.stayed, 0) :]

    def _reserve(self, key: GroupKey, places: Iterable[tuple[PodRecord, str]], is_moved: bool) -> None:
        """Reserve capacity for pods on nodes, in place of earlier reservations of the group."""
        amounts_by_node = [(node, pod.shape.requests) for pod, node in places]
        old_amounts = self._reservations.pop((key, is_moved), [])
        for node, amounts in old_amounts if amounts_by_node != old_amounts else ():
            self._capacity.reserve(node, amounts, times=-1)
        for node, amounts in amounts_by_node if amounts_by_node != old_amounts else ():
            self._capacity.reserve(node, amounts)
        if amounts_by_node:
            self._reservations[key, is_moved] = amounts_by_node

    def expiries(self, now: float) -> Iterator[float]:
        """Yield the times at which reservations for moved pods end or moved groups may move again."""
        for move in self._moves.values():
            yield move.until if now < move.until else move.again_at


def _pods_with_nodes(info: GroupInfo) -> Iterator[tuple[Uid, str]]:
    """Yield unfinished members with their nodes: bound, assumed or planned."""
    yield from ((pod.uid, pod.node) for pod in info.placed_pods if pod.holds_capacity)
    yield from ((pod.uid, node) for pod, node in info.assumed_pods)
    yield from info.planned_nodes.items()
