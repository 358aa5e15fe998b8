"""The second judge: it knows only the watches of pods, nodes, PodGroups and Queues.

It shares no line with the first ones and knows nothing of how Muster decides. Versions order what it hears;
seconds are those of a clock that stands still during outages. Facts that a scheduler cannot have seen or
undone within `sight` seconds are no fault. That holds for the labels of nodes, too: Muster reads them right
before it sends a binding, which a wire may hold up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from tests.storm.notes import Accusation, Gang, Leave, Limit, NodeLabels, Purpose, Wrong
from tests.storm.testimony import ONE, Fact, GroupFact, Load, NodeFact, PodFact, QueueFact, more

GOOD_WHILE = 8.0  # seconds after which a gang has run fully, and loses no member without a reason
PAID_WITHIN = 60.0  # seconds in which another group takes the capacity of evicted pods


class SecondJudge:
    """`hear` everything, then read `accusations` and `leaves`."""

    def __init__(self, deadline: float, sight: float, clock: Callable[[float], float]) -> None:
        self.accusations: list[Accusation] = []
        self.leaves: Counter[Purpose] = Counter()  # pods that were evicted
        self._deadline, self._sight, self._clock = deadline, sight, clock
        self._pods: dict[str, PodFact] = {}
        self._came: dict[str, float] = {}  # when each pod came to its node
        self._on: dict[str, set[str]] = defaultdict(set)
        self._nodes: dict[str, Limit] = {}
        self._labels: dict[str, NodeLabels] = {}
        self._queues: dict[str, QueueFact] = {}
        self._ceilings: dict[str, Limit] = {}
        self._gangs: dict[str, Gang] = defaultdict(Gang)
        self._queue_of: dict[str, str] = {}  # of each group, also when its record is gone
        self._unpaid: list[Leave] = []

    def hear(self, facts: Iterable[Fact], until: float) -> None:
        for fact in sorted(facts, key=lambda each: (each.version, each.at)):
            match fact:
                case PodFact():
                    self._pod(fact)
                case NodeFact():
                    self._limit(self._nodes, fact, {} if fact.gone else fact.has)
                    self._labels.setdefault(fact.name, NodeLabels(fact.labels))
                    if not fact.gone:
                        self._labels[fact.name].becomes(fact.labels, self._clock(fact.at))
                case QueueFact():
                    self._queues[fact.name] = fact
                    self._limit(self._ceilings, fact, None if fact.gone else fact.most)
                case GroupFact():
                    self._group(fact)
        for name, gang in list(self._gangs.items()):
            self._weigh(name, gang, until)
        self._pay(float("inf"))

    def _limit(self, limits: dict[str, Limit], fact: Fact, amount: Load | None) -> None:
        if fact.name in limits:
            limits[fact.name].becomes(amount, self._clock(fact.at))
        else:
            limits[fact.name] = Limit(amount, of_node=isinstance(fact, NodeFact))

    def _group(self, fact: GroupFact) -> None:
        gang = self._gangs[fact.name]
        gang.record = None if fact.gone else fact
        self._queue_of[fact.name] = fact.queue
        self._weigh(fact.name, gang, fact.at)
        self._forget(fact.name)

    def _pod(self, fact: PodFact) -> None:
        before = self._pods.get(fact.uid)
        if before and before.node and fact.node != before.node:
            facts = f"{fact.name} on {before.node}, {fact.node}"
            self._accuse(fact.at, fact.name, Wrong.BOUND_TWICE, facts)
        comes = bool(fact.node) and not (before and before.node)
        if fact.gone and fact.evicted and fact.node and fact.ours:
            self._leave(fact)
        self._pods[fact.uid] = fact
        (self._on[fact.node].add if fact.holds else self._on[fact.node].discard)(fact.uid)
        if comes:
            self._came[fact.uid] = self._clock(fact.at)
            if fact.holds and fact.ours:
                self._arrival(fact)
        self._member(fact)
        if fact.gone:
            del self._pods[fact.uid]
            self._came.pop(fact.uid, None)

    def _member(self, fact: PodFact) -> None:
        if not (fact.group and fact.ours):
            return
        gang = self._gangs[fact.group]
        gang.pods[fact.uid] = fact
        self._weigh(fact.group, gang, fact.at)
        if fact.gone:
            del gang.pods[fact.uid]
            self._forget(fact.group)

    # ---- who comes

    def _arrival(self, fact: PodFact) -> None:
        now = self._clock(fact.at)
        self._pay(now, fact)
        there = [self._pods[uid] for uid in self._on[fact.node]]
        node = self._nodes.get(fact.node, Limit({}, of_node=True))
        self._compare(fact, now, fact.node, there, node)
        for queue in self._line(self._queue(fact)):
            if (ceiling := self._ceilings.get(queue)) is not None:
                within = [pod for pod in self._pods.values() if self._is_of(pod, queue)]
                self._compare(fact, now, queue, within, ceiling)
        gang = self._gangs.get(fact.group)
        if gang is not None and gang.attempt is not None and now - gang.attempt > self._deadline:
            facts = f"{fact.name} after {now - gang.attempt:.0f} s"
            self._accuse(fact.at, fact.name, Wrong.LATE_BINDING, facts)
        if gang is not None and fact.level:
            self._compare_domains(fact, now, gang)

    def _compare_domains(self, fact: PodFact, now: float, gang: Gang) -> None:
        """Compare the newcomer's domain with those of the members of its task that stay."""
        there = set[str]()
        for pod in gang.pods.values():
            if pod.holds and not pod.leaves and (pod.task, pod.level) == (fact.task, fact.level):
                there |= self._domains(pod, now)
        own = self._domains(fact, now)
        if there and own.isdisjoint(there):
            facts = f"{fact.name} in {', '.join(sorted(own)) or 'none'}, others in {', '.join(sorted(there))}"
            self._accuse(fact.at, fact.group, Wrong.TWO_DOMAINS, facts)

    def _domains(self, pod: PodFact, now: float) -> set[str]:
        """Return the domains in which the pod's node was within sight."""
        labels = self._labels.get(pod.node)
        return labels.values(pod.level, now - self._sight) if labels is not None else set()

    def _compare(self, fact: PodFact, now: float, about: str, pods: Iterable[PodFact], limit: Limit) -> None:
        """Compare the newcomer's resources with the limit, without foreign pods that came within sight."""
        since = now - self._sight
        held: Load = {}
        for pod in pods:
            if pod.holds and (pod.ours or self._came[pod.uid] < since):
                held = more(held, pod.asks)
        for name, asked in fact.asks.items():
            maximum = limit.most(name, since)
            if asked and maximum is not None and held[name] > maximum:
                wrong = Wrong.NODE_OVER if limit.of_node else Wrong.QUEUE_OVER
                facts = f"{about} with {fact.name}: {name} {held[name] / ONE:g} of {maximum / ONE:g}"
                self._accuse(fact.at, about, wrong, facts)

    def _queue(self, pod: PodFact) -> str:
        return self._queue_of.get(pod.group) or pod.queue or "default"

    def _line(self, queue: str) -> Iterator[str]:
        """Yield a queue and those above it."""
        seen = set[str]()
        while queue and queue not in seen:
            seen.add(queue)
            yield queue
            queue = self._queues[queue].parent if queue in self._queues else ""

    def _is_of(self, pod: PodFact, queue: str) -> bool:
        return pod.ours and queue in self._line(self._queue(pod))

    # ---- how a gang stands

    def _weigh(self, name: str, gang: Gang, at: float) -> None:
        """Check the gang, after each change of it and at the end."""
        now = self._clock(at)
        runs = gang.is_whole(pod for pod in gang.pods.values() if pod.runs)
        gang.ran |= runs
        gang.stood |= gang.runs_since is not None and now - gang.runs_since > GOOD_WHILE
        gang.runs_since = (now if gang.runs_since is None else gang.runs_since) if runs else None
        began, gang.attempt = gang.attempt, None
        if gang.record is None or gang.was_whole:
            return
        if began is not None and now - began > self._deadline and not gang.accused:
            gang.accused = True
            self._accuse(at, name, Wrong.PARTIAL_GANG, f"{name} for {now - began:.0f} s")
        gang.was_whole = gang.is_whole(pod for pod in gang.pods.values() if pod.stands)
        if not gang.was_whole and any(pod.holds for pod in gang.pods.values()):
            gang.attempt = now if began is None else began

    def _forget(self, name: str) -> None:
        if name in self._gangs and self._gangs[name].record is None and not self._gangs[name].pods:
            del self._gangs[name]

    # ---- who leaves

    def _leave(self, fact: PodFact) -> None:
        gang = self._gangs[fact.group] if fact.group else Gang(ran=True, stood=True)
        if not gang.ran:
            self.leaves[Purpose.UNDONE_START] += 1
            return
        now = self._clock(fact.at)
        queue = self._queues.get(self._queue(fact))
        wants = any(pod.waits and pod.ours and pod.group != fact.group for pod in self._pods.values())
        if queue is not None and queue.gives and wants:
            self._unpaid.append(Leave(fact, now))
        elif not (gang.stood or (gang.runs_since is not None and now - gang.runs_since > GOOD_WHILE)):
            self.leaves[Purpose.SHORT_LIVED] += 1
        else:
            self.leaves[Purpose.NONE] += 1
            self._accuse(fact.at, fact.group or fact.name, Wrong.UNASKED_EVICTION, fact.name)

    def _pay(self, now: float, comes: PodFact | None = None) -> None:
        """Settle evictions whose capacity a pod of another group takes, or none in time."""
        for leave in list(self._unpaid):
            late = now - leave.when > PAID_WITHIN
            taken = comes is not None and comes.node == leave.pod.node and comes.group != leave.pod.group
            if taken or late:
                self._unpaid.remove(leave)
                self.leaves[Purpose.UNTAKEN if late else Purpose.TAKEN] += 1

    def _accuse(self, at: float, about: str, wrong: Wrong, facts: str) -> None:
        self.accusations.append(Accusation(at, about, wrong, facts))
