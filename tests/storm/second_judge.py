"""The second judge: it checks a run by the watches of pods, nodes, PodGroups and Queues alone.

It shares no code with the first judge, and does not know how Muster decides. Facts are ordered by their
versions; seconds are undisturbed ones, which do not pass during outages. A scheduler is not accused of
violations that follow from changes of the last `sight` seconds, which it may not have seen yet.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from tests.storm.facts import BILLION, Fact, GroupFact, Load, NodeFact, PodFact, QueueFact, sum_of
from tests.storm.second_judge_state import (
    Accusation,
    AccusationCode,
    Gang,
    Limit,
    NodeLabels,
    Purpose,
    UnsettledEviction,
)

LONG_RUN = 8.0  # seconds for which a gang runs fully before an eviction needs a reason
REUSE_SECONDS = 60.0  # seconds in which another group has to take the capacity of evicted pods


class SecondJudge:
    """Judge of one run: call `review` with all facts, then read `accusations` and `evictions`."""

    def __init__(self, deadline: float, sight: float, clock: Callable[[float], float]) -> None:
        self.accusations: list[Accusation] = []
        self.evictions: Counter[Purpose] = Counter()  # evicted pods
        self._deadline, self._sight, self._clock = deadline, sight, clock
        self._pods: dict[str, PodFact] = {}
        self._arrived_at: dict[str, float] = {}  # when each pod came to its node
        self._pods_on: dict[str, set[str]] = defaultdict(set)
        self._nodes: dict[str, Limit] = {}
        self._labels: dict[str, NodeLabels] = {}
        self._queues: dict[str, QueueFact] = {}
        self._ceilings: dict[str, Limit] = {}
        self._gangs: dict[str, Gang] = defaultdict(Gang)
        self._queue_of: dict[str, str] = {}  # by group; entries stay when the PodGroup is deleted
        self._unsettled: list[UnsettledEviction] = []

    def review(self, facts: Iterable[Fact], until: float) -> None:
        for fact in sorted(facts, key=attrgetter("version", "at")):
            match fact:
                case PodFact():
                    self._record_pod(fact)
                case NodeFact():
                    self._set_limit(self._nodes, fact, {} if fact.gone else fact.allocatable)
                    self._labels.setdefault(fact.name, NodeLabels(fact.labels))
                    if not fact.gone:
                        self._labels[fact.name].change(fact.labels, self._clock(fact.at))
                case QueueFact():
                    self._queues[fact.name] = fact
                    self._set_limit(self._ceilings, fact, None if fact.gone else fact.capability)
                case GroupFact():
                    self._record_group(fact)
        for name, gang in list(self._gangs.items()):
            self._check_gang(name, gang, until)
        self._settle_evictions(float("inf"))

    def _set_limit(self, limits: dict[str, Limit], fact: Fact, amount: Load | None) -> None:
        if fact.name in limits:
            limits[fact.name].change(amount, self._clock(fact.at))
        else:
            limits[fact.name] = Limit(amount, of_node=isinstance(fact, NodeFact))

    def _record_group(self, fact: GroupFact) -> None:
        gang = self._gangs[fact.name]
        gang.record = None if fact.gone else fact
        self._queue_of[fact.name] = fact.queue
        self._check_gang(fact.name, gang, fact.at)
        self._forget(fact.name)

    def _record_pod(self, fact: PodFact) -> None:
        before = self._pods.get(fact.uid)
        if before and before.node and fact.node != before.node:
            facts = f"{fact.name} on {before.node}, {fact.node}"
            self._accuse(fact.at, fact.name, AccusationCode.BOUND_TWICE, facts)
        is_newly_bound = bool(fact.node) and not (before and before.node)
        if fact.gone and fact.evicted and fact.node and fact.is_ours:
            self._judge_eviction(fact)
        self._pods[fact.uid] = fact
        if fact.holds_capacity:
            self._pods_on[fact.node].add(fact.uid)
        else:
            self._pods_on[fact.node].discard(fact.uid)
        if is_newly_bound:
            self._arrived_at[fact.uid] = self._clock(fact.at)
            if fact.holds_capacity and fact.is_ours:
                self._check_newcomer(fact)
        self._update_member(fact)
        if fact.gone:
            del self._pods[fact.uid]
            self._arrived_at.pop(fact.uid, None)

    def _update_member(self, fact: PodFact) -> None:
        if not (fact.group and fact.is_ours):
            return
        gang = self._gangs[fact.group]
        gang.pods[fact.uid] = fact
        self._check_gang(fact.group, gang, fact.at)
        if fact.gone:
            del gang.pods[fact.uid]
            self._forget(fact.group)

    # ---- newly bound pods

    def _check_newcomer(self, fact: PodFact) -> None:
        now = self._clock(fact.at)
        self._settle_evictions(now, fact)
        pods_on_node = [self._pods[uid] for uid in self._pods_on[fact.node]]
        node = self._nodes.get(fact.node, Limit({}, of_node=True))
        self._compare(fact, now, fact.node, pods_on_node, node)
        for queue in self._queue_path(self._queue(fact)):
            if (ceiling := self._ceilings.get(queue)) is not None:
                pods_in_queue = [pod for pod in self._pods.values() if self._belongs_to(pod, queue)]
                self._compare(fact, now, queue, pods_in_queue, ceiling)
        gang = self._gangs.get(fact.group)
        if gang is not None and gang.attempt is not None and now - gang.attempt > self._deadline:
            facts = f"{fact.name} after {now - gang.attempt:.0f} s"
            self._accuse(fact.at, fact.name, AccusationCode.LATE_BINDING, facts)
        if gang is not None and fact.level:
            self._compare_domains(fact, now, gang)

    def _compare_domains(self, fact: PodFact, now: float, gang: Gang) -> None:
        """Compare the domain of a newly bound pod with those of the other members of its task."""
        other_domains = set[str]()
        for pod in gang.pods.values():
            if (
                pod.holds_capacity
                and not pod.is_terminating
                and (pod.task, pod.level) == (fact.task, fact.level)
            ):
                other_domains |= self._domains(pod, now)
        own_domains = self._domains(fact, now)
        if other_domains and own_domains.isdisjoint(other_domains):
            own_names = ", ".join(sorted(own_domains)) or "none"
            facts = f"{fact.name} in {own_names}, others in {', '.join(sorted(other_domains))}"
            self._accuse(fact.at, fact.group, AccusationCode.TWO_DOMAINS, facts)

    def _domains(self, pod: PodFact, now: float) -> set[str]:
        """Return the domains of the pod's node in the last `sight` seconds."""
        labels = self._labels.get(pod.node)
        return labels.values(pod.level, now - self._sight) if labels is not None else set()

    def _compare(self, fact: PodFact, now: float, about: str, pods: Iterable[PodFact], limit: Limit) -> None:
        """Compare usage with a limit, in the resources of a newly bound pod.

        Foreign pods of the last `sight` seconds are not counted.
        """
        since = now - self._sight
        held: Load = {}
        for pod in pods:
            if pod.holds_capacity and (pod.is_ours or self._arrived_at[pod.uid] < since):
                held = sum_of(held, pod.requests)
        for name, requested in fact.requests.items():
            maximum = limit.largest(name, since)
            if requested and maximum is not None and held[name] > maximum:
                code = AccusationCode.NODE_OVER if limit.of_node else AccusationCode.QUEUE_OVER
                facts = f"{about} with {fact.name}: {name} {held[name] / BILLION:g} of {maximum / BILLION:g}"
                self._accuse(fact.at, about, code, facts)

    def _queue(self, pod: PodFact) -> str:
        return self._queue_of.get(pod.group) or pod.queue or "default"

    def _queue_path(self, queue: str) -> Iterator[str]:
        """Yield a queue and those above it."""
        seen = set[str]()
        while queue and queue not in seen:
            seen.add(queue)
            yield queue
            queue = self._queues[queue].parent if queue in self._queues else ""

    def _belongs_to(self, pod: PodFact, queue: str) -> bool:
        return pod.is_ours and queue in self._queue_path(self._queue(pod))

    # ---- gangs

    def _check_gang(self, name: str, gang: Gang, at: float) -> None:
        """Check a gang: after each of its changes, and at the end."""
        now = self._clock(at)
        runs = gang.is_whole(pod for pod in gang.pods.values() if pod.has_run)
        gang.ran |= runs
        gang.ran_long |= gang.runs_since is not None and now - gang.runs_since > LONG_RUN
        if not runs:
            gang.runs_since = None
        elif gang.runs_since is None:
            gang.runs_since = now
        attempt_since, gang.attempt = gang.attempt, None
        if gang.record is None or gang.was_whole:
            return
        if attempt_since is not None and now - attempt_since > self._deadline and not gang.accused:
            gang.accused = True
            self._accuse(at, name, AccusationCode.PARTIAL_GANG, f"{name} for {now - attempt_since:.0f} s")
        gang.was_whole = gang.is_whole(pod for pod in gang.pods.values() if pod.counts_as_member)
        if not gang.was_whole and any(pod.holds_capacity for pod in gang.pods.values()):
            gang.attempt = now if attempt_since is None else attempt_since

    def _forget(self, name: str) -> None:
        if name in self._gangs and self._gangs[name].record is None and not self._gangs[name].pods:
            del self._gangs[name]

    # ---- evicted pods

    def _judge_eviction(self, fact: PodFact) -> None:
        gang = self._gangs[fact.group] if fact.group else Gang(ran=True, ran_long=True)
        if not gang.ran:
            self.evictions[Purpose.UNDONE_START] += 1
            return
        now = self._clock(fact.at)
        queue = self._queues.get(self._queue(fact))
        others_wait = any(
            pod.is_pending and pod.is_ours and pod.group != fact.group for pod in self._pods.values()
        )
        if queue is not None and queue.is_reclaimable and others_wait:
            self._unsettled.append(UnsettledEviction(fact, now))
        elif not (gang.ran_long or (gang.runs_since is not None and now - gang.runs_since > LONG_RUN)):
            self.evictions[Purpose.SHORT_LIVED] += 1
        else:
            self.evictions[Purpose.NONE] += 1
            self._accuse(fact.at, fact.group or fact.name, AccusationCode.NEEDLESS_EVICTION, fact.name)

    def _settle_evictions(self, now: float, newcomer: PodFact | None = None) -> None:
        """Settle evictions whose capacity a pod of another group takes, or none in time."""
        for eviction in list(self._unsettled):
            is_late = now - eviction.at > REUSE_SECONDS
            is_taken = (
                newcomer is not None
                and newcomer.node == eviction.pod.node
                and newcomer.group != eviction.pod.group
            )
            if is_taken or is_late:
                self._unsettled.remove(eviction)
                self.evictions[Purpose.UNTAKEN if is_late else Purpose.TAKEN] += 1

    def _accuse(self, at: float, about: str, code: AccusationCode, facts: str) -> None:
        self.accusations.append(Accusation(at, about, code, facts))
