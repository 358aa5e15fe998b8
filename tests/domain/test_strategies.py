"""dequeueStrategy: the order in a queue, overtaking, and the effects of hold, ageing and rotation."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import PriorityClass
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.snapshot.group_info import GroupInfo
from tests.domain.builders import HOSTNAME, foreign_pod, group, node, pod, preemption, queue
from tests.domain.world import EPOCH, World, gang
from tests.property_examples import examples
from tests.rows import each_of

STARTS, WAITS, RUNS = Verdict.STARTING, Verdict.WAITING, Verdict.RUNNING
CLASSES = [PriorityClass(Meta(name=f"p{n}"), n) for n in range(10)]
HOLD = {keys.HOLD: "true"}


def hours_later(hours: float) -> str:
    """Return a timestamp so many hours after the world's clock began."""
    return datetime.fromtimestamp(EPOCH + 1000 + hours * 3600, UTC).isoformat()


def world_of(strategy: str, *objects: object, cpu: str = "2", **spec: Any) -> World:
    """Return a world with one node, and a queue with that strategy, which preempts no foreign pods."""
    spec.setdefault("preemption", preemption(unmanaged="Never"))
    return World(node("n", cpu=cpu), CLASSES, queue("q", strategy=strategy, **spec), *objects)


def single(name: str, size: str = "1", priority: int = 0, created: str = "", **more: Any) -> list[object]:
    """Return a group of one pod of that size."""
    return gang(
        name,
        1,
        queue="q",
        cpu=size,
        priority_class=f"p{priority}",
        priority=priority,
        created=created,
        **more,
    )


def starting(world: World) -> list[str]:
    groups = world.settle().decisions.groups.values()
    return sorted(str(each.key).partition("/")[2] for each in groups if each.verdict is STARTS)


def end(world: World, name: str) -> World:
    """End a group's only pod, which is gone with its group."""
    world.finish(f"{name}-0").settle().delete(f"{name}-0")
    world.ledger.intake.drop_group(world.decision(name).key)
    return world


def begin(world: World, name: str) -> World:
    """Start a group that has been decided on, like `World.start`."""
    world.scheduler_takes(*world.plan(name)).run(f"{name}-0")
    return world.settle()


# ---- one decision: the order of starts


@each_of(
    ("traverse", ["low", "small"], {"big": Reason.NO_ROOM}),
    ("priority", ["low", "small"], {"big": Reason.NO_ROOM}),
    ("rotation", ["low", "small"], {"big": Reason.NO_ROOM}),
    ("unheard-of", ["low", "small"], {"big": Reason.NO_ROOM}),
    ("fifo", [], {"big": Reason.NO_ROOM, "small": Reason.BEHIND_OTHERS, "low": Reason.BEHIND_OTHERS}),
    ("mixed", [], {"big": Reason.NO_ROOM, "small": Reason.BEHIND_OTHERS, "low": Reason.BEHIND_OTHERS}),
)
def test_lower_groups_behind_one_that_lacks_capacity_wait_by_strategy(
    strategy: str, starts: list[str], reasons: dict[str, Reason]
) -> None:
    world = world_of(strategy, foreign_pod("s", on="n", cpu="2"), cpu="4")
    world.add(single("big", "3", 5), single("small", "1", 4), single("low", "1", 0))
    assert starting(world) == starts
    assert {name: world.reason(name) for name in reasons} == reasons


@each_of("fifo", "mixed")
def test_no_group_passes_one_for_which_capacity_is_reclaimed(strategy: str) -> None:
    world = world_of(strategy, foreign_pod("s", on="n", cpu="2"), cpu="4", preemption=preemption())
    world.add(single("big", "3", 5), single("low", "1", 0)).settle()
    assert (world.reason("big"), world.reason("low")) == (Reason.RECLAIMING, Reason.BEHIND_OTHERS)
    world.add(single("first", "1", 9)).settle()
    assert world.reason("first") is Reason.NO_ROOM, "it comes before that group, whose capacity is held"


@each_of((None, ["low"]), (3, []), (0, []), (9, ["low"]))
def test_only_high_priorities_of_a_mixed_queue_block(threshold: int | None, starts: list[str]) -> None:
    world = world_of("mixed", priority_threshold=threshold, cpu="2")
    world.add(single("big", "3", 3), single("low", "1", 0), foreign_pod("s", on="n", cpu="1"))
    world.add(node("large", cpu="4"), foreign_pod("t", on="large", cpu="4"))
    assert starting(world) == starts


@each_of("traverse", "fifo", "priority", "rotation", "mixed")
def test_inside_a_queue_priority_comes_before_age(strategy: str) -> None:
    world = world_of(strategy, cpu="1")
    world.add(
        single("old", created=hours_later(0)),
        single("young", created=hours_later(1)),
        single("high", priority=1, created=hours_later(2)),
    )
    order = []
    for _ in range(3):
        order += starting(world)
        end(begin(world, order[-1]), order[-1])
    assert order == ["high", "old", "young"]


# ---- backing off


def refused(world: World, name: str) -> World:
    """Fail the start of a group of one: the scheduler refuses all nodes."""
    world.settle().ungate(f"{name}-0").refuse(f"{name}-0")
    world.pass_time(3)
    assert world.reason(name) is Reason.BACKING_OFF, world.decision(name)
    return world


@each_of(("traverse", ["low"]), ("rotation", ["low"]), ("priority", ["low"]), ("fifo", []), ("mixed", []))
def test_while_the_best_group_backs_off(strategy: str, starts: list[str]) -> None:
    """Nothing was freed but by its own failure."""
    world = world_of(strategy, single("best", priority=5, selector={HOSTNAME: "n"}), cpu="1")
    world.add(node("other", cpu="1"))
    assert starting(refused(world, "best").add(single("low"))) == starts


@each_of("traverse", "rotation", "priority")
def test_freed_capacity_goes_to_the_best_group_only_by_strict_priority(strategy: str) -> None:
    world = world_of(strategy, foreign_pod("s", on="n", cpu="1"), single("best", priority=5), cpu="2")
    refused(world, "best").add(foreign_pod("t", on="n", cpu="1"), single("low")).settle()
    world.ledger.intake.set_node(world.nodes["n"])
    assert world.reason("low") is Reason.NO_ROOM
    world.advance(0.5).delete("s")
    world.add(node("m", cpu="1"), foreign_pod("u", on="n", cpu="1"))
    assert starting(world) == (["best"] if strategy == "priority" else ["low"])


def test_a_release_before_the_failure_is_no_release() -> None:
    world = world_of("priority", foreign_pod("s", on="n", cpu="1"), single("best", priority=5), cpu="2")
    world.settle().delete("s")
    refused(world, "best")
    world.advance(1).settle()
    assert world.reason("best") is Reason.BACKING_OFF
    world.pass_time(10)
    assert world.reason("best") is not Reason.BACKING_OFF, "it is tried again when its time has come"


# ---- rotation


def rotating(*names: str, big: str = "") -> World:
    """Return a world with groups in the order of their names that wait for one cpu of two.

    `big` needs two.
    """
    world = world_of("rotation", foreign_pod("s", on="n", cpu="2"), cpu="2")
    for n, name in enumerate(names):
        world.add(single(name, "2" if name == big else "1", created=hours_later(n / 60)))
    return world.settle()


def test_a_group_that_was_passed_comes_after_all_others() -> None:
    world = rotating("a", "b", "c", big="a").delete("s").add(foreign_pod("t", on="n", cpu="1"))
    assert starting(world) == ["b"], "a had its turn"
    end(begin(world, "b"), "b").delete("t")
    assert starting(world) == ["c"], "both fit now, and it is c's turn"
    end(begin(world, "c"), "c")
    assert starting(world) == ["a"]


def test_a_group_that_is_not_passed_keeps_its_turn() -> None:
    world = rotating("a", "b", big="a").delete("s").add(foreign_pod("t", on="n", cpu="2")).settle()
    world.add(single("c", created=hours_later(1))).settle().delete("t")
    assert starting(world) == ["a"]


def test_a_new_group_waits_for_groups_that_were_passed() -> None:
    """A stream of new groups never keeps back one that was passed."""
    world = rotating("a", "b", big="a").delete("s").add(foreign_pod("t", on="n", cpu="1"))
    assert starting(world) == ["b"]
    begin(world, "b").add(single("late", created=hours_later(1))).settle()
    world.delete("t")
    end(world, "b")
    assert starting(world) == ["a"]


def test_a_failed_start_is_a_turn() -> None:
    world = world_of("rotation", foreign_pod("s", on="n"), single("a", created=hours_later(0)), cpu="2")
    world.add(single("b", "2", created=hours_later(1)))
    refused(world, "a").add(foreign_pod("t", on="n")).pass_time(400)
    assert [world.reason("a"), world.reason("b")] == [Reason.NO_ROOM] * 2
    world.delete("s", "t")
    assert starting(world) == ["b"], "it has not had its turn"


def test_laps_are_forgotten_with_a_start_that_stands() -> None:
    world = rotating("a", "b", big="a").delete("s").add(foreign_pod("t", on="n", cpu="1")).settle()
    begin(world, "b").pass_time(60)
    assert world.ledger.snapshot().groups[world.decision("b").key].start.rotation is None
    assert world.ledger.snapshot().groups[world.decision("a").key].start.rotation == 1


# ---- ageing


@each_of((0, "high"), (1, "high"), (3, "old"))
def test_ageing_lets_old_groups_go_first(ageing: int, first: str) -> None:
    world = world_of("traverse", ageing=ageing, cpu="1").advance(3600 * 10)
    world.add(single("old", created=hours_later(0)), single("high", priority=5, created=hours_later(2)))
    assert starting(world) == [first]


def test_ageing_carries_a_group_over_the_threshold_of_a_mixed_queue() -> None:
    world = world_of("mixed", foreign_pod("s", on="n", cpu="1"), ageing=4, cpu="2")
    world.add(single("big", "2", created=hours_later(0)), node("x", cpu="1")).settle()
    assert starting(world.add(single("first", created=hours_later(0)))) == ["first"]
    begin(world, "first").add(node("y", cpu="1"), foreign_pod("t", on="y"))
    assert world.settle().decisions.requeue_at is not None
    world.pass_time(3700)
    world.delete("t").add(single("second", created=hours_later(1)))
    assert starting(world) == []
    assert world.reason("second") is Reason.BEHIND_OTHERS


# ---- hold


def test_a_held_group_blocks_no_other_and_starts_once_it_is_resumed() -> None:
    world = world_of("fifo", single("held", priority=5, notes=HOLD), single("next"), cpu="1")
    assert starting(world) == ["next"]
    assert world.reason("held") is Reason.HELD
    end(begin(world, "next"), "next").add(group("held", 1, queue="q"))
    assert starting(world) == ["held"]


def test_a_start_that_has_begun_is_cancelled_while_no_member_is_on_a_node() -> None:
    world = world_of("", single("g")).settle()
    assert world.verdict("g") is STARTS
    world.add(group("g", 1, queue="q", annotations=HOLD)).settle()
    assert world.reason("g") is Reason.HELD
    assert world.stage("g-0") is None


def test_no_member_joins_a_held_group_that_runs() -> None:
    world = world_of("", gang("g", 2, queue="q"), cpu="4").start("g").run("g-0", "g-1")
    world.pass_time(60)
    world.add(group("g", 2, queue="q", annotations=HOLD), pod("g-2", "g")).settle()
    assert (world.verdict("g"), world.reason("g")) == (RUNS, Reason.HELD)
    world.delete("g-1").settle()
    assert (world.verdict("g"), world.reason("g")) == (RUNS, Reason.HELD)
    assert not world.plan("g"), "the member that was lost is not replaced"
    world.add(group("g", 2, queue="q")).settle()
    assert list(world.plan("g")) == ["g-2"]


@each_of(("None", True), ("Hold", True), ("HoldAndDrain", False))
def test_a_stopped_queue_admits_nothing_new(policy: str, replaced: bool) -> None:
    world = world_of("", gang("runs", 2, queue="q"), cpu="9").start("runs")
    world.pass_time(60)
    world.add(queue("q", stop_policy=policy), single("new"), pod("runs-2", "runs")).settle()
    stopped = policy != "None"
    assert world.verdict("new") is (WAITS if stopped else STARTS)
    if stopped:
        assert world.reason("new") is Reason.QUEUE_STOPPED
        assert world.detail("new").endswith(f" {policy}")
        assert world.reason("runs") is Reason.QUEUE_STOPPED
    world.add(queue("q", stop_policy=policy), pod("runs-3", "runs")).delete("runs-1").settle()
    assert bool(world.plan("runs")) is replaced


def test_groups_that_a_queue_does_not_admit_are_no_demand() -> None:
    world = World(node("n", cpu="4"), queue("q", stop_policy="Hold"), queue("r"), CLASSES)
    world.add(single("g", "4"), gang("h", 4, queue="r")).settle()
    assert world.queue("r").deserved["cpu"] == 4000
    assert starting(world) == ["h"]
    world = World(node("n", cpu="4"), queue("q"), queue("r"), CLASSES, single("g", "4", notes=HOLD))
    assert world.add(gang("h", 4, queue="r")).settle().queue("r").deserved["cpu"] == 4000


# ---- bad input


@each_of(
    ({"stop_policy": "Sometimes"}, "'Sometimes'; it must be one of None, Hold, HoldAndDrain"),
    ({"ageing": -1}, "spec.ageing is -1; it must be 0 or more"),
    ({"default_request": {"cpu": "much"}}, "'much' is not "),
)
def test_an_invalid_field_is_reported(spec: dict[str, Any], fault: str) -> None:
    world = world_of("", single("g"), **spec).settle()
    assert world.reason("g") is Reason.INVALID_SPEC
    assert fault in world.detail("g")
    assert fault in world.queue("q").fault


# ---- what always holds, for groups of any size and priority that come, start and end

SIZES = st.sampled_from(["1", "2", "3", "4"])
ARRIVALS = st.lists(st.tuples(SIZES, st.integers(0, 2)), min_size=2, max_size=7)


def played(strategy: str, coming: list[tuple[str, int]], **spec: Any) -> Iterator[tuple[World, list[str]]]:
    """Play groups that come one after the other to a node of 4 cpu.

    After each decision the ones that start run, and the oldest that runs ends. Yields the world before
    that, and the names of the starting groups, until all have run.
    """
    world = world_of(strategy, cpu="4", **spec)
    left, running = list(enumerate(coming)), []
    for _ in range(8 * len(coming)):
        if left:
            number, (size, priority) = left.pop(0)
            world.add(single(f"g{number}", size, priority, hours_later(number / 3600)))
        starts = starting(world)
        yield world, starts
        for name in starts:
            begin(world, name)
        running += starts
        if running:
            end(world, running.pop(0))
        if not (left or running or waiting(world)):
            return
        world.advance(1)
    raise AssertionError(f"starved: {waiting(world)}")


def waiting(world: World) -> list[str]:
    groups = world.settle().decisions.groups.values()
    return [str(each.key).partition("/")[2] for each in groups if each.verdict is WAITS]


def line_of(world: World) -> list[GroupInfo]:
    return sorted(world.ledger.snapshot().groups.values(), key=lambda view: view.order)


@given(strategy=st.sampled_from(["traverse", "fifo", "priority", "rotation", "mixed"]), coming=ARRIVALS)
@settings(max_examples=examples(25), deadline=None)
def test_all_groups_start_in_the_end_under_each_strategy(
    strategy: str, coming: list[tuple[str, int]]
) -> None:
    list(played(strategy, coming))


@given(coming=ARRIVALS)
@settings(max_examples=examples(25), deadline=None)
def test_fifo_never_passes_its_head(coming: list[tuple[str, int]]) -> None:
    for world, starts in played("fifo", coming):
        names = [view.key.partition("/")[2] for view in line_of(world)]
        waits = set(waiting(world))
        first = next((n for n, name in enumerate(names) if name in waits), len(names))
        assert all(names.index(name) < first for name in starts)


@given(strategy=st.sampled_from(["traverse", "priority", "rotation"]), coming=ARRIVALS)
@settings(max_examples=examples(25), deadline=None)
def test_equal_groups_start_in_order_of_priority_and_age(
    strategy: str, coming: list[tuple[str, int]]
) -> None:
    """Start groups of equal size by priority, then by age.

    Where turns count, this holds only if neither of them was ever passed.
    """
    passed: set[str] = set()
    for world, starts in played(strategy, coming):
        views = {view.key.partition("/")[2]: view for view in line_of(world)}
        sizes = {name: coming[int(name[1:])][0] for name in views}
        for name in starts:
            for other in set(waiting(world)) - (passed if strategy == "rotation" else set()):
                assert sizes[other] != sizes[name] or views[other].order > views[name].order
        passed |= {name for name, view in views.items() if view.start.rotation}


@given(coming=st.lists(SIZES, min_size=3, max_size=8))
@settings(max_examples=examples(25), deadline=None)
def test_in_rotation_no_group_is_passed_twice_before_all_had_a_turn(coming: list[str]) -> None:
    """Rotations of groups that wait are never more than one apart."""
    for world, _ in played("rotation", [(size, 0) for size in coming]):
        names, views = set(waiting(world)), line_of(world)
        rotations = [view.start.rotation or 0 for view in views if view.key.partition("/")[2] in names]
        assert not rotations or max(rotations) - min(rotations) <= 1
