"""Queues in a tree under any order of events, with reclaim.

`shared_world` has the invariants; numbers carried over between cycles equal those computed from scratch.
"""

from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from extender.domain.model.records import GroupKey, Uid
from extender.domain.snapshot.decisions import Decisions
from tests.domain.builders import foreign_pod, group, node, pod, preemption, queue
from tests.domain.decided_twice import DecidedTwice
from tests.domain.shared_world import SharedWorld
from tests.domain.world import LIMITS, gang, timestamp
from tests.property_examples import examples

NODES = ("n0", "n1", "n2")
TREE = {"p": "", "q": "", "pa": "p", "pb": "p", "qa": "q", "paa": "pa", "pab": "pa"}
QUEUES = tuple(TREE)
LEAVES = ("pb", "qa", "paa", "pab")
_MAX_TURNS = 40  # turns in which all begun work ends
_MOVES = preemption(consolidation=True)
_REST_SECONDS = 4000.0  # seconds: longer than reclaims are remembered


def amounts(*texts: str) -> st.SearchStrategy[dict[str, str] | None]:
    return st.sampled_from([None, None, None, *({"cpu": text} for text in texts)])


specs = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.integers(1, 3),
        "capability": amounts("2", "4", "7"),
        "guarantee": amounts("1"),
        "deserved": amounts("1", "4"),
        "borrowing_limit": amounts("1"),
        "lending_limit": amounts("1"),
        "strategy": st.sampled_from(["fifo", "traverse", "priority", "rotation"]),
        "priority": st.integers(0, 1),
        "reclaimable": st.sampled_from([True, True, True, False]),
    },
)
some_queue, some_node = st.sampled_from(QUEUES), st.sampled_from(NODES)
dice = st.integers(0, 99)


class Job(NamedTuple):
    queue: str
    members: int
    spare: int  # of these so many are not needed
    cpu: str  # of each
    priority: int


jobs = st.builds(
    Job,
    st.sampled_from(LEAVES),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from(["1", "1", "2", "3"]),
    st.sampled_from([0, 0, 5]),
)


class Sharing(DecidedTwice):
    world: SharedWorld

    @initialize(
        given=st.tuples(*[specs] * len(QUEUES)),
        cpus=st.tuples(*[st.sampled_from(["2", "4"])] * len(NODES)),
        first=st.lists(jobs, min_size=3, max_size=6),
        then=st.lists(jobs, min_size=1, max_size=3),
    )
    def begin(
        self, given: tuple[dict[str, Any], ...], cpus: tuple[str, ...], first: list[Job], then: list[Job]
    ) -> None:
        """Start the jobs of `first` that fit; then add more."""
        self.world = SharedWorld([node(name, cpu=cpu) for name, cpu in zip(NODES, cpus, strict=True)])
        self.world.add(queue("root"))
        self.parents, self.specs = dict(TREE), dict(zip(QUEUES, given, strict=True))
        self.count = 0
        self.old: Decisions | None = None
        for name in QUEUES:
            self.put(name)
        for job in first:
            self.gang_comes(job, runs=True)
        for job in then:
            self.gang_comes(job, runs=False)

    def put(self, name: str, **more: Any) -> None:
        spec = {"preemption": _MOVES, **self.specs[name], **more}
        self.world.add(queue(name, parent=self.parents[name], **spec))

    def settle(self) -> None:
        self.old = None
        self.world.settle()

    # ---- groups and their members

    @rule(job=jobs, runs=st.booleans())
    def gang_comes(self, job: Job, runs: bool) -> None:
        now, needed = timestamp(self.world.now + self.count), max(job.members - job.spare, 1)
        name, self.count = f"g{self.count}", self.count + 1
        more: dict[str, Any] = {"cpu": job.cpu, "priority": job.priority, "created": now, "owner": name}
        self.world.add(gang(name, job.members, needed, job.queue, **more))
        if runs:
            self.all_that_may_start_runs()

    @rule()
    def all_that_may_start_runs(self) -> None:
        self.settle()
        for key in self.world.decisions.groups:
            self.start(key)

    @rule(which=dice, runs=st.booleans())
    def one_group_starts(self, which: int, runs: bool) -> None:
        self.settle()
        planned = [key for key, each in self.world.decisions.groups.items() if each.plan]
        if planned:
            self.start(planned[which % len(planned)], runs)

    def start(self, key: GroupKey, runs: bool = True) -> None:
        """Start members by the scheduler as far as it may; their kubelets may start them."""
        world, name = self.world, key.partition("/")[2]
        members = {each.metadata.uid: each.metadata.name for each in world.pods.values()}
        for uid in filter(members.get, world.decisions.groups[key].plan):  # some only keep places
            nodes = world.ungate(members[uid]).answer(members[uid])
            if isinstance(nodes, list):
                world.hold(members[uid], nodes[0])
        bound = world.post(name)
        world.run(*(bound if runs else ()))

    @rule(which=dice, phase=st.sampled_from(["Succeeded", "Failed"]))
    def member_ends(self, which: int, phase: str) -> None:
        if there := self.on_nodes():
            self.world.finish(there[which % len(there)], phase=phase)

    @rule(which=dice, again=st.booleans())
    def member_is_lost(self, which: int, again: bool) -> None:
        if there := self.on_nodes():
            self.leave(there[which % len(there)], again)

    @rule(which=dice)
    def member_is_refused(self, which: int) -> None:
        waiting = [name for name, each in self.world.pods.items() if not each.spec.node_name]
        if waiting:
            self.world.refuse(waiting[which % len(waiting)])

    @rule(which=dice, ends=st.booleans())
    def group_ends_or_is_deleted(self, which: int, ends: bool) -> None:
        keys = sorted(self.world.ledger.snapshot().groups)
        if not keys:
            return
        key = keys[which % len(keys)]
        members = [member.name for member in self.world.ledger.groups.members(key)]
        if ends:
            self.world.finish(*(name for name in members if self.world.pods[name].spec.node_name))
        self.world.delete(*members).ledger.intake.drop_group(key)

    def on_nodes(self) -> list[str]:
        """Return the members that run."""
        there = (
            name for name, each in self.world.pods.items() if each.spec.node_name and name.startswith("g")
        )
        return [name for name in there if self.world.pods[name].status.phase in ("Pending", "Running")]

    def leave(self, name: str, again: bool = True) -> None:
        """Remove a pod; its controller makes another one."""
        before = self.world.pods[name]
        group = self.world.group_of(name)
        self.world.delete(name)
        if again:
            self.count += 1
            cpu = (before.spec.containers[0].resources.requests or {})["cpu"]
            more: dict[str, Any] = {"priority": before.spec.priority, "owner": group}
            self.world.add(pod(f"{name.partition('.')[0]}.{self.count}", group, str(cpu), **more))

    # ---- evictions

    @rule(which=dice, again=st.booleans())
    def victim_goes(self, which: int, again: bool) -> None:
        if going := self.going():
            self.leave(going[which % len(going)], again)

    @rule(which=dice)
    def victim_is_marked_deleted(self, which: int) -> None:
        if going := self.going():
            self.world.mark_deleted(going[which % len(going)])

    @rule(which=dice)
    def eviction_is_refused(self, which: int) -> None:
        if going := self.going():
            self.world.ledger.record_refused_eviction(
                Uid(self.world.pods[going[which % len(going)]].metadata.uid)
            )

    def going(self) -> list[str]:
        """Return the pods that are to be evicted, and those whose start is undone."""
        uids = {uid for group in self.world.decisions.groups.values() for uid in group.undo}
        uids |= self.world.decisions.evictions.keys()
        return sorted(name for name, each in self.world.pods.items() if each.metadata.uid in uids)

    # ---- queues and nodes

    @rule(name=some_queue, spec=specs)
    def queue_changes(self, name: str, spec: dict[str, Any]) -> None:
        self.specs[name] = spec
        self.put(name)

    @rule(name=some_queue, closes=st.booleans())
    def queue_is_closed_or_opened(self, name: str, closes: bool) -> None:
        self.put(name, spec_state="Closed" if closes else "Open")

    @rule(name=some_queue, parent=st.sampled_from(("", *QUEUES)))
    def queue_is_hung_elsewhere(self, name: str, parent: str) -> None:
        self.parents[name] = parent
        self.put(name)

    @rule(name=some_queue, again=st.booleans())
    def queue_is_deleted(self, name: str, again: bool) -> None:
        self.world.ledger.intake.drop_queue(name)
        if again:
            self.put(name)

    @rule(which=dice, where=some_queue)
    def group_enters_another_queue(self, which: int, where: str) -> None:
        if keys := sorted(self.world.ledger.snapshot().groups):
            self.world.add(group(keys[which % len(keys)].partition("/")[2], 1, queue=where))

    @rule(name=some_node, cpu=st.sampled_from(["2", "4"]), cordoned=st.booleans())
    def node_comes_or_changes(self, name: str, cpu: str, cordoned: bool) -> None:
        self.world.add(node(name, cpu=cpu, cordoned=cordoned))

    @rule(name=some_node)
    def node_goes(self, name: str) -> None:
        if name in self.world.nodes:
            self.world.drop_node(name)
            self.world.delete(*(each for each, pod in self.world.pods.items() if pod.spec.node_name == name))

    @rule(where=some_node, goes=st.booleans())
    def pod_of_others(self, where: str, goes: bool) -> None:
        if goes and f"s-{where}" in self.world.pods:
            self.world.delete(f"s-{where}")
        elif where in self.world.nodes:
            self.world.add(foreign_pod(f"s-{where}", on=where))

    # ---- time and decisions

    @rule(seconds=st.sampled_from([1.0, 40.0, 310.0, 700.0, _REST_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.old = None
        self.world.pass_time(seconds)

    @rule()
    def decisions_are_made(self) -> None:
        self.old = self.world.decide()

    @precondition(lambda self: self.old is not None)
    @rule()
    def decisions_are_published(self) -> None:
        """Check that decisions are published after any events."""
        assert self.old is not None
        self.world.publish_decisions(self.old)
        self.old = None

    @invariant()
    def what_would_be_decided_now_is_right(self) -> None:
        self.world.decide()

    def teardown(self) -> None:
        """Check that evictions and waits for their capacity end; only evicted pods are replaced."""
        if not hasattr(self, "world"):
            return
        for _ in range(_MAX_TURNS):
            self.all_that_may_start_runs()
            going = self.going()
            if not going:
                break
            for name in going:
                self.leave(name)
        else:
            raise AssertionError(f"it does not end: {self.world.decisions.evictions}")
        self.world.pass_time(LIMITS.reclaim_deadline + 1.0)
        for each in self.world.decisions.groups.values():
            assert each.reclaim is None or each.reclaim.until > self.world.now


Sharing.TestCase.settings = settings(
    max_examples=examples(8),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSharing = Sharing.TestCase
