"""decide() under any course of events: queues, nodes and gangs come and go, bindings succeed and fail.

Unlike tests/domain/test_stateful.py, which plays events in any order to check the ledger's sums, this plays a
realistic cluster: a scheduler that takes what is planned, or fails, and pods that end. After each step the
current decision is checked.
"""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import add
from extender.domain.queues.share_tree import EPSILON
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.shares import total_of
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.snapshot import Limits, Snapshot
from extender.domain.snapshot.wholeness import is_whole_with, members_to_start
from tests.domain.builders import anti_affinity, group, node, pod, queue
from tests.domain.world import LIMITS, World, comparable, key
from tests.property_examples import examples

GANGS = tuple(f"g{n}" for n in range(5))
LASTING = {Reason.NEVER_FITS, Reason.NOT_ENOUGH_MEMBERS, Reason.QUEUE_NOT_FOUND, Reason.TOO_LARGE_FOR_WINDOW}
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"host_port": 80},
    {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")},
)
some_gang, some_queue = st.sampled_from(GANGS), st.sampled_from(("q0", "q0", "q1", "q2"))
some_node = st.sampled_from(["n0", "n1", "n2"])
chance = st.randoms(use_true_random=False)


class CyclesMachine(RuleBasedStateMachine):
    @initialize(window=st.sampled_from([6, 1000]))
    def begin(self, window: int) -> None:
        limits = Limits(
            **{name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__} | {"window": window}
        )
        self.world = World(node("n0"), node("n1", pods="3"), limits=limits)
        self.world.add(queue("q0", capability={"cpu": "3"}), queue("q1", 2, strategy="fifo"))
        self.world.settle()

    # ---- what administrators and submitters do

    @rule(name=some_node, cpu=st.sampled_from(["1", "2", "4"]), pods=st.sampled_from(["2", "110"]))
    def node_comes_or_changes(self, name: str, cpu: str, pods: str) -> None:
        self.world.add(node(name, cpu=cpu, pods=pods))

    @rule(name=some_node)
    def node_goes(self, name: str) -> None:
        if len(self.world.nodes) > 1 and name in self.world.nodes:
            self.world.drop_node(name)
            self.world.delete(*[each for each, pod in self.world.pods.items() if pod.spec.node_name == name])

    @rule(
        name=some_queue,
        weight=st.integers(1, 4),
        cpu=st.sampled_from(["", "2", "3", "5"]),
        strategy=st.sampled_from(["", "fifo", "traverse"]),
        priority=st.sampled_from([0, 0, 1]),
    )
    def queue_comes_or_changes(self, name: str, weight: int, cpu: str, strategy: str, priority: int) -> None:
        limit = {"cpu": cpu} if cpu else None
        self.world.add(queue(name, weight, limit, strategy=strategy, priority=priority))

    @rule(
        name=some_gang,
        cpus=st.lists(st.sampled_from(["500m", "1", "2"]), min_size=1, max_size=4),
        spare=st.sampled_from([0, 0, 1, 2]),
        queue_=some_queue,
        kind=st.sampled_from(KINDS),
    )
    def gang_comes(self, name: str, cpus: list[str], spare: int, queue_: str, kind: dict[str, Any]) -> None:
        if not self.members(name):
            self.world.add(group(name, max(len(cpus) - spare, 1), queue_))
            self.world.add([pod(f"{name}-{n}", name, cpu=cpu, **kind) for n, cpu in enumerate(cpus)])

    @rule(name=some_gang, members=st.sampled_from([1, 1, 4]))
    def members_go(self, name: str, members: int) -> None:
        """Delete all pods together with their PodGroup."""
        names = self.members(name)[:members]
        self.world.delete(*names)
        if not self.members(name):
            self.world.ledger.intake.drop_group(key(name))

    @rule(name=some_gang)
    def gang_ends(self, name: str) -> None:
        self.world.finish(
            *(member for member in self.members(name) if self.world.pods[member].spec.node_name)
        )

    @rule(seconds=st.sampled_from([0.5, 6.0, 40.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.undo()

    # ---- what the scheduler does

    @rule(rng=chance)
    def scheduler_takes(self, rng: Any) -> None:
        """Take all planned pods by the scheduler, in any order; those whose bindings are posted run."""
        self.world.settle()
        planned = [(member, name) for name in GANGS for member in self.plan(name)]
        rng.shuffle(planned)
        for member, name in planned:
            if isinstance(nodes := self.world.answer(member), list):
                self.world.hold(member, nodes[0])
                self.post(name)

    @rule(name=some_gang)
    def scheduler_fails(self, name: str) -> None:
        """Fail a binding after filter had answered, or before the barrier let it pass."""
        self.world.settle()
        for member in list(self.plan(name))[:1]:
            nodes = self.world.answer(member)
            if isinstance(nodes, list) and self.world.hold(member, nodes[0]) is None:
                self.world.release(member)

    @rule(name=some_gang)
    def scheduler_refuses(self, name: str) -> None:
        self.world.settle()
        for member in list(self.plan(name))[:1]:
            self.world.refuse(member, f"0/{len(self.world.nodes)} nodes are available.")

    # ---- what always holds

    @invariant()
    def decided_the_same_with_and_without_the_past(self) -> None:
        snapshot = self.world.ledger.snapshot()
        fresh = decide(snapshot)
        assert fresh == decide(snapshot)
        assert comparable(fresh) == comparable(decide(snapshot, self.world.decisions))

    @invariant()
    def changed_groups_include_every_difference(self) -> None:
        before, now = self.world.decisions, self.world.decide()
        changed = {
            key for key in {**before.groups, **now.groups} if before.groups.get(key) != now.groups.get(key)
        }
        assert changed <= {*now.changed_since(before), *now.renumbered_groups}
        for name in changed - set(now.changed_since(before)):  # only numbers for people are others
            was, decision = before.groups[name], now.groups[name]
            assert replace(was, detail=decision.detail, position=decision.position) == decision

    @invariant()
    def nothing_is_planned_above_what_there_is(self) -> None:
        snapshot, decisions = self.now()
        sums: Counter[tuple[str, str]] = Counter()
        for decision in decisions.groups.values():
            for uid, name in decision.plan.items():
                sums.update({(name, each): amount for each, amount in self.requests(uid).items()})
        for (name, resource), amount in sums.items():
            assert (
                amount <= snapshot.capacity[snapshot.nodes.row_of[name], snapshot.dimensions.index(resource)]
            )

    @invariant()
    def newcomers_stay_within_the_ceiling(self) -> None:
        """Ignore limits as high as the cluster: nodes may have shrunk under running pods."""
        snapshot, decisions = self.now()
        total = total_of(snapshot)
        for name in {snapshot.groups[newcomer].queue for newcomer in self.newcomers(snapshot, decisions)}:
            held = dict(snapshot.queues[name].allocated)
            for decision in decisions.groups.values():
                if decision.queue == name:
                    for uid in decision.plan:
                        add(held, self.requests(uid))
            ceiling = {
                each: n for each, n in decisions.queues[name].ceiling.items() if n < total.get(each, 0)
            }
            assert all(held.get(each, 0) <= most + EPSILON for each, most in ceiling.items())

    @invariant()
    def starts_are_planned_whole(self) -> None:
        snapshot, decisions = self.now()
        for newcomer in self.newcomers(snapshot, decisions):
            view, decision = snapshot.groups[newcomer], decisions.groups[newcomer]
            if not view.has_fully_run and view.min_member > 1:
                lacking = members_to_start(view, fitting_uids=decision.plan)
                assert decision.plan.keys() >= {pod.uid for pod in lacking.members}

    @invariant()
    def shares_add_up(self) -> None:
        snapshot, decisions = self.now()
        for name, amount in total_of(snapshot).items():
            assert sum(each.deserved.get(name, 0.0) for each in decisions.queues.values()) <= amount + 1
        for each in decisions.queues.values():
            for name, due in each.deserved.items():
                assert due <= min(each.requested.get(name, 0), each.ceiling.get(name, 0.0)) + 1

    @invariant()
    def who_waits_has_a_reason_and_no_plan(self) -> None:
        for decision in self.now()[1].groups.values():
            if decision.verdict is Verdict.WAITING:
                assert decision.reason is not None
                assert not decision.plan

    def teardown(self) -> None:
        """Run everything to its end: no group is left that could start on an idle cluster."""
        for _ in range(80):
            self.world.pass_time(400.0)
            self.undo()
            self.scheduler_takes(_Unshuffled())
            for name in GANGS:
                self.gang_ends(name)
        self.world.settle()
        left = [each for each in self.world.decisions.groups.values() if each.verdict is Verdict.WAITING]
        assert {each.reason for each in left} <= LASTING, [str(each) for each in left]

    # ---- helpers

    def now(self) -> tuple[Snapshot, Decisions]:
        snapshot = self.world.ledger.snapshot()
        return snapshot, decide(snapshot, self.world.decisions)

    def members(self, group: str) -> list[str]:
        return sorted(name for name in self.world.pods if name.startswith(f"{group}-"))

    def plan(self, group: str) -> dict[str, str]:
        return self.world.plan(group) if key(group) in self.world.decisions.groups else {}

    def requests(self, uid: Any) -> Any:
        """Return the requests of a pod, or of the place that is kept for the replacement of a lost one."""
        record = self.world.ledger.pods.get(uid)
        if record is None:
            groups = self.world.ledger.snapshot().groups.values()
            record = next(pod for group in groups for pod in group.waiting_pods if pod.uid == uid)
        return record.shape.requests

    def newcomers(self, snapshot: Snapshot, decisions: Decisions) -> list[GroupKey]:
        """Return the groups that get a first plan in this cycle."""

        def is_new(view_key: GroupKey, decision: GroupDecision) -> bool:
            view = snapshot.groups[view_key]
            begun = (
                view.start.admitted_at is not None
                or view.placed_pods
                or view.assumed_pods
                or view.planned_nodes
            )
            return bool(decision.plan) and not begun

        return [each for each, decision in decisions.groups.items() if is_new(each, decision)]

    def post(self, group: str) -> None:
        """Post all members of a gang that never ran fully."""
        view = self.world.ledger.snapshot().groups[key(group)]
        posted = self.world.post(group)
        if posted and not view.has_fully_run:
            on_nodes = [member for member in self.members(group) if self.world.pods[member].spec.node_name]
            assert is_whole_with(view.needs, Counter(), len(on_nodes))
        self.world.run(*posted)

    def undo(self) -> None:
        """Evict the members of starts that failed for good."""
        undone = {uid for decision in self.world.decisions.groups.values() for uid in decision.undo}
        self.world.delete(*[name for name, pod in self.world.pods.items() if pod.metadata.uid in undone])


class _Unshuffled:
    def shuffle(self, things: list[Any]) -> None:
        """Leave the order as it is."""


CyclesMachine.TestCase.settings = settings(
    max_examples=examples(10),
    stateful_step_count=30,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes longer than a test may
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCycles = CyclesMachine.TestCase


def test_a_refused_start_asks_for_no_nodes_whatever_was_decided_before() -> None:
    """Give the queue a strategy while its first gang starts on a node that the scheduler refused."""
    machine = CyclesMachine()
    machine.begin(window=1000)
    machine.gang_comes(cpus=["1", "2"], kind={"host_port": 80}, name="g4", queue_="q0", spare=2)
    machine.world.settle()
    machine.gang_comes(cpus=["1", "1", "1", "500m"], kind={"host_port": 80}, name="g2", queue_="q0", spare=2)
    machine.scheduler_refuses(name="g4")
    machine.scheduler_fails(name="g4")
    machine.queue_comes_or_changes(cpu="", name="q0", priority=1, strategy="fifo", weight=1)
    machine.decided_the_same_with_and_without_the_past()
