"""The place of a group in the line of its queue: which is next."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import PriorityClass
from extender.api.objects.queues import QueueLimits
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling.results import coarse_position
from extender.domain.snapshot.decisions import message_of
from tests.domain.builders import foreign_pod, node, pod, preemption, queue
from tests.domain.world import World, gang
from tests.property_examples import examples
from tests.rows import each_of

CLASSES = [PriorityClass(Meta(name=f"p{n}"), n) for n in range(4)]


def world_of(strategy: str = "", cpu: str = "1", **spec: Any) -> World:
    """Return a world with one node that fits one group at a time."""
    spec.setdefault("preemption", preemption(within_queue="Never", unmanaged="Never"))
    return World(node("n", cpu=cpu), CLASSES, queue("q", strategy=strategy, **spec))


def single(name: str, priority: int = 0, created: str = "", size: str = "1", **more: Any) -> list[object]:
    ranks: dict[str, Any] = {"priority": priority, "priority_class": f"p{priority}", "created": created}
    return gang(name, 1, queue="q", cpu=size, **ranks, **more)


def places(world: World, *names: str) -> list[int]:
    return [world.decision(name).position for name in names]


def test_priority_then_age_then_name() -> None:
    world = world_of().add(
        foreign_pod("s", on="n"), single("a", 0, "2026-01-01"), single("b", 0, "2026-01-02")
    )
    world.add(single("c", 3, "2026-01-03"), single("ab", 0, "2026-01-02")).settle()
    assert places(world, "a", "ab", "b", "c") == [2, 3, 4, 1]
    assert world.queue("q").waiting == 4
    assert message_of(world.decision("c")).endswith("; position 1 in queue q")


def test_positions_count_within_each_queue() -> None:
    world = (
        world_of()
        .add(foreign_pod("s", on="n"), queue("other"), single("a"), gang("b", 1, queue="other"))
        .settle()
    )
    assert places(world, "a", "b") == [1, 1]


def test_a_starting_or_running_group_has_no_position() -> None:
    world = world_of().add(single("a", 0, "2026-01-01"), single("b", 0, "2026-01-02")).settle()
    assert places(world, "a", "b") == [0, 1]
    assert message_of(world.decision("a")) == ""


@each_of(
    (Reason.HELD, single("x", notes={keys.HOLD: "true"})),
    (Reason.NEVER_FITS, single("x", size="9")),
    (Reason.NOT_ENOUGH_MEMBERS, gang("x", 1, 2, queue="q")),
)
def test_a_group_that_cannot_start_has_no_position(reason: Reason, group: list[object]) -> None:
    world = world_of().add(foreign_pod("s", on="n"), group, single("z", 0, "2027-01-01")).settle()
    assert world.reason("x") is reason
    assert places(world, "x", "z") == [0, 1]
    assert world.queue("q").waiting == 1


@each_of("traverse", "fifo")
def test_a_group_in_backoff_keeps_its_position(strategy: str) -> None:
    world = world_of(strategy).add(single("a", 0, "2026-01-01"), single("b", 0, "2026-01-02")).settle()
    world.ungate("a-0").refuse("a-0")
    world.settle().advance(3).settle()
    assert world.reason("a") is Reason.BACKING_OFF
    assert world.decision("a").position == 1


def test_in_a_rotating_queue_passed_groups_come_last() -> None:
    world = world_of("rotation", cpu="2")
    world.add(
        single("big", 0, "2026-01-01", size="2"), single("a", 0, "2026-01-02"), single("b", 0, "2026-01-03")
    )
    world.add(foreign_pod("s", on="n"), single("c", 0, "2026-01-04")).settle()
    assert world.verdict("a") is Verdict.STARTING  # it passed the first one, which waits for its next turn
    assert places(world, "b", "c", "big") == [1, 2, 3]


def test_positions_stay_where_only_capacity_changes() -> None:
    """Carry the positions over when a foreign pod comes and no group is evaluated again."""
    world = world_of(cpu="4").add(foreign_pod("s", on="n", cpu="3"))
    world.add(single("a", 0, "2026-01-01", size="2"), single("b", 0, "2026-01-02", size="3")).settle()
    world.add(foreign_pod("t", on="n", cpu="500m")).settle()
    assert places(world, "a", "b") == [1, 2]


def test_the_first_nine_positions_are_exact_and_others_rounded_down() -> None:
    assert [
        coarse_position(n) for n in (0, 1, 9, 10, 14, 15, 49, 50, 59, 99, 100, 149, 150, 999, 1000, 12345)
    ] == [*(0, 1, 9, 10, 10, 15, 45, 50, 50, 90, 100, 100, 150, 900, 1000, 10000)]


def test_one_start_moves_few_positions_of_a_long_line() -> None:
    assert sum(coarse_position(n) != coarse_position(n - 1) for n in range(2, 1001)) == 35


@settings(max_examples=examples(30))
@given(
    st.sampled_from(["", "fifo", "priority", "rotation", "mixed"]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=2, max_size=6),
)
def test_groups_start_in_the_order_of_their_positions(strategy: str, groups: list[tuple[int, int]]) -> None:
    world = world_of(strategy, limits=QueueLimits(groups=1))  # who waits too long has its place reserved
    world.add(pod("first", queue="q")).start("pod:first")
    for n, (priority, day) in enumerate(groups):
        world.add(single(f"g{n}", priority, f"2026-01-0{day}"))
    world.settle()
    waiting = {f"g{n}" for n in range(len(groups))}
    runner = "first"
    while waiting:
        assert sorted(places(world, *waiting)) == list(range(1, len(waiting) + 1))
        expected = next(name for name in waiting if world.decision(name).position == 1)
        world.finish(runner).settle()
        assert {name for name in waiting if world.verdict(name) is Verdict.STARTING} == {expected}
        world.start(expected)
        waiting, runner = waiting - {expected}, f"{expected}-0"


def test_a_group_that_reclaims_keeps_its_position() -> None:
    world = World(node("n"), CLASSES, queue("q"), queue("r", reclaimable=True))
    for n in range(4):
        world.add(gang(f"r{n}", 1, queue="r")).start(f"r{n}")
    world.add(single("a", 0, "2026-01-01", size="2"), single("b", 0, "2026-01-02")).settle()
    assert world.reason("a") is Reason.RECLAIMING
    assert places(world, "a", "b") == [1, 2]
