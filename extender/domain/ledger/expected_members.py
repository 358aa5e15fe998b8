"""Expected members: records of pods that do not exist yet, which are planned like other pods.

    suspended ──► expected ──planned──► admitted ──► each pod that comes takes over its claim
    runs ──fails, or is deleted──► lost, expected on its node ──the next pod comes──► runs

A controller replaces a lost member at once, or after a back-off that doubles with each failure (the Job
controller: 10 s to 10 minutes). The place of the lost member is reserved for three times the
back-off of the Job controller, and for 15 minutes at most. The reservation is a claim like other claims, and
counts for the queue. Members that Muster itself evicts do not count as lost, and neither do members that
the gang does not need.

Callers hold the ledger's lock.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter

from msgspec.structs import replace

from extender.domain.ledger.claims import ClaimEvent
from extender.domain.ledger.groups import Group
from extender.domain.ledger.pods import Pods
from extender.domain.ledger.state import Core
from extender.domain.model import ownership
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.shapes import Shape
from extender.domain.model.topology import index_of
from extender.domain.queues.records import START_TIMEOUT
from extender.domain.snapshot.jobs import JobRecord, JobRules
from extender.domain.snapshot.wholeness import min_running

_EXPIRED_AT = -inf  # time of a job whose reservation has expired; a new one begins with the next pod


class LaterPods:
    """Later pods of a running job: pods that its controller creates once other pods have succeeded.

        runs ──ends──► expected, on its node ──the next pod comes──► runs

    The capacity of the job stays reserved until enough pods have succeeded. Otherwise each later
    pod would have to wait behind all other jobs. While no pod comes, the capacity is reserved for
    `patience_seconds` at most. Callers hold the ledger's lock.
    """

    def __init__(self, clock: Callable[[], float], patience_seconds: float) -> None:
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._waiting_since: dict[GroupKey, float] = {}  # since when a job waits for its next pod

    def count_pods_to_come(self, job: JobRecord, pods: Collection[PodRecord], has_newcomers: bool) -> int:
        """Return how many pods the job's controller will make now, besides existing pods.

        Args:
            job: The job.
            pods: The existing pods.
            has_newcomers: Whether a new pod without a claim exists.
        """
        # The status of a job may be older than its pods, and pods may be deleted: the lower number counts.
        success_count = sum(1 for pod in pods if pod.phase == "Succeeded")
        active_count = sum(1 for p in pods if p.is_waiting or (p.holds_capacity and not p.deleting))
        remaining_count = max((job.completions or 0) - success_count, 0)
        missing_count = max(min(job.pod_count, remaining_count) - active_count, 0)
        if not missing_count or has_newcomers:
            self._waiting_since.pop(job.group, None)
        if not missing_count:
            return 0
        since = self._waiting_since.setdefault(job.group, self._clock())
        if self._clock() < since + self._patience_seconds:
            return missing_count
        self._waiting_since[job.group] = _EXPIRED_AT
        return 0

    def forget(self, key: GroupKey) -> None:
        self._waiting_since.pop(key, None)

    def late_groups(self) -> list[GroupKey]:
        """Return the groups whose next pods have not come in time."""
        deadline = self._clock() - self._patience_seconds
        return [key for key, since in self._waiting_since.items() if _EXPIRED_AT < since <= deadline]

    def expiries(self) -> Iterable[float]:
        """Return the times at which reservations expire."""
        instants = (since + self._patience_seconds for since in self._waiting_since.values())
        return [instant for instant in instants if instant > _EXPIRED_AT]


def has_later_pods(group: Group, job: JobRecord) -> bool:
    """Return whether a running job makes further pods once earlier pods have succeeded."""
    return job.is_unsuspended and group.has_fully_run and job.completions is not None


# By number of a job's part: how many pods are still to come, and existing pods without a claim.
PodsToCome = Mapping[int, tuple[int, list[PodRecord]]]


class ExpectedMembers:
    """Expected members of jobs.

    A job costs its author a single object, however many pods it requests. Therefore, `max_count` limits the
    expected pods of the jobs of one namespace: further jobs wait until others have started or are gone.
    """

    def __init__(self, core: Core, pods: Pods, rules: JobRules, max_count: int) -> None:
        self._core = core
        self._registry, self._claims, self._transitions = core.registry, core.claims, core.transitions
        self._changes, self._clock = core.changes, core.clock
        self._pods = pods
        self._rules = rules
        self._max_count = max_count
        self._expected_counts: Counter[str] = Counter()  # number of expected members by namespace
        self._crowded_out_groups: defaultdict[str, dict[GroupKey, None]] = defaultdict(dict)  # over the limit
        self.later_pods = LaterPods(core.clock, START_TIMEOUT)

    def manages(self, job: JobRecord) -> bool:
        """Return whether Muster starts a job. Jobs of kinds that another controller starts do not count."""
        if job.kind in self._registry.foreign_kinds:
            return False
        routes = self._registry.routes
        is_adopted = ownership.is_adopted(job.namespace, routes.labels_of(job.namespace))
        return self._rules.manages(job, routes.queue_of_job(job), is_adopted)

    def sync(self) -> None:
        """Update the expected members of dirty groups from their jobs and existing pods."""
        for key in dict.fromkeys((*self._registry.dirty_jobs(), *self.later_pods.late_groups())):
            self._sync_group(self._registry.group(key), self._registry.jobs.get(key))
        # Jobs that wait because of the limit follow, the oldest first, until a job exceeds the limit.
        for namespace, groups in list(self._crowded_out_groups.items()):
            for key in list(groups):
                job = self._registry.jobs.get(key)
                if job is not None and self._exceeds_limit(self._expected_counts[namespace], job.pod_count):
                    break
                self._sync_group(self._registry.group(key), job)

    def _exceeds_limit(self, other_count: int, new_count: int) -> bool:
        """Return whether further pods exceed the limit of expected pods in a namespace.

        If no other job of the namespace expects pods, the limit is never exceeded.

        Args:
            other_count: The number of pods that other jobs of the namespace expect.
            new_count: The number of further pods.
        """
        return other_count > 0 and new_count > 0 and other_count + new_count > self._max_count

    def _sync_group(self, group: Group, job: JobRecord | None) -> None:
        """Update the expected members of a group: the pods that its job will still create."""
        old_job, group.job = group.job, job if job is not None and self.manages(job) else None
        if job is not None and job.is_suspended:  # pods of an earlier start do not count for the next start
            for pod in [pod for pod in group.pods.values() if pod.phase in ("Succeeded", "Failed")]:
                self._pods.leave_group(pod)
        group.record_created_pods(self._clock())
        old_pods = [part.pod for part in old_job.pods] if old_job else []
        if old_pods != ([part.pod for part in group.job.pods] if group.job else []):
            for pod in _expected_pods(group):
                self._hand_over(group, pod, [])
        pods_to_come = self._pods_to_come(group)
        self._record_crowded_out(group, sum(count for count, _ in pods_to_come.values()))
        if group.is_crowded_out:
            pods_to_come = {}
        expected_pods = _expected_by_part(group)
        for index in sorted(pods_to_come.keys() | expected_pods.keys()):
            self._settle_part(group, index, expected_pods.get(index, []), *pods_to_come.get(index, (0, [])))
        if group.job is not None and has_later_pods(group, group.job):
            pods_without_claim = [pod for pod in _expected_pods(group) if self._claims.get(pod.uid) is None]
            for pod, departed_pod in zip(pods_without_claim, group.departed_pods, strict=False):
                if self._claims.fits(pod, departed_pod.node):
                    self._transitions.put(pod, ClaimEvent.PLAN, departed_pod.node)
        group.departed_pods.clear()
        group.record_job(self._clock())

    def _pods_to_come(self, group: Group) -> PodsToCome:
        """Return, by part of the job, the number of pods still to come and the new pods without a claim."""
        job, pods = group.job, [pod for pod in group.pods.values() if not pod.is_expected]
        if group.created_pods.refusal:  # no capacity is reserved for refused pods
            return {}
        if job is not None and has_later_pods(group, job):
            new_pods = [pod for pod in pods if pod.is_waiting and self._claims.get(pod.uid) is None]
            return {0: (self.later_pods.count_pods_to_come(job, pods, bool(new_pods)), new_pods)}
        self.later_pods.forget(group.key)
        if job is None or not _expects_pods(group, job, pods):
            return {}
        open_places = [part.count for part in job.pods]
        newcomers: list[list[PodRecord]] = [[] for _ in job.pods]
        numbers, queues = deque(range(len(open_places))), defaultdict[tuple[str, Shape], deque[int]](deque)
        for number, part in enumerate(job.pods):  # in the order of the parts
            queues[part.pod.role, part.pod.shape].append(number)
        for pod in pods:
            # A pod belongs to a part with its role and shape, else to any part: webhooks may change pods.
            index = _first_open_part(open_places, queues[pod.role, pod.shape], numbers)
            if index is not None and not pod.deleting:
                open_places[index] -= 1
                if pod.is_waiting and self._claims.get(pod.uid) is None:
                    newcomers[index].append(pod)
        return {index: (open_places[index], newcomers[index]) for index in range(len(job.pods))}

    def _record_crowded_out(self, group: Group, new_count: int) -> None:
        """Record whether a job waits because of the limit of expected members of its namespace.

        Either all pods of a job are expected, or no pod. The pods of an admitted job are always expected.
        """
        is_unsuspended = group.job is not None and group.job.is_unsuspended
        other_count = self._expected_counts[group.namespace] - sum(1 for _ in _expected_pods(group))
        is_crowded_out = not is_unsuspended and self._exceeds_limit(other_count, new_count)
        if group.is_crowded_out is is_crowded_out:
            return
        group.is_crowded_out, waiting_groups = is_crowded_out, self._crowded_out_groups[group.namespace]
        if is_crowded_out:
            waiting_groups[group.key] = None
        else:
            waiting_groups.pop(group.key, None)
        if not waiting_groups:
            del self._crowded_out_groups[group.namespace]
        self._registry.mark_dirty(group.key)

    def _change_count(self, namespace: str, change: int) -> None:
        """Change the number of expected members of a namespace."""
        self._expected_counts[namespace] += change
        if not self._expected_counts[namespace]:
            del self._expected_counts[namespace]

    def _settle_part(
        self, group: Group, index: int, expected_pods: list[PodRecord], count: int, newcomers: list[PodRecord]
    ) -> None:
        """Adjust the expected pods of a part to the number of pods that are still to come.

        Claims of superfluous expected pods go to new pods, as far as there are any new pods. Missing expected
        pods are created.

        Args:
            group: The group of the job.
            index: The number of the part.
            expected_pods: The expected pods of the part.
            count: The number of pods that are still to come.
            newcomers: The new pods of the part without a claim.
        """
        expected_pods.sort(key=lambda pod: self._claims.get(pod.uid) is None)
        newcomers.sort(key=attrgetter("sort_key"), reverse=True)  # the last pod is the next to get a claim
        surplus_count = max(len(expected_pods) - count, 0)
        by_index = {index_of(pod.name, pod.labels): pod for pod in newcomers}
        pods_with_claim = (pod for pod in expected_pods if by_index and self._claims.get(pod.uid) is not None)
        candidates = ((pod, by_index.get((0, _place_of(pod)[1]))) for pod in pods_with_claim)
        pairs = [(pod, new) for pod, new in candidates if new is not None][:surplus_count]
        for pod, new in pairs:  # first, pods with an index get the claims of the same index
            self._hand_over(group, pod, [new])
        if pairs:
            matched_uids = {pod.uid for pair in pairs for pod in pair}
            expected_pods = [pod for pod in expected_pods if pod.uid not in matched_uids]
            newcomers = [pod for pod in newcomers if pod.uid not in matched_uids]
            surplus_count -= len(pairs)
        taken_count = min(surplus_count, len(newcomers))
        first = len(expected_pods) - surplus_count + taken_count
        for pod in (*expected_pods[:taken_count], *expected_pods[first:]):
            self._hand_over(group, pod, newcomers)
        if group.job is not None and len(expected_pods) < count:
            job = group.job
            part = job.pods[index]
            for number in range(count):
                uid = Uid(f"{job.uid}/{index}/{number}")
                if uid not in group.pods:
                    name = "-".join(filter(None, (job.name, part.role, str(number))))
                    group.pods[uid] = replace(part.pod, uid=uid, name=name)
                    self._claims.capacity.follow_terms(group.pods[uid])
                    self._change_count(group.namespace, change=1)
            self._registry.mark_dirty(group.key)
            self._changes.notify()

    def _hand_over(self, group: Group, expected_pod: PodRecord, newcomers: list[PodRecord]) -> None:
        self._change_count(group.namespace, change=-1)
        hand_over(self._core, group, expected_pod, newcomers)


def hand_over(core: Core, group: Group, expected_pod: PodRecord, newcomers: list[PodRecord]) -> None:
    """Remove an expected pod, and let the last of the new pods take over its claim.

    The claim ends if there is no new pod, or if the new pod does not fit on the claim's node. The claim also
    ends if the new pod requests more than the expected pod, because ceilings were checked only for the claim.
    """
    claim = core.claims.get(expected_pod.uid)
    if claim is not None:
        core.transitions.end(expected_pod, ClaimEvent.WITHDRAW)
    group.forget(expected_pod.uid)
    core.claims.capacity.terms.unfollow(expected_pod.uid)
    if claim is not None and newcomers and _may_take_over(core, newcomers[-1], expected_pod, claim.node):
        core.transitions.put(newcomers.pop(), ClaimEvent.PLAN, claim.node)
    core.changes.notify()


def _may_take_over(core: Core, pod: PodRecord, expected_pod: PodRecord, node: str) -> bool:
    """Return whether a pod requests at most as much as the expected pod, and fits on its node."""
    return pod.shape.requests_at_most(expected_pod.shape.requests) and core.claims.fits(pod, node)


def _expects_pods(group: Group, job: JobRecord, existing_pods: Iterable[PodRecord]) -> bool:
    """Return whether more pods of the job are still to come.

    A suspended job expects all its pods once the pods of an earlier start are gone. A job that Muster has
    admitted expects the pods that have not come yet, until the job is fully running or its start is given up.
    """
    if job.fault or job.outcome is not None or job.is_stopped:
        return False
    if job.is_suspended:
        return not any(pod.is_waiting or pod.holds_capacity for pod in existing_pods)
    if job.gang.at_once < job.gang.pods and group.has_fully_run:  # the first pods run, and others follow
        return job.was_started and not group.became_ready
    is_under_way = group.start.was_admitted or not group.has_waited
    return job.was_started and is_under_way and not group.has_fully_run


def _expected_pods(group: Group) -> Iterator[PodRecord]:
    """Return the pods that the group's job will still make, without placeholders."""
    return (pod for pod in list(group.pods.values()) if pod.is_expected and not pod.reserved_for)


def _expected_by_part(group: Group) -> dict[int, list[PodRecord]]:
    """Return the expected pods by the number of their part.

    The pods are sorted only once, because a job may have thousands of parts.
    """
    pods_by_part = defaultdict[int, list[PodRecord]](list)
    for pod in _expected_pods(group):
        pods_by_part[_place_of(pod)[0]].append(pod)
    return pods_by_part


def _first_open_part(open_places: Sequence[int], *part_queues: deque[int]) -> int | None:
    """Return the index of the first part that still lacks pods; None if there is none.

    Complete parts are dropped from the front of the queues.
    """
    for queue in part_queues:
        while queue and open_places[queue[0]] <= 0:
            queue.popleft()
        if queue:
            return queue[0]
    return None


def _place_of(pod: PodRecord) -> tuple[int, int]:
    """Return the part of the job to which an expected pod belongs, and the pod's number in this part."""
    _, index, number = pod.uid.rsplit("/", 2)
    return int(index), int(number)


_MIN_SECONDS, _MAX_SECONDS = 30.0, 900.0  # seconds for the place of a lost member


class LostMembers:
    """Lost members of gangs that have fully run: their places are reserved for replacements."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._expires_at: dict[GroupKey, float] = {}  # by group with lost members: first end of a reservation

    def expiries(self) -> Iterable[float]:
        """Return the times at which reservations for lost members expire."""
        return self._expires_at.values()

    def sync(self, evicted_uids: Container[Uid]) -> None:
        """Update the lost members of dirty groups from their pods.

        Args:
            evicted_uids: The pods that Muster evicts.
        """
        now = self._core.clock()
        expired_keys = [key for key, until in self._expires_at.items() if until <= now]
        for key in dict.fromkeys((*self._core.registry.dirty_groups, *expired_keys)):
            self._expires_at.pop(key, None)
            group = self._core.registry.groups.get(key)
            has_left = group is not None and group.departed_pods and not _has_later_pods(group)
            if group is not None and (group.reserved_until or has_left):
                self._sync_group(group, evicted_uids)
                if group.reserved_until:
                    self._expires_at[key] = min(group.reserved_until.values())

    def _sync_group(self, group: Group, evicted_uids: Container[Uid]) -> None:
        """Reserve the places of lost members that the gang needs, and give up other reserved places."""
        now = self._core.clock()
        pods = [p for p in group.pods.values() if not p.is_expected and (p.is_placed or p.is_waiting)]
        departed_pods: list[PodRecord] = []
        if not _has_later_pods(group):  # for a job with later pods, LaterPods reserves the places
            departed_pods, group.departed_pods = group.departed_pods, []
        candidates = [group.pods[uid] for uid, until in group.reserved_until.items() if until > now]
        candidates += [p for p in departed_pods if p.uid not in evicted_uids and not _has_succeeded(group, p)]
        needed_uids = set(self._needed_uids(group, pods, candidates))
        newcomers = [pod for pod in pods if pod.is_waiting and self._core.claims.get(pod.uid) is None]
        for uid in [uid for uid in group.reserved_until if uid not in needed_uids]:
            self._replace_expected(group, group.pods[uid], newcomers)
        failure_count = sum(1 for pod in group.pods.values() if pod.phase == "Failed")
        doublings = min(max(failure_count - 1, 0), 10)
        until = now + min(_MIN_SECONDS * 2**doublings, _MAX_SECONDS)
        for pod in departed_pods:
            if pod.uid in needed_uids:
                self._expect_replacement(group, pod, until)

    def _needed_uids(
        self, group: Group, existing_pods: Iterable[PodRecord], candidates: Iterable[PodRecord]
    ) -> Iterable[Uid]:
        """Yield the lost members that the gang needs; none if its lost members are not replaced."""
        if not self._replaces_lost(group):
            return
        min_count, count_by_role = group.needs.min_member, min_running(group.needs)
        roles = Counter(pod.role for pod in existing_pods)
        for pod in candidates:
            if roles.total() < min_count or roles[pod.role] < count_by_role.get(pod.role, 0):
                roles[pod.role] += 1
                yield pod.uid

    def _replaces_lost(self, group: Group) -> bool:
        """Return whether lost members are replaced.

        They are replaced if the gang has fully run, has not ended, and is not held.
        """
        registry, job = self._core.registry, self._core.registry.jobs.get(group.key)
        return (
            group.has_fully_run
            and not _has_later_pods(group)
            and group.exists
            and not group.needs_no_barrier
            and any(pod.is_placed and pod.phase != "Succeeded" for pod in group.pods.values())
            and not (group.record is not None and group.record.is_held)
            and not (job is not None and (job.is_suspended or job.outcome is not None))
            and not registry.is_suspended(group)
            and not registry.has_lost_queue(group)
        )

    def _expect_replacement(self, group: Group, pod: PodRecord, until: float) -> None:
        """Add an expected member for a lost pod, on the node of this pod if it still fits there."""
        member = replace(
            pod,
            uid=Uid(f"{pod.uid}/lost"),
            node="",
            phase="Pending",
            is_expected=True,
            reserved_for=pod.uid,
            deleting=False,
            deletion_deadline="",
            has_started=False,
            running_since="",
            nominated_node="",
        )
        group.pods[member.uid], group.reserved_until[member.uid] = member, until
        self._core.claims.capacity.follow_terms(member)
        if self._core.claims.fits(member, pod.node):
            self._core.transitions.put(member, ClaimEvent.PLAN, pod.node)
        self._core.registry.mark_dirty(group.key)
        self._core.changes.notify()

    def _replace_expected(self, group: Group, member: PodRecord, newcomers: list[PodRecord]) -> None:
        """Remove an expected member.

        A new pod takes over its claim, preferably one with the same role and index.
        """
        index = index_of(member.name, member.labels)
        newcomers.sort(
            key=lambda pod: (pod.role == member.role, index_of(pod.name, pod.labels) == index is not None)
        )
        hand_over(self._core, group, member, newcomers)
        self._core.registry.mark_dirty(group.key)


def _has_later_pods(group: Group) -> bool:
    return group.job is not None and has_later_pods(group, group.job)


def _has_succeeded(group: Group, pod: PodRecord) -> bool:
    """Return whether a pod has succeeded, by its current record."""
    current_record = group.pods.get(pod.uid)
    return current_record is not None and current_record.phase == "Succeeded"
