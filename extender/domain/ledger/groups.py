"""Groups of the ledger: the state of each group and its members, from which its GroupInfo is made."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Mapping

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.workloads.gangs import Defaults, GangSize, MadePods, gang_size_of
from extender.domain.ledger.claims import Claims
from extender.domain.model.evictions import PastEviction
from extender.domain.model.ownership import OwnerRecord, uid_of_group
from extender.domain.model.records import GroupKey, GroupRecord, Needs, Origin, PodRecord, Uid, is_single
from extender.domain.model.shapes import Shape, total_requests
from extender.domain.model.topology import (
    HOSTNAME,
    NO_TOPOLOGY,
    Part,
    PartRequest,
    PodSubGroup,
    SubGroupPolicy,
    TopologyRequest,
    TopologySet,
    first_request,
    index_of,
    pod_sets,
)
from extender.domain.snapshot.decisions import GroupDecision, start_after
from extender.domain.snapshot.group_info import Attempt, GroupInfo, Start
from extender.domain.snapshot.job_start_and_suspension import CreatedPods
from extender.domain.snapshot.jobs import JobRecord
from extender.domain.snapshot.wholeness import is_whole_with


class Group(msgspec.Struct, eq=False):
    """Group in the ledger, made from a PodGroup or from pods alone."""

    key: GroupKey
    record: GroupRecord | None = None  # record of its PodGroup; None: it has no PodGroup
    last_record: GroupRecord | None = None  # record of its last PodGroup, kept while members are left
    known_since: int = 0  # the ledger's version since which the PodGroup's demands are unchanged
    records: dict[Origin, GroupRecord] = {}  # all PodGroups of the group's name, by API
    owner: OwnerRecord | None = None  # controller of its pods, if the pods name no group
    min_member_of_pods: str = ""  # number of members that start together, by annotation of its pods
    defaults: Defaults = Defaults()  # defaults of its namespace and queue
    pods: dict[Uid, PodRecord] = {}  # members by UID
    standing_roles: dict[Uid, str] = {}  # members on a node, or with a posted or held claim, with their roles
    started_roles: dict[Uid, str] = {}  # members that run or have run, with their roles
    bound_since: dict[Uid, float] = {}  # when each member was first seen on its node
    attempts: dict[Uid, Attempt] = {}  # binding attempts of waiting members
    info: GroupInfo | None = None  # newest info for decide()
    job: JobRecord | None = None  # managed job that makes its pods
    unsuspended_since: float | None = None  # when the job was seen to be unsuspended
    job_finished_at: float | None = None  # when the job was seen to have finished
    is_crowded_out: bool = False  # whether its namespace has reached the limit of expected members
    departed_pods: list[PodRecord] = []  # members that left their nodes since the last update
    reserved_until: dict[Uid, float] = {}  # by expected replacement of a lost member: end of the reservation
    created_pods: CreatedPods = CreatedPods()  # pods that the job's controller has created
    became_ready: bool = False  # whether all needed members have run at once since the job was unsuspended
    start: Start = Start()  # history of its starts
    entitled_queue: str = ""  # queue that was open while the group was in it; empty: none
    start_queue: str = ""  # queue of its start, while members hold capacity; empty: none
    run_needs: Needs | None = None  # needs at the time the group last fully ran
    reduced_to: int | None = None  # number of members of a partial start; None: all members
    has_waited: bool = False  # whether the group has waited since this process started
    reclaim_times: dict[GroupKey, float] = {}  # when this group last reclaimed capacity, by victim group
    eviction_times: dict[str, float] = {}  # when this group was last evicted, by the queue that gained
    is_held_back: bool = False  # whether the group, its queue or its members are held
    ready_at: str = ""  # timestamp from which the group was no longer held back; empty: it never was
    lost_work: float = 0.0  # seconds of the whole group's work that evictions have cost
    last_eviction: PastEviction | None = None  # last eviction that this process has seen
    restart_count: int = 0  # number of restarts elsewhere, because lost members had no capacity

    def forget_history(self) -> None:
        """Forget all facts about earlier starts and evictions of the group."""
        self.start, self.entitled_queue, self.run_needs = Start(), "", None
        self.reduced_to, self.has_waited, self.reclaim_times, self.lost_work = None, False, {}, 0.0
        self.eviction_times, self.last_eviction, self.restart_count = {}, None, 0

    def reset_decisions(self) -> None:
        """Reset the decisions on the group, because its PodGroup was replaced.

        If the group has fully run with the needs of the former PodGroup, these needs stay recorded.
        Without this record, a lost member could undo the start.
        """
        run_needs = self.run_needs if self.last_record is not None else None
        self.forget_history()
        self.run_needs = run_needs

    def put_record(self, record: GroupRecord | None, version: int) -> None:
        """Record the PodGroup that exists from `version` on; None means that the PodGroup is gone."""
        if _decisive_fields(self.record) != _decisive_fields(record):
            self.known_since = version
        old_count, new_count = ((each.start_timeouts if each else 0) for each in (self.record, record))
        if old_count and not new_count and self.job is None:  # the count was reset: try again at once
            self.start = replace(self.start, undone_count=0, failures=0, retry_at=0.0)
        self.record = record
        self.last_record = record or (self.last_record if self.pods else None)

    def forget(self, uid: Uid) -> None:
        """Remove a member, with all facts about it."""
        self.pods.pop(uid, None)
        self.standing_roles.pop(uid, None)
        self.started_roles.pop(uid, None)
        self.bound_since.pop(uid, None)
        self.attempts.pop(uid, None)
        self.reserved_until.pop(uid, None)

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def exists(self) -> bool:
        """Return whether the group exists: it has a PodGroup, or its pods need none."""
        return self.record is not None or self.is_implied or is_single(self.key)

    @property
    def is_implied(self) -> bool:
        """Return whether the group exists by its pods alone, because they name no PodGroup."""
        return any(pod.is_auto for pod in self.pods.values())

    @property
    def plain_pod(self) -> PodRecord | None:
        """Return the plain pod for which the group was made; None for any other group."""
        pod = self.pods.get(Uid(uid_of_group(self.key.rpartition("/")[2])))
        return pod if pod is not None and pod.is_plain else None

    @property
    def needs(self) -> Needs:
        """Return the needed members: minMember and minTaskMember, or fewer if the job makes fewer pods.

        A waiting job, and a group that never had a PodGroup, need as many members as `gang_size` says. The
        PodGroup is then updated to this number. If sub-groups have a minimum, their pods are needed, even if
        minMember is lower.
        """
        needs = self._declared_needs()
        sub_group_pods = sum(policy.min_sub_groups * policy.size for policy in self.sub_group_policies)
        return needs if needs.min_member >= sub_group_pods else needs._replace(min_member=sub_group_pods)

    @property
    def sub_group_policies(self) -> tuple[SubGroupPolicy, ...]:
        """Return the sub-group policies of the PodGroup, or else of the job."""
        policies = self.last_record.sub_groups if self.last_record is not None else ()
        return policies or (self.job.policies if self.job is not None else ())

    def _declared_needs(self) -> Needs:
        """Return the needs that the PodGroup declares.

        Without a PodGroup, or while the job waits, the job declares them.
        """
        job_waits = self.job is not None and self.job.is_suspended and not self.job.fault
        if self.last_record is None or job_waits:
            count_by_role = dict(self.job.by_role) if self.job is not None else {}
            return Needs(self._limited_to_created(self.gang_size.members), count_by_role)
        min_count = self._limited_to_created(self.last_record.min_member)
        if self.job is not None and self.job.is_unsuspended and not self.job.fault:
            min_count = min(min_count, self.job.gang.at_once)
        return Needs(min_count, dict(self.last_record.min_task_member), self.last_record.composite)

    @property
    def gang_size(self) -> GangSize:
        """Return how many pods start together.

        The PodGroup of another owner may declare a different number.
        """
        if self.job is None:
            gang = self.owner.gang if self.owner else None
            if gang is None and (
                is_single(self.key) or any(not pod.controller for pod in self.pods.values())
            ):
                gang = _SINGLE_POD  # no controller makes its pods
            return gang_size_of(gang, self.min_member_of_pods, self.defaults, waits=False)
        return self.job.gang_size(self.defaults)

    @property
    def fewest_members(self) -> int:
        """Return the least number of members of a partial start; 0 if the group cannot start partially."""
        if self.job is None or not self.job.is_suspended or self.reduced_to is not None:
            return 0
        return self.job.min_partial_size if self.job.min_partial_size < self.needs.min_member else 0

    def _limited_to_created(self, count: int) -> int:
        """Return how many of `count` members will exist. A partial start creates only some."""
        if self.reduced_to is not None:
            return min(count, self.reduced_to)
        is_partial = self.job is not None and self.job.min_partial_size > 0 and self.job.is_unsuspended
        return min(count, self.job.declared_count) if self.job is not None and is_partial else count

    @property
    def start_timeouts(self) -> int:
        """Return how many starts in a row took too long or were undone."""
        recorded_count = self.record.start_timeouts if self.record else 0
        if self.job is not None:
            return recorded_count
        return 0 if self.has_fully_run else max(recorded_count, self.start.undone_count)

    @property
    def has_fully_run(self) -> bool:
        """Return whether the group has fully run."""
        return self.run_needs is not None

    def is_quorate(self) -> bool:
        """Return whether enough members are on nodes or about to be bound.

        The members are enough if they make the group whole, or if the group has fully run before.
        """
        if self.has_fully_run:
            return True
        needs, members = self.needs, len(self.standing_roles)
        if members < needs.min_member or not (needs.min_task_member or needs.composite):
            return members >= needs.min_member
        return is_whole_with(needs, Counter(self.standing_roles.values()), members)

    @property
    def joining_roles(self) -> Collection[str] | None:
        """Return the roles whose members may start once the group is whole; None for all roles.

        A child group of a composite starts whole, unless some of its members already run.
        """
        if self.last_record is None or self.last_record.composite is None:
            return None
        whole_roles = self.last_record.composite.complete_pod_groups(Counter(self.standing_roles.values()))
        return {pod.role for pod in self.pods.values() if pod.is_placed}.union(whole_roles)

    def attempt(self, uid: Uid) -> Attempt:
        """Return the attempt to bind a member; an empty attempt if there is none."""
        return self.attempts.get(uid, _NO_ATTEMPT)

    def record_planned(self, uid: Uid, node: str, is_new: bool) -> None:
        """Record the planned node of a member. A new plan restarts the wait for places in the window."""
        if is_new and self.start.window_full_since is not None:
            self.start = replace(self.start, window_full_since=None)
        previous = self.attempt(uid)
        self.attempts[uid] = Attempt(node, message=previous.message, refusals=previous.refusals)

    def record_shown(self, uid: Uid, node: str, now: float) -> None:
        """Record that the scheduler may use the planned node of a member.

        The start deadline counts from the first shown member on.
        """
        previous = self.attempt(uid)
        if previous.shown_at is None:
            self.attempts[uid] = replace(previous, node=node, shown_at=now)
        if self.start.released_at is None:
            self.start = replace(self.start, released_at=now)

    def record_refused(self, uid: Uid, message: str, refused_at: float | None, asked_twice: bool) -> None:
        """Record that the scheduler found no node for a member.

        Args:
            uid: The UID of the member.
            message: The message of the scheduler.
            refused_at: The time of the refusal; None if the pod is tried again.
            asked_twice: Whether the scheduler was asked again after an earlier refusal.
        """
        previous = self.attempt(uid)
        self.attempts[uid] = replace(
            previous,
            shown_at=refused_at,
            refused_at=refused_at,
            message=message,
            refusals=previous.refusals + 1,
            was_asked_again=asked_twice,
        )

    def record_withdrawn(self, uid: Uid) -> None:
        """Record that a planned node or the last answer of the scheduler does not count any more."""
        if (attempt := self.attempts.get(uid)) is not None:
            self.attempts[uid] = replace(attempt, shown_at=None, refused_at=None)

    def record_binding_refused(self, uid: Uid, message: str) -> None:
        """Record why a member can no longer be bound in this start.

        An empty text means that the binding may be tried again.
        """
        self.attempts[uid] = replace(self.attempt(uid), binding_fault=message)

    def reset_attempts(self) -> None:
        """Reset the attempts after a start, but keep the numbers of the scheduler's refusals."""
        counts = ((uid, attempt.refusals) for uid, attempt in self.attempts.items() if attempt.refusals)
        self.attempts = {uid: Attempt(refusals=refusals) for uid, refusals in counts}

    def start_after(self, decision: GroupDecision, now: float) -> Start:
        """Return the history of starts once a decision is published."""
        is_resuming = self.info is not None and self.info.history.resumes
        undone_count = None if self.job is not None else self.start_timeouts
        return start_after(self.start, decision, now, self.has_fully_run, is_resuming, undone_count)

    def record_started(self, pod: PodRecord) -> None:
        """Record that a member runs or has run.

        The record outlives the cycle, because a group may be fully running for less than a cycle.
        """
        if not (pod.is_placed and pod.has_started):
            self.started_roles.pop(pod.uid, None)
            return
        self.started_roles[pod.uid] = pod.role
        if self.run_needs is not None or self.record is None:
            return
        may_need_fewer = self.job is not None or self.reduced_to is not None
        if not may_need_fewer and len(self.started_roles) < self.record.min_member:
            return
        if is_whole_with(self.needs, Counter(self.started_roles.values()), len(self.started_roles)):
            self.run_needs = self.needs

    def record_created_pods(self, now: float) -> None:
        """Record the number of existing pods of the job.

        A message about missing pods is forgotten once the number changes.
        """
        existing_count = sum(1 for pod in self.pods.values() if not (pod.is_expected or pod.deleting))
        if self.job is None or self.job.is_suspended:
            self.created_pods = CreatedPods()
        elif existing_count != self.created_pods.count:
            self.created_pods = CreatedPods(existing_count, now)

    def record_job(self, now: float) -> None:
        """Record when the job was unsuspended and finished, and whether its needed pods have run at once."""
        if self.job is None or self.job.outcome is None:
            self.job_finished_at = None
        elif self.job_finished_at is None:
            self.job_finished_at = now
        if self.job is None or self.job.is_suspended:
            self.unsuspended_since, self.became_ready = None, False
            return
        self.reduced_to = None  # an unsuspended job already has the reduced number
        if self.unsuspended_since is None:
            self.unsuspended_since = now
        phases = Counter(pod.phase for pod in self.pods.values())
        record = self.last_record
        needed_count = self._limited_to_created(record.min_member) if record else self.job.pod_count
        have_all_run = phases["Running"] + phases["Succeeded"] >= needed_count
        # Ended pods may be deleted, so running pods alone may suffice.
        self.became_ready |= have_all_run or phases["Running"] >= self.job.pod_count

    def record_departed(self, pod: PodRecord) -> None:
        """Record that a member no longer holds its capacity.

        The record is needed only for groups of a job, and for groups that have fully run.
        """
        if pod.holds_capacity and (self.job is not None or self.has_fully_run):
            self.departed_pods.append(pod)

    def record_bound(self, pod: PodRecord, now: float) -> None:
        """Record since when a member has been on its node, according to the watch."""
        if pod.is_placed and pod.node:
            self.bound_since.setdefault(pod.uid, now)
        else:
            self.bound_since.pop(pod.uid, None)

    def could_lose(self, lost_roles: Mapping[str, int]) -> bool:
        """Return whether the group stays whole without some of its members.

        The result is true for a group that needs at most one member.

        Args:
            lost_roles: The numbers of lost members, by role.
        """
        if self.needs_no_barrier:
            return True
        remaining_roles = Counter(self.standing_roles.values())
        remaining_roles.subtract(lost_roles)
        return self.is_quorate() and is_whole_with(self.needs, remaining_roles, remaining_roles.total())

    @property
    def needs_no_barrier(self) -> bool:
        """Return whether the group needs at most one member.

        The scheduler's own scoring picks the node of such a group.
        """
        needs = self.needs
        return needs.min_member <= 1 and not (needs.min_task_member or needs.composite)


_NO_ATTEMPT = Attempt()
_SINGLE_POD = MadePods()


def _decisive_fields(record: GroupRecord | None) -> tuple[object, ...] | None:
    """Return the fields of a PodGroup on which decisions depend. The status is not among them."""
    if record is None:
        return None
    needs = record.min_member, record.min_task_member, record.topology, record.sub_groups, record.composite
    return (record.uid, record.queue, *needs, record.fault, record.is_held)


_NO_REQUEST: PartRequest = ((), NO_TOPOLOGY)
_Domain = tuple[str, tuple[str | None, ...] | None]  # role and domain; None without a node


class MemberSets:
    """Topology sets of the members of a group.

    Members that share a device claim form a set that gets one node, until the claim is allocated.
    """

    def __init__(self, group: Group, job: JobRecord | None, claims: Claims) -> None:
        record, pod_requests = group.record, {pod.topology for pod in group.pods.values()}
        owner_requests = [owner.topology for owner in (job, group.owner) if owner is not None]
        group_requests = [record.topology] if record is not None else []
        has_pod_requests = any(map(any, pod_requests))
        self._group, self._claims = group, claims
        self._group_request = first_request(*group_requests, *([] if has_pod_requests else owner_requests))
        self._policies = group.sub_group_policies or (job.policies if job else ())
        counts = Counter(key for pod in group.pods.values() for key in pod.claims_of_one_node if not pod.node)
        self._shared_claims = {claim for claim, number in counts.items() if number > 1}
        pod_groups = record.composite.pod_groups if record is not None and record.composite else ()
        self._requests_by_role = {child.name: child.requests for child in pod_groups if child.requests}
        self.is_empty = not has_pod_requests and not (
            any(self._group_request) or self._policies or self._shared_claims or self._requests_by_role
        )
        self._policies_by_role: dict[str, list[SubGroupPolicy]] = {}  # policies by role of pods
        self._sets_by_kind: dict[tuple[object, ...], tuple[TopologySet, ...]] = {}  # sets by kind of member
        self._equal_sets: dict[tuple[TopologySet, ...], tuple[TopologySet, ...]] = {}  # equal sets
        self._numbers_by_request: dict[TopologyRequest, Mapping[Uid, tuple[int, int]]] = {}

    def with_sets(self, pod: PodRecord) -> PodRecord:
        """Return a member with its index, topology sets and sub-group."""
        policy = self._policy_of(pod) if self._policies else None
        *upper_requests, (_, own_request) = self._requests_by_role.get(pod.role, (_NO_REQUEST,))
        role_request = first_request(own_request, pod.topology, policy.topology if policy else NO_TOPOLOGY)
        policy_request = policy.topology if policy else self._group_request
        request = role_request if role_request.slice_level else policy_request
        own_index = _index(pod)
        if policy and policy.labels:
            part: Part = policy.name, "labels", *(pod.labels[key] for key in policy.labels)
        else:
            has_slice = bool(request.slice_level or policy)
            job_part, index = (own_index or self._number(pod.uid, request)) if has_slice else (0, 0)
            part = pod.role, str(job_part), str(index // (request.slice_size or index + 1))
        claim = next((key for key in pod.claims_of_one_node if key in self._shared_claims), "")
        key = pod.role, role_request, part, claim
        if key not in self._sets_by_kind:
            final_request = (pod.role,), role_request
            requests: list[PartRequest] = [((), self._group_request), *upper_requests, final_request]
            sets = pod_sets(self._group.key, requests, part)
            if claim:
                sets += (TopologySet(self._group.key, ("claim", claim), HOSTNAME),)
            self._sets_by_kind[key] = self._equal_sets.setdefault(sets, sets)
        sub_group = PodSubGroup(policy.name, part, policy.size) if policy else None
        return replace(pod, pod_sets=self._sets_by_kind[key], index=own_index, sub_group=sub_group)

    def _policy_of(self, pod: PodRecord) -> SubGroupPolicy | None:
        """Return the first sub-group policy that selects a member; None without such a policy."""
        if pod.role not in self._policies_by_role:
            self._policies_by_role[pod.role] = [p for p in self._policies if p.may_select(pod.role)]
        labels = {**pod.labels, keys.ROLE: pod.role}
        return next((policy for policy in self._policies_by_role[pod.role] if policy.selects(labels)), None)

    def _number(self, uid: Uid, request: TopologyRequest) -> tuple[int, int]:
        """Return the number of a member without an index, for the division into slices."""
        if request not in self._numbers_by_request:
            self._numbers_by_request[request] = self._numbers(request)
        return self._numbers_by_request[request][uid]

    def _numbers(self, request: TopologyRequest) -> Mapping[Uid, tuple[int, int]]:
        """Return a number for each pod without an index.

        Pods of a role with nodes in the same domain get consecutive numbers, beginning with a new slice.
        Pods without a domain complete the last slice of each domain.
        """
        size, by_domain = request.slice_size or len(self._group.pods), defaultdict[_Domain, list[Uid]](list)
        pods = [pod for pod in self._group.pods.values() if _index(pod) is None]
        for pod in sorted(pods, key=lambda pod: (pod.role, pod.created_at, pod.sort_key)):
            claim = self._claims.get(pod.uid)
            node = pod.node or (claim.node if claim is not None else "")
            level = request.slice_level
            domain = self._claims.capacity.domain(node, level) if node and level else None
            by_domain[pod.role, domain].append(pod.uid)
        numbers: dict[Uid, tuple[int, int]] = {}
        for role in {pod.role for pod in pods}:
            waiting_uids, number = deque(by_domain.pop((role, None), ())), 0
            for uids in [uids for (other_role, _), uids in by_domain.items() if other_role == role]:
                uids += [waiting_uids.popleft() for _ in range(min(-len(uids) % size, len(waiting_uids)))]
                numbers |= {uid: (-1, number + offset) for offset, uid in enumerate(uids)}
                number += -(-len(uids) // size) * size
            numbers |= {uid: (-1, number + offset) for offset, uid in enumerate(waiting_uids)}
        return numbers


def _index(pod: PodRecord) -> tuple[int, int] | None:
    """Return the index of a member.

    An expected member has the labels of the first pod. Therefore, only the name of the member counts.
    """
    return index_of(pod.name, {} if pod.is_expected and not pod.reserved_for else pod.labels)


class Members:
    """Pods of a group by progress. The fields mean the same as in GroupInfo."""

    def __init__(
        self,
        group: Group,
        claims: Claims,
        stuck_uids: Container[Uid],
        job: JobRecord | None,
        awaits_claims: bool,
    ) -> None:
        self.placed_pods: list[PodRecord] = []
        self.assumed_pods: list[tuple[PodRecord, str]] = []
        self.waiting_pods: list[PodRecord] = []
        self.planned_nodes: dict[Uid, str] = {}
        self.held_back_count = 0
        self.claim_fault = ""
        self.departing_pods: list[PodRecord] = []
        self.running = self.succeeded = self.failed = 0
        self.has_fixed_claims = False
        self.holding_shapes: list[Shape] = []  # shapes of members that hold capacity and are not stuck
        sets = MemberSets(group, job, claims)
        for member in group.pods.values():
            pod = member if sets.is_empty or member.is_for_min_resources else sets.with_sets(member)
            self.running += pod.phase == "Running" and not pod.deleting
            self.succeeded += pod.phase == "Succeeded"
            self.failed += pod.phase == "Failed"
            claim = claims.get(pod.uid)
            is_fixed = claim is not None and claim.is_fixed
            self.has_fixed_claims |= is_fixed
            if is_fixed and pod.uid not in stuck_uids:
                self.holding_shapes.append(pod.shape)
            if pod.is_placed:
                self.placed_pods.append(pod)
            elif pod.is_waiting and pod.has_foreign_gates:
                self.held_back_count += 1
            elif pod.is_waiting and claim is not None and is_fixed:
                self.assumed_pods.append((pod, claim.node))
            elif pod.is_waiting and pod.claim_fault and awaits_claims:
                self.held_back_count += 1
                self.claim_fault = pod.claim_fault
            elif pod.is_waiting:
                self.waiting_pods.append(pod)
                if claim is not None:
                    self.planned_nodes[pod.uid] = claim.node
            elif pod.holds_capacity:
                self.departing_pods.append(pod)

    @property
    def are_under_way(self) -> bool:
        """Return whether any member has a node or a planned node."""
        return bool(self.planned_nodes or self.has_fixed_claims)

    @property
    def pending_requests(self) -> dict[str, int]:
        """Return the joint requests of the waiting members."""
        return total_requests([pod.shape for pod in self.waiting_pods])
