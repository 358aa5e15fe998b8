"""Consolidation: pods move to other nodes where free capacity is too fragmented for a gang."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Raw
from msgspec.structs import replace

from extender.api.keys import HOLD, PREEMPTABLE
from extender.api.objects.pods import Volume
from extender.api.objects.queues import QueueLimits
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import Uid
from extender.domain.scheduling import consolidation
from tests.domain.builders import (
    anti_affinity,
    budget,
    flavor,
    foreign_pod,
    group,
    node,
    on_flavor,
    pod,
    preemption,
    queue,
)
from tests.domain.job_world import JobWorld, job
from tests.domain.shared_world import SharedWorld
from tests.domain.world import World, gang, key, names, nodes, timestamp
from tests.property_examples import examples
from tests.rows import each_of

GPU = "nvidia.com/gpu"
MOVES = preemption(consolidation=True, unmanaged="Never")
MADE = {"owner": "rs"}


def gpus(count: int) -> dict[str, Any]:
    return {"cpu": "1", "more": {GPU: str(count)}}


def hgx(count: int, **each: Any) -> list[Any]:
    return [node(f"n{number}", cpu="64", more={GPU: "8"}, **each) for number in range(count)]


def placed(world: World, name: str, on: str, size: int, queue: str = "q", **more: Any) -> None:
    """Add a gang of one with so many GPUs that runs on a node."""
    notes, facts = more.pop("notes", None), MADE | more
    world.add(gang(name, 1, queue=queue, notes=notes, **gpus(size), **facts)).settle()
    world.scheduler_takes(f"{name}-0", offered=[on]).run(f"{name}-0").settle()


def in_pieces(rules: Any = MOVES, sizes: tuple[int, ...] = (3, 3), **more: Any) -> World:
    """Return a world in which two of each node's 8 GPUs are free."""
    world = World(hgx(4), queue("q", preemption=rules))
    for number in range(4):
        for part, size in enumerate(sizes):
            placed(world, f"r{number}{part}", f"n{number}", size, **more)
    return world


def wants_node(world: World, queue: str = "q", **more: Any) -> World:
    return world.add(gang("g", 1, queue=queue, created=timestamp(world.now), **gpus(8), **more)).settle()


def evicted(world: World) -> list[str]:
    return sorted(eviction.victim.name for eviction in world.decisions.evictions.values())


def replaced(world: World, *pods: str) -> None:
    """Delete pods, and create their replacements: `r` has `r-again`."""
    for name in pods:
        old = world.pods[name]
        meta = replace(old.metadata, name=f"{name}-again", uid=f"uid-{name}-again")
        new = replace(
            old,
            metadata=meta,
            spec=replace(old.spec, node_name=""),
            status=replace(old.status, phase="Pending"),
        )
        world.delete(name).add(new)
    world.settle()


def runs(world: World, *pods: str) -> None:
    """Let all pods on nodes begin to run now."""
    for name in pods:
        old = world.pods[name]
        world.add(replace(old, status=replace(old.status, start_time=timestamp(world.now))))


def test_small_ones_move_so_that_a_whole_node_is_free() -> None:
    world = wants_node(in_pieces(sizes=(1,) * 6))
    assert world.reason("g") is Reason.RECLAIMING
    assert "pods to move: 6" in world.detail("g")
    evicted_pods = evicted(world)
    assert len(evicted_pods) == 6
    assert len({world.pods[name].spec.node_name for name in evicted_pods}) == 1
    why = next(iter(world.decisions.evictions.values())).why
    assert "it moves so that group team/g of queue q fits" in why
    assert "is reserved on n" in why
    replaced(world, *evicted_pods)
    assert world.verdict("g") is Verdict.STARTING
    for name in evicted_pods:
        assert world.verdict(name.rpartition("-")[0]) is Verdict.STARTING
    world.start("g", *(name.rpartition("-")[0] for name in evicted_pods))
    assert not evicted(world)


SMALL = (1,) * 6


@each_of((MOVES, (3, 3)), (preemption(unmanaged="Never"), SMALL))
def test_nothing_moves_where_it_would_not_fit_or_the_queue_does_not_say_so(
    rules: Any, sizes: tuple[int, ...]
) -> None:
    world = wants_node(in_pieces(rules, sizes))
    assert world.reason("g") is Reason.FRAGMENTED
    assert not evicted(world)


dice = st.integers(0, 99)


def test_the_place_of_a_moving_pod_is_reserved() -> None:
    """Keep the place while the pod leaves, and until its controller has made another one."""
    world = wants_node(in_pieces(sizes=SMALL))
    evicted_pods = evicted(world)
    world.add(gang("other", 1, queue="q", created=timestamp(world.now), **gpus(1))).settle()
    assert world.reason("other") is Reason.RESERVED
    assert "are reserved for the moved group" in world.detail("other")
    world.delete(*evicted_pods).settle()
    assert world.verdict("g") is Verdict.STARTING
    assert world.verdict("other") is Verdict.WAITING
    world.start("g")
    world.pass_time(250.0)
    assert world.verdict("other") is Verdict.WAITING
    world.pass_time(60.0)
    assert world.verdict("other") is Verdict.STARTING


def test_filter_offers_the_place_of_a_moving_pod_to_no_other_pod() -> None:
    """A group of one may use all nodes that fit it."""
    world = wants_node(in_pieces(sizes=SMALL))
    assert evicted(world)
    world.add(node("n4", cpu="64", more={GPU: "2"}), gang("late", 1, queue="q", **gpus(1))).settle()
    world.ungate("late-0")
    assert world.answer("late-0") == ["n4"]


def test_a_moved_pod_does_not_move_again_within_an_hour() -> None:
    world = World(hgx(2), queue("q", preemption=MOVES))
    placed(world, "r", "n0", 1)
    placed(world, "s", "n1", 1, notes={PREEMPTABLE: "false"})
    wants_node(world)
    assert evicted(world) == ["r-0"]
    replaced(world, "r-0")
    world.start("g", "r").finish("g-0").delete("s-0").settle()
    placed(world, "t", "n0", 1, notes={PREEMPTABLE: "false"})
    world.add(gang("h", 1, queue="q", created=timestamp(world.now), **gpus(8))).settle()
    world.pass_time(3590.0)
    assert world.reason("h") is Reason.FRAGMENTED
    world.pass_time(20.0)
    assert evicted(world) == ["r-0-again"]


def test_members_that_can_be_spared_move_before_whole_groups() -> None:
    world = World(hgx(2), queue("q", preemption=MOVES))
    world.add(gang("elastic", 4, 1, queue="q", owner="rs", **gpus(2))).settle()
    for number, name in enumerate(names("elastic", 4)):
        world.settle().scheduler_takes(name, offered=[f"n{number % 2}"]).run(name)
    placed(world, "one", "n0", 1)
    wants_two = gang("g", 1, queue="q", created=timestamp(world.now), **gpus(6))
    world.add(wants_two).settle()
    evicted_pods = evicted(world)
    assert len(evicted_pods) == 1
    assert evicted_pods[0].startswith("elastic")
    replaced(world, *evicted_pods)
    assert world.verdict("g") is Verdict.STARTING
    assert list(world.plan("elastic").values()) == ["n0"]
    world.start("g", "elastic")
    assert len(world.ledger.snapshot().groups[key("elastic")].placed_pods) == 4


def test_a_gang_moves_whole() -> None:
    world = World(hgx(3), queue("q", preemption=MOVES))
    world.add(gang("pair", 2, queue="q", owner="job", **gpus(3))).settle()
    world.scheduler_takes("pair-0", offered=["n0"]).scheduler_takes("pair-1", offered=["n1"])
    world.run("pair-0", "pair-1").settle()
    placed(world, "big", "n2", 2, notes={PREEMPTABLE: "false"})
    wants_node(world)
    assert evicted(world) == ["pair-0", "pair-1"]
    world.delete("pair-0").settle()
    assert world.reason("g") is Reason.RECLAIMING
    replaced(world, "pair-1")
    assert world.verdict("g") is Verdict.STARTING
    world.add(
        replace(
            world.pods["pair-1-again"],
            metadata=replace(
                world.pods["pair-1-again"].metadata, name="pair-0-again", uid="uid-pair-0-again"
            ),
        )
    ).settle()
    assert world.verdict("pair") is Verdict.STARTING
    assert world.start("g", "pair").verdicts("g", "pair") == [Verdict.RUNNING] * 2


def test_a_job_is_moved_by_suspension_and_admission() -> None:
    world = JobWorld(nodes("n0", "n1", cpu="4"), queue("q", preemption=MOVES))
    for name in ("a", "b"):
        world.submit(job(name, 1, "3", queue="q")).run_whole(name)
    world.add(node("n2", cpu="4"), foreign_pod("s", on="n2"))
    world.add(gang("g", 1, queue="q", cpu="4", created=timestamp(world.now))).settle()
    (moved,) = {name.partition("-")[0] for name in evicted(world)}
    world.run_whole(moved).start("g")
    assert not world.suspended(moved)
    assert {world.pods[name].spec.node_name for name in world.pods_of(moved)} == {"n2"}


def test_pods_of_a_flavor_move_to_nodes_of_that_flavor() -> None:
    """Select nodes of the flavor although others have more free capacity."""
    kinds = [flavor("spot"), flavor("ondemand")]
    spot: Any = {"labels": on_flavor("spot")}
    world = World([node(f"n{number}", cpu="6", **spot) for number in range(2)], node("free", cpu="60"))
    world.add(node("o", cpu="60", labels=on_flavor("ondemand")), foreign_pod("s", on="o", cpu="56"))
    world.add(queue("q", flavors=kinds, preemption=MOVES))
    for number in range(2):
        world.add(gang(f"r{number}", 1, queue="q", cpu="2", owner="rs")).settle()
        world.scheduler_takes(f"r{number}-0", offered=[f"n{number}"]).run(f"r{number}-0").settle()
    world.add(gang("g", 1, queue="q", cpu="6", created=timestamp(world.now))).settle()
    (evicted_pod,) = evicted(world)
    replaced(world, evicted_pod)
    left, other = ("n0", "n1") if evicted_pod == "r0-0" else ("n1", "n0")
    assert world.plan("g") == {"g-0": left}
    assert world.plan(evicted_pod[:2]) == {f"{evicted_pod}-again": other}


@each_of(
    {"notes": {PREEMPTABLE: "false"}},  # not preemptable
    {"owner": ""},  # nothing makes it again
    {"priority": 5},  # of higher priority
    {"selector": {"kubernetes.io/hostname": "n0"}},  # tied to its node
    {"annotations": {PREEMPTABLE: "false"}},  # pods say so
)
def test_pods_that_may_not_move_stay(reserved: dict[str, Any]) -> None:
    world = World(hgx(2), queue("q", preemption=MOVES))
    placed(world, "r", "n0", 1, **reserved)
    placed(
        world,
        "s",
        "n1",
        1,
        **reserved | ({"selector": {"kubernetes.io/hostname": "n1"}} if "selector" in reserved else {}),
    )
    wants_node(world)
    assert world.reason("g") is Reason.FRAGMENTED
    assert not evicted(world)


@each_of(({HOLD: "true"}, {}), ({}, {"stop_policy": "Hold"}), ({}, {"weight": 2}))
def test_pods_that_could_not_start_again_stay(notes: dict[str, str], spec: dict[str, Any]) -> None:
    world = World(hgx(2), queue("q", preemption=MOVES), queue("other", preemption=MOVES))
    for number in range(2):
        placed(world, f"r{number}", f"n{number}", 1, queue="other")
        world.add(group(f"r{number}", 1, "other", annotations=notes))
    world.add(queue("other", preemption=MOVES, **spec))
    assert bool(evicted(wants_node(world))) is (not notes and "stop_policy" not in spec)


def test_pods_with_a_volume_do_not_move() -> None:
    world = World(hgx(2), queue("q", preemption=MOVES))
    for number in range(2):
        placed(world, f"r{number}", f"n{number}", 1)
        old = world.pods[f"r{number}-0"]
        volume = Volume(persistent_volume_claim=Raw(b'{"claimName":"data"}'))
        world.add(replace(old, spec=replace(old.spec, volumes=[volume])))
    assert not evicted(wants_node(world))


def test_one_group_does_not_move_for_two_gangs_at_once() -> None:
    """Move one of four spare members: capacity is reserved for its replacement alone."""
    world = World(hgx(4), queue("q", preemption=MOVES))
    world.add(group("elastic", 1, "q", stood_whole=True, admitted=True))
    for number in range(4):
        world.add(pod(f"elastic-{number}", "elastic", on=f"n{number}", owner="rs", more={GPU: "2"}))
    for name in ("g", "h"):
        world.add(gang(name, 1, queue="q", created=timestamp(world.now), **gpus(8)))
    world.settle()
    evicted_pods = evicted(world)
    assert len(evicted_pods) == 1
    replaced(world, *evicted_pods)
    assert sorted(world.verdicts("g", "h")) == [Verdict.STARTING, Verdict.WAITING]
    assert len(world.plan("elastic")) == 1


@pytest.mark.parametrize(("looks", "moves"), [(0.0, False), (1e5, True)])
def test_a_gang_does_not_pay_for_constraints_of_others(
    looks: float, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation, "_MAX_LOOKS", looks)
    world = World(hgx(2), queue("q", preemption=MOVES))
    for number in range(2):
        placed(world, f"r{number}", f"n{number}", 1, affinity=anti_affinity(app="none"))
    wants_node(world)
    assert world.reason("g") is (Reason.RECLAIMING if moves else Reason.FRAGMENTED)


@each_of(([], {"r-0", "s-0"}), ([budget("b", 0, app="r")], {"s-0"}))
def test_a_pod_moves_where_no_disruption_budget_forbids_it(budgets: list[Any], may_move: set[str]) -> None:
    world = World(hgx(2), queue("q", preemption=MOVES), *budgets)
    placed(world, "r", "n0", 1, labels={"app": "r"})
    placed(world, "s", "n1", 1)
    (moved,) = evicted(wants_node(world))
    assert moved in may_move


def test_a_pod_below_its_minimum_runtime_does_not_move() -> None:
    world = World(hgx(2), queue("q", preemption=replace(MOVES, min_runtime="5m")))
    placed(world, "r", "n0", 1)
    placed(world, "s", "n1", 1)
    runs(world, "r-0", "s-0")
    wants_node(world)
    assert not evicted(world)
    world.pass_time(301.0)
    assert evicted(world)


def test_a_move_has_the_price_of_an_eviction() -> None:
    """8 GPUs for t seconds are worth as much as one that has run for 800 s, and for t more."""
    world = World(hgx(2), queue("q", preemption=replace(MOVES, at_most="1h", patience="1")))
    placed(world, "r", "n0", 1)
    placed(world, "s", "n1", 1)
    runs(world, "r-0", "s-0")
    world.advance(800.0)
    wants_node(world)
    assert not evicted(world)
    assert "lose more work than its wait is worth" in world.decision("g").price
    world.pass_time(100.0)
    assert not evicted(world)
    world.pass_time(40.0)
    assert evicted(world)


def test_groups_of_other_queues_move_only_if_these_say_so() -> None:
    for rules, moves in ((MOVES, True), (preemption(), False)):
        world = World(hgx(2), queue("q", preemption=MOVES), queue("other", preemption=rules))
        placed(world, "r", "n0", 1, queue="other")
        placed(world, "s", "n1", 1, queue="other")
        assert bool(evicted(wants_node(world))) is moves


def test_no_pod_is_moved_for_a_gang_above_its_share() -> None:
    world = World(hgx(2), queue("q", preemption=MOVES), queue("other", preemption=MOVES))
    placed(world, "mine", "n0", 5)
    placed(world, "r", "n1", 3, queue="other")
    world.add(gang("w", 2, queue="other", created=timestamp(1.0), **gpus(8)))
    world.add(gang("g", 1, queue="q", created=timestamp(world.now), **gpus(4))).settle()
    assert not evicted(world)


def test_the_place_goes_where_the_move_is_called_off() -> None:
    """The gang is deleted before a pod has left: no pod leaves, and nothing is reserved."""
    world = wants_node(in_pieces(sizes=SMALL))
    assert evicted(world)
    world.delete("g-0").settle()
    assert not evicted(world)
    world.add(gang("other", 1, queue="q", **gpus(1))).settle()
    assert world.verdict("other") is Verdict.STARTING


def test_a_node_that_is_cordoned_is_no_place_any_more() -> None:
    world = World(hgx(3), queue("q", preemption=MOVES))
    for number in range(3):
        placed(world, f"r{number}", f"n{number}", 1)
    wants_node(world)
    reclaim = world.decision("g").reclaim
    assert reclaim is not None
    (home,) = reclaim.homes.values()
    world.add(node(home, cpu="64", more={GPU: "8"}, cordoned=True)).settle()
    again = world.decision("g").reclaim
    assert again is None or set(again.homes.values()) - {home}


@each_of({"capability": {GPU: "10"}}, {"limits": QueueLimits(groups=3)}, {"limits": QueueLimits(pods=3)})
def test_headroom_is_reserved_for_moving_pods(most: dict[str, Any]) -> None:
    world = World(hgx(2), queue("q", preemption=MOVES, **most))
    placed(world, "r", "n0", 1)
    placed(world, "s", "n1", 1)
    wants_node(world)
    (evicted_pod,) = evicted(world)
    before = world.pods[evicted_pod]
    world.delete(evicted_pod).start("g").add(hgx(3)[-1:])
    world.add(gang("other", 1, queue="q", created=timestamp(world.now), **gpus(1))).settle()
    assert world.reason("other") is Reason.RESERVED
    world.add(
        replace(
            before, spec=replace(before.spec, node_name=""), status=replace(before.status, phase="Pending")
        )
    )
    world.start(evicted_pod[:1])
    assert world.reason("other") is Reason.QUEUE_CEILING


running = st.tuples(
    st.integers(0, 3),  # its first node
    st.integers(1, 2),  # members
    st.integers(0, 1),  # of which so many are not needed
    st.sampled_from(["1", "2", "3"]),  # cpus of each
    st.sampled_from(["rs", "rs", "rs", ""]),  # its controller
)


@settings(max_examples=examples(20), deadline=None)
@given(
    st.integers(2, 4),
    st.lists(running, min_size=2, max_size=8),
    st.tuples(st.integers(1, 2), st.sampled_from(["3", "4", "6"])),
    st.booleans(),
)
def test_moved_pods_and_the_gang_run(
    count: int, there: list[tuple[int, int, int, str, str]], wanted: tuple[int, str], at_once: bool
) -> None:
    """Start all again in any order of departures; `SharedWorld` checks each decision."""
    world = SharedWorld([node(f"n{number}", cpu="6") for number in range(count)], queue("root"))
    world.add(queue("q", preemption=MOVES))
    capacity = dict.fromkeys(world.nodes, 6)
    for number, (first, members, spare, cpu, owner) in enumerate(there):
        on = [f"n{(first + step) % count}" for step in range(members)]
        if all(capacity[each] >= int(cpu) for each in on):
            world.add(group(f"r{number}", max(members - spare, 1), "q", stood_whole=True, admitted=True))
            for member, each in enumerate(on):
                capacity[each] -= int(cpu)
                world.add(pod(f"r{number}-{member}", f"r{number}", cpu, on=each, owner=owner))
    world.settle()
    before = {each.key: len(each.placed_pods) for each in world.ledger.snapshot().groups.values()}
    world.add(gang("g", wanted[0], queue="q", cpu=wanted[1], created=timestamp(world.now))).settle()
    moved = {eviction.victim.group for eviction in world.decisions.evictions.values()}
    for _ in range(16):  # members that can be spared come last
        going = evicted(world)
        replaced(world, *(going if at_once else going[:1]))
        for each in (*moved, key("g")):
            if plan := world.plan(each.partition("/")[2]):
                world.scheduler_takes(*plan).run(*plan).settle()
        world.advance(1.0).settle()
    assert not evicted(world)
    groups = world.ledger.snapshot().groups
    if moved:
        assert world.verdict("g") is Verdict.RUNNING
        assert [len(groups[each].placed_pods) for each in moved] == [before[each] for each in moved]


class Moving(RuleBasedStateMachine):
    """Four fragmented nodes under any events while pods move. `SharedWorld` also decides from scratch."""

    @initialize(sizes=st.lists(st.sampled_from(["1", "2"]), min_size=8, max_size=12))
    def begin(self, sizes: list[str]) -> None:
        self.world = SharedWorld([node(f"n{number}", cpu="6") for number in range(4)], queue("root"))
        self.world.add(queue("q", preemption=MOVES), queue("r", preemption=MOVES))
        self.count = 0
        for number, cpu in enumerate(sizes):
            name, on = f"r{number}", f"n{number % 4}"
            self.world.add(group(name, 1, "qr"[number % 2], stood_whole=True, admitted=True))
            self.world.add(pod(f"{name}-0", name, cpu, on=on, owner=name))
        self.gang_comes("q", 1, "5")

    @rule(where=st.sampled_from("qr"), members=st.integers(1, 2), cpu=st.sampled_from(["1", "4", "5", "6"]))
    def gang_comes(self, where: str, members: int, cpu: str) -> None:
        self.count += 1
        now = timestamp(self.world.now)
        self.world.add(
            gang(f"g{self.count}", members, queue=where, cpu=cpu, created=now, owner="rs")
        ).settle()

    @rule(which=dice, again=st.booleans())
    def one_leaves(self, which: int, again: bool) -> None:
        if going := evicted(self.world):
            name = going[which % len(going)]
            (replaced(self.world, name) if again else self.world.delete(name).settle())

    @rule()
    def all_that_may_start_runs(self) -> None:
        self.world.settle()
        for each in self.world.decisions.groups:
            if plan := self.world.plan(each.partition("/")[2]):
                self.world.scheduler_takes(*plan).run(*plan).settle()

    @rule(which=dice)
    def eviction_is_refused(self, which: int) -> None:
        if going := evicted(self.world):
            self.world.ledger.record_refused_eviction(
                Uid(self.world.pods[going[which % len(going)]].metadata.uid)
            )
            self.world.settle()

    @rule(which=dice)
    def one_ends(self, which: int) -> None:
        if names := sorted(self.world.pods):
            self.world.delete(names[which % len(names)]).settle()

    @rule(number=st.integers(0, 3), cordoned=st.booleans())
    def node_is_cordoned(self, number: int, cordoned: bool) -> None:
        self.world.add(node(f"n{number}", cpu="6", cordoned=cordoned)).settle()

    @rule(seconds=st.sampled_from([1.0, 310.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def decisions_are_reproducible(self) -> None:
        self.world.decide()


Moving.TestCase.settings = settings(max_examples=examples(8), stateful_step_count=20, deadline=None)
TestMoving = Moving.TestCase
