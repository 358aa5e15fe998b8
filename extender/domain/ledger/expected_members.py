"""Expected members: records of pods that do not exist yet, which are planned like other pods.

    suspended ──► expected ──planned──► admitted ──► each pod that comes takes over its claim
    runs ──fails, or is deleted──► lost, expected on its node ──the next pod comes──► runs

A controller replaces a lost member at once, or after a back-off that doubles with each failure (the Job
controller: 10 s to 10 minutes). The place of the lost member is reserved for three times as long, and for 15
minutes at most. The reservation is a claim like other claims, and counts for the queue. Members that Muster
itself evicts are not lost, and neither are members that a gang does not need.

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
from extender.domain.snapshot.wholeness import kept_roles

_EXPIRED = -inf  # time of a job whose reservation has expired; a new one begins with the next pod


class LaterPods:
    """Later pods of a running job, which come after others have succeeded.

        runs ──ends──► expected, on its node ──the next pod comes──► runs

    The capacity of the job stays reserved until enough pods have succeeded. Otherwise the job would queue
    again for each later pod, behind all other jobs. While no pod comes, capacity is reserved for `patience`
    seconds. Callers hold the ledger's lock.
    """

    def __init__(self, clock: Callable[[], float], patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._since: dict[GroupKey, float] = {}  # since when a job waits for its next pod

    def pods_to_come(self, job: JobRecord, existing: Collection[PodRecord], has_newcomers: bool) -> int:
        """Return how many pods the job's controller will make now, besides existing pods.

        Args:
            job: The job.
            existing: The existing pods.
            has_newcomers: Whether a new pod without a claim exists.
        """
        # The status of a job may be older than its pods, and pods may be deleted: the lower number counts.
        succeeded = sum(1 for pod in existing if pod.phase == "Succeeded")
        active = sum(1 for pod in existing if pod.is_waiting or (pod.holds_capacity and not pod.deleting))
        remaining = max((job.completions or 0) - succeeded, 0)
        missing = max(min(job.pod_count, remaining) - active, 0)
        if not missing or has_newcomers:
            self._since.pop(job.group, None)
        if not missing:
            return 0
        since = self._since.setdefault(job.group, self._clock())
        if self._clock() < since + self._patience:
            return missing
        self._since[job.group] = _EXPIRED
        return 0

    def forget(self, key: GroupKey) -> None:
        self._since.pop(key, None)

    def late_groups(self) -> list[GroupKey]:
        """Return the groups whose next pods have not come in time."""
        oldest = self._clock() - self._patience
        return [key for key, since in self._since.items() if _EXPIRED < since <= oldest]

    def expiries(self) -> Iterable[float]:
        """Yield the times at which reservations expire."""
        instants = (since + self._patience for since in self._since.values())
        return [instant for instant in instants if instant > _EXPIRED]


def has_later_pods(group: Group, job: JobRecord) -> bool:
    """Return whether a running job makes further pods once earlier pods have succeeded."""
    return job.is_unsuspended and group.has_fully_run and job.completions is not None


# By part of a job: the number of pods that are still to come, and existing pods without a claim.
PodsToCome = Mapping[int, tuple[int, list[PodRecord]]]


class ExpectedMembers:
    """Expected members of jobs.

    A job costs its author a single object, however many pods it requests. Therefore, `most` limits the
    expected pods of the jobs of one namespace: further jobs wait until others have started or are gone.
    """

    def __init__(self, core: Core, pods: Pods, rules: JobRules, most: int) -> None:
        self._core = core
        self._registry, self._claims, self._transitions = core.registry, core.claims, core.transitions
        self._changes, self._clock = core.changes, core.clock
        self._pods = pods
        self._rules = rules
        self._most = most
        self._counts: Counter[str] = Counter()  # number of expected members by namespace
        self._crowded_out: defaultdict[str, dict[GroupKey, None]] = defaultdict(dict)  # over the limit
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
        # Jobs over the limit get their turn, the oldest first, up to the limit.
        for namespace, waiting in list(self._crowded_out.items()):
            for key in list(waiting):
                job = self._registry.jobs.get(key)
                if job is not None and self._is_too_much(self._counts[namespace], job.pod_count):
                    break
                self._sync_group(self._registry.group(key), job)

    def _is_too_much(self, others: int, wanted: int) -> bool:
        """Return whether `wanted` further pods exceed the limit.

        A single job is only subject to its own limit.
        """
        return others > 0 and wanted > 0 and others + wanted > self._most

    def _sync_group(self, group: Group, job: JobRecord | None) -> None:
        """Update the expected members of a group: the pods that its job will still create."""
        before, group.job = group.job, job if job is not None and self.manages(job) else None
        if job is not None and job.is_suspended:  # pods of an earlier start do not count for the next start
            for pod in [pod for pod in group.pods.values() if pod.phase in ("Succeeded", "Failed")]:
                self._pods.leave_group(pod)
        group.record_created_pods(self._clock())
        pods_before = [part.pod for part in before.pods] if before else []
        if pods_before != ([part.pod for part in group.job.pods] if group.job else []):
            for pod in _expected_pods(group):
                self._hand_over(group, pod, [])
        to_come = self._pods_to_come(group)
        self._record_crowded_out(group, sum(count for count, _ in to_come.values()))
        if group.is_crowded_out:
            to_come = {}
        expected = _by_part(group)
        for index in sorted(to_come.keys() | expected.keys()):
            self._settle_part(group, index, expected.get(index, []), *to_come.get(index, (0, [])))
        if group.job is not None and has_later_pods(group, group.job):
            unclaimed = [pod for pod in _expected_pods(group) if self._claims.get(pod.uid) is None]
            for pod, vacated in zip(unclaimed, group.departed_pods, strict=False):
                if self._claims.fits(pod, vacated.node):
                    self._transitions.put(pod, ClaimEvent.PLAN, vacated.node)
        group.departed_pods.clear()
        group.record_job(self._clock())

    def _pods_to_come(self, group: Group) -> PodsToCome:
        """Return by part of the job how many pods are still to come, and its pods without a claim."""
        job, pods = group.job, [pod for pod in group.pods.values() if not pod.is_expected]
        if group.created_pods.refusal:  # no capacity is reserved for refused pods
            return {}
        if job is not None and has_later_pods(group, job):
            unclaimed = [pod for pod in pods if pod.is_waiting and self._claims.get(pod.uid) is None]
            return {0: (self.later_pods.pods_to_come(job, pods, bool(unclaimed)), unclaimed)}
        self.later_pods.forget(group.key)
        if job is None or not _expects(group, job, pods):
            return {}
        open_places = [part.count for part in job.pods]
        newcomers: list[list[PodRecord]] = [[] for _ in job.pods]
        parts, similar = deque(range(len(open_places))), defaultdict[tuple[str, Shape], deque[int]](deque)
        for number, part in enumerate(job.pods):  # in the order of the parts
            similar[part.pod.role, part.pod.shape].append(number)
        for pod in pods:
            # A pod belongs to a part with its role and shape. If there is none, it belongs to any part,
            # because webhooks may change pods.
            index = _first_open(open_places, similar[pod.role, pod.shape], parts)
            if index is not None and not pod.deleting:
                open_places[index] -= 1
                if pod.is_waiting and self._claims.get(pod.uid) is None:
                    newcomers[index].append(pod)
        return {index: (open_places[index], newcomers[index]) for index in range(len(job.pods))}

    def _record_crowded_out(self, group: Group, wanted: int) -> None:
        """Record whether a job waits because of the limit of expected members of its namespace.

        Either all pods of a job are expected, or no pod. The pods of an admitted job are always expected.
        """
        is_unsuspended = group.job is not None and group.job.is_unsuspended
        waited_for = self._counts[group.namespace] - sum(1 for _ in _expected_pods(group))
        is_crowded_out = not is_unsuspended and self._is_too_much(waited_for, wanted)
        if group.is_crowded_out is is_crowded_out:
            return
        group.is_crowded_out, others = is_crowded_out, self._crowded_out[group.namespace]
        if is_crowded_out:
            others[group.key] = None
        else:
            others.pop(group.key, None)
        if not others:
            del self._crowded_out[group.namespace]
        self._registry.mark_dirty(group.key)

    def _count(self, namespace: str, change: int) -> None:
        """Change the number of expected members of a namespace."""
        self._counts[namespace] += change
        if not self._counts[namespace]:
            del self._counts[namespace]

    def _settle_part(
        self, group: Group, index: int, expected: list[PodRecord], wanted: int, newcomers: list[PodRecord]
    ) -> None:
        """Hand over claims of expected pods to new pods, until as many pods are expected as `wanted`.

        Further expected pods are created or removed.
        """
        expected.sort(key=lambda pod: self._claims.get(pod.uid) is None)
        newcomers.sort(key=attrgetter("sort_key"), reverse=True)  # the last pod is the next to get a claim
        superfluous = max(len(expected) - wanted, 0)
        by_index = {index_of(pod.name, pod.labels): pod for pod in newcomers}
        claimed = (pod for pod in expected if by_index and self._claims.get(pod.uid) is not None)
        similar = ((pod, by_index.get((0, _place_of(pod)[1]))) for pod in claimed)
        pairs = [(pod, new) for pod, new in similar if new is not None][:superfluous]
        for pod, new in pairs:  # first, pods with an index get the claims of the same index
            self._hand_over(group, pod, [new])
        if pairs:
            matched = {pod.uid for pair in pairs for pod in pair}
            expected = [pod for pod in expected if pod.uid not in matched]
            newcomers = [pod for pod in newcomers if pod.uid not in matched]
            superfluous -= len(pairs)
        taken_over = min(superfluous, len(newcomers))
        for pod in (*expected[:taken_over], *expected[len(expected) - superfluous + taken_over :]):
            self._hand_over(group, pod, newcomers)
        if group.job is not None and len(expected) < wanted:
            job = group.job
            part = job.pods[index]
            for number in range(wanted):
                uid = Uid(f"{job.uid}/{index}/{number}")
                if uid not in group.pods:
                    name = "-".join(filter(None, (job.name, part.role, str(number))))
                    group.pods[uid] = replace(part.pod, uid=uid, name=name)
                    self._claims.capacity.watch_terms(group.pods[uid])
                    self._count(group.namespace, change=1)
            self._registry.mark_dirty(group.key)
            self._changes.notify()

    def _hand_over(self, group: Group, expected: PodRecord, newcomers: list[PodRecord]) -> None:
        self._count(group.namespace, change=-1)
        hand_over(self._core, group, expected, newcomers)


def hand_over(core: Core, group: Group, expected: PodRecord, newcomers: list[PodRecord]) -> None:
    """Remove an expected pod, and let the last of the new pods take over its claim.

    The claim ends if there is no new pod, or if the new pod requests more: ceilings have admitted only the
    claim.
    """
    claim = core.claims.get(expected.uid)
    if claim is not None:
        core.transitions.end(expected, ClaimEvent.WITHDRAW)
    group.forget(expected.uid)
    core.claims.capacity.terms.unwatch(expected.uid)
    if claim is not None and newcomers and _may_take_over(core, newcomers[-1], expected, claim.node):
        core.transitions.put(newcomers.pop(), ClaimEvent.PLAN, claim.node)
    core.changes.notify()


def _may_take_over(core: Core, pod: PodRecord, expected: PodRecord, node: str) -> bool:
    """Return whether a pod requests at most as much as the expected pod, and fits on its node."""
    return pod.shape.asks_at_most(expected.shape.requests) and core.claims.fits(pod, node)


def _expects(group: Group, job: JobRecord, existing: Iterable[PodRecord]) -> bool:
    """Return whether the job expects pods.

    A suspended job expects all its pods once the pods of an earlier start are gone. A job that Muster has
    admitted expects the pods that have not come yet, until the job is fully running or its start is given up.
    """
    if job.fault or job.outcome is not None or job.is_stopped:
        return False
    if job.is_suspended:
        return not any(pod.is_waiting or pod.holds_capacity for pod in existing)
    if job.gang.at_once < job.gang.pods and group.has_fully_run:  # the first pods run, and others follow
        return job.was_started and not group.became_ready
    is_under_way = group.start.was_admitted or not group.has_waited
    return job.was_started and is_under_way and not group.has_fully_run


def _expected_pods(group: Group) -> Iterator[PodRecord]:
    """Return the pods that the group's job will still make, without placeholders."""
    return (pod for pod in list(group.pods.values()) if pod.is_expected and not pod.reserved_for)


def _by_part(group: Group) -> dict[int, list[PodRecord]]:
    """Return the expected pods by part.

    The pods are sorted only once, because a job may have thousands of parts.
    """
    parts = defaultdict[int, list[PodRecord]](list)
    for pod in _expected_pods(group):
        parts[_place_of(pod)[0]].append(pod)
    return parts


def _first_open(open_places: Sequence[int], *part_queues: deque[int]) -> int | None:
    """Return the first part with pods still to come.

    Earlier parts are dropped from the queues, as they are complete.
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


_FIRST_RESERVATION, _LONGEST_RESERVATION = 30.0, 900.0  # seconds for the place of a lost member


class LostMembers:
    """Lost members of gangs that have fully run: their places are reserved for replacements."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._until: dict[GroupKey, float] = {}  # by group with lost members: first end of a reservation

    def expiries(self) -> Iterable[float]:
        """Return the times at which reservations for lost members expire."""
        return self._until.values()

    def sync(self, evicted: Container[Uid]) -> None:
        """Update the lost members of dirty groups from their pods.

        Args:
            evicted: The pods that Muster evicts.
        """
        now = self._core.clock()
        expired = [key for key, until in self._until.items() if until <= now]
        for key in dict.fromkeys((*self._core.registry.dirty_groups, *expired)):
            self._until.pop(key, None)
            group = self._core.registry.groups.get(key)
            has_left = group is not None and group.departed_pods and not _has_later_pods(group)
            if group is not None and (group.reserved_until or has_left):
                self._sync_group(group, evicted)
                if group.reserved_until:
                    self._until[key] = min(group.reserved_until.values())

    def _sync_group(self, group: Group, evicted: Container[Uid]) -> None:
        """Reserve the places of lost members that the gang needs, and give up other reserved places."""
        now = self._core.clock()
        existing = (pod for pod in group.pods.values() if not pod.is_expected)
        pods = [pod for pod in existing if pod.is_placed or pod.is_waiting]
        vacated: list[PodRecord] = []
        if not _has_later_pods(group):  # for a job with later pods, LaterPods reserves the places
            vacated, group.departed_pods = group.departed_pods, []
        candidates = [group.pods[uid] for uid, until in group.reserved_until.items() if until > now]
        candidates += [pod for pod in vacated if pod.uid not in evicted and not _succeeded(group, pod)]
        needed = set(self._needed(group, pods, candidates))
        newcomers = [pod for pod in pods if pod.is_waiting and self._core.claims.get(pod.uid) is None]
        for uid in [uid for uid in group.reserved_until if uid not in needed]:
            self._remove_expected(group, group.pods[uid], newcomers)
        failures = sum(1 for pod in group.pods.values() if pod.phase == "Failed")
        doubled = min(max(failures - 1, 0), 10)
        until = now + min(_FIRST_RESERVATION * 2**doubled, _LONGEST_RESERVATION)
        for pod in vacated:
            if pod.uid in needed:
                self._expect(group, pod, until)

    def _needed(
        self, group: Group, existing: Iterable[PodRecord], candidates: Iterable[PodRecord]
    ) -> Iterable[Uid]:
        """Yield the lost members that the gang needs to be whole; none if lost members are not replaced."""
        if not self._replaces_lost(group):
            return
        least, by_role = group.needs.min_member, kept_roles(group.needs)
        roles = Counter(pod.role for pod in existing)
        for pod in candidates:
            if roles.total() < least or roles[pod.role] < by_role.get(pod.role, 0):
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
            and not registry.lost_its_queue(group)
        )

    def _expect(self, group: Group, pod: PodRecord, until: float) -> None:
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
        self._core.claims.capacity.watch_terms(member)
        if self._core.claims.fits(member, pod.node):
            self._core.transitions.put(member, ClaimEvent.PLAN, pod.node)
        self._core.registry.mark_dirty(group.key)
        self._core.changes.notify()

    def _remove_expected(self, group: Group, member: PodRecord, newcomers: list[PodRecord]) -> None:
        """Replace an expected member by a new pod, preferably with the same role and index."""
        index = index_of(member.name, member.labels)
        newcomers.sort(
            key=lambda pod: (pod.role == member.role, index_of(pod.name, pod.labels) == index is not None)
        )
        hand_over(self._core, group, member, newcomers)
        self._core.registry.mark_dirty(group.key)


def _has_later_pods(group: Group) -> bool:
    return group.job is not None and has_later_pods(group, group.job)


def _succeeded(group: Group, pod: PodRecord) -> bool:
    """Return whether a pod has succeeded, by its current record."""
    current_record = group.pods.get(pod.uid)
    return current_record is not None and current_record.phase == "Succeeded"
