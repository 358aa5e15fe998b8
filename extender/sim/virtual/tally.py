"""What is measured while the simulation runs: each group's story, and what each queue held and deserved."""

from collections import Counter, defaultdict
from typing import NamedTuple

import msgspec

from extender.domain.decisions.decisions import Decisions, QueueDecision
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import offered, total
from extender.domain.model.shapes import Shape
from extender.sim.virtual.simulation import Observer
from extender.sim.virtual.workload import Workload


class Stint(NamedTuple):
    """Members of one shape that ran from one moment to another; `end` None: they still do."""

    start: float
    end: float | None
    shape: Shape


class Story(msgspec.Struct):
    """A group: `came` when the members that it needs were there, `started` when they ran, `over` when all of
    it had ended."""

    key: GroupKey
    needed: int
    queue: str = ""
    came: float | None = None
    started: float | None = None
    over: float | None = None
    present: int = 0
    stood: int = 0  # members that run or ran
    ended: int = 0
    stints: Counter[Stint] = msgspec.field(default_factory=Counter)

    @property
    def wait(self) -> float | None:
        return None if self.came is None or self.started is None else self.started - self.came


class Sums(msgspec.Struct):
    """What a queue held and deserved, by resource, times seconds."""

    allocated: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    deserved: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))

    def add(self, queue: QueueDecision, seconds: float) -> None:
        for name, amount in queue.allocated.items():
            self.allocated[name] += amount * seconds
        for name, due in queue.deserved.items():
            self.deserved[name] += due * seconds


class Tally(Observer):
    def __init__(self, workload: Workload) -> None:
        self.capacity = total(offered(node.status.allocatable) for node in workload.nodes)
        self.stories: dict[GroupKey, Story] = {}
        self.sums: defaultdict[str, Sums] = defaultdict(Sums)
        self.busy = 0.0  # seconds in which there was work
        self.first: float | None = None
        self.outsiders = 0
        self.decisions = Decisions()
        self._needed = {
            f"{group.metadata.namespace}/{group.metadata.name}": group.spec.min_member
            for _, group in workload.groups
        }
        self._since: dict[Uid, float] = {}
        self._nowhere: list[Story] = []  # whose queue is not known yet
        self._at_work = 0  # groups that are there and not over
        self._now = 0.0

    def came(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            self.outsiders += 1
            return
        self.pass_time(now)
        self.first = now if self.first is None else self.first
        story = self.stories.get(pod.group)
        if story is None:
            needed = max(self._needed.get(pod.group, 1), 1)
            story = self.stories[pod.group] = Story(pod.group, needed)
            self._nowhere.append(story)
        self._at_work += story.ended == story.present
        story.present, story.over = story.present + 1, None
        if story.came is None and story.present >= story.needed:
            story.came = now

    def bound(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            return
        story = self.stories[pod.group]
        self._since[pod.uid] = now
        story.stints[Stint(now, None, pod.shape)] += 1
        story.stood += 1
        if story.started is None and story.stood >= story.needed:
            story.started = now

    def ended(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            return
        self.pass_time(now)
        story, since = self.stories[pod.group], self._since.pop(pod.uid, None)
        if since is not None:
            story.stints[Stint(since, None, pod.shape)] -= 1
            story.stints[Stint(since, now, pod.shape)] += 1
        story.ended += 1
        if story.ended == story.present:
            story.over = now
            self._at_work -= 1

    def settled(self, decisions: Decisions, now: float) -> None:
        self.pass_time(now)
        self.decisions = decisions
        for story in self._nowhere:
            story.queue = decisions.groups[story.key].queue
        self._nowhere.clear()

    def pass_time(self, now: float) -> None:
        """What was settled last held until now."""
        seconds, self._now = now - self._now, now
        if self._at_work and seconds > 0:
            self.busy += seconds
            for name, queue in self.decisions.queues.items():
                self.sums[name].add(queue, seconds)
