"""Inadmissible groups and the events that requeue them.

Skipping them changes no decision, and an event leads to no evaluation of groups that it does not concern.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.queues import QueueLimits, RunningLimit
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.queues.records import RESERVE_AFTER
from extender.domain.scheduling import decide as decide_module
from extender.domain.scheduling import inadmissible
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.inadmissible import InadmissibleGroups
from extender.domain.scheduling.memory import Evaluation, read_facts
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import flavor, foreign_pod, group, node, on_flavor, pod, preemption, queue
from tests.domain.inadmissible_world import crowd, divided_cluster, full_cluster
from tests.domain.world import LIMITS, World, comparable, gang, key, timestamp
from tests.rows import each_of

Event = Callable[[World], object]


def evaluated(world: World) -> set[GroupKey]:
    """Return the groups that this cycle evaluates."""
    notes = read_facts(world.decide())
    assert notes is not None
    return set(notes.evaluation.cycle.decisions)


def is_as_from_nothing(world: World) -> bool:
    snapshot = world.ledger.snapshot()
    return comparable(decide(snapshot, world.decisions)) == comparable(decide(snapshot))


EVENTS: dict[str, Callable[[World], object]] = {
    "one comes": lambda world: world.add(gang("new", 2, queue="pa", created=timestamp(990))),
    "one goes": lambda world: world.delete("w8-0").ledger.intake.drop_group(key("w8")),
    "one loses a member": lambda world: world.delete("w7-1"),
    "one wants less": lambda world: world.add(group("w7", 1, queue="pb", created=timestamp(893))),
    "one is held": lambda world: world.add(
        group("w8", 1, queue="q", created=timestamp(892), annotations={keys.HOLD: "true"})
    ),
    "one changes its queue": lambda world: world.add(group("w8", 1, queue="pa", created=timestamp(892))),
}


@each_of(*product([100.0, 10_000.0], EVENTS.values()))
def test_most_groups_stay_inadmissible_after_a_change_of_one(ages: float, event: Event) -> None:
    world = crowd(ages)
    event(world)
    assert len(evaluated(world)) < len(world.decisions.groups) / 2
    assert is_as_from_nothing(world)
    before, now = world.decisions, world.decide()
    moved = [each for each in now.groups.values() if each != before.groups.get(each.key)]
    assert {*now.changed_groups, *now.renumbered_groups} >= {each.key for each in moved}
    for each in now.renumbered_groups:
        renumbered = replace(now.groups[each], detail="", position=0)
        assert renumbered == replace(before.groups[each], detail="", position=0)


@each_of(
    (lambda world: world.add(foreign_pod("s", on="n0", cpu="100m")), 3),  # a little less capacity
    (lambda world: world.add(foreign_pod("s", on="n0", cpu="900m")), 3),  # less capacity for some
    (lambda world: world.add(foreign_pod("s", on="n0", cpu="3")), 3),  # no capacity at all
    (lambda world: world.delete("old-n1").add(foreign_pod("s", on="n1", cpu="2500m")), 3),  # more capacity
    (lambda world: world.mark_deleted("done-0"), 1),  # a member at rest is going
)
def test_an_event_requeues_only_groups_that_it_concerns(event: Event, most: int) -> None:
    world = full_cluster()
    event(world)
    assert len(evaluated(world)) <= most
    assert is_as_from_nothing(world)


def test_one_group_of_an_equivalence_class_is_evaluated() -> None:
    world = World(node("n", cpu="4"), foreign_pod("s", on="n", cpu="3"))
    then = timestamp(1000)
    world.add(*(gang(f"g{n}", 2, cpu="2", created=then) for n in range(20))).settle().settle()
    reported = world.detail("g7")
    world.add(foreign_pod("s2", on="n", cpu="900m"))
    assert len(evaluated(world)) == 1
    assert is_as_from_nothing(world)
    assert world.settle().detail("g7") != reported


def test_a_gang_of_one_flavor_minds_no_node_of_none() -> None:
    world = divided_cluster()
    assert world.reason("g") is Reason.NO_ROOM
    world.add(foreign_pod("s", on="old", cpu="1"))
    assert not evaluated(world)
    assert is_as_from_nothing(world)


def test_no_start_evaluates_inadmissible_groups() -> None:
    world = World(node("n", cpu="64"), queue("q"))
    world.add(*(gang(f"r{number}", 1, queue="q", cpu="1") for number in range(9))).settle()
    world.start(*(f"r{number}" for number in range(9))).settle()
    world.add(gang("one", 1, queue="q", cpu="1"))
    assert evaluated(world) == {key("one")}
    world.settle().add(gang("two", 1, queue="q", cpu="1"))
    assert evaluated(world) == {key("one"), key("two")}
    assert is_as_from_nothing(world)
    assert world.settle().verdicts("one", "two", "r0") == [
        Verdict.STARTING,
        Verdict.STARTING,
        Verdict.RUNNING,
    ]


def test_a_started_group_is_evaluated_once_more_when_it_is_fully_running() -> None:
    world = World(node("n", cpu="64"), queue("q"), gang("g", 2, queue="q", cpu="1"))
    world.settle().scheduler_takes("g-0", "g-1").settle()
    for name in ("one", "two"):
        world.add(gang(name, 1, queue="q", cpu="1"))
        assert key("g") not in evaluated(world)
        world.settle()
    world.advance(LIMITS.whole_grace).add(gang("three", 1, queue="q", cpu="1"))
    assert evaluated(world) >= {key("g"), key("three")}
    assert is_as_from_nothing(world)
    assert not world.stood_whole("g")
    assert world.settle().stood_whole("g")


def test_a_start_that_requeues_no_group_is_decided_in_one_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    world, cycles = World(node("n", cpu="64"), queue("q")), list[set[str]]()
    world.add(gang("rests", 1, queue="q", cpu="1")).settle().start("rests").settle()
    evaluate = decide_module.evaluate

    def counted(cycle: Cycle, inadmissible: InadmissibleGroups) -> Evaluation:
        cycles.append(set(cycle.groups))
        return evaluate(cycle, inadmissible)

    monkeypatch.setattr(decide_module, "evaluate", counted)
    world.add(gang("new", 1, queue="q", cpu="1"))
    world.decide()
    assert cycles == [{key("new")}]


def test_numbers_follow_a_chain_of_events() -> None:
    """The totals that one hands on are those that the next starts from."""
    world = full_cluster()
    for number in range(5):
        world.add(foreign_pod(f"s{number}", on=f"n{number % 3}", cpu="200m"))
        assert is_as_from_nothing(world)
        world.settle()
    world.delete(*(f"s{number}" for number in range(5))).delete("old-n0", "old-n1")
    assert is_as_from_nothing(world)
    assert world.settle().plan("same")


def test_groups_behind_a_started_one_move_up() -> None:
    world = crowd()
    in_line = [each for each in world.decisions.groups.values() if each.queue == "q" and each.position]
    line = sorted(in_line, key=lambda each: each.position)
    removed = line[2].key
    world.delete(*(name for name in world.pods if name.startswith(f"{removed.partition('/')[2]}-")))
    world.ledger.intake.drop_group(removed)
    world.settle()
    now = [world.decisions.groups[each.key].position for each in line if each.key != removed]
    assert now == list(range(1, len(line)))
    assert world.queue("q").waiting == len(now)


def test_totals_of_shapes_that_are_gone_are_forgotten() -> None:
    world = World(node("n", cpu="4"), gang("stays", 1, cpu="5")).settle()
    for number in range(150):
        world.add(gang("new", 1, cpu=f"{5000 + number}m")).settle().settle()
        world.delete("new-0").ledger.intake.drop_group(key("new"))
    notes = read_facts(world.settle().decisions)
    assert notes is not None
    assert notes.memory.totals is not None
    assert len(notes.memory.totals.pods) < 100


# ---- Each cause, removed in turn, is missed: what is decided then is stale.


class Case(NamedTuple):
    world: Callable[[], World]
    event: Event


def short() -> World:
    """Return a world with one node with one cpu left, and two gangs that wait."""
    world = World(node("n", cpu="4"), queue("q"), foreign_pod("s", on="n", cpu="3"))
    then: dict[str, Any] = {"queue": "q", "cpu": "2", "created": timestamp(1000)}
    return world.add(gang("a", 2, **then), gang("b", 2, **then)).settle().settle()


def in_pieces() -> World:
    """Return two shapes that fit alone and not together: each needs the same half of a node."""
    world = World(*(node(f"n{n}", cpu="4", memory="4Gi") for n in range(2)), queue("q"))
    world.add(foreign_pod("s0", on="n0", cpu="2", more={"memory": "2Gi"}))
    world.add(foreign_pod("s1", on="n1", cpu="3", more={"memory": "3Gi"}))
    world.add(group("g", 2, queue="q"))
    world.add(pod("wide", "g", cpu="2", more={"memory": "1Gi"}), pod("high", "g", more={"memory": "2Gi"}))
    return world.settle().settle()


def shared(**spec: Any) -> World:
    """Return a world where a gang of queue q runs and others wait, on a node with capacity for all."""
    world = World(node("n", cpu="8", labels=on_flavor("spot")), queue("q", **spec))
    world.add(gang("runs", 1, queue="q", cpu="2", priority=9, created=timestamp(0))).settle().start("runs")
    return world.add(gang("waits", 1, queue="q", cpu="2", created=timestamp(1000))).settle().settle()


def backing_off() -> World:
    world = crowd()
    world.ledger.give_up_start(key("w7"), "too late")
    return world.settle()


def set_limits(world: World, **limits: Any) -> None:
    defaults = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__}
    world.ledger.limits = Limits(**{**defaults, **limits})


def outranking() -> World:
    """Return a world where groups of priority 5 lack capacity, and no running group has a lower one."""
    rules = preemption(unmanaged="LowerPriority")
    world = World(
        node("n", cpu="4"), queue("q", preemption=rules), foreign_pod("s", on="n", cpu="3", priority=9)
    )
    return world.add(gang("a", 1, queue="q", cpu="2", priority=5)).settle().settle()


def halves(members: int, first: str = "1") -> World:
    """Return a world where two gangs wait, and twice `members` nodes have half of a member's request left.

    The first node may have less.
    """
    world = World(queue("q"), *(node(f"n{n}", cpu="2") for n in range(2 * members)))
    world.add(
        foreign_pod("s0", on="n0", cpu=first),
        *(foreign_pod(f"s{n}", on=f"n{n}") for n in range(1, 2 * members)),
    )
    for name in ("a", "b"):
        world.add(gang(name, members, queue="q", cpu="2", created=timestamp(1000)))
    return world.settle().settle()


def one_after_the_other() -> World:
    """Return a world where two groups have waited too long, of which the first needs both nodes.

    While a foreign pod stays, it can get no reservation.
    """
    world = World(node("n", cpu="4"), queue("q"), queue("r", reclaimable=False))
    world.add(foreign_pod("s", on="n", cpu="3"))
    for name, born in (("a", 100), ("b", 200)):
        world.add(gang(name, 1, queue="q", cpu="2", created=timestamp(born)))
    return world.settle().settle()


def first_goes(world: World) -> None:
    """End the group that has the stranger's place."""
    world.delete("a-0", "s").ledger.intake.drop_group(key("a"))
    world.add(group("runs", 1, queue="r"), pod("runs-0", "runs", cpu="3", on="n", phase="Running"))


def reserved() -> World:
    """Return a world where a reservation for `big` of unknown duration keeps out `late`.

    The queue of `late` is within its share; so is `big`'s queue.
    """
    limits = replace(LIMITS, usage_half_life=0.0)  # else the turn of `late` would come first
    queues = [queue(name) for name in ("r", "s")]
    world = World(*(node(f"n{n}", cpu="4") for n in range(3)), *queues, limits=limits)
    for number in range(4):
        small = gang(f"small{number}", 1, cpu="2", created=timestamp(world.now))
        world.add(small).settle().start(f"small{number}")
    world.add(foreign_pod("x", on="n2", cpu="4"), gang("big", 2, cpu="4", created=timestamp(world.now)))
    world.pass_time(RESERVE_AFTER + 1.0)
    world.finish("small0-0").settle()
    world.add(gang("late", 1, queue="r", cpu="2", created=timestamp(world.now))).settle().settle()
    assert world.reason("late") is Reason.RESERVED
    return world


def in_line() -> World:
    """Return a world where the head of a queue lacks capacity, and the gang behind it would fit."""
    world = World(node("n", cpu="4"), queue("q", strategy="fifo"), foreign_pod("s", on="n", cpu="3"))
    for name, cpu in (("a", "2"), ("b", "1")):
        world.add(gang(name, 1, queue="q", cpu=cpu, created=timestamp(1000)))
    return world.settle().settle()


def without_head() -> World:
    """Return a world where groups of low priority wait in a mixed queue and would pass each other."""
    world = World(node("n", cpu="4"), queue("q", strategy="mixed"), foreign_pod("s", on="n", cpu="4"))
    for name in ("a", "b"):
        world.add(gang(name, 1, queue="q", cpu="2", created=timestamp(1000)))
    return world.settle().settle()


def of_users() -> World:
    """Return a world where groups of two users who may run one each find no node; a smaller one would."""
    limits = QueueLimits(per_user=RunningLimit(groups=1))
    world = World(node("n", cpu="1"), queue("q", limits=limits))
    for name, user in (("a", "ann"), ("b", "bob")):
        world.add(gang(name, 1, queue="q", cpu="2", created=timestamp(1000), notes={keys.SUBMITTER: user}))
    return world.settle().settle()


def bob_runs(world: World) -> None:
    record = group("runs", 1, queue="q", annotations={keys.SUBMITTER: "bob"})
    world.add(record, pod("runs-0", "runs", cpu="500m", on="n", phase="Running"))


def by_usage() -> World:
    """Return a fair queue with two pending users, the first of whom holds all of it."""
    world = World(node("n", cpu="4"), queue("q", strategy="fair"))
    world.add(gang("holds", 4, queue="q", notes={keys.SUBMITTER: "ann"})).settle().start("holds")
    for name, user in (("a", "ann"), ("b", "bob")):
        world.add(gang(name, 1, queue="q", created=timestamp(1000), notes={keys.SUBMITTER: user}))
    return world.settle().settle()


CAPACITY = ("room_for_pods", "amounts_left", "places")
CASES: dict[str, Case] = {
    "cluster_changes": Case(short, lambda world: set_limits(world, window=1)),
    "object_changes": Case(crowd, lambda world: world.delete("w7-1")),
    "due_instants": Case(backing_off, lambda world: world.advance(3600.0)),
    "usage_changes": Case(by_usage, lambda world: world.advance(300.0)),
    "room_for_pods": Case(
        lambda: halves(1), lambda world: world.delete("s0").add(foreign_pod("s9", on="n1", cpu="1"))
    ),
    "amounts_left": Case(short, lambda world: world.add(foreign_pod("s2", on="n", cpu="100m"))),
    "places": Case(
        in_pieces,
        lambda world: world.delete("s0", "s1").add(
            foreign_pod("s2", on="n0", cpu="2", more={"memory": "3Gi"}),
            foreign_pod("s3", on="n1", cpu="3", more={"memory": "2Gi"}),
        ),
    ),
    "reservation_changes": Case(
        reserved, lambda world: world.add(gang("others", 1, queue="s", cpu="8", created=timestamp(world.now)))
    ),
    "share_changes": Case(lambda: shared(capability={"cpu": "2"}), lambda world: world.finish("runs-0")),
    "running_changes": Case(
        lambda: shared(limits=QueueLimits(groups=1)), lambda world: world.finish("runs-0")
    ),
    "flavors": Case(
        lambda: shared(flavors=[flavor("spot", {"cpu": "2"})]), lambda world: world.finish("runs-0")
    ),
    "changed_heads": Case(in_line, lambda world: world.delete("a-0").ledger.intake.drop_group(key("a"))),
    "decision_changes": Case(lambda: halves(2, "1.1"), lambda world: world.delete("s0")),
    "user_changes": Case(of_users, bob_runs),
    "blocked_groups": Case(
        without_head, lambda world: world.add(gang("first", 1, queue="q", cpu="3", priority=4))
    ),
    "next_candidates": Case(one_after_the_other, first_goes),
    "victim_seekers": Case(
        outranking, lambda world: world.delete("s").add(foreign_pod("s2", on="n", cpu="3", priority=-1))
    ),
}


@each_of(*CASES.values())
def test_every_requeue_equals_a_decision_without_memory(case: Case) -> None:
    world = case.world()
    case.event(world)
    assert is_as_from_nothing(world)


CAUSES = [
    (when, cause.__name__, case)
    for when in ("CAUSES_BEFORE_CYCLE", "BUDGET_CHANGES", "CAUSES_AFTER_CYCLE")
    for cause in getattr(inadmissible, when)
    for case in ((cause.__name__,) if cause is not inadmissible.capacity_changes else CAPACITY)
]


@pytest.mark.parametrize(("when", "cause", "case"), CAUSES, ids=[case for *_, case in CAUSES])
def test_decisions_are_stale_without_each_cause_of_requeueing(
    when: str, cause: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = CASES[case].world()
    CASES[case].event(world)
    left = tuple(each for each in getattr(inadmissible, when) if each.__name__ != cause)
    monkeypatch.setattr(inadmissible, when, left)
    assert not is_as_from_nothing(world)


def test_decisions_are_stale_without_the_alert_on_new_allocations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate one group of each bucket again where anything is allocated."""
    world = short().add(gang("first", 1, queue="q", cpu="0.5", priority=9))
    assert is_as_from_nothing(world)
    monkeypatch.setattr(inadmissible.InadmissibleGroups, "_must_evaluate_all_classes", lambda *_: False)
    assert not is_as_from_nothing(world)


def test_a_start_evaluates_one_group_of_each_equivalence_class() -> None:
    world = short().add([gang(f"more{n}", 2, queue="q", cpu="2", created=timestamp(1000)) for n in range(50)])
    small: dict[str, Any] = {"queue": "q", "cpu": "0.2", "priority": 9}
    world.settle().add(gang("first", 1, **small)).settle().add(gang("second", 1, **small))
    notes = read_facts(world.decide())
    assert notes is not None
    assert set(notes.evaluation.cycle.decisions) == {key("first"), key("second"), key("a")}


def test_a_group_that_changes_during_a_decision_requeues_groups_that_were_evaluated_meanwhile() -> None:
    world = World(node("n"), queue("q"), gang("g", 1, queue="q"))
    decisions = world.add(group("g", 1, queue="q", annotations={keys.HOLD: "true"})).decide()
    world.add(group("g", 1, queue="q"))
    world.ledger.snapshot()  # as for a debug page
    world.publish_decisions(decisions)
    assert world.decide().groups[key("g")].verdict is Verdict.STARTING


def test_deleted_groups_are_not_requeued() -> None:
    """All of a bucket went while they slept, and what they had waited for has changed."""
    world = World(node("n0"), [pod(f"p{n}", selector={"own": f"{n}"}, cpu=f"{n + 1}m") for n in range(20)])
    assert is_as_from_nothing(world.settle().delete(*(f"p{n}" for n in range(20))))
    assert not world.settle().decisions.groups


def test_decisions_that_depend_on_time_are_evaluated_again_at_a_fixed_time() -> None:
    """Keep the time: if it were counted from now, it would differ in each cycle."""
    whole = {"capability": {"cpu": "5"}, "deserved": {"cpu": "4"}}
    world = crowd(10_000.0, pa=whole, pb={"deserved": {"cpu": "1"}}, q={"deserved": {"cpu": "4"}})
    snapshot = world.advance(1.0).ledger.snapshot()
    assert comparable(decide(snapshot, world.decisions)) == comparable(decide(snapshot))
