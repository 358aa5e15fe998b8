"""The units taken so far for a gang: what they free, and what they have used up of queues and budgets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import requests_of
from extender.domain.placement.planner import Planner
from extender.domain.reclaim.disruptions import Disruptions
from extender.domain.reclaim.giver import Giver
from extender.domain.reclaim.units import Unit


class Taking(NamedTuple):
    """A unit that gives its room."""

    unit: Unit
    pods: tuple[PodRecord, ...]  # those of it that no other taking has

    @property
    def requests(self) -> Resources:
        """What these ask for together."""
        is_all = len(self.pods) == len(self.unit.pods)
        return self.unit.requests if is_all else requests_together(self.pods)


class Takings:
    """In the order in which they were taken. `planner`, `giver` and `disruptions` follow them."""

    def __init__(self, planner: Planner, giver: Giver, disruptions: Disruptions) -> None:
        self._planner = planner
        self._giver = giver
        self._disruptions = disruptions
        self._pods: set[Uid] = set()
        self.all: list[Taking] = []

    def left_of(self, unit: Unit, also: Sequence[Taking] = ()) -> tuple[PodRecord, ...]:
        """The pods of a unit that are in no taking, `also` included."""
        if len(unit.pods) == 1:
            return () if unit.pods[0].uid in self._pods else unit.pods
        now = {pod.uid for taking in also if taking.unit.group == unit.group for pod in taking.pods}
        return tuple(pod for pod in unit.pods if pod.uid not in self._pods and pod.uid not in now)

    def may_give(self, taking: Taking) -> bool:
        queue = taking.unit.queue
        if queue and not self._giver.may_give(queue, taking.requests):
            return False
        return self._disruptions.allow(taking.pods)

    def give(self, taking: Taking, times: int = 1) -> None:
        """Count it as given, without what it frees; `times` -1: as not given."""
        self._giver.give(taking.unit.queue, taking.requests, times)
        self._disruptions.take(taking.pods, times)

    def take(self, takings: Iterable[Taking]) -> set[int]:
        """Take units; returns the rows on which that makes room."""
        rows: set[int] = set()
        for taking in takings:
            pods = taking.pods
            self.give(taking)
            self._pods.update(pod.uid for pod in pods)
            self.all.append(taking)
            self._planner.free(pods)
            rows.update(row for pod in pods if (row := self._planner.nodes.row.get(pod.node)) is not None)
        return rows

    def give_back(self, taking: Taking) -> None:
        """Its pods stay."""
        self.all.remove(taking)
        self._pods.difference_update(pod.uid for pod in taking.pods)
        self.give(taking, -1)
        self._planner.hold((pod, pod.node) for pod in taking.pods)

    def is_needed_whole(self, taking: Taking) -> bool:
        """Whether its group goes as a whole, of which it is a part."""
        key = taking.unit.group
        return bool(key) and any(
            other.unit.group == key and other.unit.tier > taking.unit.tier for other in self.all
        )


def requests_together(pods: Iterable[PodRecord]) -> dict[str, int]:
    return requests_of(Counter(pod.shape for pod in pods))
