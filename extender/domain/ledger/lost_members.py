"""The room of members that a gang lost after it fully ran: kept until its controller makes others.

    runs ──fails, or is deleted──► lost, expected on its node ──the next pod comes──► runs

A controller makes the next pod at once, or after a back-off that doubles with each failure (the Job
controller: 10 s to 10 minutes). Room is kept for three times as long, and 15 minutes at most. It is a claim
like others, and counts for the queue. Members that Muster itself evicts are not lost, nor are those that a
gang can spare.

Callers hold the ledger's lock."""

from collections import Counter
from collections.abc import Container, Iterable

from msgspec.structs import replace

from extender.domain.ledger.claims import ClaimEvent
from extender.domain.ledger.expected_members import has_later_pods, pass_on
from extender.domain.ledger.groups import Group
from extender.domain.ledger.state import Parts
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.wholeness import binding_roles

_FIRST, _MOST = 30.0, 900.0  # seconds


class LostMembers:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._until: dict[GroupKey, float] = {}  # by group with lost members: when the first room goes back

    def expiries(self) -> Iterable[float]:
        """Return when time alone gives room back."""
        return self._until.values()

    def settle(self, evicted: Container[Uid]) -> None:
        """Bring what is kept for touched groups in line with their pods. `evicted`: by Muster."""
        now = self._parts.clock()
        late = [key for key, until in self._until.items() if until <= now]
        for key in dict.fromkeys((*self._parts.registry.touched, *late)):
            self._until.pop(key, None)
            group = self._parts.registry.groups.get(key)
            if group is not None and (group.lost or (group.vacated and not _has_later_pods(group))):
                self._settle(group, evicted)
                if group.lost:
                    self._until[key] = min(group.lost.values())

    def _settle(self, group: Group, evicted: Container[Uid]) -> None:
        now = self._parts.clock()
        there = [pod for pod in group.pods.values() if not pod.to_be and (pod.placed or pod.waiting)]
        vacated: list[PodRecord] = []
        if not _has_later_pods(group):  # else its job keeps their places
            vacated, group.vacated = group.vacated, []
        candidates = [group.pods[uid] for uid, until in group.lost.items() if until > now]
        candidates += [pod for pod in vacated if pod.uid not in evicted and not _succeeded(group, pod)]
        kept = set(self._needed(group, there, candidates))
        newcomers = [pod for pod in there if pod.waiting and self._parts.claims.get(pod.uid) is None]
        for uid in [uid for uid in group.lost if uid not in kept]:
            self._dismiss(group, group.pods[uid], newcomers)
        failures = sum(1 for pod in group.pods.values() if pod.phase == "Failed")
        until = now + min(_FIRST * 2 ** min(max(failures - 1, 0), 10), _MOST)
        for pod in vacated:
            if pod.uid in kept:
                self._expect(group, pod, until)

    def _needed(
        self, group: Group, there: Iterable[PodRecord], candidates: Iterable[PodRecord]
    ) -> Iterable[Uid]:
        """Yield those of which others have to come so that the gang is whole again; none where none come."""
        if not self._makes_others(group):
            return
        least, by_role = group.needs.min_member, binding_roles(*group.needs)
        roles = Counter(pod.role for pod in there)
        for pod in candidates:
            if roles.total() < least or roles[pod.role] < by_role.get(pod.role, 0):
                roles[pod.role] += 1
                yield pod.uid

    def _makes_others(self, group: Group) -> bool:
        """Return whether a gang runs that stood whole, and nobody has ended, suspended or held it."""
        registry, job = self._parts.registry, self._parts.registry.jobs.get(group.key)
        return (
            group.stood_whole
            and not _has_later_pods(group)
            and group.exists
            and not group.needs_no_barrier
            and any(pod.placed and pod.phase != "Succeeded" for pod in group.pods.values())
            and not (group.record is not None and group.record.held)
            and not (job is not None and (job.suspended or job.outcome is not None))
            and not registry.is_suspended(group)
            and not registry.lost_its_queue(group)
        )

    def _expect(self, group: Group, pod: PodRecord, until: float) -> None:
        member = replace(
            pod,
            uid=Uid(f"{pod.uid}/lost"),
            node="",
            phase="Pending",
            to_be=True,
            kept_for=pod.uid,
            deleting=False,
            gone_by="",
            started=False,
            running_since="",
            nominated="",
        )
        group.pods[member.uid], group.lost[member.uid] = member, until
        self._parts.claims.capacity.watch_terms(member)
        if self._parts.claims.fits(member, pod.node):
            self._parts.moves.put(member, ClaimEvent.PLAN, pod.node)
        self._parts.registry.touch(group.key)
        self._parts.changes.mark()

    def _dismiss(self, group: Group, member: PodRecord, newcomers: list[PodRecord]) -> None:
        newcomers.sort(key=lambda pod: pod.role == member.role)
        pass_on(self._parts, group, member, newcomers)
        self._parts.registry.touch(group.key)


def _has_later_pods(group: Group) -> bool:
    return group.job is not None and has_later_pods(group, group.job)


def _succeeded(group: Group, pod: PodRecord) -> bool:
    now = group.pods.get(pod.uid)
    return now is not None and now.phase == "Succeeded"
