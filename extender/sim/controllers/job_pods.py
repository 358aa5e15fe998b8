"""Which pods a Job lacks and which are too many: the rules of the job controller of kube-controller-manager.

A suspended Job has no active pods. One with completions goes on until so many have succeeded, one without
makes no more once one has. What failed is made again, up to backoffLimit, and at once, where a real one waits
longer each time.
"""

from collections.abc import Iterator
from itertools import count, islice

from extender.sim.apiserver.kinds import Json
from extender.sim.controllers.job_endings import Ending, index_of
from extender.sim.controllers.offspring import ComparedOffspring, has_ended, keeping, pods_at

_MOST_FAILED = 6  # unless the Job says otherwise


class JobPods:
    """A Job, its pods that are there and how others of its pods ended."""

    def __init__(self, job: Json, owned: list[Json], endings: list[Ending]) -> None:
        self._job = job
        self._spec = job["spec"]
        self.endings = endings
        self.active = sorted((pod for pod in owned if not has_ended(pod)), key=keeping)

    @property
    def indexed(self) -> bool:
        return bool(self._spec.get("completionMode") == "Indexed")

    @property
    def suspended(self) -> bool:
        return bool(self._spec.get("suspend"))

    @property
    def succeeded_indexes(self) -> set[int]:
        succeeded = {each.completion_index for each in self.endings if each.succeeded}
        return {index for index in succeeded if index < self._most}

    @property
    def succeeded(self) -> int:
        """An index counts once."""
        return len(self.succeeded_indexes) if self.indexed else sum(each.succeeded for each in self.endings)

    @property
    def failed(self) -> int:
        return sum(not each.succeeded for each in self.endings)

    @property
    def is_complete(self) -> bool:
        wanted = self._spec.get("completions")
        enough = self.succeeded > 0 if wanted is None else self.succeeded >= int(wanted)
        return enough and not self.active

    @property
    def has_failed(self) -> bool:
        return self.failed > int(self._spec.get("backoffLimit", _MOST_FAILED))

    def compared(self) -> ComparedOffspring:
        """What is to be made and to be deleted. Raises MALFORMED."""
        wanted = self._wanted()
        kept, surplus = self._kept_and_surplus()
        surplus += kept[wanted:]
        if surplus:  # a pod goes before another one comes in its place
            return ComparedOffspring([], surplus, [])
        missing = islice(self._free_indexes(), max(wanted - len(kept), 0))
        return ComparedOffspring(list(pods_at(self._job, missing)), [], [])

    def _wanted(self) -> int:
        """How many are to be active."""
        parallel: int = self._spec.get("parallelism", 1)
        if self.suspended or self.has_failed:
            return 0
        if (completions := self._spec.get("completions")) is None:
            return len(self.active) if self.succeeded else parallel
        return min(max(int(completions) - self.succeeded, 0), parallel)

    def _kept_and_surplus(self) -> tuple[list[Json], list[Json]]:
        """Pods to keep, and those whose index another one has, or nobody asks for any more."""
        if not self.indexed:
            return self.active, []
        kept: list[Json] = []
        surplus: list[Json] = []
        taken = self.succeeded_indexes
        for pod in self.active:
            index = index_of(pod)
            (surplus if index in taken or index >= self._most else kept).append(pod)
            taken.add(index)
        return kept, surplus

    def _free_indexes(self) -> Iterator[int]:
        if not self.indexed:
            return count()
        taken = self.succeeded_indexes | {index_of(pod) for pod in self.active}
        return (index for index in range(self._most) if index not in taken)

    @property
    def _most(self) -> int:
        return int(self._spec.get("completions") or 0)
