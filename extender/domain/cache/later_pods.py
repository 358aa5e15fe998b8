"""Later pods of a job that runs: until as many have succeeded as it asks for, the room of one that ends stays
the job's own, for the next one.

    runs ──ends──► expected, on its node ──the next pod comes──► runs

Otherwise a job of many completions would queue anew for each of them, behind all others. How long its
controller may take is bounded, since nothing else would end such a claim.
"""

from collections.abc import Callable, Collection, Iterable
from math import inf

from extender.domain.cache.groups import Group
from extender.domain.jobs.job_record import JobRecord
from extender.domain.model.records import GroupKey, PodRecord

_LATE = -inf  # room is kept no more, until a pod comes


class LaterPods:
    """`patience`: the seconds for which room is kept while no pod comes. Callers hold the ledger's lock."""

    def __init__(self, clock: Callable[[], float], patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._since: dict[GroupKey, float] = {}  # when a job that has pods to come was last given one

    def to_come(self, job: JobRecord, there: Collection[PodRecord], has_newcomers: bool) -> int:
        """How many pods its controller will make now, besides those that are `there`."""
        missing = _missing(job, there)
        if not missing or has_newcomers:
            self._since.pop(job.group, None)
        if not missing:
            return 0
        since = self._since.setdefault(job.group, self._clock())
        if self._clock() < since + self._patience:
            return missing
        self._since[job.group] = _LATE
        return 0

    def forget(self, key: GroupKey) -> None:
        self._since.pop(key, None)

    def late(self) -> list[GroupKey]:
        """The groups whose next pods have not come in time by now."""
        oldest = self._clock() - self._patience
        return [key for key, since in self._since.items() if _LATE < since <= oldest]

    def expiries(self) -> Iterable[float]:
        """When time alone gives room back."""
        moments = (since + self._patience for since in self._since.values())
        return [moment for moment in moments if moment > _LATE]


def has_later_pods(group: Group, job: JobRecord) -> bool:
    return job.is_let_go and group.stood_whole and job.completions is not None


def _missing(job: JobRecord, there: Collection[PodRecord]) -> int:
    """The status of a job is behind that of its pods, and pods may be deleted: the fewer of both count."""
    succeeded = sum(1 for pod in there if pod.phase == "Succeeded")
    active = sum(1 for pod in there if pod.waiting or (pod.holds_room and not pod.deleting))
    left = max((job.completions or 0) - succeeded, 0)
    return max(min(job.needed, left) - active, 0)
